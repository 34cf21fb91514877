//! Samples the servers in a loop, reconnecting when connections break or servers change.

use std::time::{Duration, Instant};

use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;
use tokio::time;

use super::sample::Sample;
use crate::error::Error;
use crate::servers::{Servers, Source};

/// How long connections are used before they are replaced: a cluster may have a new primary.
const CONNECT_AGAIN: Duration = Duration::from_secs(120);

/// The interval between attempts to find all servers.
const RETRY: Duration = Duration::from_secs(1);

/// How long one of multiple servers may be silent before it is shown as missing, so that the others' numbers do not
/// wait for it.
const REPLY_TIMEOUT: Duration = Duration::from_secs(2);

/// Queries the servers until nothing receives the samples.
pub async fn watch_servers(
    servers: Servers,
    count: u16,
    mut pace: watch::Receiver<Duration>,
    samples: mpsc::Sender<Result<Sample, Error>>,
) {
    let mut watched = Watched { source: servers.source(), current: None, since: Instant::now(), connecting: None };
    watched.use_from_now(servers);
    loop {
        let interval = *pace.borrow_and_update();
        tokio::select! {
            () = time::sleep(interval) => {}
            changed = pace.changed() => if changed.is_err() { return },
        }
        if samples.send(watched.sample(count).await).await.is_err() {
            return;
        }
    }
}

struct Watched {
    source: Source,
    /// None: no server replies.
    current: Option<Servers>,
    /// The last attempt to find all of them.
    since: Instant,
    /// The next attempt, which does not delay samples from the servers that reply.
    connecting: Option<JoinHandle<Result<Servers, Error>>>,
}

impl Watched {
    async fn sample(&mut self, count: u16) -> Result<Sample, Error> {
        self.take_new_connections().await;
        let servers = match &mut self.current {
            Some(servers) => servers,
            None => {
                let servers = self.source.clone().connect().await?;
                self.use_from_now(servers)
            }
        };
        let sample = Sample::take(servers, count).await;
        match &sample {
            Err(_) => self.current = None,
            Ok(sample) => {
                let may_have_moved = self.source.is_followed() && sample.has_replica();
                let wait = if may_have_moved || !sample.missing.is_empty() { RETRY } else { CONNECT_AGAIN };
                if self.connecting.is_none() && self.since.elapsed() >= wait {
                    self.connecting = Some(tokio::spawn(self.source.clone().connect()));
                }
            }
        }
        sample
    }

    async fn take_new_connections(&mut self) {
        let Some(done) = self.connecting.take_if(|connecting| connecting.is_finished()) else { return };
        self.since = Instant::now();
        if let Ok(Ok(servers)) = done.await {
            self.use_from_now(servers);
        }
    }

    fn use_from_now(&mut self, mut servers: Servers) -> &mut Servers {
        servers.set_reply_timeout(REPLY_TIMEOUT);
        self.since = Instant::now();
        self.current.insert(servers)
    }
}

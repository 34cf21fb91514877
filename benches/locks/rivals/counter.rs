//! A reentrant lock with a counter: the owner in one key, its hold count in another, polled every millisecond.
//!
//! Nested acquires are counted in the server, so that any task of the owner may release one.

use std::io;
use std::time::Duration;

use async_io::Timer;

use support::{Connection, Reply};

use super::locker::{lost, ClientConfig, Locker, Step};
use super::rival::Rival;

pub const COUNTER: Rival = Rival {
    name: "counter lock (1 ms)",
    how: "SET NX PX for the owner and INCR for its holds, retried every millisecond with a GET; \
          released by GET, DECR and DEL of both",
    probe: &[],
    scripts: &[],
    pair: |pair, names| {
        let count = format!("{}:count", names.key);
        pair.acquire.push(&["SET", &names.key, &names.token, "NX", "PX", &names.lease_ms]);
        pair.acquire.push(&["INCR", &count]);
        pair.acquire.push(&["PEXPIRE", &count, &names.lease_ms]);
        pair.release.push(&["GET", &names.key]);
        pair.release.push(&["DECR", &count]);
        pair.release.push(&["DEL", &names.key, &count]);
    },
    freed: |reply| *reply == Reply::Int(2),
    open: Some(|config| Box::pin(open(config))),
};

struct Counter {
    client: Connection,
    config: ClientConfig,
    count: String,
}

async fn open(config: ClientConfig) -> io::Result<Box<dyn Locker>> {
    let count = format!("{}:count", config.names.key);
    Ok(Box::new(Counter { client: config.connect().await?, config, count }))
}

impl Locker for Counter {
    fn acquire(&mut self) -> Step<'_, ()> {
        Box::pin(async {
            let names = &self.config.names;
            loop {
                let set = ["SET", &names.key, &names.token, "NX", "PX", &names.lease_ms];
                let taken = !self.client.call(&set).await?.is_null();
                if taken || self.client.call(&["GET", &names.key]).await?.is_bulk(&names.token) {
                    self.client.call(&["INCR", &self.count]).await?;
                    self.client.call(&["PEXPIRE", &self.count, &names.lease_ms]).await?;
                    return Ok(());
                }
                Timer::after(Duration::from_millis(1)).await;
            }
        })
    }

    fn release(&mut self) -> Step<'_, ()> {
        Box::pin(async {
            let names = &self.config.names;
            let holder = self.client.call(&["GET", &names.key]).await?;
            if !holder.is_bulk(&names.token) {
                return Err(lost("the counter lock", &holder));
            }
            if self.client.call(&["DECR", &self.count]).await? == Reply::Int(0) {
                self.client.call(&["DEL", &names.key, &self.count]).await?;
            }
            Ok(())
        })
    }
}

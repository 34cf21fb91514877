//! redlock-py on one server: `SET NX PX`, three tries at intervals of 200 ms with one token, then with a new one. After
//! each failed try it runs the script that frees the lock, as Redlock requires.

use std::io;
use std::time::Duration;

use async_io::Timer;

use support::{Connection, Reply};

use super::locker::{lost, ClientConfig, Locker, Step};
use super::rival::Rival;
use super::set_lua;

pub const REDLOCK: Rival = Rival {
    name: "redlock-py (200 ms)",
    how: "SET NX PX, retried every 200 ms, with a new token after three tries; each failed try and each release sends \
          a script that compares the token and deletes",
    probe: &[],
    scripts: &[set_lua::RELEASE],
    pair: |pair, names| {
        pair.acquire.push(&["SET", &names.key, &names.token, "NX", "PX", &names.lease_ms]);
        pair.release.push(&["EVALSHA", &names.scripts[0], "1", &names.key, &names.token]);
    },
    freed: |reply| *reply == Reply::Int(1),
    open: Some(|config| Box::pin(open(config))),
};

/// The number of tries with one token.
const TRIES: u64 = 3;

struct Redlock {
    client: Connection,
    config: ClientConfig,
    tries: u64,
}

async fn open(config: ClientConfig) -> io::Result<Box<dyn Locker>> {
    Ok(Box::new(Redlock { client: config.connect().await?, config, tries: 0 }))
}

impl Redlock {
    fn token(&self) -> String {
        format!("{}{:08x}", &self.config.names.token[..28], self.tries / TRIES) + &self.config.names.token[28..]
    }

    async fn free(&mut self) -> io::Result<Reply> {
        let (names, token) = (&self.config.names, self.token());
        self.client.call(&["EVALSHA", &names.scripts[0], "1", &names.key, &token]).await
    }
}

impl Locker for Redlock {
    fn acquire(&mut self) -> Step<'_, ()> {
        Box::pin(async {
            // A new token for each lock.
            self.tries = self.tries.next_multiple_of(TRIES);
            loop {
                let (names, token) = (&self.config.names, self.token());
                if !self.client.call(&["SET", &names.key, &token, "NX", "PX", &names.lease_ms]).await?.is_null() {
                    return Ok(());
                }
                self.free().await?;
                Timer::after(Duration::from_millis(200)).await;
                self.tries += 1;
            }
        })
    }

    fn release(&mut self) -> Step<'_, ()> {
        Box::pin(async {
            let reply = self.free().await?;
            self.tries += 1;
            match reply {
                Reply::Int(1) => Ok(()),
                other => Err(lost("redlock-py", &other)),
            }
        })
    }
}

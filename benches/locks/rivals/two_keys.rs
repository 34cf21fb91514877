//! A lock object with two keys, the lock and its owner, each checked by GET, polled every millisecond.
//!
//! The check and the deletion are separate commands, which is a known race of this lock.

use std::io;
use std::time::Duration;

use async_io::Timer;

use support::{Connection, Reply};

use super::locker::{lost, ClientConfig, Locker, Step};
use super::rival::Rival;

pub const TWO_KEYS: Rival = Rival {
    name: "two keys with GET checks (1 ms)",
    how: "GET, SET NX PX of the lock, SET PX of the owner, retried every millisecond; \
          released by GET of the owner and DEL of both",
    probe: &[],
    scripts: &[],
    pair: |pair, names| {
        let owner = format!("{}:owner", names.key);
        pair.acquire.push(&["GET", &names.key]);
        pair.acquire.push(&["SET", &names.key, "1", "NX", "PX", &names.lease_ms]);
        pair.acquire.push(&["SET", &owner, &names.token, "PX", &names.lease_ms]);
        pair.release.push(&["GET", &owner]);
        pair.release.push(&["DEL", &owner, &names.key]);
    },
    freed: |reply| *reply == Reply::Int(2),
    open: Some(|config| Box::pin(open(config))),
};

struct TwoKeys {
    client: Connection,
    config: ClientConfig,
    owner: String,
}

async fn open(config: ClientConfig) -> io::Result<Box<dyn Locker>> {
    let owner = format!("{}:owner", config.names.key);
    Ok(Box::new(TwoKeys { client: config.connect().await?, config, owner }))
}

impl Locker for TwoKeys {
    fn acquire(&mut self) -> Step<'_, ()> {
        Box::pin(async {
            let names = &self.config.names;
            loop {
                if self.client.call(&["GET", &names.key]).await?.is_null() {
                    let set = ["SET", &names.key, "1", "NX", "PX", &names.lease_ms];
                    if !self.client.call(&set).await?.is_null() {
                        self.client.call(&["SET", &self.owner, &names.token, "PX", &names.lease_ms]).await?;
                        return Ok(());
                    }
                }
                Timer::after(Duration::from_millis(1)).await;
            }
        })
    }

    fn release(&mut self) -> Step<'_, ()> {
        Box::pin(async {
            let names = &self.config.names;
            let holder = self.client.call(&["GET", &self.owner]).await?;
            if !holder.is_bulk(&names.token) {
                return Err(lost("the lock of two keys", &holder));
            }
            self.client.call(&["DEL", &self.owner, &names.key]).await?;
            Ok(())
        })
    }
}

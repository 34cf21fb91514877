//! The textbook lock: `SETNX` followed by `EXPIRE`, released under `WATCH`/`MULTI`, polled every millisecond.
//!
//! A crash between SETNX and EXPIRE leaves a lock without expiry. So a client that finds the lock held reads its TTL,
//! and sets one if there is none.

use std::io;
use std::time::Duration;

use async_io::Timer;

use support::{Connection, Reply};

use super::locker::{lost, ClientConfig, Locker, Step};
use super::rival::Rival;

pub const SETNX_WATCH: Rival = Rival {
    name: "SETNX, EXPIRE, WATCH (1 ms)",
    how: "SETNX, EXPIRE; retried every millisecond with a look at TTL; released by WATCH, GET, MULTI, DEL, EXEC",
    probe: &[],
    scripts: &[],
    pair: |pair, names| {
        pair.acquire.push(&["SETNX", &names.key, &names.token]);
        pair.acquire.push(&["EXPIRE", &names.key, &names.lease_seconds]);
        pair.release.push(&["WATCH", &names.key]);
        pair.release.push(&["GET", &names.key]);
        pair.release.push(&["MULTI"]);
        pair.release.push(&["DEL", &names.key]);
        pair.release.push(&["EXEC"]);
    },
    freed: |reply| matches!(reply, Reply::Array(_)),
    open: Some(|config| Box::pin(open(config))),
};

struct SetnxWatch {
    client: Connection,
    config: ClientConfig,
}

async fn open(config: ClientConfig) -> io::Result<Box<dyn Locker>> {
    Ok(Box::new(SetnxWatch { client: config.connect().await?, config }))
}

impl Locker for SetnxWatch {
    fn acquire(&mut self) -> Step<'_, ()> {
        Box::pin(async {
            let names = &self.config.names;
            loop {
                let taken = self.client.call(&["SETNX", &names.key, &names.token]).await?;
                if taken == Reply::Int(1) {
                    self.client.call(&["EXPIRE", &names.key, &names.lease_seconds]).await?;
                    return Ok(());
                }
                if self.client.call(&["TTL", &names.key]).await? == Reply::Int(-1) {
                    self.client.call(&["EXPIRE", &names.key, &names.lease_seconds]).await?;
                }
                Timer::after(Duration::from_millis(1)).await;
            }
        })
    }

    fn release(&mut self) -> Step<'_, ()> {
        Box::pin(async {
            let names = &self.config.names;
            loop {
                self.client.call(&["WATCH", &names.key]).await?;
                let holder = self.client.call(&["GET", &names.key]).await?;
                if !holder.is_bulk(&names.token) {
                    self.client.call(&["UNWATCH"]).await?;
                    return Err(lost("SETNX", &holder));
                }
                // A transaction is sent in one write, and its replies arrive together.
                self.client.send(&["MULTI"]).await?;
                self.client.send(&["DEL", &names.key]).await?;
                self.client.send(&["EXEC"]).await?;
                self.client.receive().await?;
                self.client.receive().await?;
                if !self.client.receive().await?.is_null() {
                    return Ok(());
                }
            }
        })
    }
}

//! The `Lock` of redis-py: `SET NX PX`, polled every 100 ms (the default), released by a script.

use std::io;
use std::time::Duration;

use async_io::Timer;

use support::{Connection, Reply};

use super::locker::{lost, ClientConfig, Locker, Step};
use super::rival::Rival;
use super::set_lua;

pub const REDIS_PY: Rival = Rival {
    name: "redis-py Lock (100 ms)",
    how: "SET NX PX, retried every 100 ms; released by a script that compares the token and deletes",
    probe: &[],
    scripts: &[set_lua::RELEASE],
    pair: |pair, names| {
        pair.acquire.push(&["SET", &names.key, &names.token, "NX", "PX", &names.lease_ms]);
        pair.release.push(&["EVALSHA", &names.scripts[0], "1", &names.key, &names.token]);
    },
    freed: |reply| *reply == Reply::Int(1),
    open: Some(|config| Box::pin(open(config))),
};

struct RedisPy {
    client: Connection,
    config: ClientConfig,
}

async fn open(config: ClientConfig) -> io::Result<Box<dyn Locker>> {
    Ok(Box::new(RedisPy { client: config.connect().await?, config }))
}

impl Locker for RedisPy {
    fn acquire(&mut self) -> Step<'_, ()> {
        Box::pin(async {
            let names = &self.config.names;
            let set = ["SET", &names.key, &names.token, "NX", "PX", &names.lease_ms];
            while self.client.call(&set).await?.is_null() {
                Timer::after(Duration::from_millis(100)).await;
            }
            Ok(())
        })
    }

    fn release(&mut self) -> Step<'_, ()> {
        Box::pin(async {
            let names = &self.config.names;
            match self.client.call(&["EVALSHA", &names.scripts[0], "1", &names.key, &names.token]).await? {
                Reply::Int(1) => Ok(()),
                other => Err(lost("redis-py's Lock", &other)),
            }
        })
    }
}

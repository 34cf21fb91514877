//! `SET NX EX` with a random identifier, released by a script that compares before it deletes, polled every
//! millisecond.

use std::io;
use std::time::Duration;

use async_io::Timer;

use support::{Connection, Reply};

use super::locker::{lost, ClientConfig, Locker, Step};
use super::rival::Rival;

pub const RELEASE: &str =
    "if redis.call('get', KEYS[1]) ~= ARGV[1] then return 0 end return redis.call('del', KEYS[1])";

pub const SET_LUA: Rival = Rival {
    name: "SET NX EX, Lua release (1 ms)",
    how: "SET NX EX, retried every millisecond; released by a script that compares the identifier and deletes",
    probe: &[],
    scripts: &[RELEASE],
    pair: |pair, names| {
        pair.acquire.push(&["SET", &names.key, &names.token, "NX", "EX", &names.lease_seconds]);
        pair.release.push(&["EVALSHA", &names.scripts[0], "1", &names.key, &names.token]);
    },
    freed: |reply| *reply == Reply::Int(1),
    open: Some(|config| Box::pin(open(config))),
};

struct SetLua {
    client: Connection,
    config: ClientConfig,
}

async fn open(config: ClientConfig) -> io::Result<Box<dyn Locker>> {
    Ok(Box::new(SetLua { client: config.connect().await?, config }))
}

impl Locker for SetLua {
    fn acquire(&mut self) -> Step<'_, ()> {
        Box::pin(async {
            let names = &self.config.names;
            let set = ["SET", &names.key, &names.token, "NX", "EX", &names.lease_seconds];
            while self.client.call(&set).await?.is_null() {
                Timer::after(Duration::from_millis(1)).await;
            }
            Ok(())
        })
    }

    fn release(&mut self) -> Step<'_, ()> {
        Box::pin(async {
            let names = &self.config.names;
            match self.client.call(&["EVALSHA", &names.scripts[0], "1", &names.key, &names.token]).await? {
                Reply::Int(1) => Ok(()),
                other => Err(lost("SET NX EX", &other)),
            }
        })
    }
}

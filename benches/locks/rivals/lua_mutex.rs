//! A mutex of two scripts, one that checks and acquires, one that compares and deletes, polled every millisecond.

use std::io;
use std::time::Duration;

use async_io::Timer;

use support::{Connection, Reply};

use super::locker::{lost, ClientConfig, Locker, Step};
use super::rival::Rival;

const ACQUIRE: &str = "\
if redis.call('exists', KEYS[1]) == 1 then return 0 end
redis.call('psetex', KEYS[1], ARGV[2], ARGV[1])
return 1";

/// Returns 1 if freed, 0 if not held, -1 if held by another owner.
const RELEASE: &str = "\
local holder = redis.call('get', KEYS[1])
if not holder then return 0 end
if holder ~= ARGV[1] then return -1 end
redis.call('del', KEYS[1])
return 1";

pub const LUA_MUTEX: Rival = Rival {
    name: "Lua mutex (1 ms)",
    how: "a script of EXISTS and PSETEX, retried every millisecond; released by a script of GET and DEL",
    probe: &[],
    scripts: &[ACQUIRE, RELEASE],
    pair: |pair, names| {
        pair.acquire.push(&["EVALSHA", &names.scripts[0], "1", &names.key, &names.token, &names.lease_ms]);
        pair.release.push(&["EVALSHA", &names.scripts[1], "1", &names.key, &names.token]);
    },
    freed: |reply| *reply == Reply::Int(1),
    open: Some(|config| Box::pin(open(config))),
};

struct LuaMutex {
    client: Connection,
    config: ClientConfig,
}

async fn open(config: ClientConfig) -> io::Result<Box<dyn Locker>> {
    Ok(Box::new(LuaMutex { client: config.connect().await?, config }))
}

impl Locker for LuaMutex {
    fn acquire(&mut self) -> Step<'_, ()> {
        Box::pin(async {
            let names = &self.config.names;
            let acquire = ["EVALSHA", &names.scripts[0], "1", &names.key, &names.token, &names.lease_ms];
            while self.client.call(&acquire).await? != Reply::Int(1) {
                Timer::after(Duration::from_millis(1)).await;
            }
            Ok(())
        })
    }

    fn release(&mut self) -> Step<'_, ()> {
        Box::pin(async {
            let names = &self.config.names;
            match self.client.call(&["EVALSHA", &names.scripts[1], "1", &names.key, &names.token]).await? {
                Reply::Int(1) => Ok(()),
                other => Err(lost("the Lua mutex", &other)),
            }
        })
    }
}

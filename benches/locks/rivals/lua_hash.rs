//! A reentrant mutex in a hash of owner and hold count, managed by two scripts, polled every millisecond.

use std::io;
use std::time::Duration;

use async_io::Timer;

use support::{Connection, Reply};

use super::locker::{lost, ClientConfig, Locker, Step};
use super::rival::Rival;

const ACQUIRE: &str = "\
if redis.call('exists', KEYS[1]) == 1 and redis.call('hexists', KEYS[1], ARGV[1]) == 0 then return 0 end
redis.call('hincrby', KEYS[1], ARGV[1], 1)
redis.call('pexpire', KEYS[1], ARGV[2])
return 1";

/// Returns the remaining holds, or -1 if this owner holds nothing.
const RELEASE: &str = "\
if redis.call('hexists', KEYS[1], ARGV[1]) == 0 then return -1 end
local left = redis.call('hincrby', KEYS[1], ARGV[1], -1)
if left > 0 then redis.call('pexpire', KEYS[1], ARGV[2]) return left end
redis.call('del', KEYS[1])
return 0";

pub const LUA_HASH: Rival = Rival {
    name: "Lua reentrant hash (1 ms)",
    how: "a script of EXISTS, HEXISTS, HINCRBY and PEXPIRE, retried every millisecond; \
          released by one of HEXISTS, HINCRBY and DEL",
    probe: &[],
    scripts: &[ACQUIRE, RELEASE],
    pair: |pair, names| {
        pair.acquire.push(&["EVALSHA", &names.scripts[0], "1", &names.key, &names.token, &names.lease_ms]);
        pair.release.push(&["EVALSHA", &names.scripts[1], "1", &names.key, &names.token, &names.lease_ms]);
    },
    freed: |reply| *reply == Reply::Int(0),
    open: Some(|config| Box::pin(open(config))),
};

struct LuaHash {
    client: Connection,
    config: ClientConfig,
}

async fn open(config: ClientConfig) -> io::Result<Box<dyn Locker>> {
    Ok(Box::new(LuaHash { client: config.connect().await?, config }))
}

impl Locker for LuaHash {
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
            match self
                .client
                .call(&["EVALSHA", &names.scripts[1], "1", &names.key, &names.token, &names.lease_ms])
                .await?
            {
                Reply::Int(0) => Ok(()),
                other => Err(lost("the Lua hash", &other)),
            }
        })
    }
}

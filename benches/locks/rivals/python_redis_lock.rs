//! A lock with a signal list, as in python-redis-lock: a release pushes a signal, and waiters pop it with BLPOP.
//!
//! BLPOP serves its callers in order, but a served caller must still win its SET against new requests. The releasing
//! client deletes the signal right afterwards, so that none remains if there was no waiter.

use std::io;

use support::{Connection, Reply};

use super::locker::{lost, ClientConfig, Locker, Step};
use super::rival::Rival;

/// Returns 0 if released, 1 if not the owner.
const RELEASE: &str = "\
if redis.call('get', KEYS[1]) ~= ARGV[1] then return 1 end
redis.call('del', KEYS[2])
redis.call('lpush', KEYS[2], 1)
redis.call('del', KEYS[1])
return 0";

pub const PYTHON_REDIS_LOCK: Rival = Rival {
    name: "python-redis-lock (BLPOP)",
    how: "GET, SET NX EX, BLPOP of a signal, SET NX EX again; \
          released by a script of GET, DEL, LPUSH, DEL, and a DEL of the signal",
    probe: &[],
    scripts: &[RELEASE],
    pair: |pair, names| {
        let signal = format!("{}:signal", names.key);
        pair.acquire.push(&["GET", &names.key]);
        pair.acquire.push(&["SET", &names.key, &names.token, "NX", "EX", &names.lease_seconds]);
        pair.release.push(&["EVALSHA", &names.scripts[0], "2", &names.key, &signal, &names.token]);
        pair.release.push(&["DEL", &signal]);
    },
    freed: |reply| *reply == Reply::Int(1),
    open: Some(|config| Box::pin(open(config))),
};

struct PythonRedisLock {
    client: Connection,
    config: ClientConfig,
    signal: String,
}

async fn open(config: ClientConfig) -> io::Result<Box<dyn Locker>> {
    let signal = format!("{}:signal", config.names.key);
    Ok(Box::new(PythonRedisLock { client: config.connect().await?, config, signal }))
}

impl Locker for PythonRedisLock {
    fn acquire(&mut self) -> Step<'_, ()> {
        Box::pin(async {
            let names = &self.config.names;
            if self.client.call(&["GET", &names.key]).await?.is_bulk(&names.token) {
                return Err(io::Error::other("python-redis-lock is not reentrant"));
            }
            let set = ["SET", &names.key, &names.token, "NX", "EX", &names.lease_seconds];
            while self.client.call(&set).await?.is_null() {
                self.client.call(&["BLPOP", &self.signal, &names.lease_seconds]).await?;
            }
            Ok(())
        })
    }

    fn release(&mut self) -> Step<'_, ()> {
        Box::pin(async {
            let names = &self.config.names;
            let release = ["EVALSHA", &names.scripts[0], "2", &names.key, &self.signal, &names.token];
            match self.client.call(&release).await? {
                Reply::Int(0) => self.client.call(&["DEL", &self.signal]).await.map(drop),
                other => Err(lost("python-redis-lock", &other)),
            }
        })
    }
}

//! Redisson's reentrant lock: a hash managed by scripts; waiters sleep until a message arrives on the lock's channel.
//!
//! Each client represents a separate process, so each has one connection for commands and one for its subscription, as
//! a JVM would. A client subscribes when it finds the lock held and unsubscribes when it has acquired it.

use std::io;
use std::time::Duration;

use async_io::Timer;
use futures_lite::future;

use support::{Connection, Reply};

use super::locker::{lost, ClientConfig, Locker, Step};
use super::names::Names;
use super::rival::Rival;

/// Returns nil if the caller now holds the lock, else the remaining lease of the holder in ms.
const ACQUIRE: &str = "\
if redis.call('exists', KEYS[1]) == 0 or redis.call('hexists', KEYS[1], ARGV[2]) == 1 then
  redis.call('hincrby', KEYS[1], ARGV[2], 1)
  redis.call('pexpire', KEYS[1], ARGV[1])
  return nil
end
return redis.call('pttl', KEYS[1])";

/// Returns nil if not the owner, 0 if still held, 1 if freed.
const RELEASE: &str = "\
if redis.call('hexists', KEYS[1], ARGV[3]) == 0 then return nil end
local left = redis.call('hincrby', KEYS[1], ARGV[3], -1)
if left > 0 then redis.call('pexpire', KEYS[1], ARGV[2]) return 0 end
redis.call('del', KEYS[1])
redis.call('publish', KEYS[2], ARGV[1])
return 1";

pub const REDISSON: Rival = Rival {
    name: "Redisson (pub/sub)",
    how: "a script on a hash, SUBSCRIBE, the script again after each message, UNSUBSCRIBE; \
          released by a script that publishes",
    probe: &[],
    scripts: &[ACQUIRE, RELEASE],
    pair: |pair, names| {
        let channel = format!("redisson_lock__channel:{{{}}}", names.key);
        pair.acquire.push(&["EVALSHA", &names.scripts[0], "1", &names.key, &names.lease_ms, &names.token]);
        let Names { key, token, lease_ms, scripts, .. } = names;
        pair.release.push(&["EVALSHA", &scripts[1], "2", key, &channel, "0", lease_ms, token]);
    },
    freed: |reply| *reply == Reply::Int(1),
    open: Some(|config| Box::pin(open(config))),
};

struct Redisson {
    client: Connection,
    subscriber: Connection,
    channel: String,
    config: ClientConfig,
}

async fn open(config: ClientConfig) -> io::Result<Box<dyn Locker>> {
    let channel = format!("redisson_lock__channel:{{{}}}", config.names.key);
    Ok(Box::new(Redisson { client: config.connect().await?, subscriber: config.connect().await?, channel, config }))
}

impl Redisson {
    /// None if the client now holds the lock, else the remaining lease of the holder.
    async fn attempt(&mut self) -> io::Result<Option<Duration>> {
        let names = &self.config.names;
        let acquire = ["EVALSHA", &names.scripts[0], "1", &names.key, &names.lease_ms, &names.token];
        Ok(match self.client.call(&acquire).await? {
            Reply::Int(left_ms) => Some(Duration::from_millis(left_ms.max(0).unsigned_abs())),
            _ => None,
        })
    }
}

impl Locker for Redisson {
    fn acquire(&mut self) -> Step<'_, ()> {
        Box::pin(async {
            if self.attempt().await?.is_none() {
                return Ok(());
            }
            self.subscriber.call(&["SUBSCRIBE", &self.channel]).await?;
            while let Some(left) = self.attempt().await? {
                await_message(&mut self.subscriber, left).await?;
            }
            unsubscribe(&mut self.subscriber, &self.channel).await
        })
    }

    fn release(&mut self) -> Step<'_, ()> {
        Box::pin(async {
            let names = &self.config.names;
            let release =
                ["EVALSHA", &names.scripts[1], "2", &names.key, &self.channel, "0", &names.lease_ms, &names.token];
            match self.client.call(&release).await? {
                Reply::Int(1) => Ok(()),
                other => Err(lost("Redisson's lock", &other)),
            }
        })
    }
}

/// Waits for one message of the subscription, at most until the holder's lease expires.
pub async fn await_message(subscriber: &mut Connection, timeout: Duration) -> io::Result<()> {
    let message = async { subscriber.receive().await.map(drop) };
    let lease_end = async {
        Timer::after(timeout).await;
        Ok(())
    };
    future::or(message, lease_end).await
}

/// Unsubscribes, and skips the messages that were still in flight.
pub async fn unsubscribe(subscriber: &mut Connection, channel: &str) -> io::Result<()> {
    subscriber.send(&["UNSUBSCRIBE", channel]).await?;
    loop {
        if let Reply::Array(parts) = subscriber.receive().await? {
            if parts.first().is_some_and(|kind| kind.is_bulk("unsubscribe")) {
                return Ok(());
            }
        }
    }
}

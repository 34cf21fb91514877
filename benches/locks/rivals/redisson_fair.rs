//! Redisson's fair lock: in addition to the hash, a list of the waiters and a sorted set of their deadlines.
//!
//! A release publishes only to the first waiter, so each waiter has its own channel. The next request removes waiters
//! that have not retried within the wait time of five minutes.

use std::io;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use support::{Connection, Reply};

use super::locker::{lost, ClientConfig, Locker, Step};
use super::names::Names;
use super::redisson::{await_message, unsubscribe};
use super::rival::Rival;

const WAIT_MS: &str = "300000";

/// Keys: the lock, the queue, the deadlines. Arguments: lease, owner, wait time, now.
const ACQUIRE: &str = "\
local lock, queue, deadlines = KEYS[1], KEYS[2], KEYS[3]
local owner, wait, now = ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4])
while true do
  local first = redis.call('lindex', queue, 0)
  if not first or tonumber(redis.call('zscore', deadlines, first)) > now then break end
  redis.call('zrem', deadlines, first)
  redis.call('lpop', queue)
end
if redis.call('exists', lock) == 0
   and (redis.call('exists', queue) == 0 or redis.call('lindex', queue, 0) == owner) then
  redis.call('lpop', queue)
  redis.call('zrem', deadlines, owner)
  for _, waiter in ipairs(redis.call('zrange', deadlines, 0, -1)) do
    redis.call('zincrby', deadlines, -wait, waiter)
  end
  redis.call('hset', lock, owner, 1)
  redis.call('pexpire', lock, ARGV[1])
  return nil
end
if redis.call('hexists', lock, owner) == 1 then
  redis.call('hincrby', lock, owner, 1)
  redis.call('pexpire', lock, ARGV[1])
  return nil
end
local mine = redis.call('zscore', deadlines, owner)
if mine then return mine - wait - now end
local last = redis.call('lindex', queue, -1)
local left
if last and last ~= owner then
  left = tonumber(redis.call('zscore', deadlines, last)) - now
else
  left = redis.call('pttl', lock)
end
if redis.call('zadd', deadlines, left + wait + now, owner) == 1 then
  redis.call('rpush', queue, owner)
end
return left";

/// Keys: the lock, the queue, the deadlines, the prefix of the channels. Arguments: message, lease, owner, now.
const RELEASE: &str = "\
local lock, queue, deadlines = KEYS[1], KEYS[2], KEYS[3]
local now = tonumber(ARGV[4])
while true do
  local first = redis.call('lindex', queue, 0)
  if not first or tonumber(redis.call('zscore', deadlines, first)) > now then break end
  redis.call('zrem', deadlines, first)
  redis.call('lpop', queue)
end
if redis.call('exists', lock) == 1 then
  if redis.call('hexists', lock, ARGV[3]) == 0 then return nil end
  if redis.call('hincrby', lock, ARGV[3], -1) > 0 then
    redis.call('pexpire', lock, ARGV[2])
    return 0
  end
  redis.call('del', lock)
end
local next = redis.call('lindex', queue, 0)
if next then redis.call('publish', KEYS[4] .. ':' .. next, ARGV[1]) end
return 1";

pub const REDISSON_FAIR: Rival = Rival {
    name: "Redisson fair (list, zset)",
    how: "a script on a hash, a list and a sorted set, SUBSCRIBE to one's own channel, the script again, UNSUBSCRIBE; \
          released by a script that publishes to the first",
    probe: &[],
    scripts: &[ACQUIRE, RELEASE],
    pair: |pair, names| {
        let keys = Keys::of(names);
        let now = now_ms();
        pair.acquire.push(&acquire(names, &keys, &now));
        pair.release.push(&release(names, &keys, &now));
    },
    freed: |reply| *reply == Reply::Int(1),
    open: Some(|config| Box::pin(open(config))),
};

struct Keys {
    queue: String,
    deadlines: String,
    channels: String,
    /// The channel of this owner.
    channel: String,
}

impl Keys {
    fn of(names: &Names) -> Keys {
        let channels = format!("redisson_lock__channel:{{{}}}", names.key);
        Keys {
            queue: format!("redisson_lock_queue:{{{}}}", names.key),
            deadlines: format!("redisson_lock_timeout:{{{}}}", names.key),
            channel: format!("{channels}:{}", names.token),
            channels,
        }
    }
}

fn acquire<'a>(names: &'a Names, keys: &'a Keys, now: &'a str) -> [&'a str; 10] {
    let Keys { queue, deadlines, .. } = keys;
    ["EVALSHA", &names.scripts[0], "3", &names.key, queue, deadlines, &names.lease_ms, &names.token, WAIT_MS, now]
}

fn release<'a>(names: &'a Names, keys: &'a Keys, now: &'a str) -> [&'a str; 11] {
    let Keys { queue, deadlines, channels, .. } = keys;
    ["EVALSHA", &names.scripts[1], "4", &names.key, queue, deadlines, channels, "0", &names.lease_ms, &names.token, now]
}

fn now_ms() -> String {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("the clock is past 1970");
    now.as_millis().to_string()
}

struct RedissonFair {
    client: Connection,
    subscriber: Connection,
    keys: Keys,
    config: ClientConfig,
}

async fn open(config: ClientConfig) -> io::Result<Box<dyn Locker>> {
    let keys = Keys::of(&config.names);
    Ok(Box::new(RedissonFair { client: config.connect().await?, subscriber: config.connect().await?, keys, config }))
}

impl RedissonFair {
    async fn attempt(&mut self) -> io::Result<Option<Duration>> {
        let now = now_ms();
        Ok(match self.client.call(&acquire(&self.config.names, &self.keys, &now)).await? {
            Reply::Int(left_ms) => Some(Duration::from_millis(left_ms.max(0).unsigned_abs())),
            Reply::Error(text) => return Err(io::Error::other(text)),
            _ => None,
        })
    }
}

impl Locker for RedissonFair {
    fn acquire(&mut self) -> Step<'_, ()> {
        Box::pin(async {
            if self.attempt().await?.is_none() {
                return Ok(());
            }
            self.subscriber.call(&["SUBSCRIBE", &self.keys.channel]).await?;
            while let Some(left) = self.attempt().await? {
                await_message(&mut self.subscriber, left).await?;
            }
            unsubscribe(&mut self.subscriber, &self.keys.channel).await
        })
    }

    fn release(&mut self) -> Step<'_, ()> {
        Box::pin(async {
            let now = now_ms();
            match self.client.call(&release(&self.config.names, &self.keys, &now)).await? {
                Reply::Int(1) => Ok(()),
                other => Err(lost("Redisson's fair lock", &other)),
            }
        })
    }
}

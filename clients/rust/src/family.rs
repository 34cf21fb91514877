//! The commands of each family of locks, and what their replies mean. No I/O, no state.

use std::time::Duration;

use redis::{cmd, Cmd, RedisResult, Value};

use crate::error::{unexpected, Error, Result};

/// What is locked, and how. [`Client`](crate::Client) has a method for each.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Family {
    /// One owner at a time.
    Mutex {
        /// The Redis key, as in all families.
        key: Vec<u8>,
    },
    /// A mutex that its owner may take again; it is free when it was released as often.
    Reentrant {
        /// See [`Family::Mutex`].
        key: Vec<u8>,
    },
    /// One of many readers of a read/write lock.
    Read {
        /// See [`Family::Mutex`].
        key: Vec<u8>,
    },
    /// The only writer of a read/write lock.
    Write {
        /// See [`Family::Mutex`].
        key: Vec<u8>,
    },
    /// At most `limit` permits are out at once.
    Semaphore {
        /// See [`Family::Mutex`].
        key: Vec<u8>,
        /// 1 to 1,000,000. That of the newest request counts for all.
        limit: u32,
        /// How many one guard takes: 1 to `limit`.
        permits: u32,
    },
    /// Several mutexes at once, all or none, with one fence. In a cluster all keys share one slot.
    Several {
        /// 1 to 128, each once.
        keys: Vec<Vec<u8>>,
    },
}

/// What an owner's holds are counted by: the modes of a read/write lock are counted apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    Exclusive,
    Read,
}

/// The right to hold for so long; None: without a deadline.
pub(crate) type Lease = Option<Duration>;

impl Family {
    /// The key that a request is routed by.
    pub(crate) fn key(&self) -> &[u8] {
        match self {
            Family::Mutex { key }
            | Family::Reentrant { key }
            | Family::Read { key }
            | Family::Write { key }
            | Family::Semaphore { key, .. } => key,
            Family::Several { keys } => keys.first().map_or(&[], Vec::as_slice),
        }
    }

    /// The key or keys, for people.
    pub(crate) fn name(&self) -> String {
        match self {
            Family::Several { keys } => {
                let names: Vec<_> = keys.iter().map(|key| String::from_utf8_lossy(key)).collect();
                names.join(", ")
            }
            _ => String::from_utf8_lossy(self.key()).into_owned(),
        }
    }

    pub(crate) fn mode(&self) -> Mode {
        match self {
            Family::Read { .. } => Mode::Read,
            _ => Mode::Exclusive,
        }
    }

    /// How many holds one acquire adds.
    pub(crate) fn step(&self) -> u32 {
        match self {
            Family::Semaphore { permits, .. } => *permits,
            _ => 1,
        }
    }

    /// Whether an owner may take it again.
    pub(crate) fn is_reentrant(&self) -> bool {
        matches!(self, Family::Reentrant { .. } | Family::Read { .. } | Family::Write { .. })
    }

    /// Whether what an owner takes adds up to what it holds.
    pub(crate) fn counts(&self) -> bool {
        self.is_reentrant() || matches!(self, Family::Semaphore { .. })
    }

    pub(crate) fn check(&self) -> Result<()> {
        match self {
            Family::Semaphore { limit, permits, .. } if *permits == 0 || permits > limit => {
                Err(Error::Usage("permits are from 1 to the semaphore's limit"))
            }
            Family::Several { keys } if keys.is_empty() => Err(Error::Usage("a multi-lock needs at least one key")),
            _ => Ok(()),
        }
    }

    /// `holds`: what the owner holds of this mode once it is granted, so that the same bytes can be sent again.
    pub(crate) fn acquire(&self, token: &[u8], holds: u32, lease: Lease) -> Cmd {
        let mut command = match self {
            Family::Mutex { key } => keyed("LOCK.ACQUIRE", key, token),
            Family::Reentrant { key } => keyed("RLOCK.ACQUIRE", key, token),
            Family::Read { key } | Family::Write { key } => keyed("RWLOCK.ACQUIRE", key, token),
            Family::Semaphore { key, .. } => keyed("SEM.ACQUIRE", key, token),
            Family::Several { keys } => several("MLOCK.ACQUIRE", keys, token),
        };
        match self {
            Family::Mutex { .. } | Family::Several { .. } => {}
            Family::Reentrant { .. } => drop(command.arg("HOLDS").arg(holds)),
            Family::Read { .. } => drop(command.arg("READ").arg("HOLDS").arg(holds)),
            Family::Write { .. } => drop(command.arg("WRITE").arg("HOLDS").arg(holds)),
            Family::Semaphore { limit, .. } => drop(command.arg("LIMIT").arg(limit).arg("HOLDS").arg(holds)),
        }
        push_lease(&mut command, lease);
        command
    }

    /// `holds`: what the owner holds of this mode afterwards.
    pub(crate) fn release(&self, token: &[u8], holds: u32) -> Cmd {
        let mut command = match self {
            Family::Mutex { key } => return keyed("LOCK.RELEASE", key, token),
            Family::Several { keys } => return several("MLOCK.RELEASE", keys, token),
            Family::Reentrant { key } => keyed("RLOCK.RELEASE", key, token),
            Family::Read { key } | Family::Write { key } => keyed("RWLOCK.RELEASE", key, token),
            Family::Semaphore { key, .. } => keyed("SEM.RELEASE", key, token),
        };
        match self {
            Family::Read { .. } => drop(command.arg("READ")),
            Family::Write { .. } => drop(command.arg("WRITE")),
            _ => {}
        }
        command.arg("HOLDS").arg(holds);
        command
    }

    pub(crate) fn renew(&self, token: &[u8], lease: Lease) -> Cmd {
        let mut command = match self {
            Family::Mutex { key } => keyed("LOCK.RENEW", key, token),
            Family::Reentrant { key } => keyed("RLOCK.RENEW", key, token),
            Family::Read { key } | Family::Write { key } => keyed("RWLOCK.RENEW", key, token),
            Family::Semaphore { key, .. } => keyed("SEM.RENEW", key, token),
            Family::Several { keys } => several("MLOCK.RENEW", keys, token),
        };
        push_lease(&mut command, lease);
        command
    }

    /// Whether a release found what it was to release.
    pub(crate) fn was_held(&self, reply: &Value) -> RedisResult<bool> {
        let number = integer(reply)?;
        Ok(match self {
            Family::Mutex { .. } => number == 1,
            Family::Several { keys } => usize::try_from(number) == Ok(keys.len()),
            _ => number >= 0,
        })
    }

    pub(crate) fn held(&self, token: &[u8]) -> Cmd {
        keyed("LOCK.HELD", self.key(), token)
    }

    pub(crate) fn exec(&self, token: &[u8], inner: &Cmd) -> Cmd {
        let mut command = keyed("LOCK.EXEC", self.key(), token);
        for argument in inner.args_iter() {
            match argument {
                redis::Arg::Simple(bytes) => drop(command.arg(bytes)),
                // The cursor of a scan.
                _ => drop(command.arg(0)),
            }
        }
        command
    }

    /// A waiting request of several keys stands in the queue of each; one of them ends it.
    pub(crate) fn cancel(&self, token: &[u8]) -> Cmd {
        keyed("LOCK.CANCEL", self.key(), token)
    }

    pub(crate) fn exists(&self) -> Cmd {
        let mut command = cmd("EXISTS");
        match self {
            Family::Several { keys } => drop(command.arg(keys)),
            _ => drop(command.arg(self.key())),
        }
        command
    }
}

fn keyed(name: &str, key: &[u8], token: &[u8]) -> Cmd {
    let mut command = cmd(name);
    command.arg(key).arg(token);
    command
}

fn several(name: &str, keys: &[Vec<u8>], token: &[u8]) -> Cmd {
    let mut command = cmd(name);
    command.arg(keys.len()).arg(keys).arg(token);
    command
}

fn push_lease(command: &mut Cmd, lease: Lease) {
    match lease {
        Some(lease) => command.arg("PX").arg(milliseconds(lease)),
        None => command.arg("PERSIST"),
    };
}

/// At least one: the server takes no shorter time.
pub(crate) fn milliseconds(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX).max(1)
}

pub(crate) fn integer(reply: &Value) -> RedisResult<i64> {
    match reply {
        Value::Int(number) => Ok(*number),
        other => Err(unexpected(other)),
    }
}

/// `[token, fence]` or `[token, fence, holds]`, or nil: the fence of a grant.
pub(crate) fn fence(reply: &Value) -> RedisResult<Option<u64>> {
    match reply {
        Value::Nil => Ok(None),
        Value::Array(items) => match items.get(1) {
            Some(Value::Int(fence)) if *fence > 0 => Ok(u64::try_from(*fence).ok()),
            _ => Err(unexpected(reply)),
        },
        other => Err(unexpected(other)),
    }
}

/// The rest of the lease in LOCK.HELD's `[fence, holds, ttl]`, or nil.
pub(crate) fn time_held(reply: &Value) -> RedisResult<Option<Lease>> {
    match reply {
        Value::Nil => Ok(None),
        Value::Array(items) => match items.get(2) {
            Some(Value::Int(ttl)) => Ok(Some(u64::try_from(*ttl).ok().map(Duration::from_millis))),
            _ => Err(unexpected(reply)),
        },
        other => Err(unexpected(other)),
    }
}

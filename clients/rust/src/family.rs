//! The commands of each lock type, and the meaning of their replies. No I/O, no state.

use std::time::Duration;

use redis::{cmd, Cmd, RedisResult, Value};

use crate::error::{unexpected, Error, Result};

/// A lock type with its keys. [`Client`](crate::Client) has a method for each of them.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Family {
    /// A mutex: one owner holds it at a time.
    Mutex {
        /// The Redis key, as in all lock types.
        key: Vec<u8>,
    },
    /// A reentrant mutex: its owner may acquire it again, and it is free after as many releases.
    Reentrant {
        /// See [`Family::Mutex`].
        key: Vec<u8>,
    },
    /// The read side of a read/write lock, for any number of readers.
    Read {
        /// See [`Family::Mutex`].
        key: Vec<u8>,
    },
    /// The write side of a read/write lock, for one writer.
    Write {
        /// See [`Family::Mutex`].
        key: Vec<u8>,
    },
    /// A semaphore: at most `limit` permits are held at once.
    Semaphore {
        /// See [`Family::Mutex`].
        key: Vec<u8>,
        /// 1 to 1,000,000. The limit of the latest request applies to all.
        limit: u32,
        /// The number of permits of one guard, from 1 to `limit`.
        permits: u32,
    },
    /// One permit of a semaphore with slots: its number, which no other holder has (a worker ID).
    Slot {
        /// See [`Family::Mutex`].
        key: Vec<u8>,
        /// See [`Family::Semaphore`]. Slots are numbered from 0, below the limit.
        limit: u32,
    },
    /// Multiple mutexes that are acquired together, all or none, with one fencing token. In a cluster all keys must
    /// hash to one slot.
    Several {
        /// 1 to 128 keys, each once.
        keys: Vec<Vec<u8>>,
    },
}

/// The key of an owner's count of holds: the modes of a read/write lock are counted separately.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    Exclusive,
    Read,
}

impl Mode {
    pub(crate) fn other(self) -> Mode {
        match self {
            Mode::Exclusive => Mode::Read,
            Mode::Read => Mode::Exclusive,
        }
    }
}

/// What a release reports about the work under the lock, to the requests that wait with COALESCE.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Work {
    /// The work is done: all waiting requests end.
    Done,
    /// The work is not done: the next request is granted the lock.
    Failed,
}

/// The length of a lease; None: no deadline.
pub(crate) type Lease = Option<Duration>;

impl Family {
    /// The key that routes a request.
    pub(crate) fn key(&self) -> &[u8] {
        match self {
            Family::Mutex { key }
            | Family::Reentrant { key }
            | Family::Read { key }
            | Family::Write { key }
            | Family::Semaphore { key, .. }
            | Family::Slot { key, .. } => key,
            Family::Several { keys } => keys.first().map_or(&[], Vec::as_slice),
        }
    }

    /// The name of the lock type: `mutex`, `reentrant`, `read`, `write`, `semaphore` or `multi`.
    pub fn kind(&self) -> &'static str {
        match self {
            Family::Mutex { .. } => "mutex",
            Family::Reentrant { .. } => "reentrant",
            Family::Read { .. } => "read",
            Family::Write { .. } => "write",
            Family::Semaphore { .. } | Family::Slot { .. } => "semaphore",
            Family::Several { .. } => "multi",
        }
    }

    /// The keys of the lock.
    pub fn keys(&self) -> Vec<&[u8]> {
        match self {
            Family::Several { keys } => keys.iter().map(Vec::as_slice).collect(),
            _ => vec![self.key()],
        }
    }

    /// The key or keys, for messages.
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

    /// The number of holds that one acquire adds.
    pub(crate) fn step(&self) -> u32 {
        match self {
            Family::Semaphore { permits, .. } => *permits,
            _ => 1,
        }
    }

    /// True if an owner may acquire the lock again.
    pub(crate) fn is_reentrant(&self) -> bool {
        matches!(self, Family::Reentrant { .. } | Family::Read { .. } | Family::Write { .. })
    }

    /// True if the acquires of one owner add up.
    pub(crate) fn counts(&self) -> bool {
        self.is_reentrant() || matches!(self, Family::Semaphore { .. })
    }

    pub(crate) fn check(&self) -> Result<()> {
        match self {
            Family::Semaphore { limit, permits, .. } if *permits == 0 || permits > limit => {
                Err(Error::Usage("permits must be from 1 to the limit of the semaphore"))
            }
            Family::Slot { limit: 0, .. } => Err(Error::Usage("a semaphore has at least one slot")),
            Family::Several { keys } if keys.is_empty() => Err(Error::Usage("a multi-lock needs at least one key")),
            _ => Ok(()),
        }
    }

    /// `holds`: the owner's count in this mode after the grant, so that the same bytes can be sent again.
    pub(crate) fn acquire(&self, token: &[u8], holds: u32, lease: Lease) -> Cmd {
        let mut command = match self {
            Family::Mutex { key } => keyed("LOCK.ACQUIRE", key, token),
            Family::Reentrant { key } => keyed("RLOCK.ACQUIRE", key, token),
            Family::Read { key } | Family::Write { key } => keyed("RWLOCK.ACQUIRE", key, token),
            Family::Semaphore { key, .. } | Family::Slot { key, .. } => keyed("SEM.ACQUIRE", key, token),
            Family::Several { keys } => several("MLOCK.ACQUIRE", keys, token),
        };
        match self {
            Family::Mutex { .. } | Family::Several { .. } => {}
            Family::Reentrant { .. } => drop(command.arg("HOLDS").arg(holds)),
            Family::Read { .. } => drop(command.arg("READ").arg("HOLDS").arg(holds)),
            Family::Write { .. } => drop(command.arg("WRITE").arg("HOLDS").arg(holds)),
            Family::Semaphore { limit, .. } => drop(command.arg("LIMIT").arg(limit).arg("HOLDS").arg(holds)),
            Family::Slot { limit, .. } => drop(command.arg("LIMIT").arg(limit).arg("SLOT")),
        }
        push_lease(&mut command, lease);
        command
    }

    /// `holds`: the owner's count in this mode after the release. `work` is sent only for a mutex, because for other
    /// lock types no request can wait for work.
    pub(crate) fn release(&self, token: &[u8], holds: u32, work: Work) -> Cmd {
        let mut command = match self {
            Family::Mutex { key } => {
                let mut command = keyed("LOCK.RELEASE", key, token);
                if work == Work::Failed {
                    command.arg("FAILED");
                }
                return command;
            }
            Family::Several { keys } => return several("MLOCK.RELEASE", keys, token),
            Family::Reentrant { key } => keyed("RLOCK.RELEASE", key, token),
            Family::Read { key } | Family::Write { key } => keyed("RWLOCK.RELEASE", key, token),
            Family::Semaphore { key, .. } | Family::Slot { key, .. } => keyed("SEM.RELEASE", key, token),
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
            Family::Semaphore { key, .. } | Family::Slot { key, .. } => keyed("SEM.RENEW", key, token),
            Family::Several { keys } => several("MLOCK.RENEW", keys, token),
        };
        push_lease(&mut command, lease);
        command
    }

    /// Separate releases of each key, for when a key was overwritten by another value: MLOCK.RELEASE then changes
    /// nothing.
    pub(crate) fn release_each(&self, token: &[u8]) -> Vec<Cmd> {
        match self {
            Family::Several { keys } => keys.iter().map(|key| keyed("LOCK.RELEASE", key, token)).collect(),
            _ => Vec::new(),
        }
    }

    /// True if the release found the hold.
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

    /// A waiting request for multiple keys is in the queue of each; cancelling it by one key ends it.
    pub(crate) fn cancel(&self, token: &[u8]) -> Cmd {
        keyed("LOCK.CANCEL", self.key(), token)
    }

    /// LOCK.INFO of one of its keys. `count` limits the holders; 0: all.
    pub(crate) fn info(key: &[u8], count: u32) -> Cmd {
        let mut command = cmd("LOCK.INFO");
        command.arg(key).arg("COUNT").arg(count);
        command
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
    // Enough for any command but LOCK.EXEC, so that the options of an acquire do not move what is there.
    let mut command = Cmd::with_capacity(12, name.len() + key.len() + token.len() + 64);
    command.arg(name);
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

/// Rounds up to at least 1, because the server accepts no shorter time, and saturates at the largest number that it can
/// read.
pub(crate) fn milliseconds(time: Duration) -> i64 {
    i64::try_from(time.as_nanos().div_ceil(1_000_000)).unwrap_or(i64::MAX).max(1)
}

pub(crate) fn integer(reply: &Value) -> RedisResult<i64> {
    match reply {
        Value::Int(number) => Ok(*number),
        other => Err(unexpected(other)),
    }
}

/// The reply to an acquire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    Granted {
        fence: u64,
        slot: Option<u32>,
    },
    /// The hold with this fence did the work.
    Done {
        fence: u64,
    },
    NotGranted,
}

/// `[token, fence]`, `[token, fence, holds]` or `[token, fence, 1, slot]`; `[nil, fence]`; nil.
pub(crate) fn answer(reply: &Value) -> RedisResult<Answer> {
    let items = match reply {
        Value::Nil => return Ok(Answer::NotGranted),
        Value::Array(items) => items.as_slice(),
        other => return Err(unexpected(other)),
    };
    let [token, Value::Int(fence @ 1..), rest @ ..] = items else { return Err(unexpected(reply)) };
    let fence = fence.unsigned_abs();
    match (token, rest) {
        (Value::Nil, _) => Ok(Answer::Done { fence }),
        (_, [_, slot]) => Ok(Answer::Granted { fence, slot: Some(slot_number(slot)?) }),
        _ => Ok(Answer::Granted { fence, slot: None }),
    }
}

fn slot_number(value: &Value) -> RedisResult<u32> {
    u32::try_from(integer(value)?).map_err(|_| unexpected(value))
}

/// A field of a map, which RESP2 sends as a flat array.
pub(crate) fn field<'a>(map: &'a Value, name: &[u8]) -> Option<&'a Value> {
    let is_name = |value: &Value| match value {
        Value::BulkString(bytes) => bytes == name,
        Value::SimpleString(text) => text.as_bytes() == name,
        _ => false,
    };
    match map {
        Value::Map(pairs) => pairs.iter().find(|(key, _)| is_name(key)).map(|(_, value)| value),
        Value::Array(items) => items.chunks_exact(2).find(|pair| is_name(&pair[0])).map(|pair| &pair[1]),
        _ => None,
    }
}

/// The hold of a token, by LOCK.HELD.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Held {
    pub(crate) fence: u64,
    /// Counts both modes of a read/write lock.
    pub(crate) holds: u32,
    /// The remaining time of the lease.
    pub(crate) left: Lease,
}

/// LOCK.HELD's `[fence, holds, ttl]`, or nil.
pub(crate) fn held(reply: &Value) -> RedisResult<Option<Held>> {
    let items = match reply {
        Value::Nil => return Ok(None),
        Value::Array(items) => items.as_slice(),
        other => return Err(unexpected(other)),
    };
    let [Value::Int(fence), Value::Int(holds), Value::Int(ttl), ..] = items else { return Err(unexpected(reply)) };
    let (Ok(fence), Ok(holds)) = (u64::try_from(*fence), u32::try_from(*holds)) else { return Err(unexpected(reply)) };
    Ok(Some(Held { fence, holds, left: u64::try_from(*ttl).ok().map(Duration::from_millis) }))
}

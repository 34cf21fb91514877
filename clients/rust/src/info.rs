//! The state of a lock as the server tells it: LOCK.INFO, typed.

use std::time::Duration;

use redis::{RedisResult, Value};

use crate::error::unexpected;
use crate::family::{field, integer};
use crate::token::Owner;

/// The state of a lock, from [`Lock::info`](crate::Lock::info).
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Info {
    /// The family of the key.
    pub kind: Kind,
    /// 1, or a semaphore's limit; 0 for a read/write lock.
    pub limit: u32,
    /// Of the latest grant on this key.
    pub fence: u64,
    /// The time that the key has left; None: without a deadline. Zero if it is free, and only waited for.
    pub ttl: Option<Duration>,
    /// The hundred oldest, the first one with the smallest fence.
    pub holders: Vec<Holder>,
    /// How many requests wait.
    pub waiters: u64,
    /// How many owners hold it.
    pub holding: u64,
}

/// The families of keys on the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Kind {
    /// `mutex`, also of a multi-lock.
    Mutex,
    /// `reentrant`
    Reentrant,
    /// `rw`
    ReadWrite,
    /// `semaphore`
    Semaphore,
}

/// An owner that holds a lock.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Holder {
    /// The token.
    pub owner: Owner,
    /// What it holds.
    pub mode: HolderMode,
    /// The count of a reentrant lock; of a semaphore, the permits.
    pub holds: u32,
    /// Of its grant.
    pub fence: u64,
    /// The rest of its lease; None: without a deadline.
    pub ttl: Option<Duration>,
    /// The length of its lease; None: without a deadline.
    pub lease: Option<Duration>,
    /// The time since its grant.
    pub age: Duration,
    /// The client id of the connection that it is bound to.
    pub session: Option<u64>,
    /// Its slot, of a semaphore with slots.
    pub slot: Option<u32>,
}

/// What a holder holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum HolderMode {
    /// A mutex, or a reentrant one.
    Exclusive,
    /// The read side of a read/write lock.
    Read,
    /// The write side of a read/write lock.
    Write,
    /// Permits of a semaphore.
    Permits,
}

/// LOCK.INFO's reply; None: nil.
pub(crate) fn info(reply: &Value) -> RedisResult<Option<Info>> {
    if *reply == Value::Nil {
        return Ok(None);
    }
    let kind = match text(reply, "kind")? {
        "mutex" => Kind::Mutex,
        "reentrant" => Kind::Reentrant,
        "rw" => Kind::ReadWrite,
        "semaphore" => Kind::Semaphore,
        _ => return Err(unexpected(reply)),
    };
    let Some(Value::Array(holders)) = field(reply, b"holders") else { return Err(unexpected(reply)) };
    Ok(Some(Info {
        kind,
        limit: number(reply, "limit")?,
        fence: number(reply, "fence")?,
        ttl: match integer_of(reply, "ttl")? {
            -2 => Some(Duration::ZERO),
            _ => time(reply, "ttl")?,
        },
        holders: holders.iter().map(holder).collect::<RedisResult<_>>()?,
        waiters: number(reply, "waiters")?,
        holding: number(reply, "holding")?,
    }))
}

fn holder(reply: &Value) -> RedisResult<Holder> {
    let Some(Value::BulkString(owner)) = field(reply, b"owner") else { return Err(unexpected(reply)) };
    Ok(Holder {
        owner: Owner::new(owner),
        mode: match text(reply, "mode")? {
            "exclusive" => HolderMode::Exclusive,
            "read" => HolderMode::Read,
            "write" => HolderMode::Write,
            "permits" => HolderMode::Permits,
            _ => return Err(unexpected(reply)),
        },
        holds: number(reply, "holds")?,
        fence: number(reply, "fence")?,
        ttl: time(reply, "ttl")?,
        lease: time(reply, "lease")?,
        age: Duration::from_millis(number(reply, "age")?),
        session: Some(number(reply, "session")?).filter(|id| *id != 0),
        slot: match field(reply, b"slot") {
            None | Some(Value::Int(-1)) => None,
            Some(_) => Some(number(reply, "slot")?),
        },
    })
}

fn text<'a>(map: &'a Value, name: &str) -> RedisResult<&'a str> {
    match field(map, name.as_bytes()) {
        Some(Value::BulkString(bytes)) => std::str::from_utf8(bytes).map_err(|_| unexpected(map)),
        Some(Value::SimpleString(text)) => Ok(text),
        _ => Err(unexpected(map)),
    }
}

fn integer_of(map: &Value, name: &str) -> RedisResult<i64> {
    integer(field(map, name.as_bytes()).ok_or_else(|| unexpected(map))?)
}

fn number<T: TryFrom<i64>>(map: &Value, name: &str) -> RedisResult<T> {
    T::try_from(integer_of(map, name)?).map_err(|_| unexpected(map))
}

/// Milliseconds; negative: without an end.
fn time(map: &Value, name: &str) -> RedisResult<Option<Duration>> {
    Ok(u64::try_from(integer_of(map, name)?).ok().map(Duration::from_millis))
}

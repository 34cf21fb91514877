//! LOCK.INFO, typed: the state of a lock on the server.

use std::time::Duration;

use redis::{RedisResult, Value};

use crate::error::unexpected;
use crate::family::{field, integer};
use crate::token::Owner;

/// The state of a lock, from [`Lock::info`](crate::Lock::info).
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Info {
    /// The lock type of the key.
    pub kind: Kind,
    /// The limit of a semaphore; 0 for a read/write lock, 1 for the other types.
    pub limit: u32,
    /// The fencing token of the latest grant on this key.
    pub fence: u64,
    /// The remaining time of the key; None without a deadline, zero if the lock is free and only has waiters.
    pub ttl: Option<Duration>,
    /// The hundred oldest holders, the one with the smallest fence first.
    pub holders: Vec<Holder>,
    /// The number of waiting requests.
    pub waiters: u64,
    /// The number of owners that hold the lock.
    pub holding: u64,
}

/// The lock types on the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Kind {
    /// `mutex`, including the keys of a multi-lock.
    Mutex,
    /// `reentrant`
    Reentrant,
    /// `rw`
    ReadWrite,
    /// `semaphore`
    Semaphore,
}

/// A holder of a lock.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Holder {
    /// The owner ID.
    pub owner: Owner,
    /// The mode in which it holds the lock.
    pub mode: HolderMode,
    /// How many times it holds the lock; for a semaphore, its permits.
    pub holds: u32,
    /// The fencing token of its grant.
    pub fence: u64,
    /// The remaining time of its lease; None without a deadline.
    pub ttl: Option<Duration>,
    /// The length of its lease; None if it has none.
    pub lease: Option<Duration>,
    /// The time since its grant.
    pub age: Duration,
    /// The client ID of the connection that its session is bound to; None without a session.
    pub session: Option<u64>,
    /// Its slot, for a semaphore with slots.
    pub slot: Option<u32>,
}

/// The mode in which a lock is held.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum HolderMode {
    /// A mutex or reentrant mutex.
    Exclusive,
    /// The read side of a read/write lock.
    Read,
    /// The write side of a read/write lock.
    Write,
    /// Permits of a semaphore.
    Permits,
}

/// Reads LOCK.INFO's reply; None: nil.
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

/// Reads milliseconds; a negative number means none.
fn time(map: &Value, name: &str) -> RedisResult<Option<Duration>> {
    Ok(u64::try_from(integer_of(map, name)?).ok().map(Duration::from_millis))
}

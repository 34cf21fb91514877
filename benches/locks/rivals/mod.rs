//! The common ways to lock with Redis, each as in practice: the same commands in the same order with the same sleeps.
//! If a rival has a choice, it gets the faster one (scripts by EVALSHA, loaded before).
//!
//! Each rival has two forms: a pair, the bytes of one uncontended acquire and release, for pipelines; and a locker, one
//! of many clients that contend for one lock.

mod compare_delete;
mod counter;
mod floor;
mod locker;
mod lua_hash;
mod lua_mutex;
mod module;
mod names;
mod no_lock;
mod python_redis_lock;
mod redis_py;
mod redisson;
mod redisson_fair;
mod redlock;
mod rival;
mod set_lua;
mod setnx_watch;
mod two_keys;

pub use locker::{ClientConfig, Locker, Threading};
pub use names::{Names, LEASE_MS};
pub use rival::{prepare, Pair, Ready, Rival};

/// The module's locks, named after the acquiring command.
pub use module::{LOCK, LOCK_SESSION, MLOCK, RLOCK, RWLOCK_READ, RWLOCK_WRITE, SEM};

pub use compare_delete::{DELEX, DELIFEQ, SET_IFEQ};
pub use counter::COUNTER;
pub use floor::{FLOOR, RFLOOR};
pub use lua_hash::LUA_HASH;
pub use lua_mutex::LUA_MUTEX;
pub use no_lock::{PING, SET_DEL};
pub use python_redis_lock::PYTHON_REDIS_LOCK;
pub use redis_py::REDIS_PY;
pub use redisson::REDISSON;
pub use redisson_fair::REDISSON_FAIR;
pub use redlock::REDLOCK;
pub use set_lua::SET_LUA;
pub use setnx_watch::SETNX_WATCH;
pub use two_keys::TWO_KEYS;

/// Ways that can wait, the module's last.
pub const LOCKS: &[&Rival] = &[
    &SET_LUA,
    &SETNX_WATCH,
    &COUNTER,
    &LUA_MUTEX,
    &LUA_HASH,
    &TWO_KEYS,
    &DELIFEQ,
    &DELEX,
    &SET_IFEQ,
    &REDIS_PY,
    &PYTHON_REDIS_LOCK,
    &REDISSON,
    &REDISSON_FAIR,
    &LOCK,
    &RLOCK,
    &RWLOCK_WRITE,
    &SEM,
];

/// All measured ways, for the list in the report.
pub const ALL: &[&Rival] = &[
    &PING,
    &SET_DEL,
    &SET_LUA,
    &SETNX_WATCH,
    &COUNTER,
    &LUA_MUTEX,
    &LUA_HASH,
    &TWO_KEYS,
    &DELIFEQ,
    &DELEX,
    &SET_IFEQ,
    &REDIS_PY,
    &REDLOCK,
    &PYTHON_REDIS_LOCK,
    &REDISSON,
    &REDISSON_FAIR,
    &FLOOR,
    &RFLOOR,
    &LOCK,
    &LOCK_SESSION,
    &RLOCK,
    &RWLOCK_READ,
    &RWLOCK_WRITE,
    &SEM,
    &MLOCK,
];

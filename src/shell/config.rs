//! The settings: `loadmodule libredis_lock.so name value …`, `lock.name value` in redis.conf, `CONFIG SET lock.name value`.

use std::sync::atomic::{AtomicI64, Ordering};

use command::parse::{self, Settings};
use lock::desk::Limits;

/// ms, when a request names no lease.
pub static DEFAULT_LEASE: AtomicI64 = AtomicI64::new(30_000);
/// ms; a longer lease is an error.
pub static MAX_LEASE: AtomicI64 = AtomicI64::new(YEAR);
/// Requests that may wait on the server.
pub static MAX_WAITERS: AtomicI64 = AtomicI64::new(10_000);
/// ms that a request keeps its place while its client is away.
pub static KEEP_PLACE: AtomicI64 = AtomicI64::new(1_000);

/// ms after every start and promotion during which nobody new is granted anything.
pub static GRACE: AtomicI64 = AtomicI64::new(0);

/// A year in ms: the longest lease, and the longest grace.
const YEAR: i64 = parse::MAX_LEASE_MS as i64;

/// A setting: its name after `lock.`, its default and its bounds.
pub struct Setting {
    pub name: &'static str,
    pub default: i64,
    pub least: i64,
    pub most: i64,
}

const fn setting(name: &'static str, default: i64, least: i64, most: i64) -> Setting {
    Setting { name, default, least, most }
}

pub const SET_DEFAULT_LEASE: Setting = setting("default-lease", 30_000, 1, YEAR);
pub const SET_MAX_LEASE: Setting = setting("max-lease", YEAR, 1, YEAR);
pub const SET_MAX_WAITERS: Setting = setting("max-waiters", 10_000, 0, u32::MAX as i64);
pub const SET_KEEP_PLACE: Setting = setting("keep-place", 1_000, 0, 3_600_000);
pub const SET_GRACE: Setting = setting("grace", 0, 0, YEAR);

const ALL: [Setting; 5] = [SET_DEFAULT_LEASE, SET_MAX_LEASE, SET_MAX_WAITERS, SET_KEEP_PLACE, SET_GRACE];

/// Whether this is one of our names and a value within its bounds.
pub fn accepts(name: &str, value: i64) -> bool {
    ALL.iter().any(|setting| setting.name == name && (setting.least..=setting.most).contains(&value))
}

/// All names and bounds, for an error.
pub fn described() -> String {
    let each = ALL.iter().map(|setting| format!("{} ({} to {})", setting.name, setting.least, setting.most));
    each.collect::<Vec<_>>().join(", ")
}

/// ms of grace after a start.
pub fn grace_ms() -> u64 {
    value(&GRACE)
}

/// What requests are read under.
pub fn settings() -> Settings {
    Settings { default_lease_ms: value(&DEFAULT_LEASE), max_lease_ms: value(&MAX_LEASE) }
}

/// What the rules are told.
pub fn limits() -> Limits {
    Limits {
        max_waiters: usize::try_from(value(&MAX_WAITERS)).unwrap_or(usize::MAX),
        keep_place_ms: value(&KEEP_PLACE),
    }
}

fn value(setting: &AtomicI64) -> u64 {
    u64::try_from(setting.load(Ordering::Relaxed)).unwrap_or(0)
}

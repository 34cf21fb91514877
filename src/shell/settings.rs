//! The settings, given as `loadmodule libredis_lock.so name value …`, as `lock.name value` in redis.conf, or with
//! `CONFIG SET lock.name value`.

use std::num::NonZeroU64;
use std::ops::RangeInclusive;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};

use command::parse::{integer, LeaseSettings, MAX_LEASE_MS};
use lock::engine::lock_manager::Limits;
use lock::engine::observer::Observe;
use lock::value::time::WaitLimit;

use super::ffi::context::Ctx;
use super::ffi::module::{load_settings, register_flag, register_number, register_text, TextSetting};

/// A year in ms: the longest lease and the longest grace period.
const YEAR: i64 = MAX_LEASE_MS as i64;

pub struct Setting {
    /// Without the prefix `lock.`
    name: &'static str,
    default: i64,
    bounds: RangeInclusive<i64>,
    value: AtomicI64,
}

impl Setting {
    const fn new(name: &'static str, default: i64, bounds: RangeInclusive<i64>) -> Setting {
        Setting { name, default, bounds, value: AtomicI64::new(default) }
    }

    #[inline]
    fn get(&self) -> u64 {
        u64::try_from(self.value.load(Ordering::Relaxed)).unwrap_or(0)
    }

    fn unless_zero(&self) -> Option<u64> {
        Some(self.get()).filter(|number| *number > 0)
    }

    fn count(&self) -> usize {
        usize::try_from(self.get()).unwrap_or(usize::MAX)
    }

    /// The number, if it is a valid value.
    fn parse(&self, text: &str) -> Option<i64> {
        integer(text.as_bytes()).filter(|number| self.bounds.contains(number))
    }
}

/// A boolean setting.
pub struct Flag {
    /// Without the prefix `lock.`
    name: &'static str,
    value: AtomicBool,
}

struct Settings {
    /// ms; the lease of a request without EX, PX or PERSIST.
    default_lease: Setting,
    /// ms; a longer lease is an error.
    max_lease: Setting,
    /// The most waiting requests on the server.
    max_waiters: Setting,
    /// The most waiting requests per key; 0: no separate limit.
    max_waiters_per_key: Setting,
    /// ms for which a disconnected client's position in the queue stays reserved.
    keep_place: Setting,
    /// ms after every start and promotion during which a key is granted only to owners that already hold it.
    grace: Setting,
    /// ms; a hold of at least this length is logged in LOCK.LOG; 0: none.
    log_hold: Setting,
    /// ms; a wait of at least this length is logged in LOCK.LOG; 0: none.
    log_wait: Setting,
    /// The most entries in LOCK.LOG.
    log_max_len: Setting,
    /// ms for which a SET … NX waits for a held lock; 0: not at all.
    adopt_wait: Setting,
    keyspace_events: Flag,
}

/// Without the prefix `lock.`: patterns of keys on which the commands of other lock libraries act on native locks.
pub const ADOPT: &str = "adopt";

/// Without the prefix `lock.`: patterns of keys on which clients are only observed.
pub const ADOPT_OBSERVE: &str = "adopt-observe";

/// The settings that take key patterns.
const PATTERNS: [&str; 2] = [ADOPT, ADOPT_OBSERVE];

/// Whether the setting takes key patterns, so that its value may have multiple words.
pub fn takes_patterns(name: &str) -> bool {
    PATTERNS.contains(&name)
}

/// A static because the server writes to the addresses of these values.
static SETTINGS: Settings = Settings {
    default_lease: Setting::new("default-lease", 30_000, 1..=YEAR),
    max_lease: Setting::new("max-lease", YEAR, 1..=YEAR),
    max_waiters: Setting::new("max-waiters", 10_000, 0..=u32::MAX as i64),
    max_waiters_per_key: Setting::new("max-waiters-per-key", 0, 0..=u32::MAX as i64),
    keep_place: Setting::new("keep-place", 1_000, 0..=3_600_000),
    grace: Setting::new("grace", 0, 0..=YEAR),
    log_hold: Setting::new("log-hold", 0, 0..=YEAR),
    log_wait: Setting::new("log-wait", 0, 0..=YEAR),
    log_max_len: Setting::new("log-max-len", 128, 0..=1_000_000),
    adopt_wait: Setting::new("adopt-wait", 0, 0..=3_600_000),
    keyspace_events: Flag { name: "keyspace-events", value: AtomicBool::new(false) },
};

impl Settings {
    fn numbers(&self) -> [&Setting; 10] {
        [
            &self.default_lease,
            &self.max_lease,
            &self.max_waiters,
            &self.max_waiters_per_key,
            &self.keep_place,
            &self.grace,
            &self.log_hold,
            &self.log_wait,
            &self.log_max_len,
            &self.adopt_wait,
        ]
    }

    fn flags(&self) -> [&Flag; 1] {
        [&self.keyspace_events]
    }
}

pub fn is_name(word: &str) -> bool {
    let numbers = SETTINGS.numbers().map(|setting| setting.name);
    let flags = SETTINGS.flags().map(|flag| flag.name);
    numbers.into_iter().chain(flags).chain(PATTERNS).any(|name| name == word)
}

/// Registers all settings, including `patterns`, with the module's arguments as defaults, and initializes them; only
/// while the module is loading.
///
/// # Errors
/// An argument is not the name of a setting, its value is missing or invalid, or a value from another source is
/// invalid.
pub fn register(
    ctx: Ctx<'_>,
    arguments: &[(String, Option<String>)],
    patterns: [&'static TextSetting; PATTERNS.len()],
) -> Result<(), String> {
    for (name, value) in arguments {
        let is_taken = |text: &String| {
            SETTINGS.numbers().into_iter().any(|setting| setting.name == name && setting.parse(text).is_some())
                || SETTINGS.flags().into_iter().any(|flag| flag.name == name && yes_or_no(text).is_some())
                || takes_patterns(name)
        };
        if !value.as_ref().is_some_and(is_taken) {
            let settings = described();
            return Err(format!("invalid module argument '{name}': expected pairs of names and values: {settings}"));
        }
    }
    let last =
        |name: &str| arguments.iter().rev().find(|(other, _)| other == name).and_then(|(_, value)| value.as_ref());
    for setting in SETTINGS.numbers() {
        let Setting { name, default, bounds, value } = setting;
        let default = last(name).and_then(|text| setting.parse(text)).unwrap_or(*default);
        register_number(ctx, name, default, bounds, value);
    }
    for Flag { name, value } in SETTINGS.flags() {
        let default = last(name).is_some_and(|text| yes_or_no(text) == Some(true));
        register_flag(ctx, name, default, value);
    }
    for (name, text) in PATTERNS.into_iter().zip(patterns) {
        register_text(ctx, name, last(name).map_or("", |text| text), text);
    }
    if load_settings(ctx) {
        Ok(())
    } else {
        Err(format!("invalid value for a setting, see the line above: {}", described()))
    }
}

/// Parses a boolean as the server does.
fn yes_or_no(text: &str) -> Option<bool> {
    if text.eq_ignore_ascii_case("yes") {
        Some(true)
    } else if text.eq_ignore_ascii_case("no") {
        Some(false)
    } else {
        None
    }
}

/// All names and values, for an error message.
fn described() -> String {
    let numbers = SETTINGS
        .numbers()
        .into_iter()
        .map(|setting| format!("{} ({} to {})", setting.name, setting.bounds.start(), setting.bounds.end()));
    let flags = SETTINGS.flags().into_iter().map(|flag| format!("{} (yes or no)", flag.name));
    let texts = PATTERNS.map(|name| format!("{name} (key patterns)"));
    numbers.chain(flags).chain(texts).collect::<Vec<_>>().join(", ")
}

pub fn observes_holds() -> bool {
    SETTINGS.log_hold.get() > 0
}

/// How long a SET … NX waits for a held lock, if it does.
pub fn adopt_wait() -> Option<WaitLimit> {
    NonZeroU64::new(SETTINGS.adopt_wait.get()).map(WaitLimit::Ms)
}

pub fn log_max_len() -> usize {
    SETTINGS.log_max_len.count()
}

pub fn grace_ms() -> u64 {
    SETTINGS.grace.get()
}

/// The settings that affect how requests are parsed.
#[inline]
pub fn leases() -> LeaseSettings {
    LeaseSettings { default_ms: SETTINGS.default_lease.get(), max_ms: SETTINGS.max_lease.get() }
}

/// The engine's settings.
pub fn limits() -> Limits {
    Limits {
        max_waiters: SETTINGS.max_waiters.count(),
        max_waiters_per_key: SETTINGS.max_waiters_per_key.unless_zero().map(|_| SETTINGS.max_waiters_per_key.count()),
        keep_place_ms: SETTINGS.keep_place.get(),
    }
}

/// What the engine records in addition to rare occurrences.
pub fn observed() -> Observe {
    Observe {
        changes: SETTINGS.keyspace_events.value.load(Ordering::Relaxed),
        holds_ms: SETTINGS.log_hold.unless_zero(),
        waits_ms: SETTINGS.log_wait.unless_zero(),
    }
}

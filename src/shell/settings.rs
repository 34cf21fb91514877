//! The settings: `loadmodule libredis_lock.so name value …`, `lock.name value` in redis.conf, `CONFIG SET lock.name
//! value`.

use std::sync::atomic::{AtomicI64, Ordering};

use command::parse::{LeaseSettings, MAX_LEASE_MS};
use lock::manager::lock_manager::Limits;
use lock::manager::occurrence::Observe;
use redis_module::configuration::{register_i64_configuration, ConfigurationFlags};
use redis_module::Context;

use super::ffi::context::Ctx;
use super::ffi::module::load_settings;

/// A year in ms: the longest lease, and the longest grace.
const YEAR: i64 = MAX_LEASE_MS as i64;

/// A number that an operator may set.
pub struct Setting {
    /// After `lock.`
    name: &'static str,
    default: i64,
    min: i64,
    max: i64,
    value: AtomicI64,
}

impl Setting {
    const fn new(name: &'static str, default: i64, min: i64, max: i64) -> Setting {
        Setting { name, default, min, max, value: AtomicI64::new(default) }
    }

    #[inline]
    fn get(&self) -> u64 {
        u64::try_from(self.value.load(Ordering::Relaxed)).unwrap_or(0)
    }
}

/// ms, when a request names no lease.
static DEFAULT_LEASE: Setting = Setting::new("default-lease", 30_000, 1, YEAR);
/// ms; a longer lease is an error.
static MAX_LEASE: Setting = Setting::new("max-lease", YEAR, 1, YEAR);
/// Requests that may wait on the server.
static MAX_WAITERS: Setting = Setting::new("max-waiters", 10_000, 0, u32::MAX as i64);
/// ms that a request keeps its place while its client is away.
static KEEP_PLACE: Setting = Setting::new("keep-place", 1_000, 0, 3_600_000);
/// ms after every start and promotion during which nobody new is granted anything.
static GRACE: Setting = Setting::new("grace", 0, 0, YEAR);

static ALL: [&Setting; 5] = [&DEFAULT_LEASE, &MAX_LEASE, &MAX_WAITERS, &KEEP_PLACE, &GRACE];

/// Registers all settings, with the module's arguments as defaults; only while the module is being loaded.
///
/// # Errors
/// The argument that is no name of a setting, or whose value is out of its bounds.
pub fn register(ctx: Ctx<'_>, context: &Context, arguments: &[(String, Option<i64>)]) -> Result<(), String> {
    for (name, value) in arguments {
        let setting = ALL.iter().find(|setting| setting.name == name);
        let accepts = |setting: &&Setting| value.is_some_and(|value| (setting.min..=setting.max).contains(&value));
        if !setting.is_some_and(accepts) {
            return Err(name.clone());
        }
    }
    for setting in ALL {
        let argument = arguments.iter().rev().find(|(name, _)| name == setting.name).and_then(|(_, value)| *value);
        let (default, flags) = (argument.unwrap_or(setting.default), ConfigurationFlags::DEFAULT);
        let Setting { name, min, max, value, .. } = setting;
        register_i64_configuration(context, name, value, default, *min, *max, flags, None);
    }
    load_settings(ctx);
    Ok(())
}

/// All names and bounds, for an error.
pub fn described() -> String {
    let each = ALL.iter().map(|setting| format!("{} ({} to {})", setting.name, setting.min, setting.max));
    each.collect::<Vec<_>>().join(", ")
}

/// ms of grace after a start.
pub fn grace_ms() -> u64 {
    GRACE.get()
}

/// What requests are parsed under.
#[inline]
pub fn leases() -> LeaseSettings {
    LeaseSettings { default_ms: DEFAULT_LEASE.get(), max_ms: MAX_LEASE.get() }
}

/// What the rules are told.
pub fn limits() -> Limits {
    Limits {
        max_waiters: usize::try_from(MAX_WAITERS.get()).unwrap_or(usize::MAX),
        keep_place_ms: KEEP_PLACE.get(),
        observe: Observe::default(),
    }
}

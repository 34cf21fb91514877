//! The module's state in addition to [`State`](super::state::State): what server callbacks access while an engine pass
//! has the state borrowed, and what commands check before they borrow it. This file has only the data. The comment on
//! each type names the module that uses it.
//!
//! Any other `static` is a setting at an address that the server knows, or is shared with other threads.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ffi::CStr;
use std::ptr::{null_mut, NonNull};
use std::sync::atomic::{AtomicI64, AtomicPtr};

use command::adopted::AdoptedKeys;
use command::host::GrantedTo;
use lock::engine::timers::NextTimer;
use lock::key::{ClientId, Key};
use lock::value::claim::ByLockType;
use lock::value::fence::Fence;
use lock::value::lock::Lock;
use lock::value::owner::Owner;
use lock::value::time::Instant;
use redis_module::raw;

use super::detected_stall::DetectedStall;
use super::event::Event;
use super::ffi::blocked::BlockedId;
use super::ffi::context::Ctx;
use super::ffi::main_thread::MainThread;
use super::ffi::string::OwnedStr;
use super::ffi::time::{TimerCallback, TimerId};
use super::figures::{Durations, RateLimit, Windows};

pub static MAIN: MainThread<MainState> = MainThread::new(MainState::new());

/// What freeing a lock needs: a separate static, because the server also frees on other threads.
pub static FREEING: Freeing =
    Freeing { removing: AtomicPtr::new(null_mut()), by_other_threads: ByLockType([const { AtomicI64::new(0) }; 4]) };

/// Locks being freed: `keyspace/store`, `keyspace/held_counts`.
pub struct Freeing {
    /// The lock that the module itself is removing. Its `unlink` and `free` are called inside that removal; for other
    /// locks they may be called from anywhere.
    pub removing: AtomicPtr<Lock>,
    /// How many locks other threads have freed.
    pub by_other_threads: ByLockType<AtomicI64>,
}

/// One field for each module of the shell that has such state.
pub struct MainState {
    pub recorded: RecordedEvents,
    pub clock: Clock,
    pub timer: Timer,
    pub inspections: Inspections,
    pub write_check: WriteCheckState,
    pub stall: Stall,
    pub consumers: Consumers,
    pub removals: Removals,
    pub held: Held,
    pub lock_memory: LockMemory,
    pub key_events: KeyEvents,
    pub figures: Figures,
    pub exec: Exec,
    pub adopt: Adopt,
    /// Known connections, indexed by the low digits of their ids. Ids are never reused: a known connection still is
    /// one, or has closed and sends nothing more.
    pub connections: [Cell<Option<ClientId>>; KNOWN_CONNECTIONS],
    /// Called as soon as all databases are empty.
    pub all_flushed: Cell<fn()>,
}

pub const KNOWN_CONNECTIONS: usize = 256;

/// The number of kinds of rate-limited log lines.
pub const RATE_LIMITED_LINES: usize = 7;

/// Recorded by callbacks: `background/events`.
pub struct RecordedEvents {
    pub events: RefCell<VecDeque<Event>>,
    /// Checked by every command: why it must take the slow path, one bit per reason. Pending events are one.
    pub slow_path_reasons: Cell<u8>,
    /// A request waits, a hold is bound to a connection, or the delivery of a grant is pending.
    pub has_waiters_or_sessions: Cell<bool>,
}

/// `clock`.
pub struct Clock {
    pub slice: Cell<TimeSlice>,
    /// By how many milliseconds the wall clock was ahead of the monotonic clock when last read.
    pub ahead_ms: Cell<Option<i64>>,
}

/// The current or last time slice, in microseconds of the monotonic clock.
#[derive(Clone, Copy)]
pub struct TimeSlice {
    /// `None` between slices.
    pub began_us: Option<u64>,
    pub ends_us: u64,
    /// When the last slice ended.
    pub ended_us: u64,
    /// The time used by earlier slices that no pause has made up for.
    pub taken_us: u64,
    /// The locks that the server has removed since.
    pub removals: u64,
}

/// `background/timer`.
pub struct Timer {
    pub setup: Cell<Option<TimerSetup>>,
    pub armed: Cell<Option<ArmedTimer>>,
    /// Whether the last timer fired early, so that none is armed before the next event-loop iteration.
    pub is_arming_deferred: Cell<bool>,
}

/// What the timer needs, from the start of the module to its unloading.
#[derive(Clone, Copy)]
pub struct TimerSetup {
    pub ctx: Ctx<'static>,
    pub callback: TimerCallback,
}

#[derive(Clone, Copy)]
pub struct ArmedTimer {
    pub timer: TimerId,
    pub fires: Instant,
    /// Its deadline: it fires no later unless the wall clock is set.
    pub next: NextTimer,
}

/// `background/inspections`.
pub struct Inspections {
    pub due: Cell<Option<Instant>>,
    /// Whether there was a key to inspect since the last inspection. If a lock is handed off frequently, this avoids
    /// rearming the timer for each waiter.
    pub were_needed: Cell<bool>,
    /// The number of inspections since the last command that saw a waiter.
    pub quiet_inspections: Cell<u32>,
}

/// The write check: `background/write_check`.
pub struct WriteCheckState {
    /// Whether the LOCK.APPLY that is running is the probe of the write check.
    pub is_probing: Cell<bool>,
    pub is_in_cluster: Cell<bool>,
    /// Since when due work has been held back.
    pub held_back_since: Cell<Option<Instant>>,
}

/// Whether the server was paused: `background/stall`.
pub struct Stall {
    /// When the module was last called by the server's cron, by its timer or for a replica.
    pub last: Cell<Option<Instant>>,
    /// The interval of the server's cron.
    pub period_ms: Cell<u64>,
    pub replicas: Cell<usize>,
    pub detected: Cell<Option<DetectedStall>>,
}

/// Consumers of effects: `replication`.
pub struct Consumers {
    pub is_any: Cell<bool>,
    pub is_backlog_only: Cell<bool>,
}

/// Locks that the server removes from their keys: `keyspace/removals`.
pub struct Removals {
    /// The number of holds that ended with their keys because their leases expired.
    pub expired: Cell<u64>,
    /// Locks that expired when their keys were opened in this engine pass.
    pub in_pass: RefCell<Vec<(Key, Owner, Fence)>>,
    /// How many removals were recorded since the last engine pass ended.
    pub recorded: Cell<usize>,
}

/// How many keys hold a lock: `keyspace/held_counts`.
pub struct Held {
    /// Keys added and removed on the main thread, outside the engine.
    pub on_main_thread: Cell<ByLockType<i64>>,
    /// The locks in memory after the last flush of all databases.
    pub flushed: Cell<ByLockType<Flushed>>,
}

/// The locks in memory right after all databases were flushed.
#[derive(Clone, Copy)]
pub struct Flushed {
    pub locks: i64,
    /// How many locks other threads had freed by then.
    pub freed_before: i64,
}

/// The memory of stored locks: `keyspace/store`.
pub struct LockMemory {
    /// The server's handle for our data type.
    pub data_type: Cell<*mut raw::RedisModuleType>,
    /// The memory of removed locks, for reuse.
    pub spares: RefCell<Vec<NonNull<Lock>>>,
}

/// Keyspace events to be published at the end of the engine pass: `observe/keyspace_events`.
pub struct KeyEvents {
    pub events: RefCell<VecDeque<(&'static CStr, Key)>>,
    pub is_publishing: Cell<bool>,
}

/// Measured durations: `observe`.
pub struct Figures {
    /// From queueing to grant.
    pub waits: RefCell<Durations>,
    pub longest_pass: RefCell<Windows<u64>>,
    pub lines: RefCell<[RateLimit; RATE_LIMITED_LINES]>,
}

/// Guards against recursive calls: `commands/exec`.
pub struct Exec {
    pub is_running: Cell<bool>,
    pub is_reporting_keys: Cell<bool>,
}

/// Commands of other lock libraries: `adopt`.
pub struct Adopt {
    pub keys: RefCell<AdoptedKeys>,
    /// The patterns that are only observed.
    pub observed: RefCell<AdoptedKeys>,
    pub is_observing: Cell<bool>,
    /// Whether a matching key, including observed ones, may begin with this byte.
    pub may_begin_with: [Cell<bool>; 256],
    /// Whether any pattern is for locks in a hash.
    pub has_hashes: Cell<bool>,
    /// The settings as the operator wrote them.
    pub setting: RefCell<Option<OwnedStr>>,
    pub observed_setting: RefCell<Option<OwnedStr>>,
    /// The original commands that the server has, one bit each.
    pub known: Cell<u32>,
    pub is_filtering: Cell<bool>,
    /// Whether the next command that the filter sees was called by the module itself.
    pub is_calling_original: Cell<bool>,
    /// How many locks were released by DEL.
    pub released: Cell<u64>,
    /// The connections of the newest grants: `granted_here`.
    pub granted: RefCell<BTreeSet<(Fence, Option<ClientId>)>>,
    /// The connections that were granted adopted locks: `granted_here`.
    pub clients: RefCell<BTreeMap<ClientId, GrantedTo>>,
    pub waiting: RefCell<BTreeSet<BlockedId>>,
}

impl MainState {
    const fn new() -> MainState {
        MainState {
            recorded: RecordedEvents {
                events: RefCell::new(VecDeque::new()),
                slow_path_reasons: Cell::new(0),
                has_waiters_or_sessions: Cell::new(false),
            },
            clock: Clock {
                slice: Cell::new(TimeSlice { began_us: None, ends_us: 0, ended_us: 0, taken_us: 0, removals: 0 }),
                ahead_ms: Cell::new(None),
            },
            timer: Timer { setup: Cell::new(None), armed: Cell::new(None), is_arming_deferred: Cell::new(false) },
            inspections: Inspections {
                due: Cell::new(None),
                were_needed: Cell::new(false),
                quiet_inspections: Cell::new(0),
            },
            write_check: WriteCheckState {
                is_probing: Cell::new(false),
                is_in_cluster: Cell::new(false),
                held_back_since: Cell::new(None),
            },
            stall: Stall {
                last: Cell::new(None),
                period_ms: Cell::new(1_000),
                replicas: Cell::new(0),
                detected: Cell::new(None),
            },
            // Until consumers have been counted, assume there is one.
            consumers: Consumers { is_any: Cell::new(true), is_backlog_only: Cell::new(false) },
            removals: Removals { expired: Cell::new(0), in_pass: RefCell::new(Vec::new()), recorded: Cell::new(0) },
            held: Held {
                on_main_thread: Cell::new(ByLockType([0; 4])),
                flushed: Cell::new(ByLockType([Flushed { locks: 0, freed_before: 0 }; 4])),
            },
            lock_memory: LockMemory { data_type: Cell::new(null_mut()), spares: RefCell::new(Vec::new()) },
            key_events: KeyEvents { events: RefCell::new(VecDeque::new()), is_publishing: Cell::new(false) },
            figures: Figures {
                waits: RefCell::new(Durations::new()),
                longest_pass: RefCell::new(Windows::new(0, 0)),
                lines: RefCell::new([RateLimit::NEVER; RATE_LIMITED_LINES]),
            },
            exec: Exec { is_running: Cell::new(false), is_reporting_keys: Cell::new(false) },
            adopt: Adopt {
                keys: RefCell::new(AdoptedKeys::none()),
                observed: RefCell::new(AdoptedKeys::none()),
                is_observing: Cell::new(false),
                may_begin_with: [const { Cell::new(false) }; 256],
                has_hashes: Cell::new(false),
                setting: RefCell::new(None),
                observed_setting: RefCell::new(None),
                known: Cell::new(0),
                is_filtering: Cell::new(false),
                is_calling_original: Cell::new(false),
                released: Cell::new(0),
                granted: RefCell::new(BTreeSet::new()),
                clients: RefCell::new(BTreeMap::new()),
                waiting: RefCell::new(BTreeSet::new()),
            },
            connections: [const { Cell::new(None) }; KNOWN_CONNECTIONS],
            all_flushed: Cell::new(|| {}),
        }
    }
}

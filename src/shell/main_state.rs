//! What the module remembers beside [`State`](super::state::State): everything that callbacks of the server reach while
//! a turn has the state borrowed, and that commands check before they borrow it. This file has the data; the named
//! rooms give it its meaning.
//!
//! Any other `static` is a setting whose address the server has, or known to other threads.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ffi::CStr;
use std::ptr::{null_mut, NonNull};
use std::sync::atomic::{AtomicI64, AtomicPtr};

use command::adopted::AdoptedKeys;
use command::host::GrantedTo;
use lock::key::{ClientId, Key};
use lock::manager::timers::NextTimer;
use lock::value::claim::ByFamily;
use lock::value::fence::Fence;
use lock::value::lock::Lock;
use lock::value::owner::Owner;
use lock::value::time::Instant;
use redis_module::raw;

use super::event::Event;
use super::ffi::blocked::BlockedId;
use super::ffi::context::Ctx;
use super::ffi::main_thread::MainThread;
use super::ffi::string::OwnedStr;
use super::ffi::time::{TimerCallback, TimerId};
use super::figures::{Durations, Pace, Windows};
use super::noticed_stall::NoticedStall;

/// The one value.
pub static MAIN: MainThread<MainState> = MainThread::new(MainState::new());

/// What the end of a lock's memory needs: a static of its own, as the server also frees on other threads.
pub static FREEING: Freeing =
    Freeing { removing: AtomicPtr::new(null_mut()), elsewhere: ByFamily([const { AtomicI64::new(0) }; 4]) };

/// Locks that are being freed: `keyspace/store`, `keyspace/held_counts`.
pub struct Freeing {
    /// The lock that the module itself removes at this moment. Its `unlink` and `free` come from inside that removal;
    /// for other locks they may come from anywhere.
    pub removing: AtomicPtr<Lock>,
    /// How many locks other threads have freed.
    pub elsewhere: ByFamily<AtomicI64>,
}

/// All of it, by rooms.
pub struct MainState {
    pub noted: Noted,
    pub clock: Clock,
    pub timer: Timer,
    pub inspections: Inspections,
    pub gate: Gate,
    pub stall: Stall,
    pub consumers: Consumers,
    pub removals: Removals,
    pub held: Held,
    pub lock_memory: LockMemory,
    pub key_events: KeyEvents,
    pub figures: Figures,
    pub exec: Exec,
    pub adopt: Adopt,
    /// Known connections, by the last digits of their ids. Ids are never used again: a known connection is still one,
    /// or has ended and sends no more.
    pub connections: [Cell<Option<ClientId>>; KNOWN_CONNECTIONS],
    /// To be called at the moment when all databases are empty.
    pub all_flushed: Cell<fn()>,
}

/// So many connections are remembered.
pub const KNOWN_CONNECTIONS: usize = 256;

/// The number of kinds of log lines with a pace.
pub const PACED_LINES: usize = 7;

/// What callbacks have noted: `background/events`.
pub struct Noted {
    pub events: RefCell<VecDeque<Event>>,
    /// What every command checks: why it has to take the slow path, a bit for each reason. Events are one.
    pub slow_path_reasons: Cell<u8>,
    /// A request waits, a hold is bound to a connection, or a grant is on its way.
    pub has_waiters_or_sessions: Cell<bool>,
}

/// `clock`.
pub struct Clock {
    pub turn: Cell<Turn>,
    /// By how many milliseconds the wall clock was ahead of the monotonic clock when it was read last.
    pub ahead_ms: Cell<Option<i64>>,
}

/// The turn that runs, or the last one. In microseconds of the monotonic clock.
#[derive(Clone, Copy)]
pub struct Turn {
    /// `None` between turns.
    pub began_us: Option<u64>,
    /// When the turn's time is over.
    pub ends_us: u64,
    /// When the last turn ended.
    pub ended_us: u64,
    /// The time of earlier turns that no pause has made up for.
    pub taken_us: u64,
    /// The locks that the server has removed since.
    pub removals: u64,
}

/// `background/timer`.
pub struct Timer {
    pub setup: Cell<Option<TimerSetup>>,
    pub armed: Cell<Option<ArmedTimer>>,
    /// The last timer fired early: none is armed before the next round of the event loop.
    pub is_held_back: Cell<bool>,
}

/// What the timer works with, from the module's start to its end.
#[derive(Clone, Copy)]
pub struct TimerSetup {
    pub ctx: Ctx<'static>,
    pub callback: TimerCallback,
}

/// A timer that is armed.
#[derive(Clone, Copy)]
pub struct ArmedTimer {
    pub timer: TimerId,
    pub fires: Instant,
    /// Its deadline: it fires no later, as long as the wall clock is not set.
    pub next: NextTimer,
}

/// `background/inspections`.
pub struct Inspections {
    /// When the next inspection is due.
    pub due: Cell<Option<Instant>>,
    /// Whether there was a key to inspect since the last inspection: where a lock changes hands quickly the timer is
    /// not armed anew for each waiter.
    pub were_needed: Cell<bool>,
    /// How many inspections there were since the last command that met a waiter.
    pub quiet_turns: Cell<u32>,
}

/// `background/gate`.
pub struct Gate {
    /// The LOCK.APPLY that runs now is the gate's own probe.
    pub is_probing: Cell<bool>,
    pub is_in_cluster: Cell<bool>,
    /// Since when work that is due has been held back.
    pub held_back_since: Cell<Option<Instant>>,
}

/// Whether the server stood still: `background/stall`.
pub struct Stall {
    /// The last sign of life.
    pub last: Cell<Option<Instant>>,
    /// How often a sign of life comes.
    pub period_ms: Cell<u64>,
    pub replicas: Cell<usize>,
    pub noticed: Cell<Option<NoticedStall>>,
}

/// Of effects: `replication`.
pub struct Consumers {
    pub is_any: Cell<bool>,
    pub is_backlog_only: Cell<bool>,
}

/// Locks that the server takes from their keys: `keyspace/removals`.
pub struct Removals {
    /// Holds that have ended because their leases did, with their keys.
    pub expired: Cell<u64>,
    /// Locks that expired when their keys were opened in this turn.
    pub in_turn: RefCell<Vec<(Key, Owner, Fence)>>,
    /// How many removals were logged since the last turn ended.
    pub told: Cell<usize>,
}

/// How many keys hold a lock: `keyspace/held_counts`.
pub struct Held {
    /// Keys that came and went on the main thread, outside the rules.
    pub here: Cell<ByFamily<i64>>,
    /// What was in memory after the last flush of all databases.
    pub flushed: Cell<ByFamily<Flushed>>,
}

/// The locks in memory when all databases had been flushed.
#[derive(Clone, Copy)]
pub struct Flushed {
    pub locks: i64,
    /// How many locks other threads had freed by then.
    pub freed_before: i64,
}

/// The memory of stored locks: `keyspace/store`.
pub struct LockMemory {
    /// The server's handle of our data type.
    pub data_type: Cell<*mut raw::RedisModuleType>,
    /// The memory of locks that were removed, for the next ones.
    pub spares: RefCell<Vec<NonNull<Lock>>>,
}

/// Keyspace events that are published when the turn is over: `observe/keyspace_events`.
pub struct KeyEvents {
    pub events: RefCell<VecDeque<(&'static CStr, Key)>>,
    pub is_publishing: Cell<bool>,
}

/// Measured durations: `observe`.
pub struct Figures {
    /// From queueing to the hand-off.
    pub waits: RefCell<Durations>,
    pub longest_turn: RefCell<Windows<u64>>,
    pub lines: RefCell<[Pace; PACED_LINES]>,
}

/// Guards against calls within a call: `commands/exec`.
pub struct Exec {
    pub is_running: Cell<bool>,
    pub is_telling: Cell<bool>,
}

/// Commands of clients that do not know the module: `adopt`.
pub struct Adopt {
    /// The patterns.
    pub keys: RefCell<AdoptedKeys>,
    /// The patterns that are only observed.
    pub observed: RefCell<AdoptedKeys>,
    /// Whether there are any.
    pub is_observing: Cell<bool>,
    /// Whether a key that matches, also one that is only observed, may begin with this byte.
    pub may_begin_with: [Cell<bool>; 256],
    /// Whether some of them are for locks in a hash.
    pub has_hashes: Cell<bool>,
    /// The settings in the operator's words.
    pub setting: RefCell<Option<OwnedStr>>,
    pub observed_setting: RefCell<Option<OwnedStr>>,
    /// The originals that the server has, a bit for each.
    pub known: Cell<u32>,
    /// Whether the filter is registered.
    pub is_filtering: Cell<bool>,
    /// The next command that the filter sees is the module's own.
    pub is_calling_original: Cell<bool>,
    /// How many locks a DEL of such a client has released.
    pub released: Cell<u64>,
    /// The connections of the latest grants: `granted_here`.
    pub granted: RefCell<BTreeSet<(Fence, Option<ClientId>)>>,
    /// The connections that were granted adopted locks: `granted_here`.
    pub clients: RefCell<BTreeMap<ClientId, GrantedTo>>,
    /// The clients that are blocked in a SET.
    pub waiting: RefCell<BTreeSet<BlockedId>>,
}

impl MainState {
    const fn new() -> MainState {
        MainState {
            noted: Noted {
                events: RefCell::new(VecDeque::new()),
                slow_path_reasons: Cell::new(0),
                has_waiters_or_sessions: Cell::new(false),
            },
            clock: Clock {
                turn: Cell::new(Turn { began_us: None, ends_us: 0, ended_us: 0, taken_us: 0, removals: 0 }),
                ahead_ms: Cell::new(None),
            },
            timer: Timer { setup: Cell::new(None), armed: Cell::new(None), is_held_back: Cell::new(false) },
            inspections: Inspections { due: Cell::new(None), were_needed: Cell::new(false), quiet_turns: Cell::new(0) },
            gate: Gate {
                is_probing: Cell::new(false),
                is_in_cluster: Cell::new(false),
                held_back_since: Cell::new(None),
            },
            stall: Stall {
                last: Cell::new(None),
                period_ms: Cell::new(1_000),
                replicas: Cell::new(0),
                noticed: Cell::new(None),
            },
            // Until consumers are counted, assume one.
            consumers: Consumers { is_any: Cell::new(true), is_backlog_only: Cell::new(false) },
            removals: Removals { expired: Cell::new(0), in_turn: RefCell::new(Vec::new()), told: Cell::new(0) },
            held: Held {
                here: Cell::new(ByFamily([0; 4])),
                flushed: Cell::new(ByFamily([Flushed { locks: 0, freed_before: 0 }; 4])),
            },
            lock_memory: LockMemory { data_type: Cell::new(null_mut()), spares: RefCell::new(Vec::new()) },
            key_events: KeyEvents { events: RefCell::new(VecDeque::new()), is_publishing: Cell::new(false) },
            figures: Figures {
                waits: RefCell::new(Durations::new()),
                longest_turn: RefCell::new(Windows::new(0, 0)),
                lines: RefCell::new([Pace::NEVER; PACED_LINES]),
            },
            exec: Exec { is_running: Cell::new(false), is_telling: Cell::new(false) },
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

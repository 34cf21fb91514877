//! A simulated server for tests: a keyspace, a replica that receives only the effects and may lag, the state after a
//! crash, and clients that record their replies. Time advances only when a step says so.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

use crate::host::{Clients, Content, Delivery, Effect, Entry, Host, Keys, Park, WaitOutcome, WriteCheck};
use crate::key::{ClientId, Key, KeyRef, RequestId};
use crate::value::claim::ByLockType;
use crate::value::fence::Fence;
use crate::value::holders::Holder;
use crate::value::lock::{FirstGrant, Lock};
use crate::value::outcome::Hold;
use crate::value::owner::Owner;
use crate::value::rebuild::{KeyAfter, LockTypeAndLimit, ReplicatedEffect};
use crate::value::time::{Deadline, Instant, Now, Timestamp};

thread_local! {
    /// The simulated clocks. Thread-locals, because `Now` takes plain functions.
    static WALL_MS: Cell<u64> = const { Cell::new(0) };
    static MONOTONIC_MS: Cell<u64> = const { Cell::new(0) };
    /// The number of work units after which a time slice is spent.
    static SLICE_UNITS: Cell<u32> = const { Cell::new(u32::MAX) };
    /// See [`record`].
    static RECORDS: RefCell<Option<Vec<Record>>> = const { RefCell::new(None) };
}

/// What a decision has caused outside of the rules.
#[derive(Clone, Debug)]
pub(crate) enum Record {
    /// An effect for replicas or for WATCH, with its key.
    Effect(String),
    /// A reply to a waiter.
    Reply(RequestId, WaitOutcome),
}

/// Records an effect or reply of this thread, in one common order, if a test asks for it.
fn record(what: impl FnOnce() -> Record) {
    RECORDS.with_borrow_mut(|records| {
        if let Some(records) = records {
            records.push(what());
        }
    });
}

/// Starts recording, continues with these records, or stops. Returns the records so far.
pub(crate) fn replace_records(records: Option<Vec<Record>>) -> Option<Vec<Record>> {
    RECORDS.replace(records)
}

/// How long time slices are.
#[derive(Clone, Debug, Default)]
pub enum TimeSlices {
    /// A slice lasts until all work is done.
    #[default]
    Endless,
    /// A slice has this many units of work.
    #[cfg(test)]
    Of(u32),
    /// One to three units, sometimes more. The same sequence for the same seed.
    Random(Cell<u64>),
}

impl TimeSlices {
    fn next_units(&self) -> u32 {
        match self {
            TimeSlices::Endless => u32::MAX,
            #[cfg(test)]
            TimeSlices::Of(units) => *units,
            TimeSlices::Random(state) => {
                let next = state.get().wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                state.set(next);
                [1, 1, 1, 2, 2, 3, 5, u32::MAX][(next >> 61) as usize]
            }
        }
    }
}

/// A server as the rules see it.
#[derive(Clone)]
pub struct SimulatedServer {
    /// Its keys.
    pub keyspace: Keyspace,
    /// The replies to its waiters.
    pub inbox: Inbox,
    /// How long its time slices are.
    pub time_slices: TimeSlices,
}

impl Default for SimulatedServer {
    fn default() -> SimulatedServer {
        SimulatedServer { keyspace: Keyspace::default(), inbox: Inbox::default(), time_slices: TimeSlices::Endless }
    }
}

impl Default for Keyspace {
    fn default() -> Keyspace {
        Keyspace {
            now_ms: 1_000,
            ahead_ms: 0,
            primary: BTreeMap::new(),
            replica: Replica::default(),
            write_check: WriteCheck::Allowed,
            open_to_command: None,
            events: Vec::new(),
            unsent: VecDeque::new(),
            lags: false,
            sent_effects: None,
            opened: 0,
            modified: None,
            stored_by_others: ByLockType::default(),
        }
    }
}

impl SimulatedServer {
    /// The time of a decision that is made now, with a new time slice.
    pub fn now(&self) -> Now {
        SLICE_UNITS.set(self.time_slices.next_units());
        self.keyspace.now().within(|units| units >= SLICE_UNITS.get())
    }

    /// The host in the form that the rules take.
    pub fn host<'a>(&'a mut self, now: &'a Now) -> Host<'a, &'a mut Keyspace, &'a mut Inbox> {
        Host { keys: &mut self.keyspace, clients: &mut self.inbox, now }
    }
}

/// The value under a key.
#[derive(Clone, Debug)]
pub enum Stored {
    /// A value of another type.
    Foreign,
    /// A lock with its key's own deadline.
    Lock(Lock, Deadline),
}

/// The state of a replica, and of a server after a crash.
#[derive(Clone, Default)]
pub struct Replica {
    /// Its keys.
    pub keys: BTreeMap<Key, Stored>,
    /// The greatest fencing token that it has seen.
    pub fence: Option<Fence>,
}

/// The keys of a primary, and of a replica that only knows the effects.
#[derive(Clone)]
pub struct Keyspace {
    /// The monotonic clock.
    pub now_ms: u64,
    /// How far the wall clock is ahead of it.
    pub ahead_ms: i64,
    /// What is stored.
    pub primary: BTreeMap<Key, Stored>,
    /// The number of locks stored, minus those removed, by other commands than the module's.
    pub stored_by_others: ByLockType<i64>,
    /// The replica's copy.
    pub replica: Replica,
    /// The result of the write check for writes that are not part of a command.
    pub write_check: WriteCheck,
    /// The key of the command that is running, in a cluster. It may be written whatever the write check says.
    pub open_to_command: Option<Key>,
    /// Keyspace events that the lock manager has not received yet.
    pub events: Vec<KeyEvent>,
    unsent: VecDeque<(Key, Sent)>,
    /// Whether effects are queued instead of applied to the replica.
    pub lags: bool,
    /// The effects sent to replicas, recorded if a test asks for it.
    pub sent_effects: Option<Vec<SentEffect>>,
    /// How many times a key was opened.
    pub opened: usize,
    /// The keys reported to WATCH as modified, recorded if a test asks for it.
    pub modified: Option<Vec<Key>>,
}

/// A keyspace event of the server.
#[derive(Clone, Debug)]
pub enum KeyEvent {
    /// The lock with this fencing token was removed from the key.
    Removed(Key, Fence),
    /// The key was changed.
    Changed(Key),
}

/// An effect sent to replicas, without the details of the hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SentEffect {
    /// A hold is new or has changed.
    Hold(Owner),
    /// A lease was renewed.
    Renew(Owner),
    /// A hold was removed.
    Drop(Owner),
    /// All holds whose leases had expired by this time were removed.
    Ended(Timestamp),
    /// The semaphore's limit.
    Limit(u32),
    /// No lease expires later than the key.
    Clamp,
    /// The key's own deadline.
    Deadline(Deadline),
    /// Another value.
    Put,
    /// The key was removed.
    Delete,
}

impl From<&Sent> for SentEffect {
    fn from(sent: &Sent) -> SentEffect {
        match sent {
            Sent::Hold(_, holder) => SentEffect::Hold(holder.owner.clone()),
            Sent::Drop(owner) => SentEffect::Drop(owner.clone()),
            Sent::Ended(time) => SentEffect::Ended(*time),
            Sent::Delete => SentEffect::Delete,
            Sent::Limit(limit) => SentEffect::Limit(*limit),
            Sent::Clamp => SentEffect::Clamp,
            Sent::Deadline(until) => SentEffect::Deadline(*until),
            Sent::Put(_) => SentEffect::Put,
        }
    }
}

/// An effect sent to the replica for a key.
#[derive(Clone, Debug)]
enum Sent {
    Hold(LockTypeAndLimit, Holder),
    Drop(Owner),
    Ended(Timestamp),
    Limit(u32),
    Clamp,
    Deadline(Deadline),
    Put(Stored),
    Delete,
}

impl Sent {
    /// A text that does not depend on the names of types and fields, because it is compared with other versions of the
    /// rules.
    fn to_text(&self) -> String {
        match self {
            Sent::Hold(kind, holder) => format!("hold {:?} {} {}", kind.lock_type, kind.limit, holder_text(holder)),
            Sent::Drop(owner) => format!("drop {}", String::from_utf8_lossy(owner.as_bytes())),
            Sent::Ended(time) => format!("ended {}", time.ms()),
            Sent::Limit(limit) => format!("limit {limit}"),
            Sent::Clamp => "clamp".into(),
            Sent::Deadline(until) => format!("deadline {:?}", until.timestamp().map(Timestamp::ms)),
            Sent::Put(stored) => format!("put {}", stored.to_text()),
            Sent::Delete => "delete".into(),
        }
    }
}

impl Stored {
    /// A text like [`Sent::to_text`].
    pub(crate) fn to_text(&self) -> String {
        let Stored::Lock(lock, until) = self else { return "foreign".into() };
        let kind = lock.lock_type_and_limit().map(|kind| (kind.lock_type, kind.limit));
        let holders: Vec<_> = lock.holds(*until).iter().map(|hold| holder_text(&to_holder(hold))).collect();
        let until = until.timestamp().map(Timestamp::ms);
        format!("{kind:?} until {until:?} {:?}: {}", lock.fence(), holders.join(", "))
    }
}

fn holder_text(holder: &Holder) -> String {
    let Holder { owner, fence, lease, until, holds, reads, slot, origin } = holder;
    let (owner, until) = (String::from_utf8_lossy(owner.as_bytes()), until.timestamp().map(Timestamp::ms));
    let slot = slot.map(|slot| slot.number());
    format!("{owner} {fence:?} lease {} until {until:?} {holds} {reads} {slot:?} {origin:?}", lease.as_ms())
}

impl Keyspace {
    /// The time of a decision that is made now, with an unlimited time slice.
    pub fn now(&self) -> Now {
        WALL_MS.set(self.timestamp().ms());
        MONOTONIC_MS.set(self.now_ms);
        Now::by(|| WALL_MS.get() * 1_000, || MONOTONIC_MS.get() * 1_000)
    }

    fn signal_modified(&mut self, key: &Key) {
        record(|| Record::Effect(format!("{} modified", String::from_utf8_lossy(&key.name))));
        if let Some(modified) = &mut self.modified {
            modified.push(key.clone());
        }
    }

    /// The time on the wall clock.
    pub fn timestamp(&self) -> Timestamp {
        Timestamp::from_ms(self.now_ms.saturating_add_signed(self.ahead_ms))
    }

    /// The time on the monotonic clock.
    pub fn instant(&self) -> Instant {
        Instant::from_ms(self.now_ms)
    }

    /// Removes the key if its time to live has expired.
    pub fn expire(&mut self, key: &Key) {
        let now = self.timestamp();
        if matches!(self.primary.get(key), Some(Stored::Lock(_, until)) if until.has_passed(now)) {
            self.delete(key);
        }
    }

    /// Does what DEL, an eviction or an expiry does.
    pub fn delete(&mut self, key: &Key) {
        if let Some(stored) = self.primary.remove(key) {
            if let Stored::Lock(lock, _) = &stored {
                if let Some(lock_type) = lock.held_lock_type() {
                    *self.stored_by_others.of_mut(lock_type) -= 1;
                }
                self.events.extend(lock.fence().map(|fence| KeyEvent::Removed(key.clone(), fence)));
            }
            self.signal_modified(key);
            self.send(key, Sent::Delete);
        }
    }

    /// Does what SET, RENAME and RESTORE do to the key that they write.
    pub fn put(&mut self, key: &Key, stored: Stored) {
        self.delete(key);
        self.primary.insert(key.clone(), stored.clone());
        self.signal_modified(key);
        self.record_stored(key);
        self.events.push(KeyEvent::Changed(key.clone()));
        self.send(key, Sent::Put(stored));
    }

    /// Another command has stored a lock under the key.
    fn record_stored(&mut self, key: &Key) {
        if let Some(Stored::Lock(lock, _)) = self.primary.get(key) {
            if let Some(lock_type) = lock.held_lock_type() {
                *self.stored_by_others.of_mut(lock_type) += 1;
            }
        }
    }

    /// The stored value, as DUMP and RENAME see it.
    pub fn take_copy(&mut self, key: &Key) -> Option<Stored> {
        self.expire(key);
        let Stored::Lock(lock, until) = self.primary.get(key)? else { return Some(Stored::Foreign) };
        let kind = lock.lock_type_and_limit().expect("no vacant lock is stored");
        let holders = lock.stored_holds().iter().map(to_holder).collect();
        let copy = Lock::from_parts(kind, lock.fence().expect("it is not vacant"), holders);
        Some(Stored::Lock(copy.expect("what is stored can be loaded"), *until))
    }

    /// Does what PEXPIREAT and PERSIST do. The stored holders are updated only when the rules open the key.
    pub fn set_deadline(&mut self, key: &Key, when: Deadline) {
        self.expire(key);
        let Some(Stored::Lock(_, until)) = self.primary.get_mut(key) else { return };
        *until = when;
        self.signal_modified(key);
        self.events.push(KeyEvent::Changed(key.clone()));
        self.send(key, Sent::Deadline(when));
    }

    /// The replica receives all pending effects.
    pub fn catch_up(&mut self) {
        self.lags = false;
        while let Some((key, sent)) = self.unsent.pop_front() {
            self.replica.apply(key, sent);
        }
    }

    /// The replica is promoted with its own state.
    pub fn restart_from(&mut self, replica: Replica) {
        self.unsent.clear();
        self.events.clear();
        self.lags = false;
        self.primary = replica.keys.clone();
        self.replica = replica;
        let keys: Vec<Key> = self.primary.keys().cloned().collect();
        self.stored_by_others = ByLockType::default();
        for key in &keys {
            self.record_stored(key);
            self.events.push(KeyEvent::Changed(key.clone()));
        }
    }

    fn send(&mut self, key: &Key, sent: Sent) {
        record(|| Record::Effect(format!("{} {}", String::from_utf8_lossy(&key.name), sent.to_text())));
        if let Some(sent_effects) = &mut self.sent_effects {
            sent_effects.push(SentEffect::from(&sent));
        }
        if self.lags {
            self.unsent.push_back((key.clone(), sent));
        } else {
            self.replica.apply(key.clone(), sent);
        }
    }

    fn send_hold(&mut self, key: &Key, owner: &[u8]) {
        let Some(Stored::Lock(lock, until)) = self.primary.get(key) else { panic!("an effect of a key with no lock") };
        let hold = lock.hold(owner, *until).expect("an effect is sent of a hold that is there");
        let kind = lock.lock_type_and_limit().expect("a holder exists");
        let sent = Sent::Hold(kind, to_holder(&hold));
        self.send(key, sent);
    }
}

impl Replica {
    fn apply(&mut self, key: Key, sent: Sent) {
        let received = match &sent {
            Sent::Delete => {
                self.keys.remove(&key);
                return;
            }
            Sent::Put(stored) => {
                self.keys.insert(key, stored.clone());
                return;
            }
            Sent::Deadline(when) => {
                let Some(Stored::Lock(_, until)) = self.keys.get_mut(&key) else { panic!("it has no such lock") };
                *until = *when;
                return;
            }
            Sent::Hold(kind, holder) => {
                assert!(kind.allows(holder), "no replica can have such a hold");
                ReplicatedEffect::Hold(*kind, holder.clone())
            }
            Sent::Drop(owner) => ReplicatedEffect::Drop(owner.as_ref()),
            Sent::Ended(time) => ReplicatedEffect::Ended(*time),
            Sent::Limit(limit) => ReplicatedEffect::Limit(*limit),
            Sent::Clamp => ReplicatedEffect::Clamp,
        };
        let is_lock = matches!(self.keys.get(&key), Some(Stored::Lock(..)));
        assert!(is_lock || matches!(received, ReplicatedEffect::Hold(..)), "it has no such lock: {received:?}");
        self.receive(key, received);
    }

    /// As on a server: a hold creates a missing lock, every other effect needs one.
    pub fn receive(&mut self, key: Key, effect: ReplicatedEffect<'_>) {
        if matches!(effect, ReplicatedEffect::Hold(..)) && !matches!(self.keys.get(&key), Some(Stored::Lock(..))) {
            self.keys.insert(key.clone(), Stored::Lock(Lock::Vacant, Deadline::Never));
        }
        let Some(Stored::Lock(copy, until)) = self.keys.get_mut(&key) else { return };
        if let ReplicatedEffect::Hold(_, Holder { fence, .. }) | ReplicatedEffect::Fence(fence) = &effect {
            self.fence = self.fence.max(Some(*fence));
        }
        match copy.apply(effect, *until) {
            KeyAfter::Same => {}
            KeyAfter::Until(end) => *until = end,
            KeyAfter::Removed => _ = self.keys.remove(&key),
        }
    }
}

impl Keys for &mut Keyspace {
    type Entry<'e>
        = SimulatedEntry<'e>
    where
        Self: 'e;

    fn open<'e>(&'e mut self, key: KeyRef<'e>) -> SimulatedEntry<'e> {
        let key = key.to_key();
        let expired = match self.primary.get(&key) {
            Some(Stored::Lock(lock, _)) => lock.latest_holder().map(|(owner, fence)| (owner.clone(), fence)),
            _ => None,
        };
        self.expire(&key);
        self.opened += 1;
        let expired = expired.filter(|_| !self.primary.contains_key(&key));
        SimulatedEntry { keyspace: self, key, expired }
    }

    fn write_check(&mut self, key: KeyRef<'_>) -> WriteCheck {
        if self.open_to_command.as_ref().is_some_and(|own| own.as_ref() == key) {
            WriteCheck::Allowed
        } else {
            self.write_check
        }
    }
}

/// An open key of the keyspace.
pub struct SimulatedEntry<'e> {
    keyspace: &'e mut Keyspace,
    key: Key,
    expired: Option<(Owner, Fence)>,
}

impl Entry for SimulatedEntry<'_> {
    fn take_expired(&mut self) -> Option<(Owner, Fence)> {
        self.expired.take()
    }

    fn content(&mut self) -> Content<'_> {
        match self.keyspace.primary.get_mut(&self.key) {
            None => Content::Free,
            Some(Stored::Foreign) => Content::Foreign,
            Some(Stored::Lock(lock, _)) => Content::Lock(lock),
        }
    }

    fn until(&self) -> Deadline {
        match self.keyspace.primary.get(&self.key) {
            Some(Stored::Lock(_, until)) => *until,
            Some(Stored::Foreign) => Deadline::Never,
            None => panic!("the deadline of a free key was read: Redis 8.2 crashes then"),
        }
    }

    fn create(&mut self, first: &FirstGrant<'_>) {
        let before = self.keyspace.primary.insert(self.key.clone(), Stored::Lock(first.lock(), first.until()));
        assert!(before.is_none(), "a lock was created under a key that is not free");
        self.keyspace.signal_modified(&self.key);
        self.keyspace.send_hold(&self.key, first.owner());
    }

    fn update(&mut self, effect: Effect<'_>, until: Option<Deadline>) {
        let stored = self.keyspace.primary.get_mut(&self.key);
        let Some(Stored::Lock(lock, deadline)) = stored else { panic!("an update of a key without a lock") };
        *deadline = until.unwrap_or(*deadline);
        let limit = lock.semaphore_limit();
        if matches!(effect, Effect::Hold(_) | Effect::Drop(_) | Effect::Ended(_)) {
            self.keyspace.signal_modified(&self.key);
        }
        let sent = match effect {
            Effect::Hold(owner) => return self.keyspace.send_hold(&self.key, owner),
            Effect::Renew(owner) => {
                self.keyspace.send_hold(&self.key, owner);
                // Replicas receive the same effect as for a new hold, but the key is not reported to WATCH.
                if let Some(effect) = self.keyspace.sent_effects.as_mut().and_then(|effects| effects.last_mut()) {
                    *effect = SentEffect::Renew(Owner::new(owner).expect("effects name owners"));
                }
                return;
            }
            Effect::Drop(owner) => Sent::Drop(Owner::new(owner).expect("effects name owners")),
            Effect::Ended(time) => Sent::Ended(time),
            Effect::Limit => Sent::Limit(limit.expect("only a semaphore has a limit")),
            Effect::Clamp => Sent::Clamp,
        };
        self.keyspace.send(&self.key, sent);
    }

    fn remove(&mut self) {
        self.keyspace.primary.remove(&self.key);
        self.keyspace.signal_modified(&self.key);
        self.keyspace.send(&self.key, Sent::Delete);
    }
}

/// The replies to waiters, and the request that was queued last.
#[derive(Clone, Default)]
pub struct Inbox {
    /// The replies to waiters.
    pub replies: Vec<(RequestId, WaitOutcome)>,
    /// The request that was queued last.
    pub parked: Option<RequestId>,
    /// Whether all clients have disconnected although their requests are still queued.
    pub is_deserted: bool,
    /// Requests that have lost their permission.
    pub unpermitted: BTreeSet<RequestId>,
    /// Requests with NOTIFY, whose grants count as delivered at once.
    pub notified: BTreeSet<RequestId>,
    /// Waiting requests of the connection whose command is being decided.
    pub own: BTreeSet<RequestId>,
}

impl Clients for &mut Inbox {
    fn may_be_granted(&mut self, request: RequestId, _: &[&[u8]], _: u64) -> bool {
        !self.unpermitted.contains(&request)
    }

    fn reply(&mut self, request: RequestId, outcome: WaitOutcome) -> Delivery {
        record(|| Record::Reply(request, outcome));
        if self.is_deserted {
            return Delivery::Failed;
        }
        self.replies.push((request, outcome));
        match outcome {
            WaitOutcome::Granted { .. } if !self.notified.contains(&request) => Delivery::Pending(ClientId(0)),
            _ => Delivery::Done,
        }
    }
}

impl Park for &mut Inbox {
    fn may_wait(&self) -> bool {
        true
    }

    fn park(&mut self, request: RequestId) -> bool {
        self.parked = Some(request);
        true
    }

    fn detach_own(&mut self, request: RequestId) -> bool {
        self.own.contains(&request)
    }
}

fn to_holder(hold: &Hold<'_>) -> Holder {
    Holder {
        owner: hold.owner.clone(),
        fence: hold.fence,
        lease: hold.lease,
        until: hold.until,
        holds: hold.holds,
        reads: hold.reads,
        slot: hold.slot,
        origin: hold.origin,
    }
}

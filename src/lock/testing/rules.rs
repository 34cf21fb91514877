//! Plays the steps of a schedule on the rules, over a simulated server.

use std::cell::Cell;
use std::collections::{HashMap, VecDeque};
use std::num::NonZeroU64;

use super::contract::{
    Acquire, Change, Claim, Clocks, Command, Event, Holds, Kind, Ms, Outcome, Refusal, WaitReply, Writes,
};
use super::trace::{self, At};
use crate::engine::acquire::{AcquireRequest, Acquired, Wait};
use crate::engine::counted_holds::{CountChange, Counted};
use crate::engine::leave::{Cancelled, Leave};
use crate::engine::lock_manager::{Limits, LockError, LockManager};
use crate::engine::preempt::{Preempted, Preemption};
use crate::engine::release::{HoldsOf, WorkOutcome};
use crate::engine::session::{RenewRequest, Renewed};
use crate::host::simulated::{KeyEvent, Replica, SimulatedServer, Stored, TimeSlices};
use crate::host::{Keys, WaitOutcome, WriteCheck};
use crate::key::{ClientId, Key, KeyRef, RequestId};
use crate::value::claim as value;
use crate::value::fence::{Fence, FenceClock};
use crate::value::outcome::{Grant, KeyError, Released};
use crate::value::owner::OwnerRef;
use crate::value::time::{Deadline, Lease, WaitLimit};

/// A simulated server with a lock manager.
#[derive(Clone)]
pub(super) struct Rules {
    pub server: SimulatedServer,
    pub manager: LockManager,
    /// The senders' numbers of requests that wait or whose outcome is in flight.
    pub numbers: HashMap<RequestId, u64>,
    /// The request whose client disconnects in this iteration.
    disconnecting: Option<u64>,
    replies: Vec<(u64, WaitReply<Fence>)>,
    saved: Replica,
    /// The outcomes by request id, recorded if a test asks for it.
    pub outcomes: Option<Vec<(RequestId, WaitOutcome)>>,
    /// The number of iterations played.
    iterations: usize,
    /// How many times all pending iterations were played. Selects what the host reports, which must be the same in
    /// every version of the rules.
    rests: usize,
}

impl Rules {
    pub fn new(max_waiters: usize, keep_place_ms: Ms) -> Rules {
        let mut manager = LockManager::default();
        manager.limits = Limits { max_waiters, keep_place_ms, ..Limits::default() };
        // Time slices end early, and the rest of the work is left for the next iteration.
        let time_slices = if trace::is_of_steps() { TimeSlices::Endless } else { TimeSlices::Random(Cell::new(1)) };
        let server = SimulatedServer { time_slices, ..SimulatedServer::default() };
        let saved = Replica::default();
        Rules {
            server,
            manager,
            numbers: HashMap::new(),
            disconnecting: None,
            replies: Vec::new(),
            saved,
            outcomes: None,
            iterations: 0,
            rests: 0,
        }
    }

    pub fn play(&mut self, command: &Command) -> Outcome<Fence> {
        let now = &self.server.now();
        let mut host = self.server.host(now);
        match command {
            Command::Acquire(asked) => self.acquire(asked),
            Command::Release { keys, owner, claim, failed } => {
                let (names, amount) = (names(keys), amount(*claim));
                let released = match &names[..] {
                    [name] => {
                        let key = KeyRef { db: 0, name };
                        let owner = owner.as_bytes();
                        let now_us = || now.us();
                        let released =
                            self.manager.release_uncontended(now_us, key, || host.keys.open(key), owner, &amount);
                        let work = if *failed { WorkOutcome::Failed } else { WorkOutcome::Done };
                        released.unwrap_or_else(|| self.manager.with_host(&mut host).release(key, owner, &amount, work))
                    }
                    _ => {
                        let released = self.manager.with_host(&mut host).release_multiple(0, &names, owner.as_bytes());
                        return released.map_or_else(refused, |count| Outcome::Released(count as u32));
                    }
                };
                match released {
                    Ok(Released::NotHeld) => Outcome::NotHeld,
                    Ok(Released::Gone) => Outcome::Released(0),
                    Ok(Released::Same(left) | Released::Fewer(left)) => Outcome::Released(left),
                    Err(error) => refused(error),
                }
            }
            Command::Renew { keys, owner, kind, lease } => {
                let lock_type = lock_type(*kind);
                let lease = lease.map(to_lease);
                let request = RenewRequest { db: 0, names: &names(keys), owner: owner.as_bytes(), lock_type, lease };
                let renewed = self.manager.with_host(&mut host).renew(&request);
                renewed.map_or_else(refused, |renewed| Outcome::Renewed(renewed == Renewed::All))
            }
            Command::Break { key, owner } => {
                let whose = owner.map_or(HoldsOf::AllOwners, |owner| HoldsOf::Owner(owner.as_bytes()));
                let broken = self.manager.with_host(&mut host).break_holds(to_key(key).as_ref(), whose);
                broken.map_or_else(refused, |broken| Outcome::Broken(broken as u32))
            }
            Command::Cancel { key, owner } => {
                let cancelled = self.manager.with_host(&mut host).cancel(to_key(key).as_ref(), owner.as_bytes());
                cancelled.map_or_else(refused, |cancelled| Outcome::Cancelled(cancelled == Cancelled::Some))
            }
            Command::TakeOver { pairs, lease, .. } => {
                let lease = lease.map(to_lease);
                let preemption = |(key, owner): &(&'static str, &'static str)| Preemption {
                    name: key.as_bytes(),
                    owner: to_owner(owner),
                    lease,
                };
                let preemptions: Vec<_> = pairs.iter().map(preemption).collect();
                match self.manager.with_host(&mut host).preempt_mutexes(0, &preemptions) {
                    Ok(Preempted::All(grants)) => Outcome::TakenOver(grants.len() as u32),
                    Ok(Preempted::NotNow) => Outcome::NotNow,
                    Ok(Preempted::Protected) => Outcome::Protected,
                    Err(error) => refused_to_lock(error),
                }
            }
            Command::Count { key, owner, change, .. } => {
                let change = match change {
                    Change::By(by) => CountChange::By(*by),
                    Change::To(count) => CountChange::To(*count),
                };
                match self.manager.with_host(&mut host).change_holds(to_key(key).as_ref(), to_owner(owner), change) {
                    Ok(Counted::Holds { now, before }) => Outcome::Counted(now, before),
                    Ok(Counted::HeldByAnother) => Outcome::HeldByAnother,
                    Ok(Counted::NotNow) => Outcome::NotNow,
                    Err(error) => refused_to_lock(error),
                }
            }
        }
    }

    fn acquire(&mut self, asked: &Acquire) -> Outcome<Fence> {
        let now = &self.server.now();
        let owner = to_owner(asked.owner);
        let is_absolute = asked.claim == Claim::Adopted { is_absolute: true };
        let lease_deadline = asked.lease.filter(|_| is_absolute).map(|lease| now.timestamp().plus_ms(lease));
        let limit = asked.block.map(|block| NonZeroU64::new(block).map_or(WaitLimit::Unlimited, WaitLimit::Ms));
        let request = AcquireRequest {
            db: 0,
            names: &names(&asked.keys),
            request: value::LockRequest { owner, claim: claim(asked.claim), lease: to_lease(asked.lease) },
            wait: limit.map(|limit| Wait { limit, may_detach: true, coalesces: asked.coalesce, lease_deadline }),
            session: asked.session.then_some(ClientId(asked.client)),
        };
        let is_own = |(id, _): &(RequestId, _)| self.numbers.get(id).is_some_and(|number| number >> 32 == asked.client);
        self.server.inbox.own = self.manager.queues().requests().filter(is_own).map(|(id, _)| id).collect();
        let acquired = match self.acquire_uncontended(&request) {
            Some(granted) => granted.map(Acquired::Granted).map_err(LockError::Key),
            None => self.manager.with_host(&mut self.server.host(now)).acquire(request),
        };
        if let Some(parked) = self.server.inbox.parked.take() {
            self.numbers.insert(parked, asked.number);
        }
        match acquired {
            Ok(Acquired::Granted(grant)) => {
                if let Some(Stored::Lock(lock, until)) = self.server.keyspace.primary.get(&to_key(asked.keys[0])) {
                    let slot = lock.hold(owner.as_bytes(), *until).and_then(|hold| hold.slot);
                    assert_eq!(grant.slot, slot, "the reply contains the slot");
                }
                Outcome::Granted(grant.fence, grant.holds)
            }
            Ok(Acquired::Queued(_)) => Outcome::Queued,
            Ok(Acquired::NotGranted) => Outcome::NotGranted,
            Err(error) => refused_to_lock(error),
        }
    }

    /// Tries the fast path first, as a server does.
    fn acquire_uncontended(&mut self, request: &AcquireRequest<'_>) -> Option<Result<Grant, KeyError>> {
        let AcquireRequest { db, names: &[name], request, session, .. } = *request else { return None };
        let (key, now) = (KeyRef { db, name }, self.server.now());
        let mut host = self.server.host(&now);
        self.manager.acquire_uncontended(&now, key, || host.keys.open(key), &request, session).ok()
    }

    pub fn happen(&mut self, event: Event) {
        let now = &self.server.now();
        let keyspace = &mut self.server.keyspace;
        match event {
            Event::Deleted(key) => keyspace.delete(&to_key(key)),
            Event::Overwritten(key) => keyspace.put(&to_key(key), Stored::Foreign),
            Event::Renamed(from, to) | Event::Restored(from, to) => {
                let Some(copy) = keyspace.take_copy(&to_key(from)) else { return };
                if matches!(event, Event::Renamed(..)) {
                    keyspace.delete(&to_key(from));
                }
                keyspace.put(&to_key(to), copy);
            }
            Event::Flushed => {
                let keys: Vec<Key> = keyspace.primary.keys().cloned().collect();
                keys.iter().for_each(|key| keyspace.delete(key));
                keyspace.events.clear();
                self.manager.db_changed(Some(0));
            }
            Event::Expire(key, ms) => {
                let when = ms.map_or(Deadline::Never, |ms| Deadline::At(now.timestamp().plus_ms(ms)));
                keyspace.set_deadline(&to_key(key), when);
            }
            Event::Unblocked(number) => {
                let requests = self.manager.queues().requests().filter(|(_, request)| request.is_present());
                let unblocked: Vec<_> = requests.map(|(id, _)| id).filter(|id| self.numbers[id] == number).collect();
                unblocked.into_iter().for_each(|id| self.manager.leave(now, id, Leave::Abandon));
            }
            Event::ClientGone(client) => {
                self.manager.end_session(ClientId(client));
                // The simulator's requests carry their connection in the upper half of their number.
                let requests = self.manager.queues().requests().filter(|(_, request)| request.is_present());
                let its = requests.map(|(id, _)| id).filter(|id| self.numbers[id] >> 32 == client);
                let its: Vec<_> = its.collect();
                self.manager.leave_all(its);
            }
            Event::Writes(writes) => {
                keyspace.write_check =
                    if writes == Writes::Accepted { WriteCheck::Allowed } else { WriteCheck::Refused };
            }
            Event::SlotMoved => {
                keyspace.write_check = WriteCheck::SlotMoved;
                let keys: Vec<Key> = keyspace.primary.keys().cloned().collect();
                keys.iter().for_each(|key| keyspace.delete(key));
                self.manager.db_changed(Some(0));
            }
            Event::GraceSet(ms) => self.manager.change_grace(now, ms),
            Event::KeepPlaceSet(ms) => self.manager.limits.keep_place_ms = ms,
            Event::MaxWaitersPerKeySet(most) => self.manager.limits.max_waiters_per_key = most,
        }
    }

    /// Sets the wall clock forward or back by `by_ms` milliseconds.
    pub fn set_clock(&mut self, by_ms: i64) {
        self.server.keyspace.ahead_ms += by_ms;
        let now = &self.server.now();
        self.manager.clock_was_set(now);
    }

    /// Sends a command for every key, so that ended holders are removed. Otherwise EXPIRE would count a stored ended
    /// holder as one of several, a clock that is set back would revive it, and an EXPIRE that no command has seen would
    /// be lost with the next one.
    pub fn look_at_all(&mut self) {
        let now = &self.server.now();
        let locks = self.server.keyspace.primary.iter().filter_map(|(key, stored)| match stored {
            Stored::Lock(lock, _) => Some((key.clone(), lock.lock_type()?)),
            Stored::Foreign => None,
        });
        for (key, lock_type) in locks.collect::<Vec<_>>() {
            let request = RenewRequest { db: 0, names: &[&key.name], owner: b"nobody", lock_type, lease: None };
            let renewed = self.manager.with_host(&mut self.server.host(now)).renew(&request);
            assert!(matches!(renewed, Ok(Renewed::NotHeld) | Err(_)), "an owner that holds nothing renewed a lease");
        }
    }

    /// Both clocks.
    pub fn clocks(&self) -> Clocks {
        let keyspace = &self.server.keyspace;
        Clocks { wall: keyspace.timestamp().ms(), monotonic: keyspace.now_ms }
    }

    /// The client of this request disconnects at the end of the iteration.
    pub fn disconnects_unnoticed(&mut self, number: u64) {
        self.disconnecting = Some(number);
    }

    pub fn save(&mut self) {
        let keys = self.server.keyspace.primary.clone();
        self.saved = Replica { keys, fence: self.manager.fences.last() };
    }

    pub fn crash(&mut self, grace: Ms) {
        let saved = self.saved.clone();
        self.restart(saved, grace);
    }

    pub fn failover(&mut self, grace: Ms) {
        let replica = self.server.keyspace.replica.clone();
        self.manager.demote();
        self.restart(replica, grace);
        self.server.inbox.replies.retain(|(_, reply)| *reply != WaitOutcome::Demoted);
    }

    fn restart(&mut self, replica: Replica, grace: Ms) {
        let mut fences = FenceClock::default();
        if let Some(fence) = replica.fence {
            fences.raise(fence);
        }
        let limits = self.manager.limits;
        self.manager = LockManager::default();
        (self.manager.fences, self.manager.limits) = (fences, limits);
        self.server.keyspace.restart_from(replica);
        self.server.keyspace.write_check = WriteCheck::Allowed;
        self.numbers.clear();
        self.manager.begin_grace(self.server.keyspace.instant(), grace);
    }

    /// Plays the pending event-loop iterations of the server: its timer fires as long as something is due. `in_between`
    /// is called between some of them, with a number to choose by.
    pub fn play_iterations(&mut self, in_between: fn(&Rules, usize)) {
        self.rests += 1;
        for iteration in 0..1_000 {
            if !self.play_iteration() {
                return;
            }
            self.iterations += 1;
            trace::record(self, At::Iteration, || "iteration".into());
            if !trace::is_on() && self.manager.has_due() && (iteration == 0 || self.iterations % 4 == 0) {
                in_between(self, self.iterations);
            }
        }
        panic!("the timer never comes to rest");
    }

    /// Plays one iteration. Returns false if nothing is left to do.
    pub(super) fn play_iteration(&mut self) -> bool {
        // Every event of the server wakes its timer.
        let is_woken = !self.server.keyspace.events.is_empty();
        self.deliver_events();
        let now = &self.server.now();
        let is_due = |manager: &LockManager| manager.next_timer().is_due(now);
        if !is_woken && !self.manager.has_due() && !is_due(&self.manager) {
            return false;
        }
        self.manager.with_host(&mut self.server.host(now)).tick();
        self.manager.with_host(&mut self.server.host(now)).drain();
        self.deliver_events();
        self.server.keyspace.write_check != WriteCheck::Refused
            || is_due(&self.manager)
            || self.manager.has_pending_removals()
    }

    /// If many keys are concerned, a host need not report which.
    fn removed(&mut self, key: KeyRef<'_>, fence: Fence) {
        let is_alone = self.manager.bindings().has_key(key);
        match (self.rests % 3, self.manager.queues().id_of(key)) {
            (0, Some(_)) if !is_alone => self.manager.many_removed(key.db),
            (0, None) if !is_alone => self.manager.lock_removed(),
            _ => self.manager.key_removed(key, fence),
        }
    }

    /// Delivers keyspace events to the manager, and outcomes to clients.
    fn deliver_events(&mut self) {
        let mut events: VecDeque<_> = std::mem::take(&mut self.server.keyspace.events).into();
        while let Some(event) = events.pop_front() {
            match event {
                KeyEvent::Removed(key, fence) => self.removed(key.as_ref(), fence),
                // An inspection finds a change without an event. RESTORE has an event.
                KeyEvent::Changed(key) => {
                    if self.rests % 2 == 0 {
                        self.manager.key_changed(key.as_ref());
                    }
                    let now = self.server.now();
                    self.manager.with_host(&mut self.server.host(&now)).inspect_some(usize::MAX);
                    events.append(&mut std::mem::take(&mut self.server.keyspace.events).into());
                }
            }
        }
        for (id, outcome) in std::mem::take(&mut self.server.inbox.replies) {
            assert!(
                self.manager.queues().request(id).is_none_or(|request| !request.is_present()),
                "replied, still queued"
            );
            self.outcomes.iter_mut().for_each(|outcomes| outcomes.push((id, outcome)));
            let number = self.numbers[&id];
            self.replies.push((number, to_reply(outcome)));
            if let WaitOutcome::Granted { .. } = outcome {
                if self.disconnecting == Some(number) {
                    self.manager.undelivered(id);
                } else {
                    self.manager.delivered(id);
                }
            }
        }
        self.server.inbox.parked = None;
    }

    /// Takes the outcomes of waits since the last call.
    pub fn take_replies(&mut self) -> Vec<(u64, WaitReply<Fence>)> {
        std::mem::take(&mut self.replies)
    }
}

pub(super) fn to_key(word: &str) -> Key {
    Key::new(0, word.as_bytes())
}

fn to_owner(word: &'static str) -> OwnerRef<'static> {
    OwnerRef::new(word.as_bytes()).expect("an owner's name is short")
}

fn names<'a>(keys: &[&'a str]) -> Vec<&'a [u8]> {
    keys.iter().map(|key| key.as_bytes()).collect()
}

fn to_lease(ms: Option<Ms>) -> Lease {
    ms.map_or(Lease::Persist, |ms| Lease::Ms(ms.try_into().expect("no lease is 0")))
}

fn refused(error: KeyError) -> Outcome<Fence> {
    Outcome::Refused(refusal(error))
}

fn refused_to_lock(error: LockError) -> Outcome<Fence> {
    match error {
        LockError::Key(error) => refused(error),
        LockError::Deadlock(cycle) => {
            let named: Vec<_> = cycle.iter().map(|edge| edge.owner.as_bytes()).collect();
            assert!(!named.is_empty(), "a cycle is named");
            assert!((1..named.len()).all(|n| !named[..n].contains(&named[n])), "a cycle names an owner once");
            Outcome::Refused(Refusal::Deadlock)
        }
        LockError::MaxWaiters(_) => Outcome::Refused(Refusal::MaxWaiters),
        LockError::Grace => Outcome::Refused(Refusal::Grace),
    }
}

fn refusal(error: KeyError) -> Refusal {
    match error {
        KeyError::WrongType => Refusal::WrongType,
        KeyError::Invalid(value::InvalidClaim::WrongLockType(_)) => Refusal::WrongKind,
        KeyError::Invalid(_) => Refusal::Invalid,
        KeyError::NoFence => panic!("no fence is left"),
    }
}

pub(super) fn to_reply(outcome: WaitOutcome) -> WaitReply<Fence> {
    match outcome {
        WaitOutcome::Granted { fence, holds, .. } => WaitReply::Granted(fence, holds),
        WaitOutcome::Done { fence } => WaitReply::Done(fence),
        WaitOutcome::TimedOut => WaitReply::TimedOut,
        WaitOutcome::Cancelled => WaitReply::Cancelled,
        WaitOutcome::Superseded => WaitReply::Superseded,
        WaitOutcome::Impossible(error) => WaitReply::Refused(refusal(error)),
        WaitOutcome::Deadlock => WaitReply::Refused(Refusal::Deadlock),
        WaitOutcome::TryAgain => WaitReply::TryAgain,
        WaitOutcome::Demoted => WaitReply::Demoted,
        WaitOutcome::NotPermitted => panic!("every client keeps its permissions"),
    }
}

pub(super) fn lock_type(kind: Kind) -> value::LockType {
    match kind {
        Kind::Mutex => value::LockType::Mutex,
        Kind::Reentrant => value::LockType::Reentrant,
        Kind::ReadWrite => value::LockType::ReadWrite,
        Kind::Semaphore => value::LockType::Semaphore,
    }
}

fn count(holds: Holds) -> value::Count {
    match holds {
        Holds::By(n) => value::Count::Delta(n),
        Holds::Exactly(n) => value::Count::Exactly(n),
    }
}

fn claim(claim: Claim) -> value::Claim {
    match claim {
        Claim::Mutex => value::Claim::Mutex,
        Claim::Adopted { .. } => value::Claim::AdoptedMutex,
        Claim::Reentrant(holds) => value::Claim::Reentrant(count(holds)),
        Claim::Read(holds) => value::Claim::ReadWrite(value::Mode::Read, count(holds)),
        Claim::Write(holds) => value::Claim::ReadWrite(value::Mode::Write, count(holds)),
        Claim::Permits(limit, holds) => value::Claim::Permits { limit, count: count(holds) },
        Claim::Slot(limit) => value::Claim::Slot { limit },
    }
}

fn amount(released: Claim) -> value::ReleaseAmount {
    match claim(released) {
        value::Claim::Mutex | value::Claim::AdoptedMutex => value::ReleaseAmount::Mutex,
        value::Claim::Reentrant(count) | value::Claim::AdoptedReentrant(count) => {
            value::ReleaseAmount::Reentrant(count)
        }
        value::Claim::ReadWrite(mode, count) => value::ReleaseAmount::ReadWrite(mode, count),
        value::Claim::Permits { count, .. } => value::ReleaseAmount::Permits(count),
        value::Claim::Slot { .. } => value::ReleaseAmount::Permits(value::Count::Exactly(1)),
    }
}

//! Plays schedules on the rules and on the model, and compares them after every step: the outcome of the command,
//! the outcomes of waits, holders, and the order of the queues.

use std::collections::HashMap;

use super::checks::{self, Before};
use super::contract::{Claim, Command, Event, Grant, Ms, Name, Outcome, Refusal, WaitReply, Writes};
use super::counted::Counted;
use super::fences::Fences;
use super::interleaving::check_no_request_overtakes;
use super::model::{Holder, Lock, Model, Request, Until, Value};
use super::rules::{lock_type, to_key, Rules};
use super::schedule::{Cast, Step};
use super::trace::{self, At};
use super::world::Saved;
use crate::host::simulated::{Stored, TimeSlices};
use crate::host::WriteCheck;
use crate::value::fence::Fence;
use crate::value::holders::Slot;
use crate::value::outcome::Hold;
use crate::value::time::{Deadline, Lease};

const MAX_WAITERS: usize = 5;
const KEEP_PLACE: Ms = 60;

/// Plays a schedule on both to its end. Panics if they differ.
pub fn play(cast: &Cast, steps: &[Step]) {
    let mut simulation = Simulation::new(cast);
    steps.iter().for_each(|step| simulation.play(step));
    simulation.end();
}

/// The rules and the model, side by side.
#[derive(Clone)]
pub(super) struct Simulation {
    pub rules: Rules,
    pub model: Model,
    keys: Vec<&'static str>,
    fences: Fences<Fence>,
    was_set_back: bool,
    has_lost: bool,
    last_command: Option<Command>,
    /// The reply to the last command by the contract.
    pub outcome: Option<Outcome>,
    /// The rules decided a case that the contract leaves open. The two differ from then on, so the schedule ends.
    has_diverged: bool,
    /// Requests may wait indefinitely.
    may_be_endless: bool,
    /// The outcomes of waits since the start.
    pub replies: Vec<WaitReply>,
    /// Owners that were granted several requests at once: their order is open, and so are lease and fencing token.
    at_once: Vec<Name>,
    requests: u64,
    counted: Counted,
    /// The owners of requests, by number.
    owners: HashMap<u64, Name>,
    saved: Saved,
    /// The model's keys when the replica began to lag.
    lagging: Option<Saved>,
}

impl Simulation {
    pub fn new(cast: &Cast) -> Simulation {
        Simulation::with_max_waiters(cast, MAX_WAITERS)
    }

    pub fn with_max_waiters(cast: &Cast, max_waiters: usize) -> Simulation {
        let rules = Rules::new(max_waiters, KEEP_PLACE);
        Simulation {
            model: Model::new(rules.clocks(), max_waiters, KEEP_PLACE),
            rules,
            keys: cast.keys.iter().map(|(key, _)| *key).collect(),
            fences: Fences::default(),
            was_set_back: false,
            has_lost: false,
            last_command: None,
            outcome: None,
            has_diverged: false,
            may_be_endless: false,
            replies: Vec::new(),
            at_once: Vec::new(),
            requests: 0,
            counted: Counted::default(),
            owners: HashMap::new(),
            saved: Saved::default(),
            lagging: None,
        }
    }

    /// Plays a step on both, then runs all checks.
    pub fn play(&mut self, step: &Step) {
        if self.has_diverged {
            return;
        }
        let (before, limits) = (Before::of(&self.rules), self.limits());
        trace::record(&self.rules, At::Step, || format!("step {step:?}"));
        match step {
            Step::Send(command) => self.send(command),
            Step::SendAgain => {
                if let Some(command) = self.last_command.clone() {
                    self.send(&command);
                }
            }
            Step::Pass(ms) => self.pass(*ms),
            Step::Happen(event) => self.happen(*event),
            Step::Together(commands, events) => self.together(commands, events),
            Step::Deafen(which, command) => self.disconnect_unnoticed(*which, command),
            Step::Save => {
                self.rules.save();
                self.saved = self.model.save();
            }
            // Fencing tokens keep increasing after data loss only if the clock is not set back, so a schedule has one
            // or the other.
            Step::SetClock(by_ms) if *by_ms < 0 && self.has_lost => {}
            Step::Crash(_) | Step::Failover(_) if self.was_set_back => {}
            // While writes are refused, expired holds stay stored. Setting the clock back would make them valid again.
            Step::SetClock(by_ms) if *by_ms < 0 && self.rules.server.keyspace.write_check != WriteCheck::Allowed => {}
            Step::SetClock(by_ms) => self.set_clock(*by_ms),
            Step::Crash(grace) => {
                self.take_time();
                self.rules.crash(*grace);
                self.counted = Counted::default();
                self.model.restart(&self.saved, *grace);
                self.lagging = None;
                self.play_iterations();
            }
            Step::Lag => {
                self.rules.server.keyspace.lags = true;
                self.lagging.get_or_insert(self.model.save());
            }
            Step::CatchUp => {
                self.rules.server.keyspace.catch_up();
                self.lagging = None;
            }
            Step::Failover(grace) => {
                self.take_time();
                self.rules.failover(*grace);
                self.counted = Counted::default();
                let saved = self.lagging.take().unwrap_or(self.model.save());
                self.model.restart(&saved, *grace);
                self.play_iterations();
            }
        }
        if self.has_diverged {
            return;
        }
        self.compare();
        before.check_no_holder_was_displaced(step, &self.rules);
        checks::check_locks(&self.rules.server.keyspace);
        checks::check_ended_leases_hold_nothing(&self.rules);
        checks::check_replica(&self.rules.server.keyspace);
        self.rules.manager.check_tables();
        self.counted.check(&self.rules, self.model.silent_ends);
        if !self.model.has_grace() {
            checks::check_no_admissible_waiter_is_left(&mut self.rules);
        }
        self.check_no_wait_is_endless(step, &limits);
    }

    /// A request that would deadlock is refused when it is queued. Later, only changes that no request asks for
    /// complete a deadlock: a lock that moves to a waited-for key or is preempted by an owner with other requests, a
    /// smaller LIMIT of a request that will be served, an upgrade in a grace period that keeps readers waiting, or the
    /// end of one of several requests of an owner.
    fn check_no_wait_is_endless(&mut self, step: &Step, limits: &[u32]) {
        let comes = |event: &Event| matches!(event, Event::Renamed(..) | Event::Restored(..));
        let preempts = |command: &Command| matches!(command, Command::TakeOver { .. });
        self.may_be_endless |= self.model.has_grace();
        let is_lowered = self.limits().iter().zip(limits).any(|(limit, before)| limit < before);
        let endless = self.model.endless_waits();
        self.may_be_endless |= match step {
            Step::Happen(event) => comes(event),
            Step::Send(command) if preempts(command) => true,
            Step::Together(commands, events) => is_lowered || events.iter().any(comes) || commands.iter().any(preempts),
            Step::SendAgain => is_lowered || self.last_command.as_ref().is_some_and(preempts),
            Step::Send(Command::Acquire(asked)) if self.outcome == Some(Outcome::Queued) => {
                is_lowered && endless.iter().all(|request| request.asked.owner != asked.owner)
            }
            _ => is_lowered,
        };
        assert!(endless.is_empty() || self.may_be_endless, "they wait without end: {endless:?}");
        self.may_be_endless = !endless.is_empty() || self.model.has_parallel_waits();
    }

    fn limits(&self) -> Vec<u32> {
        self.keys.iter().map(|key| self.model.limit(key)).collect()
    }

    /// Sets both wall clocks, never to before the epoch.
    fn set_clock(&mut self, by_ms: i64) {
        let by_ms = by_ms.max(1 - self.rules.clocks().wall as i64);
        // The model has removed expired holds, so the rules must do so before the clock is set back.
        let is_refused = self.rules.server.keyspace.write_check != WriteCheck::Allowed;
        if is_refused && by_ms < 0 {
            return;
        }
        if !is_refused {
            self.rules.look_at_all();
        }
        self.was_set_back |= by_ms < 0;
        self.rules.set_clock(by_ms);
        self.model.renewals_postponed_until =
            self.rules.manager.bindings().renewals_postponed_until().map(|until| until.ms());
        self.model.set_clock(self.rules.clocks().wall);
        self.play_in_one_slice();
    }

    /// The model renews sessions before it grants anything. With short time slices the rules would mix both.
    fn play_in_one_slice(&mut self) {
        let time_slices = std::mem::replace(&mut self.rules.server.time_slices, TimeSlices::Endless);
        self.play_iterations();
        self.rules.server.time_slices = time_slices;
    }

    /// A start or failover takes longer than the difference of the clocks, so that fencing tokens increase even after
    /// data loss.
    fn take_time(&mut self) {
        self.has_lost = true;
        self.rules.server.keyspace.now_ms += 5;
        self.model.now = self.rules.clocks();
    }

    /// A server that refuses writes also refuses commands.
    fn send(&mut self, command: &Command) {
        if self.rules.server.keyspace.write_check == WriteCheck::Allowed {
            self.send_in_iteration(command);
            self.play_iterations();
        }
    }

    /// Plays all of this in one event-loop iteration. The server's own iterations follow.
    fn together(&mut self, commands: &[Command], events: &[Event]) {
        if self.rules.server.keyspace.write_check != WriteCheck::Allowed {
            return;
        }
        let before = self.model.reevaluated();
        for command in commands {
            self.send_in_iteration(command);
            if self.model.has_replies() || self.model.reevaluated() > before {
                break;
            }
        }
        self.look_before(events);
        events.iter().for_each(|event| self.rules.happen(*event));
        self.model.happen_together(events);
        self.play_iterations();
    }

    fn send_in_iteration(&mut self, command: &Command) {
        let mut command = command.clone();
        if let Command::Acquire(asked) = &mut command {
            self.requests += 1;
            asked.number = asked.client << 32 | self.requests;
            self.owners.insert(asked.number, asked.owner);
        }
        let waits =
            |request: &Request| matches!(&command, Command::Release { owner, .. } if request.asked.owner == *owner);
        let waits = self.model.requests().iter().any(waits);
        let outcome = self.rules.play(&command);
        trace::record(&self.rules, At::Reply, || format!("{outcome:?}"));
        let expected = self.model.play(&command);
        self.outcome = Some(expected);
        self.counted.reply(expected);
        let is_same = match (outcome, expected) {
            (Outcome::Granted(fence, holds), Outcome::Granted(grant, expected)) => {
                self.match_fence(grant, fence);
                holds == expected
            }
            (outcome, expected) => format!("{outcome:?}") == format!("{expected:?}"),
        };
        if !is_same {
            let is_deadlock = matches!(outcome, Outcome::Refused(Refusal::Deadlock))
                || matches!(expected, Outcome::Refused(Refusal::Deadlock));
            self.has_diverged = is_deadlock && !self.model.endless_waits().is_empty();
        }
        assert!(is_same || self.has_diverged, "{command:?}: {outcome:?}, but the contract says {expected:?}");
        if !waits {
            checks::check_release(&command, &self.rules);
        }
        self.last_command = Some(command);
    }

    fn pass(&mut self, ms: Ms) {
        let end = self.rules.server.keyspace.now_ms + ms;
        loop {
            let now = &self.rules.server.now();
            let timers = self.rules.manager.timers_ahead(now).into_iter();
            let next = timers.chain(self.model.next_event()).filter(|ahead| *ahead > 0).min();
            let next = next.map_or(end, |ahead| end.min(now.instant().ms() + ahead));
            self.rules.server.keyspace.now_ms = next;
            // The rules may also have tried to remove an expired hold, which is a write: adopt when they retry.
            self.model.renewals_postponed_until =
                self.rules.manager.bindings().renewals_postponed_until().map(|until| until.ms());
            self.model.now = self.rules.clocks();
            let renews_multiple = self.model.renewals_due().len() > 1;
            self.model.pass_to(self.rules.clocks());
            if renews_multiple {
                self.play_in_one_slice();
            } else {
                self.play_iterations();
            }
            self.compare();
            if next == end {
                return;
            }
        }
    }

    fn happen(&mut self, event: Event) {
        let is_write = !matches!(
            event,
            Event::Unblocked(_)
                | Event::ClientGone(_)
                | Event::Writes(_)
                | Event::GraceSet(_)
                | Event::KeepPlaceSet(_)
                | Event::MaxWaitersPerKeySet(_)
        );
        let keys_differ = !matches!(event, Event::Renamed(from, to) | Event::Restored(from, to) if from == to);
        if is_write && self.rules.server.keyspace.write_check != WriteCheck::Allowed || !keys_differ {
            return;
        }
        let event = match event {
            Event::Unblocked(which) => {
                let Some(number) = self.waiter(which as usize) else { return };
                Event::Unblocked(number)
            }
            event => event,
        };
        self.look_before(&[event]);
        self.model.happen(event);
        self.rules.happen(event);
        self.play_iterations();
        if event == Event::SlotMoved {
            self.happen(Event::Writes(Writes::Accepted));
        }
    }

    /// To other commands an ended holder still counts until a command of the module has accessed the lock.
    fn look_before(&mut self, events: &[Event]) {
        if events.iter().any(|event| matches!(event, Event::Expire(..) | Event::Renamed(..) | Event::Restored(..))) {
            self.rules.look_at_all();
        }
    }

    /// The number of a waiter, selected by `which`.
    fn waiter(&self, which: usize) -> Option<u64> {
        let present: Vec<_> = self.model.requests().iter().filter(|request| request.detached.is_none()).collect();
        present.get(which % present.len().max(1)).map(|request| request.asked.number)
    }

    /// Only for a waiter whose owner has no other request, because that one may or may not be granted meanwhile. And
    /// only if no other request asks for a slot, because the undelivered grant may be revoked before or after the next
    /// grant.
    fn disconnect_unnoticed(&mut self, which: usize, command: &Command) {
        let Some(number) = self.waiter(which) else { return self.send(command) };
        let of = |number: u64| self.model.requests().iter().find(move |request| request.asked.number == number);
        let owner = of(number).map(|request| request.asked.owner);
        let is_only = self.model.requests().iter().filter(|request| Some(request.asked.owner) == owner).count() == 1;
        let asks_for_slot =
            |request: &Request| matches!(request.asked.claim, Claim::Slot(_)) && request.asked.number != number;
        if !is_only || self.model.requests().iter().any(asks_for_slot) {
            return;
        }
        self.rules.disconnects_unnoticed(number);
        self.model.disconnects_unnoticed(number);
        self.send(command);
        self.happen(Event::ClientGone(number >> 32));
    }

    fn play_iterations(&mut self) {
        if self.has_diverged {
            return;
        }
        self.rules.play_iterations(check_no_request_overtakes);
        let mut replies = self.rules.take_replies();
        let mut expected = self.model.take_replies();
        replies.sort_by_key(|(number, _)| *number);
        expected.sort_by_key(|(number, _)| *number);
        let is_same = |(number, reply): &(u64, WaitReply<Fence>), (other, expected): &(u64, WaitReply)| {
            let is_same = match (reply, expected) {
                (WaitReply::Granted(_, holds), WaitReply::Granted(_, expected)) => holds == expected,
                (WaitReply::Done(_), WaitReply::Done(_)) => true,
                (reply, expected) => format!("{reply:?}") == format!("{expected:?}"),
            };
            number == other && is_same
        };
        let are_same = replies.len() == expected.len() && replies.iter().zip(&expected).all(|(a, b)| is_same(a, b));
        assert!(are_same, "replied {replies:x?}, but the contract says {expected:x?}");
        let granted = expected.iter().filter(|(_, reply)| matches!(reply, WaitReply::Granted(..)));
        let granted: Vec<_> = granted.filter_map(|(number, _)| self.owners.get(number).copied()).collect();
        for ((number, reply), (_, expected)) in replies.iter().zip(&expected) {
            if let (WaitReply::Done(fence), WaitReply::Done(grant)) = (reply, expected) {
                self.match_fence(*grant, *fence);
            }
            let (WaitReply::Granted(fence, _), WaitReply::Granted(grant, _)) = (reply, expected) else { continue };
            let Some(owner) = self.owners.get(number).copied() else { continue };
            match granted.iter().filter(|other| **other == owner).count() {
                1 => self.match_fence(*grant, *fence),
                _ => self.at_once.push(owner),
            }
        }
        expected.iter().for_each(|(_, reply)| self.counted.wait_reply(*reply));
        self.replies.extend(expected.iter().map(|(_, reply)| *reply));
    }

    fn match_fence(&mut self, grant: Grant, fence: Fence) {
        self.fences.see(grant, fence).unwrap_or_else(|wrong| panic!("{wrong}"));
    }

    /// Compares the holders, and the order of the queues.
    fn compare(&mut self) {
        for key in self.keys.clone() {
            let stored = self.rules.server.keyspace.primary.get(&to_key(key)).cloned();
            let now = self.rules.server.keyspace.timestamp();
            let live = |lock: &crate::value::lock::Lock, until| {
                !lock.holds(until).iter().all(|hold| hold.until.has_passed(now))
            };
            match (
                stored.filter(|stored| !matches!(stored, Stored::Lock(lock, until) if !live(lock, *until))),
                self.model.value(key).cloned(),
            ) {
                (None, None) | (Some(Stored::Foreign), Some(Value::Foreign)) => {}
                (Some(Stored::Lock(lock, until)), Some(Value::Lock(expected))) => {
                    let holds = lock.holds(until);
                    let live: Vec<_> = holds.iter().filter(|hold| !hold.until.has_passed(now)).collect();
                    if live.len() == holds.len() {
                        assert_eq!(to_until(until), expected.until, "time to live of {key}");
                    }
                    assert_eq!(lock.lock_type(), Some(lock_type(expected.kind)), "lock type of {key}");
                    let is_native = expected.holders.iter().any(|holder| holder.is_native);
                    assert!(live.is_empty() || lock.is_held_natively() == is_native, "native holds of {key}");
                    assert!(lock.semaphore_limit().is_none_or(|limit| limit == expected.limit), "limit of {key}");
                    let expected = self.adopt_what_is_open(key, &live).unwrap_or(expected);
                    self.compare_holders(key, &live, &expected);
                }
                (stored, expected) => panic!("{key}: {stored:?}, but the contract says {expected:?}"),
            }
            let queue = self.rules.manager.queues().of_key(to_key(key).as_ref());
            let waiters = queue.into_iter().flat_map(|queue| queue.present());
            let since = |id| self.rules.manager.queues().request(id).map(|request| request.since.ms());
            let waiters: Vec<_> = waiters.map(|(_, id)| (self.rules.numbers[&id], since(id))).collect();
            let expected = self.model.waiters(key).map(|request| (request.asked.number, Some(request.since)));
            assert_eq!(waiters, expected.collect::<Vec<_>>(), "the queue of {key}, and since when its requests wait");
        }
        let detached = self.model.requests().iter().filter(|request| request.detached.is_some()).count();
        assert_eq!(self.rules.manager.queues().reserved_positions(), detached, "reserved positions");
        self.at_once.clear();
        self.fences.end_step();
    }

    /// Adopts what the contract leaves open of holds that were granted by several requests at once.
    fn adopt_what_is_open(&mut self, key: Name, holds: &[&Hold<'_>]) -> Option<Lock> {
        for owner in self.at_once.clone() {
            let Some(hold) = holds.iter().find(|hold| hold.owner.as_bytes() == owner.as_bytes()) else { continue };
            let lease = (hold.lease != Lease::Persist).then(|| hold.lease.as_ms() as Ms);
            let holder = self.model.value(key).and_then(|value| value.holder(owner));
            let Some(expected) = holder.map(|holder| holder.grant) else { continue };
            let grant = self.fences.of_open_hold(hold.fence, expected, &mut self.model);
            let bound = self.rules.manager.bindings().client_of(to_key(key).as_ref(), owner.as_bytes());
            self.model.adopt(key, owner, (lease, bound.map(|client| client.0)), grant);
        }
        match self.model.value(key) {
            Some(Value::Lock(lock)) => Some(lock.clone()),
            _ => None,
        }
    }

    fn compare_holders(&mut self, key: &str, holds: &[&Hold<'_>], expected: &Lock) {
        let mut holders: Vec<&Holder> = expected.holders.iter().collect();
        holders.sort_by_key(|holder| holder.grant);
        assert_eq!(holds.len(), holders.len(), "holders of {key}: {holds:?}, but the contract says {holders:?}");
        for (hold, holder) in holds.iter().zip(holders) {
            let bound = self.rules.manager.bindings().client_of(to_key(key).as_ref(), hold.owner.as_bytes());
            let is_same = hold.owner.as_bytes() == holder.owner.as_bytes()
                && (hold.holds, hold.reads) == (holder.holds, holder.reads)
                && hold.slot.map(Slot::number) == holder.slot
                && to_until(hold.until) == holder.until
                && hold.lease == holder.lease.map_or(Lease::Persist, |ms| Lease::from_ms(ms as i64).expect("a lease"))
                && bound.map(|client| client.0) == holder.session.map(|(client, _)| client);
            assert!(is_same, "{key}: {hold:?} bound to {bound:?}, but the contract says {holder:?}");
            self.match_fence(holder.grant, hold.fence);
        }
    }

    /// Everything that can influence later steps, with owners numbered in order of appearance.
    #[cfg(test)]
    pub fn describe(&self, keys: &[Name]) -> String {
        let timers = self.rules.manager.timers_ahead(&self.rules.server.now());
        format!("{}{timers:?}{:?}", self.model.describe(keys, &self.saved), self.rules.manager.has_due())
    }

    /// Disconnects all clients, and checks that no state of them is left.
    pub fn end(mut self) {
        if self.has_diverged {
            return;
        }
        self.play(&Step::Happen(Event::Writes(Writes::Accepted)));
        for _ in 0..4 {
            (0..16).for_each(|client| self.play(&Step::Happen(Event::ClientGone(client))));
            self.play(&Step::Happen(Event::Flushed));
            self.pass(1_000);
        }
        checks::check_nothing_is_left(&self.rules.manager);
    }
}

fn to_until(deadline: Deadline) -> Until {
    deadline.timestamp().map_or(Until::Never, |timestamp| Until::At(timestamp.ms()))
}

//! Timers and events of the model's server: time, keys changed by other commands, clients that disconnect, and the one
//! function that serves all waiters that can be served.

use super::contract::*;
use super::model::{Holder, Lock, Model, Request, Say, Until, Value};

/// The state that survives a crash or a failover: keys, but neither waiters nor sessions.
#[derive(Clone, Debug, Default)]
pub struct Saved(Vec<(Name, Value)>);

impl Saved {
    #[cfg(test)]
    pub(super) fn values(&self) -> &Vec<(Name, Value)> {
        &self.0
    }
}

impl Model {
    /// A server without keys.
    pub fn new(now: Clocks, max_waiters: usize, keep_place: Ms) -> Model {
        Model { now, max_waiters, keep_place, ..Model::default() }
    }

    /// Takes the outcomes of waits since the last call, by the numbers of their requests.
    pub fn take_replies(&mut self) -> Vec<(u64, WaitReply)> {
        std::mem::take(&mut self.replies)
    }

    /// Whether any wait has ended since the last call.
    pub fn has_replies(&self) -> bool {
        !self.replies.is_empty()
    }

    /// Whether this mutex is held by a grant on one of these connections.
    pub fn is_granted_on(&self, key: Name, clients: &[u64]) -> bool {
        let Some(Value::Lock(lock)) = self.value(key) else { return false };
        let is_on = |(grant, client): &(Grant, u64)| lock.holders[0].grant == *grant && clients.contains(client);
        self.granted_on.iter().any(is_on)
    }

    /// How many MLOCKs were reevaluated since the start.
    pub fn reevaluated(&self) -> u64 {
        self.reevaluated
    }

    /// The value under a key.
    pub fn value(&self, key: Name) -> Option<&Value> {
        self.values.iter().find(|(name, _)| *name == key).map(|(_, value)| value)
    }

    /// The value as LOCK.INFO shows it: the hold of an ended connection counts as ended, even while the server refuses
    /// writes.
    pub fn seen(&self, key: Name) -> Option<Value> {
        let mut value = self.value(key)?.clone();
        let Some(lock) = value.lock_mut() else { return Some(value) };
        lock.holders.retain(|holder| !holder.session.is_some_and(|(client, _)| self.gone.contains(&client)));
        (!lock.holders.is_empty()).then_some(value)
    }

    /// The waiters for a key, in order, without reserved positions.
    pub fn waiters<'a>(&'a self, key: Name) -> impl Iterator<Item = &'a Request> + 'a {
        self.requests.iter().filter(move |request| request.waits_for(key))
    }

    /// All requests, including reserved positions, in order.
    pub fn requests(&self) -> &[Request] {
        &self.requests
    }

    /// Whether the grace period refuses new holders.
    pub fn has_grace(&self) -> bool {
        self.grace.is_some()
    }

    /// The milliseconds until the next timer, if the wall clock is not set before that.
    pub fn next_event(&self) -> Option<Ms> {
        let Clocks { wall, monotonic } = self.now;
        let at = |until: Until| match until {
            Until::At(at) => Some(at.saturating_sub(monotonic)),
            Until::Never => None,
        };
        // A lease includes its last millisecond.
        let after = |until: Until| match until {
            Until::At(last) => Some((last + 1).saturating_sub(wall)),
            Until::Never => None,
        };
        let postponed = Until::At(self.renewals_postponed_until.unwrap_or(0));
        let renewal = |holder: &Holder| {
            let (_, due) = holder.session.filter(|(client, _)| !self.gone.contains(client))?;
            at(due.max(postponed))
        };
        let holders = self.locks().flat_map(|lock| &lock.holders);
        let leases = holders.flat_map(|holder| [after(holder.until), renewal(holder)]);
        let waits = self.requests.iter().map(|request| match request.detached {
            Some((_, until)) => at(Until::At(until)),
            None => at(request.until),
        });
        leases.chain(waits).chain([self.grace.and_then(|(_, until)| at(Until::At(until)))]).flatten().min()
    }

    /// The wall clock was set. Leases continue on it, and the leases of live sessions are renewed.
    pub fn set_clock(&mut self, wall: Ms) {
        let Clocks { monotonic, .. } = self.now;
        self.now.wall = wall;
        self.expire();
        for (_, value) in &mut self.values {
            let holders = value.lock_mut().into_iter().flat_map(|lock| &mut lock.holders);
            for (_, due) in holders.filter_map(|holder| holder.session.as_mut()) {
                *due = (*due).min(if *due == Until::Never { Until::Never } else { Until::At(monotonic) });
            }
        }
        self.pass_to(self.now);
    }

    /// Advances the time to `now`, which is not past [`Model::next_event`].
    pub fn pass_to(&mut self, now: Clocks) {
        self.now = now;
        let now = now.monotonic;
        self.grace = self.grace.filter(|(_, until)| *until > now);
        let is_over = |request: &Request| request.detached.is_none() && request.until <= Until::At(now);
        // The lower half of a request's number is its sequence number.
        let first_over = |requests: &[Request]| {
            let over = (0..requests.len()).filter(|index| is_over(&requests[*index]));
            over.min_by_key(|index| requests[*index].asked.number & u64::from(u32::MAX))
        };
        while let Some(over) = first_over(&self.requests) {
            self.replies.push((self.requests[over].asked.number, WaitReply::TimedOut));
            self.silent_ends.timed_out += u64::from(self.keep_place == 0);
            self.leave(over);
        }
        self.end_reserved_positions(|request| request.detached.is_some_and(|(_, until)| until <= now));
        self.expire();
        self.renewals_postponed_until = self.renewals_postponed_until.filter(|until| *until > now);
        if self.renewals_postponed_until.is_none() {
            for (key, owner) in self.renewals_due() {
                if self.refuses_writes {
                    self.renewals_postponed_until = Some(now + 10);
                } else {
                    self.start_lease_again(key, owner, None);
                }
            }
        }
        self.serve_all();
    }

    /// The leases of sessions that are due for renewal: keys and owners.
    pub fn renewals_due(&self) -> Vec<(Name, Name)> {
        let locks = self.values.iter().filter_map(|(key, value)| match value {
            Value::Lock(lock) => Some((*key, lock)),
            Value::Foreign => None,
        });
        let holders = locks.flat_map(|(key, lock)| lock.holders.iter().map(move |holder| (key, holder)));
        let due = holders.filter_map(|(key, holder)| match holder.session? {
            (client, _) if self.gone.contains(&client) => None,
            (_, due) if due <= Until::At(self.now.monotonic) => Some((key, holder.owner)),
            _ => None,
        });
        due.collect()
    }

    /// Applies an event that is not caused by a command of the module.
    pub fn happen(&mut self, event: Event) {
        self.happen_together(&[event]);
    }

    /// Applies events of one event-loop iteration, so no waiter is served between them.
    pub fn happen_together(&mut self, events: &[Event]) {
        self.expire();
        for event in events {
            self.apply(*event);
            self.expire();
        }
        self.end_with_keys();
        self.serve_all();
    }

    fn apply(&mut self, event: Event) {
        match event {
            Event::Deleted(key) => self.values.retain(|(name, _)| *name != key),
            Event::Overwritten(key) => self.put(key, Value::Foreign),
            Event::Renamed(from, to) => {
                let Some(value) = self.value(from).cloned() else { return };
                self.values.retain(|(name, _)| *name != from);
                self.put(to, value);
            }
            Event::Restored(from, to) => {
                let Some(value) = self.value(from).cloned() else { return };
                self.put(to, value);
            }
            Event::Flushed => self.values.clear(),
            Event::Expire(key, ms) => self.set_time_to_live(key, ms),
            Event::Unblocked(number) => self.requests.retain(|request| request.asked.number != number),
            Event::ClientGone(client) => self.client_gone(client),
            Event::Writes(writes) => self.refuses_writes = writes == Writes::Refused,
            Event::SlotMoved => {
                self.values.clear();
                for request in std::mem::take(&mut self.requests).iter().filter(|request| request.detached.is_none()) {
                    self.replies.push((request.asked.number, WaitReply::TryAgain));
                }
            }
            Event::GraceSet(ms) => {
                let grace = self.grace.map(|(since, _)| (since, since + ms));
                self.grace = grace.filter(|(_, until)| *until > self.now.monotonic);
            }
            Event::KeepPlaceSet(ms) => self.keep_place = ms,
            Event::MaxWaitersPerKeySet(most) => self.max_waiters_per_key = most,
        }
    }

    /// The client of this request disconnects in this iteration, so a grant in the same iteration is not delivered. The
    /// end of its connection must follow at the end of the iteration.
    pub fn disconnects_unnoticed(&mut self, number: u64) {
        self.disconnected_unnoticed.push(number);
    }

    /// A single holder expires with the key. For several holders, the last time to live set in a transaction counts.
    fn set_time_to_live(&mut self, key: Name, ms: Option<Ms>) {
        let until = ms.map_or(Until::Never, |ms| Until::At(self.now.wall + ms));
        let Some(Value::Lock(lock)) = self.value_mut(key) else { return };
        lock.until = until;
        if let [only] = &mut lock.holders[..] {
            only.until = until;
        }
    }

    /// Several holders expire no later than their key.
    fn end_with_keys(&mut self) {
        for lock in self.values.iter_mut().filter_map(|(_, value)| value.lock_mut()) {
            for holder in &mut lock.holders {
                holder.until = holder.until.min(lock.until);
            }
        }
    }

    fn client_gone(&mut self, client: u64) {
        let is_its = |request: &Request| request.detached.is_none() && request.asked.client == client;
        let oldest = |requests: &[Request]| {
            let its = (0..requests.len()).filter(|index| is_its(&requests[*index]));
            its.min_by_key(|index| requests[*index].asked.number)
        };
        while let Some(its) = oldest(&self.requests) {
            self.leave(its);
        }
        self.gone.push(client);
    }

    /// The client of a waiter leaves, and the position of the waiter is reserved.
    fn leave(&mut self, index: usize) {
        if self.keep_place == 0 {
            self.requests.remove(index);
            return;
        }
        self.detachments += 1;
        self.requests[index].detached = Some((self.detachments, self.now.monotonic + self.keep_place));
        let most_of_a_key = self.max_waiters_per_key.unwrap_or(usize::MAX);
        for key in self.requests[index].asked.keys.clone() {
            self.limit_reserved_positions(most_of_a_key, |request| request.asked.keys.contains(&key));
        }
        self.limit_reserved_positions(self.max_waiters, |_| true);
    }

    /// Reserved positions are limited like waiters; the oldest end first.
    fn limit_reserved_positions(&mut self, most: usize, counts: impl Fn(&Request) -> bool) {
        let kept = |request: &&Request| request.detached.is_some() && counts(request);
        while self.requests.iter().filter(kept).count() > most {
            let oldest = self.requests.iter().filter(kept).filter_map(|request| request.detached).min();
            self.end_reserved_positions(|request| request.detached.is_some() && request.detached == oldest);
        }
    }

    /// A request has timed out when its reserved position ends unused.
    fn end_reserved_positions(&mut self, is_over: impl Fn(&Request) -> bool) {
        self.silent_ends.timed_out += self.requests.iter().filter(|request| is_over(request)).count() as u64;
        self.requests.retain(|request| !is_over(request));
    }

    /// The state that a crash or a failover may bring back.
    pub fn save(&self) -> Saved {
        let mut values = self.values.clone();
        for (_, value) in &mut values {
            value.unbind();
        }
        Saved(values)
    }

    /// A server with these keys continues as the primary; the waiters of the old one are gone.
    pub fn restart(&mut self, saved: &Saved, grace: Ms) {
        let Model { now, max_waiters, max_waiters_per_key, keep_place, grants, .. } = *self;
        let grace = (grace > 0).then_some((now.monotonic, now.monotonic + grace));
        let settings = Model { max_waiters, max_waiters_per_key, keep_place, ..Model::default() };
        *self = Model { now, grants, grace, ..settings };
        saved.0.iter().for_each(|(key, value)| self.put(key, value.clone()));
        self.serve_all();
    }

    /// Serves all waiters that can be served, until nothing changes.
    pub(super) fn serve_all(&mut self) {
        self.expire();
        if self.refuses_writes {
            return;
        }
        let gone = std::mem::take(&mut self.gone);
        self.take_out(|holder| holder.session.is_some_and(|(client, _)| gone.contains(&client)));
        loop {
            self.end_upgrades();
            if let Some((index, refusal)) = self.first_impossible(None) {
                let request = self.requests.remove(index);
                self.replies.push((request.asked.number, WaitReply::Refused(refusal)));
            } else if let Some(index) = self.next_to_be_served() {
                let Request { mut asked, lease_deadline, .. } = self.requests.remove(index);
                if let Some(ends) = lease_deadline {
                    asked.lease = Some(ends.saturating_sub(self.now.wall));
                    if asked.lease == Some(0) {
                        self.replies.push((asked.number, WaitReply::TimedOut));
                        self.silent_ends.timed_out += 1;
                        continue;
                    }
                }
                let (grant, counts) = self.grant(&asked, self.limit(asked.keys[0]));
                self.replies.push((asked.number, WaitReply::Granted(grant, counts[0].2)));
                if self.disconnected_unnoticed.contains(&asked.number) {
                    self.record_undelivered(&asked, grant, counts);
                }
            } else if let Some(undelivered) = self.undelivered.pop() {
                self.revoke(&undelivered);
            } else if !self.reevaluate_one() {
                self.over_limit.clear();
                self.record_held();
                return;
            }
        }
    }

    fn record_held(&mut self) {
        let held: Vec<_> = self.requests.iter().map(|request| self.held_of(&request.asked)).collect();
        self.requests.iter_mut().zip(held).for_each(|(request, held)| request.held = held);
    }

    /// An upgrade is at the head of the queue while its owner is a reader, and waits by arrival afterwards. For a
    /// reserved position it matters whether its owner reads when the client comes back.
    pub(super) fn end_upgrades(&mut self) {
        let is_over = |model: &Model, request: &Request| {
            let Acquire { keys, owner, claim, .. } = &request.asked;
            request.detached.is_none() && request.is_upgrade && !model.is_upgrade(keys[0], owner, *claim)
        };
        while let Some(over) = self.requests.iter().position(|request| is_over(self, request)) {
            self.end_upgrade(over);
        }
    }

    /// The request moves to the position by its arrival in the queue of its key.
    pub(super) fn end_upgrade(&mut self, index: usize) {
        let request = Request { is_upgrade: false, ..self.requests.remove(index) };
        let is_behind = |other: &Request| {
            other.asked.keys.contains(&request.asked.keys[0]) && !other.is_upgrade && other.arrival > request.arrival
        };
        let position = self.requests.iter().position(is_behind).unwrap_or(self.requests.len());
        self.requests.insert(position, request);
    }

    /// A waiter that can never be granted in the current state, and its error. `new` is the number of a request that is
    /// refused instead of waiting for its own owner.
    pub(super) fn first_impossible(&self, new: Option<u64>) -> Option<(usize, Refusal)> {
        let present = self.requests.iter().enumerate().filter(|(_, request)| request.detached.is_none());
        let mut refused = present.filter_map(|(index, Request { asked, .. })| {
            let exceeds_limit = self.over_limit.contains(&asked.number);
            let mut says = asked.keys.iter().map(|key| self.say(key, asked.owner, asked.claim, self.limit(key)));
            let refusal = exceeds_limit.then_some(Refusal::Invalid).or_else(|| says.find_map(Result::err));
            let blocks = || (new != Some(asked.number) && self.is_never_admitted(index)).then_some(Refusal::Invalid);
            refusal.or_else(blocks).map(|refusal| (index, refusal))
        });
        refused.next()
    }

    /// Whether the head of a queue exceeds LIMIT together with what its owner holds.
    fn is_never_admitted(&self, index: usize) -> bool {
        let Acquire { keys, owner, claim, .. } = &self.requests[index].asked;
        let Claim::Permits(_, Holds::By(more)) = claim else { return false };
        let held = self.value(keys[0]).and_then(|value| value.holder(owner)).map_or(0, |holder| holder.holds);
        held + more > self.limit(keys[0]) && self.is_first(keys[0], index)
    }

    /// The next request to serve. A request that asks only for what its owner already holds comes first, wherever it is
    /// in the queue; then the first request that is admitted and first in its queues.
    pub(super) fn next_to_be_served(&self) -> Option<usize> {
        let all = || (0..self.requests.len()).map(|index| (index, self.may_be_served(index)));
        let has_all = all().find(|(_, why)| *why == Some(Why::HasAll));
        has_all.or_else(|| all().find(|(_, why)| why.is_some())).map(|(index, _)| index)
    }

    fn may_be_served(&self, index: usize) -> Option<Why> {
        let Request { asked, detached: None, .. } = &self.requests[index] else { return None };
        let mut why = Why::HasAll;
        for key in &asked.keys {
            match self.say(key, asked.owner, asked.claim, self.limit(key)) {
                Ok(Say::Has) => {}
                Ok(Say::Admits) if self.is_first(key, index) => why = Why::IsFirst,
                _ => return None,
            }
        }
        (why == Why::HasAll || self.grace_admits(&asked.keys, asked.owner)).then_some(why)
    }

    /// If an owner loses a key on which its queued MLOCK counted, that request is reevaluated: its position, and
    /// whether it would deadlock. Returns whether there was one.
    fn reevaluate_one(&mut self) -> bool {
        let has_lost = |request: &Request| request.held.iter().any(|key| !self.holds(key, request.asked.owner));
        let lost = self.requests.iter().position(|request| request.detached.is_none() && has_lost(request));
        let Some(mut request) = lost.map(|lost| self.requests.remove(lost)) else { return false };
        self.reevaluated += 1;
        request.held = self.held_of(&request.asked);
        let position = self.new_position(&request.asked.keys, request.asked.owner, false);
        let mut requests = self.requests.clone();
        requests.insert(position, request);
        if self.would_deadlock(&requests, position) {
            self.replies.push((requests[position].asked.number, WaitReply::Refused(Refusal::Deadlock)));
        } else {
            self.requests = requests;
        }
        true
    }
}

/// Why a waiter may be served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Why {
    HasAll,
    IsFirst,
}

/// Keys and holders.
impl Model {
    /// Removes the holders with expired leases.
    pub(super) fn expire(&mut self) {
        let now = self.now.wall;
        self.take_out(|holder| holder.until < Until::At(now));
    }

    pub(super) fn take_out(&mut self, ends: impl Fn(&Holder) -> bool) {
        let mut changed = Vec::new();
        for (key, value) in &mut self.values {
            let Value::Lock(lock) = value else { continue };
            if lock.holders.iter().any(&ends) {
                lock.holders.retain(|holder| !ends(holder));
                changed.push(*key);
            }
        }
        changed.iter().for_each(|key| self.holders_changed(key));
    }

    /// A change of holders sets the key's time to live to their latest deadline. Without a holder the key is removed.
    pub(super) fn holders_changed(&mut self, key: Name) {
        let Some(Value::Lock(lock)) = self.value_mut(key) else { return };
        lock.holders.retain(|holder| holder.stays_at_0 || holder.holds + holder.reads > 0);
        match lock.holders.iter().map(|holder| holder.until).max() {
            Some(last) => lock.until = last,
            None => self.values.retain(|(name, _)| *name != key),
        }
    }

    /// A write by another command: the old value is gone, and no hold of the new one is bound to a connection.
    fn put(&mut self, key: Name, mut value: Value) {
        self.values.retain(|(name, _)| *name != key);
        value.unbind();
        let limit = value.lock_mut().filter(|lock| lock.kind == Kind::Semaphore).map(|lock| lock.limit);
        self.values.push((key, value));
        if let Some(limit) = limit {
            self.set_limit(key, limit);
        }
    }

    pub(super) fn value_mut(&mut self, key: Name) -> Option<&mut Value> {
        self.values.iter_mut().find(|(name, _)| *name == key).map(|(_, value)| value)
    }

    pub(super) fn holder(&mut self, key: Name, owner: Name) -> Option<&mut Holder> {
        let lock = self.value_mut(key).and_then(Value::lock_mut)?;
        lock.holders.iter_mut().find(|holder| holder.owner == owner)
    }

    /// Whether this owner holds the key.
    pub fn holds(&self, key: Name, owner: Name) -> bool {
        let Some(Value::Lock(lock)) = self.value(key) else { return false };
        lock.holders.iter().any(|holder| holder.owner == owner)
    }

    /// The newest LIMIT of a semaphore, even if its key is free.
    pub fn limit(&self, key: Name) -> u32 {
        self.limits.iter().find(|(name, _)| *name == key).map_or(0, |(_, limit)| *limit)
    }

    /// Waiters that can never fit it, counting what their owner already holds, get an error.
    fn record_over_limit(&mut self, key: Name, limit: u32) {
        let never_fits = |request: &&Request| match request.asked.claim {
            Claim::Permits(_, Holds::By(more)) => {
                let held = self.value(key).and_then(|value| value.holder(request.asked.owner));
                held.map_or(0, |holder| holder.holds) + more > limit
            }
            Claim::Permits(_, Holds::Exactly(permits)) => permits > limit,
            _ => false,
        };
        let waiters = self.waiters(key).filter(never_fits);
        let over_limit: Vec<_> = waiters.map(|request| request.asked.number).collect();
        self.over_limit.extend(over_limit);
    }

    /// The newest LIMIT counts, for current holders and waiters as well.
    pub(super) fn set_limit(&mut self, key: Name, limit: u32) {
        if self.limit(key) != limit {
            self.record_over_limit(key, limit);
        }
        self.limits.retain(|(name, _)| *name != key);
        self.limits.push((key, limit));
        if let Some(lock) = self.value_mut(key).and_then(Value::lock_mut).filter(|lock| lock.kind == Kind::Semaphore) {
            lock.limit = limit;
        }
    }

    fn locks(&self) -> impl Iterator<Item = &Lock> + '_ {
        self.values.iter().filter_map(|(_, value)| match value {
            Value::Lock(lock) => Some(lock),
            Value::Foreign => None,
        })
    }
}

impl Value {
    /// The hold of this owner.
    pub fn holder(&self, owner: Name) -> Option<&Holder> {
        match self {
            Value::Lock(lock) => lock.holders.iter().find(|holder| holder.owner == owner),
            Value::Foreign => None,
        }
    }

    pub(super) fn lock_mut(&mut self) -> Option<&mut Lock> {
        match self {
            Value::Lock(lock) => Some(lock),
            Value::Foreign => None,
        }
    }

    fn unbind(&mut self) {
        self.lock_mut().into_iter().flat_map(|lock| &mut lock.holders).for_each(|holder| holder.session = None);
    }
}

impl Request {
    /// Whether it waits in the queue of this key. A reserved position does not.
    pub fn waits_for(&self, key: Name) -> bool {
        self.detached.is_none() && self.asked.keys.contains(&key)
    }

    /// Whether `other` repeats this request: same owner, keys, mode and permits.
    pub(super) fn is_retried_by(&self, other: &Acquire) -> bool {
        // An adopted request resumes only the position of a request that no longer waits.
        (self.detached.is_some() || !matches!(other.claim, Claim::Adopted { .. }))
            && self.asked.owner == other.owner
            && self.asked.keys.len() == other.keys.len()
            && self.asked.keys.iter().all(|key| other.keys.contains(key))
            && other.claim.is_retry_of(self.asked.claim)
    }
}

//! An attempt to serve one waiter: the request is granted, ended without a grant, or left waiting.

use super::deliveries::GrantInFlight;
use super::grant::{first_of, GrantedBy};
use super::lock_manager::LockManager;
use super::occurrence::Waited;
use crate::host::{Clients, Content, Delivery, Entry, Gate, Host, Keys, WaitOutcome};
use crate::key::{Key, KeyRef, RequestId};
use crate::one_or_many::OneOrMany;
use crate::queue::precedence::{is_first, is_head, Reach};
use crate::queue::request::{Others, QueueId};
use crate::value::claim::LockRequest;
use crate::value::outcome::{Admission, Grant};
use crate::value::owner::Owner;
use crate::value::time::{Instant, Now};

/// The outcome of an attempt to serve a waiter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Attempt {
    /// The request was granted.
    Granted,
    /// The request was answered without a grant.
    Dismissed,
    /// The request has to wait, and so has every request behind it.
    Stuck,
}

/// The position of a request relative to the requests ahead of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Precedence {
    /// It is first, or may pass every request ahead.
    First,
    /// It is granted only what its owner holds already.
    Behind,
}

/// Whether a request may pass requests for several keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Order {
    /// Not yet: requests that need not pass any are served first.
    Arrival,
    /// It may pass requests that wait for its owner.
    MayPass(Reach),
}

impl LockManager {
    /// Grants an open key to one of its waiters, if the lock admits it.
    #[allow(clippy::too_many_arguments)] // While a key is open, the host is borrowed in parts.
    pub(super) fn try_grant<E: Entry, C: Clients>(
        &mut self,
        entry: &mut E,
        clients: &mut C,
        now: &Now,
        key: KeyRef<'_>,
        queue: QueueId,
        id: RequestId,
        precedence: Precedence,
    ) -> Attempt {
        let (Some(queued), Some(wait_queue)) = (self.queues.request(id), self.queues.get(queue)) else {
            return Attempt::Dismissed;
        };
        if self.is_over(id, queued.until, now) {
            return Attempt::Stuck;
        }
        let (owner, lease, session) = (queued.owner.clone(), queued.lease, queued.session);
        let is_only_request = wait_queue.has_one_request();
        let waited = Waited { request: id, ms: now.instant().ms_since(queued.since) };
        let request = LockRequest { owner: owner.as_ref(), claim: queued.claim.under_limit(wait_queue.limit), lease };
        match self.admission(now, key, entry, &request) {
            Ok(Admission::AlreadyHeld) => {}
            Ok(Admission::Admit) if precedence == Precedence::First && !self.is_kept_by_grace(now, entry, &owner) => {}
            Ok(Admission::Admit | Admission::Wait) => return Attempt::Stuck,
            Err(error) => return self.dismiss_as(clients, id, WaitOutcome::Impossible(error)),
        }
        if !clients.may_be_granted(id, &[key.name], waited.ms) {
            return self.dismiss_as(clients, id, WaitOutcome::NotPermitted);
        }
        match self.grant_one(now, key, entry, &request, GrantedBy { session, waited: Some(waited) }) {
            Err(error) => self.dismiss_as(clients, id, WaitOutcome::Impossible(error)),
            Ok(grant) => {
                // The queue goes with its last waiter: no request is left to wait for the new holder.
                if !is_only_request {
                    self.note_new_holder(key, entry);
                }
                let claim = request.claim;
                if self.remove(id) == Others::Some {
                    self.gained(key, owner.as_bytes());
                }
                self.deliver(clients, waited, grant, || GrantInFlight {
                    request: id,
                    owner,
                    claim,
                    grants: OneOrMany::One((key.to_key(), grant)),
                });
                Attempt::Granted
            }
        }
    }

    /// True if the client of the request waits no more, though the request is still queued: its wait has timed out, or
    /// it is among the endings. The queue is due again when the request leaves.
    fn is_over(&self, id: RequestId, until: Option<Instant>, now: &Now) -> bool {
        self.is_ending(id) || until.is_some_and(|until| until <= now.instant())
    }

    /// Grants all keys of a request for several keys, if all locks admit it.
    pub(super) fn try_grant_several<K: Keys, C: Clients>(
        &mut self,
        host: &mut Host<'_, K, C>,
        queue: QueueId,
        id: RequestId,
        order: Order,
    ) -> Attempt {
        let Some(queued) = self.queues.request(id) else { return Attempt::Dismissed };
        let is_blocked_elsewhere = queued.blocked_on.is_some_and(|other| other != queue);
        if is_blocked_elsewhere || self.is_over(id, queued.until, host.now) {
            return Attempt::Stuck;
        }
        let queued = queued.clone();
        let (request, db) = (queued.request(), queued.db);
        let keys: Vec<Key> = self.queues.keys_of(&queued).cloned().collect();
        // Begin with the key that blocked the request: when many keys are released one after another, two are opened
        // each time.
        let blocked = queued.queues.iter().position(|other| *other == queue).unwrap_or_default();
        let mut admitting = Vec::new();
        for index in (blocked..keys.len()).chain(0..blocked) {
            let (key, other) = (keys[index].as_ref(), queued.queues[index]);
            match self.admission(host.now, key, &mut host.keys.open(key), &request) {
                Ok(Admission::AlreadyHeld) => {}
                Ok(Admission::Admit) => admitting.push(other),
                Ok(Admission::Wait) => return self.keep_waiting_behind(id, other),
                Err(error) => return self.dismiss_as(&mut host.clients, id, WaitOutcome::Impossible(error)),
            }
        }
        // The keys share a slot, but a migration moves each on its own.
        match keys.iter().map(|key| host.keys.gate(key.as_ref())).find(|gate| *gate != Gate::Open) {
            None | Some(Gate::Open) => {}
            Some(Gate::Closed) => {
                self.due.insert(queue);
                return Attempt::Stuck;
            }
            Some(Gate::Elsewhere) => return self.dismiss_as(&mut host.clients, id, WaitOutcome::TryAgain),
        }
        let is_behind = |other: &QueueId| match order {
            Order::Arrival => !is_head(&self.queues, *other, queued.place),
            Order::MayPass(reach) => {
                let (holders, owner) = (&mut self.holders(&mut host.keys, host.now), queued.owner.as_bytes());
                !is_first(&self.queues, holders, reach, owner, *other, queued.place)
            }
        };
        if let Some(other) = admitting.into_iter().find(is_behind) {
            return self.keep_waiting_behind(id, other);
        }
        let names: Vec<&[u8]> = keys.iter().map(|key| &*key.name).collect();
        if self.grace.is_running(host.now) && !self.holds_all(host, db, &names, queued.owner.as_bytes()) {
            return Attempt::Stuck;
        }
        let waited = Waited { request: id, ms: host.now.instant().ms_since(queued.since) };
        if !host.clients.may_be_granted(id, &names, waited.ms) {
            return self.dismiss_as(&mut host.clients, id, WaitOutcome::NotPermitted);
        }
        match self.grant(host, db, &names, &request, GrantedBy { session: queued.session, waited: Some(waited) }) {
            Err(error) => self.dismiss_as(&mut host.clients, id, WaitOutcome::Impossible(error)),
            Ok(grants) => {
                self.remove(id);
                let other_queues =
                    queued.queues.iter().filter(|other| **other != queue && self.queues.get(**other).is_some());
                self.due.extend(other_queues.copied());
                keys.iter().for_each(|key| self.gained(key.as_ref(), queued.owner.as_bytes()));
                let first = first_of(&grants);
                let (owner, claim) = (queued.owner, queued.claim);
                self.deliver(&mut host.clients, waited, first, || {
                    let grants = keys.into_iter().zip(grants).collect();
                    GrantInFlight { request: id, owner, claim, grants }
                });
                Attempt::Granted
            }
        }
    }

    fn keep_waiting_behind(&mut self, id: RequestId, queue: QueueId) -> Attempt {
        self.queues.set_blocked_on(id, Some(queue));
        Attempt::Stuck
    }

    /// Replies to a waiter that it was granted the lock.
    fn deliver<C: Clients>(
        &mut self,
        clients: &mut C,
        waited: Waited,
        grant: Grant,
        delivery: impl FnOnce() -> GrantInFlight,
    ) {
        let Grant { fence, holds, slot, .. } = grant;
        let outcome = WaitOutcome::Granted { fence, holds, slot };
        self.samples.waited(waited.ms);
        match self.answer_waiter(clients, waited.request, outcome) {
            Delivery::Done if self.deliveries.is_empty() => {}
            Delivery::Done => {
                let delivery = delivery();
                let names: Vec<&[u8]> = delivery.grants.iter().map(|(key, _)| &*key.name).collect();
                let db = delivery.grants.first().map_or(0, |(key, _)| key.db);
                self.deliveries.confirm(db, &names, delivery.owner.as_bytes());
            }
            Delivery::Pending => self.deliveries.sent(delivery()),
            Delivery::Failed => self.deliveries.not_sent(delivery()),
        }
    }

    /// Ends a request that is not to be granted: the value of the key, its slot or its client's permissions have
    /// changed.
    fn dismiss_as<C: Clients>(&mut self, clients: &mut C, id: RequestId, outcome: WaitOutcome) -> Attempt {
        self.dismiss(clients, id, outcome);
        Attempt::Dismissed
    }

    fn is_kept_by_grace<E: Entry>(&mut self, now: &Now, entry: &mut E, owner: &Owner) -> bool {
        let is_held = matches!(entry.content(), Content::Lock(lock) if lock.is_held_by(owner.as_bytes()));
        !is_held && self.grace.is_running(now)
    }
}

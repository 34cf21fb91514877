//! An attempt to serve one waiter: granted, told that its turn will never come, or left waiting.

use super::acquire::holds_all;
use super::deliveries::GrantInFlight;
use super::grant::{first_of, GrantedBy};
use super::lock_manager::LockManager;
use super::occurrence::Waited;
use crate::host::{Clients, Content, Delivery, Entry, Gate, Host, Keys, WaitOutcome};
use crate::key::{Key, KeyRef, RequestId};
use crate::one_or_many::OneOrMany;
use crate::queue::precedence::{is_first, Passing};
use crate::queue::request::{Others, QueueId};
use crate::value::claim::LockRequest;
use crate::value::outcome::{Admission, Grant, KeyError};
use crate::value::owner::Owner;
use crate::value::time::Now;

/// What became of an attempt to serve a waiter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Attempt {
    /// It holds what it asked for; whether its owner waits for more.
    Granted(Others),
    /// It was told that its turn will never come.
    Dismissed,
    /// It has to wait; so have those behind it.
    Stuck,
}

/// Whether those ahead of a request let it be served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Turn {
    /// They do.
    Come,
    /// They do not.
    NotCome,
}

impl LockManager {
    /// Grants an open key to one of its waiters, if it admits it.
    #[allow(clippy::too_many_arguments)] // The parts of the host are apart while a key is open.
    pub(super) fn attempt<E: Entry, C: Clients>(
        &mut self,
        entry: &mut E,
        clients: &mut C,
        now: &Now,
        key: KeyRef<'_>,
        queue: QueueId,
        id: RequestId,
        turn: Turn,
    ) -> Attempt {
        let (Some(queued), Some(wait_queue)) = (self.queues.request(id), self.queues.get(queue)) else {
            return Attempt::Dismissed;
        };
        let (owner, lease, session) = (queued.owner.clone(), queued.lease, queued.session);
        let is_last = wait_queue.is_last();
        let waited = Waited { request: id, ms: now.instant().ms_since(queued.since) };
        let request = LockRequest { owner: owner.as_ref(), claim: wait_queue.under_limit(queued.claim), lease };
        match self.admission(now, key, entry, &request) {
            Ok(Admission::AlreadyHeld) => {}
            Ok(Admission::Admit) if turn == Turn::Come && !self.is_kept_by_grace(now, entry, &owner) => {}
            Ok(Admission::Admit | Admission::Wait) => return Attempt::Stuck,
            Err(error) => return self.dismiss_for(clients, id, error),
        }
        if !clients.may_be_granted(id, &[key.name], waited.ms) {
            return self.dismiss_unpermitted(clients, id);
        }
        match self.grant_one(now, key, entry, &request, GrantedBy { session, waited: Some(waited) }) {
            Err(error) => self.dismiss_for(clients, id, error),
            Ok(grant) => {
                // Behind the last nobody waits for the new holder: its queue goes with it.
                if !is_last {
                    self.note_new_holder(key, entry);
                }
                let claim = request.claim;
                let others = self.remove(id);
                if others == Others::Some {
                    self.gained(key, owner.as_bytes());
                }
                self.deliver(clients, waited, grant, || GrantInFlight {
                    request: id,
                    owner,
                    claim,
                    grants: OneOrMany::One((key.to_key(), grant)),
                });
                Attempt::Granted(others)
            }
        }
    }

    /// Grants all keys of a request for several, if all admit it.
    pub(super) fn attempt_several<K: Keys, C: Clients>(
        &mut self,
        host: &mut Host<'_, K, C>,
        queue: QueueId,
        id: RequestId,
    ) -> Attempt {
        let Some(queued) = self.queues.request(id).cloned() else { return Attempt::Dismissed };
        let (request, db) = (queued.request(), queued.db);
        let keys: Vec<Key> = self.queues.keys_of(&queued).cloned().collect();
        // The keys share a slot, but each migrates by itself.
        match keys.iter().map(|key| host.keys.gate(key.as_ref())).find(|gate| *gate != Gate::Open) {
            None | Some(Gate::Open) => {}
            Some(Gate::Closed) => {
                self.due.insert(queue);
                return Attempt::Stuck;
            }
            Some(Gate::Elsewhere) => {
                self.dismiss(&mut host.clients, id, WaitOutcome::TryAgain);
                return Attempt::Dismissed;
            }
        }
        let mut admitting = Vec::new();
        for (key, other) in keys.iter().zip(&queued.queues) {
            let admission = self.admission(host.now, key.as_ref(), &mut host.keys.open(key.as_ref()), &request);
            match admission {
                Ok(Admission::AlreadyHeld) => {}
                Ok(Admission::Admit) => admitting.push(*other),
                Ok(Admission::Wait) => return Attempt::Stuck,
                Err(error) => return self.dismiss_for(&mut host.clients, id, error),
            }
        }
        let mut passing = Passing::new(&self.queues, db, queued.owner.as_bytes());
        let is_first = |other| is_first(&self.queues, &mut host.keys, &mut passing, other, queued.place);
        if !admitting.into_iter().all(is_first) {
            return Attempt::Stuck;
        }
        let names: Vec<&[u8]> = keys.iter().map(|key| &*key.name).collect();
        if self.grace.is_running(host.now) && !holds_all(&mut host.keys, db, &names, queued.owner.as_bytes()) {
            return Attempt::Stuck;
        }
        let waited = Waited { request: id, ms: host.now.instant().ms_since(queued.since) };
        if !host.clients.may_be_granted(id, &names, waited.ms) {
            return self.dismiss_unpermitted(&mut host.clients, id);
        }
        match self.grant(host, db, &names, &request, GrantedBy { session: queued.session, waited: Some(waited) }) {
            Err(error) => self.dismiss_for(&mut host.clients, id, error),
            Ok(grants) => {
                let others = self.remove(id);
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
                Attempt::Granted(others)
            }
        }
    }

    /// Tells a waiter that it was granted the lock.
    fn deliver<C: Clients>(
        &mut self,
        clients: &mut C,
        waited: Waited,
        grant: Grant,
        delivery: impl FnOnce() -> GrantInFlight,
    ) {
        let outcome = WaitOutcome::Granted { fence: grant.fence, holds: grant.holds };
        self.samples.waited(waited.ms);
        match self.tell(clients, waited.request, outcome) {
            Delivery::Done => {}
            Delivery::Pending => self.deliveries.sent(delivery()),
            Delivery::Failed => self.deliveries.put_back(delivery()),
        }
    }

    /// The key has become something that this request cannot have.
    pub(super) fn dismiss_for<C: Clients>(&mut self, clients: &mut C, id: RequestId, error: KeyError) -> Attempt {
        self.dismiss(clients, id, WaitOutcome::Impossible(error));
        Attempt::Dismissed
    }

    /// Its turn has come, but its client may not be granted what it asked for any more.
    fn dismiss_unpermitted<C: Clients>(&mut self, clients: &mut C, id: RequestId) -> Attempt {
        self.dismiss(clients, id, WaitOutcome::NotPermitted);
        Attempt::Dismissed
    }

    fn is_kept_by_grace<E: Entry>(&mut self, now: &Now, entry: &mut E, owner: &Owner) -> bool {
        let is_held = matches!(entry.content(), Content::Lock(lock) if lock.is_held_by(owner.as_bytes()));
        !is_held && self.grace.is_running(now)
    }
}

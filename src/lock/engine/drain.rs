//! Drains the backlog: each round processes one item of each kind, and the time slice may end after each round.

use super::backlog::{Kind, WorkItem, Writes};
use super::deliveries::GrantInFlight;
use super::leave::{dismiss, end_request};
use super::lock_manager::LockManager;
use super::pending_removals::Phase;
use super::release::End;
use super::session_bindings::Binding;
use super::step::Engine;
use crate::host::{Clients, Keys, WaitOutcome, WriteCheck};
use crate::key::RequestId;
use crate::queue::deadlock;
use crate::queue::placement::{new_position, SearchBudget};
use crate::queue::position::{QueuePosition, Rank};
use crate::queue::request::{NewRequest, QueueId};

impl<K: Keys, C: Clients> Engine<'_, '_, K, C> {
    /// Processes the work that is due until the time slice is spent. The rest, and all work that refused writes block,
    /// stays due.
    pub fn drain(&mut self) {
        self.manager.waits.backlog.begin_drain();
        let mut drain = Drain { engine: self, writes: Writes::Accepted };
        while drain.step() && !drain.engine.host.now.charge_budget() {}
    }
}

/// A drain, with whether the server has accepted writes so far.
struct Drain<'d, 't, 'h, K, C> {
    engine: &'d mut Engine<'t, 'h, K, C>,
    writes: Writes,
}

impl<K: Keys, C: Clients> Drain<'_, '_, '_, K, C> {
    /// Processes one item of each kind. False if nothing is left for this drain.
    fn step(&mut self) -> bool {
        let (mut is_any, writes) = (false, self.writes);
        for kind in Kind::ALL {
            let LockManager { waits, bindings, deliveries, .. } = &mut *self.engine.manager;
            let work = waits.backlog.take(kind, writes, &mut waits.queues, bindings, deliveries);
            is_any |= work.is_some();
            if let Some(work) = work {
                self.process(work);
            }
        }
        let displaced = if is_any { None } else { self.engine.manager.waits.backlog.take_displaced(writes) };
        is_any |= displaced.is_some();
        if let Some(work) = displaced {
            self.process(work);
            // Queues that the request no longer blocks are served at once.
            self.engine.manager.waits.backlog.begin_drain();
        }
        is_any
    }

    /// Processes an item, or puts it back if writes are refused. Then this drain does nothing else that writes, because
    /// the server refuses writes for every key.
    fn process(&mut self, work: WorkItem) {
        let clients = &mut self.engine.host.clients;
        let write_check = match work {
            WorkItem::End(id, removal) => {
                return end_request(self.engine.manager, clients, self.engine.host.now, id, Phase::Removing(removal));
            }
            WorkItem::Reply(id) => {
                let phase = self.engine.manager.waits.phase(id, self.engine.host.now);
                return end_request(self.engine.manager, clients, self.engine.host.now, id, phase);
            }
            WorkItem::Revoke(grant) => self.revoke(&grant),
            WorkItem::EndHold(binding) => self.end_bound_hold(&binding),
            WorkItem::Serve(queue) => self.engine.serve(queue),
            WorkItem::Visit(None) => return,
            WorkItem::Visit(Some(queue)) => self.visit(queue),
            WorkItem::Reevaluate(position, id, queue) => self.reevaluate(position, id, queue),
        };
        if write_check == WriteCheck::Refused {
            self.writes = Writes::Refused;
        }
    }

    /// Runs the write check for a queue. If its slot has moved, its requests end.
    fn write_check_of(&mut self, queue: QueueId) -> WriteCheck {
        let Some(waiting) = self.engine.manager.waits.queues.get(queue) else { return WriteCheck::Allowed };
        let write_check = self.engine.host.keys.write_check(waiting.key.as_ref());
        if write_check == WriteCheck::SlotMoved {
            self.engine.manager.waits.postpone(queue, write_check);
        }
        write_check
    }

    /// Serves a queue that a rescan has reached.
    fn visit(&mut self, queue: QueueId) -> WriteCheck {
        self.engine.manager.waits.begin_visit(queue);
        self.engine.serve(queue)
    }

    /// Revokes an undelivered grant and serves the next waiter.
    fn revoke(&mut self, delivery: &GrantInFlight) -> WriteCheck {
        let write_checks: Vec<_> =
            delivery.grants.iter().map(|(key, _)| self.engine.host.keys.write_check(key.as_ref())).collect();
        if write_checks.contains(&WriteCheck::Refused) {
            self.engine.manager.undelivered(delivery.request);
            return WriteCheck::Refused;
        }
        self.engine.manager.observer.statistics.undelivered_grants += 1;
        let (owner, claim) = (delivery.owner.as_bytes(), &delivery.claim);
        for ((key, grant), write_check) in delivery.grants.iter().zip(write_checks) {
            // In a slot that has moved to another node, the hold ends when its lease expires.
            if write_check == WriteCheck::SlotMoved {
                continue;
            }
            // If the key no longer holds this lock, the hold has already ended.
            _ = self.engine.end_hold(key.as_ref(), End::Undelivered { owner, claim, grant });
        }
        self.engine.manager.deliveries.forget(delivery.request);
        WriteCheck::Allowed
    }

    /// Ends a hold of a connection that has ended, unless writes are refused.
    fn end_bound_hold(&mut self, binding: &Binding) -> WriteCheck {
        debug_assert!(self.engine.manager.bindings.is_ended(binding.client), "the session has ended");
        let (key, owner) = (binding.key.as_ref(), binding.owner.as_bytes());
        let write_check = self.engine.host.keys.write_check(key);
        if write_check != WriteCheck::Refused {
            self.engine.manager.bindings.unbind(key, owner);
        }
        if write_check == WriteCheck::Allowed {
            let by = self.engine.manager.deliveries.end_with_connection(key, owner);
            // If the key no longer holds a lock, the hold has already ended.
            _ = self.engine.end_hold(key, End::Disconnected { owner, by });
        }
        write_check
    }

    /// Reevaluates a multi-key request after its owner has lost one of the keys: finds its position, and checks whether
    /// it would deadlock.
    fn reevaluate(&mut self, position: QueuePosition, id: RequestId, queue: QueueId) -> WriteCheck {
        let waits = &self.engine.manager.waits;
        let queued = waits.queues.request(id).filter(|queued| queued.is_present() && queued.position == position);
        let lost = waits.queues.get(queue).map(|queue| queue.key.clone());
        let (Some(queued), Some(lost)) = (queued.cloned(), lost) else { return WriteCheck::Allowed };
        debug_assert!(queued.has_multiple_keys(), "only a multi-key request counts on a hold of its owner");
        let write_check = self.write_check_of(queue);
        match write_check {
            WriteCheck::Allowed => {}
            WriteCheck::Refused => self.engine.manager.waits.backlog.displace(position, id, queue),
            WriteCheck::SlotMoved => {}
        }
        let mut holders = self.engine.manager.holders(&mut self.engine.host.keys, self.engine.host.now);
        if write_check != WriteCheck::Allowed || holders.is_held_by(lost.as_ref(), queued.owner.as_bytes()) {
            return write_check;
        }
        let queues = self.engine.manager.queues();
        let keys: Vec<_> = queues.keys_of(&queued).cloned().collect();
        let names: Vec<&[u8]> = keys.iter().map(|key| &*key.name).collect();
        let position = queues.last_position(Rank::Normal);
        let (request, owner_id) = (queued.request(), Some(queued.owner_id));
        let new = NewRequest { db: queued.db, names: &names, request, owner_id, position, replaces: Some(id) };
        let position = new_position(queues, &mut holders, &new, &mut SearchBudget::default());
        let new = NewRequest { position, ..new };
        let search = deadlock::search_for(queues, &new);
        match search.and_then(|search| search.find(queues, &mut holders, &new)) {
            None => {
                let waits = &mut self.engine.manager.waits;
                waits.queues.move_to(id, new.position);
                waits.queues.set_blocked_on(id, None);
                waits.backlog.queues.extend(queued.queues);
            }
            Some(cycle) => {
                let LockManager { waits, observer, .. } = &mut *self.engine.manager;
                observer.deadlock_refused(&waits.queues, lost.as_ref(), &queued.owner, cycle);
                dismiss(self.engine.manager, &mut self.engine.host.clients, id, WaitOutcome::Deadlock);
            }
        }
        write_check
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::acquire::Acquired;
    use crate::engine::fixture::{key, Fixture};
    use crate::host::simulated::TimeSlices;
    use crate::key::{Key, RequestId};
    use crate::value::claim::{Claim, ReleaseAmount};
    use crate::value::time::Lease;

    const MUTEX: Claim = Claim::Mutex;

    #[test]
    fn a_grant_to_an_unknown_client_is_revoked() {
        for names in [&[b"k".as_slice()][..], &[b"k", b"l"]] {
            let mut fixture = Fixture::of(&[("a", MUTEX)]);
            fixture.acquire_all("b", names, MUTEX, None, Lease::Persist);
            fixture.server.inbox.is_deserted = true;
            fixture.release("a", ReleaseAmount::Mutex).unwrap();
            assert!(fixture.manager.has_due() && fixture.manager.has_waiters_or_sessions(), "{names:?}");
            fixture.drain();
            assert!(fixture.server.keyspace.primary.is_empty(), "{names:?}");
            assert!(!fixture.manager.has_due() && !fixture.manager.has_waiters_or_sessions(), "{names:?}");
        }
    }

    /// a holds l and waits for k and l. After it has lost l, it is ahead of e there until it is reevaluated.
    #[test]
    fn a_request_is_reevaluated_only_when_nothing_else_is_left_to_do() {
        type Cause = fn(&mut Fixture, RequestId);
        let rows: [(&str, Cause); 3] = [
            ("nothing", |_, _| {}),
            ("a request that ends", |fixture, last| fixture.manager.leave_all([last])),
            ("a rescan", |fixture, _| fixture.manager.waits.backlog.rescans.begin(Some(1))),
        ];
        for (row, work) in rows {
            let mut fixture = Fixture::of(&[("d", MUTEX)]);
            fixture.acquire_all("a", &[b"l"], MUTEX, None, Lease::Persist);
            fixture.acquire_all("a", &[b"k", b"l"], MUTEX, None, Lease::Persist);
            fixture.acquire_all("e", &[b"l"], MUTEX, None, Lease::Persist);
            let last = fixture.acquire("f", MUTEX, None, Lease::Persist);
            let Acquired::Queued(last) = last else { panic!("{last:?}") };
            let l = Key::new(0, b"l");
            let is_held = |fixture: &Fixture| fixture.stored_under(&l).is_some();
            fixture.server.keyspace.delete(&l);
            fixture.server.keyspace.events.clear();
            fixture.manager.key_changed(l.as_ref());
            fixture.server.time_slices = TimeSlices::Of(1);
            work(&mut fixture, last);
            assert!(!is_held(&fixture) && fixture.manager.has_due(), "{row}");
            let mut is_work_left = false;
            for _ in 0..20 {
                if is_held(&fixture) {
                    break;
                }
                let manager = &fixture.manager;
                let has_lost = manager.waits.backlog.has_displaced();
                is_work_left = has_lost
                    && (!manager.waits.backlog.pending_removals.is_empty()
                        || !manager.waits.backlog.rescans.is_empty());
                fixture.drain();
            }
            assert_eq!((is_held(&fixture), is_work_left), (true, false), "{row}");
        }
    }

    #[test]
    fn an_undelivered_grant_is_revoked_when_writes_are_accepted() {
        let mut fixture = Fixture::of(&[("a", MUTEX), ("b", MUTEX)]);
        fixture.release("a", ReleaseAmount::Mutex).unwrap();
        let (granted, _) = fixture.server.inbox.replies[0];
        fixture.server.keyspace.write_check = WriteCheck::Refused;
        fixture.manager.undelivered(granted);
        fixture.drain();
        assert_eq!((fixture.holders(), fixture.manager.has_due()), ("b".into(), true));
        fixture.server.keyspace.write_check = WriteCheck::Allowed;
        fixture.drain();
        assert_eq!((fixture.holders(), fixture.manager.has_due()), ("".into(), false));
        assert!(!fixture.server.keyspace.primary.contains_key(&key()));
    }

    #[test]
    fn an_undelivered_grant_is_not_retried_after_its_slot_has_moved() {
        let mut fixture = Fixture::of(&[("a", MUTEX), ("b", MUTEX)]);
        fixture.release("a", ReleaseAmount::Mutex).unwrap();
        let (granted, _) = fixture.server.inbox.replies[0];
        fixture.server.keyspace.write_check = WriteCheck::SlotMoved;
        fixture.manager.undelivered(granted);
        fixture.drain();
        assert_eq!((fixture.holders(), fixture.manager.has_due()), ("b".into(), false));
    }
}

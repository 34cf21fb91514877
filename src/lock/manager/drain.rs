//! The drain of all work that is left for a later turn, because no write is allowed where it was noticed or because the
//! turn was over. It is taken out one item at a time, because a turn may end after each. An item that is put back,
//! because the server refuses writes, comes after all others: nothing starves.

use super::lock_manager::LockManager;
use super::release::End;
use crate::host::{Clients, Gate, Host, Keys};

impl LockManager {
    /// True if [`LockManager::drain`] has something to do.
    pub fn has_due(&self) -> bool {
        !self.due.is_empty()
            || !self.sweeps.is_empty()
            || !self.to_try.is_empty()
            || !self.ended.is_empty()
            || !self.endings.is_empty()
            || self.queues.has_done()
            || self.deliveries.has_lost()
    }

    /// Does the work that is due, as far as the turn goes: one item of each kind in rotation, so that no kind waits
    /// behind thousands of another. The rest, and all work that a closed gate blocks, stays due.
    pub fn drain<K: Keys, C: Clients>(&mut self, host: &mut Host<'_, K, C>) {
        // As many queues as are due now are served. A queue that becomes due meanwhile may be one of them.
        let mut queues = self.due.len();
        let mut is_closed = false;
        loop {
            let mut gates = Vec::new();
            let has_ended = self.end_next_request(&mut host.clients, host.now) | self.end_next_done(&mut host.clients);
            if !is_closed {
                gates.extend(self.take_back(host));
                gates.extend(self.end_next_hold(host));
                if let Some(left) = queues.checked_sub(1) {
                    queues = left;
                    gates.extend(self.due.take_next().map(|queue| self.serve(host, queue)));
                }
                gates.extend(self.try_one_again(host));
                gates.extend(self.sweep_next(host));
                if gates.is_empty() && !has_ended && self.due.is_empty() {
                    gates.extend(self.decide_one_anew(host));
                }
            }
            // A closed gate is closed for every key.
            is_closed |= gates.contains(&Gate::Closed);
            if !has_ended && (is_closed || gates.is_empty()) || host.now.spends_turn() {
                return;
            }
        }
    }

    /// Serves the next queue of a walk. `None`: no walk is running.
    fn sweep_next<K: Keys, C: Clients>(&mut self, host: &mut Host<'_, K, C>) -> Option<Gate> {
        if self.sweeps.is_empty() {
            return None;
        }
        let Some(queue) = self.sweeps.step(&self.queues) else {
            if self.sweeps.is_empty() {
                self.queues.end_walk();
            }
            return Some(Gate::Open);
        };
        // Until its key is open: it may have to wait for that, because the gate is closed.
        self.queues.holders_may_differ(queue);
        // Of a lock with several holders a copy by RESTORE has the same fence, but may have other holders and another
        // LIMIT. A mutex with the same fence has the same holder: it is not tried again.
        if self.queues.get(queue).is_some_and(|queue| !queue.family.is_exclusive()) {
            self.queues.set_seen(queue, None);
        }
        Some(self.serve(host, queue))
    }

    /// Takes back the next grant that was not received, and serves the next waiter. `None`: there is none. While the
    /// gate is closed, the grant stays.
    fn take_back<K: Keys, C: Clients>(&mut self, host: &mut Host<'_, K, C>) -> Option<Gate> {
        let delivery = self.deliveries.begin_to_take_back()?;
        let gates: Vec<_> = delivery.grants.iter().map(|(key, _)| host.keys.gate(key.as_ref())).collect();
        if gates.contains(&Gate::Closed) {
            self.deliveries.undelivered(delivery.request);
            return Some(Gate::Closed);
        }
        self.statistics.undelivered_grants += 1;
        let (owner, claim) = (delivery.owner.as_bytes(), &delivery.claim);
        for ((key, grant), gate) in delivery.grants.iter().zip(gates) {
            // In a slot that has moved to another node the hold ends with its lease.
            if gate == Gate::Elsewhere {
                continue;
            }
            // A key that no longer holds such a lock has ended the hold itself.
            _ = self.end_hold(host, key.as_ref(), End::Undelivered { owner, claim, grant });
        }
        self.deliveries.forget(delivery.request);
        Some(Gate::Open)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::simulated::Turns;
    use crate::key::{Key, RequestId};
    use crate::manager::acquire::Acquired;
    use crate::manager::fixture::{key, Fixture};
    use crate::value::claim::{Claim, Portion};
    use crate::value::time::Lease;

    const MUTEX: Claim = Claim::Mutex;

    #[test]
    fn a_grant_to_an_unknown_client_is_taken_back() {
        for names in [&[b"k".as_slice()][..], &[b"k", b"l"]] {
            let mut fixture = Fixture::of(&[("a", MUTEX)]);
            fixture.acquire_all("b", names, MUTEX, None, Lease::Persist);
            fixture.server.inbox.is_deserted = true;
            fixture.release("a", Portion::Mutex).unwrap();
            assert!(fixture.manager.has_due() && fixture.manager.has_waiters_or_sessions(), "{names:?}");
            fixture.drain();
            assert!(fixture.server.keyspace.primary.is_empty(), "{names:?}");
            assert!(!fixture.manager.has_due() && !fixture.manager.has_waiters_or_sessions(), "{names:?}");
        }
    }

    /// a holds l and waits for k and l. When it has lost l, it stands ahead of e there, until it is decided anew.
    #[test]
    fn a_request_is_decided_anew_only_when_nothing_else_is_left_to_do() {
        type Work = fn(&mut Fixture, RequestId);
        let rows: [(&str, Work); 3] = [
            ("nothing", |_, _| {}),
            ("a request that ends", |fixture, last| fixture.manager.leave_all([last])),
            ("a walk", |fixture, _| fixture.manager.sweeps.begin(Some(1))),
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
            fixture.manager.key_touched(l.as_ref());
            fixture.server.turns = Turns::Of(1);
            work(&mut fixture, last);
            assert!(!is_held(&fixture) && fixture.manager.has_due(), "{row}");
            let mut is_work_left = false;
            for _ in 0..20 {
                if is_held(&fixture) {
                    break;
                }
                let manager = &fixture.manager;
                let has_lost = !manager.to_try.lost.is_empty();
                is_work_left = has_lost && (!manager.endings.is_empty() || !manager.sweeps.is_empty());
                fixture.drain();
            }
            assert_eq!((is_held(&fixture), is_work_left), (true, false), "{row}");
        }
    }

    #[test]
    fn a_lost_grant_is_taken_back_when_the_gate_opens() {
        let mut fixture = Fixture::of(&[("a", MUTEX), ("b", MUTEX)]);
        fixture.release("a", Portion::Mutex).unwrap();
        let (granted, _) = fixture.server.inbox.answers[0];
        fixture.server.keyspace.gate = Gate::Closed;
        fixture.manager.undelivered(granted);
        fixture.drain();
        assert_eq!((fixture.holders(), fixture.manager.has_due()), ("b".into(), true));
        fixture.server.keyspace.gate = Gate::Open;
        fixture.drain();
        assert_eq!((fixture.holders(), fixture.manager.has_due()), ("".into(), false));
        assert!(!fixture.server.keyspace.primary.contains_key(&key()));
    }

    #[test]
    fn a_lost_grant_is_not_tried_for_ever_after_its_slot_has_left() {
        let mut fixture = Fixture::of(&[("a", MUTEX), ("b", MUTEX)]);
        fixture.release("a", Portion::Mutex).unwrap();
        let (granted, _) = fixture.server.inbox.answers[0];
        fixture.server.keyspace.gate = Gate::Elsewhere;
        fixture.manager.undelivered(granted);
        fixture.drain();
        assert_eq!((fixture.holders(), fixture.manager.has_due()), ("b".into(), false));
    }
}

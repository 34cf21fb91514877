//! Removal of waiters: their wait times out, their connection ends, they are cancelled, or they can never be granted.
//!
//! Requests that end together are removed one by one, for example when a connection with thousands of them has ended, a
//! key has changed its type, or slots have moved. Each gets its reply or a reserved position in one of the next
//! event-loop iterations. Until then it is granted nothing.

use std::collections::BTreeSet;

use super::lock_manager::LockManager;
pub use super::pending_removals::Leave;
use super::pending_removals::{PendingRemoval, Phase};
use super::step::Engine;
use crate::host::{Clients, Content, Delivery, Entry, Keys, WaitOutcome};
use crate::key::{ClientId, KeyRef, RequestId};
use crate::queue::request::QueuedRequest;
use crate::value::claim::Claim;
use crate::value::outcome::KeyError;
use crate::value::time::Now;

/// What LOCK.CANCEL did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cancelled {
    /// Requests of the owner were removed from the queue.
    Some,
    /// The owner had no request in the queue.
    Nothing,
}

/// Events. Nothing is written and no reply is sent here; [`Engine::drain`] follows.
impl LockManager {
    /// The client of a queued request has stopped waiting.
    pub fn leave(&mut self, now: &Now, id: RequestId, mode: Leave) {
        let ended = self.waits.leave(now, id, mode, &self.limits);
        self.observer.statistics.count_ended_positions(ended);
    }

    /// The connection of these requests has ended.
    pub fn leave_all(&mut self, ids: impl IntoIterator<Item = RequestId>) {
        self.waits.backlog.pending_removals.extend(ids, PendingRemoval::Disconnected);
    }

    /// Whether the request is no longer a waiter, although it is still in its queues.
    pub fn is_being_removed(&self, id: RequestId) -> bool {
        self.waits.is_being_removed(id)
    }

    /// The number of requests that wait for the key and whose removal is not pending. While any removal is pending,
    /// this visits all requests of the queue.
    pub fn waiters_for(&self, key: KeyRef<'_>) -> usize {
        self.waits.waiters_for(key)
    }

    /// The reply to a granted waiter was written.
    pub fn delivered(&mut self, id: RequestId) {
        self.deliveries.delivered(id);
    }

    /// The client of a granted waiter had disconnected before the reply was written, so the lock is handed off.
    pub fn undelivered(&mut self, id: RequestId) {
        self.deliveries.undelivered(id);
    }

    /// The connection has ended, so replies in flight to it are undelivered.
    pub fn undelivered_to(&mut self, client: ClientId) {
        self.deliveries.undelivered_to(client);
    }

    /// Another reply has confirmed to the owner that it holds these keys. It keeps its grants even if the reply to its
    /// request is lost.
    pub fn confirm_grant(&mut self, db: i32, names: &[&[u8]], owner: &[u8]) {
        self.deliveries.confirm(db, names, owner);
    }

    /// The server is no longer a primary: no request waits here, and no hold is bound to a connection.
    pub fn demote(&mut self) {
        let mut pending_removals = std::mem::take(&mut self.waits.backlog).pending_removals;
        pending_removals
            .extend(self.queues().requests().map(|(id, _)| id), PendingRemoval::Reply(WaitOutcome::Demoted));
        self.waits.backlog.pending_removals = pending_removals;
        self.bindings.unbind_db(None);
        self.deliveries.clear();
    }

    /// Slots of the cluster have moved to another node. Requests for keys in them end with [`WaitOutcome::TryAgain`],
    /// in order of arrival, and so do reserved positions.
    pub fn slots_moved(&mut self, has_left: impl Fn(KeyRef<'_>) -> bool) {
        let queues = self.queues().iter().filter(|(_, queue)| has_left(queue.key.as_ref()));
        let queues: BTreeSet<_> = queues.map(|(id, _)| id).collect();
        let is_affected = |request: &QueuedRequest| request.queues.iter().any(|queue| queues.contains(queue));
        let requests = self.waits.queues.requests().filter(|(_, request)| is_affected(request));
        self.waits
            .backlog
            .pending_removals
            .extend(requests.map(|(id, _)| id), PendingRemoval::Reply(WaitOutcome::TryAgain));
    }
}

impl<K: Keys, C: Clients> Engine<'_, '_, K, C> {
    /// Removes the queued requests of this owner from the key's wait queue.
    ///
    /// # Errors
    /// [`KeyError::WrongType`] if the key holds a value of another type.
    pub fn cancel(&mut self, key: KeyRef<'_>, owner: &[u8]) -> Result<Cancelled, KeyError> {
        if let Content::Foreign = self.host.keys.open(key).content() {
            return Err(KeyError::WrongType);
        }
        let queues = self.manager.queues();
        let Some(queue) = queues.id_of(key) else { return Ok(Cancelled::Nothing) };
        let is_in_queue = |id: &RequestId| queues.request(*id).is_some_and(|queued| queued.is_in(queue));
        let ids: Vec<_> = queues.of_owner(queues.owner_id(key.db, owner)).requests().filter(is_in_queue).collect();
        let cancelled = if ids.is_empty() { Cancelled::Nothing } else { Cancelled::Some };
        dismiss_all(self.manager, &mut self.host.clients, self.host.now, ids, WaitOutcome::Cancelled);
        Ok(cancelled)
    }
}

/// Replies to a waiting client with the outcome of its request.
pub(super) fn reply<C: Clients>(
    manager: &mut LockManager,
    clients: &mut C,
    id: RequestId,
    outcome: WaitOutcome,
) -> Delivery {
    manager.observer.statistics.count_outcome(outcome);
    clients.reply(id, outcome)
}

/// Removes a request from its queues, which become due. Its client, if it still waits, gets the outcome.
pub(super) fn dismiss<C: Clients>(manager: &mut LockManager, clients: &mut C, id: RequestId, outcome: WaitOutcome) {
    let Some(request) = manager.waits.queues.request(id) else { return };
    manager.waits.backlog.queues.extend(request.queues.iter().copied());
    end_with(manager, clients, id, outcome);
}

fn end_with<C: Clients>(manager: &mut LockManager, clients: &mut C, id: RequestId, outcome: WaitOutcome) {
    match (manager.queues().is_present(id), outcome) {
        (true, _) => _ = reply(manager, clients, id, outcome),
        // A reserved position has no client to reply to, so its wait counts as timed out.
        (false, WaitOutcome::Done { .. }) => manager.observer.statistics.count_outcome(WaitOutcome::TimedOut),
        (false, _) => manager.observer.statistics.count_outcome(outcome),
    }
    manager.waits.remove(id);
}

/// Ends many requests: as many as fit into the time slice, the rest in the next iterations.
pub(super) fn dismiss_all<C: Clients>(
    manager: &mut LockManager,
    clients: &mut C,
    now: &Now,
    ids: Vec<RequestId>,
    outcome: WaitOutcome,
) {
    manager.waits.backlog.pending_removals.extend(ids, PendingRemoval::Reply(outcome));
    while let Some((id, removal)) = manager.waits.backlog.pending_removals.take_next() {
        end_request(manager, clients, now, id, Phase::Removing(removal));
        if now.charge_budget() {
            return;
        }
    }
}

/// Ends a request that no longer waits: replies and removes it from its queues, or reserves its position. Does nothing
/// if the request still waits or its position is still reserved.
pub(super) fn end_request<C: Clients>(
    manager: &mut LockManager,
    clients: &mut C,
    now: &Now,
    id: RequestId,
    phase: Phase,
) {
    match phase {
        Phase::Gone | Phase::Waiting | Phase::Detached => {}
        Phase::Removing(removal) => {
            manager.waits.backlog.pending_removals.remove(id);
            match removal {
                PendingRemoval::Reply(outcome) => dismiss(manager, clients, id, outcome),
                PendingRemoval::Disconnected => manager.leave(now, id, Leave::Detach),
            }
        }
        // A reserved position ends without a reply.
        Phase::Done(fence) => end_with(manager, clients, id, WaitOutcome::Done { fence }),
        Phase::TimedOut if manager.queues().is_present(id) => time_out(manager, clients, now, id),
        // The client has not come back in time.
        Phase::TimedOut => end_with(manager, clients, id, WaitOutcome::TimedOut),
    }
}

/// BLOCK of a request has timed out. The timeout is counted now only if no position is reserved; otherwise it is
/// counted when the reserved position ends.
fn time_out<C: Clients>(manager: &mut LockManager, clients: &mut C, now: &Now, id: RequestId) {
    let is_adopted = manager.queues().request(id).is_some_and(|request| request.claim == Claim::AdoptedMutex);
    manager.observer.statistics.adopted_refusals += u64::from(is_adopted);
    if manager.waits.may_reserve_position(id, &manager.limits) {
        clients.reply(id, WaitOutcome::TimedOut);
    } else {
        reply(manager, clients, id, WaitOutcome::TimedOut);
    }
    manager.leave(now, id, Leave::Detach);
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU64;

    use super::*;
    use crate::engine::acquire::{AcquireRequest, Acquired, Wait};
    use crate::engine::fixture::{key, owner, Fixture};
    use crate::engine::session::{RenewRequest, Renewed};
    use crate::host::simulated::SentEffect;
    use crate::value::claim::{Claim, Count, LockRequest, LockType, Mode, ReleaseAmount};
    use crate::value::outcome::Released;
    use crate::value::time::{Lease, WaitLimit};

    const MUTEX: Claim = Claim::Mutex;
    const READ: Claim = Claim::ReadWrite(Mode::Read, Count::Delta(1));
    const WRITE: Claim = Claim::ReadWrite(Mode::Write, Count::Delta(1));

    /// Queues a request for the key that waits for 500 ms. `may_detach`: whether its position may be reserved.
    fn queue(fixture: &mut Fixture, name: &str, may_detach: bool) -> RequestId {
        queue_for(fixture, name, &[b"k"], may_detach)
    }

    fn queue_for(fixture: &mut Fixture, name: &str, names: &[&[u8]], may_detach: bool) -> RequestId {
        let (owner, now) = (owner(name), fixture.server.now());
        let limit = WaitLimit::Ms(NonZeroU64::new(500).unwrap());
        let request = AcquireRequest {
            db: 0,
            names,
            request: LockRequest { owner: owner.as_ref(), claim: MUTEX, lease: Lease::Persist },
            wait: Some(Wait { limit, may_detach, coalesces: false, lease_deadline: None }),
            session: None,
        };
        match fixture.manager.with_host(&mut fixture.server.host(&now)).acquire(request) {
            Ok(Acquired::Queued(id)) => id,
            other => panic!("{name} does not wait: {other:?}"),
        }
    }

    fn leave(fixture: &mut Fixture, id: RequestId, mode: Leave) {
        let now = fixture.server.now();
        fixture.manager.leave(&now, id, mode);
    }

    #[test]
    fn the_position_of_a_client_that_may_come_back_is_reserved_for_a_while() {
        let rows = [
            (true, 1_000, Leave::Detach, 1),
            (true, 0, Leave::Detach, 0),
            (false, 1_000, Leave::Detach, 0),
            (true, 1_000, Leave::Abandon, 0),
        ];
        for (may_detach, keep_place_ms, mode, kept) in rows {
            let row = format!("{may_detach} {keep_place_ms} {mode:?}");
            let mut fixture = Fixture::of(&[("a", MUTEX)]);
            fixture.manager.limits.keep_place_ms = keep_place_ms;
            let id = queue(&mut fixture, "b", may_detach);
            assert_eq!(fixture.next_timer(), Some(1_500), "{row}");
            leave(&mut fixture, id, mode);
            assert_eq!(fixture.manager.queues().reserved_positions(), kept, "{row}");
            assert_eq!(fixture.manager.queues().waiters(), 0, "{row}");
            let reservation_ends = (kept > 0).then_some(2_000);
            assert_eq!(fixture.next_timer(), reservation_ends, "{row}");
            fixture.server.keyspace.now_ms = 2_000;
            fixture.tick();
            assert!(fixture.manager.queues().is_empty(), "{row}");
            assert!(fixture.server.inbox.replies.is_empty(), "{row}: no client is left to reply to");
        }
    }

    /// The timer of the first has not fired yet, and the second gets its reply in a later iteration.
    #[test]
    fn a_release_hands_off_in_one_step_past_requests_that_no_longer_wait() {
        let mut fixture = Fixture::of(&[("a", MUTEX)]);
        let [timed_out, cancelled] = ["b", "c"].map(|name| queue(&mut fixture, name, true));
        fixture.acquire("d", MUTEX, None, Lease::Persist);
        fixture
            .manager
            .waits
            .backlog
            .pending_removals
            .extend([cancelled], PendingRemoval::Reply(WaitOutcome::Cancelled));
        fixture.server.keyspace.now_ms = 1_500;
        fixture.effects();
        assert_eq!(fixture.release("a", ReleaseAmount::Mutex), Ok(Released::Gone));
        assert_eq!((fixture.holders(), fixture.effects()), ("d".into(), vec![SentEffect::Hold(owner("d"))]));
        let outcomes = [(timed_out, WaitOutcome::TimedOut), (cancelled, WaitOutcome::Cancelled)];
        assert_eq!(fixture.server.inbox.replies[..2], outcomes);
        assert_eq!(fixture.manager.queues().reserved_positions(), 1);
    }

    /// LOCK.CANCEL of thousands of requests replies to some of them in later iterations. A retry before that is a new
    /// request.
    #[test]
    fn a_retry_finds_no_request_whose_reply_is_pending() {
        let mut fixture = Fixture::of(&[("a", MUTEX)]);
        let [cancelled, _] = ["b", "c"].map(|name| queue(&mut fixture, name, true));
        fixture
            .manager
            .waits
            .backlog
            .pending_removals
            .extend([cancelled], PendingRemoval::Reply(WaitOutcome::Cancelled));
        fixture.server.keyspace.now_ms += 100;
        let again = queue(&mut fixture, "b", true);
        assert_eq!(fixture.server.inbox.replies, [(cancelled, WaitOutcome::Cancelled)]);
        let of_key = fixture.manager.queues().of_key(key().as_ref()).unwrap();
        assert_eq!(of_key.last().map(|(_, id)| id), Some(again), "behind c");
        assert_eq!(fixture.manager.queues().request(again).unwrap().since.ms(), 1_100);
    }

    #[test]
    fn a_request_has_one_phase_at_a_time() {
        let phase = |fixture: &Fixture, id| fixture.manager.waits.phase(id, &fixture.server.now());
        let mut fixture = Fixture::of(&[("a", MUTEX)]);
        let [id, cancelled, left] = ["b", "c", "d"].map(|name| queue(&mut fixture, name, true));
        assert_eq!(phase(&fixture, id), Phase::Waiting);
        let with_outcome = PendingRemoval::Reply(WaitOutcome::Cancelled);
        fixture.manager.waits.backlog.pending_removals.extend([cancelled], with_outcome);
        fixture.manager.leave_all([left]);
        assert_eq!(phase(&fixture, cancelled), Phase::Removing(with_outcome));
        assert_eq!(phase(&fixture, left), Phase::Removing(PendingRemoval::Disconnected));
        for (now_ms, before, after) in
            [(1_500, Phase::TimedOut, Phase::Detached), (2_500, Phase::TimedOut, Phase::Gone)]
        {
            fixture.server.keyspace.now_ms = now_ms;
            assert_eq!(phase(&fixture, id), before);
            assert_eq!(
                phase(&fixture, cancelled) == Phase::Removing(with_outcome),
                now_ms == 1_500,
                "its outcome goes first"
            );
            fixture.tick();
            assert_eq!(phase(&fixture, id), after);
        }
        assert_eq!(fixture.server.inbox.replies[1], (cancelled, WaitOutcome::Cancelled), "though it had timed out");
    }

    #[test]
    fn reserved_positions_and_requests_that_are_ending_do_not_wait_for_the_key() {
        let mut fixture = Fixture::of(&[("a", MUTEX)]);
        let waiters = |fixture: &Fixture| fixture.manager.waiters_for(key().as_ref());
        assert_eq!(waiters(&fixture), 0);
        let ids = ["b", "c", "d", "e"].map(|name| queue(&mut fixture, name, true));
        assert_eq!(waiters(&fixture), 4);
        leave(&mut fixture, ids[0], Leave::Detach);
        assert_eq!(waiters(&fixture), 3);
        fixture.manager.leave_all([ids[1]]);
        assert_eq!(waiters(&fixture), 2);
        fixture.drain();
        assert_eq!(waiters(&fixture), 2);
    }

    #[test]
    fn no_more_positions_are_reserved_than_requests_may_wait() {
        let mut fixture = Fixture::of(&[("a", MUTEX)]);
        let ids = ["b", "c", "d"].map(|name| queue(&mut fixture, name, true));
        fixture.manager.limits.max_waiters = 2;
        for id in ids {
            leave(&mut fixture, id, Leave::Detach);
        }
        let kept = ids.map(|id| fixture.manager.queues().request(id).is_some());
        assert_eq!(kept, [false, true, true], "the oldest reserved position ends");
    }

    #[test]
    fn no_more_positions_are_reserved_for_a_key_than_requests_may_wait_for_it() {
        let mut fixture = Fixture::of(&[("a", MUTEX)]);
        fixture.acquire_all("a", &[b"l"], MUTEX, None, Lease::Persist);
        let elsewhere = queue_for(&mut fixture, "b", &[b"l"], true);
        let of_both = queue_for(&mut fixture, "b", &[b"k", b"l"], true);
        let ids = ["c", "d", "e"].map(|name| queue(&mut fixture, name, true));
        fixture.manager.limits.max_waiters_per_key = Some(2);
        leave(&mut fixture, elsewhere, Leave::Detach);
        leave(&mut fixture, of_both, Leave::Detach);
        let is_kept = |fixture: &Fixture, id| fixture.manager.queues().request(id).is_some();
        leave(&mut fixture, ids[0], Leave::Detach);
        assert!(is_kept(&fixture, of_both), "two of each key");
        leave(&mut fixture, ids[1], Leave::Detach);
        assert_eq!((is_kept(&fixture, elsewhere), is_kept(&fixture, of_both)), (true, false), "three of k, one of l");
        leave(&mut fixture, ids[2], Leave::Detach);
        assert_eq!(ids.map(|id| is_kept(&fixture, id)), [false, true, true], "the oldest reserved position ends");
        assert!(is_kept(&fixture, elsewhere), "it is a position of another key");
    }

    #[test]
    fn requests_behind_one_that_leaves_are_served() {
        let mut fixture = Fixture::of(&[("a", READ), ("b", WRITE), ("c", READ)]);
        let writer = fixture.manager.queues().of_key(key().as_ref()).and_then(|queue| queue.head()).unwrap().1;
        leave(&mut fixture, writer, Leave::Abandon);
        assert!(fixture.manager.has_due());
        fixture.drain();
        assert_eq!(fixture.holders(), "a c");
        assert!(!fixture.manager.has_due());
        assert_eq!(fixture.next_timer(), None);
    }

    #[test]
    fn a_cancelled_request_gets_its_reply_and_requests_behind_it_are_served() {
        let mut fixture = Fixture::of(&[("a", READ), ("b", WRITE), ("c", READ)]);
        assert_eq!(fixture.cancel("z"), Ok(Cancelled::Nothing));
        assert_eq!(fixture.cancel("a"), Ok(Cancelled::Nothing), "it holds, and waits for nothing");
        assert_eq!(fixture.cancel("b"), Ok(Cancelled::Some));
        fixture.drain();
        assert!(matches!(
            fixture.server.inbox.replies[..],
            [(_, WaitOutcome::Cancelled), (_, WaitOutcome::Granted { .. })]
        ));
        assert_eq!(fixture.holders(), "a c");
        assert_eq!(fixture.cancel("b"), Ok(Cancelled::Nothing));
        // A cancel ends only the requests for its key.
        let mut fixture = Fixture::of(&[("a", MUTEX), ("b", MUTEX)]);
        fixture.acquire_all("a", &[b"l"], MUTEX, None, Lease::Persist);
        fixture.acquire_all("b", &[b"l"], MUTEX, None, Lease::Persist);
        assert_eq!(fixture.cancel("b"), Ok(Cancelled::Some));
        assert_eq!(fixture.manager.queues().waiters(), 1);
    }

    #[test]
    fn a_delivered_grant_stays() {
        for is_delivered in [true, false] {
            let mut fixture = Fixture::of(&[("a", MUTEX), ("b", MUTEX)]);
            fixture.release("a", ReleaseAmount::Mutex).unwrap();
            let (granted, _) = fixture.server.inbox.replies[0];
            if is_delivered {
                fixture.manager.delivered(granted);
            }
            fixture.manager.undelivered(granted);
            assert_eq!(fixture.manager.has_due(), !is_delivered);
            fixture.drain();
            assert_eq!(fixture.holders(), if is_delivered { "b" } else { "" });
        }
    }

    /// Rows: the owner and lock type of the renewal, before or after the grant is known to be undelivered, and whether
    /// b keeps the lock.
    #[test]
    fn an_undelivered_grant_stays_if_another_reply_confirms_it() {
        for is_undelivered_before in [true, false] {
            for (name, lock_type, is_kept) in
                [("b", LockType::Mutex, true), ("c", LockType::Mutex, false), ("b", LockType::Reentrant, false)]
            {
                let row = format!("{is_undelivered_before} {name} {lock_type:?}");
                let mut fixture = Fixture::of(&[("a", MUTEX), ("b", MUTEX)]);
                fixture.release("a", ReleaseAmount::Mutex).unwrap();
                let (granted, _) = fixture.server.inbox.replies[0];
                if is_undelivered_before {
                    fixture.manager.undelivered(granted);
                }
                let (now, owner) = (fixture.server.now(), owner(name));
                let request = RenewRequest { db: 0, names: &[b"k"], owner: owner.as_bytes(), lock_type, lease: None };
                let renewed = fixture.manager.with_host(&mut fixture.server.host(&now)).renew(&request);
                assert_eq!(renewed == Ok(Renewed::All), is_kept, "{row}");
                fixture.manager.undelivered(granted);
                fixture.drain();
                assert_eq!(fixture.holders(), if is_kept { "b" } else { "" }, "{row}");
            }
        }
    }

    #[test]
    fn an_undelivered_grant_stays_if_a_message_reported_a_later_one() {
        let once = Claim::Reentrant(Count::Delta(1));
        for is_notified in [true, false] {
            let mut fixture = Fixture::of(&[("a", once), ("b", once)]);
            let covered = Claim::Reentrant(Count::Exactly(1));
            let Acquired::Queued(later) = fixture.acquire("b", covered, None, Lease::Persist) else {
                panic!("a holds it")
            };
            if is_notified {
                fixture.server.inbox.notified.insert(later);
            }
            fixture.release("a", ReleaseAmount::Reentrant(Count::Exactly(0))).unwrap();
            fixture.drain();
            let granted: Vec<_> = fixture.server.inbox.replies.iter().map(|(request, _)| *request).collect();
            granted.into_iter().for_each(|request| fixture.manager.undelivered(request));
            fixture.drain();
            assert_eq!(fixture.holders(), if is_notified { "b" } else { "" });
        }
    }

    #[test]
    fn only_requests_for_a_slot_that_moved_get_replies() {
        let mut fixture = Fixture::of(&[("a", MUTEX)]);
        fixture.acquire_all("a", &[b"l"], MUTEX, None, Lease::Persist);
        fixture.acquire_all("b", &[b"l"], MUTEX, None, Lease::Persist);
        let detached = queue(&mut fixture, "c", true);
        leave(&mut fixture, detached, Leave::Detach);
        let waiting = ["d", "e", "f"].map(|name| queue(&mut fixture, name, true));
        fixture.manager.slots_moved(|key| key.name == b"k");
        fixture.drain();
        let replies = fixture.server.inbox.replies.drain(..).collect::<Vec<_>>();
        assert_eq!(replies, waiting.map(|id| (id, WaitOutcome::TryAgain)), "in their order");
        assert_eq!((fixture.manager.queues().reserved_positions(), fixture.manager.queues().waiters()), (0, 1));
        assert!(fixture.manager.queues().id_of(key().as_ref()).is_none());
        assert_eq!(fixture.next_timer(), None, "no wait can time out");
        assert!(!fixture.manager.has_due());
    }

    #[test]
    fn a_demoted_server_forgets_waiters_bindings_and_grants() {
        let mut fixture = Fixture::of(&[("a", MUTEX), ("b", MUTEX), ("c", MUTEX)]);
        fixture.release("a", ReleaseAmount::Mutex).unwrap();
        let lost = fixture.server.inbox.replies[0].0;
        fixture.manager.undelivered(lost);
        fixture.acquire_all("d", &[b"l"], MUTEX, Some(crate::key::ClientId(7)), Lease::from_ms(300).unwrap());
        fixture.manager.end_session(crate::key::ClientId(7));
        fixture.manager.db_changed(None);
        fixture.manager.demote();
        assert!(
            fixture.manager.waits.backlog.rescans.is_empty() && fixture.manager.waits.backlog.queues.is_empty(),
            "no key is handed off any more"
        );
        fixture.drain();
        assert!(matches!(fixture.server.inbox.replies[..], [_, (_, WaitOutcome::Demoted)]));
        assert!(fixture.manager.queues().is_empty() && fixture.manager.bindings().is_empty());
        assert!(!fixture.manager.has_due());
        assert_eq!(fixture.next_timer(), None);
    }
}

//! Waiters that leave: their wait times out, their connection ends, they are cancelled, or they can never be granted.
//!
//! Requests that end together leave one by one: a connection with thousands of them has ended, a key has become another
//! type, slots have left. Each is answered, or becomes a kept place, in one of the next turns; until then it is granted
//! nothing.

use std::collections::BTreeSet;

use super::endings::Ending;
use super::lock_manager::LockManager;
use super::timer_set::Timer;
use super::to_try::ToTry;
use crate::host::{Clients, Content, Delivery, Entry, Host, Keys, WaitOutcome};
use crate::key::{KeyRef, RequestId};
use crate::queue::request::{Others, QueueId, QueuedRequest};
use crate::value::claim::Claim;
use crate::value::outcome::KeyError;
use crate::value::time::Now;

/// How a client stopped waiting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Departure {
    /// Its wait timed out or its connection ended: it may come back to its place.
    MayComeBack,
    /// Its place is not kept.
    ForGood,
}

/// What LOCK.CANCEL did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cancelled {
    /// Requests of the owner were taken out of the queue.
    Some,
    /// The owner had no request there.
    Nothing,
}

impl LockManager {
    /// The client of a queued request waits no more. Nothing is written: [`LockManager::drain`] follows.
    pub fn leave(&mut self, now: &Now, id: RequestId, departure: Departure) {
        let Some(request) = self.queues.request(id) else { return };
        // Requests behind it may be admissible without it, for example readers behind a writer.
        self.due.extend(request.queues.iter().copied());
        if departure == Departure::ForGood || !self.may_keep_place(id) {
            _ = self.remove(id);
            return;
        }
        self.timers.clear(Timer::WaitEnds(id));
        self.queues.keep_place(id);
        self.timers.set(Timer::PlaceEnds(id), now.instant().plus_ms(self.limits.keep_place_ms));
        self.limit_kept_places(id);
    }

    /// Whether the request gets a kept place when its client leaves.
    fn may_keep_place(&self, id: RequestId) -> bool {
        let may_come_back = self.queues.request(id).is_some_and(|request| request.may_come_back);
        may_come_back && self.limits.keep_place_ms > 0 && self.queues.done_by(id).is_none()
    }

    /// A kept place ends before its client has come back: the wait has timed out.
    pub(super) fn end_kept_place(&mut self, id: RequestId) {
        self.statistics.count_outcome(WaitOutcome::TimedOut);
        self.remove(id);
    }

    /// Bounds the kept places of each key of the request, then the kept places of the server, by the number of requests
    /// that may wait: the place that was left first ends first. Only this request has got a place since the last check.
    fn limit_kept_places(&mut self, id: RequestId) {
        let queues = self.queues.request(id).map(|request| request.queues.clone());
        for queue in queues.into_iter().flatten() {
            while let Some(oldest) = self.oldest_in_excess(queue) {
                self.end_kept_place(oldest);
            }
        }
        while self.queues.kept_places() > self.limits.max_waiters {
            let Some(oldest) = self.queues.longest_away() else { break };
            self.end_kept_place(oldest);
        }
    }

    /// The request that has been away longest, if the key has more kept places than it may have.
    fn oldest_in_excess(&self, queue: QueueId) -> Option<RequestId> {
        let (most, kept) = (self.limits.max_waiters_per_key?, self.queues.get(queue)?.kept_places());
        (kept > most).then(|| self.queues.longest_away_in(queue))?
    }

    /// Takes the queued requests of this owner out of the key's wait queue.
    ///
    /// # Errors
    /// [`KeyError::WrongType`] where the key holds a value of another type.
    pub fn cancel<K: Keys, C: Clients>(
        &mut self,
        host: &mut Host<'_, K, C>,
        key: KeyRef<'_>,
        owner: &[u8],
    ) -> Result<Cancelled, KeyError> {
        if let Content::Foreign = host.keys.open(key).content() {
            return Err(KeyError::WrongType);
        }
        let Some(queue) = self.queues.id_of(key) else { return Ok(Cancelled::Nothing) };
        let stands_here = |id: &RequestId| self.queues.request(*id).is_some_and(|queued| queued.stands_in(queue));
        let ids: Vec<_> = self.queues.requests_of(key.db, owner).filter(stands_here).collect();
        let cancelled = if ids.is_empty() { Cancelled::Nothing } else { Cancelled::Some };
        self.dismiss_all(&mut host.clients, host.now, ids, WaitOutcome::Cancelled);
        Ok(cancelled)
    }

    /// A granted waiter was sent its reply.
    pub fn delivered(&mut self, id: RequestId) {
        self.deliveries.delivered(id);
    }

    /// A waiter was granted the lock, but its client had gone before the reply was written. Nothing is written:
    /// [`LockManager::drain`] hands the key over.
    pub fn undelivered(&mut self, id: RequestId) {
        self.deliveries.undelivered(id);
    }

    /// Another reply tells the owner that it holds these keys: it keeps its grants, whatever becomes of the reply to
    /// its request.
    pub fn confirm_grant(&mut self, db: i32, names: &[&[u8]], owner: &[u8]) {
        self.deliveries.confirm(db, names, owner);
    }

    /// The server is no primary any more: no request waits here, no hold is bound. No reply is sent yet:
    /// [`LockManager::drain`] follows.
    pub fn demote(&mut self) {
        self.endings.extend(self.queues.requests().map(|(id, _)| id), Ending::Told(WaitOutcome::Demoted));
        self.db_changed(None);
        self.due.clear();
        self.sweeps.clear();
        self.to_try = ToTry::default();
        self.ended.clear();
        self.deliveries.clear();
    }

    /// Slots of the cluster belong to another node now: requests for a key in them end with [`WaitOutcome::TryAgain`],
    /// in order of arrival, and kept places in them end. No reply is sent yet: [`LockManager::drain`] follows.
    pub fn slots_left(&mut self, has_left: impl Fn(KeyRef<'_>) -> bool) {
        let queues = self.queues.iter().filter(|(_, queue)| has_left(queue.key.as_ref()));
        let queues: BTreeSet<_> = queues.map(|(id, _)| id).collect();
        let stands_there = |request: &QueuedRequest| request.queues.iter().any(|queue| queues.contains(queue));
        let requests = self.queues.requests().filter(|(_, request)| stands_there(request));
        self.endings.extend(requests.map(|(id, _)| id), Ending::Told(WaitOutcome::TryAgain));
    }

    /// The connection of these requests has ended. Nothing is written: [`LockManager::drain`] follows.
    pub fn leave_all(&mut self, ids: impl IntoIterator<Item = RequestId>) {
        self.endings.extend(ids, Ending::Left);
    }

    /// True if the request is no waiter any more, though a later turn has still to take it out of its queues.
    pub fn is_ending(&self, id: RequestId) -> bool {
        self.endings.contains(id) || self.queues.done_by(id).is_some()
    }

    /// The number of requests that wait for the key and are not ending. While any request of the server is ending, it
    /// visits all requests of the queue.
    pub fn waiters_for(&self, key: KeyRef<'_>) -> usize {
        let Some(queue) = self.queues.of_key(key) else { return 0 };
        match self.endings.is_empty() {
            true => queue.waiters(),
            false => queue.present().filter(|(_, id)| !self.endings.contains(*id)).count(),
        }
    }

    /// Takes a request out of its queues and replies with the outcome.
    pub(super) fn dismiss<C: Clients>(&mut self, clients: &mut C, id: RequestId, outcome: WaitOutcome) {
        let Some(request) = self.queues.request(id) else { return };
        self.due.extend(request.queues.iter().copied());
        self.answer_and_remove(clients, id, outcome);
    }

    /// Takes a request out of its queues; its client, if it is there, gets the outcome.
    pub(super) fn answer_and_remove<C: Clients>(&mut self, clients: &mut C, id: RequestId, outcome: WaitOutcome) {
        match (self.queues.request(id).is_some_and(QueuedRequest::is_present), outcome) {
            (true, _) => _ = self.answer_waiter(clients, id, outcome),
            // A kept place has no client to reply to: count its wait as timed out.
            (false, WaitOutcome::Done { .. }) => self.statistics.count_outcome(WaitOutcome::TimedOut),
            (false, _) => self.statistics.count_outcome(outcome),
        }
        self.remove(id);
    }

    /// Sends a waiting client the outcome of its request.
    pub(super) fn answer_waiter<C: Clients>(
        &mut self,
        clients: &mut C,
        id: RequestId,
        outcome: WaitOutcome,
    ) -> Delivery {
        self.statistics.count_outcome(outcome);
        clients.answer(id, outcome)
    }

    /// Ends many requests: as many as fit into this turn, the rest in the next turns.
    pub(super) fn dismiss_all<C: Clients>(
        &mut self,
        clients: &mut C,
        now: &Now,
        ids: Vec<RequestId>,
        outcome: WaitOutcome,
    ) {
        self.endings.extend(ids, Ending::Told(outcome));
        while self.end_next_request(clients, now) && !now.spends_turn() {}
    }

    /// Ends the next of the requests in `endings`. False: there is none.
    pub(super) fn end_next_request<C: Clients>(&mut self, clients: &mut C, now: &Now) -> bool {
        let Some((id, ending)) = self.endings.take_next() else { return false };
        self.end_request(clients, now, id, ending);
        true
    }

    fn end_request<C: Clients>(&mut self, clients: &mut C, now: &Now, id: RequestId, ending: Ending) {
        match ending {
            Ending::Told(outcome) => self.dismiss(clients, id, outcome),
            Ending::Left => self.leave(now, id, Departure::MayComeBack),
        }
    }

    /// Ends a request that waits no more: it is among the endings, or its wait has timed out before the timer fired.
    /// Left at the head of a queue, it would block the requests behind it. False: it waits.
    pub(super) fn end_if_over<C: Clients>(&mut self, clients: &mut C, now: &Now, id: RequestId) -> bool {
        if self.endings.contains(id) {
            self.end_if_ending(clients, now, id);
            return true;
        }
        let until = self.queues.request(id).and_then(|request| request.until);
        let is_over = until.is_some_and(|until| until <= now.instant());
        if is_over {
            self.time_out(clients, now, id);
        }
        is_over
    }

    /// The BLOCK of a request has run out. Counted as a time-out now only if no place is kept; otherwise when the kept
    /// place ends.
    pub(super) fn time_out<C: Clients>(&mut self, clients: &mut C, now: &Now, id: RequestId) {
        let is_adopted = self.queues.request(id).is_some_and(|request| request.claim == Claim::AdoptedMutex);
        self.statistics.adopted_refusals += u64::from(is_adopted);
        match self.may_keep_place(id) {
            true => _ = clients.answer(id, WaitOutcome::TimedOut),
            false => _ = self.answer_waiter(clients, id, WaitOutcome::TimedOut),
        }
        self.leave(now, id, Departure::MayComeBack);
    }

    /// Replies to the next request with COALESCE that a release has answered. False: there is none.
    pub(super) fn end_next_done<C: Clients>(&mut self, clients: &mut C) -> bool {
        self.queues.next_done().is_some_and(|id| self.end_if_done(clients, id))
    }

    /// Replies to a request with COALESCE if a release has answered it. A kept place just ends. False: no release has.
    pub(super) fn end_if_done<C: Clients>(&mut self, clients: &mut C, id: RequestId) -> bool {
        let Some(fence) = self.queues.done_by(id) else { return false };
        self.answer_and_remove(clients, id, WaitOutcome::Done { fence });
        true
    }

    /// Ends the request now if it is among the endings: a retry must not find it.
    pub(super) fn end_if_ending<C: Clients>(&mut self, clients: &mut C, now: &Now, id: RequestId) {
        if let Some(ending) = self.endings.take(id) {
            self.end_request(clients, now, id, ending);
        }
    }

    /// Takes a request out of its queues, with its timers and the timers of queues that are empty now.
    pub(super) fn remove(&mut self, id: RequestId) -> Others {
        let Some((request, others)) = self.queues.leave(id) else { return Others::None };
        if request.until.is_some() {
            self.timers.clear(Timer::WaitEnds(id));
        }
        self.timers.clear(Timer::PlaceEnds(id));
        self.endings.remove(id);
        for queue in request.queues {
            if self.queues.get(queue).is_none() {
                self.lease_ends.clear(queue);
                self.due.remove(queue);
            }
        }
        others
    }
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU64;

    use super::*;
    use crate::host::simulated::Told;
    use crate::manager::acquire::{AcquireRequest, Acquired, Wait};
    use crate::manager::fixture::{key, owner, Fixture};
    use crate::manager::session::{RenewRequest, Renewed};
    use crate::value::claim::{Claim, Count, Family, LockRequest, Mode, Portion};
    use crate::value::outcome::Released;
    use crate::value::time::{Lease, WaitLimit};

    const MUTEX: Claim = Claim::Mutex;
    const READ: Claim = Claim::ReadWrite(Mode::Read, Count::Step(1));
    const WRITE: Claim = Claim::ReadWrite(Mode::Write, Count::Step(1));

    /// Queues a request for the key. It may keep its place when its client leaves, and waits for 500 ms.
    fn queue(fixture: &mut Fixture, name: &str, may_come_back: bool) -> RequestId {
        queue_for(fixture, name, &[b"k"], may_come_back)
    }

    fn queue_for(fixture: &mut Fixture, name: &str, names: &[&[u8]], may_come_back: bool) -> RequestId {
        let (owner, now) = (owner(name), fixture.server.now());
        let limit = WaitLimit::Ms(NonZeroU64::new(500).unwrap());
        let request = AcquireRequest {
            db: 0,
            names,
            request: LockRequest { owner: owner.as_ref(), claim: MUTEX, lease: Lease::Persist },
            wait: Some(Wait { limit, may_come_back, coalesces: false }),
            session: None,
        };
        match fixture.manager.acquire(&mut fixture.server.host(&now), request) {
            Ok(Acquired::Queued(id)) => id,
            other => panic!("{name} does not wait: {other:?}"),
        }
    }

    fn leave(fixture: &mut Fixture, id: RequestId, departure: Departure) {
        let now = fixture.server.now();
        fixture.manager.leave(&now, id, departure);
    }

    #[test]
    fn a_client_that_may_come_back_keeps_its_place_for_a_while() {
        let rows = [
            (true, 1_000, Departure::MayComeBack, 1),
            (true, 0, Departure::MayComeBack, 0),
            (false, 1_000, Departure::MayComeBack, 0),
            (true, 1_000, Departure::ForGood, 0),
        ];
        for (may_come_back, keep_place_ms, departure, kept) in rows {
            let row = format!("{may_come_back} {keep_place_ms} {departure:?}");
            let mut fixture = Fixture::of(&[("a", MUTEX)]);
            fixture.manager.limits.keep_place_ms = keep_place_ms;
            let id = queue(&mut fixture, "b", may_come_back);
            assert_eq!(fixture.next_timer(), Some(1_500), "{row}");
            leave(&mut fixture, id, departure);
            assert_eq!(fixture.manager.queues().kept_places(), kept, "{row}");
            assert_eq!(fixture.manager.queues().waiters(), 0, "{row}");
            let place_ends = (kept > 0).then_some(2_000);
            assert_eq!(fixture.next_timer(), place_ends, "{row}");
            fixture.server.keyspace.now_ms = 2_000;
            fixture.tick();
            assert!(fixture.manager.queues().is_empty(), "{row}");
            assert!(fixture.server.inbox.answers.is_empty(), "{row}: no client is left to reply to");
        }
    }

    /// The timer of the first has not fired yet, and the second is to be answered in a later turn.
    #[test]
    fn a_release_hands_over_in_one_step_past_requests_that_wait_no_more() {
        let mut fixture = Fixture::of(&[("a", MUTEX)]);
        let [timed_out, cancelled] = ["b", "c"].map(|name| queue(&mut fixture, name, true));
        fixture.acquire("d", MUTEX, None, Lease::Persist);
        fixture.manager.endings.extend([cancelled], Ending::Told(WaitOutcome::Cancelled));
        fixture.server.keyspace.now_ms = 1_500;
        fixture.effects();
        assert_eq!(fixture.release("a", Portion::Mutex), Ok(Released::Gone));
        assert_eq!((fixture.holders(), fixture.effects()), ("d".into(), vec![Told::Hold(owner("d"))]));
        let outcomes = [(timed_out, WaitOutcome::TimedOut), (cancelled, WaitOutcome::Cancelled)];
        assert_eq!(fixture.server.inbox.answers[..2], outcomes);
        assert_eq!(fixture.manager.queues().kept_places(), 1);
    }

    /// LOCK.CANCEL of thousands answers some of them in the next turns. A retry in between is another request.
    #[test]
    fn a_retry_finds_no_request_that_is_to_be_answered() {
        let mut fixture = Fixture::of(&[("a", MUTEX)]);
        let [cancelled, _] = ["b", "c"].map(|name| queue(&mut fixture, name, true));
        fixture.manager.endings.extend([cancelled], Ending::Told(WaitOutcome::Cancelled));
        fixture.server.keyspace.now_ms += 100;
        let again = queue(&mut fixture, "b", true);
        assert_eq!(fixture.server.inbox.answers, [(cancelled, WaitOutcome::Cancelled)]);
        let of_key = fixture.manager.queues().of_key(key().as_ref()).unwrap();
        assert_eq!(of_key.last().map(|(_, id)| id), Some(again), "behind c");
        assert_eq!(fixture.manager.queues().request(again).unwrap().since.ms(), 1_100);
    }

    #[test]
    fn kept_places_and_requests_that_are_ending_do_not_wait_for_the_key() {
        let mut fixture = Fixture::of(&[("a", MUTEX)]);
        let waiters = |fixture: &Fixture| fixture.manager.waiters_for(key().as_ref());
        assert_eq!(waiters(&fixture), 0);
        let ids = ["b", "c", "d", "e"].map(|name| queue(&mut fixture, name, true));
        assert_eq!(waiters(&fixture), 4);
        leave(&mut fixture, ids[0], Departure::MayComeBack);
        assert_eq!(waiters(&fixture), 3);
        fixture.manager.leave_all([ids[1]]);
        assert_eq!(waiters(&fixture), 2);
        fixture.drain();
        assert_eq!(waiters(&fixture), 2);
    }

    #[test]
    fn no_more_places_are_kept_than_requests_may_wait() {
        let mut fixture = Fixture::of(&[("a", MUTEX)]);
        let ids = ["b", "c", "d"].map(|name| queue(&mut fixture, name, true));
        fixture.manager.limits.max_waiters = 2;
        for id in ids {
            leave(&mut fixture, id, Departure::MayComeBack);
        }
        let kept = ids.map(|id| fixture.manager.queues().request(id).is_some());
        assert_eq!(kept, [false, true, true], "the oldest place ends");
    }

    #[test]
    fn no_more_places_are_kept_of_a_key_than_requests_may_wait_for_it() {
        let mut fixture = Fixture::of(&[("a", MUTEX)]);
        fixture.acquire_all("a", &[b"l"], MUTEX, None, Lease::Persist);
        let elsewhere = queue_for(&mut fixture, "b", &[b"l"], true);
        let of_both = queue_for(&mut fixture, "b", &[b"k", b"l"], true);
        let ids = ["c", "d", "e"].map(|name| queue(&mut fixture, name, true));
        fixture.manager.limits.max_waiters_per_key = Some(2);
        leave(&mut fixture, elsewhere, Departure::MayComeBack);
        leave(&mut fixture, of_both, Departure::MayComeBack);
        let is_kept = |fixture: &Fixture, id| fixture.manager.queues().request(id).is_some();
        leave(&mut fixture, ids[0], Departure::MayComeBack);
        assert!(is_kept(&fixture, of_both), "two of each key");
        leave(&mut fixture, ids[1], Departure::MayComeBack);
        assert_eq!((is_kept(&fixture, elsewhere), is_kept(&fixture, of_both)), (true, false), "three of k, one of l");
        leave(&mut fixture, ids[2], Departure::MayComeBack);
        assert_eq!(ids.map(|id| is_kept(&fixture, id)), [false, true, true], "the oldest place ends");
        assert!(is_kept(&fixture, elsewhere), "it is a place of another key");
    }

    #[test]
    fn requests_behind_one_that_leaves_are_served() {
        let mut fixture = Fixture::of(&[("a", READ), ("b", WRITE), ("c", READ)]);
        let writer = fixture.manager.queues().of_key(key().as_ref()).and_then(|queue| queue.head()).unwrap().1;
        leave(&mut fixture, writer, Departure::ForGood);
        assert!(fixture.manager.has_due());
        fixture.drain();
        assert_eq!(fixture.holders(), "a c");
        assert!(!fixture.manager.has_due());
        assert_eq!(fixture.next_timer(), None);
    }

    #[test]
    fn a_cancelled_request_is_answered_and_requests_behind_it_are_served() {
        let mut fixture = Fixture::of(&[("a", READ), ("b", WRITE), ("c", READ)]);
        assert_eq!(fixture.cancel("z"), Ok(Cancelled::Nothing));
        assert_eq!(fixture.cancel("a"), Ok(Cancelled::Nothing), "it holds, and waits for nothing");
        assert_eq!(fixture.cancel("b"), Ok(Cancelled::Some));
        fixture.drain();
        assert!(matches!(
            fixture.server.inbox.answers[..],
            [(_, WaitOutcome::Cancelled), (_, WaitOutcome::Granted { .. })]
        ));
        assert_eq!(fixture.holders(), "a c");
        assert_eq!(fixture.cancel("b"), Ok(Cancelled::Nothing));
        // A cancel ends the requests for its key only.
        let mut fixture = Fixture::of(&[("a", MUTEX), ("b", MUTEX)]);
        fixture.acquire_all("a", &[b"l"], MUTEX, None, Lease::Persist);
        fixture.acquire_all("b", &[b"l"], MUTEX, None, Lease::Persist);
        assert_eq!(fixture.cancel("b"), Ok(Cancelled::Some));
        assert_eq!(fixture.manager.queues().waiters(), 1);
    }

    #[test]
    fn a_grant_that_was_received_stays() {
        for is_delivered in [true, false] {
            let mut fixture = Fixture::of(&[("a", MUTEX), ("b", MUTEX)]);
            fixture.release("a", Portion::Mutex).unwrap();
            let (granted, _) = fixture.server.inbox.answers[0];
            if is_delivered {
                fixture.manager.delivered(granted);
            }
            fixture.manager.undelivered(granted);
            assert_eq!(fixture.manager.has_due(), !is_delivered);
            fixture.drain();
            assert_eq!(fixture.holders(), if is_delivered { "b" } else { "" });
        }
    }

    /// Rows: the owner and family of the renewal, before or after the grant is known to be lost, and whether b keeps
    /// the lock.
    #[test]
    fn a_lost_grant_stays_if_another_reply_told_its_owner_of_it() {
        for is_lost_before in [true, false] {
            for (name, family, is_kept) in
                [("b", Family::Mutex, true), ("c", Family::Mutex, false), ("b", Family::Reentrant, false)]
            {
                let row = format!("{is_lost_before} {name} {family:?}");
                let mut fixture = Fixture::of(&[("a", MUTEX), ("b", MUTEX)]);
                fixture.release("a", Portion::Mutex).unwrap();
                let (granted, _) = fixture.server.inbox.answers[0];
                if is_lost_before {
                    fixture.manager.undelivered(granted);
                }
                let (now, owner) = (fixture.server.now(), owner(name));
                let request = RenewRequest { db: 0, names: &[b"k"], owner: owner.as_bytes(), family, lease: None };
                let renewed = fixture.manager.renew(&mut fixture.server.host(&now), &request);
                assert_eq!(renewed == Ok(Renewed::All), is_kept, "{row}");
                fixture.manager.undelivered(granted);
                fixture.drain();
                assert_eq!(fixture.holders(), if is_kept { "b" } else { "" }, "{row}");
            }
        }
    }

    #[test]
    fn a_lost_grant_stays_if_a_message_told_its_owner_of_a_later_one() {
        let once = Claim::Reentrant(Count::Step(1));
        for is_notified in [true, false] {
            let mut fixture = Fixture::of(&[("a", once), ("b", once)]);
            let covered = Claim::Reentrant(Count::Exactly(1));
            let Acquired::Queued(later) = fixture.acquire("b", covered, None, Lease::Persist) else {
                panic!("a holds it")
            };
            if is_notified {
                fixture.server.inbox.notified.insert(later);
            }
            fixture.release("a", Portion::Reentrant(Count::Exactly(0))).unwrap();
            fixture.drain();
            let granted: Vec<_> = fixture.server.inbox.answers.iter().map(|(request, _)| *request).collect();
            granted.into_iter().for_each(|request| fixture.manager.undelivered(request));
            fixture.drain();
            assert_eq!(fixture.holders(), if is_notified { "b" } else { "" });
        }
    }

    #[test]
    fn only_requests_for_a_slot_that_left_are_answered() {
        let mut fixture = Fixture::of(&[("a", MUTEX)]);
        fixture.acquire_all("a", &[b"l"], MUTEX, None, Lease::Persist);
        fixture.acquire_all("b", &[b"l"], MUTEX, None, Lease::Persist);
        let away = queue(&mut fixture, "c", true);
        leave(&mut fixture, away, Departure::MayComeBack);
        let waiting = ["d", "e", "f"].map(|name| queue(&mut fixture, name, true));
        fixture.manager.slots_left(|key| key.name == b"k");
        fixture.drain();
        let told = fixture.server.inbox.answers.drain(..).collect::<Vec<_>>();
        assert_eq!(told, waiting.map(|id| (id, WaitOutcome::TryAgain)), "in their order");
        assert_eq!((fixture.manager.queues().kept_places(), fixture.manager.queues().waiters()), (0, 1));
        assert!(fixture.manager.queues().id_of(key().as_ref()).is_none());
        assert_eq!(fixture.next_timer(), None, "no wait can time out");
        assert!(!fixture.manager.has_due());
    }

    #[test]
    fn a_demoted_server_forgets_waiters_bindings_and_grants() {
        let mut fixture = Fixture::of(&[("a", MUTEX), ("b", MUTEX), ("c", MUTEX)]);
        fixture.release("a", Portion::Mutex).unwrap();
        let lost = fixture.server.inbox.answers[0].0;
        fixture.manager.undelivered(lost);
        fixture.acquire_all("d", &[b"l"], MUTEX, Some(crate::key::ClientId(7)), Lease::from_ms(300).unwrap());
        fixture.manager.end_session(crate::key::ClientId(7));
        fixture.manager.db_changed(None);
        fixture.manager.demote();
        assert!(fixture.manager.sweeps.is_empty() && fixture.manager.due.is_empty(), "no key is handed over any more");
        fixture.drain();
        assert!(matches!(fixture.server.inbox.answers[..], [_, (_, WaitOutcome::Demoted)]));
        assert!(fixture.manager.queues().is_empty() && fixture.manager.bindings().is_empty());
        assert!(!fixture.manager.has_due());
        assert_eq!(fixture.next_timer(), None);
    }
}

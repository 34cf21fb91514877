//! Timers: work that is due at a certain time. One timer of the host serves all of them.

use super::leave::end_request;
use super::lock_manager::LockManager;
use super::observer::Occurrence;
use super::pending_removals::Phase;
use super::step::Engine;
use crate::host::{Clients, Keys};
use crate::queue::queues::WaitQueues;
use crate::value::time::{Instant, Now, Timestamp};

/// Milliseconds until refused writes are tried again. The server reports no event when a pause has ended.
pub const WRITE_RETRY_MS: u64 = 10;

/// Milliseconds until a key in a moving slot is tried again.
pub(super) const SLOT_MOVED_RETRY_MS: u64 = 1_000;

/// When the lock manager must act next without a command, on each of the two clocks. Which of them comes first depends
/// on changes of the wall clock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NextTimer {
    /// A wait, a reserved position, a grace period or a renewal.
    pub instant: Option<Instant>,
    /// A lease that a request waits for.
    pub timestamp: Option<Timestamp>,
}

impl NextTimer {
    /// Whether a timer armed for `other` also fires in time for `self`, whatever happens to the wall clock.
    pub fn is_covered_by(&self, other: &NextTimer) -> bool {
        fn is_no_earlier<P: Ord>(this: Option<P>, other: Option<P>) -> bool {
            this.is_none_or(|this| other.is_some_and(|other| this >= other))
        }
        is_no_earlier(self.instant, other.instant) && is_no_earlier(self.timestamp, other.timestamp)
    }

    /// Whether one of its times has come.
    pub fn is_due(&self, now: &Now) -> bool {
        self.instant.is_some_and(|instant| instant <= now.instant())
            || self.timestamp.is_some_and(|timestamp| timestamp <= now.timestamp())
    }
}

impl LockManager {
    /// The server has started or was promoted, and may have lost locks while their holders are still working. For
    /// `grace_ms` no new owner is granted a lock.
    pub fn begin_grace(&mut self, since: Instant, grace_ms: u64) {
        self.grace.begin(since, grace_ms);
        if grace_ms > 0 {
            self.observer.occurrences.record(Occurrence::GraceBegan { ms: grace_ms });
        }
    }

    /// Applies a changed setting: a running grace period ends sooner or later than before, but none begins.
    pub fn change_grace(&mut self, now: &Now, grace_ms: u64) {
        if self.grace.change(now, grace_ms) {
            self.waits.backlog.rescans.begin(None);
        }
    }

    /// When the grace period ends, if one may be running.
    pub fn grace_ends(&self) -> Option<Instant> {
        self.grace.ends()
    }

    /// Whether the host must rearm its timer, because a deadline was set that is earlier than all others at the last
    /// call.
    #[inline]
    pub fn take_needs_rearm(&mut self) -> bool {
        // No short-circuit, because every flag must be cleared.
        self.waits.queues.take_needs_rearm() | self.bindings.take_needs_rearm() | self.grace.take_changed()
    }

    /// When [`Engine::tick`] must be called next.
    pub fn next_timer(&self) -> NextTimer {
        let WaitQueues { wait_timers, lease_timers, .. } = self.queues();
        let instants = wait_timers.next().into_iter().chain(self.bindings.next_renewal()).chain(self.grace.watched());
        NextTimer { instant: instants.min(), timestamp: lease_timers.next() }
    }

    /// The wall clock was set. Leases use it, so they may expire much sooner or later than intended. The leases of live
    /// sessions are renewed at once. Nothing is written here; [`Engine::tick`] follows.
    pub fn clock_was_set(&mut self, now: &Now) {
        self.bindings.renew_all(now.instant());
    }
}

impl<K: Keys, C: Clients> Engine<'_, '_, K, C> {
    /// Processes the timers that are due until the time slice is spent. Renews sessions before it processes lease
    /// expiries.
    pub fn tick(&mut self) {
        let now = self.host.now;
        if self.manager.grace.take_end(now) {
            self.manager.observer.occurrences.record(Occurrence::GraceEnded);
            self.manager.waits.backlog.rescans.begin(None);
        }
        // Alternate, so that neither kind starves the other.
        loop {
            let renewal = self.manager.bindings.take_renewal(now.instant());
            let ended = self.manager.waits.queues.take_timed_out(now.instant());
            if renewal.is_none() && ended.is_none() {
                break;
            }
            if let Some(id) = renewal {
                self.renew_session(id);
            }
            if let Some(id) = ended {
                let phase = self.manager.waits.phase(id, now);
                debug_assert!(!matches!(phase, Phase::Waiting | Phase::Detached), "its timer fires once");
                end_request(self.manager, &mut self.host.clients, now, id, phase);
            }
            if now.charge_budget() {
                break;
            }
        }
        let waits = &mut self.manager.waits;
        while let Some(queue) = waits.queues.take_due_lease(now.timestamp()) {
            waits.backlog.queues.insert(queue);
            if now.charge_budget() {
                break;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU64;

    use super::*;
    use crate::engine::acquire::{AcquireRequest, Acquired, Wait};
    use crate::engine::fixture::{owner, Fixture};
    use crate::engine::observer::Occurrence;
    use crate::host::simulated::{SentEffect, TimeSlices};
    use crate::host::WaitOutcome;
    use crate::key::ClientId;
    use crate::value::claim::{Claim, Count, LockRequest, Mode};
    use crate::value::time::{Deadline, Lease, Timestamp, WaitLimit};

    const MUTEX: Claim = Claim::Mutex;

    #[test]
    fn a_request_for_one_or_multiple_keys_is_served_when_the_first_lease_expires() {
        for names in [&[b"k".as_slice()][..], &[b"k", b"l"], &[b"l", b"k"]] {
            let mut fixture = Fixture::default();
            fixture.acquire("a", MUTEX, None, Lease::from_ms(300).unwrap());
            fixture.acquire_all("b", names, MUTEX, None, Lease::Persist);
            assert_eq!(fixture.next_timer(), Some(1_301), "{names:?}");
            fixture.server.keyspace.now_ms = 1_300;
            fixture.tick();
            assert!(!fixture.manager.has_due(), "the lease includes its last millisecond");
            fixture.server.keyspace.now_ms = 1_301;
            fixture.tick();
            fixture.drain();
            assert_eq!(fixture.holders(), "b", "{names:?}");
        }
    }

    #[test]
    fn a_wait_that_times_out_gets_its_reply() {
        let mut fixture = Fixture::of(&[("a", MUTEX)]);
        let (owner, now) = (owner("b"), fixture.server.now());
        let request = AcquireRequest {
            db: 0,
            names: &[b"k"],
            request: LockRequest { owner: owner.as_ref(), claim: MUTEX, lease: Lease::Persist },
            wait: Some(Wait {
                limit: WaitLimit::Ms(NonZeroU64::new(200).unwrap()),
                may_detach: false,
                coalesces: false,
                lease_deadline: None,
            }),
            session: None,
        };
        let acquired = fixture.manager.with_host(&mut fixture.server.host(&now)).acquire(request);
        let Ok(Acquired::Queued(id)) = acquired else { panic!("{acquired:?}") };
        fixture.server.keyspace.now_ms = 1_199;
        fixture.tick();
        assert_eq!(fixture.server.inbox.replies, []);
        fixture.server.keyspace.now_ms = 1_200;
        fixture.tick();
        assert_eq!(fixture.server.inbox.replies, [(id, WaitOutcome::TimedOut)]);
        assert!(fixture.manager.queues().is_empty() && fixture.next_timer().is_none());
    }

    #[test]
    fn a_time_slice_processes_as_many_timers_as_it_has_time_for() {
        let mut fixture = Fixture::default();
        for name in [b"k", b"l", b"m"] {
            fixture.acquire_all("a", &[name], MUTEX, Some(ClientId(7)), Lease::from_ms(300).unwrap());
        }
        fixture.effects();
        fixture.server.keyspace.now_ms = 1_100;
        fixture.server.time_slices = TimeSlices::Of(2);
        fixture.tick();
        assert_eq!((fixture.effects().len(), fixture.next_timer()), (2, Some(1_100)));
        fixture.tick();
        assert_eq!((fixture.effects().len(), fixture.next_timer()), (1, Some(1_200)));
    }

    #[test]
    fn a_grace_that_is_made_shorter_ends_for_waiters() {
        let mut fixture = Fixture::default();
        let now = fixture.server.now();
        fixture.manager.change_grace(&now, 500);
        assert!(!fixture.manager.has_due(), "none begins");
        fixture.manager.begin_grace(fixture.server.keyspace.instant(), 1_000);
        fixture.acquire("b", MUTEX, None, Lease::Persist);
        assert_eq!((fixture.holders(), fixture.next_timer()), ("".into(), Some(2_000)));
        fixture.manager.change_grace(&now, 0);
        fixture.drain();
        assert_eq!(fixture.holders(), "b");
    }

    #[test]
    fn a_request_cancelled_in_a_grace_leaves_no_timer() {
        let mut fixture = Fixture::default();
        fixture.manager.begin_grace(fixture.server.keyspace.instant(), 1_000);
        fixture.acquire("b", MUTEX, None, Lease::Persist);
        fixture.cancel("b").unwrap();
        let now = fixture.server.now();
        assert_eq!(fixture.manager.timers_ahead(&now), [1_000], "the timer of the grace itself");
        (fixture.server.keyspace.now_ms, _) = (2_000, fixture.manager.observer.occurrences.take());
        fixture.tick();
        assert_eq!(fixture.manager.observer.occurrences.take(), [Occurrence::GraceEnded]);
        assert_eq!(fixture.next_timer(), None);
    }

    #[test]
    fn live_sessions_are_renewed_at_once_when_the_wall_clock_is_set() {
        for (ahead_ms, is_over) in [(250, false), (-250, false), (301, true)] {
            let mut fixture = Fixture::default();
            fixture.acquire("a", MUTEX, Some(ClientId(7)), Lease::from_ms(300).unwrap());
            fixture.acquire_all("a", &[b"l"], MUTEX, Some(ClientId(7)), Lease::Persist);
            fixture.acquire("b", MUTEX, None, Lease::Persist);
            fixture.effects();
            fixture.server.keyspace.now_ms = 1_001;
            fixture.server.keyspace.ahead_ms = ahead_ms;
            let now = fixture.server.now();
            fixture.manager.clock_was_set(&now);
            assert_eq!(fixture.manager.next_timer().instant, Some(Instant::from_ms(1_001)));
            fixture.tick();
            fixture.drain();
            if is_over {
                assert_eq!(fixture.holders(), "b", "{ahead_ms}");
                continue;
            }
            assert_eq!(
                fixture.effects(),
                [SentEffect::Renew(owner("a"))],
                "{ahead_ms}: a lease without an end is not renewed"
            );
            let until = Timestamp::from_ms(1_301u64.saturating_add_signed(ahead_ms));
            assert_eq!(fixture.stored().1, Deadline::At(until), "{ahead_ms}");
            let next = NextTimer { instant: Some(Instant::from_ms(1_101)), timestamp: Some(until.plus_ms(1)) };
            // The timer of a lease expiry may fire early.
            let NextTimer { instant, timestamp } = fixture.manager.next_timer();
            assert_eq!((instant, timestamp <= next.timestamp), (next.instant, true), "{ahead_ms}");
        }
    }

    #[test]
    fn a_session_and_a_lease_that_is_waited_for_need_a_timer_each() {
        let short = Lease::from_ms(300).unwrap();
        let read = Claim::ReadWrite(Mode::Read, Count::Delta(1));
        let rows = [
            ("one holder", MUTEX, &["a"][..], None, false),
            ("a session", MUTEX, &["a"], Some(ClientId(7)), true),
            ("a lease that is waited for", MUTEX, &["a", "b"], None, true),
            ("several holders", read, &["a", "b"], None, false),
        ];
        for (row, claim, names, session, is_needed) in rows {
            let mut fixture = Fixture::default();
            for name in names {
                fixture.acquire(name, claim, session, short);
            }
            assert_eq!(fixture.manager.take_needs_rearm(), is_needed, "{row}");
            assert!(!fixture.manager.take_needs_rearm(), "{row}: the host was notified");
        }
    }

    #[test]
    fn timers_of_several_kinds_are_reported_to_the_host_once() {
        // All combinations of a grace period, a session, a watched lease and a reserved position.
        for set in 1..16_u32 {
            let has = |kind: u32| set & 1 << kind != 0;
            let mut fixture = Fixture::default();
            if has(1) {
                fixture.acquire_all("a", &[b"l"], MUTEX, Some(ClientId(7)), Lease::from_ms(300).unwrap());
            }
            if has(2) {
                fixture.acquire("a", MUTEX, None, Lease::from_ms(300).unwrap());
                fixture.acquire("b", MUTEX, None, Lease::Persist);
            }
            if has(3) {
                fixture.acquire_all("c", &[b"m"], MUTEX, None, Lease::Persist);
                let Acquired::Queued(id) = fixture.acquire_all("d", &[b"m"], MUTEX, None, Lease::Persist) else {
                    panic!("c holds it")
                };
                fixture.manager.waits.queues.reserve_position(id, Instant::from_ms(60_000));
            }
            // Last, because no new owner is granted a lock during it.
            if has(0) {
                fixture.manager.begin_grace(fixture.server.now().instant(), 1);
            }
            assert!(fixture.manager.take_needs_rearm(), "{set:03b}");
            assert!(!fixture.manager.take_needs_rearm(), "{set:03b}: the host was notified");
        }
    }

    #[test]
    fn a_grace_of_no_time_is_not_reported() {
        for grace_ms in [0, 5] {
            let mut fixture = Fixture::default();
            let now = fixture.server.now().instant();
            fixture.manager.begin_grace(now, grace_ms);
            assert_eq!(fixture.manager.grace_ends().map(|ends| ends.ms_since(now)), (grace_ms > 0).then_some(grace_ms));
            assert_eq!(fixture.manager.observer.occurrences.is_empty(), grace_ms == 0);
        }
    }

    #[test]
    fn waits_and_leases_are_due_each_by_its_own_clock() {
        let [one, two] = [1_000, 2_000];
        let due = |instant: Option<u64>, timestamp: Option<u64>| {
            let next =
                NextTimer { instant: instant.map(Instant::from_ms), timestamp: timestamp.map(Timestamp::from_ms) };
            next.is_due(&Now::by(|| 2_000_000, || 1_000_000))
        };
        assert!(due(Some(one), None) && !due(Some(one + 1), None));
        assert!(due(None, Some(two)) && !due(None, Some(two + 1)));
        assert!(due(Some(two), Some(one)) && due(Some(one), Some(two + 1)) && !due(None, None));
    }

    #[test]
    fn a_timer_covers_another_that_is_earlier_by_neither_clock() {
        let next = |instant: Option<u64>, timestamp: Option<u64>| NextTimer {
            instant: instant.map(Instant::from_ms),
            timestamp: timestamp.map(Timestamp::from_ms),
        };
        let armed = next(Some(10), Some(20));
        for (other, is_covered) in [
            (armed, true),
            (next(Some(11), Some(21)), true),
            (next(None, Some(20)), true),
            (next(Some(10), None), true),
            (next(None, None), true),
            (next(Some(9), Some(20)), false),
            (next(Some(10), Some(19)), false),
        ] {
            assert_eq!(other.is_covered_by(&armed), is_covered, "{other:?}");
        }
        assert!(!next(Some(10), Some(20)).is_covered_by(&next(None, Some(20))));
        assert!(!next(Some(10), Some(20)).is_covered_by(&next(Some(10), None)));
    }
}

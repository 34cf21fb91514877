//! Points in time and durations. Nothing here reads a clock: `now` is always an argument.
//!
//! There are two clocks, each with its own type, so that they cannot be mixed up. Leases use the wall clock, as the
//! server's expiry does: [`Timestamp`]. Everything else uses the monotonic clock: [`Instant`].

use std::cell::Cell;
use std::num::NonZeroU64;

/// A point in time: milliseconds since the Unix epoch, 1 to 2^63 - 1, the range of the server's deadlines.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp(NonZeroU64);

impl Timestamp {
    /// The point `ms` milliseconds after the epoch; clamped to 1 ..= 2^63 - 1.
    #[inline]
    pub fn from_ms(ms: u64) -> Timestamp {
        Timestamp(NonZeroU64::new(ms.min(i64::MAX as u64)).unwrap_or(NonZeroU64::MIN))
    }

    /// Milliseconds since the epoch.
    pub fn ms(self) -> u64 {
        self.0.get()
    }

    /// Milliseconds as the server's signed integer.
    pub fn signed_ms(self) -> i64 {
        i64::try_from(self.ms()).expect("a timestamp is at most 2^63 - 1")
    }

    /// This point, `ms` milliseconds later.
    #[inline]
    pub fn plus_ms(self, ms: u64) -> Timestamp {
        Timestamp::from_ms(self.ms().saturating_add(ms))
    }

    /// Milliseconds from `earlier` to this point; 0 if `earlier` is later.
    pub fn ms_since(self, earlier: Timestamp) -> u64 {
        self.ms().saturating_sub(earlier.ms())
    }
}

/// A point on the monotonic clock: milliseconds since an arbitrary start.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Instant(u64);

impl Instant {
    /// The clock's start, which is never later than now.
    pub const START: Instant = Instant(0);

    /// The point `ms` milliseconds after the clock's start.
    pub fn from_ms(ms: u64) -> Instant {
        Instant(ms)
    }

    /// Milliseconds since the clock's start.
    pub fn ms(self) -> u64 {
        self.0
    }

    /// This point, `ms` milliseconds later.
    pub fn plus_ms(self, ms: u64) -> Instant {
        Instant(self.0.saturating_add(ms))
    }

    /// Milliseconds from `earlier` to this point; 0 if `earlier` is later.
    pub fn ms_since(self, earlier: Instant) -> u64 {
        self.0.saturating_sub(earlier.0)
    }
}

/// The time of a decision by both clocks, each read at most once and only if needed. Also counts the work done in the
/// current time slice: the host ends the slice, and the remaining work is left for the next event-loop iteration.
#[derive(Debug)]
pub struct Now {
    wall: Reading,
    monotonic: Reading,
    /// The units of work done; `None` once the slice is spent.
    units: Cell<Option<u32>>,
    is_over: fn(u32) -> bool,
}

impl Now {
    /// Reads the time from these clocks when it is first needed: microseconds since the epoch, and since an arbitrary
    /// start.
    #[inline]
    pub fn by(wall: fn() -> u64, monotonic: fn() -> u64) -> Now {
        Now {
            wall: Reading::of(wall),
            monotonic: Reading::of(monotonic),
            units: Cell::new(Some(0)),
            is_over: |_| false,
        }
    }

    /// Limits the time slice: `is_over` gets the units of work done, and returns whether the slice is spent.
    #[inline]
    pub fn within(self, is_over: fn(u32) -> bool) -> Now {
        Now { is_over, ..self }
    }

    /// Uses a monotonic time that has already been read.
    #[inline]
    pub fn read_at(self, monotonic_us: u64) -> Now {
        self.monotonic.us.set(Some(monotonic_us));
        self
    }

    /// Starts the time slice, before any unit of work is done.
    pub fn begin_slice(&self) {
        _ = self.charge_budget();
    }

    /// Counts a unit of work (a waiter served or replied to, a hold ended, a timer handled). Returns whether the slice
    /// is spent: the caller then leaves the remaining work for the next iteration, so that the server is not blocked. A
    /// spent slice stays spent.
    pub fn charge_budget(&self) -> bool {
        let units = self.units.get().and_then(|units| units.checked_add(1));
        let left = units.filter(|units| !(self.is_over)(*units));
        self.units.set(left);
        left.is_none()
    }

    /// Microseconds since the epoch.
    #[inline]
    pub fn us(&self) -> u64 {
        self.wall.us()
    }

    /// Milliseconds since the epoch.
    #[inline]
    pub fn timestamp(&self) -> Timestamp {
        Timestamp::from_ms(self.us() / 1000)
    }

    /// The time on the monotonic clock.
    pub fn instant(&self) -> Instant {
        Instant::from_ms(self.monotonic.us() / 1000)
    }
}

/// A clock that is read once.
#[derive(Debug)]
struct Reading {
    clock: fn() -> u64,
    us: Cell<Option<u64>>,
}

impl Reading {
    #[inline]
    fn of(clock: fn() -> u64) -> Reading {
        Reading { clock, us: Cell::new(None) }
    }

    #[inline]
    fn us(&self) -> u64 {
        self.us.get().unwrap_or_else(|| {
            let us = (self.clock)();
            self.us.set(Some(us));
            us
        })
    }
}

/// How long a request may wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WaitLimit {
    /// That many milliseconds.
    Ms(NonZeroU64),
    /// Until it is granted.
    Unlimited,
}

impl WaitLimit {
    /// When a wait that starts now times out; `None` if never.
    pub fn until(self, now: Instant) -> Option<Instant> {
        match self {
            WaitLimit::Ms(ms) => Some(now.plus_ms(ms.get())),
            WaitLimit::Unlimited => None,
        }
    }
}

/// When a lease or key expires. Ordered, with `Never` as the latest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Deadline {
    /// At the end of this millisecond.
    At(Timestamp),
    /// It never expires.
    Never,
}

impl Deadline {
    /// Whether it has passed: from the first millisecond after it, as in the server's own expiry (`now > when`).
    pub fn has_passed(self, now: Timestamp) -> bool {
        matches!(self, Deadline::At(timestamp) if now > timestamp)
    }

    /// The timestamp, if there is one.
    pub fn timestamp(self) -> Option<Timestamp> {
        match self {
            Deadline::At(timestamp) => Some(timestamp),
            Deadline::Never => None,
        }
    }

    /// Milliseconds left, or -1 if there is no limit, as in the reply to `PTTL`.
    pub fn ttl_ms(self, now: Timestamp) -> i64 {
        match self {
            Deadline::At(timestamp) => i64::try_from(timestamp.ms_since(now)).expect("no timestamps are 2^63 ms apart"),
            Deadline::Never => -1,
        }
    }
}

/// The length of a lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lease {
    /// That many milliseconds.
    Ms(NonZeroU64),
    /// Without an expiry.
    Persist,
}

impl Lease {
    /// The deadline of a lease of this length that starts now.
    #[inline]
    pub fn from(self, now: Timestamp) -> Deadline {
        match self {
            Lease::Ms(ms) => Deadline::At(now.plus_ms(ms.get())),
            Lease::Persist => Deadline::Never,
        }
    }

    /// Milliseconds, or -1 if there is no limit.
    pub fn as_ms(self) -> i64 {
        match self {
            Lease::Ms(ms) => i64::try_from(ms.get()).unwrap_or(i64::MAX),
            Lease::Persist => -1,
        }
    }

    /// The inverse of [`Lease::as_ms`]; `None` for a number that it never returns.
    pub fn from_ms(ms: i64) -> Option<Lease> {
        match ms {
            -1 => Some(Lease::Persist),
            ms => u64::try_from(ms).ok().and_then(NonZeroU64::new).map(Lease::Ms),
        }
    }

    /// Milliseconds between two renewals by the server: a third of the lease, at least one.
    pub fn third_ms(self) -> Option<u64> {
        match self {
            Lease::Ms(ms) => Some((ms.get() / 3).max(1)),
            Lease::Persist => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lease_has_expired_one_millisecond_after_its_deadline() {
        let deadline = Lease::from_ms(10).unwrap().from(Timestamp::from_ms(100));
        assert!(!deadline.has_passed(Timestamp::from_ms(110)));
        assert!(deadline.has_passed(Timestamp::from_ms(111)));
        assert!(!Deadline::Never.has_passed(Timestamp::from_ms(u64::MAX)));
        assert!(deadline < Deadline::Never);
    }

    #[test]
    fn no_timestamp_is_later_than_the_server_can_store() {
        let longest = Lease::from_ms(i64::MAX).unwrap().from(Timestamp::from_ms(u64::MAX));
        assert_eq!(longest.timestamp().unwrap().ms(), i64::MAX as u64);
    }

    #[test]
    fn only_minus_one_and_positive_numbers_are_lease_lengths() {
        for ms in [-1, 1, 30_000, i64::MAX] {
            assert_eq!(Lease::from_ms(ms).unwrap().as_ms(), ms);
        }
        for ms in [0, -2, i64::MIN] {
            assert_eq!(Lease::from_ms(ms), None);
        }
    }

    #[test]
    fn a_lease_has_a_time_left_and_a_session_renews_it_after_a_third() {
        let (lease, now) = (Lease::from_ms(9_000).unwrap(), Timestamp::from_ms(1_000));
        assert_eq!(lease.from(now).timestamp().map(Timestamp::ms), Some(10_000));
        assert_eq!(lease.from(now).ttl_ms(Timestamp::from_ms(4_000)), 6_000);
        assert_eq!(lease.from(now).ttl_ms(Timestamp::from_ms(11_000)), 0);
        assert_eq!((Deadline::Never.ttl_ms(now), Deadline::Never.timestamp()), (-1, None));
        assert_eq!((lease.third_ms(), Lease::Persist.third_ms()), (Some(3_000), None));
        assert_eq!(Lease::from_ms(2).unwrap().third_ms(), Some(1), "never 0: the timer would fire without end");
        assert_eq!((Timestamp::from_ms(0).ms(), Timestamp::from_ms(5).plus_ms(3).ms()), (1, 8));
        assert_eq!(now.signed_ms(), 1_000);
        assert_eq!((now.ms_since(Timestamp::from_ms(400)), now.ms_since(Timestamp::from_ms(2_000))), (600, 0));
    }

    #[test]
    fn a_wait_times_out_after_its_limit_or_never() {
        let ms = WaitLimit::Ms(NonZeroU64::new(5).unwrap());
        assert_eq!(ms.until(Instant::from_ms(1_000)), Some(Instant::from_ms(1_005)));
        assert_eq!(WaitLimit::Unlimited.until(Instant::from_ms(1_000)), None);
    }

    #[test]
    fn an_instant_measures_the_time_since_an_earlier_one() {
        let instant = Instant::from_ms(1_000);
        assert_eq!(
            (instant.ms(), instant.plus_ms(3).ms(), Instant::from_ms(u64::MAX).plus_ms(3).ms()),
            (1_000, 1_003, u64::MAX)
        );
        assert_eq!((instant.ms_since(Instant::from_ms(400)), instant.ms_since(Instant::from_ms(2_000))), (600, 0));
    }

    #[test]
    fn a_time_slice_is_spent_when_the_host_says_so() {
        // The short slice ends as if its host read the clock only after every third unit.
        let (endless, short) = (Now::by(|| 0, || 0), Now::by(|| 0, || 0).within(|units| units % 3 == 0));
        assert!((0..9).all(|_| !endless.charge_budget()));
        short.begin_slice();
        assert_eq!([0; 3].map(|_| short.charge_budget()), [false, true, true]);
    }

    #[test]
    fn each_clock_is_read_at_most_once_and_only_if_needed() {
        thread_local!(static US: Cell<u64> = const { Cell::new(5_000_000) });
        let now = Now::by(|| US.replace(9_000_000), || US.replace(7_000_000));
        assert_eq!((now.us(), now.us(), now.timestamp().ms()), (5_000_000, 5_000_000, 5_000));
        assert_eq!((now.instant().ms(), now.instant().ms()), (9_000, 9_000));
        assert_eq!(US.get(), 7_000_000);
    }
}

//! The replies of the commands that only inspect: LOCK.HELD, LOCK.INFO, LOCK.WAITERS.
//!
//! The caller gathers the data, and leaves out expired holds; this file only writes them.

use lock::key::ClientId;
use lock::value::claim::{Claim, Family};
use lock::value::fence::Fence;
use lock::value::outcome::Hold;
use lock::value::owner::OwnerRef;
use lock::value::rebuild::FamilyAndLimit;
use lock::value::time::{Deadline, Instant, Timestamp};

use super::number;
use super::reply_writer::ReplyWriter;

/// The ttl in LOCK.INFO of a key that is free, but waited for.
const FREE_TTL: i64 = -2;

/// LOCK.INFO of a key.
#[derive(Clone, Debug)]
pub struct LockInfo<'a> {
    /// Of the lock; of the wait queue where the key is free.
    pub family_and_limit: FamilyAndLimit,
    /// `None`: the key is free, but waited for.
    pub held: Option<HeldInfo<'a>>,
    /// How many wait; a kept place is no waiter.
    pub waiters: usize,
}

/// LOCK.INFO of a lock with holders.
#[derive(Clone, Debug)]
pub struct HeldInfo<'a> {
    /// Of the latest grant on the key.
    pub fence: Fence,
    /// The key's own deadline.
    pub until: Deadline,
    /// The holders that are listed, oldest grant first.
    pub holders: Vec<HolderInfo<'a>>,
    /// How many hold the lock, listed or not.
    pub holding: usize,
}

/// One holder.
#[derive(Clone, Debug)]
pub struct HolderInfo<'a> {
    /// How it holds the lock.
    pub hold: Hold<'a>,
    /// The connection that the hold is bound to.
    pub session: Option<ClientId>,
}

/// A queued request in LOCK.WAITERS.
#[derive(Clone, Debug)]
pub struct WaiterInfo<'a> {
    /// The owner that shall hold.
    pub owner: OwnerRef<'a>,
    /// What it shall hold.
    pub claim: Claim,
    /// The connection that waits; `None` where it is not known any more.
    pub client: Option<ClientId>,
    /// That connection's address, `ip:port`; empty where it is not known.
    pub address: String,
    /// When it was queued.
    pub since: Instant,
    /// When the client stops waiting; `None`: never.
    pub until: Option<Instant>,
    /// COALESCE was given.
    pub coalesces: bool,
}

/// LOCK.HELD: `[fence, holds, ttl]`, holds of both modes together; nil where the token does not hold the lock.
pub fn held(out: &mut impl ReplyWriter, hold: Option<&Hold<'_>>, now: Timestamp) {
    let Some(hold) = hold else { return out.null() };
    out.array(3);
    out.integer(number::of_fence(hold.fence));
    out.integer(i64::from(hold.holds) + i64::from(hold.reads));
    out.integer(hold.until.ttl_ms(now));
}

/// LOCK.INFO: a map, or nil for a key without holders and waiters. An owner that writes and reads has a row for each
/// mode.
pub fn info(out: &mut impl ReplyWriter, info: Option<&LockInfo<'_>>, now: Timestamp) {
    let Some(info) = info else { return out.null() };
    let FamilyAndLimit { family, limit } = info.family_and_limit;
    let held = info.held.as_ref();
    let rows: Vec<_> = held.iter().flat_map(|held| &held.holders).flat_map(|holder| rows(holder, family)).collect();
    out.map(7);
    text_field(out, "kind", family.word().as_bytes());
    integer_field(out, "limit", i64::from(limit));
    integer_field(out, "fence", held.map_or(0, |held| number::of_fence(held.fence)));
    integer_field(out, "ttl", held.map_or(FREE_TTL, |held| held.until.ttl_ms(now)));
    out.bytes(b"holders");
    out.array(rows.len());
    rows.iter().for_each(|row| row.write(out, now));
    integer_field(out, "waiters", number::of_len(info.waiters));
    integer_field(out, "holding", number::of_len(held.map_or(0, |held| held.holding)));
}

/// LOCK.WAITERS: an array of maps, in the order of the queue.
pub fn waiters<'a>(out: &mut impl ReplyWriter, waiters: impl ExactSizeIterator<Item = WaiterInfo<'a>>, now: Instant) {
    out.array(waiters.len());
    waiters.for_each(|waiter| waiter.write(out, now));
}

/// A hold in one mode.
struct HolderRow<'a> {
    holder: &'a HolderInfo<'a>,
    mode: &'static str,
    holds: u32,
    /// Of a semaphore: -1 for none.
    slot: Option<i64>,
}

fn rows<'a>(holder: &'a HolderInfo<'a>, family: Family) -> impl Iterator<Item = HolderRow<'a>> {
    let mode = match family {
        Family::Mutex | Family::Reentrant => "exclusive",
        Family::ReadWrite => "write",
        Family::Semaphore => "permits",
    };
    let slot = (family == Family::Semaphore).then(|| holder.hold.slot.map_or(-1, |slot| i64::from(slot.number())));
    let modes = [(mode, holder.hold.holds), ("read", holder.hold.reads)];
    modes.into_iter().filter(|(_, holds)| *holds > 0).map(move |(mode, holds)| HolderRow { holder, mode, holds, slot })
}

impl HolderRow<'_> {
    fn write(&self, out: &mut impl ReplyWriter, now: Timestamp) {
        let HolderRow { holder: HolderInfo { hold, session }, mode, holds, slot } = self;
        out.map(8 + usize::from(slot.is_some()));
        text_field(out, "owner", hold.owner.as_bytes());
        text_field(out, "mode", mode.as_bytes());
        integer_field(out, "holds", i64::from(*holds));
        integer_field(out, "fence", number::of_fence(hold.fence));
        integer_field(out, "ttl", hold.until.ttl_ms(now));
        integer_field(out, "lease", hold.lease.as_ms());
        integer_field(out, "age", number::of_ms(hold.age_ms(now)));
        integer_field(out, "session", number::of_client(*session));
        slot.iter().for_each(|slot| integer_field(out, "slot", *slot));
    }
}

impl WaiterInfo<'_> {
    fn write(&self, out: &mut impl ReplyWriter, now: Instant) {
        let permits = match self.claim {
            Claim::Permits { count, .. } => count.number(),
            Claim::Mutex | Claim::Reentrant(_) | Claim::ReadWrite(..) | Claim::Slot { .. } => 1,
        };
        out.map(8);
        text_field(out, "owner", self.owner.as_bytes());
        text_field(out, "mode", self.claim.mode_word().as_bytes());
        integer_field(out, "permits", i64::from(permits));
        integer_field(out, "client", number::of_client(self.client));
        text_field(out, "addr", self.address.as_bytes());
        integer_field(out, "waited", number::of_ms(now.ms_since(self.since)));
        integer_field(out, "remaining", self.until.map_or(-1, |until| number::of_ms(until.ms_since(now))));
        integer_field(out, "coalesce", self.coalesces.into());
    }
}

pub(super) fn text_field(out: &mut impl ReplyWriter, name: &str, value: &[u8]) {
    out.bytes(name.as_bytes());
    out.bytes(value);
}

pub(super) fn integer_field(out: &mut impl ReplyWriter, name: &str, value: i64) {
    out.bytes(name.as_bytes());
    out.integer(value);
}

#[cfg(test)]
mod tests {
    use super::super::recorder::{record, Recorder, Written};
    use super::*;
    use lock::value::claim::{Count, Mode};
    use lock::value::holders::Slot;
    use lock::value::owner::Owner;
    use lock::value::time::Lease;

    fn at(ms: u64) -> Timestamp {
        Timestamp::from_ms(ms)
    }

    fn now() -> Timestamp {
        at(1_000_000)
    }

    /// Granted 5 seconds ago, with 20 of 25 seconds left.
    fn hold(owner: &Owner, holds: u32, reads: u32) -> Hold<'_> {
        let fence = Fence::new(995_000_999).unwrap();
        let (lease, until) = (Lease::from_ms(25_000).unwrap(), Deadline::At(at(1_020_000)));
        Hold { owner, fence, lease, until, holds, reads, slot: None }
    }

    fn owner(name: &str) -> Owner {
        Owner::new(name.as_bytes()).unwrap()
    }

    fn text_field(name: &str, value: &str) -> Vec<Written> {
        vec![name.into(), value.into()]
    }

    fn integer_field(name: &str, value: i64) -> Vec<Written> {
        vec![name.into(), value.into()]
    }

    /// The rows of [`hold`].
    fn holder_row(owner: &str, mode: &str, holds: i64, session: i64) -> Vec<Written> {
        [
            vec![Written::Map(8)],
            text_field("owner", owner),
            text_field("mode", mode),
            integer_field("holds", holds),
            integer_field("fence", 995_000_999),
            integer_field("ttl", 20_000),
            integer_field("lease", 25_000),
            integer_field("age", 5_000),
            integer_field("session", session),
        ]
        .concat()
    }

    /// The same with a field more, if there is a slot.
    fn with_slot(mut row: Vec<Written>, slot: Option<i64>) -> Vec<Written> {
        if let Some(slot) = slot {
            row[0] = Written::Map(9);
            row.extend(integer_field("slot", slot));
        }
        row
    }

    fn info_of<'a>(family: Family, limit: u32, holders: Vec<HolderInfo<'a>>) -> LockInfo<'a> {
        let (fence, until) = (Fence::new(996_000_000).unwrap(), Deadline::At(at(1_030_000)));
        let held = HeldInfo { fence, until, holders, holding: 5 };
        let family_and_limit = FamilyAndLimit::new(family, limit).unwrap();
        LockInfo { family_and_limit, held: Some(held), waiters: 3 }
    }

    fn written(lock_info: &LockInfo<'_>) -> Vec<Written> {
        record(|out| info(out, Some(lock_info), now()))
    }

    /// The reply to LOCK.INFO of [`info_of`].
    fn map(kind: &str, limit: i64, rows: &[Vec<Written>]) -> Vec<Written> {
        [
            vec![Written::Map(7)],
            text_field("kind", kind),
            integer_field("limit", limit),
            integer_field("fence", 996_000_000),
            integer_field("ttl", 30_000),
            vec!["holders".into(), Written::Array(rows.len())],
            rows.concat(),
            integer_field("waiters", 3),
            integer_field("holding", 5),
        ]
        .concat()
    }

    #[test]
    fn held_tells_fence_holds_and_time_to_live() {
        let owner = owner("t");
        let cases = [(hold(&owner, 1, 0), 1), (hold(&owner, 2, 3), 5), (hold(&owner, 0, 1), 1)];
        for (hold, holds) in cases {
            let expected = [Written::Array(3), 995_000_999.into(), holds.into(), 20_000.into()];
            assert_eq!(record(|out| held(out, Some(&hold), now())), expected);
        }
        let for_ever = Hold { until: Deadline::Never, ..hold(&owner, 1, 0) };
        let expected = [Written::Array(3), 995_000_999.into(), 1.into(), (-1).into()];
        assert_eq!(record(|out| held(out, Some(&for_ever), now())), expected);
        let most = hold(&owner, u32::MAX, u32::MAX);
        assert_eq!(record(|out| held(out, Some(&most), now()))[2], Written::Integer(8_589_934_590));
    }

    #[test]
    fn held_is_nil_where_nothing_is_held() {
        assert_eq!(record(|out| held(out, None, now())), [Written::Null]);
    }

    #[test]
    fn info_tells_the_mode_of_each_family() {
        let owner = owner("t");
        let cases = [
            (Family::Mutex, 1, "mutex", "exclusive"),
            (Family::Reentrant, 1, "reentrant", "exclusive"),
            (Family::ReadWrite, 0, "rw", "write"),
            (Family::Semaphore, 5, "semaphore", "permits"),
        ];
        for (family, limit, kind, mode) in cases {
            let holder = HolderInfo { hold: hold(&owner, 2, 0), session: Some(ClientId(9)) };
            let slot = (family == Family::Semaphore).then_some(-1);
            let rows = [with_slot(holder_row("t", mode, 2, 9), slot)];
            assert_eq!(written(&info_of(family, limit, vec![holder])), map(kind, i64::from(limit), &rows));
        }
    }

    #[test]
    fn info_tells_the_slot_of_each_holder_of_a_semaphore() {
        let owner = owner("t");
        let hold = Hold { slot: Slot::new(4), ..hold(&owner, 1, 0) };
        let rows = [with_slot(holder_row("t", "permits", 1, 0), Some(4))];
        let info = info_of(Family::Semaphore, 5, vec![HolderInfo { hold, session: None }]);
        assert_eq!(written(&info), map("semaphore", 5, &rows));
    }

    #[test]
    fn info_has_a_row_for_each_mode_of_each_holder_in_their_order() {
        let (a, b) = (owner("a"), owner("b"));
        let holders = vec![
            HolderInfo { hold: hold(&b, 2, 3), session: Some(ClientId(9)) },
            HolderInfo { hold: hold(&a, 0, 1), session: None },
        ];
        let rows = [holder_row("b", "write", 2, 9), holder_row("b", "read", 3, 9), holder_row("a", "read", 1, 0)];
        assert_eq!(written(&info_of(Family::ReadWrite, 0, holders)), map("rw", 0, &rows));
    }

    #[test]
    fn info_tells_no_deadline_as_minus_one() {
        let owner = owner("t");
        let hold = Hold { lease: Lease::Persist, until: Deadline::Never, ..hold(&owner, 1, 0) };
        let mut info = info_of(Family::Mutex, 1, vec![HolderInfo { hold, session: None }]);
        info.held.as_mut().unwrap().until = Deadline::Never;
        let minus_one: Vec<_> = written(&info)
            .windows(2)
            .filter(|field| field[1] == Written::Integer(-1))
            .map(|field| field[0].clone())
            .collect();
        assert_eq!(minus_one, ["ttl".into(), "ttl".into(), "lease".into()]);
    }

    #[test]
    fn info_of_a_key_that_is_free_but_waited_for_has_no_holders() {
        let info =
            LockInfo { family_and_limit: FamilyAndLimit::new(Family::Semaphore, 4).unwrap(), held: None, waiters: 2 };
        let expected = [
            vec![Written::Map(7)],
            text_field("kind", "semaphore"),
            integer_field("limit", 4),
            integer_field("fence", 0),
            integer_field("ttl", -2),
            vec!["holders".into(), Written::Array(0)],
            integer_field("waiters", 2),
            integer_field("holding", 0),
        ];
        assert_eq!(written(&info), expected.concat());
    }

    #[test]
    fn info_is_nil_without_holders_and_waiters() {
        assert_eq!(record(|out| info(out, None, now())), [Written::Null]);
    }

    #[test]
    fn waiters_are_told_in_their_order() {
        let waiter = |name, claim, client, until| WaiterInfo {
            owner: OwnerRef::new(name).unwrap(),
            claim,
            client,
            address: "127.0.0.1:5".into(),
            since: Instant::from_ms(998_000),
            until,
            coalesces: claim == Claim::Mutex,
        };
        let permits = Claim::Permits { limit: 5, count: Count::Step(3) };
        let read = Claim::ReadWrite(Mode::Read, Count::Exactly(2));
        let queue = vec![
            waiter(b"b", permits, Some(ClientId(9)), Some(Instant::from_ms(1_004_000))),
            waiter(b"a", read, None, None),
            waiter(b"c", Claim::Mutex, None, Some(Instant::from_ms(999_999))),
        ];
        let row = |owner: &str, mode: &str, permits, client, remaining, coalesce| {
            [
                vec![Written::Map(8)],
                text_field("owner", owner),
                text_field("mode", mode),
                integer_field("permits", permits),
                integer_field("client", client),
                text_field("addr", "127.0.0.1:5"),
                integer_field("waited", 2_000),
                integer_field("remaining", remaining),
                integer_field("coalesce", coalesce),
            ]
            .concat()
        };
        let expected = [
            vec![Written::Array(3)],
            row("b", "permits", 3, 9, 4_000, 0),
            row("a", "read", 1, 0, -1, 0),
            row("c", "exclusive", 1, 0, 0, 1),
        ];
        assert_eq!(record(|out| waiters(out, queue.into_iter(), Instant::from_ms(1_000_000))), expected.concat());
    }

    #[test]
    fn no_waiters_are_an_empty_array() {
        let nobody = |out: &mut Recorder| waiters(out, std::iter::empty(), Instant::from_ms(1_000_000));
        assert_eq!(record(nobody), [Written::Array(0)]);
    }
}

//! The replies that list locks: LOCK.SCAN, LOCK.TOP.
//!
//! The caller finds the locks, and leaves out hidden ones; this file only writes them.

use lock::value::claim::Family;
use lock::value::owner::Owner;
use lock::value::time::{Deadline, Timestamp};

use super::inspect::{integer_field, text_field};
use super::number;
use super::reply_writer::ReplyWriter;

/// A lock in LOCK.SCAN.
#[derive(Clone, Debug)]
pub struct ScannedLock {
    /// The key.
    pub key: Vec<u8>,
    /// Of the lock.
    pub family: Family,
    /// The first holder: the owner with the smallest fence.
    pub owner: Owner,
    /// How many hold it.
    pub holders: usize,
    /// The key's own deadline.
    pub until: Deadline,
    /// How many wait; a kept place is no waiter.
    pub waiters: usize,
}

/// A waited-for key in LOCK.TOP.
#[derive(Clone, Debug)]
pub struct TopLock<'a> {
    /// The database.
    pub db: i32,
    /// The key.
    pub key: &'a [u8],
    /// Of the lock; of the wait queue where the key is free.
    pub family: Family,
    /// How many wait; a kept place is no waiter.
    pub waiters: usize,
    /// How long the longest wait lasts.
    pub longest_ms: u64,
    /// Its first holder; `None`: it is free.
    pub holder: Option<FirstHolder>,
}

/// The holder with the smallest fence.
#[derive(Clone, Debug)]
pub struct FirstHolder {
    /// The holder.
    pub owner: Owner,
    /// For how long.
    pub held_ms: u64,
}

/// LOCK.SCAN: the next cursor, and an array of maps.
pub fn scanned(out: &mut impl ReplyWriter, cursor: &[u8], locks: &[ScannedLock], now: Timestamp) {
    out.array(2);
    out.bytes(cursor);
    out.array(locks.len());
    for lock in locks {
        out.map(6);
        text_field(out, "key", &lock.key);
        text_field(out, "kind", lock.family.word().as_bytes());
        text_field(out, "owner", lock.owner.as_bytes());
        integer_field(out, "holders", number::of_len(lock.holders));
        integer_field(out, "ttl", lock.until.ttl_ms(now));
        integer_field(out, "waiters", number::of_len(lock.waiters));
    }
}

/// LOCK.TOP: an array of maps.
pub fn top(out: &mut impl ReplyWriter, locks: &[TopLock<'_>]) {
    out.array(locks.len());
    for lock in locks {
        out.map(7);
        integer_field(out, "db", i64::from(lock.db));
        text_field(out, "key", lock.key);
        text_field(out, "kind", lock.family.word().as_bytes());
        integer_field(out, "waiters", number::of_len(lock.waiters));
        integer_field(out, "longest", number::of_ms(lock.longest_ms));
        match &lock.holder {
            Some(holder) => text_field(out, "holder", holder.owner.as_bytes()),
            None => {
                out.bytes(b"holder");
                out.null();
            }
        }
        integer_field(out, "held", lock.holder.as_ref().map_or(-1, |holder| number::of_ms(holder.held_ms)));
    }
}

#[cfg(test)]
mod tests {
    use super::super::recorder::{record, Written};
    use super::*;

    fn owner(name: &str) -> Owner {
        Owner::new(name.as_bytes()).unwrap()
    }

    fn fields(fields: &[(&str, Written)]) -> Vec<Written> {
        let fields = fields.iter().flat_map(|(name, value)| [Written::from(*name), value.clone()]);
        [Written::Map(fields.clone().count() / 2)].into_iter().chain(fields).collect()
    }

    #[test]
    fn scan_tells_the_next_cursor_and_a_map_for_each_lock() {
        let lock = |key: &str, until| ScannedLock {
            key: key.into(),
            family: Family::Semaphore,
            owner: owner("a"),
            holders: 3,
            until,
            waiters: 2,
        };
        let locks = [lock("k", Deadline::At(Timestamp::from_ms(1_700))), lock("l", Deadline::Never)];
        let map = |key: &str, ttl: i64| {
            fields(&[
                ("key", key.into()),
                ("kind", "semaphore".into()),
                ("owner", "a".into()),
                ("holders", 3.into()),
                ("ttl", ttl.into()),
                ("waiters", 2.into()),
            ])
        };
        let written = record(|out| scanned(out, b"17", &locks, Timestamp::from_ms(1_000)));
        let expected = [vec![Written::Array(2), "17".into(), Written::Array(2)], map("k", 700), map("l", -1)];
        assert_eq!(written, expected.concat());
        let written = record(|out| scanned(out, b"0", &[], Timestamp::from_ms(1_000)));
        assert_eq!(written, [Written::Array(2), "0".into(), Written::Array(0)]);
    }

    #[test]
    fn top_tells_a_map_for_each_lock_with_no_holder_where_it_is_free() {
        let lock = |holder| TopLock { db: 3, key: b"k", family: Family::ReadWrite, waiters: 2, longest_ms: 9, holder };
        let map = |holder: Written, held: i64| {
            fields(&[
                ("db", 3.into()),
                ("key", "k".into()),
                ("kind", "rw".into()),
                ("waiters", 2.into()),
                ("longest", 9.into()),
                ("holder", holder),
                ("held", held.into()),
            ])
        };
        let locks = [lock(Some(FirstHolder { owner: owner("a"), held_ms: 70 })), lock(None)];
        let expected = [vec![Written::Array(2)], map("a".into(), 70), map(Written::Null, -1)];
        assert_eq!(record(|out| top(out, &locks)), expected.concat());
    }
}

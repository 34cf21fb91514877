//! The entries of LOCK.LOG: the newest ones, kept in memory as in SLOWLOG. Their number is bounded by lock.log-max-len.
//! Their size is bounded too. An owner ID, at most 1,024 bytes, is kept whole, because LOCK.BREAK and LOCK.CANCEL take
//! it as an argument. A key's name is truncated to the same length.

use std::collections::VecDeque;

use lock::key::{ClientId, KeyRef};
use lock::value::owner::Owner;
use lock::value::time::Timestamp;

/// A longer key name is truncated to this length.
const MAX_KEY_BYTES: usize = 1024;

/// The event of a log entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogEvent {
    /// A hold that lasted longer than lock.log-hold has ended.
    Hold,
    /// A request that waited longer than lock.log-wait was granted.
    Wait,
    /// A lease expired while requests waited for the key.
    Expired,
    /// LOCK.BREAK.
    Broken,
    /// A request was refused because it would have deadlocked.
    Deadlock,
    /// A grant that no client received.
    Undelivered,
    /// A translated command would have ended a hold granted by `LOCK.*`.
    Protected,
}

impl LogEvent {
    /// The event's name in LOCK.LOG.
    pub const fn word(self) -> &'static str {
        match self {
            LogEvent::Hold => "hold",
            LogEvent::Wait => "wait",
            LogEvent::Expired => "expired",
            LogEvent::Broken => "broken",
            LogEvent::Deadlock => "deadlock",
            LogEvent::Undelivered => "undelivered",
            LogEvent::Protected => "protected",
        }
    }
}

/// An entry of the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogEntry {
    /// A sequence number.
    pub id: u64,
    /// When it happened.
    pub time: Timestamp,
    /// The event.
    pub event: LogEvent,
    /// Its database.
    pub db: i32,
    /// Its key, possibly truncated.
    pub key: Box<[u8]>,
    /// The holder, or the owner of the request.
    pub owner: Box<[u8]>,
    /// How long the lock was held or waited for, in milliseconds.
    pub ms: u64,
    /// The number of requests that waited for the key.
    pub waiters: usize,
    /// The connection concerned, with its address, `ip:port`; `None` if there is none or it is no longer known.
    pub client: Option<(ClientId, String)>,
}

/// A new entry.
#[derive(Debug)]
pub struct NewEntry<'a> {
    /// When it happened.
    pub time: Timestamp,
    /// The event.
    pub event: LogEvent,
    /// Its key.
    pub key: KeyRef<'a>,
    /// The holder, or the owner of the request.
    pub owner: &'a Owner,
    /// How long the lock was held or waited for, in milliseconds.
    pub ms: u64,
    /// The number of requests that waited for the key.
    pub waiters: usize,
    /// The connection concerned, with its address.
    pub client: Option<(ClientId, String)>,
}

/// The entries, the newest first.
#[derive(Debug, Default)]
pub struct LockLog {
    entries: VecDeque<LogEntry>,
    /// The id of the next entry; a reset does not change it.
    next_id: u64,
}

impl LockLog {
    /// Adds an entry, and removes the oldest ones beyond `max_len`.
    pub fn add(&mut self, entry: NewEntry<'_>, max_len: usize) {
        let NewEntry { time, event, key, owner, ms, waiters, client } = entry;
        let id = self.next_id;
        self.next_id += 1;
        self.entries.truncate(max_len.saturating_sub(1));
        if max_len > 0 {
            let (key, db, owner) = (truncated(key.name), key.db, owner.as_bytes().into());
            self.entries.push_front(LogEntry { id, time, event, db, key, owner, ms, waiters, client });
        }
    }

    /// Removes the oldest entries beyond `max_len`.
    pub fn trim(&mut self, max_len: usize) {
        self.entries.truncate(max_len);
        self.entries.shrink_to_fit();
    }

    /// Removes all entries.
    pub fn reset(&mut self) {
        self.entries = VecDeque::new();
    }

    /// The newest first.
    pub fn entries(&self) -> impl ExactSizeIterator<Item = &LogEntry> {
        self.entries.iter()
    }
}

/// Truncates a name as SLOWLOG truncates an argument: its beginning, then how many bytes are missing.
fn truncated(name: &[u8]) -> Box<[u8]> {
    match name.split_at_checked(MAX_KEY_BYTES) {
        Some((kept, rest)) if !rest.is_empty() => {
            let more = format!("... ({} more bytes)", rest.len());
            [kept, more.as_bytes()].concat().into()
        }
        _ => name.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn add(log: &mut LockLog, name: &[u8], max_len: usize) {
        let owner = Owner::new(b"a").unwrap();
        let (time, event, key) = (Timestamp::from_ms(5), LogEvent::Hold, KeyRef { db: 0, name });
        log.add(NewEntry { time, event, key, owner: &owner, ms: 1, waiters: 0, client: None }, max_len);
    }

    fn ids(log: &LockLog) -> Vec<u64> {
        log.entries().map(|entry| entry.id).collect()
    }

    #[test]
    fn the_newest_entries_are_kept_and_ids_keep_increasing() {
        let mut log = LockLog::default();
        (0..4).for_each(|_| add(&mut log, b"k", 3));
        assert_eq!((ids(&log), log.entries().len()), (vec![3, 2, 1], 3));
        log.trim(2);
        assert_eq!(ids(&log), [3, 2]);
        log.reset();
        assert_eq!(log.entries().len(), 0);
        add(&mut log, b"k", 3);
        assert_eq!(ids(&log), [4]);
        add(&mut log, b"k", 1);
        assert_eq!(ids(&log), [5]);
        add(&mut log, b"k", 0);
        assert_eq!(log.entries().len(), 0, "a log of no length keeps nothing");
    }

    #[test]
    fn a_long_name_is_truncated_as_in_slowlog() {
        assert_eq!(truncated(&[b'k'; 1024]), [b'k'; 1024].into());
        let cut = truncated(&[b'k'; 1027]);
        assert_eq!(cut.split_at(1024), ([b'k'; 1024].as_slice(), b"... (3 more bytes)".as_slice()));
    }

    #[test]
    fn each_event_has_its_name() {
        let events = [
            (LogEvent::Hold, "hold"),
            (LogEvent::Wait, "wait"),
            (LogEvent::Expired, "expired"),
            (LogEvent::Broken, "broken"),
            (LogEvent::Deadlock, "deadlock"),
            (LogEvent::Undelivered, "undelivered"),
        ];
        events.into_iter().for_each(|(event, word)| assert_eq!(event.word(), word));
    }
}

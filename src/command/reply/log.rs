//! The reply of LOCK.LOG GET: an array of maps, the newest entry first.

use lock::key::ClientId;
use lock::value::time::Timestamp;

use super::inspect::{integer_field, text_field};
use super::number;
use super::reply_writer::ReplyWriter;

/// The event of a log entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogEvent {
    /// A hold that lasted longer than lock.log-hold has ended.
    Hold,
    /// A request that waited longer than lock.log-wait was granted.
    Wait,
    /// A lease has ended while others waited for the key.
    Expired,
    /// LOCK.BREAK.
    Broken,
    /// A request was refused: its waiting would never have ended.
    Deadlock,
    /// A grant that no client received.
    Undelivered,
    /// The server has evicted the key.
    Evicted,
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
            LogEvent::Evicted => "evicted",
        }
    }
}

/// An entry of the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogEntry {
    /// A running number.
    pub id: u64,
    /// When it happened.
    pub time: Timestamp,
    /// The event.
    pub event: LogEvent,
    /// Its database.
    pub db: i32,
    /// Its key; the name may be cut.
    pub key: Box<[u8]>,
    /// The holder, or the owner of the request.
    pub owner: Box<[u8]>,
    /// How long it was held or waited for, in milliseconds.
    pub ms: u64,
    /// How many waited for the key.
    pub waiters: usize,
    /// The connection that this is about; `None`: there is none, or it is not known any more.
    pub client: Option<ClientId>,
    /// Its address, `ip:port`; empty where there is none.
    pub address: String,
}

/// LOCK.LOG GET.
pub fn log<'a>(out: &mut impl ReplyWriter, entries: impl ExactSizeIterator<Item = &'a LogEntry>) {
    out.array(entries.len());
    for entry in entries {
        let LogEntry { id, time, event, db, key, owner, ms, waiters, client, address } = entry;
        out.map(10);
        integer_field(out, "id", number::of_ms(*id));
        integer_field(out, "time", number::of_ms(time.ms()));
        text_field(out, "event", event.word().as_bytes());
        text_field(out, "key", key);
        integer_field(out, "db", i64::from(*db));
        text_field(out, "owner", owner);
        integer_field(out, "ms", number::of_ms(*ms));
        integer_field(out, "waiters", number::of_len(*waiters));
        integer_field(out, "client", number::of_client(*client));
        text_field(out, "addr", address.as_bytes());
    }
}

/// LOCK.LOG LEN.
pub fn log_len(out: &mut impl ReplyWriter, len: usize) {
    out.integer(number::of_len(len));
}

#[cfg(test)]
mod tests {
    use super::super::recorder::{record, Written};
    use super::*;

    #[test]
    fn an_entry_is_a_map_in_the_order_of_the_contract() {
        let entry = LogEntry {
            id: 7,
            time: Timestamp::from_ms(1_000_000),
            event: LogEvent::Hold,
            db: 3,
            key: b"k".as_slice().into(),
            owner: b"a\xff".as_slice().into(),
            ms: 250,
            waiters: 2,
            client: Some(ClientId(9)),
            address: "127.0.0.1:5".into(),
        };
        let other = LogEntry { id: 6, event: LogEvent::Evicted, client: None, address: String::new(), ..entry.clone() };
        let row = |id: i64, event: &str, client: i64, address: &str| -> Vec<Written> {
            let id_and_time = ["id".into(), id.into(), "time".into(), 1_000_000.into()];
            let what = ["event".into(), event.into(), "key".into(), "k".into(), "db".into(), 3.into()];
            let who = ["owner".into(), Written::Bytes(b"a\xff".into()), "ms".into(), 250.into()];
            let rest = ["waiters".into(), 2.into(), "client".into(), client.into(), "addr".into(), address.into()];
            [&[Written::Map(10)][..], &id_and_time, &what, &who, &rest].concat()
        };
        let entries = [entry, other];
        let expected = [vec![Written::Array(2)], row(7, "hold", 9, "127.0.0.1:5"), row(6, "evicted", 0, "")].concat();
        assert_eq!(record(|out| log(out, entries.iter())), expected);
    }

    #[test]
    fn the_log_is_as_long_as_it_is() {
        assert_eq!(record(|out| log_len(out, 3)), [3.into()]);
        assert_eq!(record(|out| log(out, std::iter::empty())), [Written::Array(0)]);
    }

    #[test]
    fn each_event_has_its_word() {
        let events = [
            (LogEvent::Hold, "hold"),
            (LogEvent::Wait, "wait"),
            (LogEvent::Expired, "expired"),
            (LogEvent::Broken, "broken"),
            (LogEvent::Deadlock, "deadlock"),
            (LogEvent::Undelivered, "undelivered"),
            (LogEvent::Evicted, "evicted"),
        ];
        events.into_iter().for_each(|(event, word)| assert_eq!(event.word(), word));
    }
}

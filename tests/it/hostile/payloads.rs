//! RESTORE payloads: a valid lock is restored as written; everything else is refused.

use super::Guard;
use crate::support::payload::{
    reseal, slots, with_format_version, Envelope, StoredHolder, StoredLock, FOOTER, HEADER, KINDS, WITH_SLOTS,
};
use crate::support::{Client, Reply, Rng, Server, LIMIT};
use std::io;

const PAYLOADS: usize = 10_000;

/// The upper bound of fencing tokens: the largest number up to which a double can count.
const FENCES: u64 = 1 << 53;

/// A distant timestamp in milliseconds.
const IN_2100: u64 = 4_102_444_800_000;

const MUTEX: u64 = 0;
const REENTRANT: u64 = 1;
const RW: u64 = 2;
const SEMAPHORE: u64 = 3;

/// The server's clock in microseconds, from which fencing tokens are made.
fn now_us(client: &mut Client) -> u64 {
    let time = client.run("TIME");
    let [seconds, micros] = [0, 1].map(|at| time.items()[at].text().parse::<u64>().expect("a number"));
    seconds * 1_000_000 + micros
}

/// A valid lock of `kind`, with some or many holders if its type allows more than one.
fn random_sound_lock(rng: &mut Rng, kind: u64, latest_fence: u64) -> StoredLock {
    let count = match kind {
        MUTEX | REENTRANT => 1,
        // A few holders are stored without an index, many with one.
        _ => *rng.pick(&[1, 1, 2, 3, 16, 17, 40]),
    };
    let fence = latest_fence - rng.below(1_000_000) as u64;
    let holders: Vec<StoredHolder> = (0..count).map(|n| random_holder(rng, kind, n, count, fence)).collect();
    let limit = match kind {
        MUTEX | REENTRANT => 1,
        RW => 0,
        _ => 1 + rng.below(1_000_000) as u64,
    };
    StoredLock { kind, limit, fence, holders }
}

fn random_holder(rng: &mut Rng, kind: u64, number: usize, count: usize, newest: u64) -> StoredHolder {
    let length = *rng.pick(&[0, 1, 8, 35, 1000]);
    let owner = [&[u8::try_from(number).expect("few holders")][..], &rng.bytes(length)].concat();
    let (holds, reads) = match kind {
        MUTEX => (1, 0),
        RW if count > 1 => (0, 1 + rng.below(5) as u64),
        RW => *rng.pick(&[(1, 0), (3, 2), (0, 1), (u64::from(u32::MAX), 1)]),
        _ => (1 + rng.below(300) as u64, 0),
    };
    StoredHolder {
        owner,
        // The newest grant may be a former holder's, unless there is only one holder.
        fence: if kind == MUTEX || kind == REENTRANT { newest } else { 1 + rng.below(1000) as u64 },
        lease: *rng.pick(&[-1, 1, 30_000, i64::MAX]),
        until: if kind == MUTEX { 0 } else { *rng.pick(&[0, IN_2100, IN_2100 + 1, i64::MAX as u64]) },
        holds,
        reads,
    }
}

fn restore(client: &mut Client, payload: &[u8]) -> Reply {
    client.cmd(&[&b"RESTORE"[..], b"victim", b"0", payload, b"REPLACE"])
}

#[test]
fn every_valid_payload_is_restored_unchanged() {
    let server = Server::start();
    let mut client = server.client();
    let envelope = Envelope::of(&mut client);
    let latest = now_us(&mut client);
    let mut rng = Rng::new(3);
    for round in 0..2_000 {
        let lock = random_sound_lock(&mut rng, round % 4, latest);
        let context = format!("round {round}, seed {}: {lock:?}", rng.seed());
        assert_eq!(restore(&mut client, &envelope.seal(&lock.encode())), Reply::ok(), "{context}");
        let info = client.run("LOCK.INFO victim");
        assert_eq!(info.get("kind").text(), KINDS[lock.kind as usize], "{context}");
        assert_eq!(info.get("limit").int() as u64, lock.limit, "{context}");
        assert_eq!(info.get("fence").int() as u64, lock.fence, "{context}");
        for holder in &lock.holders {
            let held = client.cmd(&[&b"LOCK.HELD"[..], b"victim", &holder.owner]);
            let [fence, holds] = [0, 1].map(|at| held.items()[at].int() as u64);
            assert_eq!((fence, holds), (holder.fence, holder.holds + holder.reads), "{context}");
        }
        let shown = info.get("holders").items().iter().map(|held| held.get("owner").bytes().to_vec());
        assert!(shown.into_iter().all(|owner| lock.holders.iter().any(|holder| holder.owner == owner)), "{context}");
    }
}

/// A change that makes a valid lock impossible.
type Fault = (&'static str, &'static [u64], fn(&mut StoredLock));

const ALL: &[u64] = &[MUTEX, REENTRANT, RW, SEMAPHORE];

#[rustfmt::skip]
const FAULTS: &[Fault] = &[
    ("an unknown lock type", ALL, |lock| lock.kind = 7),
    ("slots that are missing", ALL, |lock| lock.kind = WITH_SLOTS),
    ("a lock type far out of range", ALL, |lock| lock.kind = u64::MAX),
    ("no holders", ALL, |lock| lock.holders.clear()),
    ("no fence", ALL, |lock| lock.fence = 0),
    ("a fence that is no exact double", ALL, |lock| lock.fence = FENCES),
    ("a fence of all bits", ALL, |lock| lock.fence = u64::MAX),
    ("a holder without a fence", ALL, |lock| lock.holders[0].fence = 0),
    ("a holder with a newer fence than the lock", ALL, |lock| lock.holders[0].fence = lock.fence + 1),
    ("an older fence than the only holder's", &[MUTEX, REENTRANT], |lock| lock.fence -= 1),
    ("an owner without a name", ALL, |lock| lock.holders[0].owner.clear()),
    ("an owner of 1025 bytes", ALL, |lock| lock.holders[0].owner = vec![b'o'; 1025]),
    ("an owner twice", &[RW, SEMAPHORE], |lock| {
        lock.holders[0].holds = if lock.kind == RW { 0 } else { 1 };
        lock.holders[0].reads = u64::from(lock.kind == RW);
        lock.holders.truncate(1);
        lock.holders.push(lock.holders[0].clone());
    }),
    ("a second holder", &[MUTEX, REENTRANT], |lock| {
        lock.holders.push(StoredHolder { owner: b"another".to_vec(), ..lock.holders[0].clone() });
    }),
    ("a writer together with a reader", &[RW], |lock| {
        let first = lock.holders[0].clone();
        lock.holders.push(StoredHolder { owner: b"writer".to_vec(), holds: 1, ..first });
    }),
    ("a lease of no time", ALL, |lock| lock.holders[0].lease = 0),
    ("a lease below nothing", ALL, |lock| lock.holders[0].lease = -2),
    ("a deadline beyond all clocks", ALL, |lock| lock.holders[0].until = i64::MAX as u64 + 1),
    ("no holds", &[MUTEX, RW, SEMAPHORE], |lock| (lock.holders[0].holds, lock.holders[0].reads) = (0, 0)),
    ("two holds", &[MUTEX], |lock| lock.holders[0].holds = 2),
    ("holds beyond their size", ALL, |lock| lock.holders[0].holds = u64::from(u32::MAX) + 1),
    ("a read hold in an exclusive lock", &[MUTEX, REENTRANT, SEMAPHORE], |lock| lock.holders[0].reads = 1),
    ("no limit", &[MUTEX, REENTRANT, SEMAPHORE], |lock| lock.limit = 0),
    ("another limit than 1", &[MUTEX, REENTRANT], |lock| lock.limit = 2),
    ("a limit of readers", &[RW], |lock| lock.limit = 1),
    ("a limit beyond its size", ALL, |lock| lock.limit = u64::from(u32::MAX) + 1),
];

#[test]
fn every_invalid_payload_is_rejected() {
    let server = Server::start();
    let mut client = server.client();
    let envelope = Envelope::of(&mut client);
    let latest = now_us(&mut client);
    let mut rng = Rng::new(4);
    for (fault, kinds, spoil) in FAULTS {
        for kind in *kinds {
            for _ in 0..20 {
                let mut lock = random_sound_lock(&mut rng, *kind, latest);
                let good = envelope.seal(&lock.encode());
                spoil(&mut lock);
                let reply = restore(&mut client, &envelope.seal(&lock.encode()));
                assert!(reply.is_error(), "{fault}: {lock:?}");
                assert_eq!(client.run("EXISTS victim"), Reply::Int(0), "{fault}");
                // Shows that the fault causes the refusal.
                assert_eq!(restore(&mut client, &good), Reply::ok(), "without {fault}: {lock:?}");
                assert_eq!(client.run("DEL victim"), Reply::Int(1));
            }
        }
    }
}

#[test]
fn a_lock_with_another_format_version_is_rejected() {
    let server = Server::start();
    let mut client = server.client();
    client.run("LOCK.ACQUIRE k a PERSIST");
    let dump = client.run("DUMP k").bytes().to_vec();
    let (same, own) = with_format_version(dump.clone(), 1);
    assert_eq!((same, own), (dump.clone(), 1));
    for form in [0, 2, 255] {
        let reply = restore(&mut client, &with_format_version(dump.clone(), form).0);
        assert!(reply.is_error(), "form {form}: {reply:?}");
        assert_eq!(client.run("EXISTS victim"), Reply::Int(0), "form {form}");
    }
}

/// The format version is next to the type's name, for each lock and for the last fencing token. A server that finds
/// another one in its RDB file does not start, and logs the version.
#[test]
fn an_rdb_file_with_another_format_version_is_rejected_and_the_version_logged() {
    let mut server = Server::start();
    let mut client = server.client();
    client.run("LOCK.ACQUIRE k a PERSIST");
    let dump = client.run("DUMP k").bytes().to_vec();
    assert_eq!(client.run("SAVE"), Reply::ok());
    server.kill();
    let path = server.dir().join("dump.rdb");
    let file = std::fs::read(&path).expect("an RDB file");
    let name_and_version = &dump[2..HEADER];
    let at: Vec<usize> = (0..file.len() - 8).filter(|at| file[*at..*at + 8] == *name_and_version).collect();
    assert_eq!(at.len(), 2, "the last fence and the lock");
    for at in at {
        let mut other = file.clone();
        other[at + 7] = 2;
        // A checksum of 0 means that the file has none.
        let len = other.len();
        other[len - 8..].fill(0);
        std::fs::write(&path, other).expect("the file is put in place");
        let log = server.try_restart().expect_err("it does not start");
        assert!(log.contains("stored in format 2: this version reads format 1"), "{log}");
    }
    std::fs::write(&path, file).expect("the file is put in place");
    server.restart();
    assert_eq!(server.client().run("LOCK.HELD k a").items()[1], Reply::Int(1));
}

#[test]
fn a_slot_is_restored_and_an_impossible_one_is_rejected() {
    let server = Server::start();
    let mut client = server.client();
    let envelope = Envelope::of(&mut client);
    let fence = now_us(&mut client);
    let holder =
        |number: u8, holds| StoredHolder { owner: vec![b'a' + number], fence, lease: -1, until: 0, holds, reads: 0 };
    let payload = |holds: [u64; 3], numbers: &[Option<u64>]| {
        let holders = (0..3).zip(holds).map(|(number, holds)| holder(number, holds)).collect();
        let lock = StoredLock { kind: WITH_SLOTS, limit: 9, fence, holders };
        envelope.seal(&[lock.encode(), slots(numbers)].concat())
    };
    for numbers in [[Some(0), None, Some(7)], [None, None, Some(999_999)], [Some(2), Some(1), Some(0)]] {
        assert_eq!(restore(&mut client, &payload([1, 1, 1], &numbers)), Reply::ok(), "{numbers:?}");
        let info = client.run("LOCK.INFO victim");
        for row in info.get("holders").items() {
            let number = numbers[usize::from(row.get("owner").bytes()[0] - b'a')];
            assert_eq!(row.get("slot").int(), number.map_or(-1, |number| number as i64), "{numbers:?}: {info:?}");
        }
        let free = (0..).find(|number| !numbers.contains(&Some(*number))).expect("one is free");
        let granted = client.run("SEM.ACQUIRE victim newcomer LIMIT 9 SLOT");
        assert_eq!(granted.items()[3].int() as u64, free, "{numbers:?}");
        assert_eq!(client.run("DEL victim"), Reply::Int(1));
    }
    let one = [1, 1, 1];
    for (fault, holds, numbers) in [
        ("two holders of one slot", one, &[Some(1), None, Some(1)][..]),
        ("no slot at all", one, &[None, None, None]),
        ("too few", one, &[Some(0), None]),
        ("too many", one, &[Some(0), None, None, Some(3)]),
        ("none", one, &[]),
        ("a slot beyond the largest LIMIT", one, &[Some(1_000_000), None, None]),
        ("a slot beyond its size", one, &[Some(u64::from(u32::MAX) + 1), None, None]),
        ("a slot with two permits", [2, 1, 1], &[Some(0), None, None]),
    ] {
        assert!(restore(&mut client, &payload(holds, numbers)).is_error(), "{fault}");
    }
    assert!(restore(&mut client, &reseal(payload(one, &[Some(0), None, None]))) == Reply::ok(), "without a fault");
}

#[test]
// Excludes the empty payload, which is the stored form of a lock without holders; see `stored::multiple_holders`.
fn truncated_payloads_and_trailing_bytes_are_rejected() {
    let server = Server::start();
    let mut client = server.client();
    let envelope = Envelope::of(&mut client);
    let latest = now_us(&mut client);
    let mut rng = Rng::new(5);
    for kind in ALL {
        let stored = random_sound_lock(&mut rng, *kind, latest).encode();
        assert_eq!(restore(&mut client, &envelope.seal(&stored)), Reply::ok());
        assert_eq!(client.run("DEL victim"), Reply::Int(1));
        for length in 1..stored.len() {
            assert!(restore(&mut client, &envelope.seal(&stored[..length])).is_error(), "{length} bytes of {stored:?}");
        }
        for extra in [&[0u8][..], &[1], &stored] {
            assert!(restore(&mut client, &envelope.seal(&[&stored, extra].concat())).is_error(), "{extra:?}");
        }
        assert_eq!(client.run("EXISTS victim"), Reply::Int(0));
    }
}

/// A few changes, each of a field to a boundary value or of a byte to any value. More would hardly ever leave a valid
/// lock.
fn mutate(rng: &mut Rng, lock: &StoredLock, other: &StoredLock) -> Vec<u8> {
    let mut lock = lock.clone();
    let (fields, bytes_too) = *rng.pick(&[(0, 1), (1, 0), (1, 0), (1, 1), (2, 0)]);
    for _ in 0..fields {
        change_a_field(rng, &mut lock, other);
    }
    let mut bytes = lock.encode();
    for _ in 0..bytes_too {
        change_a_byte(rng, &mut bytes, &other.encode());
    }
    bytes
}

fn change_a_field(rng: &mut Rng, lock: &mut StoredLock, other: &StoredLock) {
    let edge = *rng.pick(&[0, 1, 2, 3, 0x7f, 0x80, u64::from(u32::MAX), FENCES - 1, i64::MAX as u64, u64::MAX]);
    if lock.holders.is_empty() {
        return lock.holders.clone_from(&other.holders);
    }
    let at = rng.below(lock.holders.len());
    match rng.below(10) {
        0 => lock.kind = other.kind,
        1 => lock.limit = edge,
        2 => lock.fence = edge,
        3 => lock.holders[at].fence = edge,
        4 => lock.holders[at].lease = edge as i64,
        5 => lock.holders[at].until = edge,
        6 => lock.holders[at].holds = edge,
        7 => lock.holders[at].reads = edge,
        8 => drop(lock.holders.remove(at)),
        _ => lock.holders.extend(other.holders.iter().cloned()),
    }
}

fn change_a_byte(rng: &mut Rng, bytes: &mut Vec<u8>, other: &[u8]) {
    if bytes.is_empty() {
        return bytes.extend(other);
    }
    let at = rng.below(bytes.len());
    match rng.below(8) {
        0..=2 => bytes[at] ^= 1 << rng.below(8),
        3 => bytes[at] = *rng.pick(&[0, 1, 2, 0x3f, 0x40, 0x7f, 0x80, 0x81, 0xc0, 0xfe, 0xff]),
        4 => bytes.truncate(at),
        5 => drop(bytes.remove(at)),
        6 => {
            let length = 1 + rng.below(9);
            let extra = rng.bytes(length);
            bytes.splice(at..at, extra);
        }
        _ => {
            // The rest of another lock.
            bytes.truncate(at);
            bytes.extend(other.iter().skip(at));
        }
    }
}

/// Most of them reach the decoder, because the envelope is valid; a fair share of them are valid locks.
#[test]
fn mutated_restore_payloads_leave_the_server_up_and_its_locks_intact() {
    let mut server = Server::start();
    let guard = Guard::new(&server);
    let mut client = server.client();
    let envelope = Envelope::of(&mut client);
    let latest = now_us(&mut client);
    let mut rng = Rng::new(2);
    let seed = rng.seed();
    let (mut accepted, mut refused) = (0, 0);
    for number in 0..PAYLOADS {
        let kind = *rng.pick(ALL);
        let lock = random_sound_lock(&mut rng, kind, latest);
        let kind = *rng.pick(ALL);
        let other = random_sound_lock(&mut rng, kind, latest);
        let mut payload = envelope.seal(&mutate(&mut rng, &lock, &other));
        // Sometimes the envelope is wrong too, but never the type's name, because then nothing would reach the module.
        if rng.one_in(10) {
            let at = HEADER + rng.below(payload.len() - HEADER - FOOTER);
            payload[at] = rng.next_u64().to_le_bytes()[0];
            payload = reseal(payload);
        }
        let ttl = *rng.pick(&[&b"0"[..], b"1000", b"600000"]);
        match restore_and_use(&mut client, &payload, ttl) {
            Ok(true) => accepted += 1,
            Ok(false) => refused += 1,
            Err(error) => panic!("{error}, payload {}, seed {seed}", payload.escape_ascii()),
        }
        if number % 1000 == 999 {
            guard.assert_untouched(&mut server, &format!("payload {number}, seed {seed}"));
            // The server must be able to save and load every accepted lock.
            assert_eq!(client.run("DEBUG RELOAD"), Reply::ok(), "payload {number}, seed {seed}");
            guard.assert_untouched(&mut server, &format!("payload {number}, seed {seed}"));
        }
    }
    assert!(
        accepted > PAYLOADS / 5 && refused > PAYLOADS / 5,
        "{accepted} accepted, {refused} refused: the mutations are no test"
    );
}

/// Restores a payload and, if it is accepted, uses the lock in all ways. Returns whether it was accepted.
fn restore_and_use(client: &mut Client, payload: &[u8], ttl: &[u8]) -> io::Result<bool> {
    client.send(&[&b"RESTORE"[..], b"victim", ttl, payload, b"REPLACE"]);
    if client.try_read(LIMIT)?.is_error() {
        return Ok(false);
    }
    let lines = [
        "LOCK.INFO victim",
        "LOCK.WAITERS victim",
        "LOCK.HELD victim a",
        "MEMORY USAGE victim",
        "DUMP victim",
        "DEBUG DIGEST-VALUE victim",
        "LOCK.ACQUIRE victim b PX 60000",
        "LOCK.ACQUIRE victim a PX 60000",
        "LOCK.RENEW victim a",
        "RLOCK.ACQUIRE victim a",
        "RLOCK.RENEW victim a",
        "RLOCK.RELEASE victim a",
        "RWLOCK.ACQUIRE victim a READ",
        "RWLOCK.ACQUIRE victim a WRITE",
        "RWLOCK.RENEW victim a",
        "RWLOCK.RELEASE victim a READ",
        "SEM.ACQUIRE victim a LIMIT 5",
        "SEM.RENEW victim a",
        "SEM.RELEASE victim a",
        "MLOCK.ACQUIRE 2 victim other a PX 60000",
        "MLOCK.RELEASE 2 victim other a",
        "LOCK.RELEASE victim a",
        "PEXPIRE victim 60000",
        "PERSIST victim",
        "LOCK.INFO victim",
    ];
    for line in lines {
        client.send_line(line);
    }
    for line in lines {
        let reply = client.try_read(LIMIT)?;
        let words = if let Reply::Error(words) = &reply { words.as_str() } else { "" };
        assert!(!words.contains("unknown") && !words.contains("syntax"), "{line}: {reply:?}");
    }
    Ok(true)
}

#[test]
fn the_payloads_built_here_equal_the_servers() {
    let server = Server::start();
    let mut client = server.client();
    let envelope = Envelope::of(&mut client);
    let fence = client.run("LOCK.ACQUIRE k a PERSIST").fence();
    let dump = client.run("DUMP k").bytes().to_vec();
    assert_eq!(reseal(dump.clone()), dump, "the checksum");
    let fence = u64::try_from(fence).expect("a fence is positive");
    assert_eq!(envelope.seal(&StoredLock::mutex("a", fence).encode()), dump);
}

#[test]
fn a_payload_of_another_type_or_none_at_all_is_rejected() {
    let server = Server::start();
    let mut client = server.client();
    client.run("LOCK.ACQUIRE k a").fence();
    let payload = client.run("DUMP k").bytes().to_vec();
    // The name of another type, in the nine bytes after the first.
    let mut foreign = payload.clone();
    foreign[2..HEADER].copy_from_slice(b"\xff\x01\x02\x03\x04\x05\x06\x07");
    for wrong in [reseal(foreign), payload[..payload.len() - 1].to_vec(), Vec::new(), b"nonsense".to_vec()] {
        assert!(restore(&mut client, &wrong).is_error(), "{}", wrong.escape_ascii());
        assert_eq!(client.run("EXISTS victim"), Reply::Int(0));
    }
    assert_eq!(restore(&mut client, &payload), Reply::ok());
}

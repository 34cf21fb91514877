//! Whatever bytes arrive, as arguments or as a RESTORE payload, the server stays up and the locks of others stay as
//! they are. A failure names the seed; `LOCK_TEST_SEED` repeats it.

use crate::support::{Client, Reply, Rng, Server};

const ARGUMENT_LISTS: usize = 10_000;
const PAYLOADS: usize = 10_000;

/// Commands sent before the first reply is read.
const BATCH: usize = 100;

/// Locks that nothing in these tests has the names for.
const GUARDED: &[&str] = &["guarded:mutex", "guarded:forever", "guarded:nested"];

struct Guard {
    run_id: String,
    stored: Vec<(Reply, Reply)>,
}

impl Guard {
    fn new(server: &Server) -> Guard {
        let mut client = server.client();
        client.run("LOCK.ACQUIRE guarded:mutex guard PX 6000000").fence();
        client.run("LOCK.ACQUIRE guarded:forever guard PERSIST").fence();
        client.run("RLOCK.ACQUIRE guarded:nested guard HOLDS 3 PX 6000000").fence();
        Guard {
            run_id: server.info("server").text("run_id").into(),
            stored: GUARDED.iter().map(|key| client.stored(key)).collect(),
        }
    }

    #[track_caller]
    fn assert_untouched(&self, server: &mut Server, what: &str) {
        assert!(server.is_alive(), "the server went down: {what}");
        assert_eq!(server.info("server").text("run_id"), self.run_id, "{what}");
        let mut client = server.client();
        let stored: Vec<_> = GUARDED.iter().map(|key| client.stored(key)).collect();
        assert_eq!(stored, self.stored, "{what}");
    }
}

/// Words that mean something to some command, numbers at every edge, and keys of every type.
const WORDS: &[&str] = &[
    "PX",
    "EX",
    "PERSIST",
    "BLOCK",
    "NOTIFY",
    "SESSION",
    "HOLDS",
    "PERMITS",
    "LIMIT",
    "READ",
    "WRITE",
    "OWNER",
    "MATCH",
    "COUNT",
    "px",
    "bLoCk",
    "*",
    "",
    "-1",
    "0",
    "1",
    "2",
    "3",
    "100",
    "1000",
    "128",
    "129",
    "1000000",
    "1000001",
    "007",
    "+1",
    "1.5",
    "1e3",
    "nan",
    "9007199254740993",
    "9223372036854775807",
    "9223372036854775808",
    "-9223372036854775808",
    "99999999999999999999",
    "a",
    "b",
    "c",
    "k1",
    "k2",
    "k3",
    "string",
    "list",
    "mutex",
    "nested",
    "GET",
    "PING",
    "k:*",
];

fn random_argument(rng: &mut Rng) -> Vec<u8> {
    match rng.below(20) {
        0 => {
            let length = *rng.pick(&[1, 2, 16, 1023, 1024, 1025, 3000]);
            rng.bytes(length)
        }
        1 => rng.next_u64().to_string().into_bytes(),
        _ => rng.pick(WORDS).as_bytes().to_vec(),
    }
}

/// Mostly a well-formed beginning, so that more than the first check is reached.
fn random_request(rng: &mut Rng, command: &str) -> Vec<Vec<u8>> {
    let mut request = vec![command.as_bytes().to_vec()];
    if !rng.one_in(5) {
        request.push(rng.pick(&["k1", "k2", "k3", "mutex", "nested", "string", "2"]).as_bytes().to_vec());
        request.push(rng.pick(&["a", "b", "c", "*", "k1"]).as_bytes().to_vec());
    }
    for _ in 0..rng.below(8) {
        request.push(random_argument(rng));
    }
    shorten_waits(&mut request);
    request
}

/// A request that really waits would hold up the ones behind it: at most a millisecond for each.
fn shorten_waits(request: &mut [Vec<u8>]) {
    for at in 1..request.len() {
        let is_wait = request[at - 1].eq_ignore_ascii_case(b"BLOCK");
        let number = std::str::from_utf8(&request[at]).ok().and_then(|text| text.parse::<i64>().ok());
        if is_wait && number.is_some_and(|ms| ms >= 0) {
            request[at] = b"1".to_vec();
        }
    }
}

/// Every command that the module has registered, whichever that are, internal ones too.
fn module_commands(client: &mut Client) -> Vec<String> {
    let names = client.run("COMMAND LIST FILTERBY MODULE lock");
    let mut names: Vec<String> = names.items().iter().map(|name| name.text().to_string()).collect();
    names.sort_unstable();
    assert!(names.len() >= 8, "{names:?}");
    names
}

#[test]
fn random_arguments_of_every_command_leave_the_server_up_and_its_locks_intact() {
    let mut server = Server::start();
    let guard = Guard::new(&server);
    let commands = module_commands(&mut server.client());
    let mut rng = Rng::new(1);
    let seed = rng.seed();
    for command in &commands {
        let mut client = server.client();
        if rng.one_in(2) {
            client = client.into_resp3();
        }
        let mut sent = 0;
        while sent < ARGUMENT_LISTS {
            // A little of everything lies around for them to meet.
            let mut batch: Vec<Vec<Vec<u8>>> = SCENERY.iter().map(|line| words(line)).collect();
            batch.extend((0..BATCH).map(|_| random_request(&mut rng, command)));
            for request in &batch {
                client.send(request);
            }
            for request in &batch {
                if let Err(error) = client.try_read(crate::support::LIMIT) {
                    panic!("{error} after {request:?}, seed {seed}");
                }
            }
            sent += BATCH;
        }
        guard.assert_untouched(&mut server, &format!("{command}, seed {seed}"));
    }
}

const SCENERY: &[&str] =
    &["SET string v", "DEL k1 k2", "LPUSH list v", "LOCK.ACQUIRE mutex a PX 1000", "RLOCK.ACQUIRE nested a PX 1000"];

fn words(line: &str) -> Vec<Vec<u8>> {
    line.split(' ').map(|word| word.as_bytes().to_vec()).collect()
}

/// The DUMP of locks of every stored shape.
fn payloads(client: &mut Client) -> Vec<Vec<u8>> {
    let long_owner = "o".repeat(1024);
    for request in [
        &["LOCK.ACQUIRE", "p1", "a", "PX", "60000"][..],
        &["LOCK.ACQUIRE", "p2", "a", "PERSIST"],
        &["LOCK.ACQUIRE", "p3", &long_owner],
        &["RLOCK.ACQUIRE", "p4", "a", "HOLDS", "300", "PX", "60000"],
        &["RLOCK.ACQUIRE", "p5", "*", "PERSIST"],
    ] {
        client.cmd(request).fence();
    }
    let dumps = ["p1", "p2", "p3", "p4", "p5"].map(|key| client.cmd(&["DUMP", key]).bytes().to_vec());
    dumps.to_vec()
}

/// A DUMP ends with two bytes of RDB version and eight of checksum.
const FOOTER: usize = 10;
const CHECKSUM: usize = 8;

/// A DUMP of a module's value begins with one byte for that and nine for the type's name and encoding version.
const HEADER: usize = 10;

/// The checksum of Redis, CRC-64/Jones, reflected: <https://github.com/redis/redis/blob/7.0/src/crc64.c>.
fn crc64(bytes: &[u8]) -> u64 {
    const POLYNOMIAL: u64 = 0x95ac_9329_ac4b_c9b5;
    bytes.iter().fold(0, |crc, byte| {
        (0..8).fold(crc ^ u64::from(*byte), |crc, _| if crc & 1 == 1 { (crc >> 1) ^ POLYNOMIAL } else { crc >> 1 })
    })
}

/// Gives a payload a checksum that fits: otherwise the server's own check would stop every mutation.
fn seal(mut payload: Vec<u8>) -> Vec<u8> {
    payload.truncate(payload.len() - CHECKSUM);
    let checksum = crc64(&payload);
    payload.extend(checksum.to_le_bytes());
    payload
}

/// Damages the value, hardly ever the header: a foreign type never reaches the module.
fn mutate(rng: &mut Rng, original: &[u8], other: &[u8]) -> Vec<u8> {
    let mut body = original[..original.len() - FOOTER].to_vec();
    let footer = &original[original.len() - FOOTER..];
    for _ in 0..1 + rng.below(4) {
        let first = if rng.one_in(50) { 1 } else { HEADER.min(body.len()) };
        let at = first + rng.below(body.len().saturating_sub(first).max(1));
        if at >= body.len() {
            break;
        }
        match rng.below(8) {
            0 => body[at] ^= 1 << rng.below(8),
            1 => body[at] = *rng.pick(&[0, 1, 2, 0x3f, 0x40, 0x7f, 0x80, 0x81, 0xc0, 0xfe, 0xff]),
            2 => body[at] = rng.next_u64().to_le_bytes()[0],
            3 => body.truncate(at),
            4 => {
                body.remove(at);
            }
            5 => {
                let length = 1 + rng.below(9);
                let extra = rng.bytes(length);
                body.splice(at..at, extra);
            }
            6 => {
                let copied = body[at..].to_vec();
                body.extend(copied);
            }
            _ => {
                // The rest of another lock, or of the same.
                body.truncate(at);
                body.extend(other[..other.len() - FOOTER].iter().skip(at));
            }
        }
    }
    body.extend(footer);
    seal(body)
}

#[test]
fn the_checksum_here_is_the_servers() {
    let server = Server::start();
    let mut client = server.client();
    for payload in payloads(&mut client) {
        assert_eq!(seal(payload.clone()), payload);
    }
}

#[test]
fn mutated_restore_payloads_leave_the_server_up_and_its_locks_intact() {
    let mut server = Server::start();
    let guard = Guard::new(&server);
    let mut client = server.client();
    let originals = payloads(&mut client);
    let mut rng = Rng::new(2);
    let seed = rng.seed();
    let (mut accepted, mut refused) = (0, 0);
    for number in 0..PAYLOADS {
        let original = rng.pick(&originals).clone();
        let payload = mutate(&mut rng, &original, originals[number % originals.len()].as_slice());
        let ttl = *rng.pick(&[&b"0"[..], b"1000", b"600000"]);
        match restore_and_use(&mut client, &payload, ttl) {
            Ok(true) => accepted += 1,
            Ok(false) => refused += 1,
            Err(error) => panic!("{error}, payload {}, seed {seed}", payload.escape_ascii()),
        }
        if number % 1000 == 999 {
            guard.assert_untouched(&mut server, &format!("payload {number}, seed {seed}"));
            // What was accepted and lies around must be something that the server can save and load.
            assert_eq!(client.run("DEBUG RELOAD"), Reply::ok(), "payload {number}, seed {seed}");
            guard.assert_untouched(&mut server, &format!("payload {number}, seed {seed}"));
        }
    }
    assert!(
        refused > PAYLOADS / 10 && accepted > 0,
        "{refused} refused, {accepted} accepted: the mutations are no test"
    );
}

/// Restores a payload and, if it is accepted, does to it all that one does to a lock. Tells whether it was.
fn restore_and_use(client: &mut Client, payload: &[u8], ttl: &[u8]) -> std::io::Result<bool> {
    client.send(&[&b"RESTORE"[..], b"victim", ttl, payload, b"REPLACE"]);
    if client.try_read(crate::support::LIMIT)?.is_error() {
        return Ok(false);
    }
    let lines = [
        "LOCK.INFO victim",
        "LOCK.HELD victim a",
        "MEMORY USAGE victim",
        "DUMP victim",
        "LOCK.ACQUIRE victim b PX 60000",
        "LOCK.ACQUIRE victim a PX 60000",
        "LOCK.RENEW victim a",
        "RLOCK.ACQUIRE victim a",
        "RLOCK.RENEW victim a",
        "RLOCK.RELEASE victim a",
        "LOCK.RELEASE victim a",
        "LOCK.INFO victim",
    ];
    for line in lines {
        client.send_line(line);
    }
    for _ in lines {
        client.try_read(crate::support::LIMIT)?;
    }
    Ok(true)
}

#[test]
fn a_payload_of_another_type_or_module_is_refused() {
    let server = Server::start();
    let mut client = server.client();
    let payload = payloads(&mut client).swap_remove(0);
    // The name of another type, in the nine bytes behind the first.
    let mut foreign = payload.clone();
    foreign[2..HEADER].copy_from_slice(b"\xff\x01\x02\x03\x04\x05\x06\x07");
    for wrong in [seal(foreign), payload[..payload.len() - 1].to_vec(), Vec::new(), b"nonsense".to_vec()] {
        let reply = client.cmd(&[&b"RESTORE"[..], b"k", b"0", &wrong]);
        assert!(reply.is_error(), "{}", wrong.escape_ascii());
        assert_eq!(client.run("EXISTS k").int(), 0);
    }
    assert_eq!(client.cmd(&[&b"RESTORE"[..], b"k", b"0", &payload]), Reply::ok());
}

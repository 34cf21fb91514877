//! Random arguments of every command that the module has registered.

use super::Guard;
use crate::support::{Client, Reply, Rng, Server, LIMIT};

const ARGUMENT_LISTS: usize = 10_000;

/// The number of commands sent before the first reply is read.
const BATCH: usize = 100;

/// A command that succeeds in fewer than one of this many requests is not tested well by the arguments.
const FAIR_SHARE: usize = 50;

/// Keywords of some commands, numbers at every boundary, and keys of every data type.
#[rustfmt::skip]
const WORDS: &[&str] = &[
    "PX", "EX", "PERSIST", "BLOCK", "NOTIFY", "SESSION", "HOLDS", "PERMITS", "LIMIT", "SLOT", "READ", "WRITE", "OWNER",
    "NX", "XX", "IFEQ", "KEEPTTL", "PXAT", "EXAT", "MATCH", "COUNT", "+1", "1.5", "1e3", "nan", "9007199254740993",
    "9223372036854775807", "9223372036854775808", "-9223372036854775808", "99999999999999999999", "a",
    "b", "c", "k1", "k2", "k3", "string", "list", "mutex",
    "nested", "rw", "permits", "GET", "PING", "k:*", "COALESCE", "FAILED",
];

const KEYS: &[&str] = &["k1", "k2", "k3", "mutex", "nested", "rw", "permits", "string"];
const OWNERS: &[&str] = &["a", "b", "c", "*", "k1"];
const NUMBERS: &[&str] = &["1", "1", "2", "3", "0", "-1", "1000001", "x"];

/// Options of requests for any lock; some of them take a number.
const OPTIONS: &[&str] = &[
    "PX 1000",
    "EX 1",
    "PX 0",
    "PERSIST",
    "BLOCK 1",
    "BLOCK 1 COALESCE",
    "FAILED",
    "SESSION",
    "HOLDS 1",
    "HOLDS 2",
    "PERMITS 2",
    "SLOT",
];

/// Values of every data type for the commands to meet. All except k3 are recreated: on a busy machine a lease may
/// expire within a batch, and what an adopted command then sets under the key stays a string.
const EXISTING: &[&str] = &[
    "SET string v",
    "DEL k1 k2 mutex nested rw permits",
    "LPUSH list v",
    "LOCK.ACQUIRE mutex a PX 1000",
    "RLOCK.ACQUIRE nested a PX 1000",
    "RWLOCK.ACQUIRE rw a READ PX 1000",
    "SEM.ACQUIRE permits a LIMIT 3 PX 1000",
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

/// Usually with a valid beginning, so that more than the first check is reached.
fn random_request(rng: &mut Rng, command: &str) -> Vec<Vec<u8>> {
    // A container and its subcommand.
    let mut request: Vec<Vec<u8>> = command.split('|').map(|word| word.as_bytes().to_vec()).collect();
    if !rng.one_in(5) {
        request.extend(words(&beginning(rng, command)));
    }
    if rng.one_in(3) {
        request.extend(words(rng.pick::<&str>(OPTIONS)));
    }
    for _ in 0..rng.below(8).saturating_sub(3) {
        request.push(random_argument(rng));
    }
    shorten_waits(&mut request);
    request
}

/// The required arguments of a command.
fn beginning(rng: &mut Rng, command: &str) -> String {
    let (key, owner) = (*rng.pick(KEYS), *rng.pick(OWNERS));
    let number = *rng.pick(NUMBERS);
    let mode = *rng.pick(&["READ", "WRITE"]);
    if let Some((_, original)) = command.split_once('|') {
        return adopted_beginning(original, key, owner);
    }
    let (prefix, verb) = command.split_once('.').expect("a command of the module");
    match (prefix, verb) {
        ("mlock", _) => format!("2 {key} {} {owner}", rng.pick(KEYS)),
        ("rwlock", "acquire" | "release") => format!("{key} {owner} {mode}"),
        ("sem", "acquire") => format!("{key} {owner} LIMIT {number}"),
        ("lock", "info" | "waiters" | "break") => key.into(),
        ("lock", "scan") => number.into(),
        ("lock", "top") => format!("COUNT {number}"),
        ("lock", "log") => format!("{} {number}", rng.pick(&["GET", "LEN", "RESET"])),
        ("lock", "adoption") => format!("RETURN {key}"),
        ("lock", "help") => String::new(),
        ("lock", "exec") => format!("{key} {owner} EXISTS {}", rng.pick(KEYS)),
        ("lock", "apply") => format!("{key} DROP {owner}"),
        _ => format!("{key} {owner}"),
    }
}

/// The same for an adopted command.
fn adopted_beginning(original: &str, key: &str, token: &str) -> String {
    match original {
        "get" | "getdel" | "mget" | "delex" | "hlen" | "hkeys" | "hgetall" => key.into(),
        "hset" | "hsetnx" | "hincrby" => format!("{key} {token} 1"),
        "getrange" => format!("{key} 0 -1"),
        "setex" | "psetex" => format!("{key} 1 {token}"),
        _ => format!("{key} {token}"),
    }
}

/// A request that really waits would delay those after it: at most a millisecond each.
fn shorten_waits(request: &mut [Vec<u8>]) {
    for at in 1..request.len() {
        let is_wait = request[at - 1].eq_ignore_ascii_case(b"BLOCK");
        let number = std::str::from_utf8(&request[at]).ok().and_then(|text| text.parse::<i64>().ok());
        if is_wait && number.is_some_and(|ms| ms >= 0) {
            request[at] = b"1".to_vec();
        }
    }
}

fn words(line: &str) -> Vec<Vec<u8>> {
    line.split(' ').map(|word| word.as_bytes().to_vec()).collect()
}

/// Every command that the module has registered, including internal ones.
fn module_commands(client: &mut Client) -> Vec<String> {
    let names = client.run("COMMAND LIST FILTERBY MODULE lock");
    let mut names: Vec<String> = names.items().iter().map(|name| name.text().to_lowercase()).collect();
    names.retain(|name| name.contains('|') || !name.starts_with("lock.adopted"));
    names.sort_unstable();
    assert!(names.len() >= 20, "{names:?}");
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
        let mut accepted = 0;
        for _ in 0..ARGUMENT_LISTS / BATCH {
            let mut batch: Vec<Vec<Vec<u8>>> = EXISTING.iter().map(|line| words(line)).collect();
            batch.extend((0..BATCH).map(|_| random_request(&mut rng, command)));
            for request in &batch {
                client.send(request);
            }
            for (at, request) in batch.iter().enumerate() {
                match client.try_read(LIMIT) {
                    Ok(reply) if at < EXISTING.len() => assert_is_valid(&reply, request),
                    Ok(reply) => accepted += usize::from(!reply.is_error()),
                    Err(error) => panic!("{error} after {request:?}, seed {seed}"),
                }
            }
        }
        guard.assert_untouched(&mut server, &format!("{command}, seed {seed}"));
        if command == "lock.apply" {
            assert_eq!(accepted, 0, "effects come from the master or the AOF only");
        } else {
            assert!(accepted > ARGUMENT_LISTS / FAIR_SHARE, "{accepted} requests of {command} did something");
        }
    }
}

/// A key may hold another data type by now, and the reply says so; a line that the server does not understand is a bug
/// in this test.
#[track_caller]
fn assert_is_valid(reply: &Reply, request: &[Vec<u8>]) {
    let is_wrong =
        matches!(reply, Reply::Error(words) if !words.starts_with("WRONG") && !words.starts_with("DEADLOCK"));
    assert!(!is_wrong, "{reply:?} to {request:?}");
}

//! Every command of the server, with random arguments, as the inner command of LOCK.EXEC. The server stays up, each
//! request gets one reply, and the lock stays as it is unless the command was meant to access it. `LOCK_TEST_EXECS`
//! sets the number of requests.

use super::*;
use crate::support::cluster::single_node_of;
use crate::support::{Rng, Server, LIMIT};

/// The number of requests; every command gets an equal share.
const EXECS: usize = 3_000;

/// The lock under which the commands run. Its name is rarely among their arguments.
const LOCK: &str = "{t}the-lock";
const ACQUIRE: &str = "LOCK.ACQUIRE {t}the-lock holder PERSIST";

/// Commands that are meant to access all keys.
const TOUCH_ALL: &[&str] = &["flushall", "flushdb", "swapdb"];

/// Keys of every data type, created before each pass over all commands.
const EXISTING: &[&str] = &[
    "SET {t}string 7",
    "RPUSH {t}list 1 2 3",
    "SADD {t}set 1 2 3",
    "HSET {t}hash f 1",
    "ZADD {t}zset 1 a 2 b",
    "XADD {t}stream * f v",
    "LOCK.ACQUIRE {t}mutex a PX 60000",
    "SEM.ACQUIRE {t}sem a LIMIT 3 PX 60000",
];

const KEYS: &[&str] =
    &["{t}string", "{t}list", "{t}set", "{t}hash", "{t}zset", "{t}stream", "{t}mutex", "{t}sem", "{t}none", "{u}x"];

/// Keywords of some commands, and numbers; none that would make a value grow to a gigabyte.
#[rustfmt::skip]
const WORDS: &[&str] = &[
    "0", "1", "2", "-1", "10", "1.5", "-inf", "+inf", "(1", "[a", "nan", "99999", "-9223372036854775808",
    "18446744073709551616", "a", "b", "f", "holder", "*", "$", ">", "-", "+", "", "0-0", "ch", "x y", "\0", "\r\n",
    "EX", "PX", "NX", "XX", "GET", "COUNT", "MATCH", "TYPE", "LEFT", "RIGHT", "BEFORE", "MIN", "MAX", "LIMIT", "BY",
    "STORE", "STREAMS", "GROUP", "BLOCK", "WITHSCORES", "WEIGHTS", "KEYS", "REPLACE", "DB", "SYNC", "ASYNC", "FREQ",
    "ENCODING", "HELP", "SET", "u8", "INCRBY", "FROMLONLAT", "BYRADIUS", "m", "ASC", "MAXLEN", "~", "FIELDS",
    "PERSIST", "SESSION", "NOTIFY", "READ", "WRITE", "OWNER", "HOLDS", "PERMITS", "ON", "OFF", "ID", "LEN", "RESET",
];

/// Usually as many as the command requires.
fn arguments(rng: &mut Rng, least: usize) -> Vec<Vec<u8>> {
    let count = match rng.below(10) {
        0 => *rng.pick(&[0, 1, 2, 3, 4, 5, 6, 9]),
        1..=3 => least + rng.below(4),
        _ => least,
    };
    let argument = |rng: &mut Rng, position: usize| match rng.below(40) {
        0 => rng.bytes(20),
        1 => LOCK.into(),
        2..=9 => rng.pick(KEYS).as_bytes().to_vec(),
        10..=24 if position == 0 => rng.pick(KEYS).as_bytes().to_vec(),
        _ => rng.pick(WORDS).as_bytes().to_vec(),
    };
    (0..count).map(|position| argument(rng, position)).collect()
}

/// A command or subcommand: the words of its name, and its minimum number of arguments.
struct Command {
    name: Vec<Vec<u8>>,
    least: usize,
}

/// Every command and subcommand, sorted, because the server's order varies.
fn commands(client: &mut Client) -> Vec<Command> {
    let list = client.run("COMMAND LIST");
    let mut names: Vec<String> = list.items().iter().map(|name| name.text().to_lowercase()).collect();
    names.sort_unstable();
    assert!(names.len() > 300, "{}", names.len());
    let command = |name: &String| {
        let info = client.cmd(&["COMMAND", "INFO", name]);
        let arity = info.items()[0].items()[1].int().unsigned_abs();
        let name: Vec<_> = name.split('|').map(|word| word.as_bytes().to_vec()).collect();
        let least = usize::try_from(arity).expect("a small number").saturating_sub(name.len());
        Command { name, least }
    };
    names.iter().map(command).collect()
}

fn play(mut server: Server, seed: u64) {
    let mut rng = Rng::new(seed);
    let seed = rng.seed();
    let execs = std::env::var("LOCK_TEST_EXECS").map_or(EXECS, |count| count.parse().expect("a number"));
    println!("LOCK_TEST_SEED={seed}, {execs} requests");
    let run_id = server.info("server").text("run_id").to_string();
    let mut clients = [server.client(), server.client3()];
    let commands = commands(&mut clients[0]);
    let (mut ran, mut held) = (0, Reply::Null);
    for (number, command) in (0..execs).zip(commands.iter().cycle()) {
        let client = &mut clients[number % 2];
        if number % commands.len() < 2 {
            client.run(&format!("DEL {}", KEYS[..9].join(" ")));
            EXISTING.iter().for_each(|line| assert!(!client.run(line).is_error(), "{line}"));
            client.run(ACQUIRE).fence();
            held = client.run(&format!("LOCK.HELD {LOCK} holder"));
        }
        let inner = [command.name.clone(), arguments(&mut rng, command.least)].concat();
        let is_held = !rng.one_in(10);
        let owner = if is_held { "holder" } else { "another" };
        let request =
            [["LOCK.EXEC", LOCK, owner].map(|word| word.as_bytes().to_vec()).to_vec(), inner.clone()].concat();
        let shown = || {
            let words: Vec<_> = request.iter().map(|word| word.escape_ascii().to_string()).collect();
            format!("{words:?}, seed {seed}")
        };
        client.send(&request);
        let reply = client.try_read(LIMIT).unwrap_or_else(|error| panic!("{error} after {}", shown()));
        if !is_held {
            let error = reply.error();
            assert!(error == NOT_HELD || error.starts_with("CROSSSLOT "), "{error} to {}", shown());
        }
        ran += usize::from(!reply.is_error());
        client.send_line(&format!("LOCK.HELD {LOCK} holder"));
        let now = client.try_read(LIMIT).unwrap_or_else(|error| panic!("{error} after {}", shown()));
        let is_meant = inner[1..].iter().any(|word| word == LOCK.as_bytes())
            || TOUCH_ALL.iter().any(|name| inner[0] == name.as_bytes());
        if !is_meant {
            assert_eq!(now, held, "{}", shown());
        } else if now != held {
            client.run(&format!("DEL {LOCK}"));
            client.run(ACQUIRE).fence();
            held = client.run(&format!("LOCK.HELD {LOCK} holder"));
        }
    }
    assert!(ran > execs / 20, "{ran} of {execs} commands did something, seed {seed}");
    assert!(server.is_alive());
    assert_eq!(server.info("server").text("run_id"), run_id, "seed {seed}");
}

#[test]
fn every_command_leaves_the_server_up_and_the_lock_intact() {
    play(Server::start(), 1);
}

#[test]
fn in_a_cluster_and_with_an_append_only_file_too() {
    let builder = Server::builder().appendonly().config("appendfsync no");
    // CLUSTER DELSLOTS works as intended: the lock's slot stays.
    play(single_node_of(builder.config("cluster-require-full-coverage no")), 2);
}

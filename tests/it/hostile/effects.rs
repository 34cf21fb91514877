//! Effects in an append-only file: impossible ones are not loaded, and do not prevent the rest from being loaded.

use std::fs::OpenOptions;
use std::io::Write;

use super::{stored, GUARDED};
use crate::support::{Client, Reply, Rng, Server};

const EFFECTS: usize = 20_000;

/// The number of keys for random effects: some get one effect, none gets many.
const VICTIMS: usize = 5_000;

/// The arguments of LOCK.APPLY after the key: holds that some owner can have.
const SOUND: [&[&str]; 11] = [
    &["m 9 30000 4102444800000 a"],
    &["r 9 30000 4102444800000 0 a"],
    &["m 9007199254740991 -1 -1 a b"],
    &["r 9 30000 4102444800000 4294967295 a"],
    &["w 9 30000 4102444800000 0 2 a"],
    &["w 9 30000 4102444800000 3 0 a"],
    &["w 9 30000 4102444800000 3 2 a"],
    &["s 9 30000 4102444800000 3 5 a"],
    &["s 9 30000 4102444800000 5 3 a"],
    &["n 9 30000 4102444800000 0 3 a"],
    &["n 9 30000 4102444800000 999999 1 b"],
];

/// The same for holds that no lock can have, and for effects with a later format version.
const UNSOUND: [&[&str]; 23] = [
    &["m 0 30000 4102444800000 a"],
    &["m 9007199254740992 30000 4102444800000 a"],
    &["m 9 0 4102444800000 a"],
    &["m 9 -2 4102444800000 a"],
    &["m 9 30000 0 a"],
    &["m 9 30000 -2 a"],
    &["m 9 30000 4102444800000 "],
    &["m 9 30000 4102444800000"],
    &["m 9 30000 4102444800000", "a"],
    &["m  9 30000 4102444800000 a"],
    &["M 9 30000 4102444800000 a"],
    &["r 9 30000 4102444800000 4294967296 a"],
    &["w 9 30000 4102444800000 0 0 a"],
    &["w 9 30000 4102444800000 -1 1 a"],
    &["s 9 30000 4102444800000 0 5 a"],
    &["s 9 30000 4102444800000 3 0 a"],
    &["s 9 30000 4102444800000 3 a"],
    &["n 9 30000 4102444800000 1000000 5 a"],
    &["n 9 30000 4102444800000 -1 5 a"],
    &["n 9 30000 4102444800000 0 0 a"],
    &["HOLD", "a", "mutex 1 1 0 9 30000 4102444800000"],
    &["2 m 9 30000 4102444800000 a"],
    &["2", "DROP", "a"],
];

/// Encodes a command as a client would send it.
pub fn command(words: &[&[u8]]) -> Vec<u8> {
    let mut bytes = format!("*{}\r\n", words.len()).into_bytes();
    for word in words {
        bytes.extend(format!("${}\r\n", word.len()).bytes());
        bytes.extend(*word);
        bytes.extend(b"\r\n");
    }
    bytes
}

/// A server that keeps an AOF and has the guarded locks.
fn start() -> Server {
    let server = Server::builder().appendonly().start();
    let mut client = server.client();
    for (_, line) in GUARDED {
        client.run(line).fence();
    }
    server
}

/// Restarts the server with these commands appended to its AOF.
pub fn load(server: &mut Server, commands: &[u8]) {
    server.kill();
    let folder = std::fs::read_dir(server.dir().join("appendonlydir")).expect("the AOF's folder");
    let mut files = folder.map(|file| file.expect("a file").path());
    let file = files.find(|path| path.to_string_lossy().ends_with(".incr.aof")).expect("an incremental AOF");
    let mut file = OpenOptions::new().append(true).open(file).expect("the AOF");
    file.write_all(commands).expect("the AOF grows");
    server.restart();
}

#[test]
fn an_aof_loads_only_possible_locks() {
    let mut server = start();
    let before = stored(&mut server.client());
    let mut commands = Vec::new();
    for (what, effects) in [("sound", &SOUND[..]), ("unsound", &UNSOUND[..])] {
        for (number, effect) in effects.iter().enumerate() {
            let key = format!("{what}:{number}");
            let mut words = vec![&b"LOCK.APPLY"[..], key.as_bytes()];
            words.extend(effect.iter().map(|word| word.as_bytes()));
            commands.extend(command(&words));
        }
    }
    load(&mut server, &commands);
    let mut client = server.client();
    assert_eq!(stored(&mut client), before);
    for (number, effect) in SOUND.iter().enumerate() {
        assert_eq!(client.run(&format!("EXISTS sound:{number}")).int(), 1, "{effect:?}");
    }
    for (number, effect) in UNSOUND.iter().enumerate() {
        assert_eq!(client.run(&format!("EXISTS unsound:{number}")).int(), 0, "{effect:?}");
    }
    assert_eq!(server.info("lock").number("lock_effects_not_applied"), UNSOUND.len() as i64);
    assert_can_be_stored(&mut client, "sound ones");
}

#[test]
fn the_log_shows_the_format_version_of_an_effect_that_is_not_applied() {
    let mut server = start();
    load(&mut server, &command(&[b"LOCK.APPLY", b"k", b"2 m 9 30000 4102444800000 a"]));
    assert_eq!(server.client().run("EXISTS k").int(), 0);
    assert_eq!(server.info("lock").number("lock_effects_not_applied"), 1);
    let expected_line = "effect format 2 is not supported; this version applies format 1";
    assert!(server.log().contains(expected_line), "{}", server.log());
}

/// Checks that an RDB file restores every key.
#[track_caller]
fn assert_can_be_stored(client: &mut Client, what: &str) {
    let keys = client.run("DBSIZE");
    assert_eq!(client.run("DEBUG RELOAD"), Reply::ok(), "{what}");
    assert_eq!(client.run("DBSIZE"), keys, "{what}");
}

fn random_effect(rng: &mut Rng) -> Vec<Vec<u8>> {
    let mut words: Vec<Vec<u8>> = match rng.below(8) {
        0 => vec![b"DROP".to_vec(), b"a".to_vec()],
        5 => vec![b"ENDED".to_vec(), b"4102444800001".to_vec()],
        1 => vec![b"LIMIT".to_vec(), rng.next_u64().to_string().into_bytes()],
        2 => vec![b"CLAMP".to_vec()],
        3 => vec![b"FENCE".to_vec(), (rng.next_u64() >> 10).to_string().into_bytes()],
        4 => rng.pick(&UNSOUND).iter().map(|word| word.as_bytes().to_vec()).collect(),
        _ => rng.pick(&SOUND).iter().map(|word| word.as_bytes().to_vec()).collect(),
    };
    // Most are damaged; the intact ones create values for the others to meet.
    for _ in 0..rng.below(4) {
        let word = rng.below(words.len());
        let word = &mut words[word];
        let byte = *rng.pick(&[b' ', b'0', b'1', b'9', b'-', b'm', b'r', b'w', b's', 0, 0xff]);
        match rng.below(4) {
            _ if word.is_empty() => word.push(byte),
            0 => word.truncate(rng.below(word.len())),
            1 => word.insert(rng.below(word.len()), byte),
            _ => {
                let position = rng.below(word.len());
                word[position] = byte;
            }
        }
    }
    words
}

#[test]
fn random_effects_of_an_aof_leave_locks_or_nothing() {
    let mut server = start();
    let before = stored(&mut server.client());
    let mut rng = Rng::new(11);
    let seed = rng.seed();
    let mut commands = Vec::new();
    for _ in 0..EFFECTS {
        let effect = random_effect(&mut rng);
        let key = format!("v{}", rng.below(VICTIMS));
        let mut words = vec![&b"LOCK.APPLY"[..], key.as_bytes()];
        words.extend(effect.iter().map(Vec::as_slice));
        commands.extend(command(&words));
    }
    load(&mut server, &commands);
    let mut client = server.client();
    assert!(server.is_alive(), "seed {seed}");
    assert_eq!(stored(&mut client), before, "seed {seed}");
    let mut locks = 0;
    for number in 0..VICTIMS {
        if client.run(&format!("EXISTS v{number}")).int() == 1 {
            let info = client.run(&format!("LOCK.INFO v{number}"));
            assert!(!info.is_nil() && !info.get("holders").items().is_empty(), "v{number}, seed {seed}: {info:?}");
            locks += 1;
        }
    }
    assert!((VICTIMS / 10..VICTIMS).contains(&locks), "{locks} locks, seed {seed}");
    assert_can_be_stored(&mut client, &format!("seed {seed}"));
}

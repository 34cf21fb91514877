//! A shipped configuration has room for as many waiters as it allows: callers beyond that are refused before memory
//! runs out, which would refuse every lock request.

use std::fs;
use std::path::Path;

use crate::support::raise_file_limit;
use crate::support::skip::skip;
use crate::support::waiting::{hold, plain_aof, quiet};

const MANIFEST: &str = "packaging/kubernetes/lock-server.yaml";
const UNIT: &str = "packaging/systemd/lock-server.conf";

/// The most memory that a client waiting in BLOCK uses, with its connection; docs/operations.md lists the parts.
const WAITER_BYTES: u64 = 74_000;

/// For 100,000 locks and the server itself.
const REST_BYTES: u64 = 25_000_000;

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// The files in the root and everything in docs and packaging, as paths relative to the root.
fn files() -> Vec<String> {
    let mut found = Vec::new();
    let mut folders = vec![root().to_path_buf()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).expect("a folder") {
            let path = entry.expect("an entry").path();
            let name = path.strip_prefix(root()).expect("inside").to_string_lossy().into_owned();
            if path.is_file() {
                found.push(name);
            } else if name.starts_with("docs") || name.starts_with("packaging") {
                folders.push(path);
            }
        }
    }
    found
}

fn read(path: &str) -> String {
    fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// The value of a setting, even if it is only proposed in a comment.
fn setting<'t>(text: &'t str, name: &str) -> Option<&'t str> {
    let lines = text.lines().map(|line| line.trim_start_matches([' ', '#', '-']));
    lines.filter_map(|line| line.strip_prefix(name)?.strip_prefix(' ')).next().map(str::trim)
}

fn bytes(value: &str) -> Option<u64> {
    let value = value.to_ascii_lowercase();
    let (number, unit) = value.split_at(value.find(|c: char| !c.is_ascii_digit())?);
    let unit = match unit {
        "mb" => 1 << 20,
        "gb" => 1 << 30,
        _ => return None,
    };
    Some(number.parse::<u64>().ok()? * unit)
}

#[test]
fn every_shipped_memory_limit_has_room_for_the_waiters() {
    let mut limited = Vec::new();
    for file in files() {
        // Archives among them are not text.
        let Ok(text) = fs::read_to_string(root().join(&file)) else { continue };
        let Some(limit) = setting(&text, "maxmemory").and_then(bytes) else { continue };
        let waiters = setting(&text, "lock.max-waiters").map_or(10_000, |value| value.parse().expect("a number"));
        assert!(
            waiters * WAITER_BYTES + REST_BYTES <= limit,
            "{file}: {waiters} waiters do not fit into {limit} bytes"
        );
        limited.push(file);
    }
    let known = [MANIFEST, UNIT, "redis.conf.example"].map(String::from);
    assert!(known.iter().all(|file| limited.contains(file)), "{limited:?}");
}

/// Both shipped configurations have the same numbers.
#[test]
fn with_the_maximum_of_waiters_a_free_lock_is_still_granted() {
    let (manifest, unit) = (read(MANIFEST), read(UNIT));
    let lines = ["maxmemory", "maxmemory-policy", "lock.max-waiters"].map(|name| {
        let value = setting(&manifest, name).expect("it is there");
        assert_eq!(setting(&unit, name), Some(value), "{name}");
        format!("{name} {value}")
    });
    let most: usize = setting(&manifest, "lock.max-waiters").and_then(|value| value.parse().ok()).expect("a number");
    if raise_file_limit().is_ok_and(|limit| limit < 2 * most as u64) {
        return skip("this machine does not let a process open that many files");
    }
    let server = lines.into_iter().fold(quiet(), |builder, line| builder.config(line)).start();
    let mut client = server.client();
    hold(&mut client, "k", "a");
    let request = |number: usize| {
        let mut waiter = server.client();
        waiter.send_line(&format!("LOCK.ACQUIRE k worker-{number}:4000:30120e0426c1fe6a PX 30000 BLOCK 0"));
        waiter
    };
    let waiters: Vec<_> = (0..most).map(request).collect();
    server.wait_blocked(most as i64);
    client.run("LOCK.ACQUIRE free a").fence();
    let refused = client.run("LOCK.ACQUIRE k one-more BLOCK 0");
    assert!(refused.error().starts_with(&format!("MAXWAITERS too many waiting requests (lock.max-waiters {most})")));
    drop(waiters);
}

/// docs/managed.md: keys of 12 bytes, and UUIDs.
#[test]
fn the_effects_of_a_pair_take_as_many_bytes_as_managed_says() {
    let page = read("docs/managed.md");
    let row = page.lines().find(|line| line.starts_with("| the same in the append-only file |")).expect("the row");
    let named: u64 = row.split(['|', ' ']).find_map(|word| word.parse().ok()).expect("a number of bytes");
    assert!(page.contains(&format!("| the same to a replica | {named} bytes")));

    let server = plain_aof(quiet()).start();
    let mut client = server.client();
    let size = || {
        let files = fs::read_dir(server.dir().join("appendonlydir")).expect("the server writes an AOF");
        let sizes = files.map(|file| file.expect("an entry").metadata().expect("a size").len());
        sizes.sum::<u64>()
    };
    let mut pairs = |count: usize| {
        let before = size();
        for number in 0..count {
            let key = format!("lock:{number:07}");
            client.cmd(&["LOCK.ACQUIRE", &key, "0615c124-43c5-4ca6-bf89-a6986fb23e07", "PX", "30000"]).fence();
            client.cmd(&["LOCK.RELEASE", &key, "0615c124-43c5-4ca6-bf89-a6986fb23e07"]);
        }
        size() - before
    };
    pairs(1); // SELECT, once.
    assert_eq!(pairs(100), 100 * named);
}

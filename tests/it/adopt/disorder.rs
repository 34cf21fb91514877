//! Old and native clients in every way a server offers (scripts, functions, transactions, pipelines, both protocols,
//! multiple keys), while adoption is switched on and off, files are rewritten, waiters leave and a replica is read. No
//! two clients hold one lock, no command gets an error that the contract does not list, and when all clients are gone
//! nothing is left, even after a failover and a restart. `REDIS_LOCK_DISORDER_SECONDS` makes it longer.

use super::*;
use crate::support::io_threads::with_io_threads;
use crate::support::stored::rewrite_aof;
use crate::support::waiting::until_exited;
use crate::support::{in_sync, until, Rng};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

const KEYS: [&str; 2] = ["lock:k", "lock:l"];

const SET_IN_SCRIPT: &str = "return redis.call('SET', KEYS[1], ARGV[1], 'NX', 'PX', 10000)";

/// Like node-redlock: checks first, then sets without NX.
const LOOK_AND_SET: &str = "if redis.call('EXISTS', KEYS[1]) == 1 then return 0 end \
                            return redis.call('SET', KEYS[1], ARGV[1], 'PX', 10000)";

const LIBRARY: &str = "#!lua name=locks\n\
                       redis.register_function('take', function(keys, args) \
                       return redis.call('SET', keys[1], args[1], 'NX', 'PX', 10000) end)";

/// What a client holds.
struct Held {
    token: String,
    keys: Vec<&'static str>,
    /// Whether a command of the module granted it.
    is_native: bool,
}

struct Player<'s> {
    server: &'s Server,
    client: Client,
    number: u64,
    rng: Rng,
    iteration: u64,
}

impl Player<'_> {
    /// The reply; `None`: the client was disconnected first, and has a new connection.
    fn query(&mut self, words: &[&str]) -> Option<Reply> {
        if self.rng.below(20) > 0 {
            return Some(self.client.cmd(words));
        }
        let id = self.client.id();
        self.client.send(words);
        self.client = if self.number % 2 == 0 { self.server.client() } else { self.server.client3() };
        until_exited(&mut self.client, id);
        None
    }

    /// Whether the token holds the lock, or the string is its own.
    fn holds(&mut self, key: &str, token: &str) -> bool {
        self.client.cmd(&["EVAL", "return redis.call('GET', KEYS[1])", "1", key]).is_bulk(token)
    }

    /// Tries to acquire one of the locks, or both, in a random way.
    fn take(&mut self) -> Option<Held> {
        self.iteration += 1;
        let way = self.rng.below(16);
        let token = format!("p{}-{}-{way}", self.number, self.iteration);
        let (key, t) = (*self.rng.pick(&KEYS), token.as_str());
        let [k, l] = KEYS;
        let later = "99999999999999";
        let words: &[&str] = match way {
            0 | 1 => &["SET", key, t, "NX", "PX", "10000"],
            2 => &["SET", key, t, "PXAT", later, "NX"],
            3 => &["SETNX", key, t],
            4 => &["MSETNX", key, t],
            5 => &["MSETNX", k, t, l, t],
            6 => &["EVAL", SET_IN_SCRIPT, "1", key, t],
            7 => &["EVAL", LOOK_AND_SET, "1", key, t],
            8 => &["FCALL", "take", "1", key, t],
            9 => &["SET", key, t, "NX", "GET", "PX", "10000"],
            10 => &["LOCK.ACQUIRE", key, t, "PX", "10000"],
            11 | 12 => &["LOCK.ACQUIRE", key, t, "PX", "10000", "BLOCK", "20"],
            13 => &["MLOCK.ACQUIRE", "2", k, l, t, "PX", "10000", "BLOCK", "20"],
            14 => return self.take_in_transaction(key, token),
            _ => return self.take_in_pipeline(key, token),
        };
        let (is_native, has_both) = (words[0].contains("LOCK."), way == 5 || way == 13);
        let keys = if has_both { KEYS.to_vec() } else { vec![key] };
        let is_granted = match self.query(words) {
            Some(reply) if way == 9 => reply.is_null() && self.holds(key, &token),
            Some(Reply::Status(status)) => status == "OK",
            Some(Reply::Int(granted)) => granted == 1,
            Some(Reply::Array(grant)) => !grant.is_empty(),
            Some(Reply::Error(error)) => {
                let is_known = ["TRYAGAIN", "WRONGTYPE", "UNBLOCKED"].iter().any(|code| error.contains(code));
                assert!(is_known, "{words:?}: {error}");
                false
            }
            Some(reply) if reply.is_null() => false,
            Some(reply) => panic!("{words:?}: {reply:?}"),
            // It may have been granted before the server noticed the disconnect.
            None => keys.iter().all(|key| self.holds(key, &token)),
        };
        is_granted.then_some(Held { token, keys, is_native })
    }

    fn take_in_transaction(&mut self, key: &'static str, token: String) -> Option<Held> {
        let set = format!("SET {key} {token} NX PX 10000");
        let get = format!("GET {key}");
        let lines = ["MULTI", &set, &get, "EXEC"];
        let replies = self.client.pipeline(&lines);
        let [is_set, holder] = replies[3].items() else { panic!("{replies:?}") };
        let is_granted = *is_set == Reply::ok();
        assert_eq!(is_granted, holder.is_bulk(&token), "{replies:?}");
        is_granted.then(|| Held { token, keys: vec![key], is_native: false })
    }

    fn take_in_pipeline(&mut self, key: &'static str, token: String) -> Option<Held> {
        // Without a lease it does not wait.
        let set = format!("SET {key} {token} NX");
        let replies = self.client.pipeline(&[set.as_str(), "PING", &format!("GET {key}")]);
        assert_eq!(replies[1], Reply::Status("PONG".into()), "{replies:?}");
        let is_granted = replies[0] == Reply::ok();
        assert!(is_granted || replies[0].is_null(), "{replies:?}");
        assert_eq!(is_granted, replies[2].is_bulk(&token), "{replies:?}");
        is_granted.then(|| Held { token, keys: vec![key], is_native: false })
    }

    fn work(&mut self, held: &Held) {
        for key in &held.keys {
            let inside = format!("INCR in:{key}");
            assert_eq!(self.client.run(&inside).int(), 1, "p{} is not alone on {key}", self.number);
        }
        if self.rng.below(4) == 0 && held.is_native {
            let (key, token) = (held.keys[0], &held.token);
            let reply = self.client.run(&format!("LOCK.EXEC {key} {token} SET register {token}"));
            assert_eq!(reply, Reply::ok(), "{key} {token}");
        }
        for key in &held.keys {
            let inside = format!("DECR in:{key}");
            assert_eq!(self.client.run(&inside).int(), 0, "p{} is not alone on {key}", self.number);
        }
    }

    /// Ends the hold with one of the commands that a holder may use. Each of them must find the lock still held.
    fn release(&mut self, held: Held) {
        let (token, both) = (held.token.as_str(), held.keys.len() == 2);
        // These commands neither release nor take over a native hold.
        if both && !held.is_native && self.rng.below(2) == 0 {
            assert_eq!(self.client.run(&format!("DEL {}", held.keys.join(" "))).int(), 2, "{token}");
            return;
        }
        for key in &held.keys {
            match self.rng.below(6) {
                0 if held.is_native => {
                    assert_eq!(self.client.run(&format!("LOCK.RELEASE {key} {token}")).int(), 1, "{key} {token}");
                }
                1 if !held.is_native => {
                    assert!(self.client.run(&format!("GETDEL {key}")).is_bulk(token), "{key} {token}")
                }
                2 if !held.is_native => {
                    assert!(self.client.run(&format!("GETSET {key} other")).is_bulk(token), "{key} {token}");
                    assert_eq!(self.client.run(&format!("DEL {key}")).int(), 1, "{key} {token}");
                }
                3 if !held.is_native => assert_eq!(self.client.run(&format!("UNLINK {key}")).int(), 1, "{key} {token}"),
                _ => assert!(compare_and_delete(&mut self.client, key, token), "{key} {token}"),
            }
        }
    }
}

/// Switches adoption and its wait, unblocks waiters, and reads the replica.
fn disturb(server: &Server, replica: &Server, seed: u64, is_over: &AtomicBool) {
    let (mut admin, mut reader, mut rng) = (server.client(), replica.client(), Rng::with_seed(seed));
    while !is_over.load(Ordering::Relaxed) {
        match rng.below(8) {
            // Existing adopted keys keep their replies; new locks are strings.
            0 => _ = admin.cmd(&["CONFIG", "SET", "lock.adopt", ""]),
            1 | 2 => _ = admin.cmd(&["CONFIG", "SET", "lock.adopt", "lock:*"]),
            3 => _ = admin.run(&format!("CONFIG SET lock.adopt-wait {}", rng.pick(&[0, 1, 15, 40]))),
            4 => _ = admin.run(&format!("CONFIG SET lock.keep-place {}", rng.pick(&[0, 10, 1_000]))),
            5 => {
                let list = admin.run("CLIENT LIST").text().to_string();
                let blocked = list.lines().find(|line| line.contains(" flags=b "));
                if let Some(id) = blocked.and_then(|line| line.split(' ').next()?.strip_prefix("id=")) {
                    admin.run(&format!("CLIENT UNBLOCK {id} ERROR"));
                }
            }
            _ => {
                for line in ["GET lock:k", "MGET lock:k lock:l", "EXISTS lock:k", "LOCK.INFO lock:l"] {
                    let reply = reader.run(line);
                    let is_string = matches!(&reply, Reply::Error(error) if error.starts_with("WRONGTYPE "));
                    assert!(!reply.is_error() || line.starts_with("LOCK.INFO") && is_string, "{line}: {reply:?}");
                }
            }
        }
        thread::sleep(Duration::from_millis(rng.below(8) as u64));
    }
}

fn play(server: &mut Server, replica: &Server, seconds: u64) {
    let seed = Rng::new(46).seed();
    eprintln!("LOCK_TEST_SEED={seed}");
    let mut client = server.client();
    let has_functions = !client.cmd(&["FUNCTION", "LOAD", LIBRARY]).is_error();
    assert!(has_functions, "FUNCTION LOAD");
    in_sync(server, replica);
    let (end, is_over) = (Instant::now() + Duration::from_secs(seconds), AtomicBool::new(false));
    let shared = &*server;
    let held: u64 = thread::scope(|scope| {
        let players: Vec<_> = (0..8_u64)
            .map(|number| {
                let client = if number % 2 == 0 { shared.client() } else { shared.client3() };
                scope.spawn(move || {
                    let rng = Rng::with_seed(seed.wrapping_add(number));
                    let mut player = Player { server: shared, client, number, rng, iteration: 0 };
                    let mut held = 0;
                    while Instant::now() < end {
                        if let Some(taken) = player.take() {
                            player.work(&taken);
                            player.release(taken);
                            held += 1;
                        }
                    }
                    held
                })
            })
            .collect();
        scope.spawn(|| disturb(shared, replica, seed ^ 0xd157, &is_over));
        scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                rewrite_aof(shared);
                thread::sleep(Duration::from_millis(100));
            }
        });
        let held = players.into_iter().map(|player| player.join());
        let held: Vec<_> = held.collect();
        is_over.store(true, Ordering::Relaxed);
        held.into_iter().map(|held| held.unwrap_or_else(|_| panic!("seed {seed}"))).sum()
    });
    eprintln!("{held} holds");
    let assert_nothing_is_left = |client: &mut Client| {
        for key in KEYS {
            // A GET in the iteration of a grant counts as read by its owner. If that owner is gone, the lock is held
            // until its lease expires.
            until("its lease has expired", || client.run(&format!("EXISTS {key}")).int() == 0);
            assert!(client.run(&format!("LOCK.WAITERS {key}")).items().is_empty(), "{key}, seed {seed}");
            assert!(client.run(&format!("GET in:{key}")).is_bulk("0"), "{key}, seed {seed}");
        }
    };
    assert_nothing_is_left(&mut client);
    assert!(held > 0, "seed {seed}");
    client.run("CONFIG SET lock.adopt lock:*");
    assert!(set_nx(&mut client, "lock:k", "last"));
    in_sync(server, replica);
    // A killed server may not have written its newest effects.
    rewrite_aof(server);
    server.kill();
    let mut promoted = replica.client();
    promoted.run("REPLICAOF NO ONE");
    until("it is the primary", || promoted.run("ROLE").items()[0].is_bulk("master"));
    assert!(!set_nx(&mut promoted, "lock:k", "other"), "it is held over the failover");
    assert!(compare_and_delete(&mut promoted, "lock:k", "last"));
    assert_nothing_is_left(&mut promoted);
    server.restart();
    let mut client = server.client();
    assert!(compare_and_delete(&mut client, "lock:k", "last"), "it is in the file");
    assert_nothing_is_left(&mut client);
}

fn seconds() -> u64 {
    std::env::var("REDIS_LOCK_DISORDER_SECONDS").ok().and_then(|seconds| seconds.parse().ok()).unwrap_or(2)
}

#[test]
fn no_two_clients_hold_a_lock_however_commands_are_sent() {
    let builder = Server::builder().appendonly().config("appendfsync everysec").config("lock.adopt lock:*");
    let mut server = builder.start();
    let replica = Server::builder().config("lock.adopt lock:*").replica_of(&server).start();
    play(&mut server, &replica, seconds());
}

#[test]
fn no_two_clients_hold_a_lock_with_io_threads() {
    let mut server = with_io_threads().config("lock.adopt lock:*").start();
    let replica = Server::builder().config("lock.adopt lock:*").replica_of(&server).start();
    play(&mut server, &replica, seconds());
}

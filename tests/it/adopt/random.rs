//! Concurrent random commands of old and native clients on locks that are strings, mutexes and hashes: no two clients
//! hold one lock, and when all are gone no lock is left.

use super::*;
use crate::support::Rng;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// How a client holds a lock.
enum Held {
    Mutex(String),
    NativeMutex(String),
    Reentrant(String),
}

struct Player {
    client: Client,
    name: String,
    rng: Rng,
    iteration: u32,
}

impl Player {
    /// Tries to acquire the lock `lock:k` in one of the ways of old and native clients.
    fn take_mutex(&mut self) -> Option<Held> {
        self.iteration += 1;
        let token = format!("{}-{}", self.name, self.iteration);
        let line = match self.rng.below(7) {
            0 => format!("SET lock:k {token} NX PX 60000"),
            1 => format!("SET lock:k {token} NX EX 60"),
            2 => format!("SETNX lock:k {token}"),
            3 => format!("MSETNX lock:k {token}"),
            4 => format!("LOCK.ACQUIRE lock:k {token} PX 60000"),
            5 => format!("LOCK.ACQUIRE lock:k {token} PX 60000 BLOCK 20"),
            _ => format!("MLOCK.ACQUIRE 1 lock:k {token} PX 60000 BLOCK 20"),
        };
        let is_granted = match self.client.run(&line) {
            Reply::Status(status) => status == "OK",
            Reply::Int(granted) => granted == 1,
            Reply::Array(grant) => !grant.is_empty(),
            reply if reply.is_null() => false,
            reply => panic!("{line}: {reply:?}"),
        };
        is_granted.then(|| if line.contains("LOCK.") { Held::NativeMutex(token) } else { Held::Mutex(token) })
    }

    /// The same for `h:k`, which keeps its count in a hash.
    fn take_reentrant(&mut self) -> Option<Held> {
        self.iteration += 1;
        let owner = format!("{}-{}", self.name, self.iteration);
        let script = "if redis.call('exists', KEYS[1]) == 0 then redis.call('hincrby', KEYS[1], ARGV[1], 1) \
                      redis.call('pexpire', KEYS[1], 60000) return 1 end return 0";
        let reply = match self.rng.below(2) {
            0 => self.client.cmd(&["EVAL", script, "1", "h:k", &owner]),
            _ => self.client.run(&format!("RLOCK.ACQUIRE h:k {owner} PX 60000 BLOCK 20")),
        };
        let is_granted = match reply {
            Reply::Int(granted) => granted == 1,
            Reply::Array(grant) => !grant.is_empty(),
            Reply::Error(error) => {
                assert!(error.contains("TRYAGAIN"), "{error}");
                false
            }
            reply if reply.is_null() => false,
            reply => panic!("{reply:?}"),
        };
        is_granted.then_some(Held::Reentrant(owner))
    }

    fn work(&mut self, inside: &str) {
        assert_eq!(self.client.run(&format!("INCR {inside}")).int(), 1, "{} is not alone", self.name);
        assert_eq!(self.client.run(&format!("DECR {inside}")).int(), 0, "{} is not alone", self.name);
    }

    fn release(&mut self, held: Held) {
        match held {
            Held::Mutex(token) => match self.rng.below(5) {
                0 => assert!(compare_and_delete(&mut self.client, "lock:k", &token)),
                1 => assert_eq!(self.client.run(&format!("LOCK.RELEASE lock:k {token}")).int(), 1),
                2 => assert!(self.client.run("GETDEL lock:k").is_bulk(&token)),
                3 => {
                    // The same client keeps the lock under another token.
                    assert!(self.client.run("GETSET lock:k other").is_bulk(&token));
                    assert_eq!(self.client.run("DEL lock:k").int(), 1);
                }
                _ => assert_eq!(self.client.run("LOCK.BREAK lock:k").int(), 1),
            },
            Held::NativeMutex(token) => {
                // It is protected from releases that do not compare the token, and from commands that replace it.
                match self.rng.below(3) {
                    0 => assert_eq!(self.client.run("DEL lock:k").int(), 0),
                    1 => assert!(self.client.run("GETDEL lock:k").is_null()),
                    _ => assert!(self.client.run("GETSET lock:k other").is_bulk(&token)),
                }
                match self.rng.below(3) {
                    0 => assert!(compare_and_delete(&mut self.client, "lock:k", &token)),
                    1 => assert_eq!(self.client.run(&format!("LOCK.RELEASE lock:k {token}")).int(), 1),
                    _ => assert_eq!(self.client.run("LOCK.BREAK lock:k").int(), 1),
                }
            }
            Held::Reentrant(owner) => match self.rng.below(3) {
                0 => {
                    assert_eq!(self.client.run(&format!("HINCRBY h:k {owner} -1")).int(), 0);
                    let is_freed = self.client.cmd(&["EVAL", "return redis.call('DEL', KEYS[1])", "1", "h:k"]);
                    assert_eq!(is_freed.int(), 1);
                }
                1 => assert_eq!(self.client.run(&format!("RLOCK.RELEASE h:k {owner}")).int(), 0),
                _ => assert_eq!(self.client.run(&format!("HDEL h:k {owner}")).int(), 1),
            },
        }
    }
}

/// How many acquires of old clients a run has at least.
const ADOPTED: u32 = 100;

#[test]
fn old_and_native_clients_never_hold_a_lock_at_the_same_time() {
    for wait_ms in [0, 30] {
        let settings = [format!("lock.adopt-wait {wait_ms}"), "lock.adopt lock:* hash:h:*".into()];
        let server = settings.into_iter().fold(Server::builder(), |builder, line| builder.config(line)).start();
        let seed = Rng::new(1).seed();
        let end = Instant::now() + Duration::from_secs(2);
        let adopted = AtomicU32::new(0);
        thread::scope(|scope| {
            for number in 0..6_u64 {
                let (client, adopted) = (server.client(), &adopted);
                scope.spawn(move || {
                    let rng = Rng::with_seed(seed.wrapping_add(number));
                    let mut player = Player { client, name: format!("p{number}"), rng, iteration: 0 };
                    while Instant::now() < end || adopted.load(Ordering::Relaxed) < ADOPTED {
                        let (held, inside) = match player.rng.below(3) {
                            0 => (player.take_reentrant(), "inside:h"),
                            _ => (player.take_mutex(), "inside"),
                        };
                        if let Some(held) = held {
                            adopted.fetch_add(u32::from(matches!(held, Held::Mutex(_))), Ordering::Relaxed);
                            player.work(inside);
                            player.release(held);
                        }
                    }
                });
            }
        });
        let mut client = server.client();
        for key in ["lock:k", "h:k"] {
            assert_eq!(client.run(&format!("EXISTS {key}")).int(), 0, "{key}, seed {seed}");
            assert!(client.run(&format!("LOCK.WAITERS {key}")).items().is_empty(), "{key}, seed {seed}");
        }
        assert!(crate::info::field(&server, "adopted_acquires") >= i64::from(ADOPTED), "seed {seed}");
    }
}

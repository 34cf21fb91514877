//! The uses of the home-made locks that preceded this module must work with its commands. Every test names its case.
//!
//! 1. `SET NX EX` with a random identifier, compare-and-delete, an acquire with a timeout.
//! 2. `SETNX` and `EXPIRE`, release under WATCH and MULTI, and its six requirements.
//! 3. A reentrant lock with a counter.
//! 4. The Lua mutex and the Lua reentrant hash, with a watchdog and distinguishable results.
//! 5. A lock object whose late release must not release the next owner's lock.

use crate::support::{assert_just_began, until, Client, Reply, Server, LIMIT};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

const TICKETS: i64 = 10;

/// How long a refused client waits before it tries again, as the polling predecessors did.
const PAUSE: Duration = Duration::from_millis(2);

/// The longest pause, under load: polling must not slow down the holder.
const LONGEST_PAUSE: Duration = Duration::from_millis(50);

/// Tries until granted or timed out, like the acquire timeout of the predecessors. BLOCK replaces polling where waiting
/// is allowed; elsewhere the loop polls.
fn acquire_within(client: &mut Client, key: &str, token: &str, lease: &str, reply_timeout: Duration) -> Option<i64> {
    let deadline = Instant::now() + reply_timeout;
    let mut pause = PAUSE;
    loop {
        let remaining_ms = deadline.saturating_duration_since(Instant::now()).as_millis();
        if remaining_ms == 0 {
            return None;
        }
        let reply = client.run(&format!("LOCK.ACQUIRE {key} {token} {lease} BLOCK {remaining_ms}"));
        if !reply.is_nil() {
            return Some(reply.fence());
        }
        thread::sleep(pause);
        pause = LONGEST_PAUSE.min(pause * 2);
    }
}

/// Reads, then buys: safe only if no other client can interfere.
fn buy_ticket(client: &mut Client, buyer: &str) {
    let left: i64 = client.run("GET tickets").text().parse().expect("a number of tickets");
    if left > 0 {
        client.run(&format!("RPUSH sold {buyer}"));
        client.run(&format!("SET tickets {}", left - 1));
    }
}

fn open_the_sale(server: &Server) {
    assert_eq!(server.client().run(&format!("SET tickets {TICKETS}")), Reply::ok());
}

fn assert_sold_out_exactly(server: &Server) {
    let mut client = server.client();
    assert_eq!(client.run("GET tickets").text(), "0");
    assert_eq!(client.run("LLEN sold").int(), TICKETS);
    assert_eq!(client.run("EXISTS sale").int(), 0, "no lock was left behind");
}

/// `buyers` real connections buy concurrently, each under the lock.
fn sell_under_the_lock(server: &Server, buyers: usize) {
    let clients: Vec<Client> = (0..buyers).map(|_| server.client()).collect();
    thread::scope(|scope| {
        for (buyer, mut client) in clients.into_iter().enumerate() {
            scope.spawn(move || {
                let token = format!("buyer-{buyer}");
                acquire_within(&mut client, "sale", &token, "EX 30", Duration::from_secs(60)).expect("granted in time");
                buy_ticket(&mut client, &token);
                assert_eq!(client.run(&format!("LOCK.RELEASE sale {token}")).int(), 1);
            });
        }
    });
}

#[test]
fn case_1_an_acquire_times_out() {
    let server = Server::start();
    server.client().run("LOCK.ACQUIRE k holder EX 60").fence();
    let reply_timeout = Duration::from_millis(200);
    let started = Instant::now();
    assert_eq!(acquire_within(&mut server.client(), "k", "other", "EX 10", reply_timeout), None);
    assert!(started.elapsed() >= reply_timeout);
    assert!(!server.client().run("LOCK.HELD k holder").is_nil());
}

#[test]
fn case_1_release_compares_before_it_deletes() {
    let server = Server::start();
    let mut client = server.client();
    let granted = client.run("LOCK.ACQUIRE k * EX 10");
    let token = granted.items()[0].text();
    assert_eq!(client.run("LOCK.RELEASE k 7c4a8d09-ca37-4f1f-b8a1-3b4f5d1c2e3f").int(), 0);
    assert!(!client.cmd(&["LOCK.HELD", "k", token]).is_nil());
    assert_eq!(client.cmd(&["LOCK.RELEASE", "k", token]).int(), 1);
}

#[test]
fn case_2_five_hundred_clients_buy_ten_tickets() {
    let server = Server::start();
    open_the_sale(&server);
    sell_under_the_lock(&server, 500);
    assert_sold_out_exactly(&server);
}

/// The port to use, for a process that another test has started.
const WORKER_PORT: &str = "LOCK_TEST_WORKER_PORT";
const WORKERS: usize = 4;
const ROUNDS: usize = 100;

/// The first requirement: exclusion among processes, not threads. The workers are this same test, run again.
#[test]
fn case_2_requirement_1_one_holder_at_a_time_across_processes() {
    if let Ok(port) = std::env::var(WORKER_PORT) {
        return count_under_the_lock(&mut Client::connect(port.parse().expect("a port")));
    }
    let server = Server::start();
    server.client().run("SET counter 0");
    let itself = std::env::current_exe().expect("a test knows where it is");
    let test = concat!(module_path!(), "::case_2_requirement_1_one_holder_at_a_time_across_processes");
    let test = test.split_once("::").expect("the crate's name comes first").1;
    let mut workers: Vec<_> = (0..WORKERS)
        .map(|_| {
            let mut worker = Command::new(&itself);
            worker.args(["--exact", test, "--nocapture"]).env(WORKER_PORT, server.port().to_string());
            worker.stdout(Stdio::null()).spawn().expect("the test can be run again")
        })
        .collect();
    // Reap all of them before checking any.
    let ends: Vec<_> = workers.iter_mut().map(|worker| worker.wait().expect("a child can be reaped")).collect();
    assert!(ends.iter().all(|end| end.success()), "{ends:?}");
    assert_eq!(server.client().run("GET counter").text(), (WORKERS * ROUNDS).to_string());
}

/// Reads, then writes: an increment is lost whenever two do it concurrently.
fn count_under_the_lock(client: &mut Client) {
    let token = std::process::id().to_string();
    for _ in 0..ROUNDS {
        acquire_within(client, "k", &token, "EX 30", Duration::from_secs(60)).expect("granted in time");
        let count: usize = client.run("GET counter").text().parse().expect("a count");
        client.run(&format!("SET counter {}", count + 1));
        assert_eq!(client.run(&format!("LOCK.RELEASE k {token}")).int(), 1);
    }
}

#[test]
fn case_2_requirement_2_a_free_lock_is_always_granted_and_a_held_one_always_released() {
    let server = Server::start();
    let (mut ours, mut theirs) = (server.client(), server.client());
    for round in 0..200 {
        ours.run("LOCK.ACQUIRE k ours").fence();
        assert!(theirs.run("LOCK.ACQUIRE k theirs").is_nil(), "round {round}");
        assert_eq!(theirs.run("LOCK.RELEASE k theirs").int(), 0, "a refused client affects no other");
        assert_eq!(ours.run("LOCK.RELEASE k ours").int(), 1, "round {round}");
        std::mem::swap(&mut ours, &mut theirs);
    }
}

/// The third requirement: the commands of an uncontended critical section. `make bench` measures the time.
#[test]
fn case_2_requirement_3_it_takes_two_commands_instead_of_seven() {
    let server = Server::start();
    let mut client = server.client();
    let lock = ["LOCK.ACQUIRE k t EX 10", "LOCK.RELEASE k t"];
    let predecessor = ["SETNX p t", "EXPIRE p 10", "WATCH p", "GET p", "MULTI", "DEL p", "EXEC"];
    let mut processed_by = |lines: &[&str]| {
        let before = server.info("stats").number("total_commands_processed");
        for line in lines {
            assert!(!client.run(line).is_error(), "{line}");
        }
        // The second INFO counts as well.
        server.info("stats").number("total_commands_processed") - before - 1
    };
    assert_eq!((processed_by(&lock), processed_by(&predecessor)), (2, 7));
}

#[test]
fn case_2_requirement_4_it_is_reentrant_if_requested() {
    let server = Server::start();
    let mut client = server.client();
    assert_eq!(client.run("RLOCK.ACQUIRE k t").items()[2].int(), 1);
    assert_eq!(client.run("RLOCK.ACQUIRE k t").items()[2].int(), 2);
    assert!(client.run("RLOCK.ACQUIRE k other").is_nil());
    assert_eq!(client.run("RLOCK.RELEASE k t").int(), 1);
    assert_eq!(client.run("RLOCK.RELEASE k t").int(), 0);
}

#[test]
fn case_2_requirement_5_the_lease_of_a_dead_holder_expires() {
    let server = Server::start();
    let mut holder = server.client();
    let started = Instant::now();
    holder.run("LOCK.ACQUIRE k dead PX 300").fence();
    drop(holder);
    let mut next = server.client();
    let is_refused = next.run("LOCK.ACQUIRE k next").is_nil();
    assert!(is_refused || started.elapsed() >= Duration::from_millis(300), "its lease protects it until then");
    assert!(acquire_within(&mut next, "k", "next", "EX 10", Duration::from_secs(15)).is_some());
}

#[test]
fn case_2_requirement_6_a_refusal_is_immediate() {
    let server = Server::start();
    server.client().run("LOCK.ACQUIRE k holder EX 3600").fence();
    let mut client = server.client();
    let started = Instant::now();
    assert!(client.run("LOCK.ACQUIRE k other").is_nil());
    assert!(started.elapsed() < Duration::from_secs(5), "an hour of lease is no hour of waiting");
}

#[test]
fn case_3_three_tasks_nest_acquires_and_release_step_by_step() {
    let server = Server::start();
    server.client().run("SET counter 0");
    thread::scope(|scope| {
        for task in ["task-1", "task-2", "task-3"] {
            let server = &server;
            scope.spawn(move || {
                let mut client = server.client();
                for _ in 0..20 {
                    nested_work(&mut client, task, 1);
                }
            });
        }
    });
    let mut client = server.client();
    assert_eq!(client.run("GET counter").text(), (3 * 20 * NESTING).to_string());
    assert_eq!(client.run("EXISTS k").int(), 0);
}

const NESTING: i64 = 3;

/// Acquires the lock, counts, recurses one level deeper, and releases only its own level.
fn nested_work(client: &mut Client, task: &str, level: i64) {
    let granted = loop {
        let reply = client.run(&format!("RLOCK.ACQUIRE k {task} EX 30 BLOCK 1000"));
        if !reply.is_nil() {
            break reply;
        }
        assert_eq!(level, 1, "a holder is never refused");
        thread::sleep(PAUSE);
    };
    assert_eq!(granted.items()[2].int(), level);
    let count: i64 = client.run("GET counter").text().parse().expect("a count");
    client.run(&format!("SET counter {}", count + 1));
    if level < NESTING {
        nested_work(client, task, level + 1);
    }
    assert_eq!(client.run(&format!("RLOCK.RELEASE k {task}")).int(), level - 1);
}

/// The reason for case 3: with a plain lock the inner function waits for the outer one, which waits for the inner.
#[test]
fn case_3_a_lock_that_is_not_reentrant_would_deadlock() {
    let server = Server::start();
    let mut client = server.client();
    client.run("LOCK.ACQUIRE k outer EX 60").fence();
    let inner = acquire_within(&mut client, "k", "inner", "EX 60", Duration::from_millis(200));
    assert_eq!(inner, None, "it would deadlock");
    assert!(!client.run("LOCK.HELD k outer").is_nil());

    // The same token is a retry, not a second hold: the inner function's release would release the outer one's lock.
    client.run("LOCK.ACQUIRE k outer EX 60").fence();
    assert_eq!(client.run("LOCK.RELEASE k outer").int(), 1);
    assert!(client.run("LOCK.HELD k outer").is_nil());

    client.run("RLOCK.ACQUIRE k outer EX 60").fence();
    client.run("RLOCK.ACQUIRE k outer EX 60").fence();
    assert_eq!(client.run("RLOCK.RELEASE k outer").int(), 1);
    assert!(!client.run("LOCK.HELD k outer").is_nil());
}

#[test]
fn case_4_a_watchdog_at_a_third_of_the_lease_keeps_the_lock() {
    let server = Server::start();
    // Long enough for the watchdog, or all processes, to be paused for a second.
    let lease = Duration::from_millis(2100);
    let granted = server.client().run("RLOCK.ACQUIRE k holder PX 2100");
    let working = AtomicBool::new(true);
    let begun = Instant::now();
    thread::scope(|scope| {
        scope.spawn(|| {
            let mut client = server.client();
            // If the contender fails, it does not stop this loop.
            while working.load(Ordering::Relaxed) && begun.elapsed() < LIMIT {
                assert_eq!(client.run("RLOCK.RENEW k holder PX 2100").int(), 1);
                thread::sleep(lease / 3);
            }
        });
        let mut contender = server.client();
        let started = Instant::now();
        while started.elapsed() < lease * 2 {
            assert!(contender.run("RLOCK.ACQUIRE k other").is_nil());
            thread::sleep(PAUSE);
        }
        assert_eq!(contender.run("LOCK.HELD k holder").items()[0].int(), granted.fence());
        working.store(false, Ordering::Relaxed);
    });
    // The lease is no longer renewed, so it expires.
    let mut contender = server.client();
    until("the lease has ended", || !contender.run("RLOCK.ACQUIRE k other").is_nil());
    assert_eq!(contender.run("RLOCK.RENEW k holder PX 2100").int(), 0, "a late watchdog learns that it is late");
}

#[test]
fn case_4_leases_are_in_milliseconds() {
    let server = Server::start();
    let mut client = server.client();
    for command in ["LOCK.ACQUIRE mutex t PX 12345", "RLOCK.ACQUIRE hash t PX 12345"] {
        client.run(command).fence();
    }
    assert_just_began(client.pttl("mutex"), 12_345);
    assert_just_began(client.pttl("hash"), 12_345);
}

#[test]
fn case_4_every_outcome_of_a_release_is_distinguishable() {
    let server = Server::start();
    let mut client = server.client();
    // The Lua script compared and replied in one step; so does this.
    let mut release = |owner: &str| {
        let lines = ["MULTI".into(), format!("RLOCK.RELEASE k {owner}"), "LOCK.INFO k".into(), "EXEC".into()];
        let replies = client.pipeline(&lines);
        let (remaining, info) = (replies[3].items()[0].int(), &replies[3].items()[1]);
        match (remaining, info.is_nil()) {
            (0, _) => "freed",
            (-1, true) => "nothing held",
            (-1, false) => "not the owner",
            _ => "still held",
        }
    };
    assert_eq!(release("a"), "nothing held");
    server.client().run("RLOCK.ACQUIRE k a HOLDS 2");
    assert_eq!(release("b"), "not the owner");
    assert_eq!(release("a"), "still held");
    assert_eq!(release("a"), "freed");
    assert_eq!(release("a"), "nothing held");
}

#[test]
fn case_4_the_lua_mutex_needs_one_release() {
    let server = Server::start();
    let mut client = server.client();
    client.run("LOCK.ACQUIRE k a PX 5000").fence();
    assert_eq!(client.run("LOCK.RELEASE k b").int(), 0);
    assert_eq!(client.run("LOCK.RENEW k b PX 5000").int(), 0);
    assert_eq!(client.run("LOCK.RENEW k a PX 5000").int(), 1);
    assert_eq!(client.run("LOCK.RELEASE k a").int(), 1);
    assert_eq!(client.run("LOCK.RELEASE k a").int(), 0);
}

/// The lock object of case 5: it knows its token and always releases at the end.
struct Held<'a> {
    server: &'a Server,
    token: String,
}

impl<'a> Held<'a> {
    fn acquire(server: &'a Server, lease_ms: u32) -> Option<Held<'a>> {
        let reply = server.client().run(&format!("LOCK.ACQUIRE k * PX {lease_ms}"));
        (!reply.is_nil()).then(|| Held { server, token: reply.items()[0].text().into() })
    }

    fn is_mine(&self) -> bool {
        !self.server.client().cmd(&["LOCK.HELD", "k", &self.token]).is_nil()
    }

    fn release(self) -> bool {
        self.server.client().cmd(&["LOCK.RELEASE", "k", &self.token]).int() == 1
    }
}

#[test]
fn case_5_a_late_release_does_not_release_the_next_owners_lock() {
    let server = Server::start();
    let slow = Held::acquire(&server, 50).expect("it is free");
    let mut next = None;
    until("the slow one's lease has ended", || {
        next = Held::acquire(&server, 60_000);
        next.is_some()
    });
    let next = next.expect("it was just granted");
    assert!(!slow.is_mine());
    assert!(!slow.release(), "it learns that it was late");
    assert!(next.is_mine());
    assert!(Held::acquire(&server, 60_000).is_none());
    assert!(next.release());
}

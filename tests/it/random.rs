//! Random schedules over all lock types: no two holders exclude each other, and no waiter is left behind.

use crate::support::waiting::*;
use crate::support::{Client, Reply, Rng, Server};
use std::thread;

const CLIENTS: usize = 12;
const ROUNDS: usize = 800;

/// Twelve clients acquire locks of all types at random and count themselves in and out, on the server where all can see
/// it. A failure names its seed; `LOCK_TEST_SEED` reproduces it as far as the order of arrival allows.
#[test]
fn random_schedules_never_overlap_exclusive_holders() {
    let server = Server::start();
    let port = server.port();
    let seed = Rng::new(1121).seed();
    thread::scope(|scope| {
        let clients: Vec<_> =
            (0..CLIENTS).map(|number| scope.spawn(move || visit_at_random(port, seed, number))).collect();
        for client in clients {
            client.join().unwrap_or_else(|_| panic!("seed {seed}"));
        }
    });
    let mut client = server.client();
    for counter in ["readers", "writers", "permits", "x", "y", "z"] {
        assert_eq!(client.run(&format!("GET in:{counter}")), Reply::bulk("0"), "{counter}");
    }
    assert_no_waiters(&server, &["rw", "sem", "x", "y", "z"]);
    assert_eq!(client.run("EXISTS rw sem x y z"), Reply::Int(0), "everything was released");
}

fn visit_at_random(port: u16, seed: u64, number: usize) {
    let mut client = Client::connect(port);
    let mut rng = Rng::with_seed(seed.wrapping_mul(31).wrapping_add(number as u64));
    for _ in 0..ROUNDS {
        match rng.below(5) {
            0 | 1 => read(&mut client, number),
            2 => write(&mut client, number),
            3 => take_permits(&mut client, &mut rng, number),
            _ => take_mutexes(&mut client, &mut rng, number),
        }
    }
}

/// Random requests, releases, cancellations, removals and expiring leases: every waiter has a reason to wait. A failure
/// names its seed; `LOCK_TEST_SEED` reproduces it as far as timing allows.
#[test]
fn random_schedules_leave_no_admissible_waiter_behind() {
    let server = quiet().start();
    let mut client = server.client();
    let mut rng = Rng::new(411);
    let seed = rng.seed();
    client.run("CONFIG SET lock.keep-place 20");
    let mut waited = 0;
    for round in 0..150 {
        let lines: Vec<String> = (0..40).map(|_| random_line(&mut rng)).collect();
        for (line, reply) in lines.iter().zip(client.pipeline(&lines)) {
            assert_is_understood(line, &reply);
        }
        let mut watch = client.stopwatch();
        while let Some(who) = left_behind(&mut client) {
            assert!(watch.elapsed() < SOON, "{who}, round {round}, seed {seed}: {lines:#?}");
        }
        waited += queue(&mut client, "rw").len() + queue(&mut client, "sem").len() + queue(&mut client, "x").len();
    }
    assert!(waited > 150, "a request waited: {waited}");
}

fn random_line(rng: &mut Rng) -> String {
    let owner = rng.below(6);
    let lease = *rng.pick(&["PX 15", "PX 40", "PX 60000", "PX 60000", "PX 60000"]);
    let wait = *rng.pick(&["BLOCK 0 NOTIFY ch", "BLOCK 0 NOTIFY ch", "BLOCK 10 NOTIFY ch", ""]);
    let mode = *rng.pick(&["READ", "READ", "WRITE"]);
    let permits = 1 + rng.below(4);
    match rng.below(24) {
        0..=3 => format!("RWLOCK.ACQUIRE rw o{owner} {mode} {lease} {wait}"),
        4..=6 => format!("RWLOCK.RELEASE rw o{owner} {mode}"),
        7..=9 => format!("SEM.ACQUIRE sem o{owner} LIMIT {} PERMITS {permits} {lease} {wait}", 4 + rng.below(3)),
        10 | 11 => format!("SEM.RELEASE sem o{owner} HOLDS {}", rng.below(2)),
        // Requests for both locks have separate owner names, so that the test recognizes them in the queue.
        12..=14 => format!("MLOCK.ACQUIRE 2 x y both{owner} {lease} {wait}"),
        15 => format!("LOCK.ACQUIRE x o{owner} {lease} {wait}"),
        16 => format!("LOCK.ACQUIRE y o{owner} {lease} {wait}"),
        17 | 18 => format!("MLOCK.RELEASE 2 x y {}{owner}", rng.pick(&["o", "both"])),
        19 => format!("LOCK.RELEASE {} both{owner}", rng.pick(&["x", "y"])),
        20 => format!("LOCK.CANCEL {} o{owner}", rng.pick(&["rw", "sem", "x", "y"])),
        21 => format!("LOCK.CANCEL x both{owner}"),
        22 => format!("PEXPIRE {} {}", rng.pick(&["rw", "sem", "x", "y"]), rng.pick(&[1, 20, 90_000])),
        _ => format!("DEL {}", rng.pick(&["rw", "sem", "x", "y"])),
    }
}

/// The owner at the head of a queue, if the lock would admit it.
fn left_behind(client: &mut Client) -> Option<String> {
    let keys = ["rw", "sem", "x", "y"];
    let lines: Vec<String> =
        keys.iter().flat_map(|key| [format!("LOCK.INFO {key}"), format!("LOCK.WAITERS {key}")]).collect();
    let replies = multi(client, &lines.iter().map(String::as_str).collect::<Vec<_>>());
    let [rw, sem, x, y] = [0, 2, 4, 6].map(|at| Seen::of(&replies[at], &replies[at + 1]));
    let both_are_free = x.holders.is_empty() && y.holders.is_empty();
    let alone_in_front = |seen: &Seen| seen.head.as_ref().is_some_and(|(owner, ..)| !owner.starts_with("both"));
    let is_admissible = [
        rw.head.as_ref().is_some_and(|(owner, mode, _)| match mode.as_str() {
            "read" => !rw.holders.iter().any(|(other, mode, _)| mode == "write" && other != owner),
            _ => rw.holders.iter().all(|(other, ..)| other == owner),
        }),
        sem.head.as_ref().is_some_and(|(_, _, permits)| sem.out() + permits <= sem.limit),
        x.holders.is_empty() && alone_in_front(&x) || both_are_free && x.head.is_some() && x.head == y.head,
        y.holders.is_empty() && alone_in_front(&y),
    ];
    let at = is_admissible.iter().position(|is_admissible| *is_admissible)?;
    Some(format!("left behind on {}: {:?} {:?}", keys[at], replies[2 * at], replies[2 * at + 1]))
}

/// The visible state of a lock.
struct Seen {
    limit: i64,
    /// Owner, mode and holds of each.
    holders: Vec<(String, String, i64)>,
    /// Owner, mode and permits of the first in the queue.
    head: Option<(String, String, i64)>,
}

impl Seen {
    fn of(info: &Reply, waiters: &Reply) -> Seen {
        let row = |row: &Reply, count: &str| {
            (row.get("owner").text().to_string(), row.get("mode").text().to_string(), row.get(count).int())
        };
        let (limit, holders) = if info.is_nil() {
            (0, Vec::new())
        } else {
            (info.get("limit").int(), info.get("holders").items().iter().map(|held| row(held, "holds")).collect())
        };
        Seen { limit, holders, head: waiters.items().first().map(|waiter| row(waiter, "permits")) }
    }

    fn out(&self) -> i64 {
        self.holders.iter().map(|(_, _, permits)| permits).sum()
    }
}

/// Sometimes it requests to write as well, which other readers may prevent.
fn read(client: &mut Client, number: usize) {
    assert!(client.run(&format!("RWLOCK.ACQUIRE rw o{number} READ PX 60000 BLOCK 20000")).fence() > 0);
    let inside = client.pipeline(&["INCR in:readers", "GET in:writers"]);
    assert!(matches!(inside[1], Reply::NullBulk) || inside[1] == Reply::bulk("0"), "a reader together with a writer");
    let upgrade = client.run(&format!("RWLOCK.ACQUIRE rw o{number} WRITE PX 60000 BLOCK 3"));
    if let Reply::Array(_) = upgrade {
        assert_eq!(client.pipeline(&["INCR in:writers", "GET in:readers", "DECR in:writers"])[1], Reply::bulk("1"));
        assert_eq!(client.run(&format!("RWLOCK.RELEASE rw o{number} WRITE")), Reply::Int(0));
    } else {
        assert!(upgrade.is_nil() || upgrade.error().starts_with("DEADLOCK "), "{upgrade:?}");
    }
    client.run("DECR in:readers");
    assert_eq!(client.run(&format!("RWLOCK.RELEASE rw o{number} READ")), Reply::Int(0));
}

fn write(client: &mut Client, number: usize) {
    assert!(client.run(&format!("RWLOCK.ACQUIRE rw o{number} WRITE PX 60000 BLOCK 20000")).fence() > 0);
    let inside = client.pipeline(&["INCR in:writers", "GET in:readers"]);
    assert_eq!(inside[0], Reply::Int(1), "two writers");
    assert!(matches!(inside[1], Reply::NullBulk) || inside[1] == Reply::bulk("0"), "a writer together with readers");
    client.run("DECR in:writers");
    assert_eq!(client.run(&format!("RWLOCK.RELEASE rw o{number} WRITE")), Reply::Int(0));
}

fn take_permits(client: &mut Client, rng: &mut Rng, number: usize) {
    let permits = 1 + rng.below(5);
    let line = format!("SEM.ACQUIRE sem o{number} LIMIT 5 PERMITS {permits} PX 60000 BLOCK 20000");
    assert_eq!(client.run(&line).items()[2].int(), permits as i64);
    assert!(client.run(&format!("INCRBY in:permits {permits}")).int() <= 5, "more permits than the limit");
    client.run(&format!("DECRBY in:permits {permits}"));
    assert_eq!(client.run(&format!("SEM.RELEASE sem o{number} HOLDS 0")), Reply::Int(0));
}

/// Acquires two of three at once, or a single one.
fn take_mutexes(client: &mut Client, rng: &mut Rng, number: usize) {
    let names = *rng.pick(&["x y", "y z", "z x", "y"]);
    let keys: Vec<&str> = names.split(' ').collect();
    let line = format!("MLOCK.ACQUIRE {} {names} o{number} PX 60000 BLOCK 20000", keys.len());
    assert!(client.run(&line).fence() > 0);
    for key in &keys {
        assert_eq!(client.run(&format!("INCR in:{key}")), Reply::Int(1), "two hold {key}");
    }
    for key in &keys {
        client.run(&format!("DECR in:{key}"));
    }
    let released = client.run(&format!("MLOCK.RELEASE {} {names} o{number}", keys.len()));
    assert_eq!(released, Reply::Int(keys.len() as i64));
}

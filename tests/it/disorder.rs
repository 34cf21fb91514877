//! Random commands of every kind, from connections that come and go, while anything may happen to the server:
//! transactions, scripts, calls by other modules, pauses, demotions, reloads, flushes, evictions, changed settings.
//! Replies are not checked here; other tests do that. The server must not exit, no part of the module may panic, and
//! afterwards no client is forgotten.
//!
//! - `REDIS_LOCK_DISORDER_STEPS`: the number of steps (20000; a million for a long run)
//! - `LOCK_TEST_SEED`: the seed of a run that failed, which reproduces it as far as timing allows

use std::thread;

use crate::support::{built_caller, until, Client, Rng, Server};

const CLIENTS: usize = 24;

#[test]
fn random_commands_of_every_kind_crash_no_server_and_forget_no_client() {
    let steps = std::env::var("REDIS_LOCK_DISORDER_STEPS").map_or(20_000, |steps| steps.parse().expect("a number"));
    let mut rng = Rng::new(2211);
    let seed = rng.seed();
    // Shown when the test fails.
    eprintln!("LOCK_TEST_SEED={seed}");
    let caller = built_caller().expect("`cargo build --workspace` of the same profile builds it");
    let mut server = Server::builder().config(format!("loadmodule {}", caller.display())).start();
    let mut world = World::of(&server);
    for step in 0..steps {
        world.step(&mut rng);
        if step % 500 == 0 {
            world.read_replies();
        }
    }
    world.run_until_idle();
    drop(world);
    assert!(server.is_alive(), "seed {seed}: {}", server.log());
    let log = server.log();
    assert!(!log.contains("redis-lock: a bug"), "seed {seed}: {log}");
}

/// A server and its clients.
struct World<'s> {
    server: &'s Server,
    admin: Client,
    /// Subscribed to the channel of NOTIFY.
    subscriber: Client,
    visitors: Vec<Visitor>,
}

impl Drop for World<'_> {
    fn drop(&mut self) {
        if thread::panicking() {
            let log = self.server.log();
            let lines: Vec<&str> = log.lines().collect();
            eprintln!("{}", lines[lines.len().saturating_sub(300)..].join("\n"));
        }
    }
}

/// A connection, and how many replies are pending.
struct Visitor {
    client: Client,
    id: i64,
    awaited: usize,
}

impl Visitor {
    fn of(server: &Server, rng: &mut Rng) -> Visitor {
        let mut client = if rng.one_in(2) { server.client3() } else { server.client() };
        let id = client.id();
        Visitor { client, id, awaited: 0 }
    }

    /// Reads the replies that have arrived. False: the connection has closed.
    fn read_replies(&mut self) -> bool {
        loop {
            match self.client.read_now() {
                Ok(Some(_)) => self.awaited = self.awaited.saturating_sub(1),
                Ok(None) => return true,
                Err(_) => return false,
            }
        }
    }

    fn ask(&mut self, lines: &[String]) {
        let words = |line: &String| line.split(' ').map(|word| word.replace('\t', " ")).collect::<Vec<_>>();
        for line in lines {
            // A client that was killed is detected when its replies are read.
            let _ = self.client.try_send(&words(line));
        }
        self.awaited += lines.len();
    }
}

impl World<'_> {
    fn of(server: &Server) -> World<'_> {
        let mut subscriber = server.client();
        subscriber.run("SUBSCRIBE ch");
        World { server, admin: server.client(), subscriber, visitors: Vec::new() }
    }

    fn read_replies(&mut self) {
        while let Ok(Some(_)) = self.subscriber.read_now() {}
    }

    fn step(&mut self, rng: &mut Rng) {
        if self.visitors.len() < CLIENTS {
            self.visitors.push(Visitor::of(self.server, rng));
        }
        if rng.one_in(25) {
            let id = rng.pick(&self.visitors).id;
            // Each of them gets a reply, possibly an error.
            self.admin.pipeline(&disturbance(rng, id));
            return;
        }
        let which = rng.below(self.visitors.len());
        let visitor = &mut self.visitors[which];
        let is_there = visitor.read_replies();
        if !is_there || rng.one_in(60) {
            self.visitors.swap_remove(which);
        } else if visitor.awaited == 0 {
            visitor.ask(&visit(rng));
        }
    }

    /// Lets the server become idle, until every request has its reply.
    fn run_until_idle(&mut self) {
        let lines = [
            "CLIENT UNPAUSE",
            "REPLICAOF NO ONE",
            "CONFIG SET maxmemory 0",
            "CONFIG SET lock.grace 0",
            "CONFIG SET lock.keep-place 0",
            "CONFIG SET lock.max-lease 31536000000",
            "CONFIG SET lock.max-waiters-per-key 0",
            "CONFIG SET lock.max-waiters 10000",
        ];
        self.admin.pipeline(&lines);
        let World { server, admin, visitors, .. } = self;
        until("every request has its reply or its connection has closed", || {
            // A client that is granted a lock now makes way for the next.
            admin.run("FLUSHALL");
            visitors.iter_mut().all(|visitor| !visitor.read_replies() || visitor.awaited == 0)
        });
        visitors.clear();
        server.wait_blocked(0);
        until("the rules know of no client", || {
            admin.run("FLUSHALL");
            let info = server.info("lock");
            ["lock_waiters", "lock_kept_places", "lock_sessions"].iter().all(|field| info.number(field) == 0)
        });
        for key in KEYS {
            assert!(admin.run(&format!("LOCK.ACQUIRE {key} last PX 60000")).fence() > 0, "{key}");
        }
        assert!(admin.run("MLOCK.RELEASE 6 k0 k1 k2 k3 k4 k5 last").int() == 6);
    }
}

const KEYS: [&str; 6] = ["k0", "k1", "k2", "k3", "k4", "k5"];

/// The commands that a connection sends in one piece.
fn visit(rng: &mut Rng) -> Vec<String> {
    match rng.below(12) {
        0 => {
            let mut lines = vec!["MULTI".to_string()];
            lines.extend((0..1 + rng.below(4)).map(|_| any_line(rng)));
            lines.push(rng.pick(&["EXEC", "EXEC", "EXEC", "DISCARD"]).to_string());
            if rng.one_in(3) {
                lines.insert(0, format!("WATCH {}", rng.pick(&KEYS)));
            }
            lines
        }
        1 => vec![script(rng)],
        // Not TEST.THREAD: Redis 8.0 crashes when a module's thread publishes anything, even without this module.
        2 => vec![format!("TEST.CALL {}", lock_line(rng))],
        3 => (0..1 + rng.below(4)).map(|_| any_line(rng)).collect(),
        _ => vec![any_line(rng)],
    }
}

/// A tab stands for a space within an argument.
fn script(rng: &mut Rng) -> String {
    let call = "redis.pcall(unpack(ARGV))";
    let body = match rng.below(3) {
        0 => format!("return\t{call}"),
        1 => format!("{call}\treturn\t{call}"),
        _ => format!("redis.call('PEXPIRE',\t'{}',\t5)\treturn\t{call}", rng.pick(&KEYS)),
    };
    format!("EVAL {body} 0 {}", any_line(rng))
}

fn any_line(rng: &mut Rng) -> String {
    match rng.below(6) {
        0 => key_line(rng),
        1 if rng.one_in(2) => format!("LOCK.EXEC {} {} {}", rng.pick(&KEYS), owner(rng), inner_line(rng)),
        _ => lock_line(rng),
    }
}

fn inner_line(rng: &mut Rng) -> String {
    match rng.below(8) {
        0 => "INCR counter".into(),
        1 => "BLPOP list 1".into(),
        2 => script(rng).replace('\t', ""),
        3 | 4 => key_line(rng),
        _ => lock_line(rng),
    }
}

fn owner(rng: &mut Rng) -> String {
    format!("o{}", rng.below(8))
}

/// Commands of this module.
fn lock_line(rng: &mut Rng) -> String {
    let (key, owner) = (*rng.pick(&KEYS), owner(rng));
    let taker = if rng.one_in(12) { "*" } else { owner.as_str() };
    let lease = *rng.pick(&["", "PX 1", "PX 4", "PX 25", "PX 300", "PX 60000", "EX 5", "PERSIST"]);
    let wait = *rng.pick(&[
        "",
        "",
        "BLOCK 0",
        "BLOCK 1",
        "BLOCK 15",
        "BLOCK 100",
        "BLOCK 0 NOTIFY ch",
        "BLOCK 30 NOTIFY ch",
        "BLOCK 40 SESSION",
        "SESSION",
    ]);
    let mode = *rng.pick(&["READ", "READ", "WRITE"]);
    let count = 1 + rng.below(3);
    let amount = match rng.below(4) {
        0 => format!("HOLDS {}", rng.below(3)),
        _ => String::new(),
    };
    let permits = match rng.below(5) {
        0 => "SLOT".into(),
        1 => format!("HOLDS {}", rng.below(3)),
        2 => String::new(),
        _ => format!("PERMITS {count}"),
    };
    let several = (0..count).map(|_| *rng.pick(&KEYS)).collect::<Vec<_>>().join(" ");
    match rng.below(40) {
        0..=5 => format!("LOCK.ACQUIRE {key} {taker} {lease} {wait}"),
        6 | 7 => format!("LOCK.ACQUIRE {key} {taker} {lease} BLOCK {} COALESCE", rng.below(60)),
        8..=10 => format!("LOCK.RELEASE {key} {owner} {}", rng.pick(&["", "", "FAILED"])),
        11 => format!("LOCK.RENEW {key} {owner} {lease}"),
        12..=14 => format!("RLOCK.ACQUIRE {key} {taker} {amount} {lease} {wait}"),
        15 => format!("RLOCK.RELEASE {key} {owner} {amount}"),
        16 => format!("RLOCK.RENEW {key} {owner} {lease}"),
        17..=19 => format!("RWLOCK.ACQUIRE {key} {taker} {mode} {amount} {lease} {wait}"),
        20 => format!("RWLOCK.RELEASE {key} {owner} {mode} {amount}"),
        21 => format!("RWLOCK.RENEW {key} {owner} {lease}"),
        22..=24 => format!("SEM.ACQUIRE {key} {taker} LIMIT {} {permits} {lease} {wait}", count + rng.below(3)),
        25 => format!("SEM.RELEASE {key} {owner} {permits}"),
        26 => format!("SEM.RENEW {key} {owner} {lease}"),
        27..=29 => format!("MLOCK.ACQUIRE {count} {several} {taker} {lease} {wait}"),
        30 => format!("MLOCK.RELEASE {count} {several} {owner}"),
        31 => format!("MLOCK.RENEW {count} {several} {owner} {lease}"),
        32 => format!("LOCK.HELD {key} {owner}"),
        33 => format!("LOCK.INFO {key} COUNT {}", rng.below(5)),
        34 => format!("LOCK.WAITERS {key} COUNT {}", rng.below(5)),
        35 => format!("LOCK.SCAN 0 MATCH k* COUNT {count}"),
        36 => {
            rng.pick(&["LOCK.TOP COUNT 3", "LOCK.LOG GET 3", "LOCK.LOG LEN", "LOCK.LOG RESET", "LOCK.HELP"]).to_string()
        }
        37 => format!("LOCK.BREAK {key} {}", rng.pick(&["", "OWNER o1"])),
        38 => format!("LOCK.CANCEL {key} {owner}"),
        _ => format!("LOCK.APPLY {key} {owner} {count}"),
    }
    .split_whitespace()
    .collect::<Vec<_>>()
    .join(" ")
}

/// Other commands on the same keys.
fn key_line(rng: &mut Rng) -> String {
    let (key, other) = (*rng.pick(&KEYS), *rng.pick(&KEYS));
    match rng.below(20) {
        0..=3 => format!("DEL {key}"),
        4 => format!("UNLINK {key} {other}"),
        5..=7 => format!("PEXPIRE {key} {}", rng.pick(&[1, 3, 40, 90_000])),
        8 => format!("PEXPIREAT {key} {}", rng.pick(&[1_i64, 4_000_000_000_000])),
        9 => format!("PERSIST {key}"),
        10 => format!("SET {key} v"),
        11 => format!("RENAME {key} {other}"),
        12 => format!("MOVE {key} 1"),
        13 => format!("COPY {key} {other} REPLACE"),
        14 => format!("DUMP {key}"),
        15 => format!("EXISTS {key} {other}"),
        16 => format!("LPUSH {key} v"),
        17 => format!("SORT {key} STORE {other}"),
        18 => rng
            .pick(&["INFO lock", "DEBUG DIGEST", "CLIENT TRACKING ON", "CLIENT TRACKING OFF", "WAIT 0 1"])
            .to_string(),
        _ => format!("OBJECT ENCODING {key}"),
    }
}

/// Events of the server or of one client.
fn disturbance(rng: &mut Rng, client: i64) -> Vec<String> {
    let line = match rng.below(22) {
        0 => "FLUSHALL".into(),
        1 => "FLUSHALL ASYNC".into(),
        2 => "FLUSHDB ASYNC".into(),
        3 => "FLUSHDB SYNC".into(),
        4 | 5 => "SWAPDB 0 1".into(),
        6 => format!("CLIENT PAUSE {} WRITE", 1 + rng.below(30)),
        7 => format!("CLIENT PAUSE {} ALL", 1 + rng.below(15)),
        8 => "CLIENT UNPAUSE".into(),
        // There is no such primary, so the server keeps its data.
        9 => "REPLICAOF 127.0.0.1 1".into(),
        10..=12 => "REPLICAOF NO ONE".into(),
        13 => "DEBUG RELOAD".into(),
        14 => format!("CLIENT KILL ID {client}"),
        15 if rng.one_in(4) => "CLIENT KILL TYPE normal SKIPME yes".into(),
        // Even without the module, Redis 7.0 and Valkey 8.1 crash if TIMEOUT unblocks a client that a pause holds back.
        15 | 16 => {
            let way = rng.pick(&["TIMEOUT", "ERROR"]);
            return vec!["CLIENT UNPAUSE".into(), format!("CLIENT UNBLOCK {client} {way}")];
        }
        17 => {
            let key = *rng.pick(&KEYS);
            return vec!["MULTI".into(), format!("DEL {key}"), format!("CLIENT KILL ID {client}"), "EXEC".into()];
        }
        18 => {
            let policy = rng.pick(&["noeviction", "allkeys-lru", "volatile-ttl"]);
            return [&format!("CONFIG SET maxmemory-policy {policy}"), "CONFIG SET maxmemory 1", "SET filler v"]
                .into_iter()
                .chain(["CONFIG SET maxmemory 0"])
                .map(String::from)
                .collect();
        }
        19 => format!("CONFIG SET notify-keyspace-events {}", rng.pick(&["KEA", "KEd", "Kg"])),
        _ => setting(rng),
    };
    vec![line]
}

fn setting(rng: &mut Rng) -> String {
    let (name, values): (&str, &[&str]) = *rng.pick(&[
        ("default-lease", &["5", "30000"] as &[&str]),
        ("max-lease", &["50", "31536000000", "31536000000"]),
        ("max-waiters", &["3", "10000"]),
        ("max-waiters-per-key", &["0", "0", "2"]),
        ("keep-place", &["0", "20", "1000"]),
        ("grace", &["0", "0", "15"]),
        ("keyspace-events", &["yes", "no"]),
        ("log-hold", &["0", "1"]),
        ("log-wait", &["0", "1"]),
        ("log-max-len", &["0", "3", "128"]),
        ("max-waiters", &["-1"]),
    ]);
    format!("CONFIG SET lock.{name} {}", rng.pick(values))
}

//! The script of one connection of the soak test: a pipeline of random calls with every lock type, and the expected
//! replies.
//!
//! No call of a script depends on when another connection runs: every waiter is eventually granted, and no owner waits
//! for a key while it holds another, so each reply is known in advance.

use support::{Pipeline, Reply, Rng};

/// The number of locks of each type that all connections contend for.
const SHARED_KEYS: usize = 12;

/// Held for the whole test, so it is never granted to another owner.
pub const BUSY: &str = "busy";

/// The counter that holders increment.
pub const COUNTED: &str = "counted";

/// Settings with which each adopted call has a single possible reply: a SET waits until it is granted.
pub const ADOPT: [&str; 2] = ["lock.adopt a*,hash:h*", "lock.adopt-wait 600000"];

const COMPARE_AND_DELETE: &str =
    "if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end return redis.call('DEL', KEYS[1])";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Expected {
    /// A new fencing token.
    Grant,
    /// The same fencing token, with this many holds.
    Again(i64),
    Int(i64),
    /// An integer that grows.
    Counter,
    Nil,
    Queued,
    /// LOCK.HELD by a holder.
    Held,
    /// LOCK.HELD by a holder whose grant contained no fencing token.
    NewFence,
    /// A SET that was granted.
    Set,
    Ok,
    Deadlock,
}

/// How often each call was made. The server must have counted the same.
#[derive(Clone, Debug, Default)]
pub struct Tally {
    pub commands: u64,
    /// Replies with a fencing token, including an unchanged one, and grants to adopted commands.
    pub grants: u64,
    /// Grants to adopted commands, one for a hash.
    pub adopted: u64,
    /// Grants that were published on a channel.
    pub published: u64,
    /// Grants whose lease was left to expire.
    pub left_to_expire: u64,
    pub timeouts: u64,
    pub cancels: u64,
    pub deadlocks: u64,
    pub execs: u64,
    /// Connections that closed with locks bound to them.
    pub sessions: u64,
    /// Each new fencing token, in the order in which this connection got them.
    pub fences: Vec<i64>,
}

#[derive(Default)]
pub struct Script {
    pub pipeline: Pipeline,
    expected: Vec<Expected>,
    /// Counts of events without a reply.
    silent: Tally,
    /// Whether it ends with a lock bound to the connection, which must then be closed.
    pub ends_connection: bool,
}

impl Script {
    /// Random calls, at least `commands`. `name` is unique to this script.
    pub fn random(rng: &mut Rng, connection: usize, name: u64, commands: usize) -> Script {
        let mut script = Script::default();
        let mut part = 0;
        while script.expected.len() < commands {
            script.add_part(rng, connection, &format!("{name}.{part}"));
            part += 1;
        }
        if rng.one_in(16) {
            script.end_a_session(rng, &format!("{name}.session"));
        }
        script
    }

    fn call(&mut self, line: &str, expected: Expected) {
        self.pipeline.push(&line.split_whitespace().collect::<Vec<_>>());
        self.expected.push(expected);
    }

    fn add_part(&mut self, rng: &mut Rng, connection: usize, owner: &str) {
        use Expected::{Again, Counter, Deadlock, Grant, Held, Int, Nil, Queued};
        let key = rng.below(SHARED_KEYS);
        match rng.below(115) {
            0..=21 => {
                self.call(&format!("LOCK.ACQUIRE m{key} {owner} BLOCK 0"), Grant);
                match rng.below(4) {
                    0 => self.call(&format!("LOCK.HELD m{key} {owner}"), Held),
                    1 => self.call(&format!("LOCK.RENEW m{key} {owner} PX 60000"), Int(1)),
                    2 => {
                        self.call(&format!("LOCK.EXEC m{key} {owner} INCR {COUNTED}"), Counter);
                        self.silent.execs += 1;
                    }
                    _ => self.call(&format!("LOCK.ACQUIRE m{key} {owner}"), Again(0)),
                }
                self.call(&format!("LOCK.RELEASE m{key} {owner}"), Int(1));
            }
            22..=36 => {
                self.call(&format!("RLOCK.ACQUIRE r{key} {owner} BLOCK 0"), Grant);
                self.call(&format!("RLOCK.ACQUIRE r{key} {owner} BLOCK 0"), Again(2));
                self.call(&format!("RLOCK.RELEASE r{key} {owner}"), Int(1));
                self.call(&format!("RLOCK.RELEASE r{key} {owner}"), Int(0));
            }
            37..=46 => {
                self.call(&format!("RWLOCK.ACQUIRE w{key} {owner} READ BLOCK 0"), Grant);
                self.call(&format!("RWLOCK.RENEW w{key} {owner}"), Int(1));
                self.call(&format!("RWLOCK.RELEASE w{key} {owner} READ"), Int(0));
            }
            47..=52 => {
                self.call(&format!("RWLOCK.ACQUIRE w{key} {owner} WRITE BLOCK 0"), Grant);
                self.call(&format!("RWLOCK.ACQUIRE w{key} {owner} READ"), Again(1));
                self.call(&format!("RWLOCK.RELEASE w{key} {owner} WRITE"), Int(0));
                self.call(&format!("RWLOCK.RELEASE w{key} {owner} READ"), Int(0));
            }
            53..=64 => {
                let permits = 1 + rng.below(3);
                self.call(&format!("SEM.ACQUIRE s{key} {owner} LIMIT 4 PERMITS {permits} BLOCK 0"), Grant);
                self.call(&format!("SEM.RELEASE s{key} {owner} PERMITS {permits}"), Int(0));
            }
            65..=74 => {
                let (other, third) = ((key + 1) % SHARED_KEYS, (key + 5) % SHARED_KEYS);
                self.call(&format!("MLOCK.ACQUIRE 3 m{key} m{other} m{third} {owner} BLOCK 0"), Grant);
                self.call(&format!("MLOCK.RELEASE 3 m{key} m{other} m{third} {owner}"), Int(3));
            }
            75..=80 => {
                self.call(&format!("LOCK.ACQUIRE m{key} {owner} PX 5000 BLOCK 0 SESSION"), Grant);
                self.call(&format!("LOCK.RELEASE m{key} {owner}"), Int(1));
            }
            // These are not requested again.
            81..=86 => {
                let lease = 1 + rng.below(30);
                self.call(&format!("LOCK.ACQUIRE {owner} {owner} PX {lease}"), Grant);
                self.silent.left_to_expire += 1;
            }
            // The next waiter is granted it when the lease expires.
            87 => {
                self.call(&format!("LOCK.ACQUIRE x{key} {owner} PX 2 BLOCK 0"), Grant);
                self.silent.left_to_expire += 1;
            }
            88 => self.call(&format!("LOCK.ACQUIRE {BUSY} {owner} BLOCK 1"), Nil),
            89..=90 => {
                self.call(&format!("LOCK.ACQUIRE {BUSY} {owner} BLOCK 60000 NOTIFY outcomes"), Queued);
                self.call(&format!("LOCK.CANCEL {BUSY} {owner}"), Int(1));
                self.silent.cancels += 1;
            }
            91..=95 => {
                let key = format!("n{connection}");
                self.call(&format!("LOCK.ACQUIRE {key} {owner}a"), Grant);
                self.call(&format!("LOCK.ACQUIRE {key} {owner}b BLOCK 60000 NOTIFY outcomes"), Queued);
                self.call(&format!("LOCK.RELEASE {key} {owner}a"), Int(1));
                self.call(&format!("LOCK.HELD {key} {owner}b"), Held);
                self.call(&format!("LOCK.RELEASE {key} {owner}b"), Int(1));
                self.silent.published += 1;
            }
            100..=109 => self.add_adopted(rng, &format!("a{key}"), owner),
            110..=114 => self.add_adopted_hash(&format!("h{connection}"), owner),
            _ => {
                let (one, other) = (format!("d{connection}"), format!("e{connection}"));
                self.call(&format!("LOCK.ACQUIRE {one} {owner}a"), Grant);
                self.call(&format!("RLOCK.ACQUIRE {other} {owner}b"), Grant);
                self.call(&format!("RLOCK.ACQUIRE {other} {owner}a BLOCK 60000 NOTIFY outcomes"), Queued);
                self.call(&format!("LOCK.ACQUIRE {one} {owner}b BLOCK 60000 NOTIFY outcomes"), Deadlock);
                self.call(&format!("RLOCK.RELEASE {other} {owner}b"), Int(0));
                self.call(&format!("RLOCK.RELEASE {other} {owner}a"), Int(0));
                self.call(&format!("LOCK.RELEASE {one} {owner}a"), Int(1));
                self.silent.published += 1;
            }
        }
    }

    /// A mutex for native clients and clients of other lock libraries.
    fn add_adopted(&mut self, rng: &mut Rng, key: &str, owner: &str) {
        let is_native = rng.below(2) == 0;
        if is_native {
            self.call(&format!("LOCK.ACQUIRE {key} {owner} BLOCK 0"), Expected::Grant);
        } else {
            self.call(&format!("SET {key} {owner} NX PX 60000"), Expected::Set);
            self.call(&format!("LOCK.HELD {key} {owner}"), Expected::NewFence);
        }
        match rng.below(4) {
            0 => self.call(&format!("SET {key} {owner} XX PX 60000"), Expected::Ok),
            1 => self.call(&format!("PEXPIRE {key} 60000"), Expected::Int(1)),
            2 => self.call(&format!("SETNX {key} other"), Expected::Int(0)),
            _ => self.call(&format!("EXISTS {key}"), Expected::Int(1)),
        }
        match rng.below(3) {
            0 => self.call(&format!("LOCK.RELEASE {key} {owner}"), Expected::Int(1)),
            1 if is_native => {
                self.call(&format!("DEL {key}"), Expected::Int(0));
                self.call(&format!("LOCK.RELEASE {key} {owner}"), Expected::Int(1));
            }
            1 => self.call(&format!("DEL {key}"), Expected::Int(1)),
            _ => {
                self.pipeline.push(&["EVAL", COMPARE_AND_DELETE, "1", key, owner]);
                self.expected.push(Expected::Int(1));
            }
        }
    }

    /// Counts in this connection's own hash, because a second owner is an error.
    fn add_adopted_hash(&mut self, key: &str, owner: &str) {
        for holds in 1..=2 {
            self.call(&format!("HINCRBY {key} {owner} 1"), Expected::Int(holds));
            self.silent.grants += 1;
        }
        self.silent.adopted += 1;
        self.call(&format!("RLOCK.ACQUIRE {key} {owner}"), Expected::Again(3));
        self.call(&format!("HINCRBY {key} {owner} -2"), Expected::Int(1));
        self.call(&format!("RLOCK.RELEASE {key} {owner}"), Expected::Int(0));
    }

    /// Both locks in one step, so that no owner waits for one while it holds the other.
    fn end_a_session(&mut self, rng: &mut Rng, owner: &str) {
        let key = rng.below(SHARED_KEYS);
        let other = (key + 3) % SHARED_KEYS;
        let line = format!("MLOCK.ACQUIRE 2 m{key} m{other} {owner} PX 60000 BLOCK 0 SESSION");
        self.call(&line, Expected::Grant);
        self.ends_connection = true;
        self.silent.sessions += 1;
    }

    /// Judges the reply with this index, and counts it; or returns the error.
    pub fn check(&self, index: usize, reply: &Reply, tally: &mut Tally) -> Result<(), String> {
        let expected = self.expected[index];
        let wrong = || format!("expected {expected:?}, got {reply:?}");
        let items = match reply {
            Reply::Array(items) => items.as_slice(),
            _ => &[],
        };
        let grant = match items {
            [Reply::Bulk(_), Reply::Int(fence), holds @ ..] => Some((*fence, holds.first())),
            _ => None,
        };
        match (expected, reply) {
            (Expected::Int(number), Reply::Int(got)) if number == *got => {}
            (Expected::Counter, Reply::Int(1..)) => {}
            (Expected::Ok, Reply::Status(status)) if status == "OK" => {}
            (Expected::Set, Reply::Status(status)) if status == "OK" => {
                tally.grants += 1;
                tally.adopted += 1;
            }
            (Expected::NewFence, _) => match items {
                [Reply::Int(fence), Reply::Int(1), Reply::Int(_)]
                    if tally.fences.last().is_none_or(|last| last < fence) =>
                {
                    tally.fences.push(*fence);
                }
                _ => return Err(wrong()),
            },
            (Expected::Nil, reply) if reply.is_nil() => tally.timeouts += 1,
            (Expected::Deadlock, Reply::Error(text)) if text.starts_with("DEADLOCK ") => tally.deadlocks += 1,
            (Expected::Held, _) => {
                let [Reply::Int(1..), Reply::Int(1), Reply::Int(_)] = items else { return Err(wrong()) };
            }
            (Expected::Queued, _) if matches!(grant, Some((0, _))) => {}
            (Expected::Again(holds), _) => match grant {
                Some((1.., of)) if of.is_none_or(|of| *of == Reply::Int(holds)) => tally.grants += 1,
                _ => return Err(wrong()),
            },
            (Expected::Grant, _) => match grant {
                Some((fence @ 1.., _)) if tally.fences.last().is_none_or(|last| *last < fence) => {
                    tally.grants += 1;
                    tally.fences.push(fence);
                }
                Some((1.., _)) => return Err(format!("a fence went back: {reply:?} after {:?}", tally.fences.last())),
                _ => return Err(wrong()),
            },
            _ => return Err(wrong()),
        }
        Ok(())
    }

    /// Counts the whole script, after all of its replies have been judged.
    pub fn count(&self, tally: &mut Tally) {
        tally.commands += self.expected.len() as u64;
        tally.add(self.silent.clone());
    }
}

impl Tally {
    pub fn add(&mut self, mut other: Tally) {
        self.commands += other.commands;
        self.grants += other.grants;
        self.adopted += other.adopted;
        self.published += other.published;
        self.left_to_expire += other.left_to_expire;
        self.timeouts += other.timeouts;
        self.cancels += other.cancels;
        self.deadlocks += other.deadlocks;
        self.execs += other.execs;
        self.sessions += other.sessions;
        self.fences.append(&mut other.fences);
    }
}

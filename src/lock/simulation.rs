//! The rules under an invented clock: random schedules of everything that can happen to them, checked after every step.
//!
//! The world is a map of locks, with a replica beside it that gets nothing but the effects. Time passes when a step says so.

use std::cell::Cell;
use std::collections::HashMap;

use proptest::prelude::*;

use super::claim::{AskRef, Claim, Count, Kind, Mode};
use super::desk::{Acquire, Acquired, Desk, Error, Limits, Renew, Wait};
use super::fence::Fence;
use super::members::Holder;
use super::outcome::Verdict;
use super::owner::Owner;
use super::queue::{ClientId, Key, KeyRef, Place, RequestId};
use super::serve::Leaving;
use super::state::{First, Lock};
use super::time::{At, Deadline, Lease, Now};
use super::world::{Delivery, Effect, Found, Gate, News, World};

thread_local! {
    /// The invented clock.
    static CLOCK_MS: Cell<u64> = const { Cell::new(0) };
}

/// A server as the rules see it.
#[derive(Default)]
struct Server {
    now_ms: u64,
    keys: HashMap<Key, (Lock, Deadline)>,
    replica: HashMap<Key, (Lock, Deadline)>,
    closed: bool,
    answers: Vec<(RequestId, News)>,
    /// Keys that ended by themselves, of which the desk is still to be told.
    removed: Vec<(Key, Fence)>,
}

impl Server {
    fn at(&self) -> At {
        At::from_ms(self.now_ms)
    }

    fn expire(&mut self, key: &Key) {
        if self.keys.get(key).is_some_and(|(_, until)| until.is_over(self.at())) {
            self.end(key);
        }
    }

    /// What DEL, an eviction or the end of the time to live does.
    fn end(&mut self, key: &Key) {
        if let Some((lock, _)) = self.keys.remove(key) {
            self.replica.remove(key);
            self.removed.extend(lock.fence().map(|fence| (key.clone(), fence)));
        }
    }

    /// As a dump and its load do: every hold as it is stored, and the key's own time to live.
    fn reload_replica(&mut self) {
        self.replica.clear();
        for (key, (lock, until)) in &self.keys {
            let as_holder = |hold: &super::outcome::Hold<'_>| Holder {
                owner: hold.owner.clone(),
                fence: hold.fence,
                lease: hold.lease,
                until: hold.until,
                holds: hold.holds,
                reads: hold.reads,
            };
            let holders = lock.stored_holds().iter().map(as_holder).collect();
            let copy = Lock::from_parts(lock.kind().unwrap(), lock.limit(), lock.fence().unwrap(), holders);
            self.replica.insert(key.clone(), (copy.expect("what is stored can be loaded"), *until));
        }
    }

    fn replicate_hold(&mut self, key: &Key, owner: &[u8]) {
        let (lock, until) = &self.keys[key];
        let hold = lock.hold(owner, *until).expect("an effect is sent of a hold that is there");
        let holder = Holder {
            owner: Owner::new(owner).unwrap(),
            fence: hold.fence,
            lease: hold.lease,
            until: hold.until,
            holds: hold.holds,
            reads: hold.reads,
        };
        let (kind, limit, until) = (lock.kind().unwrap(), lock.limit(), *until);
        let copy = self.replica.entry(key.clone()).or_insert((Lock::Vacant, until));
        copy.0.apply_hold(kind, limit, holder);
        copy.1 = copy.0.last_deadline().unwrap_or(until);
    }
}

impl World for Server {
    fn find(&mut self, key: KeyRef<'_>) -> Found<'_> {
        let key = key.to_key();
        self.expire(&key);
        self.keys.get_mut(&key).map_or(Found::Free, |(lock, _)| Found::Lock(lock))
    }

    fn until(&mut self, key: KeyRef<'_>) -> Deadline {
        self.keys.get(&key.to_key()).map_or(Deadline::Never, |(_, until)| *until)
    }

    fn create(&mut self, key: KeyRef<'_>, first: First<'_>) {
        let before = self.keys.insert(key.to_key(), (first.lock(), first.until()));
        assert!(before.is_none(), "created where something was");
        self.replicate_hold(&key.to_key(), first.owner());
    }

    fn update(&mut self, key: KeyRef<'_>, effect: Effect<'_>, until: Option<Deadline>) {
        let key = key.to_key();
        let stored = self.keys.get_mut(&key).expect("what is updated is there");
        stored.1 = until.unwrap_or(stored.1);
        match effect {
            Effect::Hold(owner) | Effect::Renew(owner) => self.replicate_hold(&key, owner),
            Effect::Drop(owner) => {
                let Some((copy, until)) = self.replica.get_mut(&key) else { return };
                copy.evict(owner);
                *until = copy.last_deadline().unwrap_or(*until);
                if copy.is_vacant() {
                    self.replica.remove(&key);
                }
            }
            Effect::Clamp => {
                let (copy, until) = self.replica.get_mut(&key).expect("the replica has it too");
                copy.clamp(*until);
            }
            Effect::Limit => {
                let limit = stored.0.limit();
                self.replica.get_mut(&key).expect("the replica has it too").0.set_limit(limit);
            }
        }
    }

    fn remove(&mut self, key: KeyRef<'_>) {
        self.keys.remove(&key.to_key());
        self.replica.remove(&key.to_key());
    }

    fn gate(&mut self, _: KeyRef<'_>) -> Gate {
        if self.closed {
            Gate::Closed
        } else {
            Gate::Open
        }
    }

    fn answer(&mut self, request: RequestId, news: News) -> Delivery {
        self.answers.push((request, news));
        if matches!(news, News::Granted { .. }) {
            Delivery::Pending
        } else {
            Delivery::Done
        }
    }
}

/// One step of a schedule. Numbers choose among the few owners, keys and requests that there are.
#[derive(Clone, Debug)]
enum Step {
    Acquire {
        who: u8,
        what: u8,
        key: u8,
        wait: bool,
        session: bool,
        lease_ms: u64,
    },
    Release {
        who: u8,
        key: u8,
        all: bool,
    },
    Renew {
        who: u8,
        key: u8,
    },
    Cancel {
        who: u8,
        key: u8,
    },
    Pass {
        ms: u64,
    },
    Leave {
        which: u8,
        for_good: bool,
    },
    Unheard {
        which: u8,
    },
    EndSession {
        who: u8,
    },
    End {
        key: u8,
    },
    Expire {
        key: u8,
        ms: u64,
    },
    Close {
        closed: bool,
    },
    /// The replica is built anew from what is stored.
    Reload,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        8 => (0..5u8, 0..8u8, 0..5u8, any::<bool>(), prop::bool::weighted(0.2), 1..400u64).prop_map(
            |(who, what, key, wait, session, lease_ms)| Step::Acquire { who, what, key, wait, session, lease_ms }
        ),
        6 => (0..5u8, 0..5u8, any::<bool>()).prop_map(|(who, key, all)| Step::Release { who, key, all }),
        1 => (0..5u8, 0..5u8).prop_map(|(who, key)| Step::Renew { who, key }),
        1 => (0..5u8, 0..5u8).prop_map(|(who, key)| Step::Cancel { who, key }),
        4 => (1..150u64).prop_map(|ms| Step::Pass { ms }),
        2 => (any::<u8>(), any::<bool>()).prop_map(|(which, for_good)| Step::Leave { which, for_good }),
        1 => any::<u8>().prop_map(|which| Step::Unheard { which }),
        1 => (0..5u8).prop_map(|who| Step::EndSession { who }),
        1 => (0..5u8).prop_map(|key| Step::End { key }),
        1 => (0..5u8, 1..200u64).prop_map(|(key, ms)| Step::Expire { key, ms }),
        1 => any::<bool>().prop_map(|closed| Step::Close { closed }),
        1 => Just(Step::Reload),
    ]
}

/// The claims by key: 0 and 1 are mutexes, 2 reentrant, 3 read/write, 4 a semaphore.
fn claim(what: u8, key: u8) -> Claim {
    let count = if what % 4 == 3 { Count::Exactly(u32::from(what / 4) + 1) } else { Count::Step(1) };
    match key {
        0 | 1 => Claim::Mutex,
        2 => Claim::Reentrant(count),
        3 => Claim::Rw(if what % 2 == 0 { Mode::Read } else { Mode::Write }, count),
        _ => Claim::Permits { limit: 2 + u32::from(what % 3), count: Count::Step(1 + u32::from(what % 2)) },
    }
}

fn name(key: u8) -> [u8; 1] {
    [b'k' + key]
}

fn owner(who: u8) -> Owner {
    Owner::new(&[b'a' + who]).unwrap()
}

/// A queued request as it stood before a step.
struct Stood {
    owner: Owner,
    keys: Vec<Key>,
    place: Place,
    is_present: bool,
}

struct Simulation {
    server: Server,
    desk: Desk,
    highest: u64,
    granted: Vec<RequestId>,
    /// In this step.
    granted_now: Vec<(Owner, Fence)>,
}

impl Simulation {
    fn new() -> Simulation {
        let server = Server { now_ms: 1_000, ..Server::default() };
        let desk = Desk { limits: Limits { max_waiters: 6, keep_place_ms: 60 }, ..Desk::default() };
        Simulation { server, desk, highest: 0, granted: Vec::new(), granted_now: Vec::new() }
    }

    fn now(&self) -> Now {
        CLOCK_MS.set(self.server.now_ms);
        Now::by(|| CLOCK_MS.get() * 1000)
    }

    fn run(&mut self, step: &Step) {
        self.granted_now.clear();
        let stood = self.who_stands();
        let held: HashMap<Key, Lock> =
            self.server.keys.iter().map(|(key, (lock, _))| (key.clone(), lock.clone())).collect();
        self.take(step);
        self.tell_of_removed();
        self.check_answers(&stood, &held);
        self.check_replica();
        // The timer of a real server comes at once when something is pending.
        self.let_timer_run();
        self.check_answers(&stood, &held);
        self.check_replica();
        self.check_locks();
        self.check_nobody_is_left_behind();
    }

    fn take(&mut self, step: &Step) {
        let now = &self.now();
        let (server, desk) = (&mut self.server, &mut self.desk);
        let is_write = matches!(
            step,
            Step::Acquire { .. } | Step::Release { .. } | Step::Renew { .. } | Step::Cancel { .. } | Step::End { .. }
        );
        if server.closed && is_write {
            return;
        }
        match *step {
            Step::Acquire { who, what, key, wait, session, lease_ms } => {
                let several = key < 2 && what >= 5;
                let (first, second) = (name(key), name(1 - key.min(1)));
                let names: &[&[u8]] = if several { &[&first, &second] } else { &[&first] };
                let asker = owner(who);
                let asked = Acquire {
                    db: 0,
                    names,
                    ask: AskRef {
                        owner: asker.as_ref(),
                        claim: claim(what, key),
                        lease: Lease::from_ms(lease_ms as i64).unwrap(),
                    },
                    wait: wait.then(|| Wait {
                        until: Some(now.at().plus_ms(u64::from(what) * 40 + 20)),
                        may_come_back: true,
                    }),
                    session: session.then_some(ClientId(u64::from(who))),
                };
                match desk.acquire(server, now, asked) {
                    Ok(Acquired::Granted(receipt)) => {
                        for name in names {
                            let Found::Lock(lock) = server.find(KeyRef { db: 0, name }) else {
                                panic!("granted, not stored")
                            };
                            let hold = lock.hold(owner(who).as_bytes(), Deadline::Never).expect("granted, not held");
                            assert_eq!(hold.fence, receipt.fence, "one fence for all");
                        }
                        self.highest = self.highest.max(receipt.fence.get());
                    }
                    Ok(Acquired::Queued(_)) => assert!(wait),
                    Ok(Acquired::No) => assert!(!wait),
                    Err(Error::Deadlock(links)) => assert!(!links.is_empty() && links[0].owner == owner(who)),
                    Err(Error::MaxWaiters | Error::Refused(_)) => {}
                    Err(error) => panic!("{error:?}"),
                }
            }
            Step::Release { who, key, all } => {
                let count = if all { Count::Exactly(0) } else { Count::Step(1) };
                let claim = match claim(0, key) {
                    Claim::Mutex => Claim::Mutex,
                    Claim::Reentrant(_) => Claim::Reentrant(count),
                    Claim::Rw(..) => Claim::Rw(if who % 2 == 0 { Mode::Read } else { Mode::Write }, count),
                    Claim::Permits { .. } => Claim::Permits { limit: 0, count },
                };
                let name = name(key);
                let _ = desk.release(server, now, KeyRef { db: 0, name: &name }, owner(who).as_bytes(), &claim);
            }
            Step::Renew { who, key } => {
                let name = name(key);
                let _ = desk.renew(
                    server,
                    now,
                    Renew {
                        db: 0,
                        names: &[&name],
                        owner: owner(who).as_bytes(),
                        kind: claim(0, key).kind(),
                        lease: None,
                    },
                );
            }
            Step::Cancel { who, key } => {
                let name = name(key);
                desk.cancel(server, now, KeyRef { db: 0, name: &name }, &owner(who));
            }
            Step::Pass { ms } => server.now_ms += ms,
            Step::Leave { which, for_good } => {
                let mut present: Vec<_> =
                    desk.queue.requests().filter(|(_, r)| r.is_present()).map(|(id, _)| id).collect();
                present.sort();
                if let Some(id) = present.get(usize::from(which) % present.len().max(1)) {
                    desk.leave(now, *id, if for_good { Leaving::ForGood } else { Leaving::MayComeBack });
                }
            }
            Step::Unheard { which } => {
                let granted = std::mem::take(&mut self.granted);
                for (at, id) in granted.iter().enumerate() {
                    if at == usize::from(which) % granted.len() {
                        desk.undelivered(*id);
                    } else {
                        desk.delivered(*id);
                    }
                }
            }
            Step::EndSession { who } => desk.end_session(ClientId(u64::from(who))),
            Step::End { key } => server.end(&Key::new(0, &name(key))),
            Step::Expire { key, ms } => {
                let (at, key) = (server.at().plus_ms(ms), Key::new(0, &name(key)));
                server.expire(&key);
                for keys in [&mut server.keys, &mut server.replica] {
                    if let Some((_, until)) = keys.get_mut(&key) {
                        *until = Deadline::At(at);
                    }
                }
                desk.key_touched(key.as_ref());
            }
            Step::Close { closed } => server.closed = closed,
            Step::Reload => server.reload_replica(),
        }
    }

    fn tell_of_removed(&mut self) {
        for (key, fence) in std::mem::take(&mut self.server.removed) {
            self.desk.key_removed(key.as_ref(), fence);
        }
    }

    fn let_timer_run(&mut self) {
        for _ in 0..20 {
            let now = &self.now();
            self.desk.tick(&mut self.server, now, 100);
            self.desk.drain(&mut self.server, now);
            self.tell_of_removed();
            if self.server.closed || !self.desk.has_pending() && self.desk.next_alarm().is_none_or(|at| at > now.at()) {
                return;
            }
        }
        panic!("the timer never comes to rest");
    }

    fn who_stands(&self) -> HashMap<RequestId, Stood> {
        let keys_of = |lines: &[super::queue::LineId]| {
            lines.iter().filter_map(|line| self.desk.queue.line(*line)).map(|line| line.key.clone()).collect()
        };
        let stood = |request: &super::queue::Request| Stood {
            owner: request.ask.owner.clone(),
            keys: keys_of(&request.lines),
            place: request.place,
            is_present: request.is_present(),
        };
        self.desk.queue.requests().map(|(id, request)| (id, stood(request))).collect()
    }

    /// Fences grow, and whoever was granted something had nobody ahead who was there before and is there still.
    fn check_answers(&mut self, stood: &HashMap<RequestId, Stood>, held: &HashMap<Key, Lock>) {
        for (id, news) in std::mem::take(&mut self.server.answers) {
            assert!(self.desk.queue.request(id).is_none_or(|r| !r.is_present()), "answered, but still waits: {news:?}");
            let News::Granted { fence, .. } = news else { continue };
            self.granted.push(id);
            let Some(me) = stood.get(&id) else { continue };
            let had = |key: &Key| held.get(key).is_some_and(|lock| lock.is_held_by(me.owner.as_bytes()));
            // Granted before in this step, it goes deeper now, or on to the other keys of another request.
            let again = self.granted_now.iter().any(|(owner, _)| *owner == me.owner);
            self.granted_now.push((me.owner.clone(), fence));
            let deeper = again || me.keys.iter().any(had);
            assert!(deeper || fence.get() > self.highest, "fences grow");
            self.highest = self.highest.max(fence.get());
            for (other_id, other) in stood {
                let still_waits = self.desk.queue.request(*other_id).is_some_and(|r| r.is_present());
                let ahead = other.place < me.place && other.keys.iter().any(|key| me.keys.contains(key));
                let waits_for_several = other.keys.len() > 1;
                let overtaken = other.is_present && still_waits && ahead && !deeper && !waits_for_several;
                assert!(!overtaken, "{:?} overtook {:?}", me.owner, other.owner);
            }
        }
    }

    /// The replica knows from the effects alone what the server knows.
    fn check_replica(&self) {
        let told = |locks: &HashMap<Key, (Lock, Deadline)>| {
            let mut all: Vec<String> = locks
                .iter()
                .map(|(key, (lock, until))| format!("{key:?} {} {until:?} {:?}", lock.limit(), lock.holds(*until)))
                .collect();
            all.sort();
            all
        };
        assert_eq!(told(&self.server.keys), told(&self.server.replica));
    }

    fn check_locks(&mut self) {
        for (lock, _) in self.server.keys.values() {
            assert!(!lock.is_vacant(), "nobody holds it, and it is there");
            let holds = lock.holds(Deadline::Never);
            match lock.kind().unwrap() {
                Kind::Mutex | Kind::Reentrant => assert_eq!(holds.len(), 1),
                Kind::Rw => assert!(holds.len() == 1 || holds.iter().all(|hold| hold.holds == 0), "a writer is alone"),
                // A smaller limit drains: no more than the largest that was ever asked for.
                Kind::Semaphore => assert!(holds.iter().map(|hold| hold.holds).sum::<u32>() <= 4),
            }
        }
    }

    /// While the server accepts writes, the head of every line has a holder in its way.
    fn check_nobody_is_left_behind(&mut self) {
        if self.server.closed {
            return;
        }
        let heads: Vec<_> = self.desk.queue.lines().filter_map(|(_, line)| line.next_after(None)).collect();
        for (_, id) in heads {
            let request = self.desk.queue.request(id).unwrap().clone();
            if request.lines.len() > 1 {
                continue;
            }
            let line = self.desk.queue.line(request.lines[0]).unwrap();
            let (key, limit) = (line.key.clone(), line.limit);
            let mut claim = request.ask.claim;
            if let Claim::Permits { limit: of_claim, .. } = &mut claim {
                *of_claim = limit;
            }
            let verdict = match self.server.find(key.as_ref()) {
                Found::Lock(lock) => lock.weigh(request.ask.owner.as_bytes(), &claim),
                _ => Lock::Vacant.weigh(request.ask.owner.as_bytes(), &claim),
            };
            assert_eq!(verdict, Ok(Verdict::Wait), "left behind: {request:?}");
        }
    }

    /// When everyone has gone, nothing is left of them.
    fn check_end(mut self) {
        self.server.closed = false;
        for round in 0..5 {
            self.server.now_ms += 100_000 + round;
            self.let_timer_run();
            (0..5).for_each(|who| self.desk.end_session(ClientId(who)));
            self.granted.drain(..).for_each(|id| self.desk.delivered(id));
        }
        self.let_timer_run();
        assert!(self.desk.queue.is_empty(), "{:?}", self.desk.queue);
        assert!(self.desk.queue.is_clean(), "{:?}", self.desk.queue);
        assert!(self.desk.sessions.is_empty());
        assert_eq!(self.desk.alarms.next(), None);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 3_000, ..ProptestConfig::default() })]

    #[test]
    fn every_schedule_keeps_the_promises(steps in prop::collection::vec(step(), 1..150)) {
        let mut simulation = Simulation::new();
        for step in &steps {
            simulation.run(step);
        }
        simulation.check_end();
    }
}

//! The rules under an invented clock: random schedules of everything that can happen to them, checked after every step.

use proptest::prelude::*;

use super::checks::{self, Before, Grants};
use super::steps::{claim, family, key, name, owner, portion, step, Step};
use crate::host::simulated::SimulatedServer;
use crate::host::{Content, Entry, Gate, Keys};
use crate::key::{ClientId, KeyRef, RequestId};
use crate::manager::acquire::{AcquireRequest, Acquired, Wait};
use crate::manager::departure::Departure;
use crate::manager::lock_manager::{Limits, LockError, LockManager};
use crate::manager::renewal::RenewRequest;
use crate::value::claim::LockRequest;
use crate::value::outcome::{Grant, KeyError};
use crate::value::owner::Owner;
use crate::value::time::{Deadline, Lease, Timestamp};

struct Simulation {
    server: SimulatedServer,
    manager: LockManager,
    grants: Grants,
    /// Requests whose grants are on their way to their clients.
    in_flight: Vec<RequestId>,
    /// When the grace began, and when it ends.
    grace: Option<(Timestamp, Timestamp)>,
}

impl Simulation {
    fn new() -> Simulation {
        let mut manager = LockManager::default();
        manager.limits = Limits { max_waiters: 6, keep_place_ms: 60 };
        Simulation {
            server: SimulatedServer::default(),
            manager,
            grants: Grants::default(),
            in_flight: Vec::new(),
            grace: None,
        }
    }

    /// Takes a step, lets the timer fire, and checks everything after both.
    fn play(&mut self, step: &Step) {
        self.grants.begin_step();
        let before = Before::of(&self.server, &self.manager);
        if self.server.keyspace.gate == Gate::Open || !step.is_write() {
            self.take(step);
        }
        self.tell_of_removed();
        self.check_effects(&before);
        // The timer of a real server fires at once when something is due.
        self.let_timer_fire();
        self.check_effects(&before);
        checks::check_locks(&self.server.keyspace);
        if !self.is_in_grace() {
            checks::check_nobody_is_left_behind(&mut self.server, &self.manager);
        }
    }

    fn is_in_grace(&self) -> bool {
        self.grace.is_some_and(|(_, until)| self.server.keyspace.timestamp() < until)
    }

    fn set_grace(&mut self, since: Option<Timestamp>, grace_ms: u64) {
        self.grace = since.map(|since| (since, since.plus_ms(grace_ms)));
    }

    fn take(&mut self, step: &Step) {
        let now = &self.server.now();
        let manager = &mut self.manager;
        match *step {
            Step::Acquire { .. } => self.acquire(step),
            Step::Release { who, key: number, all } => {
                let (key, portion) = (key(number), portion(who, number, all));
                // An owner may hold less than it gives back.
                _ = manager.release(&mut self.server.host(now), key.as_ref(), owner(who).as_bytes(), &portion);
            }
            Step::Renew { who, key } => {
                let (owner, name) = (owner(who), name(key));
                let request =
                    RenewRequest { db: 0, names: &[&name], owner: owner.as_bytes(), family: family(key), lease: None };
                manager.renew(&mut self.server.host(now), &request).expect("its family is never another");
            }
            Step::Cancel { who, key: number } => {
                let cancelled = manager.cancel(&mut self.server.host(now), key(number).as_ref(), owner(who).as_bytes());
                cancelled.expect("its type is never another");
            }
            Step::Pass { ms } => self.server.keyspace.now_ms += ms,
            Step::Leave { which, departure } => self.leave(which, departure),
            Step::Undelivered { which } => {
                let in_flight = std::mem::take(&mut self.in_flight);
                for (index, id) in in_flight.iter().enumerate() {
                    match index == usize::from(which) % in_flight.len() {
                        true => manager.undelivered(*id),
                        false => manager.delivered(*id),
                    }
                }
            }
            Step::EndSession { who } => manager.end_session(ClientId(u64::from(who))),
            Step::Delete { key: number } => self.server.keyspace.delete(&key(number)),
            Step::Expire { key: number, ms } => {
                let when = self.server.keyspace.timestamp().plus_ms(ms);
                self.server.keyspace.set_deadline(&key(number), when);
                manager.key_touched(key(number).as_ref());
            }
            Step::Turn { gate } => self.server.keyspace.gate = gate,
            Step::Promote { grace_ms } => {
                manager.demote(&mut &mut self.server.inbox);
                manager.begin_grace(now.timestamp(), grace_ms);
                self.set_grace(Some(now.timestamp()), grace_ms);
            }
            Step::ChangeGrace { grace_ms } => {
                manager.change_grace(grace_ms);
                let running = self.grace.filter(|_| self.is_in_grace());
                self.set_grace(running.map(|(since, _)| since), grace_ms);
            }
            Step::Reload => self.server.keyspace.reload_replica(),
        }
    }

    fn acquire(&mut self, step: &Step) {
        let Step::Acquire { who, what, key, wait, session, lease_ms } = *step else { return };
        let now = &self.server.now();
        let (first, second) = (name(key), name(1 - key.min(1)));
        let has_several_keys = key < 2 && what >= 5;
        let names: &[&[u8]] = if has_several_keys { &[&first, &second] } else { &[&first] };
        let (owner, lease) = (owner(who), Lease::Ms(lease_ms.try_into().expect("no lease is 0")));
        let until = Some(now.timestamp().plus_ms(u64::from(what) * 40 + 20));
        let request = AcquireRequest {
            db: 0,
            names,
            request: LockRequest { owner: owner.as_ref(), claim: claim(what, key), lease },
            wait: wait.then_some(Wait { until, may_come_back: true }),
            session: session.then_some(ClientId(u64::from(who))),
        };
        let held_all = self.holds_all(names, &owner);
        match self.manager.acquire(&mut self.server.host(now), request) {
            Ok(Acquired::Granted(grant)) => {
                assert!(held_all || !self.is_in_grace(), "nobody new is granted anything");
                self.check_granted(&request, &grant);
            }
            Ok(Acquired::Queued(_)) => assert!(wait),
            Ok(Acquired::NotGranted) => assert!(!wait),
            Err(LockError::Deadlock(cycle)) => assert!(cycle.first().is_some_and(|edge| edge.owner == owner)),
            // What it held before may have ended meanwhile.
            Err(LockError::Grace) => assert!(self.is_in_grace() && !wait && !self.holds_all(names, &owner)),
            Err(LockError::MaxWaiters | LockError::Key(KeyError::Invalid(_))) => {}
            Err(error) => panic!("{error:?}"),
        }
    }

    fn holds_all(&mut self, names: &[&[u8]], owner: &Owner) -> bool {
        let mut keyspace = &mut self.server.keyspace;
        names.iter().all(|name| keyspace.is_held_by(KeyRef { db: 0, name }, owner.as_bytes()))
    }

    /// Everything that was asked for is held, with one fence.
    fn check_granted(&mut self, request: &AcquireRequest<'_>, grant: &Grant) {
        let now = &self.server.now();
        let mut host = self.server.host(now);
        for name in request.names {
            let mut entry = host.keys.open(KeyRef { db: request.db, name });
            let Content::Lock(lock) = entry.content() else { panic!("granted, not stored") };
            let hold = lock.hold(request.request.owner.as_bytes(), Deadline::Never).expect("granted, not held");
            assert_eq!(hold.fence, grant.fence, "one fence for all");
        }
        self.grants.note(grant.fence);
    }

    fn leave(&mut self, which: u8, departure: Departure) {
        let requests = self.manager.queues().requests();
        let mut present: Vec<_> = requests.filter(|(_, request)| request.is_present()).map(|(id, _)| id).collect();
        present.sort();
        if let Some(id) = present.get(usize::from(which) % present.len().max(1)) {
            self.manager.leave(&self.server.now(), *id, departure);
        }
    }

    fn tell_of_removed(&mut self) {
        for (key, fence) in std::mem::take(&mut self.server.keyspace.removed) {
            self.manager.key_removed(key.as_ref(), fence);
        }
    }

    fn check_effects(&mut self, before: &Before) {
        self.in_flight.extend(self.grants.check_answers(&mut self.server, &self.manager, before));
        checks::check_replica(&self.server.keyspace);
    }

    fn let_timer_fire(&mut self) {
        for _ in 0..20 {
            let now = &self.server.now();
            self.manager.tick(&mut self.server.host(now), 100);
            self.manager.drain(&mut self.server.host(now));
            self.tell_of_removed();
            let has_timer = self.manager.next_timer().is_some_and(|when| when <= now.timestamp());
            if self.server.keyspace.gate != Gate::Open || !self.manager.has_due() && !has_timer {
                return;
            }
        }
        panic!("the timer never comes to rest");
    }

    /// Lets everyone go, and checks that nothing is left of them.
    fn end(mut self) {
        self.server.keyspace.gate = Gate::Open;
        for round in 0..5 {
            self.server.keyspace.now_ms += 100_000 + round;
            self.let_timer_fire();
            (0..5).for_each(|who| self.manager.end_session(ClientId(who)));
            self.in_flight.drain(..).for_each(|id| self.manager.delivered(id));
        }
        self.let_timer_fire();
        checks::check_nothing_is_left(&self.manager);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 3_000, ..ProptestConfig::default() })]

    #[test]
    fn every_schedule_keeps_the_promises(steps in prop::collection::vec(step(), 1..150)) {
        let mut simulation = Simulation::new();
        for step in &steps {
            simulation.play(step);
        }
        simulation.end();
    }
}

//! Both sides of the cut work, and are judged together.

use std::thread;
use std::time::{Duration, Instant, SystemTime};

use faults::judge::{assert_drained, decreasing_fences, decreasing_writes, duplicate_fences, holds, overlaps, Scope};
use faults::{seconds, Guarded, History, Kind, Lock, Outcome, Plan, Recorder, Row, Workers};
use support::{until, Reply};

use super::on_hosts;
use super::world::{Config, World};
use crate::witness::{witnessed, Witness, LONG};

/// The minimum number of grants on each side before the next step.
const GRANTS: usize = 20;

/// Longer than the old side keeps granting under [`MIN_REPLICAS`].
const BRIEF: Duration = Duration::from_secs(5);

/// The lease of every worker.
const LEASE: Duration = Duration::from_secs(1);

const MIN_REPLICAS: Config = Config { primary: &["min-replicas-to-write 1", "min-replicas-max-lag 1"], replica: &[] };

/// The longest lease; the lag of [`MIN_REPLICAS`]; two seconds, because lags are counted in whole seconds, once a
/// second; and a second for a busy machine.
const GRACE: Config = Config { replica: &["lock.grace 5000"], ..MIN_REPLICAS };

mod behind_proxies {
    use super::*;

    #[test]
    fn both_sides_grant_and_the_old_side_loses_what_it_granted() {
        both_sides_grant(World::behind_proxies(&Config::default()), "proxies");
    }

    #[test]
    fn with_min_replicas_the_old_side_stops_granting() {
        the_old_side_stops(World::behind_proxies(&MIN_REPLICAS), "proxies");
    }

    #[test]
    fn with_min_replicas_and_a_grace_no_holds_overlap() {
        no_two_hold_at_once(World::behind_proxies(&GRACE), "proxies");
    }
}

mod on_a_network {
    use super::*;

    #[test]
    fn both_sides_grant_and_the_old_side_loses_what_it_granted() {
        if let Some(world) = on_hosts(&Config::default()) {
            both_sides_grant(world, "hosts");
        }
    }

    #[test]
    fn with_min_replicas_the_old_side_stops_granting() {
        if let Some(world) = on_hosts(&MIN_REPLICAS) {
            the_old_side_stops(world, "hosts");
        }
    }

    #[test]
    fn with_min_replicas_and_a_grace_no_holds_overlap() {
        if let Some(world) = on_hosts(&GRACE) {
            no_two_hold_at_once(world, "hosts");
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Side {
    Near,
    Far,
}

impl Side {
    fn of(client: usize) -> Side {
        match client % 2 {
            0 => Side::Near,
            _ => Side::Far,
        }
    }
}

/// Workers on both sides, and a witness on each.
struct Clients {
    plan: Plan,
    recorder: Recorder,
    workers: Workers,
    near: Witness,
    far: Witness,
}

impl Clients {
    fn of(world: &World) -> Clients {
        let plan = Plan { lease: LEASE, reply_timeout: Duration::from_millis(500), ..Plan::mixed() };
        let recorder = Recorder::new();
        let workers = Workers::start_each(&plan, &recorder, |number| match Side::of(number) {
            Side::Near => world.near.clone(),
            Side::Far => world.far.clone(),
        });
        let near = Witness::new(100, "near".into(), &recorder, world.near.clone());
        let far = Witness::new(101, "far".into(), &recorder, world.far.clone());
        Clients { plan, recorder, workers, near, far }
    }

    #[track_caller]
    fn wait_for_grants(&self, side: Side) {
        let granted = || grants_after(&self.recorder.history(), side, 0);
        let enough = granted() + GRANTS;
        until("this side was granted more", || granted() >= enough);
    }

    /// The history of workers and witnesses, judged by what holds for every healed partition: no waiter is forgotten,
    /// no fencing token goes back.
    #[track_caller]
    fn judged(self, scenario: &str, world: &World) -> (Row, History) {
        let history = self.workers.stop();
        let locks = [self.plan.locks.as_slice(), &[witnessed()]].concat();
        assert_drained(&mut world.replica.client(), &locks);
        let holds = holds(&history);
        assert_eq!(decreasing_fences(&holds, Scope::Server), Vec::<String>::new());
        assert_eq!(decreasing_writes(&history), Vec::<String>::new());
        let mut row = Row::of(scenario, &world.replica.info("server").version(), 1, &history);
        // Assigned in the same microsecond by two primaries.
        let twice = duplicate_fences(&holds, Scope::Server).len();
        if twice > 0 {
            row.fences = format!("do not go back; {twice} issued on both sides");
        }
        (row, history)
    }
}

/// How many requests one side was granted after this time, in microseconds since the epoch, of which fencing tokens are
/// made.
fn grants_after(history: &History, side: Side, after_us: i64) -> usize {
    let of_side = history.operations().iter().filter(|operation| Side::of(operation.client) == side);
    of_side.filter(|operation| matches!(operation.outcome, Outcome::Granted { fence } if fence > after_us)).count()
}

fn now_us() -> i64 {
    let since_1970 = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).expect("a clock after 1970");
    i64::try_from(since_1970.as_micros()).expect("a clock before the end of time")
}

/// Runs for [`seconds`], and until both sides have granted some more.
fn go_on(clients: &Clients, since: Instant) {
    for side in [Side::Near, Side::Far] {
        clients.wait_for_grants(side);
    }
    while since.elapsed() < seconds() {
        clients.wait_for_grants(Side::Far);
    }
}

#[track_caller]
fn fence(outcome: Outcome) -> i64 {
    match outcome {
        Outcome::Granted { fence } => fence,
        other => panic!("expected a grant: {other:?}"),
    }
}

#[track_caller]
fn both_sides_grant(world: World, network: &str) {
    let (mut clients, since) = (Clients::of(&world), Instant::now());
    clients.wait_for_grants(Side::Far);
    world.split();
    let cut_us = now_us();
    world.promote_replica();
    go_on(&clients, since);

    let (lock, guarded) = (witnessed(), Guarded::default());
    let near = fence(clients.near.acquire(LONG));
    assert_eq!(clients.near.caller.write_by_fence(&guarded, &lock, "near", near, 1), Outcome::Done);
    assert_eq!(clients.near.caller.write(&lock, "near", 1), Outcome::Done, "its own server knows no better");
    let far = fence(clients.far.acquire(LONG));
    assert!(near < far);
    assert_eq!(clients.far.caller.write_by_fence(&guarded, &lock, "far", far, 2), Outcome::Done);
    assert_eq!(clients.near.caller.write_by_fence(&guarded, &lock, "near", near, 3), Outcome::NotHeld);
    assert_eq!(clients.far.caller.write(&lock, "far", 2), Outcome::Done);

    world.heal();
    world.demote_primary();
    assert_eq!(clients.near.caller.write(&lock, "near", 3), Outcome::NotHeld, "LOCK.EXEC");
    assert_eq!(clients.near.renew(LONG), Outcome::NotHeld);
    assert_eq!(clients.far.caller.read(&lock, "far"), Outcome::Value(Some(2)), "what was written near is gone");
    assert_eq!(clients.far.release(), Outcome::Done);
    clients.wait_for_grants(Side::Near);

    let (row, history) = clients.judged(&format!("partition ({network}), min-replicas-to-write 0"), &world);
    // The judges of the tests below look for such breaches; here they happen.
    assert!(grants_after(&history, Side::Near, cut_us) > GRANTS);
    assert!(!overlaps(&holds(&history)).is_empty());
    row.report();
}

/// The replica is promoted when the primary has stopped granting, so the two do not grant at the same time.
#[track_caller]
fn the_old_side_stops(world: World, network: &str) {
    let (mut clients, since) = (Clients::of(&world), Instant::now());
    clients.wait_for_grants(Side::Far);
    let kept = fence(clients.near.acquire(LONG));
    let brief = Lock::new("brief", Kind::Mutex);
    let near = |owner: &str| Witness::new(102, owner.into(), &clients.recorder, world.near.clone()).of(brief.clone());
    let (mut holder, mut waiter) = (near("holder"), near("waiter"));
    fence(holder.acquire(BRIEF));
    assert_eq!(world.primary.client().pipeline(&["SET x y", "WAIT 1 20000"])[1], Reply::Int(1), "the replica has them");
    world.split();
    let waits = thread::spawn(move || waiter.acquire(LONG));
    wait_until_refusing(&world);
    let refused_us = now_us();
    world.promote_replica();
    clients.wait_for_grants(Side::Far);

    // Its lease keeps running although it cannot be renewed; both sides know of it.
    assert!(matches!(clients.near.renew(LONG), Outcome::Refused(error) if error.starts_with("NOREPLICAS ")));
    assert_eq!(clients.far.try_acquire(LONG), Outcome::NotGranted);
    // A lock that ends is granted to no waiter.
    let mut client = world.primary.client();
    until("its lease has ended on the old side", || client.run("LOCK.HELD brief holder").is_nil());
    clients.wait_for_grants(Side::Far);
    while since.elapsed() < seconds() {
        clients.wait_for_grants(Side::Far);
    }
    assert_eq!(grants_after(&clients.recorder.history(), Side::Near, refused_us), 0);

    world.heal();
    world.demote_primary();
    let waited = waits.join().expect("it does not panic");
    assert!(!matches!(waited, Outcome::Granted { fence } if fence > refused_us), "{waited:?}");
    assert_eq!(clients.near.renew(LONG), Outcome::Done);
    assert_eq!(fence(clients.near.acquire(LONG)), kept);
    assert_eq!(clients.near.release(), Outcome::Done);
    clients.wait_for_grants(Side::Near);
    let (row, _) = clients.judged(&format!("partition ({network}), min-replicas-to-write 1"), &world);
    row.report();
}

/// The replica is promoted at once, while the primary still grants.
#[track_caller]
fn no_two_hold_at_once(world: World, network: &str) {
    let (mut clients, since) = (Clients::of(&world), Instant::now());
    clients.wait_for_grants(Side::Far);
    // One client holds the lock on the old side for as long as it can; the other waits for it on the new side.
    fence(clients.near.acquire(LEASE));
    world.split();
    world.promote_replica();
    let mut far = clients.far;
    let far_waits = thread::spawn(move || (far.acquire(LEASE), far));
    until("the primary refuses to renew", || clients.near.renew(LEASE) != Outcome::Done);
    let (granted, far) = far_waits.join().expect("it does not panic");
    fence(granted);
    clients.far = far;
    clients.far.release();
    clients.wait_for_grants(Side::Far);
    while since.elapsed() < seconds() {
        clients.wait_for_grants(Side::Far);
    }

    world.heal();
    world.demote_primary();
    clients.wait_for_grants(Side::Near);
    let (row, history) = clients.judged(&format!("partition ({network}), min-replicas-to-write 1, lock.grace"), &world);
    assert_eq!(overlaps(&holds(&history)), []);
    row.report();
}

#[track_caller]
fn wait_until_refusing(world: &World) {
    let mut client = world.primary.client();
    until("the primary refuses writes", || {
        let reply = client.run("SET x y");
        assert!(reply == Reply::ok() || reply.error().starts_with("NOREPLICAS "), "{reply:?}");
        reply.is_error()
    });
}

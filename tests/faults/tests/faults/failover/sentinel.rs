//! Three Sentinels promote one of two replicas when the primary is killed or stopped, and demote the old primary when
//! it comes back. Clients ask the Sentinels for the primary.

use std::thread;
use std::time::{Duration, Instant};

use faults::judge::{assert_drained, breaches, breaches_despite_losses, Scope};
use faults::sentinels::{Judgement, Sentinels};
use faults::{seconds, Action, History, Mode, Operation, Outcome, Plan, Recorder, Row, Stopped, Wait, Workers, ADOPT};
use support::{Client, Server, LIMIT};

use super::{online_replicas, role, GRANTS};
use crate::witness::{witnessed, Witness, LONG};

const REPLICAS: usize = 2;

const JUDGEMENT: Judgement =
    Judgement { down_after: Duration::from_millis(1_000), failover_timeout: Duration::from_millis(3_000) };

#[test]
fn a_killed_primary_is_replaced_and_fences_grow() {
    let (row, _) = replace_again_and_again("Sentinels, the primary is killed", Fault::Kill, None);
    row.report();
}

/// Each replica has every acknowledged write, so either may be promoted.
#[test]
fn with_wait_for_both_replicas_nothing_acknowledged_is_lost() {
    let wait = Wait { replicas: REPLICAS, limit: Duration::from_millis(200) };
    let (row, history) = replace_again_and_again("Sentinels, the primary is killed, WAIT 2", Fault::Kill, Some(wait));
    assert_eq!(breaches(&history, Scope::Server), Vec::<String>::new());
    row.report();
}

/// It serves its clients until it learns that it was replaced: fencing tokens order the two holders.
#[test]
fn a_stopped_primary_is_replaced_and_fences_grow() {
    let (row, _) = replace_again_and_again("Sentinels, the primary is stopped", Fault::Stop, None);
    row.report();
}

/// What happens to the primary.
#[derive(Clone, Copy)]
enum Fault {
    /// SIGKILL; later it restarts without data, and believes that it is a primary.
    Kill,
    /// SIGSTOP; later it continues where it was.
    Stop,
}

/// The servers, and the Sentinels that monitor them.
struct Watched {
    servers: Vec<Server>,
    sentinels: Sentinels,
    /// The index of the primary.
    primary: usize,
}

impl Watched {
    #[track_caller]
    fn start() -> Watched {
        let mut servers = vec![Server::builder().config(ADOPT).start()];
        for _ in 0..REPLICAS {
            servers.push(Server::builder().config(ADOPT).replica_of(&servers[0]).start());
        }
        wait_until("the replicas are online", || online_replicas(&servers[0]) == REPLICAS);
        let sentinels = Sentinels::of(&servers[0], REPLICAS, JUDGEMENT);
        Watched { servers, sentinels, primary: 0 }
    }

    fn primary(&mut self) -> &mut Server {
        &mut self.servers[self.primary]
    }

    /// Waits until the Sentinels have replaced the primary; returns the index of the old one.
    #[track_caller]
    fn wait_replaced(&mut self) -> usize {
        let old = self.primary;
        wait_until("another primary is agreed on", || {
            let is_primary = |index: &usize| {
                *index != old
                    && self.sentinels.agree_on(self.servers[*index].port())
                    && role(&self.servers[*index]).is_some_and(|role| role == "master")
            };
            let found = (0..self.servers.len()).find(is_primary);
            self.primary = found.unwrap_or(old);
            found.is_some()
        });
        old
    }

    /// Waits until one is the primary, and all others follow it and are fit to replace it. It may be another one by
    /// now, because two Sentinels elected one after the other each promote one.
    #[track_caller]
    fn wait_healed(&mut self) {
        wait_until("all others follow one primary", || {
            let found = (0..self.servers.len()).find(|index| self.sentinels.agree_on(self.servers[*index].port()));
            self.primary = found.unwrap_or(self.primary);
            online_replicas(&self.servers[self.primary]) == REPLICAS && self.sentinels.see_replicas(REPLICAS)
        });
    }
}

/// Repeatedly replaces the primary while workers run; it comes back as a replica. Fencing tokens are judged here.
fn replace_again_and_again(scenario: &str, fault: Fault, wait: Option<Wait>) -> (Row, History) {
    let plan = Plan { lease: Duration::from_secs(1), wait, ..Plan::mixed().with_adopted("adopted") };
    let mut world = Watched::start();
    let recorder = Recorder::new();
    let route = world.sentinels.route();
    let workers = Workers::start(&plan, &recorder, route.clone());
    let (started, mut faults) = (Instant::now(), 0);
    while faults == 0 || started.elapsed() < seconds() {
        workers.wait_for_grants(GRANTS);
        match fault {
            Fault::Kill => {
                world.primary().kill();
                let old = world.wait_replaced();
                world.servers[old].restart();
            }
            Fault::Stop => {
                let (stopped, late) = Late::request_once_stopped(world.primary(), faults, &recorder);
                let old = world.wait_replaced();
                let mut new = Witness::new(101, format!("new-{faults}"), &recorder, route.clone());
                wait_until("it is granted by the new primary", || matches!(new.acquire(LONG), Outcome::Granted { .. }));
                stopped.resume();
                late.read(&recorder);
                wait_until("the old primary has learnt it", || {
                    role(&world.servers[old]).is_some_and(|role| role == "slave")
                });
                new.release();
            }
        }
        world.wait_healed();
        faults += 1;
    }
    workers.wait_for_grants(GRANTS);
    let history = workers.stop();
    let locks = [plan.locks.as_slice(), &[witnessed()]].concat();
    assert_drained(&mut world.primary().client(), &locks);
    assert_eq!(breaches_despite_losses(&history, Scope::Server), Vec::<String>::new());
    (Row::of(scenario, &world.primary().info("server").version(), faults, &history), history)
}

/// A request that a stopped primary finds when it continues, from a client that is still waiting.
struct Late {
    client: Client,
    owner: String,
    invoked: Duration,
}

impl Late {
    #[track_caller]
    fn request_once_stopped(primary: &Server, fault: usize, recorder: &Recorder) -> (Stopped, Late) {
        let mut client = primary.client();
        let stopped = Stopped::stop(primary.pid());
        let (owner, invoked) = (format!("late-{fault}"), recorder.now());
        client.send_line(&format!("LOCK.ACQUIRE {} {owner} PX {}", witnessed().key, LONG.as_millis()));
        (stopped, Late { client, owner, invoked })
    }

    /// Records the reply: the old primary does not know yet that it was replaced.
    #[track_caller]
    fn read(mut self, recorder: &Recorder) {
        let reply = self.client.read();
        let outcome = match &reply {
            error if error.is_error() => Outcome::Refused(error.error().into()),
            nil if nil.is_nil() => Outcome::NotGranted,
            grant => Outcome::Granted { fence: grant.fence() },
        };
        recorder.record(Operation {
            client: 100,
            key: witnessed().key,
            owner: self.owner,
            action: Action::Acquire { mode: Mode::Mutex, lease: LONG, block: None },
            invoked: self.invoked,
            returned: recorder.now(),
            outcome,
        });
    }
}

/// [`support::until`] with more time: a failed election is repeated only after twice the failover timeout.
#[track_caller]
fn wait_until(what: &str, mut condition: impl FnMut() -> bool) {
    let started = Instant::now();
    while !condition() {
        assert!(started.elapsed() < 3 * LIMIT, "waited in vain until {what}");
        thread::sleep(Duration::from_millis(20));
    }
}

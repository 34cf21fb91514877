//! Processes that are paused for a while and continue where they were: a holder, a waiter, a primary, a replica.

use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use faults::judge::{assert_drained, breaches, Scope};
use faults::{seconds, Action, Caller, Guarded, Kind, Lock, Mode, Operation, Outcome, Recorder, Row, Stopped, ADOPT};
use support::{in_sync, until, Reply, Rng, Server};

use crate::holder::Holder;
use crate::judged::assert_none;
use crate::load::{under_load, waiting};

/// The lease of the stopped process.
const SHORT: Duration = Duration::from_millis(300);

/// Longer than a round.
const LONG: Duration = Duration::from_secs(60);

#[test]
fn a_paused_holder_is_succeeded_and_rejected() {
    let mut stage = Stage::new();
    while stage.continues() {
        let (owner, next) = stage.next_owners();
        let (mut holder, requested_at) = stage.start(&owner);
        let fence = stage.fence(&mut holder, &owner, requested_at);
        let stopped = Stopped::stop(holder.pid());
        let grant = stage.caller.acquire(&stage.lock, &next, Mode::Mutex, LONG, Some(LONG));
        stage.assert_is_refused(&mut holder, stopped, (&owner, fence), (&next, grant));
    }
    stage.judge("SIGSTOP of a holder");
}

#[test]
fn a_paused_waiter_is_granted_the_lock_and_succeeded() {
    let mut stage = Stage::new();
    while stage.continues() {
        let (owner, next) = stage.next_owners();
        let first = format!("first-{owner}");
        let (lock, mutex) = (stage.lock.clone(), Mode::Mutex);
        assert!(matches!(stage.caller.acquire(&lock, &first, mutex, LONG, None), Outcome::Granted { .. }));
        let (mut holder, requested_at) = stage.start(&owner);
        stage.wait_for_queue(&[&owner]);
        let stopped = Stopped::stop(holder.pid());
        let mut other = stage.caller();
        let (grant, fence) = thread::scope(|scope| {
            let waiting = scope.spawn(|| other.acquire(&lock, &next, mutex, LONG, Some(LONG)));
            stage.wait_for_queue(&[&owner, &next]);
            assert_eq!(stage.caller.release(&lock, &first, mutex), Outcome::Done);
            // It is granted the lock like any waiter; that it is stopped shows when its lease expires.
            let grant = waiting.join().expect("a waiter gets its reply");
            drop(stopped);
            (grant, stage.fence(&mut holder, &owner, requested_at))
        });
        let stopped = Stopped::stop(holder.pid());
        stage.assert_is_refused(&mut holder, stopped, (&owner, fence), (&next, grant));
    }
    stage.judge("SIGSTOP of a waiter");
}

/// A server, a mutex, and a contender of the stopped process.
struct Stage {
    server: Server,
    lock: Lock,
    recorder: Recorder,
    guarded: Guarded,
    caller: Caller,
    started: Instant,
    rounds: usize,
}

impl Stage {
    fn new() -> Stage {
        let server = Server::start();
        let recorder = Recorder::new();
        Stage {
            caller: caller(&server, &recorder),
            server,
            recorder,
            lock: Lock::new("k", Kind::Mutex),
            guarded: Guarded::default(),
            started: Instant::now(),
            rounds: 0,
        }
    }

    fn continues(&mut self) -> bool {
        self.rounds += 1;
        self.rounds <= 3 || self.started.elapsed() < seconds()
    }

    fn next_owners(&self) -> (String, String) {
        (format!("stopped-{}", self.rounds), format!("next-{}", self.rounds))
    }

    fn caller(&self) -> Caller {
        caller(&self.server, &self.recorder)
    }

    /// Starts the process that will be stopped, and returns when it was started.
    fn start(&self, owner: &str) -> (Holder, Duration) {
        let requested_at = self.recorder.now();
        (Holder::start(&self.server, &self.lock.key, owner, SHORT), requested_at)
    }

    /// Waits until that process has been granted the lock.
    fn fence(&self, holder: &mut Holder, owner: &str, requested_at: Duration) -> i64 {
        let fence = holder.fence();
        self.recorder.record(Operation {
            client: 1,
            key: self.lock.key.clone(),
            owner: owner.into(),
            action: Action::Acquire { mode: Mode::Mutex, lease: SHORT, block: Some(LONG) },
            invoked: requested_at,
            returned: self.recorder.now(),
            outcome: Outcome::Granted { fence },
        });
        fence
    }

    /// Waits until these owners wait, in this order.
    fn wait_for_queue(&self, owners: &[&str]) {
        let mut client = self.server.client();
        until(&format!("{owners:?} wait"), || {
            let waiters = client.cmd(&["LOCK.WAITERS", &self.lock.key]);
            waiters.items().iter().map(|waiter| waiter.get("owner").text()).eq(owners.iter().copied())
        });
    }

    /// The next owner holds the lock. Everything that the stopped holder does now, believing that it holds the lock, is
    /// rejected: by the server, and because of its fencing token.
    fn assert_is_refused(
        &mut self,
        holder: &mut Holder,
        stopped: Stopped,
        (owner, fence): (&str, i64),
        (next, grant): (&str, Outcome),
    ) {
        let Outcome::Granted { fence: next_fence } = grant else { panic!("the lock is granted: {grant:?}") };
        assert!(next_fence > fence, "{next_fence} after {fence}");
        let (lock, value) = (self.lock.clone(), self.rounds as u64);
        assert_eq!(self.caller.write(&lock, next, value), Outcome::Done);
        assert_eq!(self.caller.write_by_fence(&self.guarded, &lock, next, next_fence, value), Outcome::Done);

        let Lock { key, .. } = &lock;
        holder.send_command(&format!("LOCK.EXEC {key} {owner} SET {} 0", lock.register()));
        stopped.resume();
        let refused = holder.reply();
        assert!(refused.starts_with("-NOTHELD "), "{refused}");
        assert_eq!(self.caller.write_by_fence(&self.guarded, &lock, owner, fence, 0), Outcome::NotHeld);
        for command in ["LOCK.RENEW", "LOCK.RELEASE"] {
            holder.send_command(&format!("{command} {key} {owner}"));
            assert_eq!(holder.reply(), "0", "{command}");
        }

        assert_eq!(self.caller.read(&lock, next), Outcome::Value(Some(value)));
        assert_eq!(self.caller.release(&lock, next, Mode::Mutex), Outcome::Done);
    }

    fn judge(self, scenario: &str) {
        let history = self.recorder.history();
        let version = self.server.info("server").version();
        assert_drained(&mut self.server.client(), &[self.lock]);
        assert_none(&breaches(&history, Scope::Server));
        Row::of(scenario, &version, self.rounds - 1, &history).report();
    }
}

fn caller(server: &Server, recorder: &Recorder) -> Caller {
    let address = ([127, 0, 0, 1], server.port()).into();
    Caller::new(0, recorder.clone(), Arc::new(move || address))
}

#[test]
fn a_paused_primary_continues_and_no_holds_overlap() {
    let server = Server::builder().config(ADOPT).start();
    let mut rng = Rng::new(1);
    under_load("SIGSTOP of a primary", &server, &waiting(), |workers| {
        let stopped = Stopped::stop(server.pid());
        // Nothing can be observed of it during this time. Some leases expire, no request does.
        thread::sleep(Duration::from_millis(50 + rng.below(700) as u64));
        stopped.resume();
        workers.wait_for_grants(10);
    });
}

#[test]
fn a_paused_replica_only_delays_wait() {
    let server = Server::builder().config(ADOPT).start();
    let replica = Server::builder().replica_of(&server).start();
    in_sync(&server, &replica);
    let mut client = server.client();
    under_load("SIGSTOP of a replica", &server, &waiting(), |workers| {
        let stopped = Stopped::stop(replica.pid());
        workers.wait_for_grants(20);
        assert_eq!(client.pipeline(&["LOCK.ACQUIRE waited-for *", "WAIT 1 50"])[1], Reply::Int(0));
        stopped.resume();
        let acknowledged =
            client.pipeline(&["LOCK.ACQUIRE waited-for-too *", "WAIT 1 0", "DEL waited-for waited-for-too"]);
        assert_eq!(acknowledged[1], Reply::Int(1));
    });
    in_sync(&server, &replica);
    let [here, there] = [&server, &replica].map(|server| server.client().run("DBSIZE"));
    assert_eq!(here, there);
}

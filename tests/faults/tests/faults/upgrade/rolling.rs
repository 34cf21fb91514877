//! The steps of `docs/upgrade.md`, under load and with Sentinels: every server of a pair is replaced by a newer one,
//! there and back. Nothing is lost, no fencing token goes back.

use std::time::{Duration, Instant};

use faults::judge::{assert_drained, breaches_despite_losses, holds, lost, not_linearizable, overlaps, Scope};
use faults::sentinels::{Judgement, Sentinels};
use faults::versions::Program;
use faults::{Plan, Recorder, Row, Workers};
use support::{in_sync, skip, until, Client, Reply, Server};

use super::should_follow;
use crate::failover::{replication, role, GRANTS};
use crate::judged::assert_none;

/// A replica exits if it cannot read an effect of its primary: better no replica than one with gaps.
const END_AT_AN_ERROR: &str = "propagation-error-behavior panic-on-replicas";

/// Longer than Sentinels take to replace a primary.
const ASK_AGAIN: Duration = Duration::from_secs(3);

/// Longer than any step: the operator decides when writes are accepted again.
const PAUSE: &str = "CLIENT PAUSE 60000 WRITE";

#[test]
fn servers_are_upgraded_and_downgraded_without_losses() {
    let tested = Program::tested();
    // An older server cannot load a newer one's file, but it can continue as its replica.
    let newer: Vec<Program> = Program::others()
        .into_iter()
        .filter(|other| should_follow(&tested.line, &other.line) && tested.line < other.line)
        .collect();
    if newer.is_empty() {
        return skip("no newer server is built that can follow this one: make servers");
    }
    for newer in newer {
        let title = format!("upgrade under load: {} to {} and back", tested.line, newer.line);
        let mut pair = Pair::start(&title, &tested);
        pair.replace_replica(&newer);
        pair.switch_over();
        // The old server follows as long as the connection or the backlog lasts.
        pair.switch_over();
        pair.switch_over();
        pair.replace_replica(&newer);
        pair.switch_over();
        pair.judge();
    }
}

/// A primary and its replica monitored by Sentinels, and clients that ask the Sentinels for the primary.
struct Pair {
    title: String,
    plan: Plan,
    workers: Workers,
    sentinels: Sentinels,
    primary: Server,
    replica: Server,
    /// The server under test at the start.
    server: String,
    /// The fencing tokens of locks that are held to the end; one was granted after each takeover.
    kept: Vec<i64>,
}

impl Pair {
    fn start(title: &str, server: &Program) -> Pair {
        eprintln!("{title}");
        let builder = || server.builder().config("save 3600 1").config(END_AT_AN_ERROR);
        let primary = builder().start();
        let replica = builder().replica_of(&primary).start();
        in_sync(&primary, &replica);
        let judgement = Judgement { down_after: Duration::from_secs(10), failover_timeout: Duration::from_secs(3) };
        let sentinels = Sentinels::of(&primary, 1, judgement);
        let plan = Plan::mixed();
        let workers = Workers::start(&plan, &Recorder::new(), sentinels.route());
        workers.wait_for_grants(GRANTS);
        let server = primary.info("server").version();
        let mut pair =
            Pair { title: title.into(), plan, workers, sentinels, primary, replica, server, kept: Vec::new() };
        pair.keep_a_lock();
        pair
    }

    /// Restarts the replica as another server, from the files that its predecessor left.
    fn replace_replica(&mut self, server: &Program) {
        self.stop_replica();
        self.start_replica(server);
        in_sync(&self.primary, &self.replica);
        self.workers.wait_for_grants(GRANTS);
    }

    /// Makes the replica the primary, with writes paused until the old primary is a replica, or has exited because it
    /// cannot be one.
    fn switch_over(&mut self) {
        self.hold_writes();
        in_sync(&self.primary, &self.replica);
        self.promote_replica();
    }

    fn hold_writes(&mut self) {
        assert_eq!(self.primary.client().run(PAUSE), Reply::ok());
    }

    fn promote_replica(&mut self) {
        let port = self.replica.port();
        let mut requested_at: Option<Instant> = None;
        until("the replica is promoted, and the Sentinels agree", || {
            // A Sentinel that sees no healthy replica gives up silently. Do not ask again during a change: that would
            // reverse it.
            let is_due = requested_at.is_none_or(|requested_at| requested_at.elapsed() > ASK_AGAIN);
            if is_due && self.sentinels.agree_on(self.primary.port()) && self.sentinels.see_replicas(1) {
                self.sentinels.fail_over();
                requested_at = Some(Instant::now());
            }
            self.sentinels.agree_on(port) && role(&self.replica).as_deref() == Some("master")
        });
        // Sentinel's own REPLICAOF is queued behind a PUBLISH, which the pause blocks.
        let mut operator = self.primary.client();
        assert_eq!(operator.run(&format!("REPLICAOF 127.0.0.1 {port}")), Reply::ok());
        // It may have ended by now.
        let _ = operator.try_cmd(&["CLIENT", "UNPAUSE"]);
        std::mem::swap(&mut self.primary, &mut self.replica);
        self.assert_locks_are_kept();
        self.keep_a_lock();
        self.workers.wait_for_grants(GRANTS);
        if self.replica.is_alive() {
            until("it follows, or has ended", || {
                let Some(replication) = replication(&self.replica) else { return true };
                replication.find("master_link_status") == Some("up")
            });
        }
    }

    /// Stops it cleanly, unless it has exited by itself, or does so now.
    fn stop_replica(&mut self) {
        if let Ok(mut client) = Client::try_connect(self.replica.port()) {
            let _ = client.try_cmd(&["SHUTDOWN"]);
        }
        self.replica.kill();
    }

    fn start_replica(&mut self, server: &Program) {
        let primary = &self.primary;
        self.replica.rebuild(|builder| builder.program(&server.path).replica_of(primary));
        self.replica.restart();
    }

    /// Workers hold their locks only briefly: what a replica has missed may have ended when it is promoted.
    fn keep_a_lock(&mut self) {
        let request = format!("LOCK.ACQUIRE kept-{} keeper PX 600000", self.kept.len());
        self.kept.push(self.primary.client().run(&request).fence());
    }

    fn assert_locks_are_kept(&self) {
        let mut client = self.primary.client();
        let held = |number| client.run(&format!("LOCK.HELD kept-{number} keeper"));
        let held: Vec<_> = (0..self.kept.len()).map(held).collect();
        let fences: Vec<_> = held.iter().map(|held| (!held.is_nil()).then(|| held.items()[0].int())).collect();
        assert_eq!(fences, self.kept.iter().copied().map(Some).collect::<Vec<_>>(), "{}", self.title);
    }

    fn judge(self) {
        self.workers.wait_for_grants(GRANTS);
        self.assert_locks_are_kept();
        let history = self.workers.stop();
        let holds = holds(&history);
        assert_none(&lost(&holds));
        assert_none(&overlaps(&holds));
        assert_none(&breaches_despite_losses(&history, Scope::Server));
        assert_none(&not_linearizable(&history));
        assert_drained(&mut self.primary.client(), &self.plan.locks);
        Row::of(&self.title, &self.server, self.kept.len() - 1, &history).report();
    }
}

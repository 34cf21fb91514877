//! Server failures and failovers during a wait.

use std::time::{Duration, Instant};

use faults::proxy::{Proxy, BOTH};
use faults::sentinels::{Judgement, Sentinels, NAME};
use faults::Cluster;
use support::{in_sync, until, Client, Server};

use super::runner::{done, is_held, run, until_waiters, Runner};
use crate::tool::{at, command};

#[test]
fn it_waits_for_a_killed_server_to_return() {
    let mut server = Server::builder().appendonly().start();
    server.client().run("LOCK.ACQUIRE k other PERSIST").fence();
    let runner = run(&server, "k", "echo ran");
    until_waiters(&server, "k", 1);
    server.kill();
    server.restart();
    until_waiters(&server, "k", 1);
    assert_eq!(server.client().run("LOCK.RELEASE k other").int(), 1);
    let end = runner.end();
    assert_eq!((end.code(), end.stdout()), (Some(0), "ran\n"));
}

#[test]
fn an_unreachable_server_is_reported_and_the_wait_ends_with_69() {
    let mut server = Server::start();
    server.client().run("LOCK.ACQUIRE k other PERSIST").fence();
    let runner = run(&server, "--wait 2s k", "echo ran");
    until_waiters(&server, "k", 1);
    server.kill();
    let end = runner.end();
    assert_eq!((end.code(), end.stdout()), (Some(69), ""), "{}", end.stderr);
    assert!(end.stderr.contains(&server.port().to_string()), "{}", end.stderr);
}

/// The allowance for a busy machine, in addition to the two seconds that the client promises.
const BUSY: Duration = Duration::from_secs(1);

#[test]
fn a_wait_on_a_silent_connection_ends_within_two_seconds_of_its_timeout() {
    let server = Server::start();
    server.client().run("LOCK.ACQUIRE k other PERSIST").fence();
    let wait = Duration::from_secs(1);
    // While it waits, and before its connection is established.
    for waits_first in [true, false] {
        let proxy = Proxy::to(server.port()).expect("a proxy");
        if !waits_first {
            proxy.stall(&BOTH);
        }
        let port = proxy.port().to_string();
        let began = Instant::now();
        let runner = Runner::start(command().args(["-p", &port, "run", "--wait", "1s", "k", "--", "echo", "ran"]));
        if waits_first {
            until_waiters(&server, "k", 1);
            proxy.stall(&BOTH);
        }
        let end = runner.end();
        let late = began.elapsed().saturating_sub(wait);
        assert!(late < Duration::from_secs(2) + BUSY, "{late:?} late, {waits_first}");
        assert_eq!((end.code(), end.stdout()), (Some(69), ""), "{}", end.stderr);
        assert!(end.stderr.contains(&format!("127.0.0.1:{port} does not respond: ")), "{}", end.stderr);
        assert!(began.elapsed() >= wait);
    }
}

#[test]
fn a_server_that_is_unreachable_at_the_start_is_reported_and_waited_for() {
    let mut server = Server::start();
    server.kill();
    let runner = run(&server, "k", "echo ran");
    runner.until_says("still waiting");
    server.restart();
    assert_eq!(runner.end().stdout(), "ran\n");
}

#[test]
fn a_wait_of_multiple_requests_is_shown_as_one() {
    let server = Server::start();
    server.client().run("LOCK.ACQUIRE k other PERSIST").fence();
    let runner = run(&server, "--verbose k", "true");
    until_waiters(&server, "k", 1);
    // Each request of the client waits for less than four seconds.
    until("it has waited for longer than one request", || waited(&server) > 4_500);
    let shown = |line: &str| at(&server, line).json();
    let waits = [
        shown("waiters k --json")[0]["waited"].clone(),
        shown("graph --json")["locks"][0]["queue"][0]["waited"].clone(),
        shown("top --once --interval 100ms --json")["locks"][0]["longest"].clone(),
    ];
    assert!(waits.iter().all(|waited| waited.as_u64().is_some_and(|waited| waited > 4_500)), "{waits:?}");
    assert_eq!(server.client().run("LOCK.RELEASE k other").int(), 1);
    let end = runner.end();
    let (_, after) = end.stderr.split_once("k: granted after ").expect("it is reported");
    let after: f64 = after.split_once("s, fence ").expect("seconds").0.parse().expect("a number");
    assert!(after > 4.5, "{}", end.stderr);
}

/// How long the first request for `k` has waited, according to the server.
fn waited(server: &Server) -> i64 {
    server.client().run("LOCK.WAITERS k").items().first().map_or(0, |waiter| waiter.get("waited").int())
}

/// A primary and its replica, with Sentinels that start no failover by themselves.
struct Watched {
    primary: Server,
    replica: Server,
    sentinels: Sentinels,
}

impl Watched {
    fn start() -> Watched {
        let primary = Server::start();
        let replica = Server::builder().replica_of(&primary).start();
        in_sync(&primary, &replica);
        let patient = Duration::from_secs(30);
        let sentinels = Sentinels::of(&primary, 1, Judgement { down_after: patient, failover_timeout: patient });
        Watched { primary, replica, sentinels }
    }

    fn run(&self, options: &str, script: &str) -> Runner {
        let addresses: Vec<String> = self.sentinels.ports().iter().map(|port| format!("127.0.0.1:{port}")).collect();
        let sentinels = ["--sentinel", &addresses.join(","), "--master", NAME, "run"];
        Runner::start(command().args(sentinels).args(options.split(' ')).args(["--", "sh", "-c", script]))
    }

    fn fail_over(&self) {
        until("a failover begins", || !self.sentinels.fail_over().is_error());
        until("the replica is the primary", || self.sentinels.agree_on(self.replica.port()));
        until("it says so itself", || self.replica.info("replication").text("role") == "master");
    }
}

#[test]
fn a_failover_during_the_wait_is_followed() {
    let servers = Watched::start();
    let fence = servers.primary.client().run("LOCK.ACQUIRE k other PERSIST").fence();
    let runner = servers.run("k", "echo $REDIS_LOCK_FENCE");
    until_waiters(&servers.primary, "k", 1);
    in_sync(&servers.primary, &servers.replica);
    servers.fail_over();
    until_waiters(&servers.replica, "k", 1);
    assert_eq!(servers.replica.client().run("LOCK.RELEASE k other").int(), 1);
    let end = runner.end();
    assert_eq!(end.code(), Some(0), "{}", end.stderr);
    assert!(end.stdout().trim().parse::<i64>().expect("a fence") > fence);
}

#[test]
fn a_failover_while_the_command_runs_is_not_a_loss_if_the_replica_has_the_lock() {
    let servers = Watched::start();
    let mut runner = servers.run("--lease 30s k", "echo ready; read _; exit 3");
    runner.until_prints("ready");
    in_sync(&servers.primary, &servers.replica);
    servers.fail_over();
    // Until then it believes that it is the primary, and a release there would be lost.
    until("the old primary follows", || {
        // It then closes all connections.
        let role = Client::try_connect(servers.primary.port()).and_then(|mut client| client.try_cmd(&["ROLE"]));
        role.is_ok_and(|role| role.items()[0].is_bulk("slave"))
    });
    assert!(is_held(&servers.replica, "k"));
    runner.close_stdin();
    let end = runner.end();
    assert_eq!((end.code(), end.stderr.as_str()), (Some(3), ""));
    assert!(!is_held(&servers.replica, "k"));
}

#[test]
fn a_failover_that_lost_the_lock_is_a_loss() {
    let servers = Watched::start();
    let runner = servers.run("--lease 3s k", "echo ready; sleep 300");
    runner.until_prints("ready");
    in_sync(&servers.primary, &servers.replica);
    servers.fail_over();
    assert_eq!(servers.replica.client().run("LOCK.BREAK k").int(), 1);
    let end = runner.end();
    assert_eq!(end.code(), Some(75), "{}", end.stderr);
}

#[test]
fn in_a_cluster_the_node_that_serves_the_key_grants() {
    let cluster = Cluster::start(Duration::from_secs(30), Server::builder);
    for key in ["a", "b", "c", "d"] {
        let port = cluster.node(0).port().to_string();
        let end = Runner::start(command().args(["-c", "-p", &port, "run", key, "--", "sh", "-c", "exit 3"])).end();
        assert_eq!((end.code(), end.stderr.as_str()), (Some(3), ""));
    }
}

#[test]
fn twenty_waiting_runs_send_one_request_each_and_are_all_granted() {
    let server = Server::start();
    server.client().run("LOCK.ACQUIRE k other PERSIST").fence();
    let began = Instant::now();
    let runners: Vec<Runner> = (0..20).map(|_| run(&server, "k", "true")).collect();
    until_waiters(&server, "k", 20);
    server.client().run("LOCK.RELEASE k other");
    for runner in runners {
        assert_eq!(runner.end().code(), Some(0));
    }
    // Counted when all have been granted, because Redis 8.0 and Valkey count a blocking command when it ends. One
    // command of the holder, and one per waiter; a wait longer than a slice sends another.
    let stats = server.info("commandstats");
    let calls = stats.find("cmdstat_lock.acquire").and_then(|line| line.split(['=', ',']).nth(1)?.parse().ok());
    let slices = 1 + began.elapsed().as_secs() / 3;
    assert!((21..=1 + 20 * slices).contains(&calls.unwrap_or(0)), "{calls:?}");
    assert_eq!(done(&server, "--no-wait k", "true").code(), Some(0));
}

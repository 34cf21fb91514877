//! Each alert fires when a real server is in the situation it is meant for, and not before. The real exporter reads the
//! server before and during the situation; promtool evaluates the real rules over half an hour of each.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::fs;
use std::time::Duration;

use super::exposition::Sample;
use super::tools::{promtool, root, tool};
use super::written::alerts;
use super::{exporter, series, set_up_the_user};
use crate::hostile::effects::{command, load};
use crate::support::cluster::single_node;
use crate::support::skip::skip;
use crate::support::waiting::*;
use crate::support::{in_sync, until, Builder, Clocks, Server};

/// Fires on every server without a replica, so only its own test checks it.
const NO_REPLICA: &str = "RedisLockNoReplica";

/// The exporter's samples from before the situation.
struct Before(Vec<Sample>);

impl Before {
    /// `None`: the exporter is not installed, and the test is skipped.
    #[track_caller]
    fn of(server: &Server) -> Option<Before> {
        set_up_the_user(&mut server.client());
        samples(server).map(Before)
    }

    /// Checks that no alert fires before the situation, and exactly these fire in it.
    #[track_caller]
    fn assert_fire(&self, server: &Server, expected: &[&str]) {
        let Some(promtool_path) = tool("promtool") else { return };
        let during = samples(server).expect("the exporter was there before");
        let rules = fs::read_to_string(root().join("contrib/prometheus/alerts.yml")).expect("the rules");
        fs::write(server.dir().join("alerts.yml"), rules).expect("the rules are copied");
        fs::write(server.dir().join("situation_test.yml"), test_of(&self.0, &during, expected)).expect("the test");
        promtool(&promtool_path, server.dir(), &["test", "rules", "situation_test.yml"]);
    }
}

/// Read as the user of docs/metrics.md.
fn samples(server: &Server) -> Option<Vec<Sample>> {
    let samples = exporter(server, "")?.scrape();
    Some(samples.into_iter().filter(|sample| sample.series.metric.starts_with("redis_")).collect())
}

/// The input of promtool: half an hour before the situation, and half an hour in it.
fn test_of(before: &[Sample], during: &[Sample], expected: &[&str]) -> String {
    let by_series = |samples: &[Sample]| -> BTreeMap<String, f64> {
        samples.iter().map(|sample| (series(&sample.series), sample.value)).collect()
    };
    let (before, during) = (by_series(before), by_series(during));
    let mut test = String::from("rule_files: [alerts.yml]\nevaluation_interval: 1m\ntests:\n  - interval: 1m\n");
    test += "    input_series:\n";
    for name in before.keys().chain(during.keys()).collect::<BTreeSet<_>>() {
        let first = before.get(name).map_or("_x31".to_string(), |value| format!("{value}+0x30"));
        let then = during.get(name).map_or("stale".to_string(), |value| format!("{value}+0x30"));
        // JSON strings are valid YAML.
        writeln!(test, "      - {{series: {}, values: {first} {then}}}", serde_json::json!(name)).expect("a string");
    }
    let of_every_server = if expected.contains(&NO_REPLICA) { "" } else { NO_REPLICA };
    let fired = format!(
        "max by (alertname) (max_over_time(ALERTS{{alertstate=\"firing\", alertname!=\"{of_every_server}\"}}[30m]))"
    );
    let labels = |name: &&str| format!("{{labels: '{{alertname=\"{name}\"}}', value: 1}}");
    let firing: Vec<_> = expected.iter().map(labels).collect();
    test += "    promql_expr_test:\n";
    for (minutes, firing) in [(30, String::new()), (61, firing.join(", "))] {
        let expr = serde_json::json!(fired);
        writeln!(test, "      - {{expr: {expr}, eval_time: {minutes}m, exp_samples: [{firing}]}}").expect("a string");
    }
    test
}

fn with_a_replica(builder: Builder) -> (Server, Server) {
    let primary = builder.start();
    let replica = Server::builder().replica_of(&primary).start();
    in_sync(&primary, &replica);
    (primary, replica)
}

mod no_lock_is_granted {
    use super::*;

    #[test]
    fn the_server_is_down() {
        let mut server = quiet().start();
        let Some(before) = Before::of(&server) else { return };
        server.kill();
        before.assert_fire(&server, &["RedisLockServerDown"]);
    }

    #[test]
    fn it_runs_without_the_module() {
        let mut server = quiet().start();
        let Some(before) = Before::of(&server) else { return };
        server.kill();
        server.restart_without_module(&[]).expect("it starts");
        // The command LOCK.TOP is not permitted any more.
        let rules = "ACL SETUSER exporter on >a-long-password -@all +eval +info";
        assert!(!server.client().run(rules).is_error());
        before.assert_fire(&server, &["RedisLockModuleMissing"]);
    }

    #[test]
    fn it_is_out_of_memory() {
        let server = quiet().start();
        let Some(before) = Before::of(&server) else { return };
        server.client().run("CONFIG SET maxmemory 1");
        assert!(server.client().run("LOCK.ACQUIRE k a").error().starts_with("OOM "));
        before.assert_fire(&server, &["RedisLockOutOfMemory"]);
    }

    #[test]
    fn it_cannot_save() {
        let server = quiet().config("save 3600 1").config("dbfilename dump.rdb").start();
        let Some(before) = Before::of(&server) else { return };
        fs::create_dir(server.dir().join("dump.rdb")).expect("the server's folder is ours");
        server.client().run("BGSAVE");
        until("writes are refused", || server.client().run("LOCK.ACQUIRE k a").is_error());
        before.assert_fire(&server, &["RedisLockMisconf"]);
    }

    /// It is connected the whole time.
    #[test]
    fn the_replica_lags() {
        let settings = Server::builder().config("min-replicas-to-write 1").config("min-replicas-max-lag 3");
        let (server, replica) = with_a_replica(settings);
        // The server counts up-to-date replicas once a second.
        until("it keeps up", || !server.client().run("DEL k").is_error());
        let Some(before) = Before::of(&server) else { return };
        let _sleeper = put_to_sleep(&replica, FOR_EVER);
        until("it lags", || server.client().run("LOCK.ACQUIRE k a").is_error());
        before.assert_fire(&server, &["RedisLockReplicasLag"]);
    }

    #[test]
    fn writes_are_paused() {
        let server = quiet().start();
        let Some(before) = Before::of(&server) else { return };
        server.client().run("CLIENT PAUSE 600000 WRITE");
        before.assert_fire(&server, &["RedisLockPaused"]);
    }

    #[test]
    fn the_cluster_is_down() {
        let server = single_node();
        let Some(before) = Before::of(&server) else { return };
        server.client().run("CLUSTER DELSLOTS 0");
        until("it is down", || server.client().run("LOCK.ACQUIRE k a").is_error());
        before.assert_fire(&server, &["RedisLockClusterDown"]);
    }

    #[test]
    fn a_free_lock_has_waiters() {
        let Some(mut clocked) = Clocked::start() else { return };
        let Some(before) = Before::of(&clocked.server) else { return };
        let mut client = clocked.server.client();
        client.run("LOCK.ACQUIRE k a PX 100").fence();
        let _b = Waiter::park(&clocked.server, "LOCK.ACQUIRE k b BLOCK 0");
        client.run("CLIENT PAUSE 600000 WRITE");
        clocked.advance_s(1);
        until("it is free", || clocked.server.client().run("LOCK.HELD k a").is_nil());
        clocked.advance_s(6);
        before.assert_fire(&clocked.server, &["RedisLockHeldBack", "RedisLockPaused"]);
    }
}

mod two_may_hold_it {
    use super::*;

    #[test]
    fn a_policy_could_evict_locks() {
        let server = quiet().start();
        let Some(before) = Before::of(&server) else { return };
        server.client().run("CONFIG SET maxmemory 1gb maxmemory-policy allkeys-lru");
        before.assert_fire(&server, &["RedisLockEvictionRisk"]);
    }

    #[test]
    fn keys_are_evicted() {
        let server = quiet().start();
        let Some(before) = Before::of(&server) else { return };
        let mut client = server.client();
        client.run("DEBUG POPULATE 1000 key 1000");
        let limit = server.info("memory").number("used_memory") - 100_000;
        client.run(&format!("CONFIG SET maxmemory {limit} maxmemory-policy allkeys-lru"));
        until("keys go", || {
            client.run("SET k v");
            server.info("stats").number("evicted_keys") > 0
        });
        // There is free memory again.
        client.run("CONFIG SET maxmemory 1gb");
        before.assert_fire(&server, &["RedisLockEvicting", "RedisLockEvictionRisk"]);
    }

    #[test]
    fn effects_of_another_version_were_not_applied() {
        let mut server = Server::builder().appendonly().start();
        let Some(before) = Before::of(&server) else { return };
        load(&mut server, &command(&[b"LOCK.APPLY", b"k", b"2 m 9 30000 4102444800000 a"]));
        set_up_the_user(&mut server.client());
        before.assert_fire(&server, &["RedisLockEffectsNotApplied"]);
    }

    #[test]
    fn the_only_replica_is_gone() {
        let (server, mut replica) = with_a_replica(quiet());
        let Some(before) = Before::of(&server) else { return };
        replica.kill();
        until("it is gone", || server.info("replication").number("connected_slaves") == 0);
        before.assert_fire(&server, &[NO_REPLICA]);
    }
}

mod callers_wait {
    use super::*;

    #[test]
    fn no_more_requests_are_queued() {
        let server = quiet().start();
        let Some(before) = Before::of(&server) else { return };
        let mut client = server.client();
        client.run("CONFIG SET lock.max-waiters 0");
        hold(&mut client, "k", "a");
        assert!(client.run("LOCK.ACQUIRE k b BLOCK 0").error().starts_with("MAXWAITERS "));
        before.assert_fire(&server, &["RedisLockMaxWaiters"]);
    }

    #[test]
    fn a_queue_grows() {
        let server = quiet().start();
        let Some(before) = Before::of(&server) else { return };
        let mut client = server.client();
        hold(&mut client, "k", "a");
        for number in 0..25 {
            client.run(&format!("LOCK.ACQUIRE k b{number} BLOCK 0 NOTIFY answers"));
        }
        before.assert_fire(&server, &["RedisLockQueueGrows"]);
    }

    #[test]
    fn a_wait_took_long() {
        let Some(mut clocked) = Clocked::start() else { return };
        let Some(before) = Before::of(&clocked.server) else { return };
        let mut client = clocked.server.client();
        hold(&mut client, "k", "a");
        let mut b = Waiter::park(&clocked.server, "LOCK.ACQUIRE k b BLOCK 0");
        clocked.advance_s(12);
        client.run("LOCK.RELEASE k a");
        b.granted("b");
        before.assert_fire(&clocked.server, &["RedisLockSlowWaits"]);
    }

    #[test]
    fn a_holder_does_not_finish() {
        let Some(mut clocked) = Clocked::start() else { return };
        let Some(before) = Before::of(&clocked.server) else { return };
        clocked.server.client().run("LOCK.ACQUIRE k a PX 3600000").fence();
        let _b = Waiter::park(&clocked.server, "LOCK.ACQUIRE k b BLOCK 0");
        clocked.advance_s(400);
        before.assert_fire(&clocked.server, &["RedisLockStuck"]);
    }

    #[test]
    fn a_free_lock_is_not_granted() {
        let Some(mut clocked) = Clocked::start() else { return };
        let Some(before) = Before::of(&clocked.server) else { return };
        clocked.server.kill();
        clocked.server.restart_with(&["lock.grace 3600000"]);
        set_up_the_user(&mut clocked.server.client());
        let _b = Waiter::park(&clocked.server, "LOCK.ACQUIRE k b BLOCK 0");
        clocked.advance_s(100);
        before.assert_fire(&clocked.server, &["RedisLockGrace", "RedisLockStuck"]);
    }

    #[test]
    fn a_request_would_deadlock() {
        let server = quiet().start();
        let Some(before) = Before::of(&server) else { return };
        let mut client = server.client();
        hold(&mut client, "k", "a");
        hold(&mut client, "l", "b");
        let _a = Waiter::park(&server, "LOCK.ACQUIRE l a BLOCK 0");
        assert!(client.run("LOCK.ACQUIRE k b BLOCK 0").error().starts_with("DEADLOCK "));
        before.assert_fire(&server, &["RedisLockDeadlock"]);
    }

    /// The machine has no CPU for it: the process is stopped at random moments until that coincides with an engine
    /// pass.
    #[test]
    fn the_module_occupies_the_server() {
        const REQUESTS: usize = 20_000;
        let server = quiet().start();
        let Some(before) = Before::of(&server) else { return };
        let mut client = server.client();
        hold(&mut client, "k", "a");
        let _b = Waiter::park(&server, "LOCK.ACQUIRE k b BLOCK 0");
        until("a pass was long", || {
            client.send_raw("LOCK.ACQUIRE k c\r\n".repeat(REQUESTS).as_bytes());
            stop_for(&server, Duration::from_millis(100));
            (0..REQUESTS).for_each(|_| assert!(client.read().is_nil()));
            server.info("lock").number("lock_longest_turn_us") > 60_000
        });
        before.assert_fire(&server, &["RedisLockLongTurn"]);
    }
}

mod holders_and_waiters_die {
    use super::*;

    #[test]
    fn leases_expire_while_requests_wait() {
        let server = Server::start();
        let Some(before) = Before::of(&server) else { return };
        let mut client = server.client();
        hold(&mut client, "k", "a");
        let _b = Waiter::park(&server, "LOCK.ACQUIRE k b BLOCK 0");
        for number in 0..12 {
            client.run(&format!("LOCK.ACQUIRE short:{number} a PX 1"));
        }
        until("all have expired", || server.info("lock").number("lock_leases_expired") == 12);
        before.assert_fire(&server, &["RedisLockLeasesExpire"]);
    }

    #[test]
    fn grants_are_undelivered() {
        let server = quiet().start();
        let Some(before) = Before::of(&server) else { return };
        let mut client = server.client();
        for _ in 0..12 {
            hold(&mut client, "k", "a");
            let b = Waiter::park(&server, "LOCK.ACQUIRE k b BLOCK 0");
            multi(&mut client, &["LOCK.RELEASE k a", &format!("CLIENT KILL ID {}", b.id)]);
            until("the lock is free", || client.run("EXISTS k").int() == 0);
        }
        before.assert_fire(&server, &["RedisLockUndelivered"]);
    }
}

mod worth_knowing {
    use super::*;

    #[test]
    fn a_grace_period_is_active() {
        let mut server = quiet().start();
        let Some(before) = Before::of(&server) else { return };
        server.kill();
        server.restart_with(&["lock.grace 3600000"]);
        set_up_the_user(&mut server.client());
        before.assert_fire(&server, &["RedisLockGrace"]);
    }

    #[test]
    fn a_lock_is_broken() {
        let server = quiet().start();
        let Some(before) = Before::of(&server) else { return };
        let mut client = server.client();
        hold(&mut client, "k", "a");
        client.run("LOCK.BREAK k");
        before.assert_fire(&server, &["RedisLockBroken"]);
    }

    #[test]
    fn an_old_client_deletes_the_lock_of_a_native_one() {
        let server = quiet().config("lock.adopt lock:*").start();
        let Some(before) = Before::of(&server) else { return };
        let mut client = server.client();
        hold(&mut client, "lock:k", "a");
        assert_eq!(client.run("DEL lock:k").int(), 0);
        before.assert_fire(&server, &["RedisLockProtected"]);
    }
}

#[test]
fn every_alert_has_a_situation() {
    let here = include_str!("situations.rs");
    for alert in alerts() {
        assert!(here.contains(&format!("\"{}\"", alert.name)), "{}", alert.name);
    }
}

/// A server whose clocks are controlled by the test.
struct Clocked {
    server: Server,
    clocks: Clocks,
}

impl Clocked {
    /// `None`: this server, or its module, uses other clocks.
    fn start() -> Option<Clocked> {
        let clocks = Clocks { wall: Duration::from_secs(1_800_000_000), monotonic: Duration::from_secs(1_000) };
        let mut clocked = Clocked { server: Server::builder().clocks(clocks).start(), clocks };
        let fence = |clocked: &Clocked| clocked.server.client().run("LOCK.ACQUIRE clock a PX 1").fence();
        let first = fence(&clocked);
        clocked.advance_s(1);
        if fence(&clocked) - first != 1_000_000 {
            skip("the server, or its module, goes by another clock than the one that is preloaded");
            return None;
        }
        Some(clocked)
    }

    fn advance_s(&mut self, seconds: u64) {
        let by = Duration::from_secs(seconds);
        self.clocks = Clocks { wall: self.clocks.wall + by, monotonic: self.clocks.monotonic + by };
        self.server.put_clocks(self.clocks);
        // It reads them in its next event-loop iteration.
        self.server.client().run("PING");
    }
}

/// Stops the process for this long.
fn stop_for(server: &Server, time: Duration) {
    let pid = libc::pid_t::try_from(server.pid()).expect("a process id");
    for (signal, pause) in [(libc::SIGSTOP, time), (libc::SIGCONT, Duration::ZERO)] {
        // SAFETY: the process is our child, and has not been reaped.
        assert_eq!(unsafe { libc::kill(pid, signal) }, 0);
        let_time_pass(pause);
    }
}

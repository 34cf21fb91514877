//! Which keys the server knows of, and how a cluster treats them.

use super::*;
use crate::support::cluster::*;
use crate::support::io_threads::*;
use crate::support::waiting::*;
use crate::support::{built_caller, until, Pipeline, Server};

const CROSS_SLOT: &str = "CROSSSLOT Keys in request don't hash to the same slot";

/// Whether the inner command's keys are reported too: only if the server is known to ask on its main thread only.
fn reports_commands_keys(server: &Server, is_cluster: bool) -> bool {
    let version = server.info("server").version();
    let is_one_of = |series: &[&str]| series.iter().any(|series| version.starts_with(&format!("{series}.")));
    let redis = ["Redis 7.0", "Redis 7.2", "Redis 7.4", "Redis 8.0"];
    let valkey = ["Valkey 8.0", "Valkey 8.1", "Valkey 9.0", "Valkey 9.1"];
    is_one_of(&redis) || !is_cluster && is_one_of(&valkey)
}

#[track_caller]
fn assert_keys(client: &mut Client, line: &str, expected: &[&str]) {
    let keys = client.run(&format!("COMMAND GETKEYS LOCK.EXEC k a {line}"));
    let mut keys: Vec<&str> = keys.items().iter().map(Reply::text).collect();
    assert_eq!(keys[0], "k", "{line}");
    // Some commands report their destination key last.
    keys[1..].sort_unstable();
    assert_eq!(keys, expected, "{line}");
}

#[test]
fn the_locks_key_is_reported_and_the_commands_unless_threads_ask() {
    for is_cluster in [false, true] {
        let server = if is_cluster { Server::builder().cluster().start() } else { Server::start() };
        let reports_all = reports_commands_keys(&server, is_cluster);
        let mut client = server.client();
        for (line, keys) in [
            ("PING", &["k"][..]),
            ("GET x", &["k", "x"]),
            ("MSET x 1 y 2", &["k", "x", "y"]),
            ("RENAME x y", &["k", "x", "y"]),
            ("ZUNIONSTORE d 2 x y", &["k", "d", "x", "y"]),
            ("SORT x STORE y", &["k", "x", "y"]),
            ("XREAD COUNT 1 STREAMS x y 0 0", &["k", "x", "y"]),
            ("OBJECT ENCODING x", &["k", "x"]),
            ("LOCK.RELEASE x t", &["k", "x"]),
            ("MLOCK.ACQUIRE 3 x y z t", &["k", "x", "y", "z"]),
            ("MLOCK.ACQUIRE 3 x y", &["k"]),
            ("LOCK.EXEC other t GET x", &["k", "other"]),
            ("NOSUCH x", &["k"]),
            ("GET", &["k"]),
        ] {
            assert_keys(&mut client, line, if reports_all { keys } else { &["k"] });
        }
    }
}

#[test]
fn the_locks_key_is_read_access_and_the_others_have_their_own() {
    let server = Server::start();
    let reports_all = reports_commands_keys(&server, false);
    let mut client = server.client();
    for (line, access) in [
        ("SET x 1", &["OW", "update"][..]),
        ("SET x 1 GET", &["RW", "access", "update"]),
        ("MLOCK.RELEASE 1 x t", &["RW", "access", "delete"]),
        ("MLOCK.ACQUIRE 1 x t", &["RW", "access", "update"]),
    ] {
        let keys = client.run(&format!("COMMAND GETKEYSANDFLAGS LOCK.EXEC k a {line}"));
        let reported: Vec<(&str, Vec<&str>)> = keys
            .items()
            .iter()
            .map(|key| (key.items()[0].text(), key.items()[1].items().iter().map(Reply::text).collect()))
            .collect();
        let expected = [("k", vec!["RO", "access"]), ("x", access.to_vec())];
        assert_eq!(reported, expected[..if reports_all { 2 } else { 1 }], "{line}");
    }
}

#[test]
fn keys_of_multiple_slots_are_refused() {
    let server = single_node();
    let mut client = server.client();
    hold(&mut client, "{t}k", "a");
    for line in ["SET {u}x 1", "MSET {t}x 1 {u}y 1", "MLOCK.ACQUIRE 2 {t}x {u}y a", "LOCK.RELEASE {u}x a", "GET {u}x"] {
        let line = format!("LOCK.EXEC {{t}}k a {line}");
        assert_eq!(client.run(&line), Reply::Error(CROSS_SLOT.into()), "{line}");
        let mut request = vec!["EVAL", "return redis.pcall(unpack(ARGV))", "0"];
        request.extend(line.split(' '));
        let reply = client.cmd(&request);
        assert!(reply.is_error(), "{line} in a script: {reply:?}");
    }
    for line in ["SET {t}x 1", "MSET {t}x 1 {t}y 1", "MLOCK.ACQUIRE 2 {t}m {t}n a", "PING", "DEL {t}x {t}y"] {
        let reply = client.run(&format!("LOCK.EXEC {{t}}k a {line}"));
        assert!(!reply.is_error(), "{line}: {reply:?}");
    }
    assert_eq!(client.run("DBSIZE"), Reply::Int(3));
}

/// Valkey 9.1 would fail everything else with the same internal client with EPERM from then on.
#[test]
fn a_cross_slot_refusal_breaks_no_later_call_and_a_broken_one_is_repeated() {
    let server = single_node();
    let mut client = server.client();
    hold(&mut client, "{t}k", "a");
    for _ in 0..4 {
        assert!(client.run("LOCK.EXEC {t}k a MSET {t}x 1 {u}y 1").is_error());
        assert_eq!(client.cmd(&["EVAL", "return redis.call('GET','x')", "0"]), Reply::NullBulk);
        client.cmd(&["EVAL", "return redis.pcall('MGET', 'x', 'y')", "0"]);
        assert_eq!(client.run("LOCK.EXEC {t}k a SET {t}x 1"), Reply::ok());
        client.cmd(&["EVAL", "return redis.pcall('MGET', 'x', 'y')", "0"]);
        assert_eq!(client.run("LOCK.EXEC {t}k a PING"), Reply::Status("PONG".into()));
    }
}

#[test]
fn the_locks_key_determines_the_node() {
    let server = Server::builder().cluster().config("cluster-require-full-coverage no").start();
    expect_ok(&server, "CLUSTER ADDSLOTSRANGE 0 8191");
    until_cluster(&server, "ok", 1);
    let mut client = server.client();
    assert!((0..8192).contains(&slot(&server, "k")) && slot(&server, "t") > 8191);
    hold(&mut client, "{k}l", "a");
    assert_eq!(client.run("LOCK.EXEC {k}l a SET {k}x 1"), Reply::ok());
    for line in ["LOCK.EXEC {t}l a SET {t}x 1", "LOCK.EXEC {t}l a PING"] {
        assert!(client.run(line).error().starts_with("CLUSTERDOWN "), "{line}");
    }
}

/// The inner command itself calls another command and forwards the server's refusal, with its errno and message. It
/// ran: it is not run again, and its reply is not taken for a refusal of LOCK.EXEC.
#[test]
fn a_command_that_forwards_a_refusal_has_run_once() {
    let caller = built_caller().expect("the test module is built");
    let builder = Server::builder().cluster().config("cluster-require-full-coverage no");
    let server = builder.config(format!("loadmodule {}", caller.display())).start();
    expect_ok(&server, "CLUSTER ADDSLOTSRANGE 0 8191");
    until_cluster(&server, "ok", 1);
    let mut client = server.client();
    assert!((0..8192).contains(&slot(&server, "k")) && slot(&server, "t") > 8191);
    hold(&mut client, "{k}l", "a");
    let own = client.run("TEST.FORWARD {k}counter GET {t}x");
    assert_eq!(own, Reply::Error("ERR Attempted to access a non local key in a cluster node".into()));
    assert_eq!(client.run("LOCK.EXEC {k}l a TEST.FORWARD {k}counter GET {t}x"), own);
    assert_eq!(client.run("GET {k}counter"), Reply::bulk("2"));
}

#[test]
fn while_the_slot_moves_present_keys_are_served_and_others_get_tryagain() {
    let source = single_node();
    let target = Server::builder().cluster().start();
    meet(&source, &target);
    let mut client = source.client();
    hold(&mut client, "{t}k", "a");
    hold(&mut client, "{t}lock", "b");
    client.run("SET {t}here 1");
    let (from, to, slot) = (node_id(&source), node_id(&target), slot(&source, "t"));
    expect_ok(&target, &format!("CLUSTER SETSLOT {slot} IMPORTING {from}"));
    expect_ok(&source, &format!("CLUSTER SETSLOT {slot} MIGRATING {to}"));
    assert_eq!(client.run("LOCK.EXEC {t}k a INCR {t}here"), Reply::Int(2));
    let reply = client.run("LOCK.EXEC {t}k a INCR {t}new");
    assert!(reply.error().starts_with("TRYAGAIN "), "{reply:?}");
    assert_eq!(client.run("LOCK.EXEC {t}k a PING"), Reply::Status("PONG".into()));

    // The lock has moved to the target, and its holder is redirected there. The rest is still on the source.
    expect_ok(&source, &format!("MIGRATE 127.0.0.1 {} {{t}}k 0 5000", target.port()));
    let mut client = target.client();
    for line in ["SET {t}here 3", "GET {t}here", "LOCK.ACQUIRE {t}lock a"] {
        let replies = client.pipeline(&["ASKING".into(), format!("LOCK.EXEC {{t}}k a {line}")]);
        assert!(replies[1].error().starts_with("TRYAGAIN "), "{line}: {replies:?}");
    }
    assert_eq!(client.run("DBSIZE"), Reply::Int(1));
    expect_ok(&source, &format!("MIGRATE 127.0.0.1 {} {{t}}here 0 5000", target.port()));
    let replies = client.pipeline(&["ASKING", "LOCK.EXEC {t}k a INCR {t}here"]);
    assert_eq!(replies[1], Reply::Int(3));
}

/// Valkey in a cluster and Redis from 8.2 ask for keys on I/O threads; with a callback of ours this crashed the server
/// within seconds.
#[test]
fn many_clients_of_a_server_with_io_threads() {
    for is_cluster in [true, false] {
        let builder = with_io_threads();
        let mut server = if is_cluster { single_node_of(builder) } else { builder.start() };
        hold(&mut server.client(), "{t}k", "a");
        let requests = |number: usize| {
            let mut pipeline = Pipeline::default();
            for n in 0..8 {
                let (key, other) = (format!("{{t}}x{number}-{n}"), format!("{{t}}y{n}"));
                pipeline.push(&["LOCK.EXEC", "{t}k", "a", "MSET", &key, "1", &other, "2"]);
                pipeline.push(&["LOCK.EXEC", "{t}k", "a", "DEL", &key, &other]);
            }
            pipeline
        };
        assert_serves_many(&mut server, requests);
        until("all keys are gone", || server.client().run("DBSIZE") == Reply::Int(1));
    }
}

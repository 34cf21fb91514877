//! WATCH, MULTI, scripts and client tracking combined with LOCK.EXEC.

use super::*;
use crate::support::waiting::*;
use crate::support::Server;
use std::time::Duration;

#[test]
fn watch_is_triggered_only_by_the_commands_changes() {
    for (line, trips) in [
        ("LOCK.EXEC k a SET x 1", true),
        ("LOCK.EXEC k a GET x", false),
        ("LOCK.EXEC k b SET x 1", false),
        ("LOCK.EXEC k a LOCK.RELEASE k a", true),
        ("LOCK.EXEC k a LOCK.RENEW k a", false),
    ] {
        let server = Server::start();
        let (mut watcher, mut client) = (server.client(), server.client());
        hold(&mut client, "k", "a");
        watcher.run("WATCH x k");
        client.run(line);
        let replies = watcher.pipeline(&["MULTI", "PING", "EXEC"]);
        assert_eq!(replies[2].is_null(), trips, "{line}");
    }
}

#[test]
fn a_watched_lock_is_checked_within_the_transaction() {
    let server = Server::start();
    let (mut client, mut other) = (server.client(), server.client());
    hold(&mut client, "k", "a");
    client.run("WATCH k");
    assert_eq!(multi(&mut client, &["LOCK.EXEC k a SET x 1"]), [Reply::ok()]);
    client.run("WATCH k");
    other.run("LOCK.EXEC k a LOCK.RELEASE k a");
    assert!(client.pipeline(&["MULTI", "LOCK.EXEC k a SET x 2", "EXEC"])[2].is_null());
    assert_eq!(client.run("GET x"), Reply::bulk("1"));
}

#[test]
fn a_script_runs_it_and_reads_its_reply() {
    let server = Server::start();
    let mut client = server.client();
    hold(&mut client, "k", "a");
    client.run("HSET hash f v");
    let mut eval = |script: &str| client.cmd(&["EVAL", script, "0"]);
    assert_eq!(eval("return redis.call('LOCK.EXEC','k','a','INCRBY','x',5)"), Reply::Int(5));
    let not_held = eval("return redis.pcall('LOCK.EXEC','k','b','INCR','x')");
    assert!(not_held.error().starts_with("NOTHELD "), "{not_held:?}");
    assert!(eval("redis.call('LOCK.EXEC','k','b','INCR','x')").error().contains("NOTHELD"));
    let map = "redis.setresp(3) return redis.call('LOCK.EXEC','k','a','HGETALL','hash').map.f";
    assert_eq!(eval(map), Reply::bulk("v"));
    assert_eq!(eval("return redis.call('LOCK.EXEC','k','a','HGETALL','hash')[2]"), Reply::bulk("v"));
    let refused = eval("return redis.pcall('LOCK.EXEC','k','a','EVAL','return 1',0)");
    assert!(refused.error().starts_with("ERR LOCK.EXEC cannot run 'eval'"), "{refused:?}");
    let written = "#!lua flags=no-writes\nreturn redis.pcall('LOCK.EXEC','k','a','GET','x')";
    assert!(eval(written).error().contains("Write commands are not allowed"));
}

/// Redis 7.0 tracks no reads by modules for any client.
#[test]
fn keys_read_by_the_command_are_tracked_for_the_caller() {
    let server = Server::start();
    let is_old = server.info("server").text("redis_version").starts_with("7.0.");
    let (mut tracking, mut client) = (server.client3(), server.client());
    client.run("SET x 1");
    hold(&mut client, "k", "a");
    tracking.run("CLIENT TRACKING ON");
    assert_eq!(tracking.run("LOCK.EXEC k a GET x"), Reply::bulk("1"));
    client.run("SET x 2");
    let reported = tracking.next_push(if is_old { A_WHILE } else { Duration::from_secs(5) });
    assert_eq!(reported.is_some(), !is_old, "{reported:?}");
    // The lock's key does not count as read by the caller; LOCK.HELD is for that.
    client.run("LOCK.RELEASE k a");
    assert_eq!(tracking.next_push(A_WHILE), None);
}

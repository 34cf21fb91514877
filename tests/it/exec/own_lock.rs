//! The command may release, delete or overwrite the lock that lets it run; who waits gets its turn.

use super::*;
use crate::support::families::{each_way, wait_for};
use crate::support::waiting::*;
use crate::support::Server;

#[test]
fn a_release_hands_over_in_every_family() {
    each_way(quiet, |way, server, client| {
        way.hold(client, "k", "a");
        let mut waiter = wait_for(way, server, "k", "b");
        assert!(!client.run(&format!("LOCK.EXEC k a {}", way.release("k", "a"))).is_error(), "{way:?}");
        waiter.granted("b");
        assert_not_held(&client.run("LOCK.EXEC k a SET x 1"));
    });
}

#[test]
fn whatever_else_takes_the_lock_away_brings_the_next_its_turn() {
    for line in ["DEL k", "UNLINK k", "PEXPIRE k 1", "FLUSHALL", "FLUSHDB ASYNC", "RENAME k elsewhere", "MOVE k 1"] {
        let server = quiet().start();
        let mut client = server.client();
        hold(&mut client, "k", "a");
        let [mut waiter] = line_up(&server, "k", ["b"]);
        assert!(!client.run(&format!("LOCK.EXEC k a {line}")).is_error(), "{line}");
        waiter.granted("b");
    }
}

#[test]
fn what_is_stored_over_it_answers_who_waits() {
    let server = quiet().start();
    let mut client = server.client();
    hold(&mut client, "k", "a");
    let [mut waiter] = line_up(&server, "k", ["b"]);
    assert_eq!(client.run("LOCK.EXEC k a SET k v"), Reply::ok());
    assert!(waiter.reply().error().starts_with("WRONGTYPE "));
    assert!(client.run("LOCK.EXEC k a GET k").error().starts_with("WRONGTYPE "));
}

#[test]
fn it_may_be_renewed_and_taken_again() {
    let server = Server::start();
    let mut client = server.client();
    let fence = hold(&mut client, "k", "a");
    assert_eq!(client.run("LOCK.EXEC k a LOCK.RENEW k a PX 600000"), Reply::Int(1));
    assert!(client.pttl("k") > 60_000);
    assert_eq!(client.run("LOCK.EXEC k a LOCK.ACQUIRE k a").fence(), fence);
    assert_eq!(client.run("LOCK.EXEC k a LOCK.ACQUIRE other a PERSIST").items()[0], Reply::bulk("a"));
    assert_eq!(holders(&mut client, "other"), ["a"]);
}

/// The last hand-off of many, all within commands of LOCK.EXEC.
#[test]
fn a_queue_is_worked_off_by_releases_within_lock_exec() {
    let server = quiet().start();
    let mut client = server.client();
    hold(&mut client, "k", "a");
    let mut waiters = line_up(&server, "k", ["b", "c", "d"]);
    let mut holder = "a";
    for (waiter, next) in waiters.iter_mut().zip(["b", "c", "d"]) {
        let line = format!("LOCK.EXEC k {holder} LOCK.RELEASE k {holder}");
        assert_eq!(client.run(&line), Reply::Int(1));
        waiter.granted(next);
        holder = next;
    }
    assert_eq!(holders(&mut client, "k"), ["d"]);
}

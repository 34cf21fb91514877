//! The effects of the inner command are replicated once, in order, as if it had been sent alone.

use super::*;
use crate::support::waiting::*;
use crate::support::{in_sync, Server};

const LINES: &[&str] = &[
    "SET x 1",
    "INCR x",
    "SADD set 1 2 3 4 5 6 7 8 9",
    "SPOP set 3",
    "SPOP set",
    "SET volatile 1 EX 1000",
    "EXPIRE x 5000",
    "GETEX x PX 700000",
    "INCRBYFLOAT float 1.5",
    "XADD stream * f v",
    "RPUSH list 1 2 3",
    "LMOVE list other LEFT RIGHT",
    "LOCK.ACQUIRE lock a PX 600000",
    "LOCK.RENEW lock a",
    "SEM.ACQUIRE sem a LIMIT 3 PX 600000",
    "MLOCK.ACQUIRE 2 m1 m2 a PX 600000",
    "LOCK.RELEASE lock a",
    "LOCK.RENEW k a PX 900000",
    "DEL x",
    "GET nothing",
];

#[track_caller]
fn assert_same(master: &Server, replica: &Server) {
    in_sync(master, replica);
    let digest = |server: &Server| server.client().run("DEBUG DIGEST");
    assert_eq!(digest(master), digest(replica));
    assert_eq!(all_locks(master), all_locks(replica));
}

#[test]
fn a_replica_and_the_append_only_file_have_the_same() {
    let mut master = plain_aof(Server::builder()).start();
    let replica = Server::builder().replica_of(&master).start();
    in_sync(&master, &replica);
    let mut client = master.client();
    client.run("LOCK.ACQUIRE k a PX 600000").fence();
    for line in LINES {
        assert!(!client.run(&format!("LOCK.EXEC k a {line}")).is_error(), "{line}");
        assert_same(&master, &replica);
    }
    let lines: Vec<String> = LINES.iter().map(|line| format!("LOCK.EXEC k a {line}")).collect();
    multi(&mut client, &lines.iter().map(String::as_str).collect::<Vec<_>>());
    assert_same(&master, &replica);
    for line in LINES {
        let mut request = vec!["EVAL", "return redis.call('LOCK.EXEC', 'k', 'a', unpack(ARGV))", "0"];
        request.extend(line.split(' '));
        assert!(!client.cmd(&request).is_error(), "{line}");
    }
    assert_same(&master, &replica);
    let digest = client.run("DEBUG DIGEST");
    assert_eq!(client.run("DEBUG LOADAOF"), Reply::ok());
    assert_eq!(client.run("DEBUG DIGEST"), digest);
    master.kill();
    master.restart();
    assert_eq!(master.client().run("DEBUG DIGEST"), digest);
}

/// The names of the commands in the file, and the argument of SELECT.
fn names(server: &Server) -> Vec<String> {
    let commands = aof(server).into_iter();
    commands
        .map(|command| String::from_utf8_lossy(&command[0]).to_uppercase())
        .filter(|name| name != "SELECT")
        .collect()
}

#[test]
fn each_effect_and_no_request_is_written_once() {
    let server = plain_aof(Server::builder()).start();
    let mut client = server.client();
    hold(&mut client, "k", "a");
    for line in ["SET x 1", "GET x", "INCR x", "LOCK.ACQUIRE other a", "LOCK.RELEASE other a"] {
        client.run(&format!("LOCK.EXEC k a {line}"));
    }
    client.run("LOCK.EXEC k b SET x 2");
    client.run("LOCK.EXEC k a LPUSH x 2");
    assert_eq!(names(&server), ["LOCK.APPLY", "SET", "INCR", "LOCK.APPLY", "DEL"]);
    multi(&mut client, &["LOCK.EXEC k a SET x 3", "SET y 1", "LOCK.EXEC k a INCR y"]);
    assert_eq!(names(&server)[5..], ["MULTI", "SET", "SET", "INCR", "EXEC"]);
    client.cmd(&["EVAL", "redis.call('LOCK.EXEC','k','a','SET','x','4') redis.call('INCR','y')", "0"]);
    assert_eq!(names(&server)[10..], ["MULTI", "SET", "INCR", "EXEC"]);
    client.run("LOCK.EXEC k a SPOP nothing");
    client.run("LOCK.EXEC k a LOCK.RELEASE k a");
    assert_eq!(names(&server)[14..], ["DEL"]);
}

/// The end of the lock and the next grant are replicated in the order in which they happened.
#[test]
fn a_hand_off_within_it_is_replicated() {
    let master = quiet().start();
    let replica = Server::builder().replica_of(&master).start();
    in_sync(&master, &replica);
    let mut client = master.client();
    for end in ["LOCK.RELEASE k a", "DEL k", "SET k v"] {
        hold(&mut client, "k", "a");
        let [mut waiter] = line_up(&master, "k", ["b"]);
        client.run(&format!("LOCK.EXEC k a {end}"));
        waiter.reply();
        assert_same(&master, &replica);
        client.run("DEL k");
    }
}

/// The check deletes an expired key; then the inner command writes.
#[test]
fn the_removal_of_an_expired_lock_comes_first() {
    let server = plain_aof(Server::builder()).start();
    let mut client = server.client();
    client.run("DEBUG SET-ACTIVE-EXPIRE 0");
    client.run("LOCK.ACQUIRE k a PX 1").fence();
    hold(&mut client, "other", "a");
    let_time_pass(std::time::Duration::from_millis(5));
    assert_not_held(&client.run("LOCK.EXEC k a SET x 1"));
    assert_eq!(client.run("LOCK.EXEC other a LOCK.ACQUIRE k b").items()[0], Reply::bulk("b"));
    let all = names(&server);
    assert_eq!(all.iter().filter(|name| *name == "LOCK.APPLY").count(), 3, "{all:?}");
    assert!(all.iter().all(|name| name != "SET"), "{all:?}");
}

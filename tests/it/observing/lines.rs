//! Lines in the server's log for events that an operator needs to see; at most one per second of each kind.

use crate::support::waiting::*;
use crate::support::{until, Reply, Server};

/// The module's log lines that contain these words.
fn lines(server: &Server, words: &str) -> Vec<String> {
    let log = server.log();
    log.lines().filter(|line| line.contains("redis-lock: ") && line.contains(words)).map(str::to_string).collect()
}

#[track_caller]
fn until_line(server: &Server, words: &str) -> String {
    until(&format!("the log has a line with {words:?}"), || !lines(server, words).is_empty());
    lines(server, words).swap_remove(0)
}

#[test]
fn the_start_and_end_of_a_grace_period_are_logged() {
    let server = Server::builder().config("lock.grace 300").start();
    until_line(&server, "lock.grace started: no new grants for 300 ms");
    until_line(&server, "lock.grace ended");
    let server = Server::start();
    server.client().run("PING");
    assert_eq!(lines(&server, "grace"), Vec::<String>::new(), "there was none");
}

#[test]
fn a_refused_deadlock_is_logged_with_its_cycle_and_its_client() {
    let server = quiet().start();
    let mut client = server.client();
    hold(&mut client, "k", "a");
    hold(&mut client, "l", "b");
    let _a = Waiter::park(&server, "LOCK.ACQUIRE l a BLOCK 0");
    client.run("LOCK.ACQUIRE k b BLOCK 0");
    let words = "request refused: DEADLOCK this request would deadlock: 'b' waits for 'a' on 'k', 'a' waits";
    let line = until_line(&server, words);
    let sender = format!("sent by user 'default' from {}, client {}", client.address(), client.id());
    assert!(line.contains(&sender), "{line}");
}

#[test]
fn a_broken_lock_is_logged_with_the_user_that_broke_it() {
    let server = quiet().start();
    let mut client = server.client();
    hold(&mut client, "k", "a");
    client.run("ACL SETUSER operator on nopass ~* +@all");
    client.run("AUTH operator x");
    client.run("LOCK.BREAK k");
    let line = until_line(&server, "lock broken by user 'operator'");
    let about = format!("from {}, client {}: owner 'a' on key 'k' in db 0", client.address(), client.id());
    assert!(line.contains(&about), "{line}");
    hold(&mut client, "k", "a");
    until("a second has passed", || {
        client.run("LOCK.ACQUIRE k a");
        client.run("EVAL return(redis.call('LOCK.BREAK','k')) 0");
        !lines(&server, "broken by a script or a module").is_empty()
    });
}

#[test]
fn an_undelivered_grant_is_logged() {
    let server = quiet().start();
    let mut client = server.client();
    hold(&mut client, "k", "a");
    let [b] = line_up(&server, "k", ["b"]);
    multi(&mut client, &["LOCK.RELEASE k a", &format!("CLIENT KILL ID {}", b.id)]);
    until_line(&server, "undelivered grant revoked: owner 'b' on key 'k' in db 0");
}

#[test]
fn reaching_a_limit_is_logged() {
    for setting in ["lock.max-waiters 1", "lock.max-waiters-per-key 1"] {
        let server = quiet().config(setting).start();
        let mut client = server.client();
        hold(&mut client, "k", "a");
        let [_b] = line_up(&server, "k", ["b"]);
        client.run("LOCK.ACQUIRE k c BLOCK 0");
        until_line(&server, &format!("{setting} reached, request refused: owner 'c' on key 'k' in db 0"));
    }
}

#[test]
fn names_are_escaped_and_not_used_as_a_format() {
    let server = quiet().start();
    let mut client = server.client();
    let key = b"%s%n\n%d\xff".to_vec();
    client.cmd(&[b"LOCK.ACQUIRE".to_vec(), key.clone(), b"%n%s\r".to_vec()]).fence();
    client.cmd(&[b"LOCK.BREAK".to_vec(), key]);
    until_line(&server, r"owner '%n%s\r' on key '%s%n\n%d\xff' in db 0");
    assert_eq!(client.run("PING"), Reply::Status("PONG".into()));
}

#[test]
fn at_most_one_line_per_second_and_kind_is_logged_with_the_number_omitted() {
    let server = quiet().start();
    let mut client = server.client();
    let start = std::time::Instant::now();
    let mut broken = 0;
    until("a line reports the omitted ones", || {
        client.run("LOCK.ACQUIRE k a").fence();
        assert_eq!(client.run("LOCK.BREAK k"), Reply::Int(1));
        broken += 1;
        !lines(&server, "similar messages suppressed").is_empty()
    });
    let all = lines(&server, "lock broken");
    assert!(all.len() as u64 <= start.elapsed().as_secs() + 2, "{all:?}");
    let last = all.last().expect("there is one");
    let omitted = last.split_once(" (").and_then(|(_, rest)| rest.split(' ').next()?.parse::<usize>().ok());
    assert_eq!(omitted, Some(broken - all.len()), "{all:?}");
}

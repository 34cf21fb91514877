//! A grant is delivered when the turn of the server is over and its client is still connected. If the server closes the
//! client in that turn, in any way, the next waiter is granted the lock at once. A delivered grant stays.

use crate::support::waiting::*;
use crate::support::{until, Builder, Client, Reply, Server};

/// Longer than the limit on output buffers below.
const TOO_MUCH: usize = 200_000;

/// A server with a user `u`; deleting it closes its connections at the end of the turn.
fn server_with_a_user() -> (Server, Client) {
    with_a_user(quiet())
}

fn with_a_user(builder: Builder) -> (Server, Client) {
    let server = builder.start();
    let mut client = server.client();
    client.run("ACL SETUSER u on nopass ~* &* +@all");
    (server, client)
}

/// A waiter on a connection of the user `u`.
#[track_caller]
fn park_as_user(server: &Server, line: &str) -> Waiter {
    let mut client = server.client();
    assert_eq!(client.run("AUTH u x"), Reply::ok());
    Waiter::park_over(client, server, line)
}

/// A lock ends and the first waiter's client is closed in one turn: the second waiter has the lock.
#[track_caller]
fn assert_the_second_has_it(server: &Server, client: &mut Client, first: Waiter, lines: &[&str]) {
    let [mut c] = line_up(server, "k", ["c"]);
    let replies = multi(client, lines);
    assert!(!replies.iter().any(Reply::is_error), "{replies:?}");
    c.granted("c");
    assert_eq!(holders(client, "k"), ["c"]);
    until_gone(client, first.id);
    client.run("LOCK.RELEASE k c");
    assert_no_waiters(server, &["k"]);
    assert_eq!(client.run("EXISTS k"), Reply::Int(0));
}

#[test]
fn a_grant_to_a_client_of_a_user_deleted_in_that_turn_passes_on() {
    for more in ["", "SESSION"] {
        let (server, mut client) = server_with_a_user();
        hold(&mut client, "k", "a");
        let b = park_as_user(&server, &format!("LOCK.ACQUIRE k b {LONG} BLOCK 0 {more}"));
        assert_the_second_has_it(&server, &mut client, b, &["LOCK.RELEASE k a", "ACL DELUSER u"]);
    }
}

/// A blocked client belongs to the main thread; later reports of I/O threads are in docs/limits.md, Known limits.
#[test]
fn it_passes_on_also_on_a_server_with_io_threads() {
    let (server, mut client) = with_a_user(quiet().config("io-threads 3"));
    hold(&mut client, "k", "a");
    let b = park_as_user(&server, "LOCK.ACQUIRE k b PX 60000 BLOCK 0");
    assert_the_second_has_it(&server, &mut client, b, &["LOCK.RELEASE k a", "ACL DELUSER u"]);
}

#[test]
fn a_grant_to_a_client_closed_before_the_lock_ends_passes_on() {
    let (server, mut client) = server_with_a_user();
    hold(&mut client, "k", "a");
    let b = park_as_user(&server, "LOCK.ACQUIRE k b PX 60000 BLOCK 0");
    assert_the_second_has_it(&server, &mut client, b, &["ACL DELUSER u", "LOCK.RELEASE k a"]);
}

#[test]
fn a_grant_to_a_killed_client_passes_on() {
    let server = quiet().start();
    let mut client = server.client();
    hold(&mut client, "k", "a");
    let [b] = line_up(&server, "k", ["b"]);
    let kill = format!("CLIENT KILL ID {}", b.id);
    assert_the_second_has_it(&server, &mut client, b, &["LOCK.RELEASE k a", &kill]);
}

/// The server notices it before the reply is given to the client: it sends the invalidation at the end of a command.
#[test]
fn a_grant_to_a_client_with_a_full_output_buffer_passes_on() {
    assert_too_long_an_output_closes("ON");
}

/// The server notices it afterwards: it sends the invalidations before it sleeps.
#[test]
fn a_grant_passes_on_if_the_output_buffer_overflows_after_its_reply() {
    assert_too_long_an_output_closes("ON BCAST PREFIX long");
}

/// The waiter's client is notified of a changed key with a name too long for it.
#[track_caller]
fn assert_too_long_an_output_closes(tracking: &str) {
    let server = quiet().config("client-output-buffer-limit normal 50000 0 0").start();
    let mut client = server.client();
    hold(&mut client, "k", "a");
    let key = format!("long{}", "x".repeat(TOO_MUCH));
    let mut b = server.client3();
    assert_eq!(b.run(&format!("CLIENT TRACKING {tracking}")), Reply::ok());
    assert!(b.cmd(&["GET", &key]).is_nil());
    let b = Waiter::park_over(b, &server, "LOCK.ACQUIRE k b PX 60000 BLOCK 0");
    assert_the_second_has_it(&server, &mut client, b, &["LOCK.RELEASE k a", &format!("SET {key} v")]);
}

/// A command that another client, woken in the same turn, had sent behind its own request runs before the server closes
/// the first client.
#[test]
fn a_grant_passes_on_though_another_command_runs_before_the_turn_is_over() {
    let (server, mut client) = server_with_a_user();
    hold(&mut client, "k", "a");
    hold(&mut client, "l", "a");
    let b = park_as_user(&server, "LOCK.ACQUIRE k b PX 60000 BLOCK 0");
    let [mut other] = line_up(&server, "l", ["other"]);
    other.client.send_line("LOCK.RELEASE l other");
    until("the server has read it", || {
        let line = client.run(&format!("CLIENT LIST ID {}", other.id));
        client_field(line.text(), "qbuf") != Some("0")
    });
    let lines = ["LOCK.RELEASE l a", "LOCK.RELEASE k a", "ACL DELUSER u"];
    assert_the_second_has_it(&server, &mut client, b, &lines);
    other.granted("other");
    assert_eq!(other.reply(), Reply::Int(1));
}

#[test]
fn a_lock_that_is_deleted_is_passed_on_too() {
    let (server, mut client) = server_with_a_user();
    hold(&mut client, "k", "a");
    let b = park_as_user(&server, "LOCK.ACQUIRE k b PX 60000 BLOCK 0");
    assert_the_second_has_it(&server, &mut client, b, &["DEL k", "ACL DELUSER u"]);
}

#[test]
fn several_keys_are_passed_on_one_by_one() {
    let (server, mut client) = server_with_a_user();
    hold(&mut client, "k", "a");
    hold(&mut client, "m", "b");
    let _b = park_as_user(&server, "MLOCK.ACQUIRE 3 k l m b PX 60000 BLOCK 0");
    let ([mut c], [mut d]) = (line_up(&server, "k", ["c"]), line_up(&server, "l", ["d"]));
    multi(&mut client, &["LOCK.RELEASE k a", "ACL DELUSER u"]);
    c.granted("c");
    d.granted("d");
    assert_eq!(holders(&mut client, "m"), ["b"], "held before, by another request");
}

/// Holds that the owner had before stay: another reply delivered them.
#[test]
fn what_its_owner_held_before_stays() {
    let (server, mut client) = server_with_a_user();
    assert!(client.run("RWLOCK.ACQUIRE k b READ PX 60000").fence() > 0);
    assert!(client.run("RWLOCK.ACQUIRE k a READ PX 60000").fence() > 0);
    let b = park_as_user(&server, "RWLOCK.ACQUIRE k b WRITE PX 60000 BLOCK 0");
    let mut c = Waiter::park(&server, "RWLOCK.ACQUIRE k c READ PX 60000 BLOCK 0");
    multi(&mut client, &["RWLOCK.RELEASE k a READ", "ACL DELUSER u"]);
    c.granted("c");
    until_gone(&mut client, b.id);
    assert_eq!(holders(&mut client, "k"), ["b", "c"]);
    assert_eq!(client.run("RWLOCK.RELEASE k b WRITE"), Reply::Int(-1));
}

/// Its owner read of the grant on another connection meanwhile: then it has the lock.
#[test]
fn an_owner_that_was_told_by_another_reply_keeps_it() {
    for told in ["LOCK.ACQUIRE k b PX 60000", "LOCK.RENEW k b", "MLOCK.RENEW 1 k b", "LOCK.HELD k b"] {
        let (server, mut client) = server_with_a_user();
        hold(&mut client, "k", "a");
        let b = park_as_user(&server, "LOCK.ACQUIRE k b PX 60000 BLOCK 0");
        let [mut c] = line_up(&server, "k", ["c"]);
        let replies = multi(&mut client, &["LOCK.RELEASE k a", told, "ACL DELUSER u"]);
        assert!(replies[1] == Reply::Int(1) || !replies[1].items().is_empty(), "{told}: {replies:?}");
        until_gone(&mut client, b.id);
        c.assert_silent_for(A_WHILE);
        assert_eq!(holders(&mut client, "k"), ["b"], "{told}");
    }
}

/// It cannot pass on while writes are paused, and a command asks for the lock meanwhile.
#[test]
fn a_lost_grant_counts_for_no_command_before_it_is_passed_on() {
    let server = quiet().start();
    let mut client = server.client();
    hold(&mut client, "k", "a");
    let [b, mut c] = line_up(&server, "k", ["b", "c"]);
    let kill = format!("CLIENT KILL ID {}", b.id);
    let replies = client.pipeline(&["MULTI", "LOCK.RELEASE k a", &kill, "EXEC", "CLIENT PAUSE 60000 WRITE"]);
    assert_eq!(replies[4], Reply::ok());
    until_gone(&mut client, b.id);
    assert!(client.run("LOCK.HELD k b").is_null());
    assert_eq!(client.run("CLIENT UNPAUSE"), Reply::ok());
    c.granted("c");
}

/// A program that takes a lock and exits has its grant delivered, and keeps the lock until the lease ends.
#[test]
fn a_client_that_goes_after_it_was_told_keeps_the_lock() {
    let (server, mut client) = server_with_a_user();
    for leave in ["by itself", "killed", "its user is deleted"] {
        hold(&mut client, "k", "a");
        client.run("ACL SETUSER u on nopass ~* &* +@all");
        let mut b = park_as_user(&server, "LOCK.ACQUIRE k b PX 60000 BLOCK 0");
        let [mut c] = line_up(&server, "k", ["c"]);
        client.send_line("LOCK.RELEASE k a");
        b.granted("b");
        let id = b.id;
        match leave {
            "by itself" => drop(b),
            "killed" => client.send_line(&format!("CLIENT KILL ID {id}")),
            _ => client.send_line("ACL DELUSER u"),
        }
        let mut observer = server.client();
        until_gone(&mut observer, id);
        assert_eq!(holders(&mut observer, "k"), ["b"], "{leave}");
        c.assert_silent();
        client = server.client();
        assert_eq!(client.run("LOCK.RELEASE k b"), Reply::Int(1));
        c.granted("c");
        client.run("LOCK.RELEASE k c");
    }
}

/// In a row, so that the end of one turn does not count for the next grant.
#[test]
fn each_grant_of_a_row_counts_by_its_own_turn() {
    let (server, mut client) = server_with_a_user();
    hold(&mut client, "k", "a");
    for _ in 0..20 {
        client.run("ACL SETUSER u on nopass ~* &* +@all");
        let gone = park_as_user(&server, "LOCK.ACQUIRE k gone PX 60000 BLOCK 0");
        let [mut b, mut c] = line_up(&server, "k", ["b", "c"]);
        multi(&mut client, &["LOCK.RELEASE k a", "ACL DELUSER u"]);
        b.granted("b");
        let id = b.id;
        drop(b);
        until_gone(&mut client, id);
        until_gone(&mut client, gone.id);
        assert_eq!(holders(&mut client, "k"), ["b"]);
        assert_eq!(client.run("LOCK.RELEASE k b"), Reply::Int(1));
        c.granted("c");
        assert_eq!(client.run("LOCK.RELEASE k c"), Reply::Int(1));
        hold(&mut client, "k", "a");
    }
    until("nobody is blocked", || server.info("clients").number("blocked_clients") == 0);
}

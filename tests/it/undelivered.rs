//! A grant is delivered when the reply is written. If the client is gone before that, the next waiter is granted the
//! lock at once. A delivered grant stays, even if the server closes the client a moment later.

use crate::support::waiting::*;
use crate::support::{Client, Reply, Server};

/// A lock ends and the first waiter's client is killed in one iteration: the second waiter gets the lock.
#[track_caller]
fn assert_the_second_has_it(server: &Server, client: &mut Client, first: Waiter, end: &str) {
    let [mut c] = line_up(server, "k", ["c"]);
    let replies = multi(client, &[end, &format!("CLIENT KILL ID {}", first.id)]);
    assert!(!replies.iter().any(Reply::is_error), "{replies:?}");
    c.granted("c");
    assert_eq!(holders(client, "k"), ["c"]);
    until_exited(client, first.id);
    client.run("LOCK.RELEASE k c");
    assert_no_waiters(server, &["k"]);
    assert_eq!(client.run("EXISTS k"), Reply::Int(0));
}

#[test]
fn a_grant_to_a_killed_client_goes_to_the_next_waiter() {
    for (more, end) in [("", "LOCK.RELEASE k a"), ("SESSION", "LOCK.RELEASE k a"), ("", "LOCK.BREAK k")] {
        let server = quiet().start();
        let mut client = server.client();
        hold(&mut client, "k", "a");
        let b = Waiter::park(&server, &format!("LOCK.ACQUIRE k b {LONG} BLOCK 0 {more}"));
        assert_the_second_has_it(&server, &mut client, b, end);
    }
}

/// A blocked client belongs to the main thread.
#[test]
fn it_goes_to_the_next_waiter_with_io_threads() {
    let server = quiet().config("io-threads 3").start();
    let mut client = server.client();
    hold(&mut client, "k", "a");
    let [b] = line_up(&server, "k", ["b"]);
    assert_the_second_has_it(&server, &mut client, b, "LOCK.RELEASE k a");
}

#[test]
fn multiple_keys_are_handed_off_one_by_one() {
    let server = quiet().start();
    let mut client = server.client();
    hold(&mut client, "k", "a");
    hold(&mut client, "m", "b");
    let b = Waiter::park(&server, "MLOCK.ACQUIRE 3 k l m b PX 60000 BLOCK 0");
    let ([mut c], [mut d]) = (line_up(&server, "k", ["c"]), line_up(&server, "l", ["d"]));
    multi(&mut client, &["LOCK.RELEASE k a", &format!("CLIENT KILL ID {}", b.id)]);
    c.granted("c");
    d.granted("d");
    assert_eq!(holders(&mut client, "m"), ["b"], "held before, by another request");
}

/// Holds that the owner already had stay: another reply delivered them.
#[test]
fn earlier_holds_of_its_owner_stay() {
    let server = quiet().start();
    let mut client = server.client();
    assert!(client.run("RWLOCK.ACQUIRE k b READ PX 60000").fence() > 0);
    assert!(client.run("RWLOCK.ACQUIRE k a READ PX 60000").fence() > 0);
    let b = Waiter::park(&server, "RWLOCK.ACQUIRE k b WRITE PX 60000 BLOCK 0");
    let mut c = Waiter::park(&server, "RWLOCK.ACQUIRE k c READ PX 60000 BLOCK 0");
    multi(&mut client, &["RWLOCK.RELEASE k a READ", &format!("CLIENT KILL ID {}", b.id)]);
    c.granted("c");
    until_exited(&mut client, b.id);
    assert_eq!(holders(&mut client, "k"), ["b", "c"]);
    assert_eq!(client.run("RWLOCK.RELEASE k b WRITE"), Reply::Int(-1));
}

/// Its owner has seen the grant on another connection in the meantime, so it keeps the lock.
#[test]
fn an_owner_that_learned_of_the_grant_from_another_reply_keeps_it() {
    for confirmation in ["LOCK.ACQUIRE k b PX 60000", "LOCK.RENEW k b", "MLOCK.RENEW 1 k b", "LOCK.HELD k b"] {
        let server = quiet().start();
        let mut client = server.client();
        hold(&mut client, "k", "a");
        let [b, mut c] = line_up(&server, "k", ["b", "c"]);
        let replies = multi(&mut client, &["LOCK.RELEASE k a", confirmation, &format!("CLIENT KILL ID {}", b.id)]);
        assert!(replies[1] == Reply::Int(1) || !replies[1].items().is_empty(), "{confirmation}: {replies:?}");
        until_exited(&mut client, b.id);
        c.assert_silent_for(A_WHILE);
        assert_eq!(holders(&mut client, "k"), ["b"], "{confirmation}");
    }
}

/// It cannot be handed off while writes are paused, and a command requests the lock during the pause.
#[test]
fn an_undelivered_grant_counts_for_no_command_before_its_hand_off() {
    let server = quiet().start();
    let mut client = server.client();
    hold(&mut client, "k", "a");
    let [b, mut c] = line_up(&server, "k", ["b", "c"]);
    let kill = format!("CLIENT KILL ID {}", b.id);
    let replies = client.pipeline(&["MULTI", "LOCK.RELEASE k a", &kill, "EXEC", "CLIENT PAUSE 60000 WRITE"]);
    assert_eq!(replies[4], Reply::ok());
    until_exited(&mut client, b.id);
    assert!(client.run("LOCK.HELD k b").is_null());
    assert_eq!(client.run("CLIENT UNPAUSE"), Reply::ok());
    c.granted("c");
}

/// The server marks the client of a deleted user, writes its reply, and closes it at the end of the iteration.
#[test]
fn an_unbound_grant_to_a_client_closed_in_the_same_iteration_stays() {
    for (more, stays) in [("", true), ("SESSION", false)] {
        let server = quiet().start();
        let mut client = server.client();
        client.run("ACL SETUSER u on nopass ~* &* +@all");
        hold(&mut client, "k", "a");
        let mut b = server.client();
        assert_eq!(b.run("AUTH u x"), Reply::ok());
        let b = Waiter::park_over(b, &server, &format!("LOCK.ACQUIRE k b {LONG} BLOCK 0 {more}"));
        let [mut c] = line_up(&server, "k", ["c"]);
        multi(&mut client, &["LOCK.RELEASE k a", "ACL DELUSER u"]);
        until_exited(&mut client, b.id);
        if stays {
            c.assert_silent_for(A_WHILE);
            assert_eq!(holders(&mut client, "k"), ["b"]);
            assert_eq!(client.run("LOCK.RELEASE k b"), Reply::Int(1));
        }
        c.granted("c");
    }
}

/// A program that acquires a lock and exits has its grant delivered, so the lock stays held until the lease expires.
#[test]
fn a_client_that_disconnects_after_delivery_keeps_the_lock() {
    let server = quiet().start();
    let mut client = server.client();
    for is_killed in [false, true] {
        hold(&mut client, "k", "a");
        let [mut b, mut c] = line_up(&server, "k", ["b", "c"]);
        client.send_line("LOCK.RELEASE k a");
        b.granted("b");
        let id = b.id;
        if is_killed {
            client.send_line(&format!("CLIENT KILL ID {id}"));
        } else {
            drop(b);
        }
        let mut observer = server.client();
        until_exited(&mut observer, id);
        assert_eq!(holders(&mut observer, "k"), ["b"], "killed: {is_killed}");
        c.assert_silent();
        client = server.client();
        assert_eq!(client.run("LOCK.RELEASE k b"), Reply::Int(1));
        c.granted("c");
        client.run("LOCK.RELEASE k c");
    }
}

//! Waiters that leave because of the server: CLIENT UNBLOCK in the iteration of a cancellation, a deleted user, a
//! demotion, a shutdown. Each gets one reply, and nothing of it is left.

use crate::support::waiting::*;
use crate::support::{Client, Reply, Server, LIMIT};
use std::io::ErrorKind;

/// `b`, the head of the queue, leaves by `leave`, which also checks its reply, if any. The waiters after it move up and
/// are granted.
#[track_caller]
fn assert_the_next_moves_up(leave: impl FnOnce(&mut Client, Waiter) -> Option<Waiter>) {
    let server = quiet().start();
    let mut client = server.client();
    hold(&mut client, "k", "a");
    let [b, mut c, mut d] = line_up(&server, "k", ["b", "c", "d"]);
    let last_reply = leave(&mut client, b);
    until_queue(&mut client, "k", &["c", "d"]);
    server.wait_blocked(2);
    if let Some(mut last_reply) = last_reply {
        assert_eq!(last_reply.client.run("PING"), Reply::Status("PONG".into()), "it can continue");
    }
    assert_eq!(holders(&mut client, "k"), ["a"], "no request is granted it by that");
    client.run("LOCK.RELEASE k a");
    c.granted("c");
    d.assert_silent();
    client.run("LOCK.RELEASE k c");
    d.granted("d");
    client.run("LOCK.RELEASE k d");
    assert_no_waiters(&server, &["k"]);
    assert_eq!(client.run("EXISTS k"), Reply::Int(0));
}

/// After the cancellation the server may or may not find the client still blocked, and replies accordingly. The client
/// gets one reply in either case.
#[test]
fn a_cancel_with_a_client_unblock_error_in_one_step_replies_once() {
    assert_the_next_moves_up(|client, mut b| {
        let unblock = format!("CLIENT UNBLOCK {} ERROR", b.id);
        let replies = multi(client, &["LOCK.CANCEL k b", "LOCK.CANCEL k b", &unblock]);
        assert_eq!(replies[..2], [Reply::Int(1), Reply::Int(0)]);
        let last_reply = match replies[2].int() {
            0 => "UNBLOCKED cancelled",
            _ => "UNBLOCKED client unblocked via CLIENT UNBLOCK",
        };
        assert_eq!(b.only_reply(), Reply::Error(last_reply.into()));
        Some(b)
    });
}

/// A server bug: a client that is unblocked and timed out in one iteration gets no reply (docs/limits.md, Server bugs).
/// It must be able to continue, and must never get two.
#[test]
fn a_cancel_with_a_client_unblock_in_one_step_replies_at_most_once() {
    assert_the_next_moves_up(|client, mut b| {
        let unblock = format!("CLIENT UNBLOCK {} TIMEOUT", b.id);
        let was_blocked = multi(client, &["LOCK.CANCEL k b", &unblock])[1].int() == 1;
        b.client.send_line("PING");
        let mut reply = b.reply();
        if reply != Reply::Status("PONG".into()) {
            assert_eq!(reply, Reply::Error("UNBLOCKED cancelled".into()));
            reply = b.reply();
        } else {
            assert!(was_blocked, "the reply was lost without a server bug");
        }
        assert_eq!(reply, Reply::Status("PONG".into()));
        Some(b)
    });
}

#[test]
fn a_client_of_a_deleted_user_leaves_the_queue() {
    let server = quiet().start();
    let mut client = server.client();
    client.run("ACL SETUSER u on nopass ~* &* +@all");
    hold(&mut client, "k", "a");
    let mut b = server.client();
    assert_eq!(b.run("AUTH u x"), Reply::ok());
    let b = Waiter::park_over(b, &server, "LOCK.ACQUIRE k b BLOCK 0");
    let [mut c] = line_up(&server, "k", ["c"]);
    assert_eq!(client.run("ACL DELUSER u"), Reply::Int(1));
    until_queue(&mut client, "k", &["c"]);
    client.run("LOCK.RELEASE k a");
    c.granted("c");
    drop(b);
}

#[test]
fn a_hundred_waiters_killed_at_once_leave_nothing() {
    let server = quiet().start();
    let mut client = server.client();
    hold(&mut client, "k", "a");
    let mut waiters: Vec<Client> = (0..100).map(|_| server.client()).collect();
    for (n, waiter) in waiters.iter_mut().enumerate() {
        waiter.send_line(&format!("LOCK.ACQUIRE k owner-{n} BLOCK 0"));
    }
    server.wait_blocked(100);
    // Kills only the waiters, not this connection.
    assert!(client.run("CLIENT KILL TYPE normal SKIPME yes").int() >= 100);
    assert_no_waiters(&server, &["k"]);
    assert_eq!(client.run("LOCK.RELEASE k a"), Reply::Int(1));
    assert_eq!(client.run("EXISTS k"), Reply::Int(0));
}

mod server_leaves {
    use super::*;

    #[test]
    fn waiters_from_before_a_demotion_do_not_wait_after_a_promotion() {
        let server = Server::start();
        let master = Server::start();
        let mut client = server.client();
        hold(&mut client, "k", "a");
        let waiters = line_up(&server, "k", ["b", "c"]);
        client.run(&format!("REPLICAOF 127.0.0.1 {}", master.port()));
        server.wait_blocked(0);
        drop(waiters);
        crate::support::in_sync(&master, &server);
        assert_eq!(client.run("REPLICAOF NO ONE"), Reply::ok());
        assert_no_waiters(&server, &["k"]);
        assert!(client.run("LOCK.ACQUIRE k z PX 60000").fence() > 0);
        let [mut y] = line_up(&server, "k", ["y"]);
        client.run("LOCK.RELEASE k z");
        y.granted("y");
    }

    #[test]
    fn a_server_with_waiters_shuts_down_cleanly() {
        let mut server = plain_aof(Server::builder()).start();
        let mut client = server.client();
        let fence = hold(&mut client, "k", "a");
        let mut waiters = line_up(&server, "k", ["b", "c"]);
        server.stop();
        for waiter in &mut waiters {
            // An error or a closed connection, but never a grant and never silence.
            match waiter.client.try_read(LIMIT) {
                Ok(reply) => assert!(reply.is_error(), "{reply:?}"),
                Err(end) => assert_ne!(end.kind(), ErrorKind::TimedOut),
            }
        }
        assert!(!server.log().contains("REDIS BUG REPORT"), "{}", server.log());
        server.restart();
        let mut client = server.client();
        assert_eq!(client.run("LOCK.HELD k a").items()[0], Reply::Int(fence), "held as before");
        assert_no_waiters(&server, &["k"]);
    }
}

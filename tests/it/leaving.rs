//! How a waiter leaves: its client goes away or is killed, CLIENT UNBLOCK, LOCK.CANCEL, the server's demotion or
//! shutdown. It is told once, nothing of it stays behind, and those behind it move up.

use crate::support::waiting::*;
use crate::support::{until, Client, Reply, Server, LIMIT};
use std::io::ErrorKind;
use std::time::Duration;

/// `b`, the head of the queue, goes by `leave`; what it is told, if it is still there, is for `leave` to check.
/// Whoever waits behind it moves up and is served.
#[track_caller]
fn assert_the_next_moves_up(leave: impl FnOnce(&mut Client, Waiter) -> Option<Waiter>) {
    let server = quiet().start();
    let mut client = server.client();
    hold(&mut client, "k", "a");
    let [b, mut c, mut d] = line_up(&server, "k", ["b", "c", "d"]);
    let told = leave(&mut client, b);
    until_queue(&mut client, "k", &["c", "d"]);
    server.wait_blocked(2);
    if let Some(mut told) = told {
        assert_eq!(told.client.run("PING"), Reply::Status("PONG".into()), "it can go on");
    }
    assert_eq!(holders(&mut client, "k"), ["a"], "nobody is granted it by that");
    client.run("LOCK.RELEASE k a");
    c.granted("c");
    d.assert_silent();
    client.run("LOCK.RELEASE k c");
    d.granted("d");
    client.run("LOCK.RELEASE k d");
    assert_nobody_waits(&server, &["k"]);
    assert_eq!(client.run("EXISTS k"), Reply::Int(0));
}

#[test]
fn a_client_that_disconnects_leaves_the_queue() {
    assert_the_next_moves_up(|_, b| {
        drop(b);
        None
    });
}

#[test]
fn a_client_that_is_killed_leaves_the_queue() {
    assert_the_next_moves_up(|client, mut b| {
        assert_eq!(client.run(&format!("CLIENT KILL ID {}", b.id)), Reply::Int(1));
        let mut watch = b.client.stopwatch();
        assert!(b.client.try_read_by(&mut watch, SOON).is_err_and(|end| end.kind() != ErrorKind::TimedOut));
        None
    });
}

#[test]
fn client_unblock_answers_nil() {
    assert_the_next_moves_up(|client, mut b| {
        assert_eq!(client.run(&format!("CLIENT UNBLOCK {}", b.id)), Reply::Int(1));
        assert_eq!(b.only_reply(), Reply::NullArray);
        assert_eq!(client.run(&format!("CLIENT UNBLOCK {} TIMEOUT", b.id)), Reply::Int(0), "not twice");
        Some(b)
    });
}

#[test]
fn client_unblock_error_answers_unblocked() {
    assert_the_next_moves_up(|client, mut b| {
        assert_eq!(client.run(&format!("CLIENT UNBLOCK {} ERROR", b.id)), Reply::Int(1));
        let reply = b.only_reply();
        assert!(reply.error().starts_with("UNBLOCKED "), "{reply:?}");
        assert_eq!(client.run(&format!("CLIENT UNBLOCK {} ERROR", b.id)), Reply::Int(0), "not twice");
        Some(b)
    });
}

#[test]
fn lock_cancel_answers_unblocked_cancelled() {
    assert_the_next_moves_up(|client, mut b| {
        assert_eq!(client.run("LOCK.CANCEL k b"), Reply::Int(1));
        assert_eq!(b.only_reply(), Reply::Error("UNBLOCKED cancelled".into()));
        assert_eq!(client.run("LOCK.CANCEL k b"), Reply::Int(0), "not twice");
        Some(b)
    });
}

/// Behind the cancellation the server may or may not find the client still blocked, and says which; it has one answer
/// in either case.
#[test]
fn a_cancel_and_a_client_unblock_with_an_error_in_one_step_answer_once() {
    assert_the_next_moves_up(|client, mut b| {
        let unblock = format!("CLIENT UNBLOCK {} ERROR", b.id);
        let replies = multi(client, &["LOCK.CANCEL k b", "LOCK.CANCEL k b", &unblock]);
        assert_eq!(replies[..2], [Reply::Int(1), Reply::Int(0)]);
        let told = match replies[2].int() {
            0 => "UNBLOCKED cancelled",
            _ => "UNBLOCKED client unblocked via CLIENT UNBLOCK",
        };
        assert_eq!(b.only_reply(), Reply::Error(told.into()));
        Some(b)
    });
}

/// A bug of the servers: a client that is unblocked and timed out in one turn gets no answer (README, "Known limits").
/// It must be able to go on, and must never have two.
#[test]
fn a_cancel_and_a_client_unblock_in_one_step_answer_at_most_once() {
    assert_the_next_moves_up(|client, mut b| {
        let unblock = format!("CLIENT UNBLOCK {} TIMEOUT", b.id);
        let was_blocked = multi(client, &["LOCK.CANCEL k b", &unblock])[1].int() == 1;
        b.client.send_line("PING");
        let mut reply = b.reply();
        if reply != Reply::Status("PONG".into()) {
            assert_eq!(reply, Reply::Error("UNBLOCKED cancelled".into()));
            reply = b.reply();
        } else {
            assert!(was_blocked, "without any help of the server the answer was lost");
        }
        assert_eq!(reply, Reply::Status("PONG".into()));
        Some(b)
    });
}

#[test]
fn a_cancel_and_the_end_of_its_client_in_one_step_do_no_harm() {
    assert_the_next_moves_up(|client, b| {
        let kill = format!("CLIENT KILL ID {}", b.id);
        assert_eq!(multi(client, &["LOCK.CANCEL k b", &kill]), [Reply::Int(1), Reply::Int(1)]);
        None
    });
}

#[test]
fn a_client_whose_user_is_deleted_leaves_the_queue() {
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
fn the_queue_keeps_its_order_when_waiters_leave_from_its_middle() {
    let server = quiet().start();
    let mut client = server.client();
    hold(&mut client, "k", "a");
    let [mut b, mut c, d, mut e, f, mut g] = line_up(&server, "k", ["b", "c", "d", "e", "f", "g"]);
    drop(d);
    until_queue(&mut client, "k", &["b", "c", "e", "f", "g"]);
    client.run("LOCK.CANCEL k c");
    assert!(c.reply().is_error());
    client.run(&format!("CLIENT KILL ID {}", f.id));
    until_queue(&mut client, "k", &["b", "e", "g"]);
    for (waiter, owner, before) in [(&mut b, "b", "a"), (&mut e, "e", "b"), (&mut g, "g", "e")] {
        client.run(&format!("LOCK.RELEASE k {before}"));
        waiter.granted(owner);
    }
    client.run("LOCK.RELEASE k g");
    assert_nobody_waits(&server, &["k"]);
}

#[test]
fn a_hundred_waiters_that_are_killed_at_once_leave_nothing() {
    let server = quiet().start();
    let mut client = server.client();
    hold(&mut client, "k", "a");
    let mut waiters: Vec<Client> = (0..100).map(|_| server.client()).collect();
    for (n, waiter) in waiters.iter_mut().enumerate() {
        waiter.send_line(&format!("LOCK.ACQUIRE k owner-{n} BLOCK 0"));
    }
    server.wait_blocked(100);
    // Only those that wait: this connection speaks for the others.
    assert!(client.run("CLIENT KILL TYPE normal SKIPME yes").int() >= 100);
    assert_nobody_waits(&server, &["k"]);
    assert_eq!(client.run("LOCK.RELEASE k a"), Reply::Int(1));
    assert_eq!(client.run("EXISTS k"), Reply::Int(0));
}

#[test]
fn a_waiter_whose_lock_ends_after_it_left_is_not_granted_it() {
    let server = quiet().start();
    let mut client = server.client();
    hold(&mut client, "k", "a");
    let [b] = line_up(&server, "k", ["b"]);
    drop(b);
    until_queue(&mut client, "k", &[]);
    client.run("PEXPIRE k 30");
    until("the lease has ended", || client.run("EXISTS k") == Reply::Int(0));
    let_pass(Duration::from_millis(50));
    assert_eq!(client.run("EXISTS k"), Reply::Int(0));
    assert!(client.run("LOCK.INFO k").is_nil());
}

mod cancel {
    use super::*;

    #[test]
    fn it_cancels_who_waits_and_nobody_else() {
        let server = quiet().start();
        let mut client = server.client();
        hold(&mut client, "k", "a");
        hold(&mut client, "k2", "a");
        let [mut b] = line_up(&server, "k", ["b"]);
        let [mut b2] = line_up(&server, "k2", ["b"]);
        assert_eq!(client.run("LOCK.CANCEL k a"), Reply::Int(0), "a holds it and does not wait");
        assert_eq!(client.run("LOCK.CANCEL k z"), Reply::Int(0));
        assert_eq!(client.run("LOCK.CANCEL nothing b"), Reply::Int(0));
        b.assert_silent();
        assert_eq!(client.run("LOCK.CANCEL k2 b"), Reply::Int(1));
        assert!(b2.reply().is_error());
        b.assert_silent();
        assert_eq!(holders(&mut client, "k2"), ["a"]);
        assert_eq!(queue(&mut client, "k"), ["b"]);
    }

    #[test]
    fn it_works_in_a_transaction_and_a_script() {
        let server = quiet().start();
        let mut client = server.client();
        hold(&mut client, "k", "a");
        let [mut b, mut c] = line_up(&server, "k", ["b", "c"]);
        assert_eq!(multi(&mut client, &["LOCK.CANCEL k b"]), [Reply::Int(1)]);
        assert!(b.only_reply().is_error());
        let script = "return redis.call('LOCK.CANCEL', KEYS[1], 'c')";
        assert_eq!(client.cmd(&["EVAL", script, "1", "k"]), Reply::Int(1));
        assert!(c.only_reply().is_error());
    }

    #[test]
    fn who_was_cancelled_keeps_no_place() {
        let server = quiet().start();
        let mut client = server.client();
        client.run("CONFIG SET lock.keep-place 60000");
        hold(&mut client, "k", "a");
        let [mut b, _c] = line_up(&server, "k", ["b", "c"]);
        client.run("LOCK.CANCEL k b");
        b.reply();
        let [_b] = line_up(&server, "k", ["b"]);
        assert_eq!(queue(&mut client, "k"), ["c", "b"]);
    }

    #[test]
    fn keys_of_another_type_are_errors() {
        let server = quiet().start();
        let mut client = server.client();
        client.run("SET s v");
        assert!(client.run("LOCK.CANCEL s b").error().starts_with("WRONGTYPE "));
    }
}

mod server_goes {
    use super::*;

    #[test]
    fn what_waited_before_a_demotion_does_not_wait_after_a_promotion() {
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
        assert_nobody_waits(&server, &["k"]);
        assert!(client.run("LOCK.ACQUIRE k z PX 60000").fence() > 0);
        let [mut y] = line_up(&server, "k", ["y"]);
        client.run("LOCK.RELEASE k z");
        y.granted("y");
    }

    #[test]
    fn a_server_with_waiters_shuts_down_in_good_order() {
        let mut server = plain_aof(Server::builder()).start();
        let mut client = server.client();
        let fence = hold(&mut client, "k", "a");
        let mut waiters = line_up(&server, "k", ["b", "c"]);
        server.stop();
        for waiter in &mut waiters {
            // An error or the end of the connection, never a grant and never silence.
            match waiter.client.try_read(LIMIT) {
                Ok(reply) => assert!(reply.is_error(), "{reply:?}"),
                Err(end) => assert_ne!(end.kind(), ErrorKind::TimedOut),
            }
        }
        assert!(!server.log().contains("REDIS BUG REPORT"), "{}", server.log());
        server.restart();
        let mut client = server.client();
        assert_eq!(client.run("LOCK.HELD k a").items()[0], Reply::Int(fence), "held as before");
        assert_nobody_waits(&server, &["k"]);
    }
}

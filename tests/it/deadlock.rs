//! A request that would close a cycle is refused with an error; other requests are not affected.

use crate::support::waiting::*;
use crate::support::{until, Client, Reply};
use std::time::Duration;

/// The request is refused with an error that names `owners`, is not queued for `key`, and the client may go on.
#[track_caller]
fn assert_deadlock(client: &mut Client, line: &str, owners: &[&str]) {
    // Behind the number of keys, if there is one.
    let key = line.split(' ').skip(1).find(|word| word.parse::<u32>().is_err()).expect("a key");
    let before = queue(client, key);
    let reply = client.run(line);
    let error = reply.error();
    assert!(error.starts_with("DEADLOCK "), "{error}");
    for owner in owners {
        assert!(error.contains(&format!("'{owner}'")), "{owner} is part of the deadlock: {error}");
    }
    assert_eq!(queue(client, key), before, "it was not queued");
}

#[test]
fn a_deadlock_of_three_is_refused_and_named() {
    let server = quiet().start();
    let mut client = server.client();
    for (key, owner) in [("x", "alice"), ("y", "bob"), ("z", "carol")] {
        hold(&mut client, key, owner);
    }
    let [mut alice] = line_up(&server, "y", ["alice"]);
    let [mut bob] = line_up(&server, "z", ["bob"]);
    assert_deadlock(&mut client, "LOCK.ACQUIRE x carol BLOCK 0", &["alice", "bob", "carol"]);
    alice.assert_silent();
    client.run("LOCK.RELEASE z carol");
    bob.granted("bob");
    client.run("LOCK.RELEASE y bob");
    alice.granted("alice");
}

/// The error of a refused request does not tell a user of keys that it may not read, nor of their holders or waiters.
#[test]
fn keys_that_the_caller_may_not_read_are_not_named_nor_their_owners() {
    let server = quiet().start();
    let mut client = server.client();
    for (key, owner) in [("x", "alice"), ("hidden:y", "bob"), ("hidden:z", "carol")] {
        hold(&mut client, key, owner);
    }
    let [_alice] = line_up(&server, "hidden:y", ["alice"]);
    let [_bob] = line_up(&server, "hidden:z", ["bob"]);
    for (patterns, expected) in [
        ("~x", "'carol' waits for 'alice' on 'x', and 2 on keys that this user may not read"),
        ("~x %W~hidden:y", "'carol' waits for 'alice' on 'x', and 2 on keys that this user may not read"),
        (
            "~x %R~hidden:z",
            "'carol' waits for 'alice' on 'x', 'bob' waits for 'carol' on 'hidden:z', \
             and 1 on keys that this user may not read",
        ),
        (
            "~x %R~hidden:*",
            "'carol' waits for 'alice' on 'x', 'alice' waits for 'bob' on 'hidden:y', \
             'bob' waits for 'carol' on 'hidden:z'",
        ),
    ] {
        assert_eq!(client.run(&format!("ACL SETUSER worker reset on nopass +lock.acquire {patterns}")), Reply::ok());
        let mut worker = server.client();
        worker.run("AUTH worker any");
        let expected = Reply::Error(format!("DEADLOCK waiting would never end: {expected}"));
        assert_eq!(worker.run("LOCK.ACQUIRE x carol BLOCK 0"), expected, "{patterns}");
    }
}

#[test]
fn the_waiters_ahead_are_part_of_deadlocks_too() {
    let server = quiet().start();
    let mut client = server.client();
    hold(&mut client, "k", "holder");
    hold(&mut client, "m", "second");
    let [mut first] = line_up(&server, "k", ["first"]);
    let [mut second] = line_up(&server, "k", ["second"]);
    // "second" comes after "first" on k, so "first" must not wait for "second" on m.
    assert_deadlock(&mut client, "LOCK.ACQUIRE m first BLOCK 0", &["first", "second"]);
    client.run("LOCK.RELEASE k holder");
    first.granted("first");
    client.run("LOCK.RELEASE k first");
    second.granted("second");
}

#[test]
fn a_long_cycle_is_found() {
    let server = quiet().start();
    let mut client = server.client();
    let owners: Vec<String> = (0..30).map(|n| format!("owner-{n}.")).collect();
    for (n, owner) in owners.iter().enumerate() {
        hold(&mut client, &format!("k{n}"), owner);
    }
    let waiters: Vec<[Waiter; 1]> =
        (0..29).map(|n| line_up(&server, &format!("k{}", n + 1), [owners[n].as_str()])).collect();
    assert_deadlock(&mut client, "LOCK.ACQUIRE k0 owner-29. BLOCK 0", &["owner-29."]);
    assert_eq!(server.blocked_clients(), waiters.len() as i64);
}

#[test]
fn a_chain_is_no_deadlock() {
    let server = quiet().start();
    let mut client = server.client();
    for (key, owner) in [("x", "alice"), ("y", "bob"), ("z", "carol")] {
        hold(&mut client, key, owner);
    }
    let [mut alice] = line_up(&server, "y", ["alice"]);
    let [mut bob] = line_up(&server, "z", ["bob"]);
    let [mut dora] = line_up(&server, "x", ["dora"]);
    for waiter in [&mut alice, &mut bob, &mut dora] {
        waiter.assert_silent();
    }
}

#[test]
fn a_retry_of_a_holder_or_a_waiter_closes_no_cycle() {
    let server = quiet().start();
    let mut client = server.client();
    let fence = hold(&mut client, "k", "a");
    let [mut older] = line_up(&server, "k", ["b"]);
    assert_eq!(client.run("LOCK.ACQUIRE k a BLOCK 0").fence(), fence);
    let [mut newer] = line_up(&server, "k", ["b"]);
    assert!(older.reply().error().starts_with("UNBLOCKED superseded"));
    newer.assert_silent();
}

#[test]
fn without_block_a_deadlock_is_only_a_refusal() {
    let server = quiet().start();
    let mut client = server.client();
    hold(&mut client, "x", "alice");
    hold(&mut client, "y", "bob");
    let [_alice] = line_up(&server, "y", ["alice"]);
    assert_eq!(client.run("LOCK.ACQUIRE x bob"), Reply::NullArray);
    assert_eq!(multi(&mut client, &["LOCK.ACQUIRE x bob BLOCK 0"]), [Reply::NullArray]);
}

#[test]
fn a_wait_without_blocking_is_part_of_deadlocks() {
    let server = quiet().start();
    let mut client = server.client();
    hold(&mut client, "x", "alice");
    hold(&mut client, "y", "bob");
    assert_eq!(client.run("LOCK.ACQUIRE y alice BLOCK 0 NOTIFY ch").items()[1], Reply::Int(0));
    assert_deadlock(&mut client, "LOCK.ACQUIRE x bob BLOCK 0", &["alice", "bob"]);
    assert_deadlock(&mut client, "LOCK.ACQUIRE x bob BLOCK 0 NOTIFY ch", &["alice", "bob"]);
}

#[test]
fn a_request_that_has_left_closes_no_cycle() {
    let server = quiet().start();
    let mut client = server.client();
    client.run("CONFIG SET lock.keep-place 60000");
    hold(&mut client, "x", "alice");
    hold(&mut client, "y", "bob");
    assert_eq!(client.run("LOCK.ACQUIRE y alice BLOCK 1"), Reply::NullArray);
    let [mut bob] = line_up(&server, "x", ["bob"]);
    bob.assert_silent();
    // Alice has kept its place, but coming back would close the cycle now.
    assert_deadlock(&mut client, "LOCK.ACQUIRE y alice BLOCK 0", &["alice", "bob"]);
}

#[test]
fn a_deadlock_that_was_broken_up_is_none_any_more() {
    let server = quiet().start();
    let mut client = server.client();
    hold(&mut client, "x", "alice");
    hold(&mut client, "y", "bob");
    let [_alice] = line_up(&server, "y", ["alice"]);
    assert_deadlock(&mut client, "LOCK.ACQUIRE x bob BLOCK 0", &["alice", "bob"]);
    client.run("LOCK.CANCEL y alice");
    let [mut bob] = line_up(&server, "x", ["bob"]);
    client.run("LOCK.RELEASE x alice");
    bob.granted("bob");
}

#[test]
fn an_owner_is_one_line_of_execution_in_one_database_only() {
    let server = quiet().start();
    let mut zero = server.client();
    let mut one = server.client();
    one.run("SELECT 1");
    hold(&mut zero, "x", "alice");
    hold(&mut one, "y", "bob");
    let mut in_one = server.client();
    in_one.run("SELECT 1");
    let mut alice = Waiter::park_over(in_one, &server, "LOCK.ACQUIRE y alice BLOCK 0");
    let [mut bob] = line_up(&server, "x", ["bob"]);
    alice.assert_silent();
    bob.assert_silent_for(Duration::from_millis(50));
}

#[test]
fn names_in_the_error_are_quoted_and_cut() {
    let server = quiet().start();
    let mut client = server.client();
    let long = "x".repeat(1024);
    let hostile = "a\r\n+OK\r\n\0\"%s";
    let acquire =
        |client: &mut Client, key: &str, owner: &str| client.cmd(&["LOCK.ACQUIRE", key, owner, "PX", "60000"]);
    acquire(&mut client, "x", &long).fence();
    acquire(&mut client, "y", hostile).fence();
    let mut waiter = server.client();
    waiter.cmd(&["CLIENT", "SETNAME", "waiter"]);
    waiter.send(&["LOCK.ACQUIRE", "y", &long, "BLOCK", "0"]);
    server.wait_blocked(1);

    let reply = client.cmd(&["LOCK.ACQUIRE", "x", hostile, "BLOCK", "0"]);
    let error = reply.error();
    assert!(error.starts_with("DEADLOCK "), "{error}");
    assert!(error.len() < 800, "{} bytes", error.len());
    assert!(error.contains("xxxx"), "{error}");
    assert_eq!(client.run("PING"), Reply::Status("PONG".into()), "one reply, on one line");
}

#[test]
fn among_a_thousand_waiters_a_deadlock_is_found_and_a_chain_is_not_taken_for_one() {
    let server = quiet().start();
    let mut client = server.client();
    hold(&mut client, "k", "holder");
    hold(&mut client, "x", "alice");
    for n in 0..1000 {
        assert_eq!(client.run(&format!("LOCK.ACQUIRE k owner-{n} BLOCK 0 NOTIFY ch")).items()[1], Reply::Int(0));
    }
    let [_alice] = line_up(&server, "k", ["alice"]);
    assert_deadlock(&mut client, "LOCK.ACQUIRE x owner-500 BLOCK 0", &["alice", "owner-500"]);
    assert_deadlock(&mut client, "LOCK.ACQUIRE x holder BLOCK 0", &["alice", "holder"]);
    let [mut free] = line_up(&server, "x", ["nobody-else"]);
    free.assert_silent();
}

mod each_family {
    use super::*;
    use crate::support::families::{each_way, wait_for, WAYS};

    #[test]
    fn a_deadlock_over_any_two_families_is_refused_and_affects_no_other_request() {
        let server = quiet().start();
        let mut client = server.client();
        for one in WAYS {
            for other in WAYS {
                one.hold(&mut client, "x", "alice");
                other.hold(&mut client, "y", "bob");
                let mut alice = wait_for(other, &server, "y", "alice");
                assert_deadlock(&mut client, &format!("{} BLOCK 0", one.acquire("x", "bob")), &["alice", "bob"]);
                assert!(client.run(&one.acquire("x", "bob")).is_nil(), "without BLOCK it is only a refusal");
                assert_eq!(queue(&mut client, "x"), [""; 0], "it was not queued: {one:?}, {other:?}");
                alice.assert_silent();
                assert_eq!(
                    (holders(&mut client, "x"), holders(&mut client, "y")),
                    (vec!["alice".into()], vec!["bob".into()])
                );
                other.give_back(&mut client, "y", "bob");
                alice.granted("alice");
                client.run("FLUSHALL");
            }
        }
    }

    #[test]
    fn a_deadlock_through_all_families_is_found_and_named() {
        let server = quiet().start();
        let mut client = server.client();
        let owners = ["alice", "bob", "carol", "dora", "eve"];
        for (n, way) in WAYS.iter().enumerate() {
            way.hold(&mut client, &format!("k{n}"), owners[n]);
        }
        let _waiters: Vec<Waiter> =
            (0..4).map(|n| wait_for(WAYS[n + 1], &server, &format!("k{}", n + 1), owners[n])).collect();
        assert_deadlock(&mut client, &format!("{} BLOCK 0", WAYS[0].acquire("k0", "eve")), &owners);
    }

    #[test]
    fn a_reader_and_a_waiting_writer_that_wait_for_each_other_are_a_deadlock() {
        let server = quiet().start();
        let mut client = server.client();
        client.run("RWLOCK.ACQUIRE k reader READ PX 60000");
        client.run("RWLOCK.ACQUIRE k other READ PX 60000");
        hold(&mut client, "m", "owner");
        let mut writer = Waiter::park(&server, "RWLOCK.ACQUIRE k owner WRITE PX 60000 BLOCK 0");
        assert_deadlock(&mut client, "LOCK.ACQUIRE m reader BLOCK 0", &["reader", "owner"]);
        // The other way round.
        assert_eq!(client.run("LOCK.CANCEL k owner"), Reply::Int(1));
        writer.reply();
        let [mut reader] = line_up(&server, "m", ["reader"]);
        assert_deadlock(&mut client, "RWLOCK.ACQUIRE k owner WRITE BLOCK 0", &["reader", "owner"]);
        reader.assert_silent();
        client.run("LOCK.RELEASE m owner");
        reader.granted("reader");
    }

    #[test]
    fn a_reader_waits_for_the_writer_ahead_of_it() {
        let server = quiet().start();
        let mut client = server.client();
        client.run("RWLOCK.ACQUIRE k a READ PX 60000");
        hold(&mut client, "m", "late");
        let _w = Waiter::park(&server, "RWLOCK.ACQUIRE k w WRITE PX 60000 BLOCK 0");
        let mut late = Waiter::park(&server, "RWLOCK.ACQUIRE k late READ PX 60000 BLOCK 0");
        // late waits behind w, and w for a.
        assert_deadlock(&mut client, "LOCK.ACQUIRE m a BLOCK 0", &["a", "w", "late"]);
        late.assert_silent();
    }

    #[test]
    fn readers_do_not_wait_for_readers() {
        let server = quiet().start();
        let mut client = server.client();
        // r1 is ahead of r2 on k, and waits for it on m: this is no deadlock, because both will read together.
        client.run("RWLOCK.ACQUIRE k writer WRITE PX 60000");
        hold(&mut client, "m", "r2");
        let mut r1 = Waiter::park(&server, "RWLOCK.ACQUIRE k r1 READ PX 60000 BLOCK 0");
        let mut r2 = Waiter::park(&server, "RWLOCK.ACQUIRE k r2 READ PX 60000 BLOCK 0");
        let [mut again] = line_up(&server, "m", ["r1"]);
        client.run("RWLOCK.RELEASE k writer WRITE");
        r1.granted("r1");
        r2.granted("r2");
        client.run("LOCK.RELEASE m r2");
        again.granted("r1");
    }

    #[test]
    fn a_reader_does_not_wait_for_the_readers_that_hold_it() {
        let server = quiet().start();
        let mut client = server.client();
        client.run("RWLOCK.ACQUIRE k a READ PX 60000");
        hold(&mut client, "m", "b");
        let [_a] = line_up(&server, "m", ["a"]);
        assert!(client.run("RWLOCK.ACQUIRE k b READ PX 60000 BLOCK 0").fence() > 0);
        assert_deadlock(&mut client, "RWLOCK.ACQUIRE k b WRITE BLOCK 0", &["a", "b"]);
    }

    #[test]
    fn any_of_the_readers_in_its_way_closes_a_writers_cycle() {
        let server = quiet().start();
        let mut client = server.client();
        for n in 0..50 {
            client.run(&format!("RWLOCK.ACQUIRE k r{n} READ PX 60000"));
        }
        hold(&mut client, "m", "w");
        let [_waits] = line_up(&server, "m", ["r37"]);
        assert_deadlock(&mut client, "RWLOCK.ACQUIRE k w WRITE BLOCK 0", &["w", "r37"]);
    }

    #[test]
    fn a_request_for_several_waits_for_the_holders_of_all_its_keys() {
        let server = quiet().start();
        let mut client = server.client();
        hold(&mut client, "x", "a");
        hold(&mut client, "y", "b");
        client.run("SEM.ACQUIRE s c LIMIT 1 PX 60000");
        let _b = Waiter::park(&server, "SEM.ACQUIRE s b LIMIT 1 PX 60000 BLOCK 0");
        assert_deadlock(&mut client, "MLOCK.ACQUIRE 3 free x y c BLOCK 0", &["b", "c"]);
        let mut d = Waiter::park(&server, "MLOCK.ACQUIRE 3 free x y d PX 60000 BLOCK 0");
        d.assert_silent();
    }

    #[test]
    fn one_free_way_is_enough_for_a_semaphore() {
        let server = quiet().start();
        let mut client = server.client();
        client.run("SEM.ACQUIRE s a LIMIT 2 PX 60000");
        client.run("SEM.ACQUIRE s free LIMIT 2 PX 60000");
        client.run("RWLOCK.ACQUIRE k b WRITE PX 60000");
        let mut a = Waiter::park(&server, "RWLOCK.ACQUIRE k a READ PX 60000 BLOCK 0");
        let mut b = Waiter::park(&server, "SEM.ACQUIRE s b LIMIT 2 PX 60000 BLOCK 0");
        client.run("SEM.RELEASE s free");
        b.granted("b");
        client.run("RWLOCK.RELEASE k b WRITE");
        a.granted("a");
    }

    #[test]
    fn a_request_that_has_left_or_ended_closes_no_cycle() {
        each_way(quiet, |way, server, client| {
            way.hold(client, "x", "alice");
            hold(client, "m", "bob");
            assert_eq!(client.run("LOCK.ACQUIRE m alice BLOCK 1"), Reply::NullArray);
            let mut bob = wait_for(way, server, "x", "bob");
            way.give_back(client, "x", "alice");
            bob.granted("bob");
        });
    }
}

/// W1 waits for Y, which waits for X: a longer circle. W2 holds a key of W1 itself, and stands before it.
#[test]
fn only_an_owner_that_holds_a_key_of_a_request_for_several_stands_before_it() {
    let server = quiet().start();
    let mut client = server.client();
    for (key, owner) in [("k", "H"), ("a", "W2"), ("j", "Y"), ("x", "X")] {
        hold(&mut client, key, owner);
    }
    let mut w1 = Waiter::park(&server, "MLOCK.ACQUIRE 3 k a j W1 BLOCK 0");
    let [mut w2] = line_up(&server, "k", ["W2"]);
    let [_y] = line_up(&server, "x", ["Y"]);
    assert_deadlock(&mut client, "LOCK.ACQUIRE k X BLOCK 0", &["X", "W1", "Y"]);
    client.run("LOCK.RELEASE k H");
    w2.granted("W2");
    w1.assert_silent();
}

/// x waits for k and j, w holds j and waits for a, and p holds a and k. Without k, p would wait behind x for ever.
#[test]
fn a_request_for_several_keys_whose_owner_loses_one_gets_deadlock_if_it_would_wait_for_ever() {
    let losses: [(&str, &[&str]); 4] = [
        ("LOCK.BREAK", &["LOCK.BREAK k"]),
        ("LOCK.RELEASE", &["LOCK.RELEASE k p"]),
        ("DEL", &["DEL k"]),
        ("the end of its lease", &["PEXPIRE k 1"]),
    ];
    for (loss, lines) in losses {
        let server = quiet().start();
        let mut client = server.client();
        for (key, owner) in [("a", "p"), ("k", "p"), ("b", "y"), ("j", "w")] {
            hold(&mut client, key, owner);
        }
        let mut x = Waiter::park(&server, "MLOCK.ACQUIRE 2 k j x BLOCK 0");
        let [mut w] = line_up(&server, "a", ["w"]);
        let mut p = Waiter::park(&server, "MLOCK.ACQUIRE 2 k b p BLOCK 0");
        lines.iter().for_each(|line| assert_eq!(client.run(line), Reply::Int(1), "{loss}"));
        let reply = p.reply();
        let error = reply.error();
        assert!(error.starts_with("DEADLOCK waiting would never end, since this token lost"), "{loss}: {error}");
        client.run("LOCK.RELEASE a p");
        w.granted("w");
        client.run("LOCK.RELEASE j w");
        x.granted("x");
    }
}

/// With NOTIFY it learns the reason from the reply to its next request.
#[test]
fn a_request_with_notify_that_would_wait_for_ever_is_unblocked() {
    let server = quiet().start();
    let mut client = server.client();
    let mut subscriber = server.client();
    subscriber.run("SUBSCRIBE answers");
    for (key, owner) in [("a", "p"), ("k", "p"), ("b", "y"), ("j", "w")] {
        hold(&mut client, key, owner);
    }
    let _x = Waiter::park(&server, "MLOCK.ACQUIRE 2 k j x BLOCK 0");
    let [_w] = line_up(&server, "a", ["w"]);
    client.run("MLOCK.ACQUIRE 2 k b p BLOCK 0 NOTIFY answers");
    client.run("LOCK.BREAK k");
    let message = format!("{:?}", subscriber.read());
    assert!(message.contains("unblocked"), "{message}");
    assert_deadlock(&mut client, "MLOCK.ACQUIRE 2 k b p BLOCK 0", &["p", "x", "w"]);
}

/// f waits for c. b waits behind f, and for c until its lease on k4 ends; c waits behind both.
#[test]
fn requests_for_several_keys_that_cross_are_all_served_though_a_lease_ends_meanwhile() {
    let server = quiet().start();
    let mut client = server.client();
    hold(&mut client, "k2", "d");
    hold(&mut client, "k3", "c");
    assert!(client.run("LOCK.ACQUIRE k4 c PX 300").fence() > 0);
    let [mut f, mut b, mut c] = ["k2 k3 f", "k2 k4 b", "k4 k2 c"]
        .map(|line| Waiter::park(&server, &format!("MLOCK.ACQUIRE 2 {line} {LONG} BLOCK 0")));
    until("the lease on k4 ends", || client.run("EXISTS k4") == Reply::Int(0));
    client.run("LOCK.RELEASE k2 d");
    c.granted("c");
    assert_eq!(client.run("MLOCK.RELEASE 3 k2 k3 k4 c"), Reply::Int(3));
    f.granted("f");
    client.run("MLOCK.RELEASE 2 k2 k3 f");
    b.granted("b");
}

#[test]
fn a_request_for_several_keys_waits_for_no_other_at_a_key_that_its_owner_holds() {
    let server = quiet().start();
    let mut client = server.client();
    hold(&mut client, "a", "m");
    hold(&mut client, "b", "y");
    let [_z] = line_up(&server, "a", ["z"]);
    let mut several = Waiter::park(&server, &format!("MLOCK.ACQUIRE 2 a b m {LONG} BLOCK 0"));
    client.run("LOCK.RELEASE b y");
    several.granted("m");
}

/// y would be granted a, and hold it while it waits for b behind m, which waits for a.
#[test]
fn a_request_that_comes_back_gets_deadlock_if_another_of_its_owner_would_wait_for_ever() {
    let server = quiet().start();
    let mut client = server.client();
    client.run("CONFIG SET lock.keep-place 60000");
    hold(&mut client, "a", "x");
    let mut first = Waiter::park(&server, "LOCK.ACQUIRE a y BLOCK 30");
    assert!(first.reply().is_nil());
    let mut m = Waiter::park(&server, "MLOCK.ACQUIRE 2 a b m BLOCK 0");
    let [_elsewhere] = line_up(&server, "b", ["y"]);
    assert!(client.run("LOCK.ACQUIRE a y BLOCK 0").error().starts_with("DEADLOCK "));
    client.run("LOCK.RELEASE a x");
    m.granted("m");
}

/// The connection of a's session ends, and its client goes on by another before the module has taken the hold out: no
/// request waits for that hold any more.
#[test]
fn a_session_that_has_ended_closes_no_deadlock() {
    let server = quiet().start();
    let mut client = server.client();
    let mut session = server.client();
    assert!(session.run("LOCK.ACQUIRE x a SESSION").fence() > 0);
    hold(&mut client, "y", "b");
    let [mut b] = line_up(&server, "x", ["b"]);
    let id = session.run("CLIENT ID").int();
    let lines = [format!("CLIENT KILL ID {id}"), format!("LOCK.ACQUIRE y a {LONG} BLOCK 60000 NOTIFY granted")];
    let replies = client.pipeline(&lines);
    assert_eq!(replies[0], Reply::Int(1));
    assert_eq!(replies[1].items()[1], Reply::Int(0), "it waits: {:?}", replies[1]);
    b.granted("b");
}

/// b waits for x and y, both free for a moment; that a held y by a session that has ended does not let it pass.
#[test]
fn a_session_that_has_ended_lets_its_owner_pass_no_request() {
    let server = quiet().start();
    let mut client = server.client();
    let mut session = server.client();
    assert!(session.run("LOCK.ACQUIRE y a SESSION").fence() > 0);
    hold(&mut client, "x", "d");
    let mut b = Waiter::park(&server, &format!("MLOCK.ACQUIRE 2 x y b {LONG} BLOCK 0"));
    let id = session.run("CLIENT ID").int();
    let replies = client.pipeline(&["DEL x".to_string(), format!("CLIENT KILL ID {id}"), "LOCK.ACQUIRE x a".into()]);
    assert_eq!(replies, [Reply::Int(1), Reply::Int(1), Reply::NullArray]);
    b.granted("b");
}

mod counted_permits {
    use super::*;

    /// The first requests hold, the next ones wait; then the last request is refused, or waits.
    fn play(held: &[&str], waiting: &[&str], last: &str, is_deadlock: bool) {
        let server = quiet().start();
        let mut client = server.client();
        for line in held {
            assert!(client.run(line).fence() > 0, "{line}");
        }
        let _waiters: Vec<Waiter> = waiting.iter().map(|line| Waiter::park(&server, line)).collect();
        match is_deadlock {
            true => assert!(client.run(last).error().starts_with("DEADLOCK "), "{held:?} {waiting:?} {last}"),
            false => drop(Waiter::park(&server, last)),
        }
    }

    #[test]
    fn waits_that_are_dead_only_because_of_each_other_are_found() {
        play(
            &["LOCK.ACQUIRE m A", "SEM.ACQUIRE s B LIMIT 2", "SEM.ACQUIRE s C LIMIT 2"],
            &["SEM.ACQUIRE s A LIMIT 2 BLOCK 0", "LOCK.ACQUIRE m B BLOCK 0"],
            "LOCK.ACQUIRE m C BLOCK 0",
            true,
        );
        let [a, b, c] = ["A", "B", "C"].map(|owner| format!("SEM.ACQUIRE s {owner} LIMIT 3"));
        let more = [&a, &b, &c].map(|line| format!("{line} BLOCK 0"));
        play(&[&a, &b, &c], &[&more[0], &more[1]], &more[2], true);
    }

    #[test]
    fn permits_are_counted() {
        let held = |a| {
            [format!("SEM.ACQUIRE k1 a LIMIT 4 PERMITS {a}"), format!("SEM.ACQUIRE k1 b LIMIT 4 PERMITS {}", 4 - a)]
        };
        for (permits, is_deadlock) in [(3, true), (2, false)] {
            let [a, b] = held(permits);
            let waiting = ["SEM.ACQUIRE k1 d LIMIT 4 PERMITS 2 BLOCK 0"];
            play(&[&a, &b, "LOCK.ACQUIRE k4 d"], &waiting, "LOCK.ACQUIRE k4 a BLOCK 0", is_deadlock);
        }
    }

    #[test]
    fn pools_and_families_crosswise_are_found() {
        let sem = |key: &str, owner: &str| format!("SEM.ACQUIRE {key} {owner} LIMIT 2");
        let wait = |key: &str, owner: &str| format!("{} BLOCK 0", sem(key, owner));
        play(
            &[&sem("k1", "a"), &sem("k1", "b"), &sem("k2", "c"), &sem("k2", "d")],
            &[&wait("k2", "a"), &wait("k2", "b"), &wait("k1", "c")],
            &wait("k1", "d"),
            true,
        );
        play(
            &[&sem("k1", "b"), &sem("k1", "e"), &sem("k2", "a"), &sem("k2", "b"), "LOCK.ACQUIRE k3 a"],
            &[&wait("k1", "a"), &wait("k2", "e")],
            "LOCK.ACQUIRE k3 b BLOCK 0",
            true,
        );
    }

    #[test]
    fn a_limit_counts_as_it_is_given() {
        let server = quiet().start();
        let mut client = server.client();
        client.run("SEM.ACQUIRE s n LIMIT 1 PX 60000");
        let mut b = Waiter::park(&server, "SEM.ACQUIRE s b LIMIT 1 PX 60000 BLOCK 0");
        // Room for all three: b is first, then n.
        let n = client.run("SEM.ACQUIRE s n LIMIT 3 PX 60000 BLOCK 1000");
        assert!(!matches!(n, Reply::Error(_)), "{n:?}");
        b.granted("b");

        client.run("SEM.ACQUIRE t a LIMIT 3 PX 60000");
        let mut c = Waiter::park(&server, "SEM.ACQUIRE t c LIMIT 3 PERMITS 3 BLOCK 0");
        // c waits for a, but not under this limit.
        let a = client.run("SEM.ACQUIRE t a LIMIT 2 PX 60000 BLOCK 1000");
        assert!(!matches!(a, Reply::Error(_)), "{a:?}");
        assert!(matches!(c.reply(), Reply::Error(_)));
    }

    #[test]
    fn an_owners_earlier_request_ahead_is_not_in_the_way_of_its_second() {
        let server = quiet().start();
        let mut client = server.client();
        client.run("RLOCK.ACQUIRE e h PX 60000");
        let mut first = Waiter::park(&server, "RLOCK.ACQUIRE e a PX 60000 BLOCK 0");
        let mut other = Waiter::park(&server, "RLOCK.ACQUIRE e b PX 60000 BLOCK 0");
        let mut second = Waiter::park(&server, "RLOCK.ACQUIRE e a HOLDS 2 PX 60000 BLOCK 0");
        client.run("RLOCK.RELEASE e h");
        first.reply();
        second.reply();
        other.assert_silent();
    }

    #[test]
    fn a_deadlock_of_others_is_a_reason_to_refuse_only_what_would_wait_for_it() {
        let server = quiet().start();
        let mut client = server.client();
        for (key, owner) in [("x", "a"), ("moved", "b"), ("y", "c"), ("z", "c"), ("k", "e")] {
            hold(&mut client, key, owner);
        }
        let _waiters = [line_up(&server, "y", ["a"]), line_up(&server, "x", ["b"])];
        // b now holds the lock for which a waits.
        client.run("RENAME moved y");
        let [mut other] = line_up(&server, "z", ["d"]);
        assert_deadlock(&mut client, "LOCK.ACQUIRE x c BLOCK 0", &["a", "b"]);
        let [mut third] = line_up(&server, "k", ["c"]);
        other.assert_silent();
        third.assert_silent();
    }
}

//! Two events end a lock in one step or one event-loop iteration: one grant each, to a connected client, and correct
//! replies.

use super::*;

#[test]
fn a_release_with_client_unblock_error_leaves_no_lock_with_an_unblocked_client() {
    let server = quiet().start();
    let mut client = server.client();
    hold(&mut client, "k", "a");
    let [mut b, mut c] = line_up(&server, "k", ["b", "c"]);
    let unblock = format!("CLIENT UNBLOCK {} ERROR", b.id);
    let was_blocked = multi(&mut client, &["LOCK.RELEASE k a", &unblock])[1].int() == 1;
    let reply = b.only_reply();
    assert_eq!(reply.is_error(), was_blocked, "what the server says that it did: {reply:?}");
    if was_blocked {
        c.granted("c");
        assert_eq!(holders(&mut client, "k"), ["c"]);
    } else {
        assert_eq!(reply.items()[0], Reply::bulk("b"));
        assert_eq!(holders(&mut client, "k"), ["b"]);
    }
}

/// The release sees the lock as live, because the clock stands still during a script. When the script ends, the lease
/// expired long ago. That must not end the next owner's lease as well.
#[test]
fn a_release_after_lease_expiry_in_a_transaction_makes_one_grant() {
    let server = quiet().start();
    let mut client = server.client();
    for round in 0..5 {
        let key = format!("k{round}");
        hold(&mut client, &key, "a");
        let [mut b, mut c] = line_up(&server, &key, ["b", "c"]);
        let renew = format!("LOCK.RENEW {key} a PX 20");
        let release = format!("LOCK.RELEASE {key} a");
        multi(&mut client, &[&renew, "DEBUG SLEEP 0.05", &release]);
        b.granted("b");
        c.assert_silent_for(Duration::from_millis(50));
        assert_eq!(holders(&mut client, &key), ["b"]);
        assert_eq!(queue(&mut client, &key), ["c"]);
    }
}

/// Both are due when the server wakes up: the timer of the lease, and the release on the socket.
#[test]
fn a_release_and_lease_expiry_in_one_iteration_make_one_grant() {
    let server = quiet().start();
    let mut client = server.client();
    for round in 0..5 {
        let key = format!("k{round}");
        hold(&mut client, &key, "a");
        let [mut b, mut c] = line_up(&server, &key, ["b", "c"]);
        client.run(&format!("PEXPIRE {key} 40"));
        let mut sleeper = put_to_sleep(&server, Duration::from_millis(120));
        client.send_line(&format!("LOCK.RELEASE {key} a"));
        assert_eq!(sleeper.read(), Reply::ok());
        client.read();
        b.granted("b");
        c.assert_silent_for(Duration::from_millis(30));
        assert_eq!(holders(&mut client, &key), ["b"]);
        assert_eq!(queue(&mut client, &key), ["c"]);
    }
}

#[test]
fn releases_around_the_exact_millisecond_of_lease_expiry_make_one_grant_each() {
    let server = quiet().start();
    let mut client = server.client();
    let lease = Duration::from_millis(12);
    let mut b = server.client();
    let mut c = server.client();
    let (mut released, mut round, started) = (0, 0, Instant::now());
    // On a busy machine, all releases of the first rounds can come too late.
    while round < 80 || released == 0 {
        assert!(started.elapsed() < LIMIT, "every release came after the end");
        let key = format!("k{round}");
        hold(&mut client, &key, "a");
        for (waiter, owner) in [(&mut b, "b"), (&mut c, "c")] {
            waiter.send_line(&format!("LOCK.ACQUIRE {key} {owner} {LONG} BLOCK 0"));
            until("it waits", || queue(&mut client, &key).iter().any(|queued| queued == owner));
        }
        client.run(&format!("LOCK.RENEW {key} a PX {}", lease.as_millis()));
        // From one millisecond before expiry to two after it, in steps of 37 microseconds.
        let release_at = Instant::now() + lease - Duration::from_millis(1) + Duration::from_micros(37) * (round % 80);
        while Instant::now() < release_at {
            std::hint::spin_loop();
        }
        released += client.run(&format!("LOCK.RELEASE {key} a")).int();
        assert_eq!(b.read().items()[0], Reply::bulk("b"));
        assert_eq!(holders(&mut client, &key), ["b"]);
        assert_eq!(queue(&mut client, &key), ["c"]);
        client.run(&format!("LOCK.RELEASE {key} b"));
        assert_eq!(c.read().items()[0], Reply::bulk("c"));
        client.run(&format!("LOCK.RELEASE {key} c"));
        assert_eq!(client.run(&format!("EXISTS {key}")), Reply::Int(0));
        round += 1;
    }
}

/// 7.0 can time a client out in the iteration in which it was unblocked, and then sends no reply at all.
#[test]
fn a_waiter_that_times_out_in_the_iteration_of_its_grant_gets_one_correct_reply() {
    let server = quiet().start();
    let mut client = server.client();
    for round in 0..5 {
        let key = format!("k{round}");
        hold(&mut client, &key, "a");
        let mut b = Waiter::request(&server, &format!("LOCK.ACQUIRE {key} b {LONG} BLOCK 150"));
        let [mut c] = line_up(&server, &key, ["c"]);
        let mut sleeper = put_to_sleep(&server, Duration::from_millis(250));
        client.send_line(&format!("LOCK.RELEASE {key} a"));
        sleeper.read();
        assert_eq!(client.read(), Reply::Int(1));
        assert_reply_was_correct(&mut client, &key, &mut b, &mut c);
    }
}

#[test]
fn a_waiter_that_times_out_around_the_release_gets_one_correct_reply() {
    let server = quiet().start();
    let mut client = server.client();
    client.run("CONFIG SET lock.keep-place 0");
    for round in 0..40_u32 {
        let key = format!("k{round}");
        hold(&mut client, &key, "a");
        let b = server.client();
        let start = Instant::now();
        let mut b = Waiter::request_over(b, &server, &format!("LOCK.ACQUIRE {key} b {LONG} BLOCK 15"));
        let [mut c] = line_up(&server, &key, ["c"]);
        let release_at = start + Duration::from_millis(14) + Duration::from_micros(60) * round;
        while Instant::now() < release_at {
            std::hint::spin_loop();
        }
        client.run(&format!("LOCK.RELEASE {key} a"));
        assert_reply_was_correct(&mut client, &key, &mut b, &mut c);
    }
}

/// Either `b` was granted the lock and holds it, or it was refused and `c` holds it.
#[track_caller]
fn assert_reply_was_correct(client: &mut Client, key: &str, b: &mut Waiter, c: &mut Waiter) {
    if b.only_reply().is_nil() {
        c.granted("c");
        assert_eq!(holders(client, key), ["c"]);
    } else {
        assert_eq!(holders(client, key), ["b"]);
        assert_eq!(queue(client, key), ["c"]);
        c.assert_silent();
    }
}

#[test]
fn a_waiter_that_times_out_around_lease_expiry_gets_one_correct_reply() {
    let server = quiet().start();
    let mut client = server.client();
    for round in 0..10 {
        let key = format!("k{round}");
        hold(&mut client, &key, "a");
        let mut b = Waiter::request(&server, &format!("LOCK.ACQUIRE {key} b {LONG} BLOCK 200"));
        let [mut c] = line_up(&server, &key, ["c"]);
        // If b's wait has already timed out, c is first and waits indefinitely: then the lease expires soon.
        let left = client.run(&format!("LOCK.WAITERS {key}")).items()[0].get("remaining").int();
        client.run(&format!("PEXPIRE {key} {}", left + round % 3 - 1));
        until("the lease has ended", || holders(&mut client, &key) != ["a"]);
        assert_reply_was_correct(&mut client, &key, &mut b, &mut c);
    }
}

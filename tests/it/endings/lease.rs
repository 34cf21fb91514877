//! The end of a lease serves the next within milliseconds, never too early, and by the deadline that counts by then.

use super::*;

#[test]
fn the_next_is_served_within_milliseconds_with_no_command_from_anyone() {
    let server = quiet().start();
    let mut client = server.client();
    let lease = Duration::from_millis(400);
    hold(&mut client, "k", "a");
    let [mut b, mut c] = line_up(&server, "k", ["b", "c"]);
    let start = Instant::now();
    client.run("LOCK.RENEW k a PX 400");
    // From here on nobody says a word.
    b.granted_within("b", lease + SOON);
    assert!(ms_since(start) >= lease.as_millis(), "too early: {:?}", start.elapsed());
    c.assert_silent();
}

#[test]
fn leases_that_end_one_after_the_other_pass_a_lock_along_the_whole_queue() {
    let server = quiet().start();
    let mut client = server.client();
    let mut last = hold(&mut client, "k", "a");
    let mut waiters: Vec<Waiter> =
        (0..6).map(|n| Waiter::park(&server, &format!("LOCK.ACQUIRE k owner-{n} PX 30 BLOCK 0"))).collect();
    client.run("LOCK.RENEW k a PX 30");
    for (n, waiter) in waiters.iter_mut().enumerate() {
        let fence = waiter.granted_within(&format!("owner-{n}"), Duration::from_millis(30) + SOON);
        assert!(fence > last);
        last = fence;
    }
    until("the last lease has ended too", || client.run("EXISTS k") == Reply::Int(0));
    assert_nobody_waits(&server, &["k"]);
}

#[test]
fn never_too_early() {
    let server = quiet().start();
    let mut client = server.client();
    for lease in [1, 40, 90, 250] {
        let key = format!("k{lease}");
        let start = Instant::now();
        client.run(&format!("LOCK.ACQUIRE {key} a PX {lease}"));
        let reply = client.run(&format!("LOCK.ACQUIRE {key} b BLOCK 0"));
        assert_eq!(reply.items()[0], Reply::bulk("b"));
        assert!(ms_since(start) >= lease, "{lease} ms were {:?}", start.elapsed());
    }
}

#[test]
fn wake_ups_are_exact_to_a_few_milliseconds() {
    let server = quiet().start();
    let mut client = server.client();
    let mut late: Vec<Duration> = (0..15)
        .map(|n| {
            let lease = Duration::from_millis(20 + 3 * n);
            let mut watch = client.stopwatch();
            client.run(&format!("LOCK.ACQUIRE k{n} a PX {}", lease.as_millis()));
            client.send_line(&format!("LOCK.ACQUIRE k{n} b BLOCK 0"));
            client.read_by(&mut watch, LIMIT).expect("its turn comes");
            watch.elapsed().saturating_sub(lease)
        })
        .collect();
    late.sort();
    // Half of them: a busy machine may delay some. A server's own expiry, ten times a second, is later than that.
    assert!(late[late.len() / 2] < Duration::from_millis(25), "{late:?}");
}

#[test]
fn it_needs_no_help_from_the_servers_own_expiry() {
    let server = quiet().start();
    let mut client = server.client();
    client.run("DEBUG SET-ACTIVE-EXPIRE 0");
    hold(&mut client, "k", "a");
    let [mut b] = line_up(&server, "k", ["b"]);
    let start = Instant::now();
    client.run("LOCK.RENEW k a PX 100");
    b.granted("b");
    assert!(ms_since(start) >= 100);
}

#[test]
fn a_reentrant_lock_passes_on_with_all_its_holds() {
    let server = quiet().start();
    let mut client = server.client();
    client.run("RLOCK.ACQUIRE k a HOLDS 5 PX 60000");
    let mut b = Waiter::park(&server, "RLOCK.ACQUIRE k b BLOCK 0");
    client.run("RLOCK.RENEW k a PX 80");
    assert_eq!(b.reply().items()[2], Reply::Int(1));
    assert_eq!(client.run("RLOCK.RELEASE k a"), Reply::Int(-1));
    assert_eq!(holders(&mut client, "k"), ["b"]);
}

#[test]
fn pexpire_longer_lets_them_wait_longer() {
    let server = quiet().start();
    let mut client = server.client();
    hold(&mut client, "k", "a");
    let [mut b] = line_up(&server, "k", ["b"]);
    let start = Instant::now();
    multi(&mut client, &["PEXPIRE k 100", "PEXPIRE k 400"]);
    b.granted_within("b", Duration::from_millis(400) + SOON);
    assert!(ms_since(start) >= 400, "{:?}", start.elapsed());
}

#[test]
fn persist_lets_them_wait_for_ever() {
    let server = quiet().start();
    let mut client = server.client();
    hold(&mut client, "k", "a");
    let [mut b] = line_up(&server, "k", ["b"]);
    assert_eq!(multi(&mut client, &["PEXPIRE k 60", "PERSIST k"])[1], Reply::Int(1));
    b.assert_silent_for(A_WHILE);
    assert_eq!(holders(&mut client, "k"), ["a"]);
    client.run("PEXPIRE k 20");
    b.granted("b");
}

#[test]
fn a_renewal_lets_them_wait_longer() {
    let server = quiet().start();
    let mut client = server.client();
    for (acquire, renew) in [("LOCK.ACQUIRE", "LOCK.RENEW"), ("RLOCK.ACQUIRE", "RLOCK.RENEW")] {
        client.run("DEL k");
        client.run(&format!("{acquire} k a {LONG}"));
        let mut b = Waiter::park(&server, &format!("{acquire} k b PX 60000 BLOCK 0"));
        let start = Instant::now();
        let renewals = [60, 300].map(|lease| format!("{renew} k a PX {lease}"));
        assert_eq!(multi(&mut client, &[&renewals[0], &renewals[1]]), [Reply::Int(1), Reply::Int(1)]);
        assert_eq!(b.client.read().items()[0], Reply::bulk("b"));
        assert!(ms_since(start) >= 300, "{:?}", start.elapsed());
    }
}

#[test]
fn acquiring_again_lets_them_wait_longer() {
    let server = quiet().start();
    let mut client = server.client();
    hold(&mut client, "k", "a");
    let [mut b] = line_up(&server, "k", ["b"]);
    let start = Instant::now();
    multi(&mut client, &["LOCK.RENEW k a PX 50", "LOCK.ACQUIRE k a PX 300"]);
    assert_eq!(b.client.read().items()[0], Reply::bulk("b"));
    assert!(ms_since(start) >= 300, "{:?}", start.elapsed());
}

//! A reader that asks to write: at once where it is the only one, at the head of the queue where it is not, and refused
//! where another one waits for the same.

use super::*;

#[test]
fn one_among_others_waits_at_the_head_and_is_granted_before_queued_writers() {
    let server = quiet().start();
    let mut client = server.client();
    let before = read(&mut client, "a");
    read(&mut client, "b");
    let (mut w, mut r) = (writer(&server, "w"), reader(&server, "r"));
    let mut a = writer(&server, "a");
    assert_eq!(queue(&mut client, "k"), ["a", "w", "r"], "it waits at the head of the queue");
    for waiter in [&mut a, &mut w, &mut r] {
        waiter.assert_silent();
    }
    release(&mut client, "b READ", 0);
    let fence = a.granted("a");
    assert!(fence > before, "a new grant");
    assert_eq!(rows(&mut client, "k"), [row("a", "write", 1), row("a", "read", 1)]);
    w.assert_silent();
    release(&mut client, "a WRITE", 0);
    w.assert_silent();
    r.assert_silent();
    release(&mut client, "a READ", 0);
    w.granted("w");
}

#[test]
fn no_new_reader_overtakes_one_that_waits() {
    let server = quiet().start();
    let mut client = server.client();
    read(&mut client, "a");
    read(&mut client, "b");
    let mut a = writer(&server, "a");
    assert!(client.run("RWLOCK.ACQUIRE k r READ").is_nil());
    let mut r = reader(&server, "r");
    assert_eq!(client.run("RWLOCK.ACQUIRE k a READ PX 60000").items()[2], Reply::Int(2), "itself it reenters");
    release(&mut client, "b READ", 0);
    a.granted("a");
    release(&mut client, "a READ HOLDS 0", 0);
    r.assert_silent();
    release(&mut client, "a WRITE", 0);
    r.granted("r");
}

#[test]
fn one_that_cannot_be_delivered_is_taken_back_and_its_owner_reads_on() {
    let server = quiet().start();
    let mut client = server.client();
    read(&mut client, "a");
    read(&mut client, "b");
    let a = writer(&server, "a");
    let mut r = reader(&server, "r");
    multi(&mut client, &["RWLOCK.RELEASE k b READ", &format!("CLIENT KILL ID {}", a.id)]);
    r.granted("r");
    assert_eq!(rows(&mut client, "k").len(), 2, "two readers");
    assert_eq!(held(&mut client, "k", "a").map(|held| held.1), Some(1));
    release(&mut client, "a WRITE", -1);
    release(&mut client, "a READ", 0);
}

#[test]
fn the_only_reader_upgrades_past_queued_writers() {
    let server = quiet().start();
    let mut client = server.client();
    let before = read(&mut client, "a");
    let mut w = writer(&server, "w");
    let upgrade = client.run("RWLOCK.ACQUIRE k a WRITE PX 60000");
    assert!(upgrade.fence() > before);
    w.assert_silent();
    release(&mut client, "a WRITE", 0);
    w.assert_silent();
    release(&mut client, "a READ", 0);
    assert!(w.granted("w") > upgrade.fence());
}

#[test]
fn a_second_one_is_a_deadlock_that_disturbs_nobody() {
    each_protocol_with_server(|server, client| {
        read(client, "a");
        read(client, "b");
        read(client, "c");
        let mut a = writer(server, "a");
        let mut w = writer(server, "w");
        let before = client.stored("k");
        for wait in ["BLOCK 0", "BLOCK 5000 NOTIFY ch"] {
            let reply = client.run(&format!("RWLOCK.ACQUIRE k b WRITE {wait}"));
            let error = reply.error();
            assert!(error.starts_with("DEADLOCK "), "{error}");
            assert!(error.contains("'a'") && error.contains("'b'"), "it names the cycle: {error}");
        }
        assert!(client.run("RWLOCK.ACQUIRE k b WRITE").is_nil(), "without BLOCK it is only a refusal");
        assert_eq!(queue(client, "k"), ["a", "w"]);
        assert_eq!(client.stored("k"), before);
        a.assert_silent();
        w.assert_silent();
        assert_eq!(read(client, "b"), held(client, "k", "b").expect("it reads").0, "it may still reenter");
        release(client, "b READ HOLDS 0", 0);
        a.assert_silent();
        release(client, "c READ", 0);
        a.granted("a");
    });
}

#[test]
fn a_cancelled_one_lets_another_reader_ask() {
    let server = quiet().start();
    let mut client = server.client();
    read(&mut client, "a");
    read(&mut client, "b");
    let mut a = writer(&server, "a");
    assert_eq!(client.run("LOCK.CANCEL k a"), Reply::Int(1));
    assert_eq!(a.only_reply(), Reply::Error("UNBLOCKED cancelled".into()));
    assert_eq!(rows(&mut client, "k"), [row("a", "read", 1), row("b", "read", 1)], "it reads on");
    let mut b = writer(&server, "b");
    release(&mut client, "a READ", 0);
    b.granted("b");
}

#[test]
fn one_that_ran_out_of_time_reads_on() {
    let server = quiet().start();
    let mut client = server.client();
    let fence = read(&mut client, "a");
    read(&mut client, "b");
    assert_eq!(client.run("RWLOCK.ACQUIRE k a WRITE BLOCK 20"), Reply::NullArray);
    assert_eq!(held(&mut client, "k", "a").map(|held| (held.0, held.1)), Some((fence, 1)));
}

#[test]
fn it_is_granted_when_the_other_readers_leases_have_ended_with_no_command_from_anyone() {
    let server = quiet().start();
    let mut client = server.client();
    for owner in ["a", "b", "c"] {
        read(&mut client, owner);
    }
    let mut a = writer(&server, "a");
    let start = Instant::now();
    multi(&mut client, &["RWLOCK.RENEW k b PX 300", "RWLOCK.RENEW k c PX 200"]);
    a.granted_within("a", Duration::from_millis(300) + SOON);
    assert!(ms_since(start) >= 300, "{:?}", start.elapsed());
    assert_eq!(rows(&mut client, "k"), [row("a", "write", 1), row("a", "read", 1)]);
}

#[test]
fn who_asked_to_upgrade_and_whose_own_lease_ended_waits_like_any_writer() {
    let server = quiet().start();
    let mut client = server.client();
    read(&mut client, "a");
    read(&mut client, "b");
    let mut a = writer(&server, "a");
    client.run("RWLOCK.RENEW k a PX 100");
    until_ended(&mut client, "k", "a");
    a.assert_silent();
    release(&mut client, "b READ", 0);
    a.granted("a");
    assert_eq!(rows(&mut client, "k"), [row("a", "write", 1)], "what had ended is no read hold any more");
}

/// What ends the READ of an owner that waits for WRITE, and whether its request stands behind the writer that came
/// later.
#[test]
fn an_upgrade_waits_in_the_order_of_its_arrival_when_its_read_has_ended() {
    for end in ["RWLOCK.RELEASE k a READ", "LOCK.BREAK k OWNER a", "RWLOCK.RENEW k a PX 1"] {
        let server = quiet().start();
        let mut client = server.client();
        for owner in ["a", "b"] {
            read(&mut client, owner);
        }
        let mut w = writer(&server, "w");
        let mut a = writer(&server, "a");
        let mut later = writer(&server, "later");
        assert_eq!(queue(&mut client, "k"), ["a", "w", "later"], "{end}");
        assert_eq!(client.run(end), Reply::Int(if end.contains("RELEASE") { 0 } else { 1 }), "{end}");
        until_ended(&mut client, "k", "a");
        until_queue(&mut client, "k", &["w", "a", "later"]);
        let upgrade = client.run("RWLOCK.ACQUIRE k b WRITE PX 60000");
        assert!(upgrade.fence() > 0, "{end}: the only reader upgrades at once: {upgrade:?}");
        release(&mut client, "b WRITE", 0);
        release(&mut client, "b READ", 0);
        w.granted("w");
        a.assert_silent();
        release(&mut client, "w WRITE", 0);
        a.granted("a");
        later.assert_silent();
    }
}

fn each_protocol_with_server(test: impl Fn(&Server, &mut Client)) {
    let server = quiet().start();
    test(&server, &mut server.client());
    let server = quiet().start();
    test(&server, &mut server.client3());
}

#[test]
fn a_place_that_was_kept_for_an_upgrade_counts_by_its_arrival_afterwards() {
    let server = quiet().start();
    let mut client = server.client();
    assert_eq!(client.run("CONFIG SET lock.keep-place 60000"), Reply::ok());
    for owner in ["a", "b", "c"] {
        read(&mut client, owner);
    }
    assert!(client.run(&format!("RWLOCK.ACQUIRE k a WRITE {LONG} BLOCK 1")).is_nil());
    release(&mut client, "a READ", 0);
    let mut b = writer(&server, "b");
    let mut a = writer(&server, "a");
    assert_eq!(queue(&mut client, "k"), ["b", "a"], "at the head it would wait for b, and b for it");
    release(&mut client, "c READ", 0);
    b.granted("b");
    release(&mut client, "b WRITE", 0);
    release(&mut client, "b READ", 0);
    a.granted("a");
}

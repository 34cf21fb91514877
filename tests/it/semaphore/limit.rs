//! Which LIMIT counts: that of the newest request that was granted or queued. A larger one admits, a smaller one
//! drains.

use super::*;

#[test]
fn that_of_the_newest_granted_request_counts() {
    each_protocol(|client| {
        take(client, "a LIMIT 3");
        assert_eq!(limit(client), 3);
        take(client, "b LIMIT 7 PERMITS 5");
        assert_eq!(limit(client), 7);
        take(client, "a LIMIT 9 HOLDS 1");
        assert_eq!(limit(client), 9, "also where it was only sent again");
        release(client, "b PERMITS 4", 1);
        assert_eq!(limit(client), 9, "a release has no say");
        take(client, "c LIMIT 4");
        assert_eq!(limit(client), 4);
    });
}

#[test]
fn that_of_a_refused_request_does_not() {
    each_protocol(|client| {
        take(client, "a LIMIT 4 PERMITS 4");
        let before = client.stored("k");
        assert!(client.run("SEM.ACQUIRE k b LIMIT 2").is_nil());
        assert!(client.run("SEM.ACQUIRE k b LIMIT 5 PERMITS 3").is_nil());
        assert!(client.run("SEM.ACQUIRE k b LIMIT 9 PERMITS 10").is_error());
        assert_eq!(client.stored("k"), before);
        assert_eq!(limit(client), 4);
    });
}

#[test]
fn that_of_a_request_that_may_not_queue_does_not() {
    let server = quiet().start();
    let mut client = server.client();
    take(&mut client, "a LIMIT 4 PERMITS 3");
    take(&mut client, "b LIMIT 4");
    let before = client.stored("k");
    let reply = client.run("SEM.ACQUIRE k a LIMIT 5 PERMITS 3 BLOCK 0");
    assert!(reply.error().starts_with("DEADLOCK "), "{reply:?}");
    assert_eq!(client.run("CONFIG SET lock.max-waiters 0"), Reply::ok());
    let reply = client.run("SEM.ACQUIRE k c LIMIT 1 BLOCK 0");
    assert!(reply.error().starts_with("MAXWAITERS "), "{reply:?}");
    assert_eq!(client.run("SEM.ACQUIRE k c LIMIT 1 BLOCK -1"), Reply::Error("ERR timeout is negative".into()));
    assert_eq!(multi(&mut client, &["SEM.ACQUIRE k c LIMIT 9 PERMITS 9 BLOCK 0"]), [Reply::NullArray]);
    assert_eq!(client.stored("k"), before);
    assert_eq!(limit(&mut client), 4);
}

#[test]
fn a_larger_one_of_a_queued_request_admits_waiters_at_once() {
    let server = quiet().start();
    let mut client = server.client();
    take(&mut client, "a LIMIT 1");
    let mut waiters = ["b", "c", "d"].map(|owner| wait_for(&server, &format!("{owner} LIMIT 1")));
    // It goes to the end of the queue, and is admitted with the rest as far as the new limit goes.
    let mut e = Waiter::park(&server, "SEM.ACQUIRE k e LIMIT 3 PX 60000 BLOCK 0");
    waiters[0].granted("b");
    waiters[1].granted("c");
    waiters[2].assert_silent();
    e.assert_silent();
    assert_eq!(limit(&mut client), 3);
    assert_eq!(queue(&mut client, "k"), ["d", "e"]);
    release(&mut client, "b", 0);
    waiters[2].granted("d");
    release(&mut client, "a", 0);
    e.granted("e");
}

#[test]
fn a_larger_one_may_admit_everybody_and_the_one_who_brought_it() {
    let server = quiet().start();
    let mut client = server.client();
    take(&mut client, "a LIMIT 1");
    let mut b = wait_for(&server, "b LIMIT 1");
    let grant = client.run("SEM.ACQUIRE k c LIMIT 3 PX 60000 BLOCK 5000");
    assert_eq!((grant.items()[0].text(), grant.items()[2].int()), ("c", 1));
    assert!(b.granted("b") < grant.fence(), "in the order of the queue");
    assert_nobody_waits(&server, &["k"]);
    assert_out(&mut client, &[("a", 1), ("b", 1), ("c", 1)]);
}

#[test]
fn a_larger_one_of_a_holders_retry_admits_waiters_at_once() {
    let server = quiet().start();
    let mut client = server.client();
    take(&mut client, "a LIMIT 1 HOLDS 1");
    let mut waiters = ["b", "c", "d"].map(|owner| wait_for(&server, &format!("{owner} LIMIT 1")));
    take(&mut client, "a LIMIT 3 HOLDS 1");
    waiters[0].granted("b");
    waiters[1].granted("c");
    waiters[2].assert_silent();
}

#[test]
fn a_request_with_a_larger_one_does_not_overtake_the_queue() {
    let server = quiet().start();
    let mut client = server.client();
    take(&mut client, "a LIMIT 1");
    let mut b = wait_for(&server, "b LIMIT 1");
    assert!(client.run("SEM.ACQUIRE k c LIMIT 3").is_nil());
    assert_eq!(limit(&mut client), 1, "it was neither granted nor queued");
    b.assert_silent();
}

#[test]
fn a_smaller_one_drains() {
    let server = quiet().start();
    let mut client = server.client();
    for owner in ["a", "b", "c"] {
        take(&mut client, &format!("{owner} LIMIT 3"));
    }
    let mut d = wait_for(&server, "d LIMIT 1");
    assert_eq!(limit(&mut client), 1);
    assert_out(&mut client, &[("a", 1), ("b", 1), ("c", 1)]);
    for owner in ["b", "c"] {
        release(&mut client, owner, 0);
        d.assert_silent();
        assert!(client.run("SEM.ACQUIRE k z LIMIT 1").is_nil());
    }
    release(&mut client, "a", 0);
    d.granted("d");
    assert_out(&mut client, &[("d", 1)]);
}

#[test]
fn a_smaller_one_answers_waiters_that_can_never_fit_it_with_an_error() {
    let server = quiet().start();
    let mut client = server.client();
    take(&mut client, "a LIMIT 5 PERMITS 5");
    let mut four = wait_for(&server, "four LIMIT 5 PERMITS 4");
    let mut two = wait_for(&server, "two LIMIT 5 PERMITS 2");
    let mut exactly = wait_for(&server, "exactly LIMIT 5 HOLDS 3");
    let mut newest = wait_for(&server, "newest LIMIT 2");
    for waiter in [&mut four, &mut exactly] {
        let reply = waiter.only_reply();
        assert!(reply.error().starts_with("ERR "), "{reply:?}");
    }
    two.assert_silent();
    newest.assert_silent();
    assert_eq!(queue(&mut client, "k"), ["two", "newest"]);
    release(&mut client, "a HOLDS 2", 2);
    two.assert_silent();
    release(&mut client, "a HOLDS 0", 0);
    two.granted("two");
    newest.assert_silent();
}

#[test]
fn a_smaller_one_of_a_granted_request_does_so_too() {
    let server = quiet().start();
    let mut client = server.client();
    take(&mut client, "a LIMIT 4 HOLDS 2");
    let mut three = wait_for(&server, "three LIMIT 4 PERMITS 3");
    take(&mut client, "a LIMIT 2 HOLDS 2");
    assert!(three.only_reply().error().starts_with("ERR "));
    assert_eq!(limit(&mut client), 2);
    assert_nobody_waits(&server, &["k"]);
}

#[test]
fn a_refused_large_request_lets_those_behind_it_in_at_once() {
    let server = quiet().start();
    let mut client = server.client();
    take(&mut client, "a LIMIT 4 HOLDS 2");
    let mut large = wait_for(&server, "large LIMIT 4 PERMITS 4");
    let mut small = wait_for(&server, "small LIMIT 4");
    take(&mut client, "a LIMIT 3 HOLDS 2");
    assert!(large.only_reply().error().starts_with("ERR "));
    small.granted("small");
}

#[test]
fn waiters_are_admitted_by_the_limit_that_counts_and_not_by_their_own() {
    let server = quiet().start();
    let mut client = server.client();
    take(&mut client, "a LIMIT 9 PERMITS 5");
    take(&mut client, "x LIMIT 9 PERMITS 4");
    let mut b = wait_for(&server, "b LIMIT 9 PERMITS 2");
    let mut c = wait_for(&server, "c LIMIT 6 PERMITS 2");
    release(&mut client, "x HOLDS 0", 0);
    b.assert_silent();
    release(&mut client, "a", 4);
    b.granted("b");
    c.assert_silent();
    assert_eq!(limit(&mut client), 6);
}

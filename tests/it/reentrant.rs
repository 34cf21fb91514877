//! What RLOCK.ACQUIRE, RLOCK.RELEASE and RLOCK.RENEW promise beyond the mutex.

use crate::support::{assert_just_began, each_protocol, until, Reply, Server};

const NOT_AN_INTEGER: &str = "ERR value is not an integer or out of range";
const SYNTAX: &str = "ERR syntax error";

#[test]
fn every_acquire_of_the_holder_adds_a_hold_and_every_release_takes_one() {
    each_protocol(|client| {
        let first = client.run("RLOCK.ACQUIRE k a");
        let fence = first.fence();
        assert_eq!(first, Reply::Array(vec![Reply::bulk("a"), Reply::Int(fence), Reply::Int(1)]));
        for holds in 2..=3 {
            let again = client.run("RLOCK.ACQUIRE k a");
            assert_eq!(again.fence(), fence, "the fence of the first hold stays");
            assert_eq!(again.items()[2].int(), holds);
            assert_eq!(client.run("LOCK.HELD k a").items()[1].int(), holds);
        }
        assert!(client.run("RLOCK.ACQUIRE k b").is_nil());
        for remaining in [2, 1, 0] {
            assert_eq!(client.run("RLOCK.RELEASE k b").int(), -1);
            assert_eq!(client.run("RLOCK.RELEASE k a").int(), remaining);
        }
        assert_eq!(client.run("EXISTS k").int(), 0);
        assert_eq!(client.run("RLOCK.RELEASE k a").int(), -1);
        assert!(client.run("RLOCK.ACQUIRE k b").fence() > fence);
    });
}

#[test]
fn refusals_are_nil_in_both_protocols() {
    let server = Server::start();
    server.client().run("RLOCK.ACQUIRE k a");
    assert_eq!(server.client().run("RLOCK.ACQUIRE k b"), Reply::NullArray);
    assert_eq!(server.client3().run("RLOCK.ACQUIRE k b"), Reply::Null);
    assert_eq!(server.client3().run("RLOCK.ACQUIRE k *"), Reply::Null);
}

#[test]
fn acquiring_again_never_shortens_the_lease() {
    let server = Server::start();
    let mut client = server.client();
    client.run("RLOCK.ACQUIRE k a PX 60000");
    let (_, deadline) = client.stored("k");
    client.run("RLOCK.ACQUIRE k a PX 1000").fence();
    assert_eq!(client.stored("k").1, deadline);
    client.run("RLOCK.ACQUIRE k a PX 200000").fence();
    assert_just_began(client.pttl("k"), 200_000);
    client.run("RLOCK.RELEASE k a");
    assert_just_began(client.pttl("k"), 200_000);
    client.run("RLOCK.ACQUIRE k a PERSIST").fence();
    client.run("RLOCK.ACQUIRE k a PX 1000").fence();
    assert_eq!(client.pttl("k"), -1);
}

#[test]
fn holds_says_how_often_and_can_be_sent_again() {
    each_protocol(|client| {
        let first = client.run("RLOCK.ACQUIRE k a HOLDS 3");
        assert_eq!(first.items()[2].int(), 3);
        assert_eq!(client.run("RLOCK.ACQUIRE k a HOLDS 3"), first);
        let again = client.run("RLOCK.ACQUIRE k a HOLDS 5");
        assert_eq!((again.fence(), again.items()[2].int()), (first.fence(), 5));
        assert!(client.run("RLOCK.ACQUIRE k b HOLDS 1").is_nil());

        assert_eq!(client.run("RLOCK.RELEASE k a HOLDS 2").int(), 2);
        assert_eq!(client.run("RLOCK.RELEASE k a HOLDS 2").int(), 2);
        assert_eq!(client.run("RLOCK.ACQUIRE k a").items()[2].int(), 3, "and the plain form counts on from there");
        assert_eq!(client.run("RLOCK.RELEASE k b HOLDS 0").int(), -1);
        assert_eq!(client.run("RLOCK.RELEASE k a HOLDS 0").int(), 0);
        assert_eq!(client.run("EXISTS k").int(), 0);
        assert_eq!(client.run("RLOCK.RELEASE k a HOLDS 0").int(), -1, "that can be sent again too");
    });
}

#[test]
fn an_acquire_takes_no_hold_away_and_a_release_adds_none() {
    let server = Server::start();
    let mut client = server.client();
    client.run("RLOCK.ACQUIRE k a HOLDS 3 PX 60000").fence();
    let before = client.stored("k");
    for line in [
        "RLOCK.ACQUIRE k a HOLDS 2",
        "RLOCK.ACQUIRE k a HOLDS 1 PX 200000",
        "RLOCK.RELEASE k a HOLDS 4",
        "RLOCK.RELEASE k a HOLDS 1000000",
    ] {
        assert!(client.run(line).error().starts_with("ERR "), "{line}");
        assert_eq!(client.stored("k"), before, "{line}");
    }
}

#[test]
fn a_renewal_restarts_the_lease_of_all_holds() {
    each_protocol(|client| {
        client.run("RLOCK.ACQUIRE k a HOLDS 2 PX 60000");
        assert_eq!(client.run("RLOCK.RENEW k a PX 200000").int(), 1);
        assert_just_began(client.pttl("k"), 200_000);
        assert_eq!(client.run("RLOCK.RENEW k a EX 20").int(), 1);
        assert_just_began(client.pttl("k"), 20_000);
        client.run("PEXPIRE k 5000");
        assert_eq!(client.run("RLOCK.RENEW k a").int(), 1);
        assert_just_began(client.pttl("k"), 20_000);
        assert_eq!(client.run("RLOCK.RENEW k b").int(), 0);
        assert_eq!(client.run("RLOCK.RENEW free a").int(), 0);
        assert_eq!(client.run("LOCK.HELD k a").items()[1].int(), 2);
        assert_eq!(client.run("RLOCK.RENEW k a PERSIST").int(), 1);
        assert_eq!(client.pttl("k"), -1);
    });
}

#[test]
fn the_end_of_the_lease_ends_every_hold() {
    let server = Server::start();
    let mut client = server.client();
    let first = client.run("RLOCK.ACQUIRE k a HOLDS 7 PX 30").fence();
    until("the lease has ended", || client.run("LOCK.HELD k a").is_nil());
    assert_eq!(client.run("RLOCK.RELEASE k a").int(), -1);
    let again = client.run("RLOCK.ACQUIRE k a");
    assert!(again.fence() > first);
    assert_eq!(again.items()[2].int(), 1);
}

#[test]
fn a_star_makes_a_new_owner() {
    let server = Server::start();
    let mut client = server.client();
    let granted = client.run("RLOCK.ACQUIRE k * HOLDS 2");
    let owner = granted.items()[0].text();
    assert_eq!(owner.len(), 36);
    assert_eq!(granted.items()[2].int(), 2);
    assert!(client.run("RLOCK.ACQUIRE k *").is_nil());
    assert_eq!(client.cmd(&["RLOCK.RELEASE", "k", owner]).int(), 1);
}

#[test]
fn info_tells_kind_and_holds() {
    each_protocol(|client| {
        let fence = client.run("RLOCK.ACQUIRE k a HOLDS 4 PX 60000").fence();
        let info = client.run("LOCK.INFO k");
        assert_eq!(info.get("kind").text(), "reentrant");
        assert_eq!(info.get("limit").int(), 1);
        assert_eq!(info.get("fence").int(), fence);
        let [holder] = info.get("holders").items() else { panic!("one holder: {info:?}") };
        assert_eq!(holder.get("owner").text(), "a");
        assert_eq!(holder.get("mode").text(), "exclusive");
        assert_eq!(holder.get("holds").int(), 4);
        assert_eq!(holder.get("lease").int(), 60_000);
    });
}

/// Requests that are wrong in form; no words where the servers have none for the mistake.
const MISTAKES: &[(&str, Option<&str>)] = &[
    ("RLOCK.ACQUIRE k a NONSENSE", Some(SYNTAX)),
    ("RLOCK.ACQUIRE k a HOLDS", Some(SYNTAX)),
    ("RLOCK.ACQUIRE k a HOLDS 4 HOLDS 4", Some(SYNTAX)),
    ("RLOCK.ACQUIRE k a PX 1000 EX 1", Some(SYNTAX)),
    ("RLOCK.ACQUIRE k a PERSIST PERSIST", Some(SYNTAX)),
    ("RLOCK.ACQUIRE k a SESSION PERSIST", Some(SYNTAX)),
    ("RLOCK.ACQUIRE k a PERMITS 1", Some(SYNTAX)),
    ("RLOCK.ACQUIRE k a NOTIFY c", Some(SYNTAX)),
    ("RLOCK.ACQUIRE k a HOLDS x", Some(NOT_AN_INTEGER)),
    ("RLOCK.ACQUIRE k a HOLDS 1.0", Some(NOT_AN_INTEGER)),
    ("RLOCK.ACQUIRE k a PX x", Some(NOT_AN_INTEGER)),
    ("RLOCK.ACQUIRE k a PX 0", Some("ERR invalid expire time in 'rlock.acquire' command")),
    ("RLOCK.ACQUIRE k a BLOCK -1", Some("ERR timeout is negative")),
    ("RLOCK.ACQUIRE k a HOLDS 0", None),
    ("RLOCK.ACQUIRE k a HOLDS -1", None),
    ("RLOCK.ACQUIRE k a HOLDS 9223372036854775808", None),
    ("RLOCK.RELEASE k a HOLDS", Some(SYNTAX)),
    ("RLOCK.RELEASE k a NONSENSE", Some(SYNTAX)),
    ("RLOCK.RELEASE k a HOLDS 0 HOLDS 0", Some(SYNTAX)),
    ("RLOCK.RELEASE k a PX 1000", Some(SYNTAX)),
    ("RLOCK.RELEASE k a HOLDS x", Some(NOT_AN_INTEGER)),
    ("RLOCK.RELEASE k a HOLDS -1", None),
    ("RLOCK.RENEW k a HOLDS 1", Some(SYNTAX)),
    ("RLOCK.RENEW k a PX", Some(SYNTAX)),
    ("RLOCK.RENEW k a EX 0", Some("ERR invalid expire time in 'rlock.renew' command")),
    ("RLOCK.ACQUIRE k", Some("ERR wrong number of arguments for 'rlock.acquire' command")),
    ("RLOCK.RELEASE k", Some("ERR wrong number of arguments for 'rlock.release' command")),
    ("RLOCK.RENEW k", Some("ERR wrong number of arguments for 'rlock.renew' command")),
];

#[test]
fn mistakes_are_answered_in_the_servers_words_and_change_nothing() {
    let server = Server::start();
    let mut client = server.client();
    for key_is_held in [false, true] {
        if key_is_held {
            client.run("RLOCK.ACQUIRE k a HOLDS 2 PX 60000").fence();
        }
        let before = client.stored("k");
        for (line, words) in MISTAKES {
            let reply = client.run(line);
            assert!(reply.is_error(), "{line}: {reply:?}");
            if let Some(words) = words {
                assert_eq!(reply.error(), *words, "{line}");
            }
            assert_eq!(client.stored("k"), before, "{line}");
        }
    }
}

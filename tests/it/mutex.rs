//! What LOCK.ACQUIRE, LOCK.RELEASE, LOCK.RENEW, LOCK.HELD and LOCK.INFO promise.

use crate::support::{assert_just_began, each_protocol, until, Client, Reply, Server};
use std::time::Instant;

const DEFAULT_LEASE_MS: i64 = 30_000;
const MAX_LEASE_MS: i64 = 31_536_000_000;

const WRONGTYPE: &str = "WRONGTYPE Operation against a key holding the wrong kind of value";
const NOT_AN_INTEGER: &str = "ERR value is not an integer or out of range";
const SYNTAX: &str = "ERR syntax error";

fn ttl_held(client: &mut Client, key: &str, token: &str) -> i64 {
    client.cmd(&["LOCK.HELD", key, token]).items()[2].int()
}

#[test]
fn one_token_holds_until_it_releases() {
    each_protocol(|client| {
        let granted = client.run("LOCK.ACQUIRE k a");
        assert_eq!(granted.items().len(), 2, "{granted:?}");
        assert_eq!(granted.items()[0].text(), "a");
        granted.fence();
        assert!(client.run("LOCK.ACQUIRE k b").is_nil());

        assert_eq!(client.run("LOCK.RELEASE k b").int(), 0);
        assert_eq!(client.run("LOCK.RELEASE k a").int(), 1);
        assert_eq!(client.run("LOCK.RELEASE k a").int(), 0);
        assert_eq!(client.run("EXISTS k").int(), 0);

        client.run("LOCK.ACQUIRE k b").fence();
        assert!(client.run("LOCK.ACQUIRE k a").is_nil());
    });
}

#[test]
fn a_refusal_is_a_null_array_in_resp2_and_the_null_in_resp3() {
    let server = Server::start();
    for (mut client, nil) in [(server.client(), Reply::NullArray), (server.client3(), Reply::Null)] {
        client.run("LOCK.ACQUIRE k a");
        assert_eq!(client.run("LOCK.ACQUIRE k b"), nil);
        assert_eq!(client.run("LOCK.ACQUIRE k *"), nil);
        assert_eq!(client.run("LOCK.HELD k b"), nil);
        assert_eq!(client.run("LOCK.HELD free b"), nil);
        assert_eq!(client.run("LOCK.INFO free"), nil);
    }
}

#[test]
fn the_token_and_the_fence_come_as_string_and_integer() {
    each_protocol(|client| {
        let granted = client.run("LOCK.ACQUIRE k a");
        let Reply::Array(parts) = &granted else { panic!("{granted:?}") };
        assert!(matches!(parts.as_slice(), [Reply::Bulk(_), Reply::Int(_)]), "{granted:?}");
        let held = client.run("LOCK.HELD k a");
        let Reply::Array(parts) = &held else { panic!("{held:?}") };
        assert!(matches!(parts.as_slice(), [Reply::Int(_), Reply::Int(1), Reply::Int(_)]), "{held:?}");
    });
}

#[test]
fn databases_do_not_share_locks() {
    let server = Server::start();
    let mut client = server.client();
    client.run("LOCK.ACQUIRE k a").fence();
    client.run("SELECT 1");
    client.run("LOCK.ACQUIRE k b").fence();
    client.run("LOCK.RELEASE k b");
    client.run("SELECT 0");
    assert!(!client.run("LOCK.HELD k a").is_nil());
}

#[test]
fn a_star_makes_a_new_random_uuid() {
    let server = Server::start();
    let mut client = server.client();
    let first = client.run("LOCK.ACQUIRE k1 *");
    let second = client.run("LOCK.ACQUIRE k2 *");
    let token = first.items()[0].text();
    assert_ne!(token, second.items()[0].text());
    assert_eq!(token.len(), 36);
    for (at, character) in token.char_indices() {
        match at {
            8 | 13 | 18 | 23 => assert_eq!(character, '-', "{token}"),
            14 => assert_eq!(character, '4', "version 4: {token}"),
            19 => assert!("89ab".contains(character), "the variant of RFC 9562: {token}"),
            _ => assert!(matches!(character, '0'..='9' | 'a'..='f'), "{token}"),
        }
    }
    assert!(client.run("LOCK.ACQUIRE k1 *").is_nil(), "it is a new owner each time");
    assert_eq!(client.run("LOCK.RELEASE k1 *").int(), 0, "it is no wildcard");
    assert_eq!(client.cmd(&["LOCK.RELEASE", "k1", token]).int(), 1);
}

#[test]
fn a_token_is_any_1_to_1024_bytes() {
    let server = Server::start();
    let mut client = server.client();
    let every_byte: Vec<u8> = (0..=255).collect();
    for token in [&b"t"[..], b"\0", b"\r\n", b"\xff\xfe", b"**", b" ", &every_byte, &[b'x'; 1024]] {
        let granted = client.cmd(&[b"LOCK.ACQUIRE", &b"k"[..], token]);
        granted.fence();
        assert_eq!(granted.items()[0].bytes(), token);
        assert!(!client.cmd(&[b"LOCK.HELD", &b"k"[..], token]).is_nil());
        assert_eq!(client.run("LOCK.INFO k").get("holders").items()[0].get("owner").bytes(), token);
        assert_eq!(client.cmd(&[b"LOCK.RENEW", &b"k"[..], token]).int(), 1);
        assert_eq!(client.cmd(&[b"LOCK.RELEASE", &b"k"[..], token]).int(), 1);
    }
    for token in [&b""[..], &[b'x'; 1025]] {
        assert!(client.cmd(&[b"LOCK.ACQUIRE", &b"k"[..], token]).error().starts_with("ERR "));
        assert_eq!(client.run("EXISTS k").int(), 0);
    }
}

#[test]
fn tokens_are_compared_byte_by_byte() {
    let server = Server::start();
    let mut client = server.client();
    client.cmd(&[&b"LOCK.ACQUIRE"[..], b"k", b"a\0b"]).fence();
    for other in [&b"a"[..], b"a\0", b"a\0c", b"a\0b\0", b"A\0b"] {
        assert!(client.cmd(&[&b"LOCK.ACQUIRE"[..], b"k", other]).is_nil());
        assert_eq!(client.cmd(&[&b"LOCK.RELEASE"[..], b"k", other]).int(), 0);
    }
    assert_eq!(client.cmd(&[&b"LOCK.RELEASE"[..], b"k", b"a\0b"]).int(), 1);
}

#[test]
fn a_lease_is_given_in_seconds_in_milliseconds_for_ever_or_left_out() {
    let server = Server::start();
    let mut client = server.client();
    for (lease, expected_ms) in [("EX 100", 100_000), ("PX 100000", 100_000), ("", DEFAULT_LEASE_MS)] {
        client.run(&format!("LOCK.ACQUIRE k a {lease}")).fence();
        assert_just_began(client.pttl("k"), expected_ms);
        assert_just_began(ttl_held(&mut client, "k", "a"), expected_ms);
        client.run("LOCK.RELEASE k a");
    }
    client.run("LOCK.ACQUIRE k a PERSIST").fence();
    assert_eq!(client.pttl("k"), -1);
    assert_eq!(ttl_held(&mut client, "k", "a"), -1);
}

#[test]
fn a_lease_lasts_1_ms_to_max_lease() {
    let server = Server::start();
    let mut client = server.client();
    client.run("LOCK.ACQUIRE short a PX 1").fence();
    client.run(&format!("LOCK.ACQUIRE long a PX {MAX_LEASE_MS}")).fence();
    assert_just_began(client.pttl("long"), MAX_LEASE_MS);
    client.run(&format!("LOCK.RENEW long a EX {}", MAX_LEASE_MS / 1000));
    assert_just_began(client.pttl("long"), MAX_LEASE_MS);

    let too_long = (MAX_LEASE_MS + 1).to_string();
    let too_long_s = (MAX_LEASE_MS / 1000 + 1).to_string();
    let max = i64::MAX.to_string();
    let before = client.stored("long");
    for lease in [
        ["PX", "0"],
        ["PX", "-1"],
        ["EX", "0"],
        ["EX", "-5"],
        ["PX", &too_long],
        ["EX", &too_long_s],
        // A thousand times this is more than an integer holds.
        ["EX", &max],
        ["PX", &max],
    ] {
        for (command, name) in [("LOCK.ACQUIRE", "lock.acquire"), ("LOCK.RENEW", "lock.renew")] {
            let reply = client.cmd(&[command, "long", "a", lease[0], lease[1]]);
            assert_eq!(reply.error(), format!("ERR invalid expire time in '{name}' command"), "{lease:?}");
        }
        assert_eq!(client.stored("long"), before);
    }
}

#[test]
fn max_lease_can_be_lowered_and_then_refuses_locks_for_ever() {
    let server = Server::start();
    let mut client = server.client();
    client.run("LOCK.ACQUIRE old a PERSIST").fence();
    assert_eq!(client.run("CONFIG SET lock.max-lease 60000"), Reply::ok());
    client.run("LOCK.ACQUIRE k a PX 60000").fence();
    let before = client.stored("k");
    for line in
        ["LOCK.ACQUIRE k a PX 60001", "LOCK.ACQUIRE k a EX 61", "LOCK.ACQUIRE k a PERSIST", "LOCK.RENEW k a PERSIST"]
    {
        assert!(client.run(line).is_error(), "{line}");
        assert_eq!(client.stored("k"), before, "{line}");
    }
    assert!(client.run("LOCK.ACQUIRE free a PERSIST").is_error());
    assert_eq!(client.run("EXISTS free").int(), 0);
    assert_eq!(client.pttl("old"), -1, "a lease that was granted stays as it is");
}

#[test]
fn a_lock_whose_lease_has_ended_is_free() {
    let server = Server::start();
    let mut client = server.client();
    let first = client.run("LOCK.ACQUIRE k a PX 30").fence();
    until("the lease has ended", || client.run("LOCK.HELD k a").is_nil());
    assert_eq!(client.run("EXISTS k").int(), 0);
    assert!(client.run("LOCK.INFO k").is_nil());
    assert_eq!(client.run("LOCK.RENEW k a").int(), 0);
    let second = client.run("LOCK.ACQUIRE k b").fence();
    assert!(second > first);
    assert_eq!(client.run("LOCK.RELEASE k a").int(), 0);
    assert!(!client.run("LOCK.HELD k b").is_nil());
}

#[test]
fn acquiring_again_is_a_safe_retry() {
    let server = Server::start();
    let mut client = server.client();
    let first = client.run("LOCK.ACQUIRE k a PX 60000");
    assert_eq!(client.run("LOCK.ACQUIRE k a PX 60000"), first, "the same token and fence");
    assert_eq!(client.run("LOCK.ACQUIRE k a"), first);
    assert_eq!(client.run("LOCK.RELEASE k a").int(), 1, "one release frees it");
    assert_eq!(client.run("EXISTS k").int(), 0);
}

#[test]
fn a_retry_keeps_the_later_deadline() {
    let server = Server::start();
    let mut client = server.client();
    client.run("LOCK.ACQUIRE k a PX 60000");
    let (_, deadline) = client.stored("k");
    client.run("LOCK.ACQUIRE k a PX 1000").fence();
    assert_eq!(client.stored("k").1, deadline, "a shorter lease takes nothing away");
    client.run("LOCK.ACQUIRE k a PX 120000").fence();
    assert_just_began(client.pttl("k"), 120_000);
    client.run("LOCK.ACQUIRE k a PERSIST").fence();
    assert_eq!(client.pttl("k"), -1);
    client.run("LOCK.ACQUIRE k a PX 1000").fence();
    assert_eq!(client.pttl("k"), -1, "nothing is later than never");
}

#[test]
fn a_renewal_starts_the_lease_again_from_now() {
    each_protocol(|client| {
        let granted = client.run("LOCK.ACQUIRE k a PX 60000");
        assert_eq!(client.run("LOCK.RENEW k a PX 200000").int(), 1);
        assert_just_began(client.pttl("k"), 200_000);
        // Unlike a retry it may shorten: the holder says so.
        assert_eq!(client.run("LOCK.RENEW k a EX 20").int(), 1);
        assert_just_began(client.pttl("k"), 20_000);
        assert_eq!(client.run("LOCK.RENEW k a PERSIST").int(), 1);
        assert_eq!(client.pttl("k"), -1);
        assert_eq!(client.run("LOCK.HELD k a").items()[0].int(), granted.fence());
    });
}

#[test]
fn a_renewal_without_a_time_uses_the_length_last_given() {
    let server = Server::start();
    let mut client = server.client();
    client.run("LOCK.ACQUIRE k a PX 100000");
    client.run("PEXPIRE k 5000");
    assert_eq!(client.run("LOCK.RENEW k a").int(), 1);
    assert_just_began(client.pttl("k"), 100_000);
    client.run("LOCK.RENEW k a PX 200000");
    client.run("PEXPIRE k 5000");
    assert_eq!(client.run("LOCK.RENEW k a").int(), 1);
    assert_just_began(client.pttl("k"), 200_000);
    client.run("LOCK.RENEW k a PERSIST");
    assert_eq!(client.run("LOCK.RENEW k a").int(), 1);
    assert_eq!(client.pttl("k"), -1);

    client.run("LOCK.ACQUIRE default a");
    client.run("PEXPIRE default 5000");
    assert_eq!(client.run("LOCK.RENEW default a").int(), 1);
    assert_just_began(client.pttl("default"), DEFAULT_LEASE_MS);
}

#[test]
fn only_the_holder_renews() {
    let server = Server::start();
    let mut client = server.client();
    assert_eq!(client.run("LOCK.RENEW k a PX 1000").int(), 0);
    assert_eq!(client.run("EXISTS k").int(), 0);
    client.run("LOCK.ACQUIRE k a PX 60000");
    let before = client.stored("k");
    assert_eq!(client.run("LOCK.RENEW k b PX 200000").int(), 0);
    assert_eq!(client.run("LOCK.RENEW k b").int(), 0);
    assert_eq!(client.stored("k"), before);
}

#[test]
fn the_keys_time_to_live_is_the_lease() {
    let server = Server::start();
    let mut client = server.client();
    client.run("LOCK.ACQUIRE k a PX 60000");
    for (line, expected_ms) in [("EXPIRE k 200", 200_000), ("PEXPIRE k 50000", 50_000), ("EXPIRE k 300", 300_000)] {
        assert_eq!(client.run(line).int(), 1);
        assert_just_began(ttl_held(&mut client, "k", "a"), expected_ms);
        let info = client.run("LOCK.INFO k");
        assert_just_began(info.get("ttl").int(), expected_ms);
        assert_just_began(info.get("holders").items()[0].get("ttl").int(), expected_ms);
        assert_just_began(client.pttl("k"), expected_ms);
    }
    assert_eq!(client.run("PERSIST k").int(), 1);
    assert_eq!(ttl_held(&mut client, "k", "a"), -1);
    assert_eq!(client.run("LOCK.INFO k").get("ttl").int(), -1);
    assert_eq!(client.run("LOCK.INFO k").get("holders").items()[0].get("ttl").int(), -1);
    assert!(client.run("LOCK.ACQUIRE k b").is_nil());

    let past = client.run("PEXPIREAT k 1").int();
    assert_eq!(past, 1);
    assert!(client.run("LOCK.HELD k a").is_nil());
    client.run("LOCK.ACQUIRE k b").fence();
}

#[test]
fn a_lease_that_expire_shortened_ends_early() {
    let server = Server::start();
    let mut client = server.client();
    client.run("LOCK.ACQUIRE k a PERSIST");
    client.run("PEXPIRE k 20");
    until("another is granted it", || !client.run("LOCK.ACQUIRE k b").is_nil());
    assert!(client.run("LOCK.HELD k a").is_nil());
}

#[test]
fn a_lock_can_be_deleted_like_any_key() {
    let server = Server::start();
    let mut client = server.client();
    for line in ["DEL k", "UNLINK k"] {
        client.run("LOCK.ACQUIRE k a");
        assert_eq!(client.run(line).int(), 1);
        assert!(client.run("LOCK.HELD k a").is_nil());
        assert_eq!(client.run("LOCK.RELEASE k a").int(), 0);
    }
    for line in ["FLUSHDB", "FLUSHALL", "SET k v"] {
        client.run("LOCK.ACQUIRE k a").fence();
        assert_eq!(client.run(line), Reply::ok());
    }
    assert_eq!(client.run("LOCK.ACQUIRE k a").error(), WRONGTYPE);
}

#[test]
fn names_and_options_come_in_any_case_and_order() {
    let server = Server::start();
    let mut client = server.client();
    for line in [
        "lock.acquire k a px 100000",
        "Lock.Acquire k a Ex 100",
        "LOCK.ACQUIRE k a block 1 PX 100000",
        "LOCK.ACQUIRE k a PX 100000 BlocK 0",
        "LOCK.ACQUIRE k a BLOCK 5 eX 100",
    ] {
        client.run(line).fence();
        assert_just_began(client.pttl("k"), 100_000);
        assert_eq!(client.run("lock.renew k a persist").int(), 1);
        assert_eq!(client.run("lOCK.rELEASE k a").int(), 1);
    }
    // Where a token is expected, a word is a token.
    client.run("LOCK.ACQUIRE k PX PX 100000").fence();
    assert!(!client.run("LOCK.HELD k PX").is_nil());
}

#[test]
fn commands_work_in_a_transaction_with_others() {
    let server = Server::start();
    let mut client = server.client();
    for line in ["MULTI", "LOCK.ACQUIRE k a", "SET v 1", "LOCK.HELD k a", "LOCK.RELEASE k a", "LOCK.INFO k"] {
        client.run(line);
    }
    let replies = client.run("EXEC");
    let fence = replies.items()[0].fence();
    assert_eq!(replies.items()[2].items()[0].int(), fence);
    assert_eq!(replies.items()[3].int(), 1);
    assert!(replies.items()[4].is_nil());
}

#[test]
fn another_type_is_wrongtype() {
    let server = Server::start();
    let mut client = server.client();
    client.run("SET k v");
    for line in [
        "LOCK.ACQUIRE k a",
        "LOCK.ACQUIRE k * BLOCK 0",
        "LOCK.RELEASE k a",
        "LOCK.RENEW k a",
        "LOCK.HELD k a",
        "LOCK.INFO k",
    ] {
        assert_eq!(client.run(line).error(), WRONGTYPE, "{line}");
    }
    assert_eq!(client.run("GET k").text(), "v");
    client.run("LOCK.ACQUIRE lock a");
    assert_eq!(client.run("GET lock").error(), WRONGTYPE, "and a lock is another type for the others");
}

#[test]
fn arity_is_answered_in_the_servers_words() {
    let server = Server::start();
    let mut client = server.client();
    for line in [
        "LOCK.ACQUIRE",
        "LOCK.ACQUIRE k",
        "LOCK.RELEASE",
        "LOCK.RELEASE k",
        "LOCK.RELEASE k a b",
        "LOCK.RENEW",
        "LOCK.RENEW k",
        "LOCK.HELD k",
        "LOCK.HELD k a b",
        "LOCK.INFO",
    ] {
        let name = line.split(' ').next().expect("a line has words").to_lowercase();
        let expected = format!("ERR wrong number of arguments for '{name}' command");
        assert_eq!(client.run(line).error(), expected, "{line}");
    }
}

/// Requests that are wrong in form, with the words of the server for that mistake.
const MISTAKES: &[(&str, &str)] = &[
    ("LOCK.ACQUIRE k a NONSENSE", SYNTAX),
    ("LOCK.ACQUIRE k a PX", SYNTAX),
    ("LOCK.ACQUIRE k a EX", SYNTAX),
    ("LOCK.ACQUIRE k a BLOCK", SYNTAX),
    ("LOCK.ACQUIRE k a BLOCK 1 NOTIFY", SYNTAX),
    ("LOCK.ACQUIRE k a NOTIFY channel", SYNTAX),
    ("LOCK.ACQUIRE k a NX", SYNTAX),
    ("LOCK.ACQUIRE k a 5000", SYNTAX),
    ("LOCK.ACQUIRE k a HOLDS 1", SYNTAX),
    ("LOCK.ACQUIRE k a READ", SYNTAX),
    ("LOCK.ACQUIRE k a LIMIT 2", SYNTAX),
    ("LOCK.ACQUIRE k a PX 1000 PX 1000", SYNTAX),
    ("LOCK.ACQUIRE k a EX 1 EX 1", SYNTAX),
    ("LOCK.ACQUIRE k a PX 1000 EX 1", SYNTAX),
    ("LOCK.ACQUIRE k a PX 1000 PERSIST", SYNTAX),
    ("LOCK.ACQUIRE k a PERSIST EX 1", SYNTAX),
    ("LOCK.ACQUIRE k a PERSIST PERSIST", SYNTAX),
    ("LOCK.ACQUIRE k a BLOCK 1 BLOCK 1", SYNTAX),
    ("LOCK.ACQUIRE k a BLOCK 1 NOTIFY c NOTIFY c", SYNTAX),
    ("LOCK.ACQUIRE k a SESSION SESSION", SYNTAX),
    ("LOCK.ACQUIRE k a SESSION PERSIST", SYNTAX),
    ("LOCK.ACQUIRE k a PERSIST BLOCK 1 SESSION", SYNTAX),
    ("LOCK.ACQUIRE k a PX 1.5", NOT_AN_INTEGER),
    ("LOCK.ACQUIRE k a PX x", NOT_AN_INTEGER),
    ("LOCK.ACQUIRE k a PX +1", NOT_AN_INTEGER),
    ("LOCK.ACQUIRE k a PX 007", NOT_AN_INTEGER),
    ("LOCK.ACQUIRE k a EX 9223372036854775808", NOT_AN_INTEGER),
    ("LOCK.ACQUIRE k a PX -99999999999999999999", NOT_AN_INTEGER),
    ("LOCK.ACQUIRE k a BLOCK -1", "ERR timeout is negative"),
    ("LOCK.ACQUIRE k a BLOCK x", "ERR timeout is not an integer or out of range"),
    ("LOCK.ACQUIRE k a BLOCK 0.5", "ERR timeout is not an integer or out of range"),
    ("LOCK.RENEW k a NONSENSE", SYNTAX),
    ("LOCK.RENEW k a PX", SYNTAX),
    ("LOCK.RENEW k a PX 1000 EX 1", SYNTAX),
    ("LOCK.RENEW k a PERSIST PERSIST", SYNTAX),
    ("LOCK.RENEW k a BLOCK 1", SYNTAX),
    ("LOCK.RENEW k a SESSION", SYNTAX),
    ("LOCK.RENEW k a PX x", NOT_AN_INTEGER),
];

#[test]
fn mistakes_are_answered_in_the_servers_words_and_change_nothing() {
    let server = Server::start();
    let mut client = server.client();
    for key_is_held in [false, true] {
        if key_is_held {
            client.run("LOCK.ACQUIRE k a PX 60000").fence();
        }
        let before = client.stored("k");
        for (line, words) in MISTAKES {
            assert_eq!(client.run(line).error(), *words, "{line}");
            assert_eq!(client.stored("k"), before, "{line}");
        }
    }
    assert_eq!(client.run("DBSIZE").int(), 1);
}

#[test]
fn held_tells_fence_holds_and_the_time_left() {
    each_protocol(|client| {
        let fence = client.run("LOCK.ACQUIRE k a PX 60000").fence();
        let held = client.run("LOCK.HELD k a");
        assert_eq!(held.items().len(), 3);
        assert_eq!(held.items()[0].int(), fence);
        assert_eq!(held.items()[1].int(), 1);
        assert_just_began(held.items()[2].int(), 60_000);
        assert!(client.run("LOCK.HELD k b").is_nil());
        assert!(client.run("LOCK.HELD free a").is_nil());
    });
}

#[test]
fn info_shows_the_lock_in_a_fixed_order() {
    each_protocol(|client| {
        let fence = client.run("LOCK.ACQUIRE k a PX 60000").fence();
        let info = client.run("LOCK.INFO k");
        let fields: Vec<&str> = info.pairs().iter().map(|(name, _)| name.text()).collect();
        assert_eq!(fields, ["kind", "limit", "fence", "ttl", "holders", "waiters", "holding"]);
        assert_eq!(info.get("kind").text(), "mutex");
        assert_eq!(info.get("limit").int(), 1);
        assert_eq!(info.get("fence").int(), fence);
        assert_just_began(info.get("ttl").int(), 60_000);
        assert_eq!(info.get("waiters").int(), 0);
        assert_eq!(info.get("holding").int(), 1);

        let [holder] = info.get("holders").items() else { panic!("one holder: {info:?}") };
        let fields: Vec<&str> = holder.pairs().iter().map(|(name, _)| name.text()).collect();
        assert_eq!(fields, ["owner", "mode", "holds", "fence", "ttl", "lease", "age", "session"]);
        assert_eq!(holder.get("owner").text(), "a");
        assert_eq!(holder.get("mode").text(), "exclusive");
        assert_eq!(holder.get("holds").int(), 1);
        assert_eq!(holder.get("fence").int(), fence);
        assert_just_began(holder.get("ttl").int(), 60_000);
        assert_eq!(holder.get("lease").int(), 60_000);
        assert!((0..10_000).contains(&holder.get("age").int()), "{holder:?}");
        assert_eq!(holder.get("session").int(), 0);
    });
}

#[test]
fn info_is_a_map_in_resp3_and_a_flat_array_in_resp2() {
    let server = Server::start();
    server.client().run("LOCK.ACQUIRE k a");
    let Reply::Array(flat) = server.client().run("LOCK.INFO k") else { panic!("an array in RESP2") };
    assert_eq!(flat.len(), 14);
    let Reply::Map(fields) = server.client3().run("LOCK.INFO k") else { panic!("a map in RESP3") };
    assert_eq!(fields.len(), 7);
}

#[test]
fn the_age_of_a_hold_counts_from_its_grant() {
    let server = Server::start();
    let mut client = server.client();
    let age = |client: &mut Client| client.run("LOCK.INFO k").get("holders").items()[0].get("age").int();
    client.run("LOCK.ACQUIRE k a");
    until("the hold is 30 ms old", || age(&mut client) >= 30);
    client.run("LOCK.RENEW k a");
    client.run("LOCK.ACQUIRE k a");
    assert!(age(&mut client) >= 30, "neither a renewal nor a retry makes it young");
    client.run("LOCK.RELEASE k a");
    let before = Instant::now();
    client.run("LOCK.ACQUIRE k b");
    let age = u128::try_from(age(&mut client)).expect("an age is positive");
    assert!(age <= before.elapsed().as_millis() + 1, "the next hold begins with its own grant");
}

//! Native holds on adopted keys, and what real libraries send that would end them. Each sequence was taken from the
//! library's source; without protection each ends the native client's lock.

use super::*;
use crate::info::field;
use crate::support::cluster::single_node_of;
use crate::support::stored::rewrite_aof;
use crate::support::waiting::hold;
use crate::support::{in_sync, until};

/// What a library sends while a native client holds its key, and the replies. `{}` is the holder's token.
struct Attempt {
    library: &'static str,
    lines: &'static [(&'static str, Answer)],
}

enum Answer {
    Integer(i64),
    Nil,
    /// The token of the native holder.
    Token,
    TryAgain,
}

use Answer::{Integer, Nil, Token, TryAgain};

/// The value is a timestamp. A token that is not a number is read as 0, and so as a timestamp in the past.
const TAKE_OVER: &[Attempt] = &[
    Attempt {
        library: "redis-mutex, resque-lock-timeout, redis-objects",
        lines: &[
            ("SETNX lock:k 1795890246.02", Integer(0)),
            ("GET lock:k", Token),
            ("GETSET lock:k 1795890246.02", Token),
        ],
    },
    Attempt {
        library: "jedis-lock",
        lines: &[
            ("SETNX lock:k 1795890246020", Integer(0)),
            ("GET lock:k", Token),
            ("GETSET lock:k 1795890246020", Token),
        ],
    },
    Attempt { library: "a refresh without a comparison", lines: &[("SETEX lock:k 60 mine", TryAgain)] },
    Attempt { library: "the same, in ms", lines: &[("PSETEX lock:k 60000 mine", TryAgain)] },
    Attempt { library: "ShedLock's update", lines: &[("SET lock:k mine XX PX 60000", TryAgain)] },
    Attempt { library: "rueidislock, forced", lines: &[("SET lock:k mine PXAT 99999999999999", TryAgain)] },
    Attempt { library: "bsm/redislock", lines: &[("MSETNX lock:k mine", Integer(0)), ("MSET lock:k mine", TryAgain)] },
];

/// Releases that do not compare the token, after the lease of the library's own hold has expired.
const LATE_RELEASES_WITHOUT_TOKEN: &[Attempt] = &[
    Attempt { library: "celery-once, rq, npm redis-lock", lines: &[("DEL lock:k", Integer(0))] },
    Attempt {
        library: "huey, cache.add of Django and Laravel",
        lines: &[("DEL lock:k", Integer(0)), ("GET lock:k", Token)],
    },
    Attempt { library: "Spring", lines: &[("UNLINK lock:k", Integer(0))] },
    Attempt { library: "jetcache, lock4j", lines: &[("GETDEL lock:k", Nil)] },
];

#[track_caller]
fn assert_replies(library: &str, line: &str, answer: &Answer, reply: &Reply) {
    let is_as_expected = match answer {
        Integer(expected) => *reply == Reply::Int(*expected),
        Nil => is_null(reply),
        Token => reply.is_bulk("native"),
        TryAgain => matches!(reply, Reply::Error(error) if error.starts_with("TRYAGAIN ")),
    };
    assert!(is_as_expected, "{library}: {line}: {reply:?}");
}

#[track_caller]
fn assert_is_protected(attempts: &[Attempt]) {
    let server = adopting();
    let (mut native, mut old) = (server.client(), server.client());
    old.run("CLIENT SETNAME old");
    let (id, address) = (old.id(), old.address());
    for Attempt { library, lines } in attempts {
        let fence = native.run("LOCK.ACQUIRE lock:k native PX 60000").fence();
        let before = field(&server, "adopted_protected");
        native.run("LOCK.LOG RESET");
        for (line, answer) in *lines {
            let reply = old.run(line);
            assert_replies(library, line, answer, &reply);
        }
        let held = native.run("LOCK.HELD lock:k native");
        assert_eq!(held.items()[0].int(), fence, "{library}: it is held as before");
        assert!(held.items()[2].int() > 50_000, "{library}: nor was its lease changed");
        assert_eq!(field(&server, "adopted_protected"), before + 1, "{library}");
        let log = native.run("LOCK.LOG GET");
        let [entry] = log.items() else { panic!("{library}: {log:?}") };
        let text = |name: &str| entry.get(name).text().to_string();
        assert_eq!((text("event"), text("key"), text("owner")), ("protected".into(), "lock:k".into(), "native".into()));
        assert_eq!((entry.get("client").int(), text("addr")), (id, address.clone()), "{library}");
        assert_eq!(native.run("LOCK.RELEASE lock:k native").int(), 1, "{library}");
    }
}

#[test]
fn a_library_that_uses_timestamps_does_not_replace_a_native_hold() {
    assert_is_protected(TAKE_OVER);
}

#[test]
fn a_late_release_without_comparing_the_token_releases_no_native_hold() {
    assert_is_protected(LATE_RELEASES_WITHOUT_TOKEN);
}

/// Among themselves, clients of one library behave as before.
#[test]
fn adopted_holds_are_replaced_and_released_as_before() {
    let server = adopting();
    let mut client = server.client();
    for (line, reply) in [
        ("SETNX lock:k 5", Reply::Int(1)),
        ("GETSET lock:k 9", Reply::bulk("5")),
        ("SETEX lock:k 60 mine", Reply::ok()),
        ("DEL lock:k", Reply::Int(1)),
        ("SETNX lock:k 5", Reply::Int(1)),
        ("GETDEL lock:k", Reply::bulk("5")),
    ] {
        assert_eq!(client.run(line), reply, "{line}");
    }
    assert_eq!(field(&server, "adopted_protected"), 0);
}

/// The first connection holds a lock through its library; it expires while its task runs, and the native waiter is
/// granted it.
#[test]
fn the_native_successor_of_an_expired_lock_keeps_it() {
    let server = adopting();
    let (mut old, mut native) = (server.client(), server.client());
    assert_eq!(old.run("SET lock:k token NX PX 20"), Reply::ok());
    assert!(native.run("LOCK.ACQUIRE lock:k native PX 60000 BLOCK 0").fence() > 0);
    assert_eq!(old.run("DEL lock:k"), Reply::Int(0), "the late release");
    assert!(native.run("LOCK.HELD lock:k native").items()[0].int() > 0);
    assert!(!compare_and_delete(&mut old, "lock:k", "token"));
}

#[test]
fn a_value_over_1024_bytes_replaces_no_lock() {
    let server = adopting();
    let (mut client, long) = (server.client(), "x".repeat(1_025));
    hold(&mut client, "lock:k", "native");
    assert!(set_nx(&mut client, "lock:l", "adopted"));
    for key in ["lock:k", "lock:l"] {
        for words in [&["SET", key, &long][..], &["SETEX", key, "9", &long], &["MSET", key, &long, "x", "1"]] {
            assert!(client.cmd(words).error().starts_with("TRYAGAIN "), "{key} {}", words[0]);
        }
        let holder = client.run(&format!("GET {key}"));
        assert_eq!(client.cmd(&["GETSET", key, &long]), holder);
        assert_eq!(type_of(&mut client, key), "redislock");
    }
    assert_eq!(client.cmd(&["SET", "lock:free", &long]), Reply::ok());
    assert_eq!(type_of(&mut client, "lock:free"), "string");
}

/// A native and an adopted hold, each of a mutex and of a reentrant mutex; and one that has become native.
fn hold_all(client: &mut Client) {
    hold(client, "lock:native", "native");
    assert!(set_nx(client, "lock:adopted", "adopted"));
    assert!(client.run("RLOCK.ACQUIRE h:native native PX 60000").fence() > 0);
    assert_eq!(client.run("HSET h:adopted adopted 1"), Reply::Int(1));
    assert!(set_nx(client, "lock:both", "native"));
    hold(client, "lock:both", "native");
}

#[track_caller]
fn assert_only_native_are_protected(client: &mut Client) {
    for key in ["lock:native", "lock:both", "h:native"] {
        assert_eq!(client.run(&format!("DEL {key}")), Reply::Int(0), "{key}");
    }
    assert_eq!(client.run("GETSET lock:both mine"), Reply::bulk("native"));
    for key in ["lock:adopted", "h:adopted"] {
        assert_eq!(client.run(&format!("DEL {key}")), Reply::Int(1), "{key}");
    }
}

const PATTERNS: &str = "lock.adopt lock:* hash:h:*";

#[test]
fn protection_survives_a_restart_from_every_file() {
    for file in ["rdb", "aof", "rewritten aof"] {
        let builder = Server::builder().config(PATTERNS);
        let mut server = match file {
            "rdb" => builder.config("dbfilename dump.rdb").start(),
            _ => builder.appendonly().config("appendfsync always").config("aof-use-rdb-preamble no").start(),
        };
        hold_all(&mut server.client());
        match file {
            "rdb" => assert_eq!(server.client().run("SAVE"), Reply::ok()),
            "aof" => {}
            _ => rewrite_aof(&server),
        }
        server.kill();
        server.restart();
        assert_only_native_are_protected(&mut server.client());
    }
}

#[test]
fn protection_survives_a_failover() {
    for is_full in [false, true] {
        let primary = Server::builder().config(PATTERNS).start();
        if is_full {
            hold_all(&mut primary.client());
        }
        let replica = Server::builder().config(PATTERNS).replica_of(&primary).start();
        in_sync(&primary, &replica);
        if !is_full {
            hold_all(&mut primary.client());
            in_sync(&primary, &replica);
        }
        let mut client = replica.client();
        client.run("REPLICAOF NO ONE");
        until("it is the primary", || client.run("ROLE").items()[0].is_bulk("master"));
        assert_only_native_are_protected(&mut client);
    }
}

/// DEL is not translated if it is an effect: native releases reach a replica that adopts.
#[test]
fn a_replica_that_adopts_follows_every_removal() {
    let primary = Server::builder().config(PATTERNS).start();
    let replica = Server::builder().config(PATTERNS).replica_of(&primary).start();
    in_sync(&primary, &replica);
    let mut client = primary.client();
    hold_all(&mut client);
    for line in ["LOCK.RELEASE lock:native native", "LOCK.BREAK lock:both", "RLOCK.RELEASE h:native native"] {
        assert!(!client.run(line).is_error(), "{line}");
    }
    assert_eq!(client.run("DEL lock:adopted h:adopted"), Reply::Int(2));
    in_sync(&primary, &replica);
    assert_eq!(replica.client().run("DBSIZE"), Reply::Int(0));
}

#[test]
fn in_a_cluster_multiple_keys_of_one_slot_are_deleted_except_the_native_one() {
    let server = single_node_of(Server::builder().config(PATTERNS));
    let mut client = server.client();
    hold(&mut client, "lock:{s}k", "native");
    assert!(set_nx(&mut client, "lock:{s}l", "adopted"));
    assert_eq!(client.run("SET {s}x 1"), Reply::ok());
    assert_eq!(client.run("DEL {s}x lock:{s}k lock:{s}l"), Reply::Int(2));
    assert!(client.run("DEL lock:{s}k lock:other").error().starts_with("CROSSSLOT "));
    assert!(client.run("LOCK.HELD lock:{s}k native").items()[0].int() > 0);
}

/// A user needs permission for DEL and for LOCK.ADOPTED, as with every translated command.
#[test]
fn an_error_names_the_command() {
    let server = adopting();
    let rules = "ACL SETUSER u reset on nopass ~lock:* +del";
    assert_eq!(server.client().run(rules), Reply::ok());
    let mut client = server.client();
    client.run("AUTH u any");
    let refused = client.run("DEL lock:k");
    assert!(refused.error().starts_with("NOPERM ") && refused.error().contains("lock.adopted|del"), "{refused:?}");
    assert_eq!(server.client().run("ACL SETUSER u +lock.adopted"), Reply::ok());
    assert_eq!(client.run("DEL lock:k"), Reply::Int(0));
}

/// Only servers that have `SET … IFEQ` and DELEX.
#[test]
fn a_comparison_with_the_holders_token_replaces_no_hold() {
    let server = adopting();
    let mut client = server.client();
    hold(&mut client, "lock:k", "native");
    let swapped = client.run("SET lock:k other IFEQ native");
    if swapped.error().starts_with("ERR syntax") {
        return crate::support::skip::skip("the server has no IFEQ");
    }
    assert!(swapped.error().starts_with("TRYAGAIN "), "{swapped:?}");
    assert_eq!(client.run("SET lock:k native IFEQ native PX 60000"), Reply::ok());
    let deleted = client.run("DELEX lock:k");
    assert!(deleted == Reply::Int(0) || deleted.error().starts_with("ERR unknown command"), "{deleted:?}");
    assert!(client.run("LOCK.HELD lock:k native").items()[0].int() > 0);
}

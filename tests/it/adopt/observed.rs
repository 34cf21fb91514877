//! `lock.adopt-observe` and LOCK.ADOPTION REPORT: what real libraries send, and applications that use no locks.

use super::*;
use crate::support::until;

/// Sends a line; `|` marks a line sent from a script.
fn send(client: &mut Client, line: &str) -> Reply {
    let Some(line) = line.strip_prefix('|') else { return client.run(line) };
    let words: Vec<&str> = line.split(' ').collect();
    let quoted: Vec<String> = words.iter().map(|word| format!("'{word}'")).collect();
    let script = format!("return redis.pcall({})", quoted.join(","));
    client.cmd(&["EVAL", &script, "0"])
}

#[track_caller]
fn report(client: &mut Client, pattern: &str) -> Reply {
    let report = client.run("LOCK.ADOPTION REPORT");
    let of_pattern = report.items().iter().find(|row| row.get("pattern").text() == pattern);
    of_pattern.unwrap_or_else(|| panic!("{pattern} is not in {report:?}")).clone()
}

#[track_caller]
fn fits(client: &mut Client, pattern: &str) -> (String, String) {
    let row = report(client, pattern);
    (row.get("fits").text().to_string(), row.get("reason").text().to_string())
}

/// The pattern, what the library sends for two clients, and the expected verdict.
struct Library {
    name: &'static str,
    pattern: &'static str,
    lines: &'static [&'static str],
    fits: &'static str,
    reason: &'static str,
}

const LIBRARIES: &[Library] = &[
    Library {
        name: "redis-py",
        pattern: "py:*",
        lines: &["SET py:k t1 NX PX 9000", "SET py:k t2 NX PX 9000", "|GET py:k", "|DEL py:k"],
        fits: "yes",
        reason: "",
    },
    Library {
        name: "redsync, redlock-py, RedLock.net, rslock",
        pattern: "sync:*",
        lines: &["SET sync:k t1 NX PX 9000", "|GET sync:k", "|PEXPIRE sync:k 9000", "|GET sync:k", "|DEL sync:k"],
        fits: "yes",
        reason: "",
    },
    Library {
        name: "node-redlock",
        pattern: "node:*",
        lines: &["|EXISTS node:k", "|SET node:k t1 PX 9000", "|EXISTS node:k", "|GET node:k", "|DEL node:k"],
        fits: "yes",
        reason: "",
    },
    Library {
        name: "Redisson's RLock",
        pattern: "hash:rl:*",
        lines: &["|EXISTS rl:k", "|HINCRBY rl:k id:1 1", "|PEXPIRE rl:k 9000", "|HEXISTS rl:k id:1", "|DEL rl:k"],
        fits: "yes",
        reason: "",
    },
    Library {
        name: "ShedLock with safeUpdate",
        pattern: "job-lock:*",
        lines: &[
            "SET job-lock:k host1 NX PX 9000",
            "SET job-lock:k host1 XX PX 90",
            "|GET job-lock:k",
            "|DEL job-lock:k",
        ],
        fits: "yes",
        reason: "",
    },
    Library {
        name: "celery-once, rq, cache.add",
        pattern: "qo_*",
        lines: &["SET qo_k 1 NX EX 9", "DEL qo_k"],
        fits: "remark",
        reason: "do not check the token",
    },
    Library {
        name: "redis-mutex, jedis-lock",
        pattern: "rm:*",
        lines: &["SETNX rm:k 1795890246.02", "SETNX rm:k 1795890250.1", "GET rm:k", "GETSET rm:k 1795890250.1"],
        fits: "remark",
        reason: "timestamps",
    },
    Library {
        name: "huey",
        pattern: "huey.*",
        lines: &["SETNX huey.k 1", "DEL huey.k"],
        fits: "remark",
        reason: "no lease",
    },
    Library {
        name: "Symfony",
        pattern: "sf:*",
        lines: &["|ZREMRANGEBYSCORE sf:k -inf 5", "|ZADD sf:k 9 t", "|ZSCORE sf:k t", "|ZREM sf:k t"],
        fits: "no",
        reason: "ZADD",
    },
    Library {
        name: "a lock by INCR",
        pattern: "incr:*",
        lines: &["INCR incr:k", "EXPIRE incr:k 9", "DEL incr:k"],
        fits: "no",
        reason: "INCR",
    },
    Library {
        name: "Spring Data's cache lock",
        pattern: "cache~*",
        lines: &["SETNX cache~lock ", "DEL cache~lock"],
        fits: "no",
        reason: "cannot be tokens",
    },
    Library {
        name: "a cache",
        pattern: "page:*",
        lines: &["GET page:1", "SETEX page:1 60 text", "GET page:1", "SET page:2 text EX 60", "DEL page:1"],
        fits: "no",
        reason: "values and not locks",
    },
    Library {
        name: "a rate limiter beside locks",
        pattern: "app:*",
        lines: &["SET app:lock t1 NX PX 9000", "INCR app:hits", "EXPIRE app:hits 60", "|GET app:lock", "|DEL app:lock"],
        fits: "no",
        reason: "INCR",
    },
    Library {
        name: "sessions",
        pattern: "sess:*",
        lines: &["HSET sess:1 user me cart 5", "HGETALL sess:1", "EXPIRE sess:1 60"],
        fits: "no",
        reason: "match: hash",
    },
];

fn play(client: &mut Client, lines: &[&str]) {
    for line in lines {
        // An empty word at the end stands for an empty value.
        let words: Vec<&str> = line.split(' ').collect();
        if line.starts_with('|') {
            _ = send(client, line);
        } else {
            _ = client.cmd(&words);
        }
    }
}

#[test]
fn the_report_is_correct_for_libraries_and_for_other_applications() {
    let server = Server::start();
    let mut client = server.client();
    let patterns: Vec<_> = LIBRARIES.iter().map(|library| library.pattern).collect();
    assert_eq!(client.cmd(&["CONFIG", "SET", "lock.adopt-observe", &patterns.join(" ")]), Reply::ok());
    for Library { name, pattern, lines, fits: expected, reason } in LIBRARIES {
        play(&mut client, lines);
        let (fits, said) = fits(&mut client, pattern);
        assert_eq!(fits, *expected, "{name}: {said}");
        assert!(said.contains(reason), "{name}: {said}");
    }
    assert!(client.run("INFO lock").text().contains("lock_held_mutex:0"), "nothing was adopted");
}

#[test]
fn nothing_is_translated_if_clients_are_only_observed() {
    let server = Server::builder().config("lock.adopt-observe lock:* hash:h:*").start();
    let mut client = server.client();
    assert!(set_nx(&mut client, "lock:k", "a"));
    assert_eq!(client.run("HSET h:k a 1"), Reply::Int(1));
    assert_eq!((type_of(&mut client, "lock:k"), type_of(&mut client, "h:k")), ("string".into(), "hash".into()));
    assert_eq!(client.run("GETSET lock:k b"), Reply::bulk("a"));
    assert_eq!(client.run("LOCK.ADOPTION RETURN lock:k"), Reply::Int(0));
    assert!(!server.client().run("INFO commandstats").text().contains("lock.adopted"));
    let row = report(&mut client, "lock:*");
    assert_eq!(row.get("mode").text(), "observe");
    let count = |name: &str| row.get(name).int();
    assert_eq!((count("grant"), count("takeover"), count("no_lease")), (1, 1, 0), "{row:?}");
    assert_eq!(row.get("keys").get("string").int(), 1);
    // A pattern that is no longer observed is not in the report, and costs no comparison.
    assert_eq!(client.cmd(&["CONFIG", "SET", "lock.adopt-observe", ""]), Reply::ok());
    assert!(client.run("LOCK.ADOPTION REPORT").items().is_empty());
}

#[test]
fn the_rows_of_adopted_patterns_count_the_outcome_of_each_command() {
    let server = Server::builder().config("lock.adopt lock:*").config("lock.adopt-wait 5000").start();
    let (mut client, mut other) = (server.client(), server.client());
    assert!(set_nx(&mut client, "lock:k", "a"));
    assert_eq!(client.run("SET lock:k a PX 60000"), Reply::ok());
    assert!(is_null(&other.run("SET lock:k b NX")));
    assert_eq!(other.run("SET lock:k b PX 60000"), Reply::ok());
    assert!(client.run("INCR lock:k").is_error());
    let mut waiter = crate::support::waiting::Waiter::park(&server, "SET lock:k c NX PX 60000");
    assert_eq!(client.run("DEL lock:k"), Reply::Int(1));
    assert_eq!(waiter.client.read(), Reply::ok());
    assert!(compare_and_delete(&mut client, "lock:k", "c"));
    client.run("LOCK.ACQUIRE lock:k native").fence();
    assert_eq!(client.run("DEL lock:k"), Reply::Int(0));
    assert!(client.run("SET lock:k d").is_error());
    server.client().run("ACL SETUSER u on nopass ~lock:* +lock.adopted");
    let mut user = server.client();
    user.run("AUTH u any");
    assert!(user.run("SET lock:k e").error().starts_with("NOPERM "));
    let row = report(&mut client, "lock:*");
    let counts: Vec<_> =
        ["grant", "refuse", "renew", "takeover", "release", "release_without_token", "wait", "protected", "noperm"]
            .iter()
            .map(|name| row.get(name).int())
            .collect();
    assert_eq!(counts, [2, 1, 1, 1, 2, 1, 1, 2, 1], "{row:?}");
    assert_eq!(row.get("wrongtype").get("INCR").int(), 1);
    assert_eq!((row.get("mode").text(), row.get("keys").get("redislock").int()), ("adopt", 1));
    assert!(row.get("clients").int() >= 2);
    // A former pattern stays in the report.
    client.cmd(&["CONFIG", "SET", "lock.adopt", ""]);
    assert_eq!(report(&mut client, "lock:*").get("mode").text(), "former");
}

/// Both types of locks under one prefix: a pattern that is given in both forms has a row that fits for each.
#[test]
fn a_pattern_with_and_without_hash_has_two_rows_with_separate_counts() {
    for setting in ["lock.adopt-observe", "lock.adopt"] {
        let server = Server::builder().config(format!("{setting} lock:* hash:lock:*")).start();
        let mut client = server.client();
        play(&mut client, &["|HINCRBY lock:h id:1 1", "|PEXPIRE lock:h 9000", "|HEXISTS lock:h id:1", "|DEL lock:h"]);
        play(&mut client, &["SET lock:s t NX PX 9000", "SET lock:s u NX PX 9000", "|GET lock:s", "|DEL lock:s"]);
        play(&mut client, &["HINCRBY lock:h id:1 1", "DEL lock:h"]);
        for (pattern, refused, without_token) in [("lock:*", 1, 0), ("hash:lock:*", 0, 1)] {
            let row = report(&mut client, pattern);
            let count = |name: &str| row.get(name).int();
            let found = (count("refuse"), count("release_without_token"), row.get("wrongtype").items().len());
            assert_eq!(found, (refused, without_token, 0), "{setting}: {row:?}");
            let grants = if without_token == 1 { 2 } else { 1 };
            assert_eq!((count("grant"), count("release")), (grants, grants), "{setting}: {row:?}");
            assert_eq!(row.get("fits").text(), if without_token == 1 { "remark" } else { "yes" }, "{setting}");
        }
    }
}

#[test]
fn a_pattern_that_matches_nothing_shows_the_nearest_key() {
    let server = Server::start();
    let mut client = server.client();
    client.run("SET locks:orders 1");
    client.run("SET other 1");
    assert_eq!(client.cmd(&["CONFIG", "SET", "lock.adopt-observe", "lock:* xyz:*"]), Reply::ok());
    let row = report(&mut client, "lock:*");
    assert_eq!((row.get("fits").text(), row.get("nearest").text()), ("no match", "locks:orders"));
    assert_eq!(report(&mut client, "xyz:*").get("nearest").text(), "");
}

#[test]
fn a_doubtful_pattern_is_accepted_with_a_warning() {
    for setting in ["lock.adopt", "lock.adopt-observe"] {
        let server = Server::start();
        let mut client = server.client();
        client.run("LPUSH lock:list x");
        client.run("SET free:k x");
        assert_eq!(client.cmd(&["CONFIG", "SET", setting, "free:*"]), Reply::ok());
        assert!(!server.log().contains("matches"), "{}", server.log());
        for (patterns, words) in [
            ("*", "the pattern '*' matches every key"),
            ("lock:*", "the pattern 'lock:*' matches the key 'lock:list' of type list"),
        ] {
            assert_eq!(client.cmd(&["CONFIG", "SET", setting, patterns]), Reply::ok());
            until("it warns", || server.log().contains(&format!("{setting}: {words}")));
            let (fits, reason) = fits(&mut client, patterns);
            assert!(fits == "no" && !reason.is_empty(), "{patterns}: {fits}: {reason}");
            client.cmd(&["CONFIG", "SET", setting, ""]);
        }
    }
}

#[test]
fn users_that_would_get_noperm_are_named() {
    let server = Server::builder().config("lock.adopt-observe lock:* hash:h:*").start();
    let mut client = server.client();
    for rules in [
        "ACL SETUSER by-category on nopass ~* +@read +@write",
        "ACL SETUSER by-name on nopass ~lock:* +set +get",
        "ACL SETUSER prepared on nopass ~lock:* +set +get +lock.adopted +lock.adopted_ro",
        "ACL SETUSER elsewhere on nopass ~other:* +set +get",
        "ACL SETUSER all on nopass ~* +@all",
    ] {
        assert_eq!(client.run(rules), Reply::ok());
    }
    let row = report(&mut client, "lock:*");
    let users: Vec<_> = row.get("users").items().iter().map(|user| user.text().to_string()).collect();
    assert!(users.contains(&"by-name".to_string()), "{users:?}");
    for user in ["prepared", "elsewhere", "all", "default"] {
        assert!(!users.contains(&user.to_string()), "{users:?}");
    }
    play(&mut client, &["SET lock:k t NX PX 9000"]);
    let (fits, reason) = fits(&mut client, "lock:*");
    assert!(fits == "remark" && reason.contains("+lock.adopted +lock.adopted_ro: "), "{fits}: {reason}");
}

#[test]
fn the_patterns_come_from_every_source_and_survive_config_rewrite() {
    let sources = [
        Server::builder().config("lock.adopt-observe lock:* job:*").keeps_file(),
        Server::builder().module_args("adopt a:* adopt-observe lock:*,job:*").keeps_file(),
    ];
    for source in sources {
        let mut server = source.start();
        for _ in 0..2 {
            let mut client = server.client();
            let rows = client.run("LOCK.ADOPTION REPORT");
            let observed = rows.items().iter().filter(|row| row.get("mode").text() == "observe").count();
            assert_eq!(observed, 2, "{rows:?}");
            assert_eq!(client.run("CONFIG REWRITE"), Reply::ok());
            server.kill();
            server.restart();
        }
    }
}

#[test]
fn a_replica_counts_nothing_of_its_primary() {
    let primary = Server::start();
    let replica = Server::builder().config("lock.adopt-observe *").replica_of(&primary).start();
    crate::support::in_sync(&primary, &replica);
    assert!(set_nx(&mut primary.client(), "lock:k", "a"));
    crate::support::in_sync(&primary, &replica);
    let mut client = replica.client();
    client.run("REPLICAOF NO ONE");
    until("it is the primary", || client.run("ROLE").items()[0].is_bulk("master"));
    assert_eq!(report(&mut client, "*").get("grant").int(), 0);
}

#[test]
fn in_a_cluster_the_keys_of_all_slots_of_the_node_are_counted() {
    let server = crate::support::cluster::single_node_of(Server::builder().config("lock.adopt-observe lock:*"));
    let mut client = server.client();
    for number in 0..50 {
        assert!(set_nx(&mut client, &format!("lock:{number}"), "a"));
    }
    for _ in 0..3 {
        assert_eq!(report(&mut client, "lock:*").get("keys").get("string").int(), 50);
        assert!(!client.run("LOCK.SCAN 0").is_error());
    }
}

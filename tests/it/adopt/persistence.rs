//! Restarts, append-only files and replicas: effects are those of native locks, and commands from a file or a primary
//! are never translated.

use super::*;
use crate::support::stored::rewrite_aof;
use crate::support::waiting::aof;
use crate::support::{in_sync, until};

/// Adopted locks, and strings under the same pattern.
const CHANGES: &[&str] = &[
    "SET lock:k a NX PX 600000",
    "SET lock:k b PX 600000",
    "SETNX lock:l a",
    "GETSET lock:l c",
    "MSETNX lock:m a lock:n b",
    "GETDEL lock:n",
    "DEL lock:m",
];

fn make_changes(client: &mut Client) {
    for line in CHANGES {
        let reply = client.run(line);
        assert!(!reply.is_error(), "{line}: {reply:?}");
    }
    assert_eq!(client.cmd(&["SET", "lock:string", ""]), Reply::ok(), "no token, so a string");
    assert_eq!(client.run("GETSET lock:string text"), Reply::bulk(""));
}

#[track_caller]
fn assert_are_there(client: &mut Client) {
    for (key, kind) in [("lock:k", "redislock"), ("lock:l", "redislock"), ("lock:m", "none"), ("lock:n", "none")] {
        assert_eq!(type_of(client, key), kind, "{key}");
    }
    assert_eq!(type_of(client, "lock:string"), "string");
    assert!(client.run("LOCK.HELD lock:k b").items()[0].int() > 0);
    assert_eq!(client.run("LOCK.HELD lock:l c").items()[2].int(), -1);
}

#[test]
fn requests_are_never_replicated_only_effects_and_strings_once() {
    let server = Server::builder().config("lock.adopt lock:*").appendonly().start();
    let mut client = server.client();
    make_changes(&mut client);
    assert!(!set_nx(&mut client, "lock:k", "z"));
    client.run("MULTI");
    client.run("SET lock:x a NX");
    client.run("SET lock:string more");
    client.run("EXEC");
    let commands = aof(&server);
    let words = |command: &Vec<Vec<u8>>| -> Vec<String> {
        command.iter().map(|word| String::from_utf8_lossy(word).into_owned()).collect()
    };
    let commands: Vec<_> = commands.iter().map(words).collect();
    let names: Vec<_> = commands.iter().map(|command| command[0].to_uppercase()).collect();
    assert!(!names.iter().any(|name| name.starts_with("LOCK.ADOPTED")), "{names:?}");
    let strings: Vec<_> = commands.iter().filter(|command| command[0].eq_ignore_ascii_case("SET")).collect();
    assert!(strings.iter().all(|command| command[1] == "lock:string"), "{strings:?}");
    assert_eq!(strings.len(), 3, "{strings:?}");
    let grants = names.iter().filter(|name| *name == "LOCK.APPLY").count();
    assert_eq!(grants, 7, "{commands:?}");
}

#[test]
fn restarts_keep_locks_and_strings_with_the_setting_and_without() {
    for with_setting in [true, false] {
        for is_rewritten in [false, true] {
            let mut server = Server::builder().config("appendfsync always").appendonly().start();
            assert_eq!(server.client().run("CONFIG SET lock.adopt lock:*"), Reply::ok());
            make_changes(&mut server.client());
            if is_rewritten {
                rewrite_aof(&server);
            }
            server.kill();
            if with_setting {
                server.restart_with(&["lock.adopt lock:*"]);
            } else {
                server.restart();
            }
            let mut client = server.client();
            assert_are_there(&mut client);
            assert!(!set_nx(&mut client, "lock:k", "z"));
            if with_setting {
                assert_eq!(client.run("GET lock:k"), Reply::bulk("b"));
            } else {
                assert!(client.run("GET lock:k").error().starts_with("WRONGTYPE "));
            }
        }
    }
}

#[test]
fn a_replica_has_the_same_locks_and_serves_reads() {
    let primary = adopting();
    let replica = Server::builder().config("lock.adopt lock:*").replica_of(&primary).start();
    in_sync(&primary, &replica);
    make_changes(&mut primary.client());
    in_sync(&primary, &replica);
    let mut client = replica.client();
    assert_are_there(&mut client);
    assert_eq!(client.run("GET lock:k"), Reply::bulk("b"));
    assert_eq!(client.run("MGET lock:k lock:string").items()[1], Reply::bulk("text"));
    assert!(is_null(&client.run("GET lock:m")));
    assert!(client.run("SET lock:k z NX PX 9").error().starts_with("READONLY "));
    assert!(client.cmd(&["EVAL_RO", "return redis.call('get', KEYS[1])", "1", "lock:k"]).is_bulk("b"));
}

/// What clients write there belongs to the replica; native locks come from the primary.
#[test]
fn a_writable_replica_runs_commands_untranslated() {
    let primary = Server::start();
    let writable = Server::builder().config("lock.adopt lock:* hash:h:*").config("replica-read-only no");
    let replica = writable.replica_of(&primary).start();
    in_sync(&primary, &replica);
    let mut client = replica.client();
    assert!(set_nx(&mut client, "lock:k", "a"));
    assert_eq!(client.run("MSETNX lock:l a lock:m a"), Reply::Int(1));
    assert_eq!(client.run("HSET h:k a 1"), Reply::Int(1));
    assert_eq!(["lock:k", "lock:l", "h:k"].map(|key| type_of(&mut client, key)), ["string", "string", "hash"]);
    assert_eq!(client.run("GETDEL lock:k"), Reply::bulk("a"));
    assert_eq!(client.run("HDEL h:k a"), Reply::Int(1));
    for line in ["DELIFEQ lock:l a", "DELEX lock:m IFEQ a"] {
        let reply = client.run(line);
        assert!(reply == Reply::Int(1) || reply.error().starts_with("ERR unknown command"), "{line}: {reply:?}");
    }
}

#[test]
fn a_lock_in_a_hash_keeps_its_count_even_0() {
    let mut server = Server::builder().config("lock.adopt hash:h:*").config("appendfsync always").appendonly().start();
    let replica = Server::builder().config("lock.adopt hash:h:*").replica_of(&server).start();
    in_sync(&server, &replica);
    let mut client = server.client();
    for line in ["HINCRBY h:two a 2", "HINCRBY h:none a 1", "HINCRBY h:none a -1", "HSET h:text a text"] {
        assert!(!client.run(line).is_error(), "{line}");
    }
    in_sync(&server, &replica);
    let assert_kept = |client: &mut Client| {
        assert_eq!(client.run("HGET h:two a"), Reply::bulk("2"));
        assert_eq!(client.run("HGET h:none a"), Reply::bulk("0"));
        assert_eq!(client.run("HGET h:text a"), Reply::bulk("text"));
        assert_eq!(["h:two", "h:none"].map(|key| type_of(client, key)), ["redislock", "redislock"]);
        assert_eq!(type_of(client, "h:text"), "hash");
    };
    assert_kept(&mut replica.client());
    for is_rewritten in [false, true] {
        if is_rewritten {
            rewrite_aof(&server);
        }
        server.kill();
        server.restart();
        assert_kept(&mut server.client());
    }
    assert_eq!(server.client().run("RLOCK.RELEASE h:none a").int(), 0);
    assert_eq!(server.client().run("EXISTS h:none").int(), 0);
}

#[test]
fn a_promoted_replica_keeps_serving_with_the_setting_and_excludes_without_it() {
    for with_setting in [true, false] {
        let primary = adopting();
        let mut builder = Server::builder();
        if with_setting {
            builder = builder.config("lock.adopt lock:*");
        }
        let replica = builder.replica_of(&primary).start();
        in_sync(&primary, &replica);
        make_changes(&mut primary.client());
        in_sync(&primary, &replica);
        let mut client = replica.client();
        assert_eq!(client.run("REPLICAOF NO ONE"), Reply::ok());
        assert!(!set_nx(&mut client, "lock:k", "z"));
        if with_setting {
            assert!(compare_and_delete(&mut client, "lock:k", "b"));
            assert!(set_nx(&mut client, "lock:k", "z"));
            assert_eq!(type_of(&mut client, "lock:k"), "redislock");
        } else {
            assert!(client.run("GET lock:k").error().starts_with("WRONGTYPE "));
        }
    }
}

#[test]
fn commands_of_a_primary_without_the_module_are_applied_verbatim() {
    let primary = Server::builder().no_module().start();
    let replica = Server::builder().config("lock.adopt lock:*").replica_of(&primary).start();
    in_sync(&primary, &replica);
    primary.client().run("SET lock:k a NX PX 600000");
    primary.client().run("SET lock:l a");
    in_sync(&primary, &replica);
    let mut client = replica.client();
    until("it is there", || type_of(&mut client, "lock:k") == "string");
    assert_eq!(client.run("GET lock:l"), Reply::bulk("a"));
}

/// CONFIG REWRITE writes the arguments of `loadmodule` without quotes.
#[test]
fn patterns_on_the_loadmodule_line_survive_a_rewrite() {
    let mut server = Server::builder().module_args(r#"adopt "lock:* job:*" max-waiters 7"#).start();
    for _ in 0..2 {
        let mut client = server.client();
        let settings = client.run("CONFIG GET lock.*");
        assert_eq!(settings.get("lock.adopt").text(), "lock:* job:*");
        assert_eq!(settings.get("lock.max-waiters").text(), "7");
        assert!(set_nx(&mut client, "job:k", "a"));
        client.run("DEL job:k");
        assert_eq!(client.run("CONFIG REWRITE"), Reply::ok());
        server.kill();
        server.restart();
    }
}

/// HINCRBY may also release, and is refused for lack of memory only where the server's own would be.
#[test]
fn out_of_memory_hincrby_creates_no_lock_and_no_field() {
    let server = Server::builder().config("lock.adopt hash:h:*").start();
    let mut client = server.client();
    assert_eq!(client.run("HINCRBY h:held a 1").int(), 1);
    client.run("CONFIG SET maxmemory 1");
    for line in ["HINCRBY h:k a 1", "HINCRBY h:k a 5000000000", "LOCK.ADOPTED HINCRBY other a 1"] {
        let reply = client.run(line);
        assert!(reply.error().starts_with("OOM "), "{line}: {reply:?}");
    }
    assert_eq!(client.run("HINCRBY h:held a -1").int(), 0, "what frees is not refused");
    client.run("CONFIG SET maxmemory 0");
    assert_eq!(client.run("HINCRBY h:k a 5000000000").int(), 5_000_000_000, "no count, so a hash");
    assert_eq!(type_of(&mut client, "h:k"), "hash");
}

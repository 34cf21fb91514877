//! The setting, the filter, the containers and the counters.

use super::*;
use crate::info::field;
use crate::support::cluster::single_node_of;
use crate::support::skip::skip;
use crate::support::until;
use crate::support::waiting::{hold, let_time_pass, Waiter};
use std::time::Duration;

/// The number of command filters, as shown by INFO modules.
fn filters(server: &Server) -> String {
    let modules = server.client().run("INFO modules").text().to_string();
    let module = modules.lines().find(|line| line.starts_with("module:name=lock,")).expect("the module").to_string();
    module.split(',').find_map(|field| field.strip_prefix("filters=")).expect("a number").to_string()
}

#[test]
fn the_filter_is_registered_only_with_the_first_pattern() {
    let server = Server::start();
    assert_eq!(filters(&server), "0");
    let mut client = server.client();
    assert!(set_nx(&mut client, "lock:k", "a"));
    assert_eq!(type_of(&mut client, "lock:k"), "string");
    assert_eq!(client.run("CONFIG SET lock.adopt job:*"), Reply::ok());
    assert_eq!(filters(&server), "1");
    assert_eq!(client.run("CONFIG SET lock.adopt lock:*"), Reply::ok());
    assert_eq!(filters(&server), "1");
    assert_eq!(filters(&adopting()), "1", "from the configuration file");
    assert!(!server.log().contains("lock.adopt has no effect"));
}

#[test]
fn patterns_come_from_every_source_and_survive_config_rewrite() {
    let sources = [
        Server::builder().config("lock.adopt lock:* job:*").keeps_file(),
        Server::builder().config("lock.adopt \"lock:* job:*\"").keeps_file(),
        Server::builder().module_args("adopt lock:*,job:*").keeps_file(),
    ];
    for source in sources {
        let mut server = source.start();
        for _ in 0..2 {
            let mut client = server.client();
            for key in ["lock:k", "job:k"] {
                assert!(set_nx(&mut client, key, "a"));
                assert_eq!(type_of(&mut client, key), "redislock");
            }
            assert_eq!(client.run("CONFIG REWRITE"), Reply::ok());
            server.kill();
            server.restart();
        }
    }
}

#[test]
fn other_names_and_other_arities_are_unaffected() {
    let server = adopting();
    let mut client = server.client();
    assert_eq!(client.run("SET lock:k").error(), "ERR wrong number of arguments for 'set' command");
    assert_eq!(client.run("GET lock:k x").error(), "ERR wrong number of arguments for 'get' command");
    assert_eq!(client.run("STRLEN lock:k"), Reply::Int(0));
    let unknown = client.run("DELIFEQ lock:k a");
    assert!(unknown == Reply::Int(0) || unknown.error().starts_with("ERR unknown command 'DELIFEQ'"), "{unknown:?}");
}

#[test]
fn a_renamed_command_stays_unknown() {
    let server = Server::builder().config("lock.adopt lock:*").config("rename-command GETSET \"\"").start();
    let mut client = server.client();
    assert!(client.run("GETSET lock:k a").error().starts_with("ERR unknown command 'GETSET'"));
    assert!(set_nx(&mut client, "lock:k", "a"));
}

#[test]
fn every_subcommand_has_its_keys_flags_and_arity() {
    let server = adopting();
    let mut client = server.client();
    let rows = [
        ("lock.adopted|set", -4, &["blocking", "denyoom", "fast", "module", "write"][..], "SET k a", &["k"][..]),
        ("lock.adopted|setnx", 4, &["denyoom", "fast", "module", "write"], "SETNX k a", &["k"]),
        ("lock.adopted|setex", 5, &["denyoom", "fast", "module", "write"], "SETEX k 1 a", &["k"]),
        ("lock.adopted|getdel", 3, &["fast", "module", "write"], "GETDEL k", &["k"]),
        ("lock.adopted|msetnx", -4, &["denyoom", "fast", "module", "write"], "MSETNX k a l b", &["k", "l"]),
        ("lock.adopted_ro|get", 3, &["fast", "module", "readonly"], "GET k", &["k"]),
        ("lock.adopted_ro|getrange", 5, &["fast", "module", "readonly"], "GETRANGE k 0 1", &["k"]),
        ("lock.adopted_ro|mget", -3, &["fast", "module", "readonly"], "MGET k l m", &["k", "l", "m"]),
    ];
    for (name, arity, flags, line, keys) in rows {
        let info = client.cmd(&["COMMAND", "INFO", name]);
        let info = info.items()[0].items();
        let mut fields: Vec<&str> = info[2].items().iter().map(Reply::text).collect();
        fields.sort_unstable();
        assert_eq!((info[1].int(), fields.as_slice()), (arity, flags), "{name}");
        let container = name.split('|').next().expect("a container").to_uppercase();
        let fields = client.run(&format!("COMMAND GETKEYS {container} {line}"));
        assert_eq!(fields, Reply::Array(keys.iter().map(|key| Reply::bulk(*key)).collect()), "{name}");
        let container = container.to_lowercase();
        let docs = client.cmd(&["COMMAND", "DOCS", &container]);
        let subcommands = docs.get(&container).get("subcommands");
        let docs = subcommands.get(name);
        assert!(!docs.get("summary").text().is_empty(), "{name}");
        let first = docs.get("arguments").items()[0].pairs();
        let flags = first.iter().filter(|(field, _)| field.text() == "flags").flat_map(|(_, flags)| flags.items());
        assert_eq!(flags.filter(|flag| flag.text() == "multiple").count(), usize::from(keys.len() > 1), "{name}");
    }
    let help = client.run("LOCK.HELP LOCK.ADOPTED");
    assert_eq!(help.items()[1].text(), "LOCK.ADOPTED command key [arg [arg ...]]");
}

#[test]
fn grants_and_refusals_are_counted_and_a_del_is_a_release() {
    let server = adopting();
    let mut client = server.client();
    let counts = || ["adopted_acquires", "adopted_refusals", "releases", "held_mutex"].map(|name| field(&server, name));
    assert!(set_nx(&mut client, "lock:k", "a") && !set_nx(&mut client, "lock:k", "b"));
    assert_eq!(counts(), [1, 1, 0, 1]);
    assert!(compare_and_delete(&mut client, "lock:k", "a"));
    assert_eq!(counts(), [1, 1, 1, 0]);
    client.run("MSETNX lock:k a lock:l b");
    assert_eq!(counts(), [2, 1, 1, 2]);
    client.run("GETSET lock:k c");
    client.run("SET lock:k c PX 60000");
    assert_eq!((counts(), field(&server, "broken"), field(&server, "renewals")), ([3, 1, 1, 2], 1, 1));
    client.run("GETDEL lock:k");
    assert_eq!(counts(), [3, 1, 2, 1]);
    hold(&mut client, "other", "t");
    client.run("DEL other");
    assert_eq!(counts(), [3, 1, 2, 1], "no release: the key matches no pattern");
    assert_eq!(client.run("MSETNX lock:m x lock:l x").int(), 0);
    assert_eq!(counts(), [3, 2, 2, 1]);
    assert!(is_null(&client.run("SET lock:m b NX GET PX 60000")));
    assert_eq!(counts(), [4, 2, 2, 2]);
}

#[test]
fn the_log_shows_a_long_hold_ended_by_del() {
    let server = Server::builder().config("lock.adopt lock:*").config("lock.log-hold 20").start();
    let mut client = server.client();
    assert!(set_nx(&mut client, "lock:k", "a"));
    let_time_pass(Duration::from_millis(30));
    assert!(compare_and_delete(&mut client, "lock:k", "a"));
    until("it is in the log", || client.run("LOCK.LOG LEN").int() == 1);
    let log = client.run("LOCK.LOG GET");
    let entry = &log.items()[0];
    assert_eq!((entry.get("event").text(), entry.get("owner").text()), ("hold", "a"));
}

#[test]
fn commands_that_compare_the_token_release_and_hand_off() {
    let server = adopting();
    let mut client = server.client();
    let mut known = 0;
    for (name, option) in [("DELIFEQ", ""), ("DELEX", "IFEQ ")] {
        if client.run(&format!("COMMAND INFO {name}")).items()[0].is_null() {
            continue;
        }
        known += 1;
        let delete = |client: &mut Client, token: &str| client.run(&format!("{name} lock:k {option}{token}"));
        assert_eq!(delete(&mut client, "a"), Reply::Int(0), "{name}: a free key");
        assert!(set_nx(&mut client, "lock:k", "a"));
        let mut waiter = Waiter::park(&server, "LOCK.ACQUIRE lock:k b PX 60000 BLOCK 0");
        assert_eq!(delete(&mut client, "other"), Reply::Int(0), "{name}");
        assert_eq!(delete(&mut client, "a"), Reply::Int(1), "{name}");
        waiter.granted("b");
        assert_eq!(delete(&mut client, "b"), Reply::Int(1), "{name}");
        client.cmd(&["SET", "lock:k", ""]);
        assert_eq!(client.cmd(&["GETSET", "lock:k", "text"]), Reply::bulk(""), "a string");
        assert_eq!(delete(&mut client, "text"), Reply::Int(1), "{name}: a string");
    }
    if client.run("SET x a IFEQ a").is_error() {
        return if known == 0 {
            skip("the server compares no tokens")
        };
    }
    assert!(set_nx(&mut client, "lock:k", "a"));
    assert!(is_null(&client.run("SET lock:k c IFEQ b PX 60000")));
    assert_eq!(client.run("SET lock:k a IFEQ a PX 90000"), Reply::ok());
    assert!(client.run("PTTL lock:k").int() > 60_000, "a renewal");
    assert_eq!(client.run("SET lock:k b IFEQ a GET"), Reply::bulk("a"));
    assert_eq!(client.run("GET lock:k"), Reply::bulk("b"));
    assert!(is_null(&client.run("SET lock:k c IFEQ a PXAT 1")));
    assert_eq!(client.run("SET lock:k c IFEQ b PXAT 1"), Reply::ok());
    assert_eq!(client.run("EXISTS lock:k"), Reply::Int(0));
}

#[test]
fn adopted_locks_can_be_inspected_and_broken() {
    let server = adopting();
    let mut client = server.client();
    assert!(set_nx(&mut client, "lock:k", "a"));
    let mut waiter = Waiter::park(&server, "LOCK.ACQUIRE lock:k b PX 60000 BLOCK 0");
    assert_eq!(client.run("LOCK.TOP").items()[0].get("holder").text(), "a");
    assert_eq!(client.run("LOCK.SCAN 0").items()[1].items()[0].get("owner").text(), "a");
    assert_eq!(client.run("LOCK.BREAK lock:k").int(), 1);
    waiter.granted("b");
    assert!(!compare_and_delete(&mut client, "lock:k", "a"), "it learns that it lost the lock");
}

#[test]
fn a_caller_of_adopted_without_a_pattern_gets_the_servers_own_command() {
    let server = Server::start();
    let mut client = server.client();
    assert_eq!(client.run("LOCK.ADOPTED SET k a NX PX 60000"), Reply::ok());
    assert_eq!(type_of(&mut client, "k"), "string");
    assert_eq!(client.run("LOCK.ADOPTED_RO GET k"), Reply::bulk("a"));
    hold(&mut client, "native", "t");
    assert_eq!(client.run("LOCK.ADOPTED_RO GET native"), Reply::bulk("t"));
    assert!(client.run("LOCK.ADOPTED GET k").is_error() && client.run("LOCK.ADOPTED INCR k").is_error());
}

#[test]
fn functions_act_on_native_locks_too() {
    let server = adopting();
    let mut client = server.client();
    let library = "#!lua name=locks\nredis.register_function('take', function(keys, args) \
                   return redis.call('SET', keys[1], args[1], 'NX', 'PX', 60000) end)\n\
                   redis.register_function{function_name='holder', callback=function(keys) \
                   return redis.call('GET', keys[1]) end, flags={'no-writes'}}";
    let loaded = client.cmd(&["FUNCTION", "LOAD", library]);
    if loaded.is_error() {
        return skip("the server has no functions");
    }
    assert_eq!(client.run("FCALL take 1 lock:k a"), Reply::ok());
    assert_eq!(type_of(&mut client, "lock:k"), "redislock");
    assert_eq!(client.run("FCALL_RO holder 1 lock:k"), Reply::bulk("a"));
}

#[test]
fn client_side_caching_is_notified_of_grants_and_ends() {
    let server = adopting();
    let mut client = server.client();
    let mut cache = server.client3();
    cache.run("CLIENT TRACKING ON");
    assert!(is_null(&cache.run("GET lock:k")));
    assert!(set_nx(&mut client, "lock:k", "a"));
    let is_notified = |cache: &mut Client| cache.next_push(crate::support::LIMIT).is_some();
    assert!(is_notified(&mut cache), "the grant");
    assert_eq!(cache.run("GET lock:k"), Reply::bulk("a"));
    client.run("DEL lock:k");
    assert!(is_notified(&mut cache), "the end");
}

/// Redisson's waiters subscribe to the channel of their lock; in a cluster they use SSUBSCRIBE.
#[test]
fn the_end_of_a_lock_in_a_hash_is_redissons_unlock_message() {
    let setting = || Server::builder().config("lock.adopt hash:h:*");
    let servers = [(setting().start(), "message", "SUBSCRIBE"), (single_node_of(setting()), "smessage", "SSUBSCRIBE")];
    for (server, kind, subscribe) in servers {
        let mut client = server.client();
        for (key, channel) in [("h:k", "redisson_lock__channel:{h:k}"), ("h:{t}k", "redisson_lock__channel:h:{t}k")] {
            let mut waiter = server.client3();
            waiter.send_line(&format!("{subscribe} {channel}"));
            assert!(waiter.next_push(crate::support::LIMIT).is_some(), "subscribed");
            assert_eq!(client.run(&format!("HINCRBY {key} a 1")), Reply::Int(1));
            assert_eq!(client.run(&format!("RLOCK.RELEASE {key} a")), Reply::Int(0));
            let message = waiter.next_push(crate::support::LIMIT).expect("the message");
            assert_eq!(message.items(), [kind, channel, "0"].map(Reply::bulk));
        }
    }
}

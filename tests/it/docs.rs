//! What the server says about the module: flags, keys, syntax, settings, permissions.

use crate::support::{assert_just_began, Client, Reply, Server};

const ACQUIRES: &[&str] = &["LOCK.ACQUIRE", "RLOCK.ACQUIRE"];
const RELEASES_AND_RENEWS: &[&str] = &["LOCK.RELEASE", "LOCK.RENEW", "RLOCK.RELEASE", "RLOCK.RENEW"];
const READS: &[&str] = &["LOCK.INFO", "LOCK.HELD"];

fn all_commands() -> impl Iterator<Item = &'static str> {
    [ACQUIRES, RELEASES_AND_RENEWS, READS].into_iter().flatten().copied()
}

fn flags(client: &mut Client, command: &str) -> Vec<String> {
    let info = client.cmd(&["COMMAND", "INFO", command]);
    let flags = info.items()[0].items()[2].items();
    let mut flags: Vec<String> = flags.iter().map(|flag| flag.text().to_string()).collect();
    flags.sort_unstable();
    flags
}

#[test]
fn the_module_is_called_lock() {
    let server = Server::start();
    let list = server.client().run("MODULE LIST");
    // Some servers come with modules of their own.
    assert!(list.items().iter().any(|module| module.get("name").text() == "lock"), "{list:?}");
}

#[test]
fn commands_carry_their_flags() {
    let server = Server::start();
    let mut client = server.client();
    for command in ACQUIRES {
        assert_eq!(flags(&mut client, command), ["blocking", "denyoom", "fast", "module", "write"], "{command}");
    }
    for command in RELEASES_AND_RENEWS {
        assert_eq!(flags(&mut client, command), ["fast", "module", "write"], "{command}");
    }
    for command in READS {
        let flags = flags(&mut client, command);
        assert!(flags.contains(&"readonly".into()) && !flags.contains(&"write".into()), "{command}: {flags:?}");
    }
}

#[test]
fn the_key_is_declared() {
    let server = Server::start();
    let mut client = server.client();
    for command in all_commands() {
        let keys = match command {
            "LOCK.INFO" => client.run("COMMAND GETKEYS LOCK.INFO k"),
            _ => client.cmd(&["COMMAND", "GETKEYS", command, "k", "owner"]),
        };
        assert_eq!(keys, Reply::Array(vec![Reply::bulk("k")]), "{command}");
    }
    let keys = client.run("COMMAND GETKEYS LOCK.ACQUIRE k t PX 5000 BLOCK 10 NOTIFY channel SESSION");
    assert_eq!(keys, Reply::Array(vec![Reply::bulk("k")]));
}

#[test]
fn key_permissions_are_enforced() {
    let server = Server::start();
    server.client().run("ACL SETUSER worker on nopass +@all ~mine:* %R~shown:*");
    server.client().run("LOCK.ACQUIRE shown:k a");
    let mut worker = server.client();
    worker.run("AUTH worker any-password");
    worker.run("LOCK.ACQUIRE mine:k a").fence();
    assert_eq!(worker.run("LOCK.RELEASE mine:k a").int(), 1);
    assert!(!worker.run("LOCK.INFO shown:k").is_nil());
    assert!(!worker.run("LOCK.HELD shown:k a").is_error());
    for command in all_commands() {
        let line = match command {
            "LOCK.INFO" => "LOCK.INFO other:k".to_string(),
            _ => format!("{command} other:k a"),
        };
        assert!(worker.run(&line).error().starts_with("NOPERM "), "{line}");
    }
    for command in ACQUIRES.iter().chain(RELEASES_AND_RENEWS) {
        let line = format!("{command} shown:k a");
        assert!(worker.run(&line).error().starts_with("NOPERM "), "{line}");
    }
}

/// The tokens and names in the arguments of a command's documentation, at every depth.
fn argument_words(arguments: &Reply, words: &mut Vec<String>) {
    for argument in arguments.items() {
        for (field, value) in argument.pairs() {
            match field.text() {
                "name" | "token" => words.push(value.text().to_string()),
                "arguments" => argument_words(value, words),
                _ => {}
            }
        }
    }
}

#[test]
fn every_command_is_documented() {
    let server = Server::start();
    for mut client in [server.client(), server.client3()] {
        for (command, expected) in [
            ("LOCK.ACQUIRE", &["key", "token", "EX", "PX", "PERSIST", "BLOCK", "NOTIFY", "SESSION"][..]),
            ("LOCK.RELEASE", &["key", "token"]),
            ("LOCK.RENEW", &["key", "token", "EX", "PX", "PERSIST"]),
            ("LOCK.HELD", &["key", "token"]),
            ("LOCK.INFO", &["key"]),
            ("RLOCK.ACQUIRE", &["key", "owner", "HOLDS", "EX", "PX", "PERSIST", "BLOCK", "NOTIFY", "SESSION"]),
            ("RLOCK.RELEASE", &["key", "owner", "HOLDS"]),
            ("RLOCK.RENEW", &["key", "owner", "EX", "PX", "PERSIST"]),
        ] {
            let reply = client.cmd(&["COMMAND", "DOCS", command]);
            let docs = reply.pairs();
            let [(name, docs)] = docs.as_slice() else { panic!("{command}: {reply:?}") };
            assert_eq!(name.text(), command.to_lowercase());
            assert_eq!(docs.get("module").text(), "lock");
            for field in ["summary", "complexity", "since"] {
                assert!(!docs.get(field).text().is_empty(), "{command}: {field}");
            }
            let mut words = Vec::new();
            argument_words(docs.get("arguments"), &mut words);
            for word in expected {
                assert!(words.contains(&word.to_string()), "{command} does not document {word}: {words:?}");
            }
        }
    }
}

/// The settings and what they are when nobody says anything.
const SETTINGS: &[(&str, &str)] = &[("lock.default-lease", "30000"), ("lock.max-lease", "31536000000")];

fn setting(client: &mut Client, name: &str) -> String {
    client.cmd(&["CONFIG", "GET", name]).get(name).text().to_string()
}

#[test]
fn the_settings_have_their_defaults() {
    let server = Server::start();
    let mut client = server.client();
    let all = client.run("CONFIG GET lock.*");
    for (name, default) in SETTINGS {
        assert_eq!(all.get(name).text(), *default, "{name}");
    }
}

#[test]
fn settings_come_from_the_loadmodule_line() {
    let server = Server::builder().module_args("default-lease 10000 max-lease 20000").start();
    let mut client = server.client();
    assert_eq!(setting(&mut client, "lock.default-lease"), "10000");
    assert_eq!(setting(&mut client, "lock.max-lease"), "20000");
    client.run("LOCK.ACQUIRE k a").fence();
    assert_just_began(client.pttl("k"), 10_000);
    assert!(client.run("LOCK.ACQUIRE other a PX 20001").is_error());
}

#[test]
fn settings_come_from_the_configuration_file() {
    let server = Server::builder().config("lock.default-lease 12000").start();
    let mut client = server.client();
    assert_eq!(setting(&mut client, "lock.default-lease"), "12000");
    client.run("LOCK.ACQUIRE k a").fence();
    assert_just_began(client.pttl("k"), 12_000);
}

#[test]
fn settings_change_while_the_server_runs() {
    let server = Server::start();
    let mut client = server.client();
    assert_eq!(client.run("CONFIG SET lock.default-lease 200000"), Reply::ok());
    assert_eq!(setting(&mut client, "lock.default-lease"), "200000");
    client.run("LOCK.ACQUIRE k a").fence();
    assert_just_began(client.pttl("k"), 200_000);
}

#[test]
fn wrong_settings_are_refused_and_change_nothing() {
    let server = Server::start();
    let mut client = server.client();
    for line in [
        "CONFIG SET lock.default-lease 0",
        "CONFIG SET lock.default-lease -1",
        "CONFIG SET lock.default-lease soon",
        "CONFIG SET lock.max-lease 0",
        "CONFIG SET lock.max-lease -5",
        "CONFIG SET lock.nonsense 1",
    ] {
        assert!(client.run(line).is_error(), "{line}");
    }
    for (name, default) in SETTINGS {
        assert_eq!(setting(&mut client, name), *default);
    }
}

#[test]
fn a_wrong_loadmodule_line_is_refused_and_the_log_says_so() {
    for args in ["default-lease", "default-lease soon", "default-lease 0", "nonsense 1", "default-lease 1000 nonsense"]
    {
        let Err(log) = Server::builder().module_args(args).try_start() else { panic!("it started with {args}") };
        assert!(log.contains("<lock>"), "the module says nothing about {args} in the log:\n{log}");
    }
}

#[test]
fn without_memory_nothing_is_granted_and_everything_can_be_given_back() {
    let server = Server::start();
    let mut client = server.client();
    client.run("LOCK.ACQUIRE mutex a");
    client.run("RLOCK.ACQUIRE nested a HOLDS 2");
    client.run("CONFIG SET maxmemory 1");
    for line in ["LOCK.ACQUIRE free a", "RLOCK.ACQUIRE free a"] {
        assert!(client.run(line).error().starts_with("OOM "), "{line}");
    }
    for line in ["LOCK.RENEW mutex a", "LOCK.RELEASE mutex a", "RLOCK.RENEW nested a", "RLOCK.RELEASE nested a"] {
        assert_eq!(client.run(line).int(), 1, "{line}");
    }
    assert_eq!(client.run("RLOCK.RELEASE nested a").int(), 0);
    assert_eq!(client.run("DBSIZE").int(), 0);
}

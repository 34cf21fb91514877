//! What the server reports about the module: flags, keys, syntax, settings, permissions.

use crate::support::lock_types::each_way;
use crate::support::{assert_just_began, Builder, Client, Reply, Server};

/// The properties that the commands of one row share.
pub struct Group {
    /// As in COMMAND INFO, sorted. The server adds `movablekeys` to commands with a key count or a callback.
    flags: &'static [&'static str],
    /// Each command with its shortest valid request, for the key `k` if it takes one.
    commands: &'static [(&'static str, &'static str)],
    is_write: bool,
    has_key: bool,
}

const GROUPS: &[Group] = &[
    Group {
        flags: &["blocking", "denyoom", "fast", "module", "write"],
        commands: &[
            ("lock.acquire", "LOCK.ACQUIRE k a"),
            ("rlock.acquire", "RLOCK.ACQUIRE k a"),
            ("rwlock.acquire", "RWLOCK.ACQUIRE k a READ"),
            ("sem.acquire", "SEM.ACQUIRE k a LIMIT 1"),
            ("mlock.acquire", "MLOCK.ACQUIRE 1 k a"),
        ],
        is_write: true,
        has_key: true,
    },
    Group {
        flags: &["fast", "module", "write"],
        commands: &[
            ("lock.release", "LOCK.RELEASE k a"),
            ("lock.renew", "LOCK.RENEW k a"),
            ("rlock.release", "RLOCK.RELEASE k a"),
            ("rlock.renew", "RLOCK.RENEW k a"),
            ("rwlock.release", "RWLOCK.RELEASE k a READ"),
            ("rwlock.renew", "RWLOCK.RENEW k a"),
            ("sem.release", "SEM.RELEASE k a"),
            ("sem.renew", "SEM.RENEW k a"),
            ("mlock.release", "MLOCK.RELEASE 1 k a"),
            ("mlock.renew", "MLOCK.RENEW 1 k a"),
            ("lock.cancel", "LOCK.CANCEL k a"),
            ("lock.apply", "LOCK.APPLY k effect"),
        ],
        is_write: true,
        has_key: true,
    },
    Group {
        flags: &["module", "write"],
        commands: &[("lock.exec", "LOCK.EXEC k a PING")],
        // It writes if its inner command does.
        is_write: false,
        has_key: true,
    },
    Group {
        flags: &["module", "readonly"],
        commands: &[("lock.held", "LOCK.HELD k a"), ("lock.info", "LOCK.INFO k"), ("lock.waiters", "LOCK.WAITERS k")],
        is_write: false,
        has_key: true,
    },
    Group {
        flags: &["module", "readonly"],
        commands: &[("lock.scan", "LOCK.SCAN 0"), ("lock.help", "LOCK.HELP")],
        is_write: false,
        has_key: false,
    },
    Group {
        flags: &["admin", "module", "readonly"],
        commands: &[("lock.top", "LOCK.TOP"), ("lock.log", "LOCK.LOG LEN")],
        is_write: false,
        has_key: false,
    },
    Group {
        flags: &["admin", "module", "write"],
        commands: &[("lock.break", "LOCK.BREAK k"), ("lock.adoption", "LOCK.ADOPTION RETURN k")],
        is_write: true,
        has_key: true,
    },
];

/// Every command with its group and its shortest request.
pub fn all_commands() -> impl Iterator<Item = (&'static Group, &'static str, &'static str)> {
    GROUPS.iter().flat_map(|group| group.commands.iter().map(move |(name, line)| (group, *name, *line)))
}

/// The tests below use this list, which must match the server's.
#[test]
fn every_command_of_the_module_is_in_the_table_here() {
    let server = Server::start();
    let names = server.client().run("COMMAND LIST FILTERBY MODULE lock");
    let mut names: Vec<String> = names.items().iter().map(|name| name.text().to_lowercase()).collect();
    // The commands of adoption are covered in `tests/it/adopt`.
    names.retain(|name| !name.starts_with("lock.adopted"));
    names.sort_unstable();
    let mut expected: Vec<&str> = all_commands().map(|(_, name, _)| name).collect();
    expected.sort_unstable();
    assert_eq!(names, expected);
}

fn flags(client: &mut Client, command: &str) -> Vec<String> {
    let info = client.cmd(&["COMMAND", "INFO", command]);
    let flags = info.items()[0].items()[2].items();
    let mut flags: Vec<String> = flags.iter().map(|flag| flag.text().to_string()).collect();
    flags.sort_unstable();
    flags
}

/// The Debian package is covered in `tests/it/package.rs`, the changelog in `tests/it/readme.rs`.
#[test]
fn the_module_is_named_lock_and_reports_its_version() {
    let server = Server::start();
    let list = server.client().run("MODULE LIST");
    // Some servers load other modules by default.
    let module = list.items().iter().find(|module| module.get("name").text() == "lock");
    let version = env!("CARGO_PKG_VERSION");
    let [major, minor, patch] =
        version.split('.').map(|part| part.parse::<i64>().expect("a number")).collect::<Vec<_>>()[..]
    else {
        panic!("three numbers: {version}")
    };
    assert_eq!(module.expect("the module").get("ver").int(), 10_000 * major + 100 * minor + patch);
    if let Some(reported) = server.info("lock").find("lock_version") {
        assert_eq!(reported, version);
    }
}

#[test]
fn commands_are_documented_with_the_version_that_introduced_them() {
    let server = Server::start();
    let mut client = server.client();
    for (_, name, _) in all_commands() {
        let docs = client.cmd(&["COMMAND", "DOCS", name]);
        assert_eq!(docs.get(name).get("since").text(), "1.0.0", "{name}");
    }
}

#[test]
fn commands_carry_their_flags() {
    let server = Server::start();
    let mut client = server.client();
    for (group, name, _) in all_commands() {
        let mut flags = flags(&mut client, name);
        // The server adds it if keys are counted or determined by a callback.
        flags.retain(|flag| flag != "movablekeys" || !(name.starts_with("mlock.") || name == "lock.exec"));
        assert_eq!(flags, group.flags, "{name}");
    }
}

#[test]
fn the_key_is_declared() {
    let server = Server::start();
    let mut client = server.client();
    let only_k = Reply::Array(vec![Reply::bulk("k")]);
    for (group, name, line) in all_commands() {
        let keys = client.run(&format!("COMMAND GETKEYS {line}"));
        if group.has_key {
            assert_eq!(keys, only_k, "{name}");
        } else {
            assert!(keys.is_error(), "{name}: {keys:?}");
        }
    }
    let keys = client.run("COMMAND GETKEYS LOCK.ACQUIRE k t PX 5000 BLOCK 10 NOTIFY channel SESSION");
    assert_eq!(keys, only_k);
}

#[test]
fn key_permissions_are_enforced() {
    let server = Server::start();
    server.client().run("ACL SETUSER worker on nopass +@all ~mine:* %R~shown:*");
    server.client().run("LOCK.ACQUIRE shown:k a").fence();
    let mut worker = server.client();
    worker.run("AUTH worker any-password");
    worker.run("LOCK.ACQUIRE mine:k a").fence();
    assert_eq!(worker.run("LOCK.RELEASE mine:k a").int(), 1);
    for (group, _, line) in all_commands().filter(|(group, ..)| group.has_key) {
        let reply = worker.run(&line.replace(" k", " other:k"));
        assert!(reply.error().starts_with("NOPERM "), "{line} of a key that is not shown: {reply:?}");
        let reply = worker.run(&line.replace(" k", " shown:k"));
        if group.is_write {
            assert!(reply.error().starts_with("NOPERM "), "{line} of a key that may be read only: {reply:?}");
        } else {
            assert!(!reply.is_error(), "{line} of a key that may be read: {reply:?}");
        }
    }
}

/// The tokens and names of arguments in a command's documentation, at every depth.
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

/// The words of a command's syntax, by its name.
fn expected_words(name: &str) -> Vec<&'static str> {
    let (prefix, verb) = name.split_once('.').expect("a prefix and a verb");
    let key: &[&str] = match (prefix, verb) {
        ("mlock", _) => &["numkeys", "key"],
        ("lock", "scan") => &["cursor"],
        ("lock", "top" | "log" | "help") => &[],
        _ => &["key"],
    };
    let owner: &[&str] = match (prefix, verb) {
        ("lock", "info" | "waiters" | "apply" | "scan" | "top" | "log" | "help" | "adoption") => &[],
        ("lock", "break") => &["OWNER", "owner"],
        ("lock" | "mlock", _) => &["token"],
        _ => &["owner"],
    };
    let amount: &[&str] = match (prefix, verb) {
        ("lock", "acquire") => &["COALESCE"],
        ("lock", "release") => &["FAILED"],
        ("rlock", "acquire" | "release") => &["HOLDS"],
        ("rwlock", "acquire" | "release") => &["READ", "WRITE", "HOLDS"],
        ("sem", "acquire") => &["LIMIT", "PERMITS", "HOLDS", "SLOT"],
        ("sem", "release") => &["PERMITS", "HOLDS"],
        _ => &[],
    };
    let time: &[&str] = match verb {
        "acquire" => &["*", "EX", "PX", "PERSIST", "BLOCK", "NOTIFY", "SESSION"],
        "renew" => &["EX", "PX", "PERSIST"],
        "info" | "waiters" | "top" => &["COUNT"],
        "scan" => &["MATCH", "COUNT"],
        "log" => &["GET", "count", "LEN", "RESET"],
        "exec" => &["command", "arg"],
        "adoption" => &["REPORT", "RETURN"],
        _ => &[],
    };
    [key, owner, amount, time].concat()
}

#[test]
fn every_command_is_documented() {
    let server = Server::start();
    for mut client in [server.client(), server.client3()] {
        for (_, command, _) in all_commands() {
            let reply = client.cmd(&["COMMAND", "DOCS", command]);
            let docs = reply.pairs();
            let [(name, docs)] = docs.as_slice() else { panic!("{command}: {reply:?}") };
            assert_eq!(name.text(), command);
            assert_eq!(docs.get("module").text(), "lock");
            for field in ["summary", "complexity", "since"] {
                assert!(!docs.get(field).text().is_empty(), "{command}: {field}");
            }
            let mut words = Vec::new();
            let arguments = docs.pairs().into_iter().find(|(field, _)| field.is_bulk("arguments"));
            arguments.iter().for_each(|(_, arguments)| argument_words(arguments, &mut words));
            for word in expected_words(command) {
                assert!(words.contains(&word.to_string()), "{command} does not document {word}: {words:?}");
            }
            // And no options of other commands.
            for option in words.iter().filter(|word| word.chars().all(|c| c.is_ascii_uppercase())) {
                assert!(expected_words(command).contains(&option.as_str()), "{command} documents {option}");
            }
        }
    }
}

/// The settings with their defaults, another valid value, and invalid values.
type Setting = (&'static str, &'static str, &'static str, &'static [&'static str]);

const SETTINGS: &[Setting] = &[
    ("adopt", "", "lock:*,job:?", &["hash:"]),
    ("adopt-observe", "", "lock:*,job:?", &["hash:"]),
    ("adopt-wait", "0", "100", &["-1", "soon"]),
    ("default-lease", "30000", "10000", &["0", "-1", "soon"]),
    ("grace", "0", "5000", &["-1", "soon"]),
    ("keep-place", "1000", "0", &["-1", "soon"]),
    ("keyspace-events", "no", "yes", &["1", "soon"]),
    ("log-hold", "0", "500", &["-1", "soon"]),
    ("log-max-len", "128", "0", &["-1", "1000001", "soon"]),
    ("log-wait", "0", "500", &["-1", "soon"]),
    ("max-lease", "31536000000", "20000", &["0", "-5", "soon"]),
    ("max-waiters", "10000", "7", &["-1", "soon"]),
    ("max-waiters-per-key", "0", "3", &["-1", "soon"]),
];

/// All settings of the module, by name.
fn settings(client: &mut Client) -> Vec<(String, String)> {
    let all = client.run("CONFIG GET lock.*");
    let mut all: Vec<_> =
        all.pairs().iter().map(|(name, set)| (name.text().to_string(), set.text().to_string())).collect();
    all.sort_unstable();
    all
}

/// The [`settings`] if each has the chosen one of its values.
fn expected_settings(choose: impl Fn(&Setting) -> &'static str) -> Vec<(String, String)> {
    SETTINGS.iter().map(|setting| (format!("lock.{}", setting.0), choose(setting).to_string())).collect()
}

#[test]
fn the_settings_have_their_defaults() {
    let server = Server::start();
    assert_eq!(settings(&mut server.client()), expected_settings(|setting| setting.1));
}

#[test]
fn settings_come_from_the_loadmodule_line() {
    let args: Vec<String> = SETTINGS.iter().map(|setting| format!("{} {}", setting.0, setting.2)).collect();
    let server = Server::builder().module_args(args.join(" ")).start();
    assert_eq!(settings(&mut server.client()), expected_settings(|setting| setting.2));
}

#[test]
fn settings_come_from_the_configuration_file() {
    let lines = SETTINGS.iter().map(|setting| format!("lock.{} {}", setting.0, setting.2));
    let server = lines.fold(Server::builder(), |builder, line| builder.config(line)).start();
    assert_eq!(settings(&mut server.client()), expected_settings(|setting| setting.2));
}

#[test]
fn settings_change_while_the_server_runs() {
    let server = Server::start();
    let mut client = server.client();
    for setting in SETTINGS {
        assert_eq!(client.run(&format!("CONFIG SET lock.{} {}", setting.0, setting.2)), Reply::ok(), "{}", setting.0);
    }
    assert_eq!(settings(&mut client), expected_settings(|setting| setting.2));
}

/// From every source. The effects of the other settings are covered by the tests of waiting, reserved positions and
/// grace.
#[test]
fn leases_follow_the_lease_settings() {
    let server = Server::builder().module_args("max-lease 20000").config("lock.default-lease 10000").start();
    let mut client = server.client();
    client.run("LOCK.ACQUIRE k a").fence();
    assert_just_began(client.pttl("k"), 10_000);
    assert!(client.run("LOCK.ACQUIRE other a PX 20001").is_error());
    assert_eq!(client.run("CONFIG SET lock.max-lease 300000"), Reply::ok());
    assert_eq!(client.run("CONFIG SET lock.default-lease 200000"), Reply::ok());
    client.run("LOCK.ACQUIRE k a").fence();
    assert_just_began(client.pttl("k"), 200_000);
    assert!(client.run("LOCK.ACQUIRE other a PX 300001").is_error());
}

/// A request that names no lease.
#[track_caller]
fn assert_default_lease(client: &mut Client, ms: i64) {
    each_of(client, |client, acquire| {
        client.run(acquire).fence();
        assert_just_began(client.pttl("k"), ms);
    });
}

fn each_of(client: &mut Client, check: impl Fn(&mut Client, &str)) {
    for acquire in ["LOCK.ACQUIRE k a", "RLOCK.ACQUIRE k a", "RWLOCK.ACQUIRE k a READ", "SEM.ACQUIRE k a LIMIT 1"] {
        check(client, acquire);
        client.run("DEL k");
    }
    check(client, "MLOCK.ACQUIRE 2 k l a");
    client.run("DEL k l");
}

#[test]
fn a_default_lease_above_the_longest_is_capped() {
    let in_the_file = |builder: Builder| builder.config("lock.default-lease 50000").config("lock.max-lease 20000");
    let on_the_line = |builder: Builder| builder.module_args("default-lease 50000 max-lease 20000");
    let in_both = |builder: Builder| builder.module_args("max-lease 20000").config("lock.default-lease 50000");
    for configure in [in_the_file, on_the_line, in_both] {
        let server = configure(Server::builder()).start();
        assert_default_lease(&mut server.client(), 20_000);
    }
    let server = Server::start();
    let mut client = server.client();
    client.run("CONFIG SET lock.max-lease 20000");
    assert_default_lease(&mut client, 20_000);
    assert_eq!(client.run("CONFIG GET lock.default-lease").get("lock.default-lease").text(), "30000", "as it was set");
    assert!(
        client.run("LOCK.ACQUIRE k a PX 20001").error().contains("invalid expire time"),
        "a request for more is not"
    );
    client.run("CONFIG SET lock.max-lease 40000");
    assert_default_lease(&mut client, 30_000);
    client.run("CONFIG SET lock.default-lease 60000");
    assert_default_lease(&mut client, 40_000);
}

#[test]
fn invalid_settings_are_rejected_and_change_nothing() {
    let server = Server::start();
    let mut client = server.client();
    for (name, _, _, wrong) in SETTINGS {
        for value in *wrong {
            let line = format!("CONFIG SET lock.{name} {value}");
            assert!(client.run(&line).is_error(), "{line}");
        }
    }
    assert!(client.run("CONFIG SET lock.nonsense 1").is_error());
    assert_eq!(settings(&mut client), expected_settings(|setting| setting.1));
}

#[test]
fn an_invalid_loadmodule_line_is_rejected_and_logged() {
    for args in [
        "default-lease",
        "default-lease soon",
        "default-lease 0",
        "nonsense 1",
        "default-lease 1000 nonsense",
        "keyspace-events soon",
    ] {
        let Err(log) = Server::builder().module_args(args).try_start() else { panic!("it started with {args}") };
        assert!(log.contains("<lock>"), "the module says nothing about {args} in the log:\n{log}");
    }
}

#[test]
fn out_of_memory_nothing_is_granted_but_locks_can_be_renewed_and_released() {
    each_way(Server::builder, |way, _, client| {
        way.hold(client, "k", "a");
        client.run("CONFIG SET maxmemory 1");
        assert!(client.run(&way.acquire("free", "a")).error().starts_with("OOM "), "{way:?}");
        assert_eq!(client.run(&way.renew("k", "a")).int(), 1, "{way:?}");
        way.release_held(client, "k", "a");
        assert_eq!(client.run("DBSIZE").int(), 0, "{way:?}");
    });
}

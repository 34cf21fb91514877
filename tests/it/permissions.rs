//! Permissions: categories, restricted users, and the users of docs/acl.md.

use std::collections::BTreeSet;

use crate::docs::all_commands;
use crate::readme::words_of;
use crate::support::lock_types::{each_way, wait_for};
use crate::support::waiting::*;
use crate::support::{until, Client, Reply, Server};

const DOCUMENT: &str = include_str!("../../docs/acl.md");
const USERS: &str = include_str!("../../contrib/acl/users.acl");
const USERS_BY_NAME: &str = include_str!("../../contrib/acl/users-by-name.acl");
const DEFAULT_OFF: &str = include_str!("../../contrib/acl/default-off.acl");

/// Whether this server lets modules add categories; Redis 7.0 and 7.2 do not.
fn has_categories(client: &mut Client) -> bool {
    client.run("ACL CAT").items().iter().any(|category| category.text() == "lock")
}

fn expected_categories(name: &str) -> &'static [&'static str] {
    match name.split_once('.').expect("a prefix and a verb").1 {
        "acquire" => &["@blocking", "@fast", "@lock", "@write"],
        "exec" => &["@lock", "@write"],
        "release" | "renew" | "cancel" | "apply" => &["@fast", "@lock", "@write"],
        "info" | "held" | "waiters" | "scan" | "help" => &["@lock", "@read"],
        "break" | "adoption" | "top" | "log" => &["@admin", "@dangerous", "@lock"],
        other => panic!("the contract has no categories for {other}"),
    }
}

#[test]
fn commands_are_in_their_categories_if_modules_have_any() {
    let server = Server::start();
    let mut client = server.client();
    let has_categories = has_categories(&mut client);
    // Redis 7.2 lets a module add its commands to the server's categories.
    let has_others = server.info("server").text("redis_version").starts_with("7.2.") && !has_categories;
    for (_, name, _) in all_commands() {
        let info = client.cmd(&["COMMAND", "INFO", name]);
        let mut categories: Vec<String> =
            info.items()[0].items()[6].items().iter().map(|category| category.text().to_string()).collect();
        categories.sort_unstable();
        let mut expected = expected_categories(name).to_vec();
        expected.retain(|category| has_categories || (has_others && *category != "@lock"));
        assert_eq!(categories, expected, "{name}");
    }
}

/// A user with only these rules and AUTH.
fn user(server: &Server, name: &str, rules: &[String]) -> Client {
    let words = ["ACL", "SETUSER", name, "on", "nopass"].map(String::from);
    let reply = server.client().cmd(&[&words[..], rules].concat());
    assert!(!reply.is_error(), "{rules:?}: {reply:?}");
    let mut client = server.client();
    assert!(!client.cmd(&["AUTH", name, "any-password"]).is_error());
    client
}

fn is_refused(client: &mut Client, words: &[String]) -> bool {
    let reply = client.cmd(words);
    reply.is_error() && reply.error().starts_with("NOPERM ")
}

/// Changes a request for `k` to another key.
fn on_key(line: &str, key: &str) -> Vec<String> {
    line.split(' ').map(|word| if word == "k" { key } else { word }.to_string()).collect()
}

#[test]
fn each_command_is_permitted_by_its_name_and_for_keys_that_match() {
    let server = Server::start();
    for (_, name, line) in all_commands() {
        let rules = ["~mine:*".to_string(), "+ping".into(), format!("+{name}")];
        let mut client = user(&server, &format!("only-{name}"), &rules);
        assert!(!is_refused(&mut client, &on_key(line, "mine:k")), "{line}: of a key that matches");
        if line.split(' ').any(|word| word == "k") {
            assert!(is_refused(&mut client, &on_key(line, "other:k")), "{line}: of a key that does not");
        }
        for (_, other, line) in all_commands().filter(|(_, other, _)| *other != name) {
            assert!(is_refused(&mut client, &on_key(line, "mine:k")), "{other}, where {name} alone is permitted");
        }
    }
}

#[test]
fn the_category_permits_every_command_and_no_other() {
    let server = Server::start();
    if !has_categories(&mut server.client()) {
        let reply = server.client().run("ACL SETUSER anybody +@lock");
        return assert!(reply.error().contains("Unknown command or category name in ACL"), "{reply:?}");
    }
    let mut listed: Vec<String> =
        server.client().run("ACL CAT lock").items().iter().map(|name| name.text().to_string()).collect();
    listed.retain(|name| !name.starts_with("lock.adopted"));
    listed.sort_unstable();
    let mut names: Vec<&str> = all_commands().map(|(_, name, _)| name).collect();
    names.sort_unstable();
    // Redis 7.4 and Valkey 8.0 do not list module commands, but the rules below recognize them.
    if !listed.is_empty() {
        assert_eq!(listed, names);
    }
    // PING is the inner command of commands that have one.
    let rules = ["~mine:*", "+@lock", "+ping"].map(String::from);
    let mut client = user(&server, "by-category", &rules);
    let mut worker = user(&server, "worker", &[&rules[..], &["-@dangerous".into()]].concat());
    for (_, name, line) in all_commands() {
        let words = on_key(line, "mine:k");
        assert!(!is_refused(&mut client, &words), "{line}");
        let is_dangerous = expected_categories(name).contains(&"@dangerous");
        assert_eq!(is_refused(&mut worker, &words), is_dangerous, "{line}, without @dangerous");
    }
    assert!(is_refused(&mut client, &["GET", "mine:k"].map(String::from)));
}

/// Waits until the first request in this key's queue has waited long enough for its permissions to be checked again.
#[track_caller]
fn until_checked_again(client: &mut Client, key: &str) {
    let mut waited = || client.run(&format!("LOCK.WAITERS {key}")).items()[0].get("waited").int();
    until("it has waited for 20 ms", || waited() > 20);
}

/// Like BLPOP, which Redis 7.2 and Valkey check again when it is woken: the permissions from the time of queueing may
/// not suffice for the grant, by a command or by the timer. The next waiter is then granted the lock in the same step.
#[test]
fn a_request_is_granted_only_if_its_user_may_still_send_it() {
    each_way(quiet, |way, server, client| {
        let command = format!("+{}.acquire", way.prefix());
        let lost = command.replace('+', "-");
        let rows: [(&[&str], bool); 6] = [
            (&["+get"], true),
            (&[&lost], false),
            (&["resetkeys"], false),
            (&["resetkeys", "%R~k*"], false),
            (&["resetkeys", "(+get ~k*)"], false),
            (&["resetkeys", &format!("({command} ~k*)")], true),
        ];
        let cases: Vec<_> = rows.iter().flat_map(|row| [(row, "released"), (row, "removed")]).enumerate().collect();
        let park = |(number, _): &(usize, _)| {
            let (name, key) = (format!("worker-{number}"), format!("k{number}"));
            way.hold(&mut server.client(), &key, "a");
            let rules = ["~k*", "+ping", "+client|id", &command].map(String::from);
            let line = format!("{} {LONG} BLOCK 0", way.acquire(&key, "b"));
            let b = Waiter::park_over(user(server, &name, &rules), server, &line);
            (name, b, wait_for(way, server, &key, "c"))
        };
        let parked: Vec<_> = cases.iter().map(park).collect();
        until_checked_again(client, &format!("k{}", cases.len() - 1));
        for ((number, ((change, is_permitted), end)), (name, mut b, mut c)) in cases.into_iter().zip(parked) {
            let (row, key) = (format!("{way:?}, {change:?}, {end}"), &format!("k{number}"));
            assert_eq!(client.cmd(&[&["ACL", "SETUSER", &name], *change].concat()), Reply::ok(), "{row}");
            match end {
                "released" => way.release_held(client, key, "a"),
                _ => _ = client.run(&format!("DEL {key} {key}:too")),
            }
            if *is_permitted {
                b.granted("b");
                way.release_held(client, key, "b");
            } else {
                let reply = b.only_reply();
                assert!(reply.is_error() && reply.error().starts_with("NOPERM "), "{row}: {reply:?}");
            }
            c.granted("c");
            assert_eq!(holders(client, key), ["c"], "{row}");
        }
    });
}

/// The statement in docs/acl.md about short waits.
#[test]
fn a_request_that_waited_less_than_20_ms_uses_the_permissions_it_was_sent_with() {
    let server = quiet().start();
    let mut client = server.client();
    hold(&mut client, "k", "a");
    let rules = ["~k", "+client|id", "+lock.acquire"].map(String::from);
    let line = format!("LOCK.ACQUIRE k b {LONG} BLOCK 0");
    let mut b = Waiter::park_over(user(&server, "worker", &rules), &server, &line);
    let steps = ["ACL SETUSER worker -lock.acquire", "LOCK.RELEASE k a"];
    let replies = multi(&mut client, &[&["LOCK.WAITERS k"], &steps[..]].concat());
    // On a very busy machine it has waited longer.
    if replies[0].items()[0].get("waited").int() < 15 {
        b.granted("b");
    }
}

/// The user needs permission for the waiting command itself, not another one of its lock type.
#[test]
fn a_request_for_one_of_multiple_keys_needs_its_own_commands_permission() {
    let server = quiet().start();
    let mut client = server.client();
    hold(&mut client, "k", "a");
    let rules = ["~k", "+client|id", "+mlock.acquire"].map(String::from);
    let line = format!("MLOCK.ACQUIRE 1 k b {LONG} BLOCK 0");
    let mut b = Waiter::park_over(user(&server, "worker", &rules), &server, &line);
    until_checked_again(&mut client, "k");
    client.run("LOCK.RELEASE k a");
    b.granted("b");
}

/// The lines of the ACL file for such a server.
fn users(has_categories: bool) -> Vec<&'static str> {
    if has_categories { USERS } else { USERS_BY_NAME }.lines().collect()
}

/// The line of a user, in the syntax that this server accepts.
pub fn user_of_the_document(client: &mut Client, name: &str) -> &'static str {
    let lines = users(has_categories(client));
    lines.into_iter().find(|line| line.starts_with(&format!("user {name} "))).expect("the user")
}

/// The settings that the document names for replicas or for Sentinels.
#[track_caller]
fn settings_of(row: &str) -> Vec<&'static str> {
    let row = DOCUMENT.lines().find(|line| line.starts_with(&format!("| {row} |"))).expect("the row");
    let settings = row.split('`').filter(|part| part.starts_with("master") || part.starts_with("sentinel "));
    settings.collect()
}

/// A connection that has logged in.
fn log_in(server: &Server, user: &str) -> Client {
    let mut client = server.client();
    assert_eq!(client.cmd(&["AUTH", user, &format!("{user}-secret")]), Reply::ok(), "{user}");
    client
}

/// Adds the document's users to a running server; the last one is the default user.
fn switch_the_default_user_off(server: &Server) {
    let mut client = server.client();
    let has_categories = has_categories(&mut client);
    let lines = users(has_categories);
    for line in lines.into_iter().chain(DEFAULT_OFF.lines()) {
        let rules: Vec<&str> = line.split(' ').skip(1).collect();
        assert_eq!(client.cmd(&[&["ACL", "SETUSER"], &rules[..]].concat()), Reply::ok(), "{line}");
    }
}

#[test]
fn with_the_default_user_off_replicas_and_sentinels_log_in_and_others_are_refused() {
    let with_login =
        || settings_of("replicas").into_iter().fold(Server::builder(), |builder, line| builder.config(line));
    let primary = with_login().start();
    switch_the_default_user_off(&primary);
    let mut stranger = primary.client();
    for line in ["LOCK.ACQUIRE lock:1 me", "LOCK.TOP", "INFO lock", "PING"] {
        assert!(stranger.run(line).error().starts_with("NOAUTH "), "{line}");
    }
    let replica = with_login().replica_of(&primary).start();
    switch_the_default_user_off(&replica);
    let is_held_at = |server: &Server| !log_in(server, "admin").run("LOCK.HELD lock:1 me").is_nil();
    log_in(&primary, "worker").run("LOCK.ACQUIRE lock:1 me PX 60000").fence();
    until("the replica has the lock", || is_held_at(&replica));
    let monitor = format!("sentinel monitor locks 127.0.0.1 {} 1", primary.port());
    let sentinel = Server::builder().sentinel().config(monitor);
    let sentinel = settings_of("Sentinels").into_iter().fold(sentinel, |builder, line| builder.config(line)).start();
    let mut sentinel_client = sentinel.client();
    until("the Sentinel knows the replica", || {
        let replicas = sentinel_client.run("SENTINEL REPLICAS locks");
        replicas.items().iter().any(|replica| replica.items().iter().any(|word| word.is_bulk("ok")))
    });
    until("it accepts the failover", || !sentinel_client.run("SENTINEL FAILOVER locks").is_error());
    // A Sentinel closes the connections of a server whose role it changes.
    let sentinel_client = |server: &Server, words: &[&str]| {
        let mut admin = server.client();
        admin.try_cmd(&["AUTH", "admin", "admin-secret"])?;
        admin.try_cmd(words)
    };
    until("the replica is the primary", || {
        sentinel_client(&replica, &["ROLE"]).is_ok_and(|role| role.items()[0].is_bulk("master"))
    });
    assert!(is_held_at(&replica));
    log_in(&replica, "worker").run("LOCK.ACQUIRE lock:2 me PX 60000").fence();
    until("the old primary follows", || {
        sentinel_client(&primary, &["LOCK.HELD", "lock:2", "me"]).is_ok_and(|held| !held.is_nil())
    });
}

/// A server that starts with the matching ACL file, and the directory of that file.
fn with_acl_file() -> (Server, tempfile::TempDir) {
    let has_categories = has_categories(&mut Server::start().client());
    let folder = tempfile::tempdir().expect("a temporary directory");
    let file = folder.path().join("users.acl");
    std::fs::write(&file, if has_categories { USERS } else { USERS_BY_NAME }).expect("a file");
    (Server::builder().config(format!("aclfile {}", file.display())).start(), folder)
}

#[test]
fn the_acl_files_are_loaded_alone_and_with_the_default_user_off() {
    let (server, folder) = with_acl_file();
    assert!(!server.client().run("LOCK.ACQUIRE any me").is_error());
    log_in(&server, "worker").run("LOCK.ACQUIRE lock:1 me PX 60000").fence();
    let file = folder.path().join("users.acl");
    let users = std::fs::read_to_string(&file).expect("the file");
    std::fs::write(&file, users + DEFAULT_OFF).expect("a file");
    assert_eq!(server.client().run("ACL LOAD"), Reply::ok());
    assert!(server.client().run("LOCK.ACQUIRE any me").error().starts_with("NOAUTH "));
    log_in(&server, "worker").run("LOCK.ACQUIRE lock:1 me PX 60000").fence();
    assert!(!log_in(&server, "admin").run("LOCK.TOP").is_error());
    assert_eq!(log_in(&server, "admin").run("CONFIG SET lock.grace 0"), Reply::ok());
}

#[test]
fn the_users_of_the_document_may_do_what_it_says() {
    let (server, _folder) = with_acl_file();
    let mut tried = 0;
    let (_, table) = DOCUMENT.split_once("\n## What each may do\n").expect("the table");
    for row in table.lines().filter(|line| line.starts_with("| `")) {
        let cells: Vec<&str> = row.trim_matches('|').split(" | ").map(str::trim).collect();
        let [command, documented @ ..] = cells.as_slice() else { panic!("{row}") };
        let words = words_of(command.trim_matches('`'));
        for (name, documented) in ["worker", "operator", "dashboard"].iter().zip(documented) {
            let admin = &mut server.client();
            admin.run("FLUSHALL");
            admin.run("LOCK.ACQUIRE lock:1 me").fence();
            let mut client = server.client();
            assert!(!client.cmd(&["AUTH", name, &format!("{name}-secret")]).is_error(), "{name}");
            let is_permitted = !is_refused(&mut client, &words);
            assert_eq!(if is_permitted { "yes" } else { "no" }, *documented, "{name}: {command}");
            tried += 1;
        }
    }
    assert!(tried > 40, "only {tried} were tried");
}

/// By name, all commands of the category: a user of the same name must have the same permissions on both kinds of
/// server.
#[test]
fn the_document_names_for_7_0_what_the_category_permits_elsewhere() {
    let lines = users(false);
    let named = |user: &str| {
        let line = lines.iter().find(|line| line.starts_with(&format!("user {user} "))).expect("the user");
        line.split(' ').filter_map(|word| word.strip_prefix('+')).map(String::from).collect::<BTreeSet<_>>()
    };
    let (worker, operator) = (named("worker"), named("operator"));
    for (_, name, _) in all_commands().filter(|(_, name, _)| *name != "lock.apply") {
        assert!(operator.contains(name), "operator has no +{name}");
        let is_dangerous = expected_categories(name).contains(&"@dangerous");
        assert_eq!(worker.contains(name), !is_dangerous, "worker: +{name}");
    }
}

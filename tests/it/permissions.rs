//! Permissions: categories, restricted users, and the users of docs/acl.md.

use std::collections::BTreeSet;

use crate::docs::all_commands;
use crate::readme::words_of;
use crate::support::families::{each_way, wait_for};
use crate::support::waiting::*;
use crate::support::{until, Client, Reply, Server};

const DOCUMENT: &str = include_str!("../../docs/acl.md");

/// Whether this server lets modules add categories: not Redis 7.0.
fn has_categories(client: &mut Client) -> bool {
    client.run("ACL CAT").items().iter().any(|category| category.text() == "lock")
}

/// As the contract has them.
fn expected_categories(name: &str) -> &'static [&'static str] {
    match name.split_once('.').expect("a family and a verb").1 {
        "acquire" => &["@blocking", "@fast", "@lock", "@write"],
        "exec" => &["@lock", "@write"],
        "release" | "renew" | "cancel" | "apply" => &["@fast", "@lock", "@write"],
        "info" | "held" | "waiters" | "scan" | "help" => &["@lock", "@read"],
        "break" | "top" | "log" => &["@admin", "@dangerous", "@lock"],
        other => panic!("the contract has no categories for {other}"),
    }
}

#[test]
fn commands_are_in_their_categories_where_modules_have_any() {
    let server = Server::start();
    let mut client = server.client();
    let has_categories = has_categories(&mut client);
    for (_, name, _) in all_commands() {
        let info = client.cmd(&["COMMAND", "INFO", name]);
        let mut categories: Vec<String> =
            info.items()[0].items()[6].items().iter().map(|category| category.text().to_string()).collect();
        categories.sort_unstable();
        assert_eq!(categories, if has_categories { expected_categories(name) } else { &[] }, "{name}");
    }
}

/// A user that has these rules, and nothing else but AUTH.
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

/// A request for another key than `k`.
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
    // Redis 7.4 and Valkey 8.0 list no module's commands, but the rules below know them.
    if !listed.is_empty() {
        assert_eq!(listed, names);
    }
    // Commands with an inner command get PING as such.
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

/// Waits until the first in the queue of this key has waited so long that its permissions are checked again.
#[track_caller]
fn until_checked_again(client: &mut Client, key: &str) {
    let mut waited = || client.run(&format!("LOCK.WAITERS {key}")).items()[0].get("waited").int();
    until("it has waited for 20 ms", || waited() > 20);
}

/// As BLPOP, which Redis 7.2 and Valkey check again when it is woken: the permissions of the time when the request was
/// queued need not suffice for its grant, by a command or by the timer. The next waiter is granted in that step then.
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
                "released" => way.give_back(client, key, "a"),
                _ => _ = client.run(&format!("DEL {key} {key}:too")),
            }
            if *is_permitted {
                b.granted("b");
                way.give_back(client, key, "b");
            } else {
                let reply = b.only_reply();
                assert!(reply.is_error() && reply.error().starts_with("NOPERM "), "{row}: {reply:?}");
            }
            c.granted("c");
            assert_eq!(holders(client, key), ["c"], "{row}");
        }
    });
}

/// The claim of docs/acl.md on short waits.
#[test]
fn a_request_that_has_waited_for_less_than_20_ms_is_granted_by_the_permissions_it_was_sent_with() {
    let server = quiet().start();
    let mut client = server.client();
    hold(&mut client, "k", "a");
    let rules = ["~k", "+client|id", "+lock.acquire"].map(String::from);
    let line = format!("LOCK.ACQUIRE k b {LONG} BLOCK 0");
    let mut b = Waiter::park_over(user(&server, "worker", &rules), &server, &line);
    let steps = ["ACL SETUSER worker -lock.acquire", "LOCK.RELEASE k a"];
    let replies = multi(&mut client, &[&["LOCK.WAITERS k"], &steps[..]].concat());
    // On a machine that is very busy it has waited longer.
    if replies[0].items()[0].get("waited").int() < 15 {
        b.granted("b");
    }
}

/// The waiting command itself needs the permission, not another of its family.
#[test]
fn a_request_for_one_key_of_several_needs_its_own_commands_permission() {
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

/// The lines of the block in this language.
fn users(language: &str) -> Vec<String> {
    let block = DOCUMENT.split_once(&format!("```{language}\n")).expect("a block of users").1;
    let block = block.split_once("```").expect("its end").0;
    block.lines().map(String::from).collect()
}

/// The line of a user, in the words that this server takes.
pub fn user_of_the_document(client: &mut Client, name: &str) -> String {
    let lines = users(if has_categories(client) { "acl-with-categories" } else { "acl-by-name" });
    lines.into_iter().find(|line| line.starts_with(&format!("user {name} "))).expect("the user")
}

#[test]
fn the_users_of_the_document_may_do_what_it_says() {
    let has_categories = has_categories(&mut Server::start().client());
    let lines = users(if has_categories { "acl-with-categories" } else { "acl-by-name" });
    let server = lines.iter().fold(Server::builder(), |builder, line| builder.config(line.as_str())).start();
    let mut tried = 0;
    let (_, table) = DOCUMENT.split_once("\n## What each may do\n").expect("the table");
    for row in table.lines().filter(|line| line.starts_with("| `")) {
        let cells: Vec<&str> = row.trim_matches('|').split(" | ").map(str::trim).collect();
        let [command, told @ ..] = cells.as_slice() else { panic!("{row}") };
        let words = words_of(command.trim_matches('`'));
        for (name, told) in ["worker", "operator", "dashboard"].iter().zip(told) {
            let admin = &mut server.client();
            admin.run("FLUSHALL");
            admin.run("LOCK.ACQUIRE lock:1 me").fence();
            let mut client = server.client();
            assert!(!client.cmd(&["AUTH", name, &format!("{name}-secret")]).is_error(), "{name}");
            let is_permitted = !is_refused(&mut client, &words);
            assert_eq!(if is_permitted { "yes" } else { "no" }, *told, "{name}: {command}");
            tried += 1;
        }
    }
    assert!(tried > 40, "only {tried} were tried");
}

/// By name, all commands of the category: a user of the same name shall have the same rights on both kinds of server.
#[test]
fn the_document_names_for_7_0_what_the_category_permits_elsewhere() {
    let lines = users("acl-by-name");
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

//! docs/reference.md: the header of each command comes from the catalog, and matches the server's information.

use std::collections::BTreeSet;
use std::fs;

use command::catalog::{Arg, Command, CATALOG};

use crate::pages::root;
use crate::support::Server;

const PAGE: &str = "docs/reference.md";
const COLUMNS: usize = 116;
const BEGIN: &str = "<!-- command ";
const END: &str = "<!-- end of command -->";

/// `REFERENCE=write cargo test --test it reference::` writes the headers.
#[test]
fn each_command_has_the_header_from_the_catalog() {
    let page = fs::read_to_string(root().join(PAGE)).expect("the page");
    let mut parts = page.split(BEGIN);
    let mut expected = parts.next().expect("the beginning").to_string();
    let mut named = Vec::new();
    for part in parts {
        let (name, rest) = part.split_once(" -->\n").expect("the name of a command");
        let (_, behind) = rest.split_once(END).unwrap_or_else(|| panic!("{name} has no end"));
        let command = CATALOG.iter().find(|command| command.name == name);
        let command = command.unwrap_or_else(|| panic!("there is no command {name}"));
        assert!(expected.ends_with(&format!("\n### {name}\n\n")), "{name} is not below its heading");
        expected += &format!("{BEGIN}{name} -->\n{}{END}{behind}", header(command));
        named.push(name);
    }
    if std::env::var("REFERENCE").is_ok_and(|value| value == "write") {
        fs::write(root().join(PAGE), &expected).expect("it can be written");
    }
    assert!(page == expected, "this writes {PAGE}: REFERENCE=write cargo test --test it reference::");
    let names: BTreeSet<_> = CATALOG.iter().map(|command| command.name).collect();
    assert_eq!(named.iter().copied().collect::<BTreeSet<_>>(), names);
    assert_eq!(named.len(), names.len(), "a command is there twice");
}

/// COMMAND DOCS and COMMAND INFO, which the server gets from the module. The header is not made from these.
#[test]
fn the_server_reports_the_same_about_each_command() {
    let server = Server::start();
    let mut client = server.client3();
    let version = server.info("server").text("redis_version").to_string();
    let has_categories = client.run("ACL CAT").items().iter().any(|category| category.text() == "lock");
    for command in CATALOG {
        let name = command.name.to_ascii_lowercase();
        let docs = client.cmd(&["COMMAND", "DOCS", &name]);
        let docs = docs.get(&name);
        for (field, expected) in
            [("summary", command.summary), ("since", command.since()), ("complexity", command.complexity)]
        {
            assert_eq!(docs.get(field).text(), expected, "{name}: {field}");
        }
        let info = client.cmd(&["COMMAND", "INFO", &name]);
        let words = |number: usize| -> BTreeSet<String> {
            info.items()[0].items()[number].items().iter().map(|word| word.text().to_string()).collect()
        };
        let mut flags = words(2);
        // The server adds it if keys are counted or determined by a callback.
        flags.remove("movablekeys");
        assert_eq!(flags, flags_of(command).into_iter().collect(), "{name}");
        let mut expected: BTreeSet<String> = categories_of(command).into_iter().collect();
        if !has_categories {
            expected.remove("@lock");
            // Redis 7.2 has the server's own categories for module commands.
            expected.retain(|_| version.starts_with("7.2."));
        }
        assert_eq!(words(6), expected, "{name}");
    }
}

fn header(command: &Command) -> String {
    let code = |words: Vec<String>| words.iter().map(|word| format!("`{word}`")).collect::<Vec<_>>().join(" ");
    let [syntax, summary] = [syntax(command), wrapped(command.summary, "", "")];
    let titles = "| since | time complexity | ACL categories | flags |\n| --- | --- | --- | --- |";
    let [categories, flags] = [code(categories_of(command)), code(flags_of(command))];
    let row = format!("| {} | {} | {categories} | {flags} |", command.since(), command.complexity);
    format!("\n{syntax}\n{summary}\n\n{titles}\n{row}\n\n")
}

/// Formats it as an indented block.
fn syntax(command: &Command) -> String {
    let words: Vec<String> = command.args.iter().map(Arg::to_string).collect();
    wrapped(&format!("{} {}", command.name, words.join(" ")), "    ", "        ") + "\n"
}

/// Wraps at a column; text in brackets stays together.
fn wrapped(text: &str, first: &str, next: &str) -> String {
    let mut parts: Vec<String> = Vec::new();
    for word in text.split(' ') {
        match parts.last_mut() {
            Some(part) if part.matches('[').count() > part.matches(']').count() => *part += &format!(" {word}"),
            _ => parts.push(word.to_string()),
        }
    }
    let (mut lines, mut line) = (Vec::new(), first.to_string());
    for part in parts {
        if line.chars().count() + 1 + part.chars().count() > COLUMNS {
            lines.push(std::mem::replace(&mut line, next.to_string()));
        }
        if !line.trim().is_empty() {
            line.push(' ');
        }
        line += &part;
    }
    lines.push(line);
    lines.join("\n")
}

fn categories_of(command: &Command) -> Vec<String> {
    command.categories.split(' ').chain(["lock"]).map(|category| format!("@{category}")).collect()
}

/// With the names of COMMAND INFO.
fn flags_of(command: &Command) -> Vec<String> {
    command.flags.split(' ').chain(["module"]).map(|flag| flag.replace("deny-oom", "denyoom")).collect()
}

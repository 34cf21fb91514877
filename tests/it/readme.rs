//! Tests README.md, the pages of docs/ and redis.conf.example: their sessions are typed into a real redis-cli, and the
//! commands and settings that they name are looked up on a real server.
//!
//! A session is a fenced block without a language. Lines that begin with the prompt `127.0.0.1:6379> ` (or
//! `127.0.0.1:6379(TX)> ` inside MULTI) are typed; the lines below are the reply, as redis-cli prints it. One redis-cli
//! runs all blocks in order, so a block continues where the previous one ended. Every character must match, except what
//! varies between runs: see [`varies`].
//!
//! Directives are comments right above the block, one per line, and are run in order:
//!
//!     <!-- replay: TERMINAL> COMMAND -->             typed into another redis-cli; an error fails the test
//!     <!-- replay: TERMINAL waits> COMMAND -->       the same, and the server must block that client
//!     <!-- replay: TERMINAL listens> COMMAND -->     the same, for SUBSCRIBE
//!     <!-- replay: pause 4000 ms -->
//!
//! or describe the block:
//!
//!     <!-- replay: at most ttl 30000, remaining 5000 -->             bounds, in ms, of what varies in it
//!     <!-- replay: resp3 -->                                         it is typed into `redis-cli -3`
//!     <!-- replay: TERMINAL prints -->                               it is what this terminal prints unasked
//!     <!-- replay: meanwhile, after 1500 ms, TERMINAL> COMMAND -->   typed while its command with BLOCK waits
//!
//! The same TERMINAL is the same connection throughout the file.

pub mod blocks;
mod replay;
mod terminal;
mod varies;

use crate::support::skip::skip;
use crate::support::Server;
use blocks::blocks;
use replay::Replay;
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

const README: &str = include_str!("../../README.md");

/// The pages with sessions; each page runs on a separate server.
const PAGES: [(&str, &str); 15] = [
    ("docs/start.md", include_str!("../../docs/start.md")),
    ("docs/commands.md", include_str!("../../docs/commands.md")),
    ("docs/reference.md", include_str!("../../docs/reference.md")),
    ("docs/mutex.md", include_str!("../../docs/mutex.md")),
    ("docs/read-write.md", include_str!("../../docs/read-write.md")),
    ("docs/semaphore.md", include_str!("../../docs/semaphore.md")),
    ("docs/several.md", include_str!("../../docs/several.md")),
    ("docs/exec.md", include_str!("../../docs/exec.md")),
    ("docs/adopt.md", include_str!("../../docs/adopt.md")),
    ("docs/waiting.md", include_str!("../../docs/waiting.md")),
    ("docs/inspecting.md", include_str!("../../docs/inspecting.md")),
    ("docs/settings.md", include_str!("../../docs/settings.md")),
    ("docs/figures.md", FIGURES),
    ("docs/limits.md", include_str!("../../docs/limits.md")),
    ("docs/recipes.md", include_str!("../../docs/recipes.md")),
];
const ARCHITECTURE: &str = include_str!("../../ARCHITECTURE.md");
const STABILITY: &str = include_str!("../../docs/stability.md");
const FIGURES: &str = include_str!("../../docs/figures.md");
const EXAMPLE_CONF: &str = include_str!("../../redis.conf.example");

#[test]
fn the_sessions_match_redis_cli() {
    let typed = |(file, text)| type_sessions(&Server::start(), file, text);
    let sessions: usize = [("README.md", README)].into_iter().chain(PAGES).map(typed).sum();
    assert!(sessions > 10, "only {sessions} sessions were found");
}

/// Types the sessions of a document and compares the output; returns how many there are.
pub fn type_sessions(server: &Server, file: &'static str, text: &str) -> usize {
    let mut replay = Replay::new(server, file);
    let mut sessions = 0;
    for block in blocks(text) {
        match block.language {
            "" => {
                replay.block(&block);
                sessions += 1;
            }
            "sql" => assert!(block.directives.is_empty(), "line {}: nothing is replayed here", block.line),
            // Run by the tests of the client or of the command line.
            "python" | "js" | "rust" | "go" | "java" | "sh" | "console" => {
                assert!(block.directives.is_empty(), "line {}: a program", block.line)
            }
            // The settings of redis.conf.example (`scripts/result`), whose defaults are tested below.
            "conf" => assert!(block.directives.is_empty(), "line {}: settings", block.line),
            other => panic!("line {}: a block of {other}, which no test reads", block.line),
        }
    }
    sessions
}

#[test]
fn every_command_that_readme_names_exists() {
    let named = commands_in(README);
    assert!(named.len() > 5, "{named:?}");
    let server = Server::start();
    let mut client = server.client3();
    for command in &named {
        let info = client.cmd(&["COMMAND", "INFO", command]);
        assert!(!info.items()[0].is_nil(), "there is no {command}");
    }
}

/// The test harness sets port, address and snapshots for every server, so their defaults cannot be tested.
const SET_BY_THE_HARNESS: &[&str] = &["port", "bind", "save"];

#[test]
fn every_setting_of_the_example_exists_and_has_the_default_that_its_comment_says() {
    let server = Server::start();
    let mut client = server.client();
    let mut ours = 0;
    for setting in settings(EXAMPLE_CONF) {
        let reply = client.cmd(&["CONFIG", "GET", setting.name]);
        assert_eq!(reply.pairs().len(), 1, "{} is no setting of the server", setting.name);
        let Some(documented) = setting.default else { panic!("no \"Default: …\" above {}", setting.name) };
        if !SET_BY_THE_HARNESS.contains(&setting.name) {
            let default = reply.get(setting.name).text();
            assert_eq!(documented, if default.is_empty() { "empty" } else { default }, "{}", setting.name);
        }
        if setting.name.starts_with("lock.") {
            let value = if setting.value == "\"\"" { "empty" } else { setting.value };
            assert_eq!(value, documented, "{}: the example keeps the default", setting.name);
            ours += 1;
        }
    }
    assert_eq!(ours, client.run("CONFIG GET lock.*").pairs().len(), "the example has all of the module's settings");
}

#[test]
fn a_server_starts_with_the_example() {
    let lines = EXAMPLE_CONF.lines().filter(|line| !line.starts_with("bind ") && !line.starts_with("port "));
    let server = lines.fold(Server::builder(), |builder, line| builder.config(line)).start();
    let mut client = server.client();
    for line in EXAMPLE_CONF.lines().filter(|line| line.starts_with("lock.")) {
        let (name, value) = line.split_once(' ').expect("a name and a value");
        assert_eq!(client.cmd(&["CONFIG", "GET", name]).get(name).text(), value.trim_matches('"'));
    }
    client.run("LOCK.ACQUIRE k a").fence();
}

#[test]
fn a_lock_has_the_size_that_docs_figures_says() {
    let server = Server::start();
    let mut client = server.client();
    let version = server.info("server").text("redis_version").to_string();
    let allocator = server.info("memory").text("mem_allocator").to_string();
    // The server of docs/figures.md: others store keys differently, and other allocators round differently.
    if !version.starts_with("7.0.") || !allocator.starts_with("jemalloc") {
        return skip(&format!(
            "docs/figures.md has the sizes of Redis 7.0 with jemalloc, not of {version} with {allocator}"
        ));
    }
    let before = server.info("memory").number("used_memory");
    let make = "for i = 1, 1000 do redis.call('LOCK.ACQUIRE', string.format('lock:%07d', i), ARGV[1], 'EX', 300) end";
    client.cmd(&["EVAL", make, "0", "0615c124-43c5-4ca6-bf89-a6986fb23e07"]);
    let in_all = (server.info("memory").number("used_memory") - before) / 1000;
    let row = |name: &str| {
        let row = FIGURES.lines().find(|line| line.starts_with(&format!("| {name}")));
        row.unwrap_or_else(|| panic!("docs/figures.md has no row {name}"))
    };
    let counted: i64 = cell(row("locked key, as `MEMORY USAGE` counts"), 1).parse().expect("bytes");
    let stored: i64 = cell(row("stored lock"), 1).parse().expect("bytes");
    assert_eq!(client.run("MEMORY USAGE lock:0000001").int(), counted);
    // As in the table row: the stored lock, 16 bytes for the key's name and 24 for its dict entry.
    assert_eq!(counted, stored + 16 + 24);
    assert!(row("locked key, in all").contains("240 at 1,000"));
    assert!((216..=264).contains(&in_all), "{in_all} bytes per locked key, and docs/figures.md says 240");
}

/// Paths that contain a directory; relative to src/ unless they exist as they are.
#[test]
fn architecture_and_stability_name_existing_files_and_tests() {
    let find = |path: &str| [root().join("src").join(path), root().join(path)].into_iter().find(|path| path.exists());
    let (mut wrong, mut tests) = (Vec::new(), 0);
    let is_path = |word: &&str| word.contains('/') && !word.contains(' ') && !word.contains('{');
    let quoted = ARCHITECTURE.lines().flat_map(|line| line.split('`').skip(1).step_by(2));
    wrong.extend(quoted.filter(is_path).filter(|path| find(path).is_none()));
    // Rows: | an invariant | `file`: `test` |
    let rows = ARCHITECTURE.lines().chain(STABILITY.lines()).filter_map(|line| line.strip_suffix("` |"));
    for (path, name) in rows.filter_map(|row| row.rsplit_once("`: `")) {
        let path = path.rsplit('`').next().unwrap_or(path);
        tests += 1;
        let text = find(path).and_then(|path| fs::read_to_string(path).ok());
        wrong.extend(text.is_none_or(|text| !text.contains(&format!("fn {name}("))).then_some(name));
    }
    assert!(wrong.is_empty() && tests > 18, "{wrong:#?}; {tests} tests");
}

#[test]
fn the_changelogs_begin_with_this_version() {
    let version = env!("CARGO_PKG_VERSION");
    let mut versions = include_str!("../../CHANGELOG.md").lines().filter(|line| line.starts_with("## "));
    let newest = versions.find(|line| *line != "## [Unreleased]");
    assert!(newest.is_some_and(|line| line.starts_with(&format!("## [{version}] - "))), "{newest:?}");
    let debian = include_str!("../../packaging/debian/redis-lock-module.changelog");
    assert!(debian.starts_with(&format!("redis-lock-module ({version}-1) ")), "{debian}");
}

#[test]
fn the_table_of_clients_and_modules_has_the_versions_of_this_checkout() {
    let manifests = [
        ("Python", include_str!("../../clients/python/pyproject.toml")),
        ("Node", include_str!("../../clients/node/package.json")),
        ("Rust", include_str!("../../clients/rust/Cargo.toml")),
        ("command line", include_str!("../../cli/Cargo.toml")),
    ];
    let upgrade = include_str!("../../docs/upgrade.md");
    let (_, table) = upgrade.split_once("\n| client | ").expect("the table");
    let (table, _) = table.split_once("\n\n").expect("its end");
    for (client, manifest) in manifests {
        let line = manifest.lines().find(|line| line.trim_start_matches([' ', '"']).starts_with("version"));
        let version = line.and_then(|line| line.split('"').rfind(|part| part.contains('.'))).expect("a version");
        assert!(table.contains(&format!("{client} {version}")), "docs/upgrade.md has no {client} {version}");
    }
    let java = include_str!("../../clients/java/pom.xml").split_once("<version>").expect("a version").1;
    let version = java.split('<').next().expect("a version");
    assert!(table.contains(&format!("Java {version}")), "docs/upgrade.md has no Java {version}");
    // The adapters name the version of the Go client.
    let go = include_str!("../../clients/go/gocron/go.mod").split_once("clients/go v").expect("a version").1;
    let version = go.split_whitespace().next().expect("a version");
    assert!(table.contains(&format!("Go {version}")), "docs/upgrade.md has no Go {version}");
    let module = format!("module {} |", env!("CARGO_PKG_VERSION"));
    assert_eq!(table.lines().next(), Some(&*module), "the column of the module");
}

/// The module's commands that are named: `LOCK.ACQUIRE`, `SEM.RELEASE`, …
fn commands_in(text: &str) -> BTreeSet<String> {
    let words = text.split(|letter: char| !letter.is_ascii_uppercase() && letter != '.' && letter != '_');
    let is_command = |word: &str| match word.split_once('.') {
        Some((prefix, action)) => ["LOCK", "RLOCK", "RWLOCK", "SEM", "MLOCK"].contains(&prefix) && !action.is_empty(),
        None => false,
    };
    words.map(|word| word.trim_end_matches('.')).filter(|word| is_command(word)).map(String::from).collect()
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// A cell of a table row, counted from 0, without the comment that names its figure (`scripts/result`).
fn cell(row: &str, column: usize) -> &str {
    let cell = row.split('|').nth(column + 1).unwrap_or_default();
    cell.split("<!--").next().unwrap_or_default().trim()
}

/// A line of redis.conf, with the default in the comment above it.
struct Setting<'a> {
    name: &'a str,
    value: &'a str,
    default: Option<&'a str>,
}

/// A setting that the example leaves at the server's default.
const INACTIVE: &[&str] = &["# maxmemory "];

/// All lines with a setting. A comment ends at an empty line.
fn settings(text: &str) -> impl Iterator<Item = Setting<'_>> {
    let mut default = None;
    text.lines().filter_map(move |line| {
        let line = if INACTIVE.iter().any(|inactive| line.starts_with(inactive)) { &line[2..] } else { line };
        if let Some(comment) = line.strip_prefix('#') {
            let rest = comment.split_once("Default: ").map(|(_, rest)| rest);
            // A sentence in which an explanation may follow the value.
            default = rest.and_then(|rest| rest.split(['.', ',', '(']).next()).map(str::trim).or(default);
            return None;
        }
        let documented = default.take();
        let (name, value) = line.split_once(' ')?;
        Some(Setting { name, value, default: documented })
    })
}

/// The words of a command as redis-cli splits them: a quoted word may contain blanks.
pub fn words_of(line: &str) -> Vec<String> {
    let parts = line.split('"').enumerate();
    let word = |(number, part): (usize, &str)| match number % 2 {
        0 => part.split_whitespace().map(String::from).collect(),
        _ => vec![part.to_string()],
    };
    parts.flat_map(word).collect()
}

//! docs/errors.md lists exactly the error texts in the sources.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use crate::pages::root;

const PAGE: &str = include_str!("../../docs/errors.md");

#[test]
fn the_page_has_every_reply_of_the_module() {
    let mut expected = BTreeSet::new();
    for literal in literals(&source("src/command/errors.rs"), Language::Rust) {
        let code = literal.text.split(' ').next().unwrap_or_default();
        // Server messages that the module recognizes are not its own.
        let is_recognized = ["strip_prefix", "strip_suffix"].contains(&literal.called.as_str());
        let is_reply = code.len() > 2 && code.bytes().all(|letter| letter.is_ascii_uppercase());
        expected
            .extend((is_reply && literal.text != code && !is_recognized).then(|| shown(&literal.text, Language::Rust)));
    }
    for file in files_below("src/command", "rs") {
        let text = source(&file);
        for call in ["errors::syntax_at(", "errors::syntax(", "errors::invalid_expire("] {
            let problems =
                text.split(call).skip(1).filter_map(|rest| literals(rest, Language::Rust).into_iter().next());
            expected.extend(problems.map(|problem| shown(&problem.text, Language::Rust)));
        }
    }
    assert!(expected.len() > 60, "only {} texts were found", expected.len());
    compare(&expected, "## Replies of the module", "### From the server itself");
}

#[test]
fn the_page_has_the_messages_of_loading_and_settings() {
    let mut expected = BTreeSet::new();
    for file in ["src/shell/start.rs", "src/shell/settings.rs", "src/shell/adopt/mod.rs"] {
        let is_text = |literal: &Literal| {
            literal.text.matches(' ').count() > 2
                && literal.called != "expect"
                && !["{} (", "{name} (key patterns)", "minor and patch have two digits"]
                    .iter()
                    .any(|other| literal.text.starts_with(other))
        };
        let literals = literals(&source(file), Language::Rust);
        expected.extend(literals.iter().filter(|one| is_text(one)).map(|one| shown(&one.text, Language::Rust)));
    }
    assert!(expected.len() > 10, "only {} texts were found", expected.len());
    compare(&expected, "## Loading and settings", "## ");
}

#[test]
fn the_page_has_the_types_of_every_client() {
    let python = read("clients/python/src/redislock/errors.py");
    let (_, names) = python.split_once("__all__ = [").expect("the names");
    let names = names.split(']').next().unwrap_or_default();
    let mut expected: BTreeSet<String> = literals(names, Language::Python).into_iter().map(|name| name.text).collect();
    let node = read("clients/node/src/errors.ts");
    expected.extend(words_after(&node, "export class "));
    let rust = read("clients/rust/src/error.rs");
    let (_, variants) = rust.split_once("pub enum Error {\n").expect("the enum");
    let variants = variants.split("\n}\n").next().unwrap_or_default();
    let is_variant =
        |line: &&str| line.starts_with("    ") && line.as_bytes().get(4).is_some_and(u8::is_ascii_uppercase);
    expected.extend(variants.lines().filter(is_variant).map(|line| word(line.trim_start())));
    for file in ["clients/go/errors.go", "clients/go/gocron/gocron.go"] {
        let go = read(file);
        expected.extend(go.lines().map(|line| line.trim_start().trim_start_matches("var ")).filter_map(|line| {
            let (name, _) = line.split_once(" = errors.New(")?;
            name.starts_with("Err").then(|| name.to_string())
        }));
        expected.extend(words_after(&go, "type ").into_iter().filter(|name| name.ends_with("Error")));
    }
    for file in files_below("clients/java/core/src/main", "java") {
        let name = file.file_stem().and_then(|name| name.to_str()).unwrap_or_default();
        expected.extend(name.ends_with("Exception").then(|| name.to_string()));
    }
    assert!(expected.len() > 40, "only {} types were found", expected.len());
    let (_, table) = PAGE.split_once("### Types\n").expect("the section");
    let table = table.split_once("\n\nThe tables below").expect("its end").0;
    let cells = table.lines().filter(|line| line.starts_with("| ")).flat_map(|line| line.split(" | ").skip(1));
    let written: BTreeSet<String> = cells.flat_map(spans).collect();
    assert_same(&expected, &written);
}

/// Texts that are not errors: server messages that a client recognizes, thread names, assertions, parts of events.
const NO_MESSAGES: [&str; 45] = [
    // Messages of the server.
    "ERR invalid expire time in '",
    "ERR invalid expire time",
    "ERR value is not an integer or out of range",
    "NOREPLICAS MISCONF GRACE BUSY MASTERDOWN CLUSTERDOWN TRYAGAIN READONLY LOADING",
    "NOREPLICAS MISCONF GRACE BUSY MASTERDOWN CLUSTERDOWN TRYAGAIN READONLY LOADING MOVED ASK",
    "Too many connections",
    "[ioredis] Unhandled error event:",
    "all sentinels specified in configuration are unreachable",
    "instance state changed",
    "invalid expire time",
    "max number of clients reached",
    "redis: nil|unknown command|NOAUTH|WRONGPASS|NOPERM",
    "unknown command .?(R?LOCK|RWLOCK|SEM|MLOCK)\\.",
    "unknown command ['`](LOCK|RLOCK|RWLOCK|SEM|MLOCK)\\.",
    "cluster support disabled",
    "DB index is out of range",
    // Names of commands, options and types.
    "ASKING AUTH DISCARD EXEC HELLO MONITOR MULTI PSUBSCRIBE PSYNC PUNSUBSCRIBE QUIT READONLY READWRITE RESET SELECT \
     SSUBSCRIBE SUBSCRIBE SUNSUBSCRIBE SYNC UNSUBSCRIBE UNWATCH WATCH",
    "CACHING CAPA IMPORT-SOURCE NO-EVICT NO-TOUCH REPLY SETNAME TRACKING",
    "lease wait autoRenew session replicas replicaTimeout atLeast token tellHolder",
    "wait signal token tellHolder",
    "weakref.WeakKeyDictionary[Any, Dict[str, NodePool]]",
    // Events and holds as text.
    ", fence …",
    ", after … ms",
    ", after … s",
    ", held for … ms",
    ", held for … s",
    "… … … to ……………",
    "…: … …, owner …",
    "an object without a string form",
    // Never raised to a caller.
    "an error, or a type of RESP3",
    "redislock: an argument of type …",
    "hold of \"…\", fence …, …,",
    // Threads, assertions, compiler warnings.
    "redislock deadline …",
    "redislock renew …",
    "redislock session …",
    "a request of `run`",
    "a request of the same owner comes first",
    "auto_renew and session need a lease",
    "it has a command and no coalesce",
    "made by this driver",
    "no messages over connections that block",
    "this task awaits no message",
    "nothing panics while it is locked",
    "dropping a guard releases the lock",
    "a transferred hold must be released by its token",
];

#[test]
fn the_page_has_every_text_of_the_clients() {
    let python = files_below("clients/python/src/redislock", "py").into_iter().map(|file| (file, Language::Python));
    let node = files_below("clients/node/src", "ts").into_iter().map(|file| (file, Language::TypeScript));
    let rust = files_below("clients/rust/src", "rs").into_iter().map(|file| (file, Language::Rust));
    let go = files_below("clients/go", "go").into_iter().map(|file| (file, Language::Go));
    let java = files_below("clients/java", "java").into_iter().map(|file| (file, Language::Java));
    let is_client = |file: &PathBuf| {
        let path = file.to_string_lossy().into_owned();
        let others = [
            "_test.go",
            "opentelemetry",
            "/benches/",
            "/faults/",
            "/redisson/",
            "/internal/",
            "/target/",
            "/src/test/",
        ];
        !others.iter().any(|other| path.contains(other)) && (!path.ends_with(".java") || path.contains("/src/main/"))
    };
    let mut expected = BTreeSet::new();
    for (file, language) in python.chain(node).chain(rust).chain(go).chain(java).filter(|(file, _)| is_client(file)) {
        expected.extend(messages(&file, language));
    }
    assert!(expected.len() > 300, "only {} texts were found", expected.len());
    compare(&expected, "### The lock was not acquired", "## Errors of the command line");
}

#[test]
fn the_page_has_every_error_of_the_command_line() {
    let mut expected = BTreeSet::new();
    // Other files print requested output.
    let others =
        ["dot.rs", "exit_code.rs", "generate.rs", "model.rs", "screen.rs", "summary.rs", "table.rs", "tree.rs"];
    for file in files_below("cli/src", "rs") {
        let name = file.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        if !others.contains(&name) {
            expected.extend(messages(&file, Language::Rust));
        }
    }
    for printed in [
        "fits, with a remark",
        "does not fit",
        "…  …  (……)",
        "the nearest key is …",
        "… of type …",
        "now …; …",
        "1 holder of … was removed",
        "… holders of … were removed",
        "… no longer waits for …",
        "the log is empty",
        "; a SET NX client",
    ] {
        assert!(expected.remove(printed), "{printed:?} is printed no more: remove it here");
    }
    expected.retain(|text| !text.starts_with("redis-lock ["));
    for usage in ["run", "top", "graph", "ls", "info", "waiters", "break", "cancel", "log", "adopt", "generate"] {
        expected.retain(|text| !text.starts_with(&format!("redis-lock {usage} ")));
    }
    assert!(expected.len() > 60, "only {} texts were found", expected.len());
    compare(&expected, "## Errors of the command line", "## ");
}

/// The literals of a source file that have at least three words.
fn messages(file: &Path, language: Language) -> BTreeSet<String> {
    let literals = literals(&code(&read(file), language), language);
    let is_assertion = |literal: &Literal| {
        language == Language::Rust
            && ["assert", "debug_assert", "expect", "unreachable"].contains(&literal.called.as_str())
    };
    let texts = literals.iter().filter(|literal| !is_assertion(literal)).map(|literal| shown(&literal.text, language));
    texts.filter(|text| text.matches(' ').count() > 1 && !NO_MESSAGES.contains(&text.as_str())).collect()
}

/// The words that follow `begin` at the beginning of a line.
fn words_after(source: &str, begin: &str) -> BTreeSet<String> {
    source.lines().filter_map(|line| line.strip_prefix(begin)).map(word).collect()
}

fn word(text: &str) -> String {
    text.chars().take_while(|letter| letter.is_alphanumeric() || *letter == '_').collect()
}

/// Checks the texts in the first column of the section's tables.
#[track_caller]
fn compare(expected: &BTreeSet<String>, section: &str, end: &str) {
    let (_, section) = PAGE.split_once(&format!("{section}\n")).expect("the section");
    let section = section.split_once(&format!("\n{end}")).map_or(section, |(section, _)| section);
    let written: BTreeSet<String> = section.lines().filter_map(first_cell).flat_map(|cell| spans(&cell)).collect();
    assert_same(expected, &written);
}

#[track_caller]
fn assert_same(expected: &BTreeSet<String>, written: &BTreeSet<String>) {
    let missing: Vec<_> = expected.difference(written).collect();
    let invented: Vec<_> = written.difference(expected).collect();
    assert!(
        missing.is_empty() && invented.is_empty(),
        "docs/errors.md lacks {missing:#?}, and has what is not in the sources: {invented:#?}"
    );
}

fn first_cell(line: &str) -> Option<String> {
    // A bar inside a cell is escaped.
    let row = line.strip_prefix("| ")?.replace("\\|", "\0");
    Some(row.split(" |").next()?.replace('\0', "|"))
}

/// The text between backticks, or between double backticks if it contains one itself.
fn spans(cell: &str) -> Vec<String> {
    let (mut found, mut rest) = (Vec::new(), cell);
    while let Some(start) = rest.find('`') {
        let fence = if rest[start..].starts_with("``") { "``" } else { "`" };
        let (text, after) = rest[start + fence.len()..].split_once(fence).expect("the span ends");
        found.push(text.trim().to_string());
        rest = after;
    }
    found
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Language {
    Go,
    Java,
    Python,
    Rust,
    TypeScript,
}

/// A string literal, or multiple concatenated ones, and the function or macro call that it is an argument of.
struct Literal {
    text: String,
    called: String,
}

/// All string literals of a source file. Concatenated literals count as one text, in Java with `…` for what is between.
fn literals(source: &str, language: Language) -> Vec<Literal> {
    let mut found: Vec<Literal> = Vec::new();
    let mut end = 0;
    let mut last = None;
    let is_quote =
        |letter: char| letter == '"' || (letter == '`' && matches!(language, Language::Go | Language::TypeScript));
    while let Some(start) = source[end..].find(is_quote).map(|start| end + start) {
        let quote = source.as_bytes()[start];
        end = start + 1;
        // Raw strings in Go have no escapes; the ones here are regular expressions.
        let has_escapes = quote == b'"' || language == Language::TypeScript;
        while source.as_bytes().get(end).is_some_and(|byte| *byte != quote) {
            end += if has_escapes && source.as_bytes()[end] == b'\\' { 2 } else { 1 };
        }
        end += 1;
        if !has_escapes {
            last = None;
            continue;
        }
        let mut lines = source[start + 1..end - 1].split("\\\n");
        let first = lines.next().unwrap_or_default().to_string();
        let text = lines.fold(first, |text, line| text + line.trim_start());
        let gap = last.map(|last: usize| source[last..start].trim());
        let joint = gap.and_then(|gap| match language {
            Language::Python => ["", "f"].contains(&gap).then_some(""),
            Language::Go | Language::TypeScript => (gap == "+").then_some(""),
            Language::Java if gap == "+" => Some(""),
            Language::Java => {
                let is_added = gap.len() > 2 && gap.starts_with('+') && gap.ends_with('+');
                (is_added && !gap.contains([';', '"', '?', ','])).then_some("…")
            }
            Language::Rust => None,
        });
        if let (Some(joint), Some(before)) = (joint, found.last_mut()) {
            before.text += joint;
            before.text += &text;
        } else {
            let called = source[..start].trim_end_matches([' ', '\n', '&', 'b', '(', '!']);
            let called = called.rsplit(|letter: char| !letter.is_alphanumeric() && letter != '_').next();
            found.push(Literal { text, called: called.unwrap_or_default().to_string() });
        }
        last = Some(end);
    }
    found
}

/// As shown on the page: `…` stands for each value.
fn shown(text: &str, language: Language) -> String {
    let has_braces = matches!(language, Language::Python | Language::Rust | Language::TypeScript);
    let has_verbs = matches!(language, Language::Go | Language::Java | Language::Python);
    let (mut shown, mut rest) = (String::new(), text);
    while let Some(letter) = rest.chars().next() {
        let is_brace = match language {
            Language::TypeScript => rest.starts_with("${"),
            _ => has_braces && letter == '{',
        };
        let verb =
            rest.strip_prefix('%').map(|rest| rest.trim_start_matches(|letter: char| "-.0123456789".contains(letter)));
        match verb {
            _ if is_brace => {
                shown += "…";
                rest = rest.split_once('}').map_or("", |(_, rest)| rest);
            }
            Some(verb) if has_verbs && verb.starts_with(|letter: char| letter.is_ascii_alphabetic()) => {
                shown += "…";
                rest = &verb[1..];
            }
            _ => {
                shown.push(letter);
                rest = &rest[letter.len_utf8()..];
            }
        }
    }
    unescaped(&shown).trim().to_string()
}

fn unescaped(text: &str) -> String {
    let (mut plain, mut letters) = (String::new(), text.chars());
    while let Some(letter) = letters.next() {
        match (letter, if letter == '\\' { letters.next() } else { None }) {
            ('\\', Some('n')) => {}
            ('\\', Some(escaped @ ('"' | '\\'))) => plain.push(escaped),
            ('\\', Some(other)) => plain.extend(['\\', other]),
            _ => plain.push(letter),
        }
    }
    plain
}

/// A source file without its comments and, in Rust, its unit tests.
fn code(text: &str, language: Language) -> String {
    let text = match language {
        Language::Python => text.split("\"\"\"").step_by(2).collect::<String>(),
        Language::Rust => text.split("#[cfg(test)]\nmod ").next().unwrap_or_default().to_string(),
        _ => text.to_string(),
    };
    let comment = if language == Language::Python { "#" } else { "//" };
    let is_code = |line: &&str| {
        let line = line.trim_start();
        let is_block =
            language != Language::Python && (line.starts_with("/*") || line.starts_with("* ") || line == "*/");
        !line.starts_with(comment) && !is_block
    };
    let (space, quote) = (format!("  {comment} "), "'\"'");
    let without = |line: &str| format!("{}\n", line.split(&space).next().unwrap_or_default());
    text.lines().filter(is_code).map(without).collect::<String>().replace(quote, "' '")
}

fn source(path: impl AsRef<Path>) -> String {
    code(&read(path), Language::Rust)
}

fn read(path: impl AsRef<Path>) -> String {
    fs::read_to_string(root().join(path)).expect("a source")
}

fn files_below(folder: &str, ending: &str) -> Vec<PathBuf> {
    let (mut files, mut folders) = (Vec::new(), vec![root().join(folder)]);
    while let Some(folder) = folders.pop() {
        for path in fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("an entry").path()) {
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|found| found == ending) {
                files.push(path);
            }
        }
    }
    files.sort();
    files
}

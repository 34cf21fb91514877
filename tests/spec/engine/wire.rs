//! Parses the `wire` blocks of clients/writing-a-client.md as transcripts: the bytes of a request are its commands, and
//! the bytes of a reply are compared one by one. The page explains the format under "How the bytes are written".

use support::{decode_all, Reply};

use crate::backend::Words;
use crate::transcript::{Action, Command, End, Promise, Stage, Step};

/// The connection of a `test:` or `until:` line to the first server.
const TEST: &str = "test";

pub fn blocks(page: &str) -> Vec<Promise> {
    let mut blocks = Vec::new();
    let mut heading = "";
    let mut lines = (1..).zip(page.lines());
    while let Some((number, line)) = lines.next() {
        if line.starts_with('#') {
            heading = line.trim_start_matches('#').trim();
        } else if let Some(language) = line.strip_prefix("```") {
            let inside: Vec<_> = lines.by_ref().take_while(|(_, line)| *line != "```").collect();
            match language {
                "wire" => blocks.push(block(format!("{heading}, line {number}"), &inside)),
                "text" => {}
                other => panic!("line {number}: a block of {other}, which no test reads"),
            }
        }
    }
    blocks
}

fn block(title: String, lines: &[(usize, &str)]) -> Promise {
    let mut promise = Promise { title, stage: Stage::Configured(Vec::new()), lock_type: None, steps: Vec::new() };
    for (line, text) in joined(lines) {
        if let Some(servers) = text.strip_prefix("servers: ") {
            assert!(promise.steps.is_empty(), "line {line}: the servers come first");
            promise.stage = stage(servers).unwrap_or_else(|| panic!("line {line}: {servers}"));
        } else if !text.starts_with("# ") {
            let action = action(&text).unwrap_or_else(|why| panic!("line {line}: {text}: {why}"));
            promise.steps.push(Step { line, text, action });
        }
    }
    promise
}

/// A line that begins with a blank continues the line above it.
fn joined(lines: &[(usize, &str)]) -> Vec<(usize, String)> {
    let mut joined: Vec<(usize, String)> = Vec::new();
    for (number, line) in lines {
        match joined.last_mut() {
            Some((_, before)) if line.starts_with(' ') => before.push_str(line.trim_start()),
            _ => joined.push((*number, line.to_string())),
        }
    }
    joined
}

fn stage(servers: &str) -> Option<Stage> {
    match servers {
        "without the module" => Some(Stage::WithoutModule),
        "a primary and its replica" => Some(Stage::Replicated),
        "two nodes of a cluster" => Some(Stage::TwoNodes),
        _ => Some(Stage::Configured(vec![servers.strip_prefix("one with ")?.to_string()])),
    }
}

fn action(text: &str) -> Result<Action, String> {
    let (first, rest) = text.split_once(' ').ok_or("no step")?;
    if let Some(kind) = first.strip_suffix(':') {
        let (connection_name, kind) = match kind.strip_suffix('\'') {
            Some(kind) => (format!("{TEST}'"), kind),
            None => (TEST.to_string(), kind),
        };
        let (command, end) = match rest.split_once(" = ") {
            Some((command, bytes)) => {
                (command, End::Bytes { written: format!("{}\r\n", unescaped(bytes)), more: false })
            }
            None => (rest, End::NoError),
        };
        let command = Command::Line(named(command));
        return match (kind, &end) {
            ("test", _) => Ok(Action::Sends { connection_name, commands: vec![command], ends: vec![end] }),
            ("until", End::Bytes { .. }) => Ok(Action::Until { connection_name, command, end }),
            _ => Err("no step".into()),
        };
    }
    let connection_name = first.to_string();
    let name = connection_name.trim_end_matches('\'').trim_end_matches('3');
    if !(name.len() == 1 && name.chars().all(|letter| letter.is_ascii_uppercase())) {
        return Err("no connection has this name".into());
    }
    let (verb, bytes) = rest.split_once(' ').unwrap_or((rest, ""));
    let bytes = unescaped(bytes);
    match (verb, rest) {
        (">", _) => Ok(Action::Sends { connection_name, commands: commands(bytes.as_bytes())?, ends: Vec::new() }),
        ("<", _) => Ok(Action::Gets { connection_name, end: End::Bytes { written: bytes, more: false } }),
        ("<|", _) => Ok(Action::Loses { connection_name, end: End::Bytes { written: bytes, more: true } }),
        (_, "waits") => Ok(Action::Gets { connection_name, end: End::Waits }),
        (_, "closes") => Ok(Action::Ends { connection_name }),
        (_, "is closed") => Ok(Action::IsClosed { connection_name }),
        _ => Err("no step".into()),
    }
}

/// `\r` and `\n` are escapes; everything else is literal.
fn unescaped(text: &str) -> String {
    text.replace("\\r", "\r").replace("\\n", "\n")
}

/// Converts `<port 2>` to the engine's name, `$port2`.
fn named(command: &str) -> String {
    let mut parts = command.split('<');
    let mut named = parts.next().unwrap_or_default().to_string();
    for part in parts {
        let (what, behind) = part.split_once('>').unwrap_or_else(|| panic!("{command}: a < without its >"));
        named.push_str(&format!("${}{behind}", what.replace(' ', "")));
    }
    named
}

fn commands(bytes: &[u8]) -> Result<Vec<Command>, String> {
    let sent = decode_all(bytes).map_err(|error| error.to_string())?;
    let words = |command: &Reply| match command {
        Reply::Array(words) => words.iter().map(word).collect::<Option<Words>>().map(Command::Words),
        _ => None,
    };
    sent.iter().map(words).collect::<Option<_>>().ok_or("no commands".into())
}

fn word(word: &Reply) -> Option<Vec<u8>> {
    match word {
        Reply::Bulk(bytes) => Some(bytes.clone()),
        _ => None,
    }
}

#[test]
fn a_block_is_parsed_correctly() {
    let lines = ["servers: one with lock.grace 5", "# a note", "A3' > *1\\r\\n", "    $4\\r\\nPING\\r\\n", "B waits"];
    let numbered: Vec<_> = (8..).zip(lines).collect();
    let promise = block("title".into(), &numbered);
    assert_eq!(promise.stage, Stage::Configured(vec!["lock.grace 5".into()]));
    let steps: Vec<_> = promise.steps.iter().map(|step| (step.line, format!("{:?}", step.action))).collect();
    let ping = vec![Command::Words(vec![b"PING".to_vec()])];
    let sends = Action::Sends { connection_name: "A3'".into(), commands: ping, ends: Vec::new() };
    let waits = Action::Gets { connection_name: "B".into(), end: End::Waits };
    assert_eq!(steps, [(10, format!("{sends:?}")), (12, format!("{waits:?}"))]);
    assert!(matches!(action("until: EXISTS k = :0"), Ok(Action::Until { .. })));
    assert!(
        matches!(action("test': GET <fence 1>"), Ok(Action::Sends { connection_name: name, .. }) if name == "test'")
    );
    assert_eq!(named("GET <fence 1> k"), "GET $fence1 k");
    for nonsense in ["a > x", "AB > x", "A sleeps", "when: x", "until: x", "A", "", "A > *1\\r\\n", "A > +OK\\r\\n"] {
        assert!(action(nonsense).is_err(), "{nonsense}");
    }
}

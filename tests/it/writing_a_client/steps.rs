//! Reads the `wire` blocks of the page into steps. Sends nothing.

use crate::readme::blocks::blocks;

/// One block: servers of its own, and what happens on its connections.
pub struct Script {
    /// The line of the page on which the block begins, from 1.
    pub line: usize,
    pub servers: Servers,
    pub steps: Vec<(usize, Step)>,
}

/// What runs before the first step.
#[derive(Debug, PartialEq)]
pub enum Servers {
    One,
    WithoutModule,
    Configured(String),
    /// The second one follows the first.
    PrimaryAndReplica,
    /// The first one has all slots.
    TwoNodes,
}

/// A letter, `3` where it speaks RESP3, and a prime where it goes to the second server.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Name(pub String);

impl Name {
    fn parse(word: &str) -> Option<Name> {
        let (letter, rest) = word.split_at_checked(1)?;
        let is_name = letter.chars().all(|letter| letter.is_ascii_uppercase()) && ["", "3", "'", "3'"].contains(&rest);
        is_name.then(|| Name(word.to_string()))
    }

    pub fn is_resp3(&self) -> bool {
        self.0.contains('3')
    }

    pub fn is_second(&self) -> bool {
        self.0.ends_with('\'')
    }
}

#[derive(Debug, PartialEq)]
pub enum Step {
    /// `A > bytes`
    Sends { name: Name, bytes: Vec<u8> },
    /// `A < bytes`: these come, and the next line tells what comes after them.
    Receives { name: Name, bytes: String },
    /// `A <| bytes`: the reply has begun to come; the connection is lost after these bytes of it.
    Loses { name: Name, bytes: String },
    /// `A waits`: the server has blocked it.
    Waits { name: Name },
    /// `A closes`
    Closes { name: Name },
    /// `A is closed`: by the server.
    IsClosed { name: Name },
    /// `test: command` or `test: command = bytes`: typed by the test, once; `test':` into the second server.
    Test { is_second: bool, command: String, reply: Option<String> },
    /// `until: command = bytes`: again and again, until it is so.
    Until { is_second: bool, command: String, reply: String },
}

/// All blocks, in their order.
pub fn scripts(page: &str) -> Vec<Script> {
    let all = blocks(page).into_iter();
    let wire = all.filter(|block| {
        assert!(["wire", "text"].contains(&block.language), "line {}: a block that no test reads", block.line);
        block.language == "wire"
    });
    wire.map(|block| script(block.line, &block.lines)).collect()
}

fn script(line: usize, lines: &[&str]) -> Script {
    let mut script = Script { line, servers: Servers::One, steps: Vec::new() };
    for (number, text) in joined(line + 1, lines) {
        if let Some(servers) = text.strip_prefix("servers: ") {
            assert!(script.steps.is_empty(), "line {number}: the servers come first");
            script.servers = match servers {
                "without the module" => Servers::WithoutModule,
                "a primary and its replica" => Servers::PrimaryAndReplica,
                "two nodes of a cluster" => Servers::TwoNodes,
                other => {
                    let setting = other.strip_prefix("one with ").unwrap_or_else(|| panic!("line {number}: {other}"));
                    Servers::Configured(setting.to_string())
                }
            };
        } else if !text.starts_with("# ") {
            let step = step(&text).unwrap_or_else(|| panic!("line {number}: `{text}` is no step"));
            script.steps.push((number, step));
        }
    }
    script
}

/// Lines with what goes on in the lines below them, which begin with blanks.
fn joined(first: usize, lines: &[&str]) -> Vec<(usize, String)> {
    let mut joined: Vec<(usize, String)> = Vec::new();
    for (number, line) in (first..).zip(lines) {
        match joined.last_mut() {
            Some((_, before)) if line.starts_with(' ') => before.push_str(line.trim_start()),
            _ => joined.push((number, line.to_string())),
        }
    }
    joined
}

fn step(text: &str) -> Option<Step> {
    let (first, rest) = text.split_once(' ').unwrap_or((text, ""));
    if let Some(kind) = first.strip_suffix(':') {
        let is_second = kind.ends_with('\'');
        let (command, reply) = match rest.split_once(" = ") {
            Some((command, reply)) => (command.to_string(), Some(unescaped(reply))),
            None => (rest.to_string(), None),
        };
        return match kind.trim_end_matches('\'') {
            "test" => Some(Step::Test { is_second, command, reply }),
            "until" => Some(Step::Until { is_second, command, reply: reply? }),
            _ => None,
        };
    }
    let name = Name::parse(first)?;
    let (verb, bytes) = rest.split_once(' ').unwrap_or((rest, ""));
    Some(match (verb, rest) {
        (">", _) => Step::Sends { name, bytes: unescaped(bytes).into_bytes() },
        ("<", _) => Step::Receives { name, bytes: unescaped(bytes) },
        ("<|", _) => Step::Loses { name, bytes: unescaped(bytes) },
        (_, "waits") => Step::Waits { name },
        (_, "closes") => Step::Closes { name },
        (_, "is closed") => Step::IsClosed { name },
        _ => return None,
    })
}

/// `\r` and `\n` are these bytes; everything else stands for itself.
fn unescaped(text: &str) -> String {
    text.replace("\\r", "\r").replace("\\n", "\n")
}

#[test]
fn a_block_is_read_as_it_is_meant() {
    let lines = ["servers: one with lock.grace 5", "# a note", "A3' > *1\\r\\n", "    $4\\r\\n", "B waits", "B <| *2"];
    let script = script(7, &lines);
    assert_eq!(script.servers, Servers::Configured("lock.grace 5".into()));
    let name = |name: &str| Name(name.into());
    let steps = [
        (10, Step::Sends { name: name("A3'"), bytes: b"*1\r\n$4\r\n".to_vec() }),
        (12, Step::Waits { name: name("B") }),
        (13, Step::Loses { name: name("B"), bytes: "*2".into() }),
    ];
    assert_eq!(script.steps, steps);
    assert_eq!(
        step("until: EXISTS k = :0"),
        Some(Step::Until { is_second: false, command: "EXISTS k".into(), reply: ":0".into() })
    );
    for nonsense in ["a > x", "AB > x", "A sleeps", "when: x", "until: x", "A", ""] {
        assert_eq!(step(nonsense), None, "{nonsense}");
    }
}

//! Parses the fenced blocks of README.md, and the comments that say how each is replayed. Decides nothing, types
//! nothing.

use std::time::Duration;

/// A fenced block, with the comments right above it.
pub struct Block<'a> {
    /// The line number in the file, from 1.
    pub line: usize,
    pub language: &'a str,
    pub lines: Vec<&'a str>,
    pub directives: Vec<Directive<'a>>,
}

pub enum Directive<'a> {
    Types { terminal: &'a str, command: &'a str },
    Waits { terminal: &'a str, command: &'a str },
    Listens { terminal: &'a str, command: &'a str },
    WhileWaiting { after: Duration, terminal: &'a str, command: &'a str },
    Pause(Duration),
    AtMost(Vec<(&'a str, u64)>),
    Resp3,
    Prints(&'a str),
}

pub fn blocks(text: &str) -> Vec<Block<'_>> {
    let mut blocks = Vec::new();
    let mut directives = Vec::new();
    let mut lines = (1..).zip(text.lines());
    while let Some((number, line)) = lines.next() {
        // Marks the text that a program writes.
        if ["<!-- command ", "<!-- settings -->", "<!-- end of "].iter().any(|bound| line.starts_with(bound)) {
            continue;
        }
        if line.starts_with("<!--") {
            directives.push(directive(line).unwrap_or_else(|| panic!("line {number}: {line} is no directive")));
        } else if let Some(language) = line.strip_prefix("```") {
            let lines = lines.by_ref().map(|(_, line)| line).take_while(|line| *line != "```").collect();
            blocks.push(Block { line: number, language, lines, directives: std::mem::take(&mut directives) });
        } else {
            assert!(directives.is_empty(), "line {number}: directives stand right above a block");
            let in_other_block =
                ["```", "~~~", "127.0.0.1:6379"].iter().any(|begin| line.trim_start().starts_with(begin));
            assert!(!in_other_block, "line {number}: only fenced blocks at the margin are replayed");
        }
    }
    assert!(directives.is_empty(), "the last directives have no block");
    blocks
}

fn directive<'a>(line: &'a str) -> Option<Directive<'a>> {
    let what = line.strip_prefix("<!-- replay: ")?.strip_suffix(" -->")?;
    if what == "resp3" {
        return Some(Directive::Resp3);
    }
    if let Some(time) = what.strip_prefix("pause ") {
        return Some(Directive::Pause(milliseconds(time)?));
    }
    if let Some(bounds) = what.strip_prefix("at most ") {
        let bound = |bound: &'a str| bound.split_once(' ').and_then(|(name, most)| Some((name, most.parse().ok()?)));
        return bounds.split(", ").map(bound).collect::<Option<_>>().map(Directive::AtMost);
    }
    if let Some(terminal) = what.strip_suffix(" prints") {
        return Some(Directive::Prints(terminal));
    }
    if let Some(later) = what.strip_prefix("meanwhile, after ") {
        let (time, typed) = later.split_once(", ")?;
        let (terminal, command) = typed.split_once("> ")?;
        return Some(Directive::WhileWaiting { after: milliseconds(time)?, terminal, command });
    }
    let (terminal_name, command) = what.split_once("> ")?;
    Some(match terminal_name.split_once(' ') {
        None => Directive::Types { terminal: terminal_name, command },
        Some((terminal, "waits")) => Directive::Waits { terminal, command },
        Some((terminal, "listens")) => Directive::Listens { terminal, command },
        Some(_) => return None,
    })
}

/// `400 ms`
fn milliseconds(text: &str) -> Option<Duration> {
    text.strip_suffix(" ms")?.parse().ok().map(Duration::from_millis)
}

/// The commands of a session, each with the line number of its reply, and the reply.
pub fn session<'a>(block: &Block<'a>) -> Vec<(usize, &'a str, Vec<&'a str>)> {
    let mut in_multi = false;
    let mut commands: Vec<(usize, &str, Vec<&str>)> = Vec::new();
    for (number, line) in (block.line + 1..).zip(&block.lines) {
        let prompt = if in_multi { "127.0.0.1:6379(TX)> " } else { "127.0.0.1:6379> " };
        if let Some(command) = line.strip_prefix(prompt) {
            match command {
                "MULTI" => in_multi = true,
                "EXEC" | "DISCARD" => in_multi = false,
                _ => {}
            }
            commands.push((number + 1, command, Vec::new()));
        } else {
            assert!(!line.starts_with("127.0.0.1"), "line {number}: the prompt is {prompt}");
            let (_, _, reply) = commands.last_mut().unwrap_or_else(|| panic!("line {number}: a reply to no command"));
            reply.push(line);
        }
    }
    assert!(!commands.is_empty() && !in_multi, "line {}: no session, or a MULTI without EXEC", block.line);
    commands
}

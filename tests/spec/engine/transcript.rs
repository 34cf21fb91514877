//! Parses a chapter into promises, each with a transcript. Sends nothing. `../README.md` explains the lines.

use crate::backend::Words;
use crate::pattern::Pattern;

/// A promise and the transcript that shows it.
#[derive(Debug)]
pub struct Promise {
    /// In the wording of the contract.
    pub title: String,
    /// What it is played on.
    pub stage: Stage,
    /// The lock type it is played with, for a promise that every lock type makes.
    pub lock_type: Option<&'static LockType>,
    pub steps: Vec<Step>,
}

/// A lock type or mode that excludes all other owners, with its words for `ACQUIRE key owner`, `RELEASE key owner` and
/// `RENEW key owner` in the transcripts for all lock types.
#[derive(Debug)]
pub struct LockType {
    pub name: &'static str,
    acquire: &'static str,
    release: &'static str,
    renew: &'static str,
}

/// Every lock type, with the options that allow one holder at a time.
const LOCK_TYPES: [LockType; 5] = [
    LockType {
        name: "LOCK",
        acquire: "LOCK.ACQUIRE KEY OWNER",
        release: "LOCK.RELEASE KEY OWNER",
        renew: "LOCK.RENEW KEY OWNER",
    },
    LockType {
        name: "RLOCK",
        acquire: "RLOCK.ACQUIRE KEY OWNER",
        release: "RLOCK.RELEASE KEY OWNER",
        renew: "RLOCK.RENEW KEY OWNER",
    },
    LockType {
        name: "RWLOCK",
        acquire: "RWLOCK.ACQUIRE KEY OWNER WRITE",
        release: "RWLOCK.RELEASE KEY OWNER WRITE",
        renew: "RWLOCK.RENEW KEY OWNER",
    },
    LockType {
        name: "SEM",
        acquire: "SEM.ACQUIRE KEY OWNER LIMIT 1",
        release: "SEM.RELEASE KEY OWNER",
        renew: "SEM.RENEW KEY OWNER",
    },
    LockType {
        name: "MLOCK",
        acquire: "MLOCK.ACQUIRE 2 KEY KEY:too OWNER",
        release: "MLOCK.RELEASE 2 KEY KEY:too OWNER",
        renew: "MLOCK.RENEW 2 KEY KEY:too OWNER",
    },
];

impl LockType {
    /// The command with the words of this lock type.
    fn command(&self, command: &str) -> String {
        let mut words = command.splitn(4, ' ');
        let form = match words.next() {
            Some("ACQUIRE") => self.acquire,
            Some("RELEASE") => self.release,
            Some("RENEW") => self.renew,
            _ => return command.to_string(),
        };
        let (key, owner) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
        let form = form.replace("KEY", key).replace("OWNER", owner);
        words.next().map_or(form.clone(), |rest| format!("{form} {rest}"))
    }
}

/// What a transcript is played on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Stage {
    /// The simulated server and a real one.
    Any,
    /// A real server, because the simulated one lacks what this needs.
    Server,
    /// A separate real server, with these lines of redis.conf.
    Configured(Vec<String>),
    Replicated,
    /// A real server without the module.
    WithoutModule,
    /// Two nodes of a cluster; the first one owns all slots.
    TwoNodes,
}

impl Promise {
    /// How much time the transcript lets pass.
    pub fn ms(&self) -> u64 {
        let ms = |step: &Step| if let Action::Passes { ms } = step.action { ms } else { 0 };
        self.steps.iter().map(ms).sum()
    }
}

#[derive(Debug)]
pub struct Step {
    /// The line number in the file, from 1.
    pub line: usize,
    /// The text as written.
    pub text: String,
    pub action: Action,
}

#[derive(Debug)]
pub enum Action {
    /// `a> COMMAND | COMMAND -> reply | reply`: sent in one piece.
    Sends { connection_name: String, commands: Vec<Command>, ends: Vec<End> },
    /// `a -> reply`, `a waits`
    Gets { connection_name: String, end: End },
    /// The reply has arrived up to this point, and the connection is lost.
    Loses { connection_name: String, end: End },
    /// The command is sent repeatedly until its reply matches.
    Until { connection_name: String, command: Command, end: End },
    /// `a ends`: the client closes its connection.
    Ends { connection_name: String },
    /// `a is closed`: the server has closed the connection.
    IsClosed { connection_name: String },
    /// `after 10 ms`
    Passes { ms: u64 },
    /// `the server restarts`
    Restarts,
    /// `the replica follows`: it has received everything written so far.
    Follows,
}

#[derive(Debug)]
pub enum Command {
    /// Words separated by blanks, as in a chapter.
    Line(String),
    /// The words themselves.
    Words(Words),
}

/// The outcome of a command.
#[derive(Debug)]
pub enum End {
    Reply(Pattern),
    /// These bytes, in which `<…>` varies; with `more`, the reply may continue.
    Bytes {
        written: String,
        more: bool,
    },
    /// Any reply except an error.
    NoError,
    /// The server has blocked the connection.
    Waits,
}

pub fn promises(text: &str) -> Vec<Promise> {
    let lines = joined(text);
    let chapters = lines.split_inclusive(|(_, line)| line == END_OF_PROMISE);
    chapters.flat_map(|promise| played(&promise[..promise.len() - 1])).collect()
}

/// One promise, or one per lock type.
fn played(lines: &[(usize, String)]) -> Vec<Promise> {
    if lines.iter().any(|(_, line)| line == WITH_EVERY_LOCK_TYPE) {
        LOCK_TYPES.iter().map(|lock_type| promise(lines, Some(lock_type))).collect()
    } else {
        vec![promise(lines, None)]
    }
}

fn promise(lines: &[(usize, String)], lock_type: Option<&'static LockType>) -> Promise {
    let (line, title) = &lines[0];
    let title = title.strip_prefix("# ").unwrap_or_else(|| panic!("line {line}: no promise yet")).to_string();
    let mut promise = Promise { title, stage: Stage::Any, lock_type, steps: Vec::new() };
    for (line, text) in &lines[1..] {
        if let Some(stage) = stage(text) {
            promise.stage = stage;
        } else if text != WITH_EVERY_LOCK_TYPE {
            let action = action(text, lock_type).unwrap_or_else(|why| panic!("line {line}: {text}: {why}"));
            promise.steps.push(Step { line: *line, text: text.clone(), action });
        }
    }
    promise
}

const WITH_EVERY_LOCK_TYPE: &str = "with every lock type";
const END_OF_PROMISE: &str = "";

/// The lines without comments, empty lines and the names of docs/ sections. A line that begins with a blank continues
/// the line above it.
fn joined(text: &str) -> Vec<(usize, String)> {
    let mut joined: Vec<(usize, String)> = Vec::new();
    for (number, line) in (1..).zip(text.lines()) {
        match joined.last_mut() {
            _ if line.trim().is_empty() || line.starts_with("//") || line.starts_with("## ") => {}
            Some(_) if line.starts_with("# ") => {
                joined.push((number, END_OF_PROMISE.to_string()));
                joined.push((number, line.trim_end().to_string()));
            }
            Some((_, before)) if line.starts_with(' ') => {
                before.push(' ');
                before.push_str(line.trim());
            }
            _ => joined.push((number, line.trim_end().to_string())),
        }
    }
    joined.push((0, END_OF_PROMISE.to_string()));
    joined
}

/// `on a server: why`, `on a server with LINE, LINE: why`, `on a primary and its replica: why`
fn stage(text: &str) -> Option<Stage> {
    let (stage, why) = text.strip_prefix("on a ")?.split_once(": ")?;
    assert!(!why.is_empty(), "{text}: it says why");
    match stage {
        "server" => Some(Stage::Server),
        "primary and its replica" => Some(Stage::Replicated),
        _ => {
            let lines = stage.strip_prefix("server with ")?;
            Some(Stage::Configured(lines.split(", ").map(String::from).collect()))
        }
    }
}

fn action(text: &str, lock_type: Option<&LockType>) -> Result<Action, String> {
    match text {
        "the server restarts" => return Ok(Action::Restarts),
        "the replica follows" => return Ok(Action::Follows),
        _ => {}
    }
    if let Some(ms) = text.strip_prefix("after ").and_then(|rest| rest.strip_suffix(" ms")) {
        return Ok(Action::Passes { ms: ms.parse().map_err(|_| "not a number of ms")? });
    }
    let end_of_name = text.find(|letter: char| !letter.is_ascii_alphanumeric() && letter != '\'').ok_or("no step")?;
    let (connection_name, rest) = text.split_at(end_of_name);
    let connection_name = connection_name.to_string();
    if let Some(sent) = rest.strip_prefix("> ") {
        let (sent, ends) = match sent.trim_end().strip_suffix(" waits") {
            Some(sent) if !sent.contains(" -> ") => (sent, vec![End::Waits]),
            _ => {
                let (sent, ends) = sent.split_once(" -> ").ok_or("it says no reply")?;
                (sent, ends.split(" | ").map(|end| parse_end(end.trim())).collect::<Result<_, _>>()?)
            }
        };
        let in_lock_type =
            |command: &str| lock_type.map_or(command.to_string(), |lock_type| lock_type.command(command));
        let commands: Vec<Command> =
            sent.split(" | ").map(|command| Command::Line(in_lock_type(command.trim()))).collect();
        if commands.len() != ends.len() {
            return Err(format!("{} commands, {} replies", commands.len(), ends.len()));
        }
        return Ok(Action::Sends { connection_name, commands, ends });
    }
    match rest.trim() {
        "ends" => Ok(Action::Ends { connection_name }),
        "is closed" => Ok(Action::IsClosed { connection_name }),
        "waits" => Ok(Action::Gets { connection_name, end: End::Waits }),
        rest => {
            let reply = rest.strip_prefix("-> ").ok_or("no step")?;
            Ok(Action::Gets { connection_name, end: parse_end(reply.trim())? })
        }
    }
}

fn parse_end(text: &str) -> Result<End, String> {
    match text {
        "waits" => Ok(End::Waits),
        _ => Ok(End::Reply(Pattern::parse(text)?)),
    }
}

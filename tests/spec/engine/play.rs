//! Plays a transcript. A failure shows the transcript up to the line that failed, and what was received instead.

use std::collections::{BTreeSet, HashMap};

use support::Reply;

use crate::backend::{Backend, Words};
use crate::pattern::{bytes_match, filled, unescaped, Names};
use crate::transcript::{Action, Command, End, Promise, Step};

/// How often an `until` line is tried, and the pause between attempts.
const MOST_TRIES: usize = 3_000;
const BETWEEN_TRIES_MS: u64 = 10;

/// Plays the transcript. The error is the whole transcript up to the failure.
pub fn play(file: &str, promise: &Promise, backend: &mut impl Backend) -> Result<(), String> {
    let names = backend.facts().into_iter().collect();
    let mut play = Play { backend, names, open: BTreeSet::new(), received: HashMap::new() };
    let lock_type = promise.lock_type.map_or(String::new(), |lock_type| format!(" ({})", lock_type.name));
    let mut played_text = format!("# {}{lock_type}\n", promise.title);
    for step in &promise.steps {
        played_text.push_str(&format!("{}\n", step.text));
        if let Err(why) = play.step(step) {
            return Err(format!("{played_text}      {why}\n      ({file}, line {})", step.line));
        }
    }
    if let Some((connection_name, received)) = play.received.iter().find(|(_, received)| !received.is_empty()) {
        return Err(format!(
            "{played_text}      {connection_name}, at the end: more came: {}",
            received.escape_ascii()
        ));
    }
    for connection_name in play.open.clone() {
        play.backend
            .is_silent(&connection_name)
            .map_err(|why| format!("{played_text}      {connection_name}, at the end: {why}"))?;
    }
    Ok(())
}

struct Play<'b, B> {
    backend: &'b mut B,
    names: Names,
    open: BTreeSet<String>,
    /// Reply bytes that no line has consumed yet, by connection.
    received: HashMap<String, Vec<u8>>,
}

impl<B: Backend> Play<'_, B> {
    fn step(&mut self, step: &Step) -> Result<(), String> {
        match &step.action {
            Action::Sends { connection_name, commands, ends } => {
                self.send(connection_name, commands)?;
                ends.iter().try_for_each(|end| self.end(connection_name, end))
            }
            Action::Gets { connection_name, end } => self.end(connection_name, end),
            Action::Loses { connection_name, end } => {
                self.end(connection_name, end)?;
                self.close(connection_name)
            }
            Action::Until { connection_name, command, end } => {
                let mut left = MOST_TRIES;
                loop {
                    self.send(connection_name, std::slice::from_ref(command))?;
                    match self.end(connection_name, end) {
                        Err(why) if left == 0 => return Err(why),
                        Err(_) => {
                            self.received.remove(connection_name);
                            left -= 1;
                            self.backend.advance(BETWEEN_TRIES_MS)?;
                        }
                        Ok(()) => return Ok(()),
                    }
                }
            }
            Action::Ends { connection_name } => self.close(connection_name),
            Action::IsClosed { connection_name } => {
                self.open.remove(connection_name);
                self.backend.is_closed(connection_name)
            }
            Action::Passes { ms } => self.backend.advance(*ms),
            Action::Restarts => {
                self.open.clear();
                self.backend.restart()
            }
            Action::Follows => self.backend.follow(),
        }
    }

    fn send(&mut self, connection_name: &str, commands: &[Command]) -> Result<(), String> {
        self.connect(connection_name)?;
        let commands: Result<Vec<Words>, String> = commands.iter().map(|command| self.words_of(command)).collect();
        self.backend.send(connection_name, &commands?)
    }

    fn close(&mut self, connection_name: &str) -> Result<(), String> {
        self.open.remove(connection_name);
        self.received.remove(connection_name);
        self.backend.close(connection_name)
    }

    fn end(&mut self, connection_name: &str, end: &End) -> Result<(), String> {
        match end {
            End::Waits => self.backend.waits(connection_name),
            End::NoError => match self.backend.reply(connection_name)? {
                reply if reply.is_error() => Err(format!("came: {reply:?}")),
                _ => Ok(()),
            },
            End::Bytes { written, more } => loop {
                let received = self.received.entry(connection_name.to_string()).or_default();
                match bytes_match(written, received, &mut self.names)
                    .map_err(|why| format!("{why}; came: {}", received.escape_ascii()))?
                {
                    Some(taken) => {
                        received.drain(..if *more { received.len() } else { taken });
                        return Ok(());
                    }
                    None => self.backend.reply(connection_name)?.encode(received),
                }
            },
            End::Reply(pattern) => {
                let reply = self.backend.reply(connection_name)?;
                if pattern.matches(&reply, &mut self.names) {
                    Ok(())
                } else {
                    Err(format!("came: {reply:?}"))
                }
            }
        }
    }

    /// Opens a connection when it is first named.
    fn connect(&mut self, connection_name: &str) -> Result<(), String> {
        if self.open.insert(connection_name.to_string()) {
            let id = self.backend.connect(connection_name)?;
            self.names.insert(format!("id:{connection_name}"), Reply::Int(id));
        }
        Ok(())
    }

    fn words_of(&self, command: &Command) -> Result<Words, String> {
        match command {
            Command::Line(line) => self.words(line),
            Command::Words(words) => Ok(words.clone()),
        }
    }

    /// The words of a line. `"…"` may contain blanks and escapes; `$f` is the value of `f`, `@a` the client id of a
    /// connection.
    fn words(&self, line: &str) -> Result<Words, String> {
        let mut words = Vec::new();
        for (number, part) in line.split('"').enumerate() {
            match number % 2 {
                0 => {
                    for word in part.split_whitespace() {
                        words.push(self.word(word)?);
                    }
                }
                _ => words.push(unescaped(part)?),
            }
        }
        Ok(words)
    }

    fn word(&self, word: &str) -> Result<Vec<u8>, String> {
        if let Some(connection_name) = word.strip_prefix('@') {
            return match self.names.get(&format!("id:{connection_name}")) {
                Some(Reply::Int(id)) => Ok(id.to_string().into_bytes()),
                _ => Err(format!("{connection_name} is not connected")),
            };
        }
        match word.strip_prefix('$').map(|name| self.names.get(name)) {
            Some(Some(Reply::Bulk(bytes))) => Ok(bytes.clone()),
            _ => Ok(filled(word, &self.names).into_bytes()),
        }
    }
}

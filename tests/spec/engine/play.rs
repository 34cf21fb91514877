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
    let mut play = Play { backend, names, open: BTreeSet::new(), came: HashMap::new() };
    let family = promise.family.map_or(String::new(), |family| format!(" ({})", family.name));
    let mut told = format!("# {}{family}\n", promise.title);
    for step in &promise.steps {
        told.push_str(&format!("{}\n", step.text));
        if let Err(why) = play.step(step) {
            return Err(format!("{told}      {why}\n      ({file}, line {})", step.line));
        }
    }
    if let Some((who, came)) = play.came.iter().find(|(_, came)| !came.is_empty()) {
        return Err(format!("{told}      {who}, at the end: more came: {}", came.escape_ascii()));
    }
    for who in play.open.clone() {
        play.backend.is_silent(&who).map_err(|why| format!("{told}      {who}, at the end: {why}"))?;
    }
    Ok(())
}

struct Play<'b, B> {
    backend: &'b mut B,
    names: Names,
    open: BTreeSet<String>,
    /// Reply bytes that no line has consumed yet, by connection.
    came: HashMap<String, Vec<u8>>,
}

impl<B: Backend> Play<'_, B> {
    fn step(&mut self, step: &Step) -> Result<(), String> {
        match &step.action {
            Action::Sends { who, commands, ends } => {
                self.send(who, commands)?;
                ends.iter().try_for_each(|end| self.end(who, end))
            }
            Action::Gets { who, end } => self.end(who, end),
            Action::Loses { who, end } => {
                self.end(who, end)?;
                self.close(who)
            }
            Action::Until { who, command, end } => {
                let mut left = MOST_TRIES;
                loop {
                    self.send(who, std::slice::from_ref(command))?;
                    match self.end(who, end) {
                        Err(why) if left == 0 => return Err(why),
                        Err(_) => {
                            self.came.remove(who);
                            left -= 1;
                            self.backend.advance(BETWEEN_TRIES_MS)?;
                        }
                        Ok(()) => return Ok(()),
                    }
                }
            }
            Action::Ends { who } => self.close(who),
            Action::IsClosed { who } => {
                self.open.remove(who);
                self.backend.is_closed(who)
            }
            Action::Passes { ms } => self.backend.advance(*ms),
            Action::Restarts => {
                self.open.clear();
                self.backend.restart()
            }
            Action::Follows => self.backend.follow(),
        }
    }

    fn send(&mut self, who: &str, commands: &[Command]) -> Result<(), String> {
        self.connect(who)?;
        let commands: Result<Vec<Words>, String> = commands.iter().map(|command| self.words_of(command)).collect();
        self.backend.send(who, &commands?)
    }

    fn close(&mut self, who: &str) -> Result<(), String> {
        self.open.remove(who);
        self.came.remove(who);
        self.backend.close(who)
    }

    fn end(&mut self, who: &str, end: &End) -> Result<(), String> {
        match end {
            End::Waits => self.backend.waits(who),
            End::NoError => match self.backend.reply(who)? {
                reply if reply.is_error() => Err(format!("came: {reply:?}")),
                _ => Ok(()),
            },
            End::Bytes { written, more } => loop {
                let came = self.came.entry(who.to_string()).or_default();
                match bytes_match(written, came, &mut self.names)
                    .map_err(|why| format!("{why}; came: {}", came.escape_ascii()))?
                {
                    Some(taken) => {
                        came.drain(..if *more { came.len() } else { taken });
                        return Ok(());
                    }
                    None => self.backend.reply(who)?.encode(came),
                }
            },
            End::Reply(pattern) => {
                let reply = self.backend.reply(who)?;
                match pattern.matches(&reply, &mut self.names) {
                    true => Ok(()),
                    false => Err(format!("came: {reply:?}")),
                }
            }
        }
    }

    /// Opens a connection when it is first named.
    fn connect(&mut self, who: &str) -> Result<(), String> {
        if self.open.insert(who.to_string()) {
            let id = self.backend.connect(who)?;
            self.names.insert(format!("id:{who}"), Reply::Int(id));
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
        if let Some(who) = word.strip_prefix('@') {
            return match self.names.get(&format!("id:{who}")) {
                Some(Reply::Int(id)) => Ok(id.to_string().into_bytes()),
                _ => Err(format!("{who} is not connected")),
            };
        }
        match word.strip_prefix('$').map(|name| self.names.get(name)) {
            Some(Some(Reply::Bulk(bytes))) => Ok(bytes.clone()),
            _ => Ok(filled(word, &self.names).into_bytes()),
        }
    }
}

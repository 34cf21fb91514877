//! Plays a transcript. A failure is told as the transcript, with what came instead.

use std::collections::BTreeSet;

use support::Reply;

use crate::backend::{Backend, Words};
use crate::pattern::{filled, unescaped, Names};
use crate::transcript::{Action, End, Promise, Step};

/// What went wrong: the whole transcript until then.
pub fn play(file: &str, promise: &Promise, backend: &mut impl Backend) -> Result<(), String> {
    let mut play = Play { backend, names: Names::new(), open: BTreeSet::new() };
    let family = promise.family.map_or(String::new(), |family| format!(" ({})", family.name));
    let mut told = format!("# {}{family}\n", promise.title);
    for step in &promise.steps {
        told.push_str(&format!("{}\n", step.text));
        if let Err(why) = play.step(step) {
            return Err(format!("{told}      {why}\n      ({file}, line {})", step.line));
        }
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
}

impl<B: Backend> Play<'_, B> {
    fn step(&mut self, step: &Step) -> Result<(), String> {
        match &step.action {
            Action::Sends { who, commands, ends } => {
                self.connect(who)?;
                let commands: Result<Vec<Words>, String> = commands.iter().map(|line| self.words(line)).collect();
                self.backend.send(who, &commands?)?;
                ends.iter().try_for_each(|end| self.end(who, end))
            }
            Action::Gets { who, end } => self.end(who, end),
            Action::Ends { who } => {
                self.open.remove(who);
                self.backend.close(who)
            }
            Action::IsClosed { who } => {
                self.open.remove(who);
                self.backend.is_closed(who)
            }
            Action::Passes { ms } => self.backend.pass(*ms),
            Action::Restarts => {
                self.open.clear();
                self.backend.restart()
            }
            Action::Follows => self.backend.follow(),
        }
    }

    fn end(&mut self, who: &str, end: &End) -> Result<(), String> {
        match end {
            End::Waits => self.backend.waits(who),
            End::Reply(pattern) => {
                let reply = self.backend.reply(who)?;
                match pattern.matches(&reply, &mut self.names) {
                    true => Ok(()),
                    false => Err(format!("came: {reply:?}")),
                }
            }
        }
    }

    /// A connection is opened when it is first named.
    fn connect(&mut self, who: &str) -> Result<(), String> {
        if self.open.insert(who.to_string()) {
            let id = self.backend.connect(who)?;
            self.names.insert(format!("id:{who}"), Reply::Int(id));
        }
        Ok(())
    }

    /// The words of a command. `"…"` may have blanks and escapes; `$f` is what is bound to it, `@a` the number of a
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

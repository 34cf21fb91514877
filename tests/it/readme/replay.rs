//! Types the sessions block by block, and compares the output with the document.

use super::blocks::{session, Block, Directive};
use super::terminal::Terminal;
use super::varies::{is_elapsed, About, Masks};
use crate::support::waiting::{client_field, is_blocked};
use crate::support::{until, Client, Server};
use std::collections::HashMap;
use std::thread;
use std::time::{Duration, Instant};

/// All terminals, from the first block to the last.
pub struct Replay<'a> {
    server: &'a Server,
    /// The file of these sessions, for failure messages.
    file: &'static str,
    observer: Client,
    terminals: HashMap<String, Terminal>,
    masks: Masks,
    begun: Instant,
}

/// The name of the reader's own terminals, which no directive can have.
const READER: &str = "the reader's";
const READER_RESP3: &str = "the reader's, -3";

impl<'a> Replay<'a> {
    pub fn new(server: &'a Server, file: &'static str) -> Replay<'a> {
        let terminals = [
            (READER.to_string(), Terminal::open(server, &[])),
            (READER_RESP3.to_string(), Terminal::open(server, &["-3", "--show-pushes", "yes"])),
        ];
        Replay {
            server,
            file,
            observer: server.client(),
            terminals: terminals.into(),
            masks: Masks::default(),
            begun: Instant::now(),
        }
    }

    pub fn block(&mut self, block: &Block) {
        let mut reader = READER;
        let mut prints = None;
        let mut while_waiting = None;
        let mut about = About::default();
        for directive in &block.directives {
            match directive {
                Directive::Types { terminal, command } => self.types(terminal, command),
                Directive::Waits { terminal, command } => {
                    self.terminal(terminal).begin(command);
                    self.until_blocked(terminal, command);
                }
                Directive::Listens { terminal, command } => {
                    let terminal = self.terminal(terminal);
                    terminal.enter(command);
                    // The confirmation: "subscribe", the channel, and the number of subscriptions.
                    terminal.read_to(|line| line.starts_with("3) "));
                }
                Directive::WhileWaiting { after, terminal, command } => {
                    while_waiting = Some((*after, *terminal, *command))
                }
                Directive::Pause(time) => thread::sleep(*time),
                Directive::AtMost(bounds) => {
                    about.at_most = bounds.iter().map(|(name, most)| (name.to_string(), *most)).collect();
                }
                Directive::Resp3 => reader = READER_RESP3,
                Directive::Prints(terminal) => prints = Some(*terminal),
            }
        }
        if let Some(name) = prints {
            let terminal = self.terminal(name);
            let actual: Vec<String> = block.lines.iter().map(|_| terminal.read_line()).collect();
            about.command = name.to_string();
            return self.compare(block.line + 1, &block.lines, &actual, &about);
        }
        for (line, command, written) in session(block) {
            // Replaces a documented UUID with the actual one.
            let typed = self.masks.fill(command);
            about.command = command.to_string();
            about.waited = wait_of(command);
            self.terminal(reader).begin(&typed);
            if let Some((after, terminal, command)) = while_waiting.take_if(|_| about.waited > Duration::ZERO) {
                self.until_blocked(reader, &typed);
                thread::sleep(after);
                self.types(terminal, command);
                about.waited = after;
            }
            let mut actual = self.terminal(reader).finish();
            // On a busy machine a command that does not wait may take half a second too, and then redis-cli prints the
            // time.
            if about.waited.is_zero() && actual.last().is_some_and(|line| is_elapsed(line)) {
                actual.pop();
            }
            self.compare(line, &written, &actual, &about);
        }
        assert!(while_waiting.is_none(), "line {}: no command waits during which to type it", block.line);
    }

    fn terminal(&mut self, name: &str) -> &mut Terminal {
        let server = self.server;
        self.terminals.entry(name.to_string()).or_insert_with(|| Terminal::open(server, &[]))
    }

    /// Types a command of a directive, which must succeed.
    fn types(&mut self, terminal: &str, command: &str) {
        let reply = self.terminal(terminal).run(command);
        assert!(!reply.concat().starts_with("(error)"), "{terminal}> {command}: {reply:?}");
    }

    fn until_blocked(&mut self, terminal: &str, command: &str) {
        let id = self.terminal(terminal).id;
        until(&format!("`{command}` waits"), || is_blocked(&mut self.observer, id));
    }

    /// Compares the output with the document's lines from this number.
    fn compare(&mut self, first: usize, written: &[&str], actual: &[String], about: &About) {
        let list = self.observer.run("CLIENT LIST").text().to_string();
        let about = About { clients: clients(&list), age: self.begun.elapsed(), ..about.clone() };
        let said = actual.join("\n");
        let file = self.file;
        assert_eq!(actual.len(), written.len(), "{file}, line {first}: `{}` printed\n{said}", about.command);
        for (number, (written, actual)) in (first..).zip(written.iter().zip(actual)) {
            if let Err(why) = self.masks.compare(written, actual, &about) {
                panic!("{file}, line {number}: `{}` printed\n{said}\nand not\n{written}\n({why})", about.command);
            }
        }
    }
}

/// The longest time that a command may wait; zero if it does not block, or has no limit.
fn wait_of(command: &str) -> Duration {
    let time = command.split_once(" BLOCK ").map(|(_, rest)| rest).filter(|rest| !rest.contains("NOTIFY"));
    let time = time.and_then(|rest| rest.split(' ').next()?.parse().ok());
    time.map_or(Duration::ZERO, Duration::from_millis)
}

/// The ids and ports of all connections.
fn clients(list: &str) -> Vec<(String, String)> {
    let client = |line: &str| {
        let port = client_field(line, "addr")?.rsplit(':').next()?;
        Some((client_field(line, "id")?.to_string(), port.to_string()))
    };
    list.lines().filter_map(client).collect()
}

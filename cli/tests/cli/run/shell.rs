//! An interactive shell with job control in its own terminal.

use std::io::{Read, Write};
use std::sync::{Arc, Mutex};
use std::thread;

use portable_pty::{native_pty_system, Child, CommandBuilder, MasterPty, PtySize};
use support::until;

use super::runner::Mark;

pub struct Shell {
    terminal: Box<dyn MasterPty + Send>,
    keyboard: Box<dyn Write + Send>,
    shell: Box<dyn Child + Send + Sync>,
    shown: Arc<Mutex<Vec<u8>>>,
    /// The start of the output that has not been examined yet.
    seen: usize,
    prompts: u32,
    mark: Mark,
}

const SIZE: PtySize = PtySize { rows: 24, cols: 100, pixel_width: 0, pixel_height: 0 };

impl Shell {
    #[track_caller]
    pub fn start() -> Shell {
        let pair = native_pty_system().openpty(SIZE).expect("a terminal");
        let mark = Mark::new();
        let mut command = CommandBuilder::new("bash");
        command.args(["--norc", "--noprofile", "--noediting", "-i"]);
        // Contains the number of the next command, so no other text can look like this prompt.
        command.env("PS1", "<\\#>");
        command.env("TERM", "dumb");
        let (name, value) = mark.variable();
        command.env(name, value);
        let shell = pair.slave.spawn_command(command).expect("there is bash");
        let shown = Arc::new(Mutex::new(Vec::new()));
        let (mut output, shared) = (pair.master.try_clone_reader().expect("its output"), shown.clone());
        thread::spawn(move || {
            let mut bytes = [0; 4096];
            // An error means the end of the terminal.
            while let Ok(length @ 1..) = output.read(&mut bytes) {
                shared.lock().expect("the lock is not poisoned").extend_from_slice(&bytes[..length]);
            }
        });
        let keyboard = pair.master.take_writer().expect("its input");
        let mut shell = Shell { terminal: pair.master, keyboard, shell, shown, seen: 0, prompts: 0, mark };
        shell.until_prompt();
        // Disables echo, so that typed text is not mistaken for output.
        shell.command("stty -echo");
        shell
    }

    pub fn press(&mut self, keys: &str) {
        self.keyboard.write_all(keys.as_bytes()).expect("the keyboard is read");
    }

    pub fn enter(&mut self, line: &str) {
        self.press(&format!("{line}\n"));
    }

    /// Runs a line to its end, and returns its output.
    #[track_caller]
    pub fn command(&mut self, line: &str) -> String {
        self.enter(line);
        self.until_prompt()
    }

    /// Waits until the shell prompts for the next command, and returns the output.
    #[track_caller]
    pub fn until_prompt(&mut self) -> String {
        self.prompts += 1;
        self.until_shows(&format!("<{}>", self.prompts))
    }

    /// Waits for this text, and returns the output up to it.
    #[track_caller]
    pub fn until_shows(&mut self, what: &str) -> String {
        let mut end = None;
        let shown = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            until(&format!("the terminal shows {what:?}"), || {
                let text = self.text();
                end = text[self.seen..].find(what).map(|start| self.seen + start + what.len());
                end.is_some()
            });
        }));
        assert!(
            shown.is_ok(),
            "waited in vain for {what:?} after:\n{}\nbehind:\n{}",
            &self.text()[self.seen..],
            &self.text()[..self.seen]
        );
        let end = end.expect("it was shown");
        let new = self.text()[self.seen..end].replace('\r', "");
        self.seen = end;
        new
    }

    pub fn resize(&self, rows: u16, cols: u16) {
        self.terminal.resize(PtySize { rows, cols, ..SIZE }).expect("a size");
    }

    /// The group that the terminal belongs to.
    pub fn foreground(&self) -> i32 {
        self.terminal.process_group_leader().expect("a group")
    }

    pub fn mark(&self) -> &Mark {
        &self.mark
    }

    fn text(&self) -> String {
        String::from_utf8_lossy(&self.shown.lock().expect("the lock is not poisoned")).into_owned()
    }
}

impl Drop for Shell {
    fn drop(&mut self) {
        self.mark.kill_all();
        let _ = self.shell.kill();
        let _ = self.shell.wait();
    }
}

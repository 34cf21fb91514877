//! Runs the program in its own terminal, and reads the screen as a user would.

use std::io::{Read, Write};
use std::num::NonZeroU16;
use std::process::Command;
use std::sync::{Arc, Mutex};
use std::thread;

use portable_pty::{native_pty_system, Child, CommandBuilder, MasterPty, PtySize};
use support::until;
use vt100::Parser;

use crate::tool::PROGRAM;

pub struct Screen {
    terminal: Box<dyn MasterPty + Send>,
    keyboard: Box<dyn Write + Send>,
    program: Box<dyn Child + Send + Sync>,
    shown: Arc<Mutex<Parser>>,
}

const ROWS: u16 = 24;
const COLUMNS: u16 = 100;

impl Screen {
    /// Runs it with the words of a line, on 24 lines of 100 columns.
    #[track_caller]
    pub fn start(line: &str) -> Screen {
        let mut command = CommandBuilder::new(PROGRAM);
        command.args(line.split_whitespace());
        Screen::of(command)
    }

    /// The same with this many columns and this environment.
    #[track_caller]
    pub fn start_with(line: &str, columns: u16, environment: &[(&str, &str)]) -> Screen {
        let mut command = CommandBuilder::new(PROGRAM);
        command.args(line.split_whitespace());
        for (name, value) in environment {
            command.env(name, value);
        }
        Screen::of_size(command, 100, columns)
    }

    /// A shell without user settings that reads its commands from the test.
    #[track_caller]
    pub fn shell(program: &str, arguments: &[&str]) -> Screen {
        let mut command = CommandBuilder::new(program);
        command.args(arguments);
        Screen::of(command)
    }

    fn of(command: CommandBuilder) -> Screen {
        Screen::of_size(command, ROWS, COLUMNS)
    }

    fn of_size(mut command: CommandBuilder, rows: u16, columns: u16) -> Screen {
        let pair = native_pty_system().openpty(size(rows, columns)).expect("a terminal");
        command.env("TERM", "xterm-256color");
        command.env_remove("REDISCLI_AUTH");
        let program = pair.slave.spawn_command(command).expect("the program is built");
        let shown = Arc::new(Mutex::new(Parser::new(positive(rows), positive(columns), 0)));
        let (mut output, parser) = (pair.master.try_clone_reader().expect("its output"), shown.clone());
        thread::spawn(move || {
            let mut bytes = [0; 4096];
            // An error means the end of the terminal.
            while let Ok(length @ 1..) = output.read(&mut bytes) {
                parser.lock().expect("the lock is not poisoned").process(&bytes[..length]);
            }
        });
        let keyboard = pair.master.take_writer().expect("its input");
        Screen { terminal: pair.master, keyboard, program, shown }
    }

    pub fn press(&mut self, keys: &str) {
        self.keyboard.write_all(keys.as_bytes()).expect("it reads its keyboard");
    }

    pub fn resize(&mut self, rows: u16, columns: u16) {
        self.shown.lock().expect("the lock is not poisoned").screen_mut().set_size(positive(rows), positive(columns));
        self.terminal.resize(size(rows, columns)).expect("a size");
    }

    pub fn text(&self) -> String {
        self.shown.lock().expect("the lock is not poisoned").screen().contents()
    }

    /// Its text, including the escape sequences for colours.
    pub fn coloured_text(&self) -> String {
        let parser = self.shown.lock().expect("the lock is not poisoned");
        parser.screen().contents_formatted()
    }

    #[track_caller]
    pub fn until_shows(&self, what: &str) {
        self.until(what, |text| text.contains(what));
    }

    #[track_caller]
    pub fn until(&self, what: &str, condition: impl Fn(&str) -> bool) {
        let mut last = String::new();
        let shown = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            until(&format!("the screen shows {what}"), || {
                last = self.text();
                condition(&last)
            });
        }));
        assert!(shown.is_ok(), "waited in vain for {what} on this screen:\n{}", self.text());
    }

    pub fn signal(&self, name: &str) {
        let id = self.program.process_id().expect("it runs").to_string();
        assert!(Command::new("kill").args(["-s", name, &id]).status().expect("kill").success());
    }

    /// Waits for its end, and returns the exit status.
    #[track_caller]
    pub fn status(&mut self) -> u32 {
        let mut status = None;
        until("the program ends", || {
            status = self.program.try_wait().expect("a child");
            status.is_some()
        });
        status.expect("it has ended").exit_code()
    }

    /// Checks that the terminal was restored: its own screen, a cursor, echo.
    #[track_caller]
    pub fn assert_restored(&self) {
        until("the screen is the usual one", || {
            let parser = self.shown.lock().expect("the lock is not poisoned");
            !parser.screen().alternate_screen() && !parser.screen().hide_cursor()
        });
        let name = self.terminal.tty_name().expect("it has a name");
        let modes = Command::new("stty").arg("-F").arg(name).arg("-a").output().expect("stty");
        let modes = String::from_utf8_lossy(&modes.stdout).into_owned();
        let words: Vec<&str> = modes.split_whitespace().collect();
        assert!(["icanon", "echo", "isig", "opost"].iter().all(|mode| words.contains(mode)), "{modes}");
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        // An error means that it has already ended.
        let _ = self.program.kill();
        let _ = self.program.wait();
    }
}

fn size(rows: u16, cols: u16) -> PtySize {
    PtySize { rows, cols, pixel_width: 0, pixel_height: 0 }
}

fn positive(length: u16) -> NonZeroU16 {
    NonZeroU16::new(length).expect("a terminal has a size")
}

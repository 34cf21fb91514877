//! How long turns hold the server: those of the timer, and of commands that meet somebody who waits.

use lock::value::time::Instant;

use crate::shell::background::events;
use crate::shell::clock;
use crate::shell::main_state::MAIN;

/// A turn that is measured: from here to its end.
pub struct Turn {
    began_us: Option<u64>,
}

impl Turn {
    /// A turn of the timer.
    pub fn of_timer() -> Turn {
        Turn { began_us: Some(clock::begin_turn()) }
    }

    /// That of a command: measured where anybody waits, or something may be left to be done for one who does.
    pub fn of_command() -> Turn {
        let is_measured = events::concern_anybody() || events::is_any();
        Turn { began_us: is_measured.then(clock::begin_turn) }
    }
}

/// It is over, also where a bug has ended it.
impl Drop for Turn {
    fn drop(&mut self) {
        let Some(began_us) = self.began_us else { return };
        let now_us = clock::end_turn();
        MAIN.figures
            .longest_turn
            .borrow_mut()
            .current(Instant::from_ms(now_us / 1000))
            .add(now_us.saturating_sub(began_us));
    }
}

/// The longest of the last one to two minutes, in microseconds.
pub fn longest_us() -> u64 {
    let mut longest = MAIN.figures.longest_turn.borrow_mut();
    longest.both(clock::instant()).iter().map(|max| max.0).max().unwrap_or(0)
}

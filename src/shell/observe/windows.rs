//! Figures of the last one to two minutes: two windows of a minute, of which the older one is emptied in turn.

use lock::value::time::Instant;

/// How long a window is.
const WINDOW_MS: u64 = 60_000;

/// Something that gathers figures and can be emptied.
pub trait Figures {
    /// As if nothing had been gathered.
    fn clear(&mut self);
}

/// Two windows.
pub struct Windows<F> {
    current: F,
    previous: F,
    /// When the current one began.
    began: Instant,
}

impl<F: Figures> Windows<F> {
    /// Two that are empty.
    pub const fn new(current: F, previous: F) -> Windows<F> {
        Windows { current, previous, began: Instant::START }
    }

    /// The window that gathers now.
    pub fn current(&mut self, now: Instant) -> &mut F {
        self.turn(now);
        &mut self.current
    }

    /// Both: of this minute, and of the one before.
    pub fn both(&mut self, now: Instant) -> [&F; 2] {
        self.turn(now);
        [&self.current, &self.previous]
    }

    fn turn(&mut self, now: Instant) {
        let passed = now.ms_since(self.began) / WINDOW_MS;
        if passed == 0 {
            return;
        }
        std::mem::swap(&mut self.current, &mut self.previous);
        self.current.clear();
        if passed > 1 {
            self.previous.clear();
        }
        self.began = self.began.plus_ms(passed * WINDOW_MS);
    }
}

/// The largest of some numbers; 0 of none.
#[derive(Default)]
pub struct Max(pub u64);

impl Max {
    /// One more of them.
    pub fn add(&mut self, number: u64) {
        self.0 = self.0.max(number);
    }
}

impl Figures for Max {
    fn clear(&mut self) {
        self.0 = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_gathered_is_forgotten_after_one_to_two_minutes() {
        let of_both = |windows: &mut Windows<Max>, ms| windows.both(Instant::from_ms(ms)).map(|max| max.0);
        let mut windows = Windows::new(Max(0), Max(0));
        for (number, ms) in [(7, 500_001), (9, 539_999), (5, 540_000), (6, 540_001)] {
            windows.current(Instant::from_ms(ms)).add(number);
        }
        assert_eq!(of_both(&mut windows, 599_999), [6, 9]);
        assert_eq!(of_both(&mut windows, 600_000), [0, 6]);
        assert_eq!(of_both(&mut windows, 660_000), [0, 0]);
        windows.current(Instant::from_ms(660_000)).add(3);
        assert_eq!(of_both(&mut windows, 780_000), [0, 0], "nobody asked for two minutes");
    }
}

//! `LOCK.INFO key [COUNT n]` and `LOCK.WAITERS key [COUNT n]`: how many holders or waiters are listed.

use super::integer::integer;
use crate::errors::{self, ErrorReply};

/// The number listed without COUNT.
const DEFAULT: usize = 100;

/// The value of COUNT.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ListLength {
    /// At most so many, 1 or more.
    First(usize),
    /// `COUNT 0`.
    All,
}

impl ListLength {
    /// Reads the arguments from index 2 on.
    ///
    /// # Errors
    /// Any arguments other than `COUNT n`; a COUNT that is no integer, or below 0.
    pub fn parse(args: &[&[u8]]) -> Result<ListLength, ErrorReply> {
        match args.get(2..) {
            None | Some([]) => Ok(ListLength::First(DEFAULT)),
            Some([option, count]) if option.eq_ignore_ascii_case(b"COUNT") => {
                let count = integer(count).and_then(|count| usize::try_from(count).ok());
                match count.ok_or(errors::NOT_AN_INTEGER)? {
                    0 => Ok(ListLength::All),
                    count => Ok(ListLength::First(count)),
                }
            }
            Some(_) => Err(errors::SYNTAX),
        }
    }

    /// The part of a list that is listed.
    pub fn of<I: IntoIterator>(self, list: I) -> impl Iterator<Item = I::Item> {
        let most = match self {
            ListLength::First(count) => count,
            ListLength::All => usize::MAX,
        };
        list.into_iter().take(most)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(words: &str) -> Result<ListLength, ErrorReply> {
        let words: Vec<&[u8]> = words.split_whitespace().map(str::as_bytes).collect();
        ListLength::parse(&words)
    }

    #[test]
    fn a_hundred_are_listed_or_as_many_as_count_says() {
        let rows = [
            ("LOCK.INFO k", ListLength::First(100)),
            ("LOCK.INFO k COUNT 1", ListLength::First(1)),
            ("lock.info k count 100000", ListLength::First(100_000)),
            ("LOCK.INFO k COUNT 0", ListLength::All),
        ];
        for (words, length) in rows {
            assert_eq!(parse(words), Ok(length), "{words}");
        }
        for words in ["LOCK.INFO k COUNT", "LOCK.INFO k 5", "LOCK.INFO k COUNT 1 COUNT 1", "LOCK.INFO k LIMIT 1"] {
            assert_eq!(parse(words), Err(errors::SYNTAX), "{words}");
        }
        for count in ["-1", "x", "1.5", "9223372036854775808"] {
            assert_eq!(parse(&format!("LOCK.INFO k COUNT {count}")), Err(errors::NOT_AN_INTEGER), "{count}");
        }
    }

    #[test]
    fn the_first_are_told_or_all() {
        assert_eq!(ListLength::First(2).of([1, 2, 3]).collect::<Vec<_>>(), [1, 2]);
        assert_eq!(ListLength::First(4).of([1, 2, 3]).count(), 3);
        assert_eq!(ListLength::All.of([1, 2, 3]).count(), 3);
    }
}

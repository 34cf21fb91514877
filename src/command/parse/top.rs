//! `LOCK.TOP [COUNT n]`: how many locks are listed.

use super::integer::integer;
use crate::errors::{self, ErrorReply};

/// So many are listed where COUNT is left out.
const DEFAULT: usize = 10;

/// At most so many are listed.
const MOST: usize = 1_000;

/// Reads the arguments from index 1 on: 1 to 1,000.
///
/// # Errors
/// Anything but nothing or `COUNT n`; a COUNT out of its bounds.
pub fn top_length(args: &[&[u8]]) -> Result<usize, ErrorReply> {
    match args.get(1..) {
        None | Some([]) => Ok(DEFAULT),
        Some([option, count]) if option.eq_ignore_ascii_case(b"COUNT") => {
            let count = integer(count).and_then(|count| usize::try_from(count).ok());
            count.filter(|count| (1..=MOST).contains(count)).ok_or(errors::NOT_AN_INTEGER)
        }
        Some(_) => Err(errors::SYNTAX),
    }
}

#[cfg(test)]
mod tests {
    use super::super::fixture::words;
    use super::*;

    #[test]
    fn ten_are_listed_or_as_many_as_count_says() {
        for (line, length) in [("LOCK.TOP", 10), ("LOCK.TOP COUNT 1", 1), ("lock.top count 1000", 1_000)] {
            assert_eq!(top_length(&words(line)), Ok(length), "{line}");
        }
        for count in ["0", "1001", "-1", "x", "1.5", "9223372036854775808"] {
            assert_eq!(top_length(&words(&format!("LOCK.TOP COUNT {count}"))), Err(errors::NOT_AN_INTEGER), "{count}");
        }
        for line in ["LOCK.TOP COUNT", "LOCK.TOP 5", "LOCK.TOP COUNT 5 COUNT 5", "LOCK.TOP LIMIT 5"] {
            assert_eq!(top_length(&words(line)), Err(errors::SYNTAX), "{line}");
        }
    }
}

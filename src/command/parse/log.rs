//! `LOCK.LOG GET [n] | LEN | RESET`, as SLOWLOG has it.

use super::inspect::ListLength;
use super::integer::integer;
use crate::errors::{self, ErrorReply};

/// The number of entries without a count.
const DEFAULT: usize = 10;

/// A subcommand of LOCK.LOG.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogCommand {
    /// Its newest entries.
    Get(ListLength),
    /// How many entries it has.
    Len,
    /// Removes all entries.
    Reset,
}

impl LogCommand {
    /// Reads the arguments from index 1 on.
    ///
    /// # Errors
    /// In Redis's words: an unknown subcommand, too many arguments, a number below -1, which means all.
    pub fn parse(args: &[&[u8]]) -> Result<LogCommand, ErrorReply> {
        let [subcommand, values @ ..] = args.get(1..).unwrap_or_default() else { return Err(errors::SYNTAX) };
        let is = |word: &[u8]| subcommand.eq_ignore_ascii_case(word);
        match values {
            [] if is(b"GET") => Ok(LogCommand::Get(ListLength::First(DEFAULT))),
            [count] if is(b"GET") => Ok(LogCommand::Get(length(count)?)),
            [] if is(b"LEN") => Ok(LogCommand::Len),
            [] if is(b"RESET") => Ok(LogCommand::Reset),
            _ if is(b"GET") => Err(errors::wrong_arity_of_log("get")),
            _ if is(b"LEN") => Err(errors::wrong_arity_of_log("len")),
            _ if is(b"RESET") => Err(errors::wrong_arity_of_log("reset")),
            _ => Err(errors::unknown_subcommand(subcommand)),
        }
    }
}

fn length(count: &[u8]) -> Result<ListLength, ErrorReply> {
    match integer(count).ok_or(errors::BAD_LOG_COUNT)? {
        -1 => Ok(ListLength::All),
        count => usize::try_from(count).map(ListLength::First).map_err(|_| errors::BAD_LOG_COUNT),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(words: &str) -> Result<LogCommand, ErrorReply> {
        let words: Vec<&[u8]> = words.split_whitespace().map(str::as_bytes).collect();
        LogCommand::parse(&words)
    }

    #[test]
    fn ten_entries_are_told_or_as_many_as_are_asked_for() {
        let rows = [
            ("LOCK.LOG GET", LogCommand::Get(ListLength::First(10))),
            ("lock.log get 3", LogCommand::Get(ListLength::First(3))),
            ("LOCK.LOG GET 0", LogCommand::Get(ListLength::First(0))),
            ("LOCK.LOG GET -1", LogCommand::Get(ListLength::All)),
            ("LOCK.LOG Len", LogCommand::Len),
            ("LOCK.LOG reset", LogCommand::Reset),
        ];
        for (words, command) in rows {
            assert_eq!(parse(words), Ok(command), "{words}");
        }
        for count in ["-2", "x", "1.5", "01", "9223372036854775808"] {
            assert_eq!(parse(&format!("LOCK.LOG GET {count}")), Err(errors::BAD_LOG_COUNT), "{count}");
        }
    }

    #[test]
    fn what_else_is_asked_is_refused_in_the_words_of_redis() {
        let rows = [
            ("LOCK.LOG GET 1 2", "ERR wrong number of arguments for 'lock.log|get' command"),
            ("LOCK.LOG LEN 1", "ERR wrong number of arguments for 'lock.log|len' command"),
            ("LOCK.LOG RESET 1", "ERR wrong number of arguments for 'lock.log|reset' command"),
            ("LOCK.LOG Foo", "ERR unknown subcommand 'Foo'. Try LOCK.HELP."),
            ("LOCK.LOG foo GET", "ERR unknown subcommand 'foo'. Try LOCK.HELP."),
            ("LOCK.LOG", "ERR syntax error"),
        ];
        for (words, error) in rows {
            assert_eq!(parse(words).unwrap_err().as_str(), error, "{words}");
        }
    }
}

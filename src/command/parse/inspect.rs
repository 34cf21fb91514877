//! Parses the inspection commands: which locks, holders, waiters and log entries to list.

use super::values::integer;
use crate::errors::{self, ErrorReply};

/// How many holders or waiters are listed without COUNT.
const DEFAULT_LENGTH: usize = 100;

/// How many locks LOCK.TOP lists without COUNT, and the largest COUNT.
const DEFAULT_TOP: usize = 10;
const MOST_TOP: usize = 1_000;

/// How many entries LOCK.LOG GET lists without a count.
const DEFAULT_ENTRIES: usize = 10;

/// How many holders, waiters or entries are listed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ListLength {
    /// At most this many.
    First(usize),
    /// Every one.
    All,
}

impl ListLength {
    /// `LOCK.INFO key [COUNT n]` and `LOCK.WAITERS key [COUNT n]`; `COUNT 0` means all.
    ///
    /// # Errors
    /// Any arguments other than `COUNT n`; a COUNT that is not an integer, or negative.
    pub fn parse(args: &[&[u8]]) -> Result<ListLength, ErrorReply> {
        Ok(match count_option(args.get(2..))? {
            None => ListLength::First(DEFAULT_LENGTH),
            Some(0) => ListLength::All,
            Some(count) => ListLength::First(count),
        })
    }

    /// The part of the list to show.
    pub fn of<I: IntoIterator>(self, list: I) -> impl Iterator<Item = I::Item> {
        let most = match self {
            ListLength::First(count) => count,
            ListLength::All => usize::MAX,
        };
        list.into_iter().take(most)
    }
}

/// `LOCK.TOP [COUNT n]`: how many locks are listed, 1 to 1,000.
///
/// # Errors
/// Any arguments other than `COUNT n`; a COUNT out of range.
pub fn top_length(args: &[&[u8]]) -> Result<usize, ErrorReply> {
    match count_option(args.get(1..))? {
        None => Ok(DEFAULT_TOP),
        Some(count) if (1..=MOST_TOP).contains(&count) => Ok(count),
        Some(_) => Err(errors::not_an_integer("COUNT", args.last().copied().unwrap_or_default())),
    }
}

/// `[COUNT n]` and nothing after it.
fn count_option(options: Option<&[&[u8]]>) -> Result<Option<usize>, ErrorReply> {
    match options {
        None | Some([]) => Ok(None),
        Some([option, rest @ ..]) if option.eq_ignore_ascii_case(b"COUNT") => match rest {
            [value] => {
                let count = integer(value).and_then(|count| usize::try_from(count).ok());
                count.map(Some).ok_or_else(|| errors::not_an_integer("COUNT", value))
            }
            [] => Err(errors::syntax_at(option, "missing value")),
            [_, next, ..] => Err(errors::syntax_at(next, "unexpected argument after COUNT count")),
        },
        Some([option, ..]) => Err(errors::syntax_at(option, "unknown option")),
    }
}

/// `LOCK.SCAN cursor [MATCH pattern] [COUNT n]`; the values are valid for SCAN as they are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ScanCommand<'a> {
    /// A number that SCAN returned, or 0.
    pub cursor: &'a [u8],
    /// A glob.
    pub pattern: Option<&'a [u8]>,
    /// A positive number.
    pub count: Option<&'a [u8]>,
}

impl<'a> ScanCommand<'a> {
    /// Parses the arguments from index 1.
    ///
    /// # Errors
    /// The errors of SCAN, or an option given twice.
    pub fn parse(args: &[&'a [u8]]) -> Result<ScanCommand<'a>, ErrorReply> {
        let cursor = args.get(1).copied().unwrap_or_default();
        if !is_cursor(cursor) {
            return Err(errors::INVALID_CURSOR);
        }
        let mut command = ScanCommand { cursor, pattern: None, count: None };
        for option in args.get(2..).unwrap_or_default().chunks(2) {
            let (name, value) = (option[0], option.get(1).copied());
            let value = || value.ok_or_else(|| errors::syntax_at(name, "missing value"));
            let (option, value) = match name.to_ascii_uppercase().as_slice() {
                b"MATCH" => (&mut command.pattern, value()?),
                b"COUNT" => (&mut command.count, value().and_then(count)?),
                _ => return Err(errors::syntax_at(name, "unknown option")),
            };
            if option.replace(value).is_some() {
                return Err(errors::syntax_at(name, "duplicate option"));
            }
        }
        Ok(command)
    }
}

/// Whether the bytes are an unsigned 64-bit integer.
fn is_cursor(bytes: &[u8]) -> bool {
    bytes.iter().all(u8::is_ascii_digit) && std::str::from_utf8(bytes).is_ok_and(|text| text.parse::<u64>().is_ok())
}

/// COUNT as in SCAN, where a value below 1 is a syntax error.
fn count(value: &[u8]) -> Result<&[u8], ErrorReply> {
    match integer(value) {
        None => Err(errors::not_an_integer("COUNT", value)),
        Some(..1) => Err(errors::syntax_at(value, "COUNT must be 1 or more")),
        Some(_) => Ok(value),
    }
}

/// `LOCK.LOG GET [n] | LEN | RESET`, as in SLOWLOG.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogCommand {
    /// Returns the newest entries.
    Get(ListLength),
    /// Returns the number of entries.
    Len,
    /// Removes all entries.
    Reset,
}

impl LogCommand {
    /// Parses the arguments from index 1.
    ///
    /// # Errors
    /// With Redis's wording: an unknown subcommand, too many arguments, a number below -1 (-1 means all).
    pub fn parse(args: &[&[u8]]) -> Result<LogCommand, ErrorReply> {
        let [subcommand, values @ ..] = args.get(1..).unwrap_or_default() else {
            return Err(errors::syntax("GET, LEN or RESET is missing"));
        };
        let is = |word: &[u8]| subcommand.eq_ignore_ascii_case(word);
        match values {
            [] if is(b"GET") => Ok(LogCommand::Get(ListLength::First(DEFAULT_ENTRIES))),
            [count] if is(b"GET") => Ok(LogCommand::Get(log_length(count)?)),
            [] if is(b"LEN") => Ok(LogCommand::Len),
            [] if is(b"RESET") => Ok(LogCommand::Reset),
            _ if is(b"GET") => Err(errors::wrong_arity_of_log("get")),
            _ if is(b"LEN") => Err(errors::wrong_arity_of_log("len")),
            _ if is(b"RESET") => Err(errors::wrong_arity_of_log("reset")),
            _ => Err(errors::unknown_subcommand(subcommand)),
        }
    }
}

/// `LOCK.ADOPTION REPORT | RETURN key`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AdoptionCommand {
    /// Reports what clients do on the keys of each pattern.
    Report,
    /// Turns the adopted lock under argument 2 back into a string or hash.
    Return,
}

impl AdoptionCommand {
    /// Parses the arguments from index 1.
    ///
    /// # Errors
    /// With Redis's wording: an unknown subcommand, a wrong number of arguments.
    pub fn parse(args: &[&[u8]]) -> Result<AdoptionCommand, ErrorReply> {
        let [subcommand, values @ ..] = args.get(1..).unwrap_or_default() else {
            return Err(errors::syntax("REPORT or RETURN is missing"));
        };
        let is = |word: &[u8]| subcommand.eq_ignore_ascii_case(word);
        match values {
            [] if is(b"REPORT") => Ok(AdoptionCommand::Report),
            [_] if is(b"RETURN") => Ok(AdoptionCommand::Return),
            _ if is(b"REPORT") => Err(errors::wrong_arity("LOCK.ADOPTION|REPORT")),
            _ if is(b"RETURN") => Err(errors::wrong_arity("LOCK.ADOPTION|RETURN")),
            _ => Err(errors::unknown_subcommand(subcommand)),
        }
    }
}

fn log_length(count: &[u8]) -> Result<ListLength, ErrorReply> {
    match integer(count).ok_or(errors::BAD_LOG_COUNT)? {
        -1 => Ok(ListLength::All),
        count => usize::try_from(count).map(ListLength::First).map_err(|_| errors::BAD_LOG_COUNT),
    }
}

#[cfg(test)]
mod tests {
    use super::super::fixture::words;
    use super::*;

    #[test]
    fn a_hundred_or_as_many_as_count_says_are_listed() {
        let rows = [
            ("LOCK.INFO k", ListLength::First(100)),
            ("LOCK.INFO k COUNT 1", ListLength::First(1)),
            ("lock.info k count 100000", ListLength::First(100_000)),
            ("LOCK.INFO k COUNT 0", ListLength::All),
        ];
        for (line, length) in rows {
            assert_eq!(ListLength::parse(&words(line)), Ok(length), "{line}");
        }
        for line in ["LOCK.INFO k COUNT", "LOCK.INFO k 5", "LOCK.INFO k COUNT 1 COUNT 1", "LOCK.INFO k LIMIT 1"] {
            assert_eq!(ListLength::parse(&words(line)).unwrap_err().redis_message(), "ERR syntax error", "{line}");
        }
        for count in ["-1", "x", "1.5", "9223372036854775808"] {
            assert_eq!(
                ListLength::parse(&words(&format!("LOCK.INFO k COUNT {count}"))).unwrap_err().redis_message(),
                "ERR value is not an integer or out of range",
                "{count}"
            );
        }
    }

    #[test]
    fn the_first_or_all_are_listed() {
        assert_eq!(ListLength::First(2).of([1, 2, 3]).collect::<Vec<_>>(), [1, 2]);
        assert_eq!(ListLength::First(4).of([1, 2, 3]).count(), 3);
        assert_eq!(ListLength::All.of([1, 2, 3]).count(), 3);
    }

    #[test]
    fn ten_or_as_many_as_count_says_are_listed() {
        for (line, length) in [("LOCK.TOP", 10), ("LOCK.TOP COUNT 1", 1), ("lock.top count 1000", 1_000)] {
            assert_eq!(top_length(&words(line)), Ok(length), "{line}");
        }
        for count in ["0", "1001", "-1", "x", "1.5", "9223372036854775808"] {
            assert_eq!(
                top_length(&words(&format!("LOCK.TOP COUNT {count}"))).unwrap_err().redis_message(),
                "ERR value is not an integer or out of range",
                "{count}"
            );
        }
        for line in ["LOCK.TOP COUNT", "LOCK.TOP 5", "LOCK.TOP COUNT 5 COUNT 5", "LOCK.TOP LIMIT 5"] {
            assert_eq!(top_length(&words(line)).unwrap_err().redis_message(), "ERR syntax error", "{line}");
        }
    }

    #[test]
    fn arguments_valid_for_scan_are_accepted() {
        let none = ScanCommand { cursor: b"0", pattern: None, count: None };
        let rows = [
            ("LOCK.SCAN 0", none),
            ("LOCK.SCAN 18446744073709551615", ScanCommand { cursor: b"18446744073709551615", ..none }),
            ("LOCK.SCAN 0 MATCH a*", ScanCommand { pattern: Some(b"a*"), ..none }),
            ("lock.scan 0 count 7 match COUNT", ScanCommand { pattern: Some(b"COUNT"), count: Some(b"7"), ..none }),
            ("LOCK.SCAN 0 COUNT 9223372036854775807", ScanCommand { count: Some(b"9223372036854775807"), ..none }),
        ];
        for (line, command) in rows {
            assert_eq!(ScanCommand::parse(&words(line)), Ok(command), "{line}");
        }
    }

    #[test]
    fn arguments_invalid_for_scan_are_rejected_with_its_wording() {
        for cursor in ["x", "", "-1", "+1", "1.0", "0x1", "18446744073709551616"] {
            let refused = ScanCommand::parse(&[b"LOCK.SCAN".as_slice(), cursor.as_bytes(), b"what"]);
            assert_eq!(refused, Err(errors::INVALID_CURSOR), "{cursor}: the cursor comes first");
        }
        for options in ["MATCH", "COUNT", "what", "TYPE string", "COUNT 0", "COUNT -1", "MATCH a COUNT", "COUNT 1 x"] {
            let line = format!("LOCK.SCAN 0 {options}");
            assert_eq!(ScanCommand::parse(&words(&line)).unwrap_err().redis_message(), "ERR syntax error", "{options}");
        }
        for count in ["x", "1.5", "9223372036854775808"] {
            let line = format!("LOCK.SCAN 0 COUNT {count}");
            assert_eq!(
                ScanCommand::parse(&words(&line)).unwrap_err().redis_message(),
                "ERR value is not an integer or out of range",
                "{count}"
            );
        }
        for twice in ["MATCH a MATCH a", "COUNT 5 COUNT 5"] {
            let line = format!("LOCK.SCAN 0 {twice}");
            assert_eq!(ScanCommand::parse(&words(&line)).unwrap_err().redis_message(), "ERR syntax error", "{twice}");
        }
    }

    #[test]
    fn ten_entries_or_as_many_as_requested_are_listed() {
        let rows = [
            ("LOCK.LOG GET", LogCommand::Get(ListLength::First(10))),
            ("lock.log get 3", LogCommand::Get(ListLength::First(3))),
            ("LOCK.LOG GET 0", LogCommand::Get(ListLength::First(0))),
            ("LOCK.LOG GET -1", LogCommand::Get(ListLength::All)),
            ("LOCK.LOG Len", LogCommand::Len),
            ("LOCK.LOG reset", LogCommand::Reset),
        ];
        for (line, command) in rows {
            assert_eq!(LogCommand::parse(&words(line)), Ok(command), "{line}");
        }
        for count in ["-2", "x", "1.5", "01", "9223372036854775808"] {
            assert_eq!(
                LogCommand::parse(&words(&format!("LOCK.LOG GET {count}"))),
                Err(errors::BAD_LOG_COUNT),
                "{count}"
            );
        }
    }

    #[test]
    fn one_adopted_lock_can_be_returned() {
        assert_eq!(AdoptionCommand::parse(&words("lock.adoption return k")), Ok(AdoptionCommand::Return));
        assert_eq!(AdoptionCommand::parse(&words("LOCK.ADOPTION Report")), Ok(AdoptionCommand::Report));
        let rows = [
            ("LOCK.ADOPTION REPORT k", "ERR wrong number of arguments for 'lock.adoption|report' command"),
            ("LOCK.ADOPTION", "ERR syntax error: REPORT or RETURN is missing"),
            ("LOCK.ADOPTION RETURN", "ERR wrong number of arguments for 'lock.adoption|return' command"),
            ("LOCK.ADOPTION RETURN k l", "ERR wrong number of arguments for 'lock.adoption|return' command"),
            ("LOCK.ADOPTION Foo k", "ERR unknown subcommand 'Foo'. Try LOCK.HELP."),
        ];
        for (line, error) in rows {
            assert_eq!(AdoptionCommand::parse(&words(line)).unwrap_err().as_str(), error, "{line}");
        }
    }

    #[test]
    fn other_arguments_are_rejected_with_redis_wording() {
        let rows = [
            ("LOCK.LOG GET 1 2", "ERR wrong number of arguments for 'lock.log|get' command"),
            ("LOCK.LOG LEN 1", "ERR wrong number of arguments for 'lock.log|len' command"),
            ("LOCK.LOG RESET 1", "ERR wrong number of arguments for 'lock.log|reset' command"),
            ("LOCK.LOG Foo", "ERR unknown subcommand 'Foo'. Try LOCK.HELP."),
            ("LOCK.LOG foo GET", "ERR unknown subcommand 'foo'. Try LOCK.HELP."),
            ("LOCK.LOG", "ERR syntax error: GET, LEN or RESET is missing"),
        ];
        for (line, error) in rows {
            assert_eq!(LogCommand::parse(&words(line)).unwrap_err().as_str(), error, "{line}");
        }
    }
}

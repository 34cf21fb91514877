//! `LOCK.SCAN cursor [MATCH pattern] [COUNT n]`: where the iteration goes on, and what is listed. In SCAN's words.

use super::integer::integer;
use crate::errors::{self, ErrorReply};

/// What was asked. Valid for SCAN as it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ScanCommand<'a> {
    /// A number that SCAN gave, or 0.
    pub cursor: &'a [u8],
    /// A glob.
    pub pattern: Option<&'a [u8]>,
    /// A positive number.
    pub count: Option<&'a [u8]>,
}

impl<'a> ScanCommand<'a> {
    /// Reads the arguments from index 1 on.
    ///
    /// # Errors
    /// As SCAN, and an option given twice.
    pub fn parse(args: &[&'a [u8]]) -> Result<ScanCommand<'a>, ErrorReply> {
        let cursor = args.get(1).copied().unwrap_or_default();
        if !is_cursor(cursor) {
            return Err(errors::INVALID_CURSOR);
        }
        let mut command = ScanCommand { cursor, pattern: None, count: None };
        for option in args.get(2..).unwrap_or_default().chunks(2) {
            let &[name, value] = option else { return Err(errors::SYNTAX) };
            let place = match name.to_ascii_uppercase().as_slice() {
                b"MATCH" => &mut command.pattern,
                b"COUNT" => {
                    check_count(value)?;
                    &mut command.count
                }
                _ => return Err(errors::SYNTAX),
            };
            if place.replace(value).is_some() {
                return Err(errors::SYNTAX);
            }
        }
        Ok(command)
    }
}

/// 64 bits without a sign.
fn is_cursor(bytes: &[u8]) -> bool {
    bytes.iter().all(u8::is_ascii_digit) && std::str::from_utf8(bytes).is_ok_and(|text| text.parse::<u64>().is_ok())
}

fn check_count(value: &[u8]) -> Result<(), ErrorReply> {
    match integer(value) {
        None => Err(errors::NOT_AN_INTEGER),
        Some(..1) => Err(errors::SYNTAX),
        Some(_) => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::super::fixture::words;
    use super::*;

    #[test]
    fn what_scan_takes_is_taken() {
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
    fn what_scan_refuses_is_refused_in_its_words() {
        for cursor in ["x", "", "-1", "+1", "1.0", "0x1", "18446744073709551616"] {
            let refused = ScanCommand::parse(&[b"LOCK.SCAN".as_slice(), cursor.as_bytes(), b"what"]);
            assert_eq!(refused, Err(errors::INVALID_CURSOR), "{cursor}: the cursor comes first");
        }
        for options in ["MATCH", "COUNT", "what", "TYPE string", "COUNT 0", "COUNT -1", "MATCH a COUNT", "COUNT 1 x"] {
            let line = format!("LOCK.SCAN 0 {options}");
            assert_eq!(ScanCommand::parse(&words(&line)), Err(errors::SYNTAX), "{options}");
        }
        for count in ["x", "1.5", "9223372036854775808"] {
            let line = format!("LOCK.SCAN 0 COUNT {count}");
            assert_eq!(ScanCommand::parse(&words(&line)), Err(errors::NOT_AN_INTEGER), "{count}");
        }
        for twice in ["MATCH a MATCH a", "COUNT 5 COUNT 5"] {
            let line = format!("LOCK.SCAN 0 {twice}");
            assert_eq!(ScanCommand::parse(&words(&line)), Err(errors::SYNTAX), "{twice}");
        }
    }
}

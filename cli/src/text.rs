//! Keys and owners: any bytes, escaped for people and encoded for programs.

use std::fmt;

use base64::prelude::{Engine, BASE64_STANDARD};
use serde::ser::{Serialize, SerializeMap, Serializer};
use unicode_width::UnicodeWidthStr;

/// Bytes that are nearly always text. In JSON a string, or `{"base64":…}` if they are not UTF-8, as in the module's own
/// messages.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Text(pub Vec<u8>);

/// For people: characters that could control the terminal or break the table are escaped as in redis-cli's strings.
impl fmt::Display for Text {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for chunk in self.0.utf8_chunks() {
            for character in chunk.valid().chars() {
                match character {
                    '\\' => f.write_str("\\\\")?,
                    '\n' => f.write_str("\\n")?,
                    '\r' => f.write_str("\\r")?,
                    '\t' => f.write_str("\\t")?,
                    _ if is_invisible(character) => {
                        let mut buffer = [0; 4];
                        escape(f, character.encode_utf8(&mut buffer).as_bytes())?;
                    }
                    _ => write!(f, "{character}")?,
                }
            }
            escape(f, chunk.invalid())?;
        }
        Ok(())
    }
}

fn escape(f: &mut fmt::Formatter<'_>, bytes: &[u8]) -> fmt::Result {
    bytes.iter().try_for_each(|byte| write!(f, "\\x{byte:02x}"))
}

/// The bytes of a name as printed by [`Text`], or by redis-cli without the quotes.
///
/// # Errors
/// The invalid escape.
pub fn unescaped(text: &[u8]) -> Result<Vec<u8>, String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((first, behind)) = rest.split_first() {
        rest = behind;
        if *first != b'\\' {
            bytes.push(*first);
            continue;
        }
        let (byte, length) = match rest {
            [b'x', high, low, ..] => (hex(*high).zip(hex(*low)).map(|(high, low)| high << 4 | low), 3),
            [b'n', ..] => (Some(b'\n'), 1),
            [b'r', ..] => (Some(b'\r'), 1),
            [b't', ..] => (Some(b'\t'), 1),
            [b'a', ..] => (Some(0x07), 1),
            [b'b', ..] => (Some(0x08), 1),
            [same @ (b'\\' | b'"'), ..] => (Some(*same), 1),
            _ => (None, 0),
        };
        let wrong =
            || format!("{}: --escaped accepts only \\xHH, \\n, \\r, \\t and \\\\", String::from_utf8_lossy(text));
        bytes.push(byte.ok_or_else(wrong)?);
        rest = &rest[length..];
    }
    Ok(bytes)
}

fn hex(digit: u8) -> Option<u8> {
    char::from(digit).to_digit(16).and_then(|digit| u8::try_from(digit).ok())
}

/// Control characters, and characters that change the direction of the surrounding text.
fn is_invisible(character: char) -> bool {
    character.is_control()
        || matches!(character, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{2069}' | '\u{feff}')
}

impl Serialize for Text {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match std::str::from_utf8(&self.0) {
            Ok(text) => serializer.serialize_str(text),
            Err(_) => {
                let mut map = serializer.serialize_map(Some(1))?;
                map.serialize_entry("base64", &BASE64_STANDARD.encode(&self.0))?;
                map.end()
            }
        }
    }
}

/// Truncates a text that is too wide, and ends it with `…`.
pub fn cut(text: &str, width: usize) -> String {
    if text.width() <= width {
        return text.to_string();
    }
    let mut cut = String::new();
    for character in text.chars() {
        // Not the sum of the widths: a variation selector has no width but makes the character before it wider.
        let before = cut.len();
        cut.push(character);
        if cut.width() + 1 > width {
            cut.truncate(before);
            break;
        }
    }
    cut + if width > 0 { "…" } else { "" }
}

/// Wraps a text between words; a word that is wider than a line is truncated.
pub fn wrapped(text: &str, width: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split(' ') {
        let line = lines.last_mut().expect("there is one from the start");
        if line.is_empty() {
            *line = cut(word, width);
        } else if line.width() + 1 + word.width() <= width {
            *line += &format!(" {word}");
        } else {
            lines.push(cut(word, width));
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn terminal_control_characters_are_escaped() {
        let shown = |bytes: &[u8]| Text(bytes.to_vec()).to_string();
        assert_eq!(shown("zürich 東京 \"a\"".as_bytes()), "zürich 東京 \"a\"");
        assert_eq!(shown(b"\x1b[2Ja\nb\tc\\"), "\\x1b[2Ja\\nb\\tc\\\\");
        assert_eq!(shown(b"a\xff\xfeb\0"), "a\\xff\\xfeb\\x00");
        assert_eq!(shown("\u{202e}abc\u{85}".as_bytes()), "\\xe2\\x80\\xaeabc\\xc2\\x85");
    }

    #[test]
    fn printed_names_can_be_parsed_back() {
        let all_bytes: Vec<u8> = (0..=255).collect();
        let names = [&all_bytes[..], "zürich \u{202e} 東京".as_bytes(), b"caf\xe9", b"a\\xe9b", b"\\", b"-k", b"\0"];
        for bytes in all_bytes.chunks(1).chain(names) {
            let printed = Text(bytes.to_vec()).to_string();
            assert_eq!(unescaped(printed.as_bytes()).as_deref(), Ok(bytes), "{printed}");
        }
        assert_eq!(unescaped(b"\\\"\\a\\b\\x2Dk"), Ok(b"\"\x07\x08-k".to_vec()));
        for wrong in ["\\", "a\\x", "\\x1", "\\xg0", "\\q"] {
            assert!(unescaped(wrong.as_bytes()).is_err_and(|words| words.starts_with(wrong)), "{wrong}");
        }
    }

    #[test]
    fn json_contains_a_string_or_base64() {
        let json = |bytes: &[u8]| serde_json::to_string(&Text(bytes.to_vec())).expect("it is written");
        assert_eq!(json("a\"b\u{1b}é".as_bytes()), "\"a\\\"b\\u001bé\"");
        assert_eq!(json(b"\xff\0"), "{\"base64\":\"/wA=\"}");
    }

    #[test]
    fn a_text_is_wrapped_between_words() {
        assert_eq!(wrapped("no connection to redis-1:6379", 16), ["no connection to", "redis-1:6379"]);
        assert_eq!(wrapped("no connection to redis-1:6379", 10), ["no", "connection", "to", "redis-1:6…"]);
        assert_eq!(wrapped("", 10), [""]);
    }
}

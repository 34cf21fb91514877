//! Keys and owners: any bytes, escaped for people and encoded for programs.

use std::fmt;

use base64::prelude::{Engine, BASE64_STANDARD};
use serde::ser::{Serialize, SerializeMap, Serializer};
use unicode_width::UnicodeWidthStr;

/// Bytes that are nearly always text. In JSON a string, or `{"base64":…}` if they are not UTF-8, as in the module's own
/// messages.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Text(pub Vec<u8>);

/// For people. Characters that could control the terminal or break the table are escaped as in a string of redis-cli.
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

/// Cuts a text that is too wide, and ends it with `…`.
pub fn cut(text: &str, width: usize) -> String {
    if text.width() <= width {
        return text.to_string();
    }
    let mut cut = String::new();
    for character in text.chars() {
        // Not the sum of the widths: a variation selector, of no width, makes the character before it wider.
        let before = cut.len();
        cut.push(character);
        if cut.width() + 1 > width {
            cut.truncate(before);
            break;
        }
    }
    cut + if width > 0 { "…" } else { "" }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_could_drive_the_terminal_is_escaped() {
        let shown = |bytes: &[u8]| Text(bytes.to_vec()).to_string();
        assert_eq!(shown("zürich 東京 \"a\"".as_bytes()), "zürich 東京 \"a\"");
        assert_eq!(shown(b"\x1b[2Ja\nb\tc\\"), "\\x1b[2Ja\\nb\\tc\\\\");
        assert_eq!(shown(b"a\xff\xfeb\0"), "a\\xff\\xfeb\\x00");
        assert_eq!(shown("\u{202e}abc\u{85}".as_bytes()), "\\xe2\\x80\\xaeabc\\xc2\\x85");
    }

    #[test]
    fn json_has_a_string_or_base64() {
        let json = |bytes: &[u8]| serde_json::to_string(&Text(bytes.to_vec())).expect("it is written");
        assert_eq!(json("a\"b\u{1b}é".as_bytes()), "\"a\\\"b\\u001bé\"");
        assert_eq!(json(b"\xff\0"), "{\"base64\":\"/wA=\"}");
    }
}

//! READ or WRITE, which stand behind the owner where the prefix has modes.

use lock::value::claim::Mode;

use crate::errors::{self, ErrorReply};

/// The mode that this argument names.
pub(super) fn mode(argument: Option<&[u8]>) -> Result<Mode, ErrorReply> {
    match argument {
        Some(word) if word.eq_ignore_ascii_case(b"READ") => Ok(Mode::Read),
        Some(word) if word.eq_ignore_ascii_case(b"WRITE") => Ok(Mode::Write),
        _ => Err(errors::SYNTAX),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mode_is_named_in_any_case_and_needed() {
        let mode = |word: &[u8]| mode(Some(word));
        for (word, expected) in [("READ", Mode::Read), ("rEaD", Mode::Read), ("WRITE", Mode::Write)] {
            assert_eq!(mode(word.as_bytes()), Ok(expected));
        }
        for word in ["", "REA", "READS", "RW", "PX"] {
            assert_eq!(mode(word.as_bytes()), Err(errors::SYNTAX), "{word}");
        }
        assert_eq!(super::mode(None), Err(errors::SYNTAX));
    }
}

//! The message published to a request that waits without blocking (`NOTIFY channel`): one JSON object.

use base64::Engine;
use serde::ser::{SerializeMap, Serializer};
use serde::Serialize;

use lock::host::WaitOutcome;
use lock::value::claim::InvalidClaim;
use lock::value::holders::Slot;
use lock::value::outcome::KeyError;

/// The outcome of the request by `token` for `key`, as JSON:
/// `{"key":…,"token":…,"outcome":…,"fence":…,"holds":…,"slot":…}`. A grant has `fence` and `holds`, and `slot` if the
/// request asked for one. The outcome `done` has `fence`.
pub fn message(key: &[u8], token: &[u8], outcome: WaitOutcome) -> Vec<u8> {
    let (fence, holds, slot) = match outcome {
        WaitOutcome::Granted { fence, holds, slot } => (Some(fence.get()), Some(holds), slot.map(Slot::number)),
        WaitOutcome::Done { fence } => (Some(fence.get()), None, None),
        _ => (None, None, None),
    };
    let message = Message { key: Text(key), token: Text(token), outcome: word(outcome), fence, holds, slot };
    serde_json::to_vec(&message).expect("strings and numbers can always be written as JSON")
}

fn word(outcome: WaitOutcome) -> &'static str {
    match outcome {
        WaitOutcome::Granted { .. } => "granted",
        WaitOutcome::Done { .. } => "done",
        WaitOutcome::TimedOut => "timeout",
        WaitOutcome::Cancelled => "cancelled",
        WaitOutcome::Superseded => "superseded",
        WaitOutcome::NotPermitted => "noperm",
        WaitOutcome::Demoted | WaitOutcome::Deadlock => "unblocked",
        WaitOutcome::TryAgain => "moved",
        WaitOutcome::Impossible(KeyError::WrongType) => "wrongtype",
        WaitOutcome::Impossible(KeyError::Invalid(InvalidClaim::WrongLockType(_))) => "wrongkind",
        WaitOutcome::Impossible(KeyError::Invalid(_) | KeyError::NoFence) => "unblocked",
    }
}

#[derive(Serialize)]
struct Message<'a> {
    key: Text<'a>,
    token: Text<'a>,
    outcome: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    fence: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    holds: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    slot: Option<u32>,
}

/// Bytes as a JSON string, or as `{"base64":…}` if they are not UTF-8.
struct Text<'a>(&'a [u8]);

impl Serialize for Text<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match std::str::from_utf8(self.0) {
            Ok(text) => serializer.serialize_str(text),
            Err(_) => {
                let mut map = serializer.serialize_map(Some(1))?;
                map.serialize_entry("base64", &base64::engine::general_purpose::STANDARD.encode(self.0))?;
                map.end()
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lock::value::claim::LockType;
    use lock::value::fence::Fence;

    fn text(key: &[u8], token: &[u8], outcome: WaitOutcome) -> String {
        String::from_utf8(message(key, token, outcome)).unwrap()
    }

    #[test]
    fn a_grant_contains_its_fence_and_holds() {
        let fence = Fence::new((1 << 53) - 1).unwrap();
        let outcome = WaitOutcome::Granted { fence, holds: 3, slot: None };
        assert_eq!(
            text(b"k", b"t", outcome),
            r#"{"key":"k","token":"t","outcome":"granted","fence":9007199254740991,"holds":3}"#
        );
        let outcome = WaitOutcome::Granted { fence, holds: 1, slot: Slot::new(4) };
        assert_eq!(
            text(b"k", b"t", outcome),
            r#"{"key":"k","token":"t","outcome":"granted","fence":9007199254740991,"holds":1,"slot":4}"#
        );
    }

    #[test]
    fn completed_work_contains_the_fence_of_the_hold() {
        let outcome = WaitOutcome::Done { fence: Fence::new(7).unwrap() };
        assert_eq!(text(b"k", b"t", outcome), r#"{"key":"k","token":"t","outcome":"done","fence":7}"#);
    }

    #[test]
    fn every_other_outcome_has_its_name_and_no_fence() {
        let impossible = |error: KeyError| WaitOutcome::Impossible(error);
        let cases = [
            (WaitOutcome::TimedOut, "timeout"),
            (WaitOutcome::Cancelled, "cancelled"),
            (WaitOutcome::Superseded, "superseded"),
            (WaitOutcome::Demoted, "unblocked"),
            (WaitOutcome::NotPermitted, "noperm"),
            (WaitOutcome::Deadlock, "unblocked"),
            (WaitOutcome::TryAgain, "moved"),
            (impossible(KeyError::WrongType), "wrongtype"),
            (impossible(InvalidClaim::WrongLockType(LockType::Semaphore).into()), "wrongkind"),
            (impossible(InvalidClaim::OverLimit.into()), "unblocked"),
            (impossible(InvalidClaim::HoldsMore(1).into()), "unblocked"),
            (impossible(InvalidClaim::TooManyHolds.into()), "unblocked"),
            (impossible(KeyError::NoFence), "unblocked"),
        ];
        for (outcome, word) in cases {
            assert_eq!(text(b"k", b"t", outcome), format!(r#"{{"key":"k","token":"t","outcome":"{word}"}}"#));
        }
    }

    #[test]
    fn bytes_that_are_not_utf_8_are_encoded_as_base64() {
        assert_eq!(
            text(b"\xff\xfe\xfd\xfc", "\u{e9}\"\n".as_bytes(), WaitOutcome::TimedOut),
            "{\"key\":{\"base64\":\"//79/A==\"},\"token\":\"\u{e9}\\\"\\n\",\"outcome\":\"timeout\"}"
        );
        assert_eq!(
            text(b"", b"\xff\xff", WaitOutcome::TimedOut),
            r#"{"key":"","token":{"base64":"//8="},"outcome":"timeout"}"#
        );
    }
}

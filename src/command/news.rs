//! What is published to a waiter that does not block (`NOTIFY channel`): one JSON object.

use serde::ser::{SerializeMap, Serializer};
use serde::Serialize;

use lock::claim::Refusal;
use lock::world::News;

/// The message: `{"key":…,"token":…,"outcome":…,"fence":…,"holds":…}`, the last two only when granted.
#[derive(Serialize)]
struct Message<'a> {
    key: Text<'a>,
    token: Text<'a>,
    outcome: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    fence: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    holds: Option<u32>,
}

/// Bytes as a JSON string, or as `{"base64":…}` where they are not UTF-8.
struct Text<'a>(&'a [u8]);

impl Serialize for Text<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match std::str::from_utf8(self.0) {
            Ok(text) => serializer.serialize_str(text),
            Err(_) => {
                use base64::Engine;
                let mut map = serializer.serialize_map(Some(1))?;
                map.serialize_entry("base64", &base64::engine::general_purpose::STANDARD.encode(self.0))?;
                map.end()
            }
        }
    }
}

/// The JSON that tells how a request for `key` by `token` ended.
pub fn message(key: &[u8], token: &[u8], news: News) -> Vec<u8> {
    let (fence, holds) = match news {
        News::Granted { fence, holds } => (Some(fence.get()), Some(holds)),
        _ => (None, None),
    };
    let message = Message { key: Text(key), token: Text(token), outcome: outcome(news), fence, holds };
    serde_json::to_vec(&message).unwrap_or_default()
}

fn outcome(news: News) -> &'static str {
    match news {
        News::Granted { .. } => "granted",
        News::TimedOut => "timeout",
        News::Cancelled => "cancelled",
        News::Refused(Refusal::WrongKind(_)) => "wrongkind",
        News::Superseded | News::Demoted | News::Refused(_) | News::NoFence => "unblocked",
        News::WrongType => "wrongtype",
        News::TryAgain => "moved",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lock::fence::Fence;

    #[test]
    fn a_grant_is_told_with_its_fence() {
        let news = News::Granted { fence: Fence::new(7).unwrap(), holds: 1 };
        let json = br#"{"key":"k","token":{"base64":"//8="},"outcome":"granted","fence":7,"holds":1}"#;
        assert_eq!(message(b"k", b"\xff\xff", news), json);
    }

    #[test]
    fn other_outcomes_have_no_fence() {
        assert_eq!(message(b"k", b"t", News::TimedOut), br#"{"key":"k","token":"t","outcome":"timeout"}"#);
    }
}

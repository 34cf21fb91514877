//! A reply as received. Unlike most client libraries it distinguishes the two nulls of RESP2, because the contract says
//! which one a refusal is.

use std::fmt;

#[derive(Clone, PartialEq)]
pub enum Reply {
    /// `_`, RESP3 only.
    Null,
    /// `*-1`, RESP2 only.
    NullArray,
    /// `$-1`, RESP2 only.
    NullBulk,
    Status(String),
    Error(String),
    Int(i64),
    Bulk(Vec<u8>),
    Array(Vec<Reply>),
    Map(Vec<(Reply, Reply)>),
    Set(Vec<Reply>),
    Push(Vec<Reply>),
    Double(f64),
    Bool(bool),
}

impl Reply {
    pub fn ok() -> Reply {
        Reply::Status("OK".into())
    }

    pub fn bulk(bytes: impl AsRef<[u8]>) -> Reply {
        Reply::Bulk(bytes.as_ref().to_vec())
    }

    /// The contract's nil: a null array in RESP2, null in RESP3. Not a null bulk string.
    pub fn is_nil(&self) -> bool {
        matches!(self, Reply::Null | Reply::NullArray)
    }

    /// Any of the three nulls: the reply for a key that does not exist.
    pub fn is_null(&self) -> bool {
        matches!(self, Reply::Null | Reply::NullArray | Reply::NullBulk)
    }

    pub fn is_bulk(&self, text: &str) -> bool {
        matches!(self, Reply::Bulk(bytes) if bytes == text.as_bytes())
    }

    pub fn is_error(&self) -> bool {
        matches!(self, Reply::Error(_))
    }

    /// The whole error reply, including its code.
    #[track_caller]
    pub fn error(&self) -> &str {
        match self {
            Reply::Error(text) => text,
            other => panic!("expected an error, got {other:?}"),
        }
    }

    #[track_caller]
    pub fn int(&self) -> i64 {
        match self {
            Reply::Int(number) => *number,
            other => panic!("expected an integer, got {other:?}"),
        }
    }

    #[track_caller]
    pub fn bytes(&self) -> &[u8] {
        match self {
            Reply::Bulk(bytes) => bytes,
            Reply::Status(text) => text.as_bytes(),
            other => panic!("expected a string, got {other:?}"),
        }
    }

    /// The string, which must be valid UTF-8.
    #[track_caller]
    pub fn text(&self) -> &str {
        std::str::from_utf8(self.bytes()).expect("a UTF-8 string")
    }

    /// The elements of an array, a set or a push.
    #[track_caller]
    pub fn items(&self) -> &[Reply] {
        match self {
            Reply::Array(items) | Reply::Set(items) | Reply::Push(items) => items,
            other => panic!("expected an array, got {other:?}"),
        }
    }

    /// The fencing token of a grant `[token, fence, …]`; fails on a refusal and on a queued request, which has 0.
    #[track_caller]
    pub fn fence(&self) -> i64 {
        let fence = self.items()[1].int();
        assert!(fence > 0, "expected a grant, got {self:?}");
        fence
    }

    /// The pairs of a map, in order: from a RESP3 map or a RESP2 flat array.
    #[track_caller]
    pub fn pairs(&self) -> Vec<(&Reply, &Reply)> {
        match self {
            Reply::Map(pairs) => pairs.iter().map(|(name, value)| (name, value)).collect(),
            Reply::Array(flat) if flat.len() % 2 == 0 => flat.chunks(2).map(|pair| (&pair[0], &pair[1])).collect(),
            other => panic!("expected a map, got {other:?}"),
        }
    }

    #[track_caller]
    pub fn get(&self, field: &str) -> &Reply {
        self.pairs()
            .into_iter()
            .find(|(name, _)| name.bytes() == field.as_bytes())
            .unwrap_or_else(|| panic!("no field {field} in {self:?}"))
            .1
    }
}

/// Shows strings as text, because people read the failures.
impl fmt::Debug for Reply {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Reply::Null => write!(f, "_"),
            Reply::NullArray => write!(f, "*-1"),
            Reply::NullBulk => write!(f, "$-1"),
            Reply::Status(text) => write!(f, "+{text}"),
            Reply::Error(text) => write!(f, "-{text}"),
            Reply::Int(number) => write!(f, "{number}"),
            Reply::Bulk(bytes) => write!(f, "\"{}\"", bytes.escape_ascii()),
            Reply::Array(items) => f.debug_list().entries(items).finish(),
            Reply::Map(pairs) => f.debug_map().entries(pairs.iter().map(|(name, value)| (name, value))).finish(),
            Reply::Set(items) => f.debug_set().entries(items).finish(),
            Reply::Push(items) => write!(f, ">{items:?}"),
            Reply::Double(number) => write!(f, "{number}"),
            Reply::Bool(truth) => write!(f, "{truth}"),
        }
    }
}

//! A reply writer that records its calls, for tests.

use super::ReplyWriter;
use crate::errors::ErrorReply;

/// One call of the writer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Written {
    Array(usize),
    Map(usize),
    Integer(i64),
    Bytes(Vec<u8>),
    Status(String),
    Null,
    NullString,
    Error(String),
}

impl From<i64> for Written {
    fn from(n: i64) -> Written {
        Written::Integer(n)
    }
}

impl From<&str> for Written {
    fn from(text: &str) -> Written {
        Written::Bytes(text.into())
    }
}

/// The calls that `reply` makes.
pub(crate) fn record(reply: impl FnOnce(&mut Recorder)) -> Vec<Written> {
    let mut recorder = Recorder(Vec::new());
    reply(&mut recorder);
    recorder.0
}

pub(crate) struct Recorder(Vec<Written>);

impl ReplyWriter for Recorder {
    fn array(&mut self, len: usize) {
        self.0.push(Written::Array(len));
    }

    fn map(&mut self, len: usize) {
        self.0.push(Written::Map(len));
    }

    fn integer(&mut self, n: i64) {
        self.0.push(Written::Integer(n));
    }

    fn bytes(&mut self, bytes: &[u8]) {
        self.0.push(Written::Bytes(bytes.into()));
    }

    fn status(&mut self, line: &str) {
        self.0.push(Written::Status(line.into()));
    }

    fn null(&mut self) {
        self.0.push(Written::Null);
    }

    fn null_string(&mut self) {
        self.0.push(Written::NullString);
    }

    fn error(&mut self, error: &ErrorReply) {
        self.0.push(Written::Error(error.as_str().into()));
    }
}

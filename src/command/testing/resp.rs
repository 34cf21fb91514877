//! Encodes replies in RESP2 and RESP3.

use crate::errors::ErrorReply;
use crate::reply::ReplyWriter;

/// The protocol version of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// RESP2
    Resp2,
    /// RESP3
    Resp3,
}

/// Collects replies.
#[derive(Debug)]
pub struct Encoder {
    /// Determines the encoding of maps and nil.
    pub protocol: Protocol,
    /// The encoded replies.
    pub bytes: Vec<u8>,
}

impl Encoder {
    pub fn new(protocol: Protocol) -> Encoder {
        Encoder { protocol, bytes: Vec::new() }
    }

    fn line(&mut self, text: &str) {
        self.bytes.extend_from_slice(text.as_bytes());
        self.bytes.extend_from_slice(b"\r\n");
    }

    /// Starts a push message.
    pub fn push(&mut self, len: usize) {
        match self.protocol {
            Protocol::Resp2 => self.array(len),
            Protocol::Resp3 => self.line(&format!(">{len}")),
        }
    }

    /// An error with this text.
    pub fn error_message(&mut self, words: &str) {
        self.line(&format!("-{words}"));
    }
}

impl ReplyWriter for Encoder {
    fn array(&mut self, len: usize) {
        self.line(&format!("*{len}"));
    }

    fn map(&mut self, len: usize) {
        match self.protocol {
            Protocol::Resp2 => self.line(&format!("*{}", 2 * len)),
            Protocol::Resp3 => self.line(&format!("%{len}")),
        }
    }

    fn integer(&mut self, n: i64) {
        self.line(&format!(":{n}"));
    }

    fn bytes(&mut self, bytes: &[u8]) {
        self.line(&format!("${}", bytes.len()));
        self.bytes.extend_from_slice(bytes);
        self.bytes.extend_from_slice(b"\r\n");
    }

    fn status(&mut self, line: &str) {
        self.line(&format!("+{line}"));
    }

    fn null(&mut self) {
        match self.protocol {
            Protocol::Resp2 => self.line("*-1"),
            Protocol::Resp3 => self.line("_"),
        }
    }

    fn null_string(&mut self) {
        match self.protocol {
            Protocol::Resp2 => self.line("$-1"),
            Protocol::Resp3 => self.line("_"),
        }
    }

    fn error(&mut self, error: &ErrorReply) {
        self.error_message(error.as_str());
    }
}

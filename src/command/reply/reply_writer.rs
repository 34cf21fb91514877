//! The parts of a reply.

use crate::errors::ErrorReply;

/// The destination of a reply. Every array and map is followed by its elements, which may be arrays and maps
/// themselves.
pub trait ReplyWriter {
    /// Begins an array of `len` elements.
    fn array(&mut self, len: usize);

    /// Begins a map of `len` names, each followed by its value; in RESP2 a flat array.
    fn map(&mut self, len: usize);

    /// Writes an integer.
    fn integer(&mut self, n: i64);

    /// Writes a bulk string of any bytes.
    fn bytes(&mut self, bytes: &[u8]);

    /// Writes a line of text, as `+OK` is one. Without a NUL or a line end.
    fn status(&mut self, line: &str);

    /// Writes nil: in RESP2 a null array, in RESP3 `_`.
    fn null(&mut self);

    /// Writes nil in the place of a string: in RESP2 a null bulk string, in RESP3 `_`.
    fn null_bulk(&mut self);

    /// Writes an error.
    fn error(&mut self, error: &ErrorReply);
}

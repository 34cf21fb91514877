//! An argument of a command, as the server has it or as bytes.

/// An argument of a command. Reading its bytes is a call of the server, so each is read where it is needed.
pub trait Argument<'a>: Copy {
    /// The bytes that the client sent.
    fn bytes(self) -> &'a [u8];
}

impl<'a> Argument<'a> for &'a [u8] {
    #[inline]
    fn bytes(self) -> &'a [u8] {
        self
    }
}

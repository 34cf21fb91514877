//! An argument of a command, as the server has it or as bytes.

/// An argument of a command. Asking the server for the bytes of one is a call, so each is read where it is needed.
pub trait Argument<'a>: Copy {
    /// What the client sent.
    fn bytes(self) -> &'a [u8];
}

impl<'a> Argument<'a> for &'a [u8] {
    #[inline]
    fn bytes(self) -> &'a [u8] {
        self
    }
}

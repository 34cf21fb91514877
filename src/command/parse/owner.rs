//! Owners, as clients send them.

use lock::value::owner::OwnerRef;

use crate::errors::{self, ErrorReply};

/// An owner (token) as it was sent: 1 to 1,024 bytes, or [`errors::BAD_OWNER`].
#[inline]
pub fn owner(bytes: &[u8]) -> Result<OwnerRef<'_>, ErrorReply> {
    OwnerRef::new(bytes).ok_or(errors::BAD_OWNER)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_owner_has_1_to_1024_bytes() {
        for len in [1, 1024] {
            assert_eq!(owner(&vec![0; len]).unwrap().as_bytes(), vec![0; len]);
        }
        for len in [0, 1025] {
            assert_eq!(owner(&vec![b'x'; len]).unwrap_err(), errors::BAD_OWNER, "{len} bytes");
        }
    }
}

//! `LOCK.BREAK key [OWNER owner]`: the holders to remove.

use lock::manager::release::HoldsOf;

use super::owner::owner;
use crate::errors::{self, ErrorReply};

/// Reads the arguments from index 2 on.
///
/// # Errors
/// Any arguments other than `OWNER owner`; an invalid owner.
pub fn broken_holders<'a>(args: &[&'a [u8]]) -> Result<HoldsOf<'a>, ErrorReply> {
    match args.get(2..) {
        None | Some([]) => Ok(HoldsOf::AllOwners),
        Some([option, name]) if option.eq_ignore_ascii_case(b"OWNER") => Ok(HoldsOf::Owner(owner(name)?.as_bytes())),
        Some(_) => Err(errors::SYNTAX),
    }
}

#[cfg(test)]
mod tests {
    use super::super::fixture::words;
    use super::*;

    #[test]
    fn all_holds_are_ended_or_one_owners() {
        assert_eq!(broken_holders(&words("LOCK.BREAK k")), Ok(HoldsOf::AllOwners));
        assert_eq!(broken_holders(&words("LOCK.BREAK k OWNER a")), Ok(HoldsOf::Owner(b"a")));
        assert_eq!(broken_holders(&words("lock.break k owner owner")), Ok(HoldsOf::Owner(b"owner")));
        for line in ["LOCK.BREAK k a", "LOCK.BREAK k OWNER", "LOCK.BREAK k OWNER a OWNER a", "LOCK.BREAK k TOKEN a"] {
            assert_eq!(broken_holders(&words(line)), Err(errors::SYNTAX), "{line}");
        }
        let too_long = [b'x'; 1025];
        for name in [&b""[..], &too_long] {
            assert_eq!(broken_holders(&[b"LOCK.BREAK".as_slice(), b"k", b"OWNER", name]), Err(errors::BAD_OWNER));
        }
    }
}

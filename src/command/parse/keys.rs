//! Which arguments of a command are its keys.

use std::ops::Range;

use super::argument::Argument;
use super::integer::integer;
use crate::errors::{self, ErrorReply};
use crate::name::Prefix;

/// The most keys that MLOCK takes at once.
const MAX_KEYS: usize = 128;

/// The keys of a command, and the index of the argument behind them.
#[inline(always)]
pub(super) fn keys<'a, A: Argument<'a>>(prefix: Prefix, args: &'a [A]) -> Result<(&'a [A], usize), ErrorReply> {
    let first = prefix.first_key_argument();
    if !prefix.takes_several_keys() {
        return Ok((args.get(first..=first).ok_or(errors::SYNTAX)?, first + 1));
    }
    let numkeys =
        args.get(1).and_then(|argument| integer(argument.bytes())).and_then(|number| usize::try_from(number).ok());
    let numkeys = numkeys.filter(|number| (1..=MAX_KEYS).contains(number)).ok_or(errors::BAD_NUMKEYS)?;
    let behind = first + numkeys;
    // The token follows.
    let keys = args.get(first..behind).filter(|_| args.len() > behind).ok_or(errors::TOO_MANY_NUMKEYS)?;
    let is_named_before = |(index, key): (usize, &A)| keys[..index].iter().any(|other| other.bytes() == key.bytes());
    if keys.iter().enumerate().any(is_named_before) {
        return Err(errors::KEY_TWICE);
    }
    Ok((keys, behind))
}

/// Which arguments of a command with this prefix are its keys; none where they make no sense.
pub fn key_positions<'a, A: Argument<'a>>(prefix: Prefix, args: &'a [A]) -> Range<usize> {
    keys(prefix, args).map_or(0..0, |(keys, behind)| behind - keys.len()..behind)
}

#[cfg(test)]
mod tests {
    use super::super::fixture::words;
    use super::*;

    fn error(prefix: Prefix, line: &str) -> ErrorReply {
        keys(prefix, &words(line)).unwrap_err()
    }

    #[test]
    fn one_key_follows_the_name() {
        let args = words("x k t PX 5");
        for prefix in [Prefix::Lock, Prefix::Rlock, Prefix::Rwlock, Prefix::Sem] {
            assert_eq!(keys(prefix, &args), Ok((&args[1..2], 2)));
        }
        assert_eq!(error(Prefix::Lock, "x"), errors::SYNTAX);
    }

    #[test]
    fn several_keys_are_counted() {
        let args = words("x 2 a b t PX 5");
        assert_eq!(keys(Prefix::Mlock, &args), Ok((&args[2..4], 4)));
        for numkeys in ["0", "129", "-1", "x", "", "1.0", "9223372036854775807", "9223372036854775808"] {
            assert_eq!(error(Prefix::Mlock, &format!("x {numkeys} a t")), errors::BAD_NUMKEYS, "{numkeys}");
        }
        assert_eq!(error(Prefix::Mlock, "x"), errors::BAD_NUMKEYS);
    }

    #[test]
    fn several_keys_are_1_to_128() {
        for numkeys in [1, 128] {
            let names: Vec<_> = (0..numkeys).map(|n| format!("k{n}")).collect();
            let line = format!("x {numkeys} {} t", names.join(" "));
            assert_eq!(keys(Prefix::Mlock, &words(&line)).unwrap().0.len(), numkeys);
        }
    }

    #[test]
    fn keys_have_positions() {
        assert_eq!(key_positions(Prefix::Lock, &words("x k t")), 1..2);
        assert_eq!(key_positions(Prefix::Mlock, &words("x 2 a b t PX 5")), 2..4);
        assert!(key_positions(Prefix::Mlock, &words("x 3 a b t")).is_empty());
    }

    #[test]
    fn a_token_follows_the_keys() {
        for line in ["x 2 a t", "x 2 a", "x 1 a", "x 1", "x 128 a t"] {
            assert_eq!(error(Prefix::Mlock, line), errors::TOO_MANY_NUMKEYS, "{line}");
        }
    }

    #[test]
    fn several_keys_are_distinct() {
        for line in ["x 2 a a t", "x 3 a b a t", "x 3 a b b t"] {
            assert_eq!(error(Prefix::Mlock, line), errors::KEY_TWICE, "{line}");
        }
        assert!(keys(Prefix::Mlock, &words("x 3 a b A a")).is_ok(), "the token is no key, and case counts");
    }
}

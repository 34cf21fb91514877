//! Parses commands of other lock libraries into requests. `None`: the command is not a lock request and acts as it does
//! without the module, with the server's own errors.

use std::num::NonZeroU64;

use lock::value::owner::OwnerRef;
use lock::value::time::{Lease, Timestamp};

use super::values::{integer, Argument};
use crate::adopted::Original;

/// `SET key token …` and related commands: a request that the token holds the mutex.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SetCommand<'a> {
    /// The owner. `None`: the value is empty or too long to be a token.
    pub token: Option<OwnerRef<'a>>,
    /// The condition under which it holds.
    pub condition: Condition<'a>,
    /// The lease, or the time at which it ends.
    pub expiry: Expiry,
    /// Whether the reply is the token that held the mutex before.
    pub gets: bool,
}

/// The condition of a SET.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Condition<'a> {
    /// No condition: another holder loses the mutex.
    Always,
    /// NX: the key is free.
    Free,
    /// XX: the mutex is held.
    Held,
    /// IFEQ: this token holds it.
    HeldBy(&'a [u8]),
}

/// The expiry of a SET's key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expiry {
    /// EX, PX, or none.
    Lease(Lease),
    /// EXAT, PXAT.
    At(Timestamp),
    /// KEEPTTL.
    Kept,
}

impl Expiry {
    /// The lease of a hold that begins now. `Some(None)`: keep the current expiry. `None`: it has already passed.
    pub fn lease(self, now: Timestamp) -> Option<Option<Lease>> {
        match self {
            Expiry::Lease(lease) => Some(Some(lease)),
            Expiry::Kept => Some(None),
            Expiry::At(at) => {
                let ms = NonZeroU64::new(at.ms_since(now))?;
                Some(Some(Lease::Ms(ms)))
            }
        }
    }
}

impl<'a> SetCommand<'a> {
    /// Parses SET, SETNX, SETEX, PSETEX or GETSET; the command's name is argument 0.
    pub fn parse<A: Argument<'a>>(original: Original, args: &[A]) -> Option<SetCommand<'a>> {
        let (condition, gets, never) = (Condition::Always, false, Expiry::Lease(Lease::Persist));
        let unit_ms = if original == Original::PSetEx { 1 } else { 1_000 };
        match (original, args) {
            (Original::Set, [_, _, token, options @ ..]) => SetCommand::with_options(token.bytes(), options),
            (Original::SetNx, [_, _, token]) => {
                let token = OwnerRef::new(token.bytes());
                Some(SetCommand { token, condition: Condition::Free, expiry: never, gets })
            }
            (Original::SetEx | Original::PSetEx, [_, _, time, token]) => {
                let (token, expiry) = (OwnerRef::new(token.bytes()), Expiry::Lease(lease(time.bytes(), unit_ms)?));
                Some(SetCommand { token, condition, expiry, gets })
            }
            (Original::GetSet, [_, _, token]) => {
                Some(SetCommand { token: OwnerRef::new(token.bytes()), condition, expiry: never, gets: true })
            }
            _ => None,
        }
    }

    fn with_options<A: Argument<'a>>(token: &'a [u8], options: &[A]) -> Option<SetCommand<'a>> {
        let (mut condition, mut expiry, mut gets) = (None, None, false);
        let mut options = options.iter().map(|option| option.bytes());
        while let Some(option) = options.next() {
            let is = |name: &[u8]| option.eq_ignore_ascii_case(name);
            // An option given twice is left to the server.
            let is_new = if is(b"NX") {
                condition.replace(Condition::Free).is_none()
            } else if is(b"XX") {
                condition.replace(Condition::Held).is_none()
            } else if is(b"IFEQ") {
                condition.replace(Condition::HeldBy(options.next()?)).is_none()
            } else if is(b"GET") {
                !std::mem::replace(&mut gets, true)
            } else if is(b"EX") {
                expiry.replace(Expiry::Lease(lease(options.next()?, 1_000)?)).is_none()
            } else if is(b"PX") {
                expiry.replace(Expiry::Lease(lease(options.next()?, 1)?)).is_none()
            } else if is(b"EXAT") {
                expiry.replace(Expiry::At(timestamp(options.next()?, 1_000)?)).is_none()
            } else if is(b"PXAT") {
                expiry.replace(Expiry::At(timestamp(options.next()?, 1)?)).is_none()
            } else {
                is(b"KEEPTTL") && expiry.replace(Expiry::Kept).is_none()
            };
            if !is_new {
                return None;
            }
        }
        Some(SetCommand {
            token: OwnerRef::new(token),
            condition: condition.unwrap_or(Condition::Always),
            expiry: expiry.unwrap_or(Expiry::Lease(Lease::Persist)),
            gets,
        })
    }
}

/// Longer leases are left to the server, which rejects some of them because it adds the lease to the wall clock.
const MOST_MS: u64 = i64::MAX as u64 / 2;

fn lease(time: &[u8], unit_ms: u64) -> Option<Lease> {
    NonZeroU64::new(ms(time, unit_ms)?).map(Lease::Ms)
}

fn timestamp(time: &[u8], unit_ms: u64) -> Option<Timestamp> {
    ms(time, unit_ms).map(Timestamp::from_ms)
}

fn ms(time: &[u8], unit_ms: u64) -> Option<u64> {
    let ms = u64::try_from(integer(time)?).ok()?.checked_mul(unit_ms)?;
    (1..=MOST_MS).contains(&ms).then_some(ms)
}

/// The most keys that one MSET or MSETNX may have to act on native locks.
const MOST_KEYS: usize = 128;

/// `MSET key token [key token …]` and MSETNX: the keys and tokens. `None`: a value cannot be a token, there are too
/// many keys, or a key is given twice.
pub fn pairs<'a, A: Argument<'a>>(args: &[A]) -> Option<Vec<(&'a [u8], OwnerRef<'a>)>> {
    let pairs = args.get(1..)?.chunks_exact(2);
    if pairs.len() > MOST_KEYS || !pairs.remainder().is_empty() {
        return None;
    }
    let pairs: Vec<_> =
        pairs.map(|pair| Some((pair[0].bytes(), OwnerRef::new(pair[1].bytes())?))).collect::<Option<_>>()?;
    let mut names: Vec<_> = pairs.iter().map(|(name, _)| *name).collect();
    names.sort_unstable();
    names.dedup();
    (names.len() == pairs.len()).then_some(pairs)
}

/// The token of `DELIFEQ key token` and `DELEX key IFEQ token`.
pub fn released_token<'a, A: Argument<'a>>(args: &[A]) -> Option<&'a [u8]> {
    match args {
        [_, _, token] => Some(token.bytes()),
        [_, _, option, token] if option.bytes().eq_ignore_ascii_case(b"IFEQ") => Some(token.bytes()),
        _ => None,
    }
}

/// `GETRANGE key start end` on this value, with Redis's semantics. `None`: start or end is not an integer.
pub fn range<'v, 'a, A: Argument<'a>>(value: &'v [u8], args: &[A]) -> Option<&'v [u8]> {
    let [_, _, start, end] = args else { return None };
    let (start, end) = (integer(start.bytes())?, integer(end.bytes())?);
    let len = i64::try_from(value.len()).ok()?;
    if start < 0 && end < 0 && start > end {
        return Some(&[]);
    }
    let from_end = |index: i64| if index < 0 { index.saturating_add(len).max(0) } else { index };
    let (start, end) = (from_end(start), from_end(end).min(len - 1));
    let range = usize::try_from(start).ok()?..usize::try_from(end + 1).unwrap_or(0);
    Some(value.get(range).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::super::fixture::words;
    use super::*;

    fn set(line: &str) -> Option<SetCommand<'_>> {
        let words = words(line);
        SetCommand::parse(Original::named(words[0]).unwrap(), &words)
    }

    fn ms(ms: i64) -> Expiry {
        Expiry::Lease(Lease::from_ms(ms).unwrap())
    }

    #[test]
    fn every_form_of_set_is_parsed() {
        let at = Expiry::At(Timestamp::from_ms(5_000));
        let cases = [
            ("SET k t", Condition::Always, ms(-1), false),
            ("SET k t NX PX 5", Condition::Free, ms(5), false),
            ("SET k t ex 5 nx", Condition::Free, ms(5_000), false),
            ("SET k t XX EXAT 5", Condition::Held, at, false),
            ("SET k t PXAT 5000 GET", Condition::Always, at, true),
            ("SET k t KEEPTTL", Condition::Always, Expiry::Kept, false),
            ("SET k t IFEQ o PX 5", Condition::HeldBy(b"o"), ms(5), false),
            ("SETNX k t", Condition::Free, ms(-1), false),
            ("SETEX k 5 t", Condition::Always, ms(5_000), false),
            ("PSETEX k 5 t", Condition::Always, ms(5), false),
            ("GETSET k t", Condition::Always, ms(-1), true),
        ];
        for (line, condition, expiry, gets) in cases {
            let token = OwnerRef::new(b"t");
            assert_eq!(set(line), Some(SetCommand { token, condition, expiry, gets }), "{line}");
        }
    }

    #[test]
    fn commands_that_concern_no_lock_are_left_to_the_server() {
        let lines = [
            "SET k t NX XX",
            "SET k t NX NX",
            "SET k t EX 5 PX 5",
            "SET k t EX",
            "SET k t EX 0",
            "SET k t PX -1",
            "SET k t PX x",
            "SET k t PX 9223372036854775807",
            "SET k t EX 9223372036854775807",
            "SET k t EX 5 KEEPTTL",
            "SET k t IFNE o",
            "SET k t IFEQ",
            "SET k t WHAT",
            "SETEX k 0 t",
        ];
        for line in lines {
            assert_eq!(set(line), None, "{line}");
        }
    }

    #[test]
    fn an_empty_or_too_long_value_is_not_a_token() {
        for line in ["SET k ", "SETNX k ", "SETEX k 5 ", "GETSET k "] {
            assert_eq!(set(line).map(|set| set.token.is_none()), Some(true), "{line}");
        }
        let (long, name) = (vec![b'x'; 1_025], &b"SET"[..]);
        assert!(SetCommand::parse(Original::Set, &[name, b"k", &long]).is_some_and(|set| set.token.is_none()));
    }

    #[test]
    fn an_expiry_in_the_past_is_not_a_lease() {
        let at = Expiry::At(Timestamp::from_ms(5_000));
        assert_eq!(at.lease(Timestamp::from_ms(4_000)), Some(Lease::from_ms(1_000)));
        assert_eq!(at.lease(Timestamp::from_ms(5_000)), None);
        assert_eq!(Expiry::Kept.lease(Timestamp::from_ms(5_000)), Some(None));
    }

    #[test]
    fn multiple_keys_have_a_token_each() {
        let read = |line: &str| pairs(&words(line)).map(|pairs| pairs.len());
        assert_eq!(read("MSETNX a x b x"), Some(2));
        for line in ["MSETNX a x a y", "MSETNX a x b", "MSETNX a "] {
            assert_eq!(read(line), None, "{line}");
        }
        let keys = |number: usize| (0..number).map(|n| format!(" k{n} t")).collect::<String>();
        assert_eq!(read(&format!("MSET{}", keys(128))), Some(128));
        assert_eq!(read(&format!("MSET{}", keys(129))), None);
    }

    #[test]
    fn the_token_of_a_comparison_is_parsed() {
        let token = |line: &str| released_token(&words(line)).map(<[u8]>::to_vec);
        for line in ["DELIFEQ k t", "DELEX k IFEQ t", "delex k ifeq t"] {
            assert_eq!(token(line), Some(b"t".to_vec()), "{line}");
        }
        for line in ["DELEX k", "DELEX k IFNE t", "DELEX k IFEQ t t"] {
            assert_eq!(token(line), None, "{line}");
        }
    }

    #[test]
    fn a_range_has_redis_semantics() {
        let cases = [
            ("0 -1", "hello"),
            ("0 0", "h"),
            ("1 3", "ell"),
            ("-3 -1", "llo"),
            ("-100 100", "hello"),
            ("5 10", ""),
            ("3 1", ""),
            ("-1 -3", ""),
            ("-10 -20", ""),
            ("-3 -3", "l"),
            ("-10 2", "hel"),
            ("0 -100", "h"),
        ];
        for (range_of, expected) in cases {
            let line = format!("GETRANGE k {range_of}");
            assert_eq!(range(b"hello", &words(&line)), Some(expected.as_bytes()), "{range_of}");
        }
        assert_eq!(range(b"hello", &words("GETRANGE k 0 x")), None);
        assert_eq!(range(b"hello", &words("GETRANGE k -9223372036854775808 9223372036854775807")), Some(&b"hello"[..]));
    }
}

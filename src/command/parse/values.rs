//! The values of arguments: integers as Redis reads them, owners, leases (`EX seconds`, `PX milliseconds`, `PERSIST`,
//! or the default).

use std::num::NonZeroU64;

use lock::value::owner::OwnerRef;
use lock::value::time::Lease;

use crate::errors::{self, ErrorReply};
use crate::name::CommandName;

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

/// The integer that these bytes spell, if they spell one in Redis's way (`string2ll`): decimal, no sign but `-`, no
/// spaces, no leading zeros. By hand: `str::parse` also accepts `+1` and `01`, and needs UTF-8 first.
#[inline]
pub fn integer(bytes: &[u8]) -> Option<i64> {
    let (is_negative, digits) = match bytes {
        b"0" => return Some(0),
        [b'-', digits @ ..] => (true, digits),
        digits => (false, digits),
    };
    let [b'1'..=b'9', ..] = digits else { return None };
    // Negative all the way: the smallest integer has no positive counterpart.
    let negated = digits.iter().try_fold(0_i64, |number, byte| {
        let digit = byte.is_ascii_digit().then(|| byte - b'0')?;
        number.checked_mul(10)?.checked_sub(i64::from(digit))
    })?;
    if is_negative {
        Some(negated)
    } else {
        negated.checked_neg()
    }
}

/// An owner (token) as it was sent: 1 to 1,024 bytes, or [`errors::BAD_OWNER`].
#[inline]
pub fn owner(bytes: &[u8]) -> Result<OwnerRef<'_>, ErrorReply> {
    OwnerRef::new(bytes).ok_or(errors::BAD_OWNER)
}

/// The longest that `lock.max-lease` can be, and its default: a year in milliseconds.
pub const MAX_LEASE_MS: u64 = 31_536_000_000;

/// The settings that leases are read under.
#[derive(Clone, Copy, Debug)]
pub struct LeaseSettings {
    /// `lock.default-lease`: milliseconds, when a request names no lease; above the longest lease it counts as that.
    pub default_ms: u64,
    /// `lock.max-lease`: milliseconds; a longer lease is an error. Below [`MAX_LEASE_MS`] PERSIST is refused too.
    pub max_ms: u64,
}

impl LeaseSettings {
    /// The value of PX or EX, in units of this many milliseconds.
    #[inline(always)]
    pub(super) fn of_units(self, value: &[u8], unit_ms: u64, command: CommandName) -> Result<Lease, ErrorReply> {
        let number = integer(value).ok_or(errors::NOT_AN_INTEGER)?;
        let ms = u64::try_from(number).ok().and_then(|number| number.checked_mul(unit_ms));
        self.of_ms(ms.ok_or_else(|| errors::invalid_expire(command))?, command)
    }

    /// PERSIST.
    pub(super) fn persist(self, command: CommandName) -> Result<Lease, ErrorReply> {
        if self.max_ms < MAX_LEASE_MS {
            return Err(errors::invalid_expire(command));
        }
        Ok(Lease::Persist)
    }

    /// Without an option.
    pub(super) fn default_lease(self, command: CommandName) -> Result<Lease, ErrorReply> {
        self.of_ms(self.default_ms.min(self.max_ms), command)
    }

    #[inline]
    fn of_ms(self, ms: u64, command: CommandName) -> Result<Lease, ErrorReply> {
        match NonZeroU64::new(ms) {
            Some(length) if ms <= self.max_ms => Ok(Lease::Ms(length)),
            _ => Err(errors::invalid_expire(command)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::fixture::SETTINGS;
    use super::*;
    use crate::name::{Prefix, Verb};

    const COMMAND: CommandName = CommandName { prefix: Prefix::Lock, verb: Verb::Acquire };

    fn ms(ms: u64) -> Result<Lease, ErrorReply> {
        Ok(Lease::Ms(NonZeroU64::new(ms).unwrap()))
    }

    fn invalid() -> Result<Lease, ErrorReply> {
        Err(errors::invalid_expire(COMMAND))
    }

    #[test]
    fn reads_what_redis_reads_and_nothing_else() {
        for number in [0, 9, 10, -1, 30_000, i64::MAX, i64::MIN] {
            assert_eq!(integer(number.to_string().as_bytes()), Some(number));
        }
        for bytes in [
            "",
            "-",
            "+1",
            "01",
            "-0",
            " 1",
            "1 ",
            "1.0",
            "1e3",
            "0x1",
            "1:",
            "1/",
            "9223372036854775808",
            "-9223372036854775809",
            "99999999999999999999",
            "٣",
        ] {
            assert_eq!(integer(bytes.as_bytes()), None, "{bytes}");
        }
    }

    #[test]
    fn an_owner_has_1_to_1024_bytes() {
        for len in [1, 1024] {
            assert_eq!(owner(&vec![0; len]).unwrap().as_bytes(), vec![0; len]);
        }
        for len in [0, 1025] {
            assert_eq!(owner(&vec![b'x'; len]).unwrap_err(), errors::BAD_OWNER, "{len} bytes");
        }
    }

    #[test]
    fn milliseconds_have_two_bounds() {
        let cases = [
            ("1", ms(1)),
            ("31536000000", ms(31_536_000_000)),
            ("31536000001", invalid()),
            ("0", invalid()),
            ("-1", invalid()),
            ("9223372036854775807", invalid()),
            ("9223372036854775808", Err(errors::NOT_AN_INTEGER)),
            ("1x", Err(errors::NOT_AN_INTEGER)),
            ("1.5", Err(errors::NOT_AN_INTEGER)),
            ("", Err(errors::NOT_AN_INTEGER)),
        ];
        for (value, expected) in cases {
            assert_eq!(SETTINGS.of_units(value.as_bytes(), 1, COMMAND), expected, "PX {value}");
        }
    }

    #[test]
    fn seconds_have_two_bounds() {
        // The last but one would be 384 ms if the product wrapped around.
        let cases = [
            ("1", ms(1_000)),
            ("31536000", ms(31_536_000_000)),
            ("31536001", invalid()),
            ("0", invalid()),
            ("-1", invalid()),
            ("18446744073709552", invalid()),
            ("1x", Err(errors::NOT_AN_INTEGER)),
        ];
        for (value, expected) in cases {
            assert_eq!(SETTINGS.of_units(value.as_bytes(), 1_000, COMMAND), expected, "EX {value}");
        }
    }

    #[test]
    fn a_lowered_maximum_is_the_bound_and_refuses_persist() {
        let lowered = LeaseSettings { max_ms: 31_535_999_999, ..SETTINGS };
        assert_eq!(lowered.of_units(b"31535999999", 1, COMMAND), ms(31_535_999_999));
        assert_eq!(lowered.of_units(b"31536000000", 1, COMMAND), invalid());
        assert_eq!(lowered.of_units(b"31536000", 1_000, COMMAND), invalid());
        assert_eq!(lowered.persist(COMMAND), invalid());
        assert_eq!(SETTINGS.persist(COMMAND), Ok(Lease::Persist));
    }

    #[test]
    fn the_default_is_the_longest_lease_where_it_would_be_longer() {
        assert_eq!(SETTINGS.default_lease(COMMAND), ms(30_000));
        assert_eq!(LeaseSettings { max_ms: 30_000, ..SETTINGS }.default_lease(COMMAND), ms(30_000));
        assert_eq!(LeaseSettings { max_ms: 29_999, ..SETTINGS }.default_lease(COMMAND), ms(29_999));
    }
}

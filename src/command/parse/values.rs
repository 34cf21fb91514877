//! The values of arguments: integers with Redis's syntax, owner IDs, leases (`EX seconds`, `PX milliseconds`,
//! `PERSIST`, or the default).

use std::num::NonZeroU64;

use lock::value::owner::OwnerRef;
use lock::value::time::Lease;

use crate::errors::{self, ErrorReply};
use crate::name::CommandName;

/// An argument of a command. Reading its bytes is a call into the server, so each argument is read only where needed.
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

/// Parses an integer exactly as Redis's `string2ll` does: decimal, no sign but `-`, no spaces, no leading zeros.
/// Hand-written because `str::parse` also accepts `+1` and `01` and requires UTF-8.
#[inline]
pub fn integer(bytes: &[u8]) -> Option<i64> {
    let (is_negative, digits) = match bytes {
        b"0" => return Some(0),
        [b'-', digits @ ..] => (true, digits),
        digits => (false, digits),
    };
    let [b'1'..=b'9', ..] = digits else { return None };
    // Accumulates the negative value, because the smallest integer has no positive counterpart.
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

/// An owner ID (token): 1 to 1,024 bytes, otherwise [`errors::BAD_OWNER`].
#[inline]
pub fn owner(bytes: &[u8]) -> Result<OwnerRef<'_>, ErrorReply> {
    OwnerRef::new(bytes).ok_or(errors::BAD_OWNER)
}

/// The upper bound and default of `lock.max-lease`: a year in milliseconds.
pub const MAX_LEASE_MS: u64 = 31_536_000_000;

/// The settings that affect how a lease is parsed.
#[derive(Clone, Copy, Debug)]
pub struct LeaseSettings {
    /// `lock.default-lease`: the lease in milliseconds of a request that names none, capped at the longest lease.
    pub default_ms: u64,
    /// `lock.max-lease` in milliseconds; a longer lease is an error. Below [`MAX_LEASE_MS`], PERSIST is an error too.
    pub max_ms: u64,
}

impl LeaseSettings {
    /// The lease from the value of PX or EX.
    #[inline(always)]
    pub(super) fn of_units(self, value: &[u8], unit: LeaseUnit, command: CommandName) -> Result<Lease, ErrorReply> {
        let number = integer(value).ok_or_else(|| errors::not_an_integer(unit.option(), value))?;
        let ms = u64::try_from(number).map_or(0, |number| number.saturating_mul(unit.ms()));
        self.of_ms(ms, command)
    }

    /// The lease for PERSIST.
    pub(super) fn persist(self, command: CommandName) -> Result<Lease, ErrorReply> {
        if self.max_ms < MAX_LEASE_MS {
            return Err(self.too_long(command));
        }
        Ok(Lease::Persist)
    }

    /// The lease if no option names one.
    pub(super) fn default_lease(self, command: CommandName) -> Result<Lease, ErrorReply> {
        self.of_ms(self.default_ms.min(self.max_ms), command)
    }

    #[inline]
    fn of_ms(self, ms: u64, command: CommandName) -> Result<Lease, ErrorReply> {
        match NonZeroU64::new(ms) {
            Some(length) if ms <= self.max_ms => Ok(Lease::Ms(length)),
            Some(_) => Err(self.too_long(command)),
            None => Err(errors::invalid_expire(command, "less than 1 ms")),
        }
    }

    #[cold]
    fn too_long(self, command: CommandName) -> ErrorReply {
        errors::invalid_expire(command, format_args!("more than lock.max-lease ({})", self.max_ms))
    }
}

#[derive(Clone, Copy, Debug)]
pub(super) enum LeaseUnit {
    /// `PX`.
    Milliseconds,
    /// `EX`.
    Seconds,
}

impl LeaseUnit {
    const fn ms(self) -> u64 {
        match self {
            LeaseUnit::Milliseconds => 1,
            LeaseUnit::Seconds => 1_000,
        }
    }

    const fn option(self) -> &'static str {
        match self {
            LeaseUnit::Milliseconds => "PX",
            LeaseUnit::Seconds => "EX",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::fixture::SETTINGS;
    use super::*;
    use crate::name::{Prefix, Verb};

    const COMMAND: CommandName = CommandName { prefix: Prefix::Lock, verb: Verb::Acquire };

    fn ms(ms: u64) -> Result<Lease, String> {
        Ok(Lease::Ms(NonZeroU64::new(ms).unwrap()))
    }

    fn refused(words: &str) -> Result<Lease, String> {
        Err(words.into())
    }

    const TOO_SHORT: &str = "ERR invalid expire time in 'lock.acquire' command: less than 1 ms";
    const TOO_LONG: &str = "ERR invalid expire time in 'lock.acquire' command: more than lock.max-lease (31536000000)";
    const TOO_LONG_NOW: &str =
        "ERR invalid expire time in 'lock.acquire' command: more than lock.max-lease (31535999999)";

    fn words(lease: Result<Lease, ErrorReply>) -> Result<Lease, String> {
        lease.map_err(|error| error.as_str().into())
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
            ("31536000001", refused(TOO_LONG)),
            ("0", refused(TOO_SHORT)),
            ("-1", refused(TOO_SHORT)),
            ("9223372036854775807", refused(TOO_LONG)),
            ("9223372036854775808", refused("ERR value is not an integer or out of range: PX '9223372036854775808'")),
            ("1x", refused("ERR value is not an integer or out of range: PX '1x'")),
            ("1.5", refused("ERR value is not an integer or out of range: PX '1.5'")),
            ("", refused("ERR value is not an integer or out of range: PX ''")),
        ];
        for (value, expected) in cases {
            let lease = SETTINGS.of_units(value.as_bytes(), LeaseUnit::Milliseconds, COMMAND);
            assert_eq!(words(lease), expected, "PX {value}");
        }
    }

    #[test]
    fn seconds_have_two_bounds() {
        // The product in the second to last case would wrap around to 384 ms.
        let cases = [
            ("1", ms(1_000)),
            ("31536000", ms(31_536_000_000)),
            ("31536001", refused(TOO_LONG)),
            ("0", refused(TOO_SHORT)),
            ("-1", refused(TOO_SHORT)),
            ("18446744073709552", refused(TOO_LONG)),
            ("1x", refused("ERR value is not an integer or out of range: EX '1x'")),
        ];
        for (value, expected) in cases {
            let lease = SETTINGS.of_units(value.as_bytes(), LeaseUnit::Seconds, COMMAND);
            assert_eq!(words(lease), expected, "EX {value}");
        }
    }

    #[test]
    fn a_lowered_maximum_applies_and_rejects_persist() {
        let lowered = LeaseSettings { max_ms: 31_535_999_999, ..SETTINGS };
        let of = |value: &[u8], unit| words(lowered.of_units(value, unit, COMMAND));
        assert_eq!(of(b"31535999999", LeaseUnit::Milliseconds), ms(31_535_999_999));
        assert_eq!(of(b"31536000000", LeaseUnit::Milliseconds), refused(TOO_LONG_NOW));
        assert_eq!(of(b"31536000", LeaseUnit::Seconds), refused(TOO_LONG_NOW));
        assert_eq!(words(lowered.persist(COMMAND)), refused(TOO_LONG_NOW));
        assert_eq!(words(SETTINGS.persist(COMMAND)), Ok(Lease::Persist));
    }

    #[test]
    fn the_default_lease_is_capped_at_the_longest_lease() {
        let default_below = |max_ms| words(LeaseSettings { max_ms, ..SETTINGS }.default_lease(COMMAND));
        assert_eq!(default_below(MAX_LEASE_MS), ms(30_000));
        assert_eq!(default_below(30_000), ms(30_000));
        assert_eq!(default_below(29_999), ms(29_999));
    }
}

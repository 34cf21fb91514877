//! The length of a lease: `EX seconds`, `PX milliseconds`, `PERSIST`, or the default.

use std::num::NonZeroU64;

use lock::value::time::Lease;

use super::integer::integer;
use crate::errors::{self, ErrorReply};
use crate::name::CommandName;

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
    /// The value of PX.
    #[inline(always)]
    pub(super) fn of_milliseconds(self, value: &[u8], command: CommandName) -> Result<Lease, ErrorReply> {
        self.of_units(value, 1, command)
    }

    /// The value of EX.
    pub(super) fn of_seconds(self, value: &[u8], command: CommandName) -> Result<Lease, ErrorReply> {
        self.of_units(value, 1000, command)
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

    #[inline(always)]
    fn of_units(self, value: &[u8], unit_ms: u64, command: CommandName) -> Result<Lease, ErrorReply> {
        let number = integer(value).ok_or(errors::NOT_AN_INTEGER)?;
        let ms = u64::try_from(number).ok().and_then(|number| number.checked_mul(unit_ms));
        self.of_ms(ms.ok_or_else(|| errors::invalid_expire(command))?, command)
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
    use super::*;
    use crate::name::{Prefix, Verb};

    const COMMAND: CommandName = CommandName { prefix: Prefix::Lock, verb: Verb::Acquire };
    const SETTINGS: LeaseSettings = LeaseSettings { default_ms: 30_000, max_ms: MAX_LEASE_MS };

    fn ms(ms: u64) -> Result<Lease, ErrorReply> {
        Ok(Lease::Ms(NonZeroU64::new(ms).unwrap()))
    }

    fn invalid() -> Result<Lease, ErrorReply> {
        Err(errors::invalid_expire(COMMAND))
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
            assert_eq!(SETTINGS.of_milliseconds(value.as_bytes(), COMMAND), expected, "PX {value}");
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
            assert_eq!(SETTINGS.of_seconds(value.as_bytes(), COMMAND), expected, "EX {value}");
        }
    }

    #[test]
    fn a_lowered_maximum_is_the_bound_and_refuses_persist() {
        let lowered = LeaseSettings { max_ms: 31_535_999_999, ..SETTINGS };
        assert_eq!(lowered.of_milliseconds(b"31535999999", COMMAND), ms(31_535_999_999));
        assert_eq!(lowered.of_milliseconds(b"31536000000", COMMAND), invalid());
        assert_eq!(lowered.of_seconds(b"31536000", COMMAND), invalid());
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

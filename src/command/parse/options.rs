//! Every option of every command. Options may come in any order and case; one given twice is a syntax error.
//!
//! | option     | value                           | commands that take it                |
//! | ---------- | ------------------------------- | ------------------------------------ |
//! | `PX`, `EX` | the lease, 1 ms to max-lease    | every ACQUIRE and RENEW              |
//! | `PERSIST`  |                                 | every ACQUIRE and RENEW              |
//! | `BLOCK`    | ms to wait, 0: no limit         | every ACQUIRE                        |
//! | `COALESCE` | only with BLOCK                 | LOCK.ACQUIRE                         |
//! | `NOTIFY`   | a channel; only with BLOCK      | every ACQUIRE                        |
//! | `SESSION`  |                                 | every ACQUIRE                        |
//! | `FAILED`   |                                 | LOCK.RELEASE                         |
//! | `HOLDS`    | holds afterwards, 0 to 2^32 - 1 | RLOCK, RWLOCK, SEM: ACQUIRE, RELEASE |
//! | `PERMITS`  | 1 to 1,000,000                  | SEM: ACQUIRE, RELEASE                |
//! | `SLOT`     |                                 | SEM.ACQUIRE                          |
//! | `LIMIT`    | 1 to 1,000,000                  | SEM.ACQUIRE                          |
//!
//! The command decides what the options request together, and which ones exclude each other.

use std::num::NonZeroU64;

use lock::value::claim::{Count, MAX_PERMITS};
use lock::value::time::{Lease, WaitLimit};

use super::values::{integer, Argument, LeaseSettings, LeaseUnit};
use crate::errors::{self, ErrorReply};
use crate::name::{CommandName, Prefix, Verb};

/// The longest BLOCK in milliseconds. As in BLPOP, a timestamp that does not fit a signed integer is not a valid
/// timeout.
const MAX_BLOCK_MS: u64 = i64::MAX as u64 / 2;

#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Options {
    pub lease: Option<Lease>,
    pub wait: WaitOptions,
    pub failed: bool,
    holds: Option<u32>,
    permits: Option<u32>,
    pub slot: bool,
    pub limit: Option<u32>,
}

/// `[BLOCK milliseconds [COALESCE] [NOTIFY channel]] [SESSION]`. Default: none of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WaitOptions {
    /// BLOCK.
    pub block: Option<WaitLimit>,
    /// COALESCE: the holder's release completes the request. Only with BLOCK.
    pub coalesce: bool,
    /// The index of NOTIFY's channel argument; the command's name is argument 0. Only with BLOCK.
    pub channel_argument: Option<usize>,
    /// SESSION: the grant is bound to the connection.
    pub session: bool,
}

#[derive(Clone, Copy)]
enum OptionName {
    Px,
    Ex,
    Block,
    Notify,
    Session,
    Holds,
    Permits,
    Limit,
    Slot,
    Persist,
    Coalesce,
    Failed,
}

impl OptionName {
    /// The most frequent option comes first.
    const ALL: [OptionName; 12] = [
        OptionName::Px,
        OptionName::Ex,
        OptionName::Block,
        OptionName::Notify,
        OptionName::Session,
        OptionName::Holds,
        OptionName::Permits,
        OptionName::Limit,
        OptionName::Slot,
        OptionName::Persist,
        OptionName::Coalesce,
        OptionName::Failed,
    ];

    #[inline]
    const fn word(self) -> &'static str {
        match self {
            OptionName::Px => "PX",
            OptionName::Ex => "EX",
            OptionName::Block => "BLOCK",
            OptionName::Notify => "NOTIFY",
            OptionName::Session => "SESSION",
            OptionName::Holds => "HOLDS",
            OptionName::Permits => "PERMITS",
            OptionName::Limit => "LIMIT",
            OptionName::Slot => "SLOT",
            OptionName::Persist => "PERSIST",
            OptionName::Coalesce => "COALESCE",
            OptionName::Failed => "FAILED",
        }
    }

    #[inline]
    fn is_spelled(self, word: &[u8]) -> bool {
        let own = self.word().as_bytes();
        // Nearly always in upper case, so try the single comparison first.
        word == own || word.eq_ignore_ascii_case(own)
    }

    fn of(word: &[u8]) -> Option<OptionName> {
        OptionName::ALL.into_iter().find(|name| name.is_spelled(word))
    }

    /// Whether the next argument is its value.
    fn has_value(self) -> bool {
        use OptionName::{Coalesce, Failed, Persist, Session, Slot};
        !matches!(self, Persist | Session | Slot | Coalesce | Failed)
    }

    #[inline]
    fn is_taken_by(self, command: CommandName) -> bool {
        let CommandName { prefix, verb } = command;
        match self {
            OptionName::Px | OptionName::Ex | OptionName::Persist => verb != Verb::Release,
            OptionName::Block | OptionName::Notify | OptionName::Session => verb == Verb::Acquire,
            OptionName::Holds => verb != Verb::Renew && matches!(prefix, Prefix::Rlock | Prefix::Rwlock | Prefix::Sem),
            OptionName::Permits => verb != Verb::Renew && prefix == Prefix::Sem,
            OptionName::Limit | OptionName::Slot => verb == Verb::Acquire && prefix == Prefix::Sem,
            OptionName::Coalesce => verb == Verb::Acquire && prefix == Prefix::Lock,
            OptionName::Failed => verb == Verb::Release && prefix == Prefix::Lock,
        }
    }
}

impl Options {
    /// Parses the arguments from index `start` to the end.
    #[inline(always)]
    pub(super) fn parse<'a, A: Argument<'a>>(
        args: &[A],
        start: usize,
        command: CommandName,
        settings: LeaseSettings,
    ) -> Result<Options, ErrorReply> {
        let is = |argument: &A, name: OptionName| name.is_taken_by(command) && name.is_spelled(argument.bytes());
        // Fast path without a search for what nearly every request contains. Without it an acquire/release pair costs
        // 1.08 times the bare module API instead of 1.05 (350 of 14,000 instructions, callgrind, Redis 7.0.15,
        // 2026-11-25).
        let (px, ms, block) = match args.get(start..).unwrap_or_default() {
            [] => return Ok(Options::default()),
            [px, ms] => (px, ms, None),
            [px, ms, block, limit] if is(block, OptionName::Block) => (px, ms, Some(limit)),
            _ => return Options::parse_any(args, start, command, settings),
        };
        if !is(px, OptionName::Px) {
            return Options::parse_any(args, start, command, settings);
        }
        let lease = Some(settings.of_units(ms.bytes(), LeaseUnit::Milliseconds, command)?);
        let block = match block {
            Some(limit) => Some(block_limit(limit.bytes())?),
            None => None,
        };
        Ok(Options { lease, wait: WaitOptions { block, ..WaitOptions::default() }, ..Options::default() })
    }

    /// The general case.
    #[inline(never)]
    fn parse_any<'a, A: Argument<'a>>(
        args: &[A],
        start: usize,
        command: CommandName,
        settings: LeaseSettings,
    ) -> Result<Options, ErrorReply> {
        let mut options = Options::default();
        let mut next = start;
        while let Some(word) = args.get(next).map(|word| word.bytes()) {
            let name = OptionName::of(word).ok_or_else(|| errors::syntax_at(word, "unknown option"))?;
            if !name.is_taken_by(command) {
                return Err(errors::syntax_at(word, "not an option of this command"));
            }
            let value_argument = next + 1;
            let value = || match args.get(value_argument) {
                Some(value) => Ok(value.bytes()),
                None => Err(errors::syntax_at(word, "missing value")),
            };
            next = value_argument + usize::from(name.has_value());
            match name {
                OptionName::Px => {
                    options.set_lease(word, settings.of_units(value()?, LeaseUnit::Milliseconds, command)?)?;
                }
                OptionName::Ex => {
                    options.set_lease(word, settings.of_units(value()?, LeaseUnit::Seconds, command)?)?;
                }
                OptionName::Persist => options.set_lease(word, settings.persist(command)?)?,
                OptionName::Block => once(word, &mut options.wait.block, block_limit(value()?)?)?,
                OptionName::Notify => once(word, &mut options.wait.channel_argument, value().map(|_| value_argument)?)?,
                OptionName::Holds => once(word, &mut options.holds, holds(value()?)?)?,
                OptionName::Permits => once(word, &mut options.permits, permits(name, value()?)?)?,
                OptionName::Limit => once(word, &mut options.limit, permits(name, value()?)?)?,
                OptionName::Session => flag(word, &mut options.wait.session)?,
                OptionName::Coalesce => flag(word, &mut options.wait.coalesce)?,
                OptionName::Failed => flag(word, &mut options.failed)?,
                OptionName::Slot => flag(word, &mut options.slot)?,
            }
        }
        match (options.holds, options.permits, options.slot) {
            (Some(_), Some(_), _) | (Some(_), _, true) | (_, Some(_), true) => {
                Err(errors::syntax("HOLDS, PERMITS and SLOT are mutually exclusive"))
            }
            _ => Ok(options),
        }
    }

    fn set_lease(&mut self, word: &[u8], lease: Lease) -> Result<(), ErrorReply> {
        match self.lease.replace(lease) {
            None => Ok(()),
            Some(_) => Err(errors::syntax_at(word, "more than one of EX, PX and PERSIST")),
        }
    }

    /// How many holds or permits to acquire or release: one unless an option says otherwise.
    pub(super) fn count(&self) -> Count {
        match (self.holds, self.permits) {
            (Some(holds), _) => Count::Exactly(holds),
            (None, Some(permits)) => Count::Delta(permits),
            (None, None) => Count::Delta(1),
        }
    }
}

/// Sets the value of an option; an error if it was already given.
#[inline]
fn once<T>(word: &[u8], option: &mut Option<T>, value: T) -> Result<(), ErrorReply> {
    match option.replace(value) {
        None => Ok(()),
        Some(_) => Err(errors::syntax_at(word, "duplicate option")),
    }
}

/// Sets an option without a value; an error if it was already given.
fn flag(word: &[u8], option: &mut bool) -> Result<(), ErrorReply> {
    if std::mem::replace(option, true) {
        Err(errors::syntax_at(word, "duplicate option"))
    } else {
        Ok(())
    }
}

#[inline]
fn block_limit(value: &[u8]) -> Result<WaitLimit, ErrorReply> {
    let number = integer(value).ok_or_else(|| errors::not_a_timeout(value))?;
    match u64::try_from(number).map(NonZeroU64::new) {
        Err(_) => Err(errors::negative_timeout(value)),
        Ok(None) => Ok(WaitLimit::Unlimited),
        Ok(Some(ms)) if ms.get() > MAX_BLOCK_MS => Err(errors::not_a_timeout(value)),
        Ok(Some(ms)) => Ok(WaitLimit::Ms(ms)),
    }
}

fn holds(value: &[u8]) -> Result<u32, ErrorReply> {
    let number = integer(value).and_then(|number| u32::try_from(number).ok());
    number.ok_or_else(|| errors::not_an_integer(OptionName::Holds.word(), value))
}

fn permits(name: OptionName, value: &[u8]) -> Result<u32, ErrorReply> {
    let number = integer(value).ok_or_else(|| errors::not_an_integer(name.word(), value))?;
    u32::try_from(number).ok().filter(|n| (1..=MAX_PERMITS).contains(n)).ok_or(errors::BAD_PERMITS)
}

#[cfg(test)]
mod tests {
    use super::super::fixture::{words, SETTINGS};
    use super::*;

    const SEM_ACQUIRE: CommandName = CommandName { prefix: Prefix::Sem, verb: Verb::Acquire };

    fn parse(command: CommandName, line: &str) -> Result<Options, ErrorReply> {
        Options::parse(&words(line), 3, command, SETTINGS)
    }

    /// Parses as SEM.ACQUIRE, which takes every option except COALESCE and FAILED.
    fn parsed(line: &str) -> Options {
        parse(SEM_ACQUIRE, &format!("x k t {line}")).expect(line)
    }

    fn error(line: &str) -> ErrorReply {
        parse(SEM_ACQUIRE, &format!("x k t {line}")).expect_err(line)
    }

    fn ms(ms: u64) -> WaitLimit {
        WaitLimit::Ms(NonZeroU64::new(ms).unwrap())
    }

    #[test]
    fn without_options_nothing_is_set() {
        let options = parse(SEM_ACQUIRE, "x k t").unwrap();
        assert_eq!((options.lease, options.wait.block, options.wait.channel_argument), (None, None, None));
        assert_eq!((options.wait.session, options.limit, options.count()), (false, None, Count::Delta(1)));
    }

    #[test]
    fn options_are_parsed_in_any_order_and_case() {
        for line in
            ["PX 7 BLOCK 5 NOTIFY c SESSION LIMIT 9 PERMITS 2", "permits 2 Limit 9 sessioN notify c block 5 px 7"]
        {
            let options = parsed(line);
            assert_eq!(options.lease, Lease::from_ms(7));
            assert_eq!(options.wait.block, Some(ms(5)));
            assert!(options.wait.session && options.wait.channel_argument.is_some());
            assert_eq!((options.limit, options.count()), (Some(9), Count::Delta(2)));
        }
        for (line, lease_ms) in [("EX 2", 2_000), ("eX 2", 2_000), ("PERSIST", -1), ("persist", -1)] {
            assert_eq!(parsed(line).lease, Lease::from_ms(lease_ms), "{line}");
        }
        for line in ["HOLDS 3", "holds 3"] {
            assert_eq!(parsed(line).count(), Count::Exactly(3), "{line}");
        }
    }

    #[test]
    fn the_fast_path_parses_like_the_general_case() {
        const WORDS: [&[u8]; 12] =
            [b"PX", b"px", b"EX", b"BLOCK", b"bLock", b"SESSION", b"HOLDS", b"5000", b"0", b"-1", b"x", b""];
        let commands = [Prefix::Lock, Prefix::Sem]
            .into_iter()
            .flat_map(|prefix| [Verb::Acquire, Verb::Release, Verb::Renew].map(|verb| CommandName { prefix, verb }));
        for command in commands {
            for len in 0..=4_u32 {
                for number in 0..WORDS.len().pow(len) {
                    let word = |position| WORDS[number / WORDS.len().pow(position) % WORDS.len()];
                    let args: Vec<_> = (0..len).map(word).collect();
                    let read = Options::parse(&args, 0, command, SETTINGS);
                    assert_eq!(read, Options::parse_any(&args, 0, command, SETTINGS), "{command} {args:?}");
                }
            }
        }
    }

    #[test]
    fn the_channel_is_the_argument_after_notify() {
        for (line, index) in [("NOTIFY c", 4), ("SESSION NOTIFY NOTIFY", 5), ("BLOCK 5 NOTIFY c PX 7", 6)] {
            assert_eq!(parsed(line).wait.channel_argument, Some(index), "{line}");
        }
    }

    #[test]
    fn every_command_takes_its_options_and_no_others() {
        let takers = |line: &str| -> Vec<String> {
            let prefixes = [Prefix::Lock, Prefix::Rlock, Prefix::Rwlock, Prefix::Sem, Prefix::Mlock];
            let verbs = [Verb::Acquire, Verb::Release, Verb::Renew];
            let commands = prefixes.into_iter().flat_map(|prefix| verbs.map(|verb| CommandName { prefix, verb }));
            let line = format!("x k t {line}");
            commands.filter(|command| parse(*command, &line).is_ok()).map(|command| command.to_string()).collect()
        };
        let acquires = ["lock.acquire", "rlock.acquire", "rwlock.acquire", "sem.acquire", "mlock.acquire"];
        let with_lease: Vec<_> =
            acquires.iter().flat_map(|name| [name.to_string(), name.replace("acquire", "renew")]).collect();
        for line in ["PX 5", "EX 5", "PERSIST"] {
            assert_eq!(takers(line), with_lease, "{line}");
        }
        for line in ["BLOCK 5", "NOTIFY c", "SESSION"] {
            assert_eq!(takers(line), acquires, "{line}");
        }
        let with_holds =
            ["rlock.acquire", "rlock.release", "rwlock.acquire", "rwlock.release", "sem.acquire", "sem.release"];
        assert_eq!(takers("HOLDS 5"), with_holds);
        assert_eq!(takers("PERMITS 5"), ["sem.acquire", "sem.release"]);
        for line in ["LIMIT 5", "SLOT"] {
            assert_eq!(takers(line), ["sem.acquire"], "{line}");
        }
        assert_eq!(takers("COALESCE"), ["lock.acquire"]);
        assert_eq!(takers("FAILED"), ["lock.release"]);
    }

    #[test]
    fn an_unknown_option_or_a_missing_value_is_a_syntax_error() {
        for line in ["what", "what PX 5", "", "PX", "EX", "BLOCK", "NOTIFY", "HOLDS", "PERMITS", "LIMIT", "PX 5 EX"] {
            assert_eq!(error(line).redis_message(), "ERR syntax error", "{line}");
        }
        for line in ["PXX 5", "P 5", "PERSIST 5", "SESSION 5", "SLOT 5"] {
            assert_eq!(error(line).redis_message(), "ERR syntax error", "{line}");
        }
    }

    #[test]
    fn an_option_given_twice_is_a_syntax_error() {
        for option in [
            "PX 5",
            "EX 5",
            "PERSIST",
            "BLOCK 5",
            "BLOCK 0",
            "NOTIFY c",
            "SESSION",
            "HOLDS 5",
            "PERMITS 5",
            "LIMIT 5",
            "SLOT",
        ] {
            assert_eq!(error(&format!("{option} {option}")).redis_message(), "ERR syntax error", "{option}");
        }
        for (option, verb) in [("COALESCE", Verb::Acquire), ("FAILED", Verb::Release)] {
            let command = CommandName { prefix: Prefix::Lock, verb };
            assert!(parse(command, &format!("x k t {option}")).is_ok(), "{option}");
            assert_eq!(
                parse(command, &format!("x k t {option} {option}")).unwrap_err().redis_message(),
                "ERR syntax error",
                "{option}"
            );
        }
    }

    #[test]
    fn two_leases_or_two_counts_are_a_syntax_error() {
        for line in ["PX 5 EX 5", "EX 5 PX 5", "PX 5 PERSIST", "PERSIST PX 5", "EX 5 PERSIST", "PERSIST EX 5"] {
            assert_eq!(error(line).redis_message(), "ERR syntax error", "{line}");
        }
        for line in ["HOLDS 5 PERMITS 5", "PERMITS 5 HOLDS 5", "SLOT HOLDS 1", "HOLDS 1 SLOT", "PERMITS 1 SLOT"] {
            assert_eq!(error(line).redis_message(), "ERR syntax error", "{line}");
        }
    }

    #[test]
    fn the_first_invalid_value_is_reported() {
        assert_eq!(error("PX 5 PX x").redis_message(), "ERR value is not an integer or out of range");
        assert_eq!(error("BLOCK -1 what").redis_message(), "ERR timeout is negative");
        assert_eq!(error("what BLOCK -1").redis_message(), "ERR syntax error");
        assert_eq!(error("EX 0").redis_message(), "ERR invalid expire time in \'sem.acquire\' command");
        assert_eq!(error("PX 0").redis_message(), "ERR invalid expire time in \'sem.acquire\' command");
        let lowered = LeaseSettings { max_ms: 1_000, ..SETTINGS };
        let refused = Options::parse(&words("x k t PERSIST"), 3, SEM_ACQUIRE, lowered);
        assert_eq!(
            refused.unwrap_err().as_str(),
            "ERR invalid expire time in 'sem.acquire' command: more than lock.max-lease (1000)"
        );
    }

    #[test]
    fn an_error_shows_its_position() {
        let cases = [
            ("BLOK 5", "ERR syntax error at 'BLOK': unknown option"),
            ("PX 5 30000", "ERR syntax error at '30000': unknown option"),
            ("FAILED", "ERR syntax error at 'FAILED': not an option of this command"),
            ("block", "ERR syntax error at 'block': missing value"),
            ("PX 5 EX 5", "ERR syntax error at 'EX': more than one of EX, PX and PERSIST"),
            ("SLOT SLOT", "ERR syntax error at 'SLOT': duplicate option"),
            ("BLOCK 5 BLOCK 5", "ERR syntax error at 'BLOCK': duplicate option"),
            ("HOLDS 1 PERMITS 1", "ERR syntax error: HOLDS, PERMITS and SLOT are mutually exclusive"),
            ("BLOCK -1", "ERR timeout is negative: BLOCK '-1'"),
            ("BLOCK 5s", "ERR timeout is not an integer or out of range: BLOCK '5s'"),
            ("HOLDS x", "ERR value is not an integer or out of range: HOLDS 'x'"),
            ("PERMITS x", "ERR value is not an integer or out of range: PERMITS 'x'"),
            ("EX 0", "ERR invalid expire time in 'sem.acquire' command: less than 1 ms"),
        ];
        for (line, expected) in cases {
            assert_eq!(error(line).as_str(), expected, "{line}");
        }
    }

    #[test]
    fn block_has_two_bounds() {
        assert_eq!(parsed("BLOCK 0").wait.block, Some(WaitLimit::Unlimited));
        assert_eq!(parsed("BLOCK 1").wait.block, Some(ms(1)));
        assert_eq!(parsed("BLOCK 4611686018427387903").wait.block, Some(ms(4_611_686_018_427_387_903)));
        for value in ["4611686018427387904", "9223372036854775807", "9223372036854775808", "x", "1.5", "-x"] {
            assert_eq!(
                error(&format!("BLOCK {value}")).redis_message(),
                "ERR timeout is not an integer or out of range",
                "{value}"
            );
        }
        for value in ["-1", "-9223372036854775808"] {
            assert_eq!(error(&format!("BLOCK {value}")).redis_message(), "ERR timeout is negative", "{value}");
        }
    }

    #[test]
    fn holds_have_two_bounds() {
        assert_eq!(parsed("HOLDS 0").count(), Count::Exactly(0));
        assert_eq!(parsed("HOLDS 4294967295").count(), Count::Exactly(u32::MAX));
        for value in ["-1", "4294967296", "x", "1.5"] {
            assert_eq!(
                error(&format!("HOLDS {value}")).redis_message(),
                "ERR value is not an integer or out of range",
                "{value}"
            );
        }
    }

    #[test]
    fn permits_and_limit_have_two_bounds() {
        for value in [1, 1_000_000] {
            assert_eq!(parsed(&format!("PERMITS {value}")).count(), Count::Delta(value));
            assert_eq!(parsed(&format!("LIMIT {value}")).limit, Some(value));
        }
        for option in ["PERMITS", "LIMIT"] {
            for value in ["0", "-1", "1000001", "4294967297"] {
                assert_eq!(error(&format!("{option} {value}")), errors::BAD_PERMITS, "{option} {value}");
            }
            for value in ["x", "1.5", "9223372036854775808"] {
                assert_eq!(
                    error(&format!("{option} {value}")).redis_message(),
                    "ERR value is not an integer or out of range",
                    "{option} {value}"
                );
            }
        }
    }
}

//! The commands that grant, end or renew: `X.ACQUIRE`, `X.RELEASE` and `X.RENEW` (keys, owner, mode, then options), and
//! LOCK.BREAK.

use std::ops::Range;

use lock::manager::release::{HoldsOf, Work};
use lock::value::claim::{Claim, Count, Mode, Portion};
use lock::value::owner::OwnerRef;
use lock::value::time::Lease;

use super::options::{Options, WaitOptions};
use super::values::{integer, owner, Argument, LeaseSettings};
use crate::errors::{self, ErrorReply};
use crate::name::{CommandName, Prefix, Verb};

/// `X.ACQUIRE key owner|* [READ|WRITE] [option …]`, as it was sent.
#[derive(Clone, Debug)]
pub struct AcquireCommand<'a, A> {
    /// One; several, all distinct, only of MLOCK.
    pub keys: &'a [A],
    /// The owner that shall hold.
    pub token: Token<'a>,
    /// What it shall hold.
    pub claim: Claim,
    /// For how long.
    pub lease: Lease,
    /// Whether it waits, and how.
    pub wait: WaitOptions,
}

/// The owner that shall hold.
#[derive(Clone, Copy, Debug)]
pub enum Token<'a> {
    /// The client named it.
    Given(OwnerRef<'a>),
    /// `*`: the server makes one.
    Made,
}

impl<'a, A: Argument<'a>> AcquireCommand<'a, A> {
    /// Reads the arguments; `args[0]` is the command's name.
    ///
    /// # Errors
    /// The error reply of the first wrong argument, then of arguments that are wrong together.
    #[inline(always)]
    pub fn parse(prefix: Prefix, args: &'a [A], settings: LeaseSettings) -> Result<AcquireCommand<'a, A>, ErrorReply> {
        let command = CommandName { prefix, verb: Verb::Acquire };
        let (keys, owner_argument) = keys(prefix, args)?;
        let token = match args.get(owner_argument).ok_or_else(no_token)?.bytes() {
            b"*" => Token::Made,
            bytes => Token::Given(owner(bytes)?),
        };
        let next = owner_argument + 1;
        let mode = mode(prefix, args.get(next))?;
        let options = Options::parse(args, next + usize::from(mode.is_some()), command, settings)?;
        let WaitOptions { block, coalesce, channel_argument, session } = options.wait;
        // A session ends with its connection and its lease is renewed: without a deadline there is nothing to renew.
        let is_persistent_session = session && options.lease == Some(Lease::Persist);
        if is_persistent_session {
            return Err(errors::syntax("SESSION and PERSIST are mutually exclusive"));
        }
        // NOTIFY and COALESCE say how to wait, BLOCK how long.
        if (channel_argument.is_some() || coalesce) && block.is_none() {
            return Err(errors::syntax("NOTIFY and COALESCE require BLOCK"));
        }
        let claim = match prefix {
            Prefix::Lock | Prefix::Mlock => Claim::Mutex,
            Prefix::Rlock => Claim::Reentrant(count(&options)?),
            Prefix::Rwlock => Claim::ReadWrite(mode.ok_or_else(no_mode)?, count(&options)?),
            Prefix::Sem => permits(&options)?,
        };
        let lease = match options.lease {
            Some(lease) => lease,
            None => settings.default_lease(command)?,
        };
        Ok(AcquireCommand { keys, token, claim, lease, wait: options.wait })
    }
}

/// At least one hold: none would be no claim.
fn count(options: &Options) -> Result<Count, ErrorReply> {
    match options.count() {
        Count::Exactly(0) => Err(errors::BAD_HOLDS),
        count => Ok(count),
    }
}

/// Permits or a slot under the LIMIT that the request brings.
fn permits(options: &Options) -> Result<Claim, ErrorReply> {
    let count = count(options)?;
    let limit = options.limit.ok_or(errors::NO_LIMIT)?;
    if options.slot {
        return Ok(Claim::Slot { limit });
    }
    if count.number() > limit {
        return Err(errors::OVER_LIMIT);
    }
    Ok(Claim::Permits { limit, count })
}

/// `X.RELEASE key owner [READ|WRITE] [option …]`, as it was sent.
#[derive(Clone, Debug)]
pub struct ReleaseCommand<'a, A> {
    /// One; several, all distinct, only of MLOCK.
    pub keys: &'a [A],
    /// The owner that gives back.
    pub owner: OwnerRef<'a>,
    /// What it gives back.
    pub portion: Portion,
    /// Failed: FAILED was given.
    pub work: Work,
}

impl<'a, A: Argument<'a>> ReleaseCommand<'a, A> {
    /// Reads the arguments; `args[0]` is the command's name.
    ///
    /// # Errors
    /// The error reply of the first argument that is wrong.
    #[inline(always)]
    pub fn parse(prefix: Prefix, args: &'a [A], settings: LeaseSettings) -> Result<ReleaseCommand<'a, A>, ErrorReply> {
        let command = CommandName { prefix, verb: Verb::Release };
        let (keys, owner_argument) = keys(prefix, args)?;
        let owner = owner(args.get(owner_argument).ok_or_else(no_token)?.bytes())?;
        let next = owner_argument + 1;
        let mode = mode(prefix, args.get(next))?;
        let options = Options::parse(args, next + usize::from(mode.is_some()), command, settings)?;
        let portion = match prefix {
            Prefix::Lock | Prefix::Mlock => Portion::Mutex,
            Prefix::Rlock => Portion::Reentrant(options.count()),
            Prefix::Rwlock => Portion::ReadWrite(mode.ok_or_else(no_mode)?, options.count()),
            Prefix::Sem => Portion::Permits(options.count()),
        };
        let work = if options.failed { Work::Failed } else { Work::Done };
        Ok(ReleaseCommand { keys, owner, portion, work })
    }
}

/// `X.RENEW key owner [lease]`, as it was sent.
#[derive(Clone, Debug)]
pub struct RenewCommand<'a> {
    /// One; several, all distinct, only of MLOCK.
    pub keys: &'a [&'a [u8]],
    /// The owner of the leases.
    pub owner: OwnerRef<'a>,
    /// `None`: of the length last given.
    pub lease: Option<Lease>,
}

impl<'a> RenewCommand<'a> {
    /// Reads the arguments; `args[0]` is the command's name.
    ///
    /// # Errors
    /// The error reply of the first argument that is wrong.
    pub fn parse(
        prefix: Prefix,
        args: &'a [&'a [u8]],
        settings: LeaseSettings,
    ) -> Result<RenewCommand<'a>, ErrorReply> {
        let command = CommandName { prefix, verb: Verb::Renew };
        let (keys, owner_argument) = keys(prefix, args)?;
        let owner = owner(args.get(owner_argument).ok_or_else(no_token)?)?;
        let options = Options::parse(args, owner_argument + 1, command, settings)?;
        Ok(RenewCommand { keys, owner, lease: options.lease })
    }
}

/// `LOCK.BREAK key [OWNER owner]`: the holders to remove.
///
/// # Errors
/// Any arguments other than `OWNER owner`; an invalid owner.
pub fn broken_holders<'a>(args: &[&'a [u8]]) -> Result<HoldsOf<'a>, ErrorReply> {
    match args.get(2..) {
        None | Some([]) => Ok(HoldsOf::AllOwners),
        Some([option, rest @ ..]) if option.eq_ignore_ascii_case(b"OWNER") => match rest {
            [name] => Ok(HoldsOf::Owner(owner(name)?.as_bytes())),
            [] => Err(errors::syntax_at(option, "missing value")),
            [_, next, ..] => Err(errors::syntax_at(next, "unexpected argument after OWNER owner")),
        },
        Some([option, ..]) => Err(errors::syntax_at(option, "unknown option")),
    }
}

fn no_token() -> ErrorReply {
    errors::syntax("the token is missing")
}

fn no_mode() -> ErrorReply {
    errors::syntax("READ or WRITE is missing")
}

/// The most keys that MLOCK takes at once.
const MAX_KEYS: usize = 128;

/// The keys of a command, and the index of the argument behind them.
#[inline(always)]
fn keys<'a, A: Argument<'a>>(prefix: Prefix, args: &'a [A]) -> Result<(&'a [A], usize), ErrorReply> {
    let first = prefix.first_key_argument();
    if !prefix.takes_several_keys() {
        return Ok((args.get(first..=first).ok_or_else(|| errors::syntax("the key is missing"))?, first + 1));
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

/// The mode that the argument behind the owner names, where the prefix has modes.
#[inline(always)]
fn mode<'a, A: Argument<'a>>(prefix: Prefix, argument: Option<&A>) -> Result<Option<Mode>, ErrorReply> {
    if prefix != Prefix::Rwlock {
        return Ok(None);
    }
    match argument.map(|word| word.bytes()) {
        Some(word) if word.eq_ignore_ascii_case(b"READ") => Ok(Some(Mode::Read)),
        Some(word) if word.eq_ignore_ascii_case(b"WRITE") => Ok(Some(Mode::Write)),
        _ => Err(no_mode()),
    }
}

/// Which arguments of a command with this prefix are its keys; none where they make no sense.
pub fn key_positions<'a, A: Argument<'a>>(prefix: Prefix, args: &'a [A]) -> Range<usize> {
    keys(prefix, args).map_or(0..0, |(keys, behind)| behind - keys.len()..behind)
}

#[cfg(test)]
mod tests {
    mod acquire {
        use super::super::super::fixture::{words, SETTINGS};
        use super::super::*;
        use lock::value::time::WaitLimit;
        use std::num::NonZeroU64;

        fn error(prefix: Prefix, line: &str) -> ErrorReply {
            AcquireCommand::parse(prefix, &words(line), SETTINGS).expect_err(line)
        }

        fn claim(prefix: Prefix, line: &str) -> Claim {
            AcquireCommand::parse(prefix, &words(line), SETTINGS).expect(line).claim
        }

        #[test]
        fn every_part_of_a_request_is_read() {
            let args = words("LOCK.ACQUIRE k t SESSION NOTIFY c BLOCK 5 coalesce PX 2");
            let command = AcquireCommand::parse(Prefix::Lock, &args, SETTINGS).unwrap();
            assert_eq!(command.keys, [b"k"]);
            assert!(matches!(command.token, Token::Given(owner) if owner.as_bytes() == b"t"));
            assert_eq!((command.claim, Some(command.lease)), (Claim::Mutex, Lease::from_ms(2)));
            let block = Some(WaitLimit::Ms(NonZeroU64::new(5).unwrap()));
            assert_eq!(command.wait, WaitOptions { block, coalesce: true, channel_argument: Some(5), session: true });
        }

        #[test]
        fn without_options_it_does_not_wait_and_has_the_default_lease() {
            let args = words("x k t");
            let command = AcquireCommand::parse(Prefix::Lock, &args, SETTINGS).unwrap();
            assert_eq!((Some(command.lease), command.wait), (Lease::from_ms(30_000), WaitOptions::default()));
            let lowered = LeaseSettings { max_ms: 29_999, ..SETTINGS };
            let command = AcquireCommand::parse(Prefix::Lock, &args, lowered).unwrap();
            assert_eq!(
                Some(command.lease),
                Lease::from_ms(29_999),
                "the longest lease where the default would be longer"
            );
        }

        #[test]
        fn a_star_alone_lets_the_server_make_the_token() {
            let is_made = |line: &str| {
                let args = words(line);
                let command = AcquireCommand::parse(Prefix::Lock, &args, SETTINGS).expect(line);
                matches!(command.token, Token::Made)
            };
            assert!(is_made("x k *"));
            assert!(!is_made("x k **"));
        }

        #[test]
        fn a_token_is_needed_and_has_1_to_1024_bytes() {
            assert_eq!(error(Prefix::Lock, "x k").redis_words(), "ERR syntax error");
            assert_eq!(error(Prefix::Lock, "x k "), errors::BAD_OWNER);
            assert_eq!(error(Prefix::Lock, &format!("x k {} what", "t".repeat(1025))), errors::BAD_OWNER);
        }

        #[test]
        fn mlock_takes_several_keys() {
            let args = words("x 2 a b t PX 5");
            let command = AcquireCommand::parse(Prefix::Mlock, &args, SETTINGS).unwrap();
            assert_eq!((command.keys, command.claim), (&args[2..4], Claim::Mutex));
            assert!(matches!(command.token, Token::Given(owner) if owner.as_bytes() == b"t"));
            assert_eq!(error(Prefix::Mlock, "x 0 a t"), errors::BAD_NUMKEYS);
        }

        #[test]
        fn holds_are_added_or_set() {
            assert_eq!(claim(Prefix::Rlock, "x k t"), Claim::Reentrant(Count::Step(1)));
            assert_eq!(claim(Prefix::Rlock, "x k t HOLDS 1"), Claim::Reentrant(Count::Exactly(1)));
            assert_eq!(claim(Prefix::Rlock, "x k t PX 5 HOLDS 2"), Claim::Reentrant(Count::Exactly(2)));
        }

        #[test]
        fn a_mode_follows_the_owner_of_a_read_write_lock() {
            let read = Claim::ReadWrite(Mode::Read, Count::Step(1));
            assert_eq!(claim(Prefix::Rwlock, "x k t READ"), read);
            assert_eq!(claim(Prefix::Rwlock, "x k t write HOLDS 2"), Claim::ReadWrite(Mode::Write, Count::Exactly(2)));
            for line in ["x k t", "x k t PX 5 READ", "x k t READ READ"] {
                assert_eq!(error(Prefix::Rwlock, line).redis_words(), "ERR syntax error", "{line}");
            }
        }

        #[test]
        fn a_claim_to_no_holds_is_refused() {
            for (prefix, line) in [
                (Prefix::Rlock, "x k t HOLDS 0"),
                (Prefix::Rwlock, "x k t READ HOLDS 0"),
                (Prefix::Sem, "x k t LIMIT 2 HOLDS 0"),
                (Prefix::Sem, "x k t HOLDS 0"),
            ] {
                assert_eq!(error(prefix, line), errors::BAD_HOLDS, "{line}");
            }
        }

        #[test]
        fn a_semaphore_never_promises_more_than_its_limit() {
            let permits = |limit, count| Claim::Permits { limit, count };
            assert_eq!(claim(Prefix::Sem, "x k t LIMIT 2"), permits(2, Count::Step(1)));
            assert_eq!(claim(Prefix::Sem, "x k t PERMITS 2 LIMIT 2"), permits(2, Count::Step(2)));
            assert_eq!(claim(Prefix::Sem, "x k t HOLDS 2 LIMIT 2"), permits(2, Count::Exactly(2)));
            assert_eq!(claim(Prefix::Sem, "x k t Slot LIMIT 2"), Claim::Slot { limit: 2 });
            assert_eq!(error(Prefix::Sem, "x k t SLOT"), errors::NO_LIMIT);
            assert_eq!(error(Prefix::Sem, "x k t LIMIT 2 PERMITS 3"), errors::OVER_LIMIT);
            assert_eq!(error(Prefix::Sem, "x k t LIMIT 2 HOLDS 3"), errors::OVER_LIMIT);
            assert_eq!(error(Prefix::Sem, "x k t"), errors::NO_LIMIT);
            assert_eq!(error(Prefix::Sem, "x k t PERMITS 1"), errors::NO_LIMIT);
        }

        #[test]
        fn a_session_has_a_deadline_to_renew() {
            for line in ["x k t SESSION PERSIST", "x k t PERSIST SESSION"] {
                assert_eq!(error(Prefix::Lock, line).redis_words(), "ERR syntax error", "{line}");
            }
            assert_eq!(
                error(Prefix::Sem, "x k t SESSION PERSIST").redis_words(),
                "ERR syntax error",
                "before LIMIT is missed"
            );
            for line in ["x k t SESSION", "x k t SESSION PX 5", "x k t PERSIST"] {
                claim(Prefix::Lock, line);
            }
        }

        #[test]
        fn notify_and_coalesce_need_block() {
            for line in ["x k t NOTIFY c", "x k t NOTIFY c SESSION", "x k t COALESCE", "x k t COALESCE PX 5"] {
                assert_eq!(error(Prefix::Lock, line).redis_words(), "ERR syntax error", "{line}");
            }
            for line in ["x k t NOTIFY c BLOCK 0", "x k t BLOCK 5 NOTIFY c", "x k t BLOCK 5", "x k t COALESCE BLOCK 5"]
            {
                claim(Prefix::Lock, line);
            }
        }
    }

    mod release {
        use super::super::super::fixture::{words, SETTINGS};
        use super::super::*;

        fn error(prefix: Prefix, line: &str) -> ErrorReply {
            ReleaseCommand::parse(prefix, &words(line), SETTINGS).expect_err(line)
        }

        #[test]
        fn every_part_of_a_request_is_read() {
            let cases = [
                (Prefix::Lock, "x k t", Portion::Mutex),
                (Prefix::Rlock, "x k t", Portion::Reentrant(Count::Step(1))),
                (Prefix::Rlock, "x k t HOLDS 0", Portion::Reentrant(Count::Exactly(0))),
                (Prefix::Rwlock, "x k t READ", Portion::ReadWrite(Mode::Read, Count::Step(1))),
                (Prefix::Rwlock, "x k t write holds 2", Portion::ReadWrite(Mode::Write, Count::Exactly(2))),
                (Prefix::Sem, "x k t", Portion::Permits(Count::Step(1))),
                (Prefix::Sem, "x k t PERMITS 2", Portion::Permits(Count::Step(2))),
                (Prefix::Sem, "x k t HOLDS 0", Portion::Permits(Count::Exactly(0))),
            ];
            for (prefix, line, portion) in cases {
                let args = words(line);
                let command = ReleaseCommand::parse(prefix, &args, SETTINGS).expect(line);
                assert_eq!((command.keys, command.owner.as_bytes()), (&args[1..2], &b"t"[..]), "{line}");
                assert_eq!(command.portion, portion, "{line}");
            }
        }

        #[test]
        fn failed_says_that_the_work_was_not_done() {
            for (line, work) in [("x k t", Work::Done), ("x k t FAILED", Work::Failed), ("x k t failed", Work::Failed)]
            {
                assert_eq!(
                    ReleaseCommand::parse(Prefix::Lock, &words(line), SETTINGS).expect(line).work,
                    work,
                    "{line}"
                );
            }
            assert_eq!(error(Prefix::Mlock, "x 1 k t FAILED").redis_words(), "ERR syntax error");
        }

        #[test]
        fn mlock_takes_several_keys() {
            let args = words("x 2 a b t");
            let command = ReleaseCommand::parse(Prefix::Mlock, &args, SETTINGS).unwrap();
            assert_eq!((command.keys, command.owner.as_bytes()), (&args[2..4], &b"t"[..]));
            assert_eq!(command.portion, Portion::Mutex);
            assert_eq!(error(Prefix::Mlock, "x 2 a t"), errors::TOO_MANY_NUMKEYS);
        }

        #[test]
        fn what_is_wrong_is_told() {
            let cases = [
                (Prefix::Lock, "x k", "ERR syntax error: the token is missing"),
                (Prefix::Lock, "x k ", "ERR the token must be 1 to 1024 bytes long"),
                (Prefix::Lock, "x k t what", "ERR syntax error at 'what': unknown option"),
                (Prefix::Mlock, "x 1 k t what", "ERR syntax error at 'what': unknown option"),
                (Prefix::Rlock, "x k t HOLDS -1", "ERR value is not an integer or out of range: HOLDS '-1'"),
                (Prefix::Rwlock, "x k t", "ERR syntax error: READ or WRITE is missing"),
                (Prefix::Rwlock, "x k t HOLDS 1", "ERR syntax error: READ or WRITE is missing"),
                (Prefix::Rwlock, "x k t READ READ", "ERR syntax error at 'READ': unknown option"),
                (Prefix::Sem, "x k t PERMITS 0", "ERR LIMIT and PERMITS must be between 1 and 1000000"),
                (Prefix::Sem, "x k t LIMIT 1", "ERR syntax error at 'LIMIT': not an option of this command"),
                (Prefix::Lock, "x k t FAILED Failed", "ERR syntax error at 'Failed': duplicate option"),
            ];
            for (prefix, line, expected) in cases {
                assert_eq!(error(prefix, line).as_str(), expected, "{line}");
            }
        }

        #[test]
        fn a_token_that_acquires_as_a_new_one_is_an_owner_like_any_other() {
            let args = words("x k *");
            assert_eq!(ReleaseCommand::parse(Prefix::Lock, &args, SETTINGS).unwrap().owner.as_bytes(), b"*");
        }
    }

    mod renew {
        use super::super::super::fixture::{words, SETTINGS};
        use super::super::*;

        fn error(prefix: Prefix, line: &str) -> ErrorReply {
            RenewCommand::parse(prefix, &words(line), SETTINGS).expect_err(line)
        }

        #[test]
        fn every_part_of_a_request_is_read() {
            let cases = [
                (Prefix::Lock, "x k t", None),
                (Prefix::Rlock, "x k t PX 5", Lease::from_ms(5)),
                (Prefix::Rwlock, "x k t EX 5", Lease::from_ms(5_000)),
                (Prefix::Sem, "x k t PERSIST", Some(Lease::Persist)),
            ];
            for (prefix, line, lease) in cases {
                let args = words(line);
                let command = RenewCommand::parse(prefix, &args, SETTINGS).expect(line);
                assert_eq!((command.keys, command.owner.as_bytes()), (&args[1..2], &b"t"[..]), "{line}");
                assert_eq!(command.lease, lease, "{line}");
            }
        }

        #[test]
        fn mlock_takes_several_keys() {
            let args = words("x 2 a b t PX 5");
            let command = RenewCommand::parse(Prefix::Mlock, &args, SETTINGS).unwrap();
            assert_eq!((command.keys, command.owner.as_bytes()), (&args[2..4], &b"t"[..]));
            assert_eq!(command.lease, Lease::from_ms(5));
        }

        #[test]
        fn what_is_wrong_is_told() {
            let cases = [
                (Prefix::Lock, "x k", "ERR syntax error: the token is missing"),
                (Prefix::Lock, "x k ", "ERR the token must be 1 to 1024 bytes long"),
                (Prefix::Rwlock, "x k t READ", "ERR syntax error at 'READ': unknown option"),
                (Prefix::Mlock, "x 0 k t", "ERR numkeys should be between 1 and 128"),
                (Prefix::Lock, "x k t PX 0", "ERR invalid expire time in 'lock.renew' command: less than 1 ms"),
                (Prefix::Mlock, "x 1 k t EX 0", "ERR invalid expire time in 'mlock.renew' command: less than 1 ms"),
            ];
            for (prefix, line, expected) in cases {
                assert_eq!(error(prefix, line).as_str(), expected, "{line}");
            }
        }

        #[test]
        fn no_lease_is_made_up() {
            let lowered = LeaseSettings { max_ms: 1, ..SETTINGS };
            assert_eq!(RenewCommand::parse(Prefix::Lock, &words("x k t"), lowered).unwrap().lease, None);
        }
    }

    mod keys_and_mode {
        use super::super::super::fixture::words;
        use super::super::*;

        fn error(prefix: Prefix, line: &str) -> ErrorReply {
            keys(prefix, &words(line)).unwrap_err()
        }

        #[test]
        fn one_key_follows_the_name() {
            let args = words("x k t PX 5");
            for prefix in [Prefix::Lock, Prefix::Rlock, Prefix::Rwlock, Prefix::Sem] {
                assert_eq!(keys(prefix, &args), Ok((&args[1..2], 2)));
            }
            assert_eq!(error(Prefix::Lock, "x").redis_words(), "ERR syntax error");
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

        #[test]
        fn a_mode_is_named_in_any_case_and_needed() {
            let mode = |word: &str| mode(Prefix::Rwlock, Some(&word.as_bytes()));
            for (word, expected) in [("READ", Mode::Read), ("rEaD", Mode::Read), ("WRITE", Mode::Write)] {
                assert_eq!(mode(word), Ok(Some(expected)));
            }
            for word in ["", "REA", "READS", "RW", "PX"] {
                assert_eq!(mode(word).unwrap_err().redis_words(), "ERR syntax error", "{word}");
            }
            let none = None::<&&[u8]>;
            assert_eq!(super::super::mode(Prefix::Rwlock, none).unwrap_err().redis_words(), "ERR syntax error");
            assert_eq!(super::super::mode(Prefix::Sem, none), Ok(None));
        }
    }

    mod break_holds {
        use super::super::super::fixture::words;
        use super::super::*;

        #[test]
        fn all_holds_are_ended_or_one_owners() {
            assert_eq!(broken_holders(&words("LOCK.BREAK k")), Ok(HoldsOf::AllOwners));
            assert_eq!(broken_holders(&words("LOCK.BREAK k OWNER a")), Ok(HoldsOf::Owner(b"a")));
            assert_eq!(broken_holders(&words("lock.break k owner owner")), Ok(HoldsOf::Owner(b"owner")));
            for line in ["LOCK.BREAK k a", "LOCK.BREAK k OWNER", "LOCK.BREAK k OWNER a OWNER a", "LOCK.BREAK k TOKEN a"]
            {
                assert_eq!(broken_holders(&words(line)).unwrap_err().redis_words(), "ERR syntax error", "{line}");
            }
            let too_long = [b'x'; 1025];
            for name in [&b""[..], &too_long] {
                assert_eq!(broken_holders(&[b"LOCK.BREAK".as_slice(), b"k", b"OWNER", name]), Err(errors::BAD_OWNER));
            }
        }
    }
}

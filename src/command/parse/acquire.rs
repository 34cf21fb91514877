//! `X.ACQUIRE key owner|* [READ|WRITE] [option …]`.

use lock::value::claim::{Claim, Count};
use lock::value::owner::OwnerRef;
use lock::value::time::{Lease, WaitLimit};

use super::argument::Argument;
use super::keys::keys;
use super::lease::LeaseSettings;
use super::mode::mode;
use super::options::Options;
use super::owner::owner;
use crate::errors::{self, ErrorReply};
use crate::name::{CommandName, Prefix, Verb};

/// A request to acquire, as it was sent.
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

/// `[BLOCK milliseconds [COALESCE] [NOTIFY channel]] [SESSION]`. The default: none of them was given.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WaitOptions {
    /// BLOCK.
    pub block: Option<WaitLimit>,
    /// COALESCE: the release by the holder answers the request. Only with BLOCK.
    pub coalesce: bool,
    /// Which argument is the channel of NOTIFY, the command's name being argument 0. Only with BLOCK.
    pub channel_argument: Option<usize>,
    /// SESSION was given: the grant is bound to the connection.
    pub session: bool,
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
        let token = match args.get(owner_argument).ok_or(errors::SYNTAX)?.bytes() {
            b"*" => Token::Made,
            bytes => Token::Given(owner(bytes)?),
        };
        let next = owner_argument + 1;
        let mode = match prefix {
            Prefix::Rwlock => Some(mode(args.get(next).map(|mode| mode.bytes()))?),
            _ => None,
        };
        let options = read_options(args, next + usize::from(mode.is_some()), command, settings)?;
        let claim = match prefix {
            Prefix::Lock | Prefix::Mlock => Claim::Mutex,
            Prefix::Rlock => Claim::Reentrant(count(&options)?),
            Prefix::Rwlock => Claim::ReadWrite(mode.ok_or(errors::SYNTAX)?, count(&options)?),
            Prefix::Sem => permits(&options)?,
        };
        let Options { block, coalesce, channel_argument, session, .. } = options;
        let wait = WaitOptions { block, coalesce, channel_argument, session };
        let lease = match options.lease {
            Some(lease) => lease,
            None => settings.default_lease(command)?,
        };
        Ok(AcquireCommand { keys, token, claim, lease, wait })
    }
}

/// The options, none of which excludes another.
#[inline(always)]
fn read_options<'a, A: Argument<'a>>(
    args: &[A],
    start: usize,
    command: CommandName,
    settings: LeaseSettings,
) -> Result<Options, ErrorReply> {
    let options = Options::parse(args, start, command, settings)?;
    // A session ends with its connection and its lease is renewed: without a deadline there is nothing to renew.
    let is_persistent_session = options.session && options.lease == Some(Lease::Persist);
    // NOTIFY and COALESCE say how to wait, BLOCK how long.
    let lacks_block = (options.channel_argument.is_some() || options.coalesce) && options.block.is_none();
    if is_persistent_session || lacks_block {
        return Err(errors::SYNTAX);
    }
    Ok(options)
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

#[cfg(test)]
mod tests {
    use super::super::fixture::{words, SETTINGS};
    use super::*;
    use lock::value::claim::Mode;
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
        assert_eq!(Some(command.lease), Lease::from_ms(29_999), "the longest lease where the default would be longer");
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
        assert_eq!(error(Prefix::Lock, "x k"), errors::SYNTAX);
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
            assert_eq!(error(Prefix::Rwlock, line), errors::SYNTAX, "{line}");
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
            assert_eq!(error(Prefix::Lock, line), errors::SYNTAX, "{line}");
        }
        assert_eq!(error(Prefix::Sem, "x k t SESSION PERSIST"), errors::SYNTAX, "before LIMIT is missed");
        for line in ["x k t SESSION", "x k t SESSION PX 5", "x k t PERSIST"] {
            claim(Prefix::Lock, line);
        }
    }

    #[test]
    fn notify_and_coalesce_need_block() {
        for line in ["x k t NOTIFY c", "x k t NOTIFY c SESSION", "x k t COALESCE", "x k t COALESCE PX 5"] {
            assert_eq!(error(Prefix::Lock, line), errors::SYNTAX, "{line}");
        }
        for line in ["x k t NOTIFY c BLOCK 0", "x k t BLOCK 5 NOTIFY c", "x k t BLOCK 5", "x k t COALESCE BLOCK 5"] {
            claim(Prefix::Lock, line);
        }
    }
}

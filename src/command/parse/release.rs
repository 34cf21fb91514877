//! `X.RELEASE key owner [READ|WRITE] [option …]`.

use lock::manager::release::Work;
use lock::value::claim::Portion;
use lock::value::owner::OwnerRef;

use super::argument::Argument;
use super::keys::keys;
use super::lease::LeaseSettings;
use super::mode::mode;
use super::options::Options;
use super::owner::owner;
use crate::errors::{self, ErrorReply};
use crate::name::{CommandName, Prefix, Verb};

/// A request to release, as it was sent.
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
        let owner = owner(args.get(owner_argument).ok_or(errors::SYNTAX)?.bytes())?;
        let next = owner_argument + 1;
        let mode = match prefix {
            Prefix::Rwlock => Some(mode(args.get(next).map(|mode| mode.bytes()))?),
            _ => None,
        };
        let options = Options::parse(args, next + usize::from(mode.is_some()), command, settings)?;
        let portion = match prefix {
            Prefix::Lock | Prefix::Mlock => Portion::Mutex,
            Prefix::Rlock => Portion::Reentrant(options.count()),
            Prefix::Rwlock => Portion::ReadWrite(mode.ok_or(errors::SYNTAX)?, options.count()),
            Prefix::Sem => Portion::Permits(options.count()),
        };
        let work = if options.failed { Work::Failed } else { Work::Done };
        Ok(ReleaseCommand { keys, owner, portion, work })
    }
}

#[cfg(test)]
mod tests {
    use super::super::fixture::{words, SETTINGS};
    use super::*;
    use lock::value::claim::{Count, Mode};

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
        for (line, work) in [("x k t", Work::Done), ("x k t FAILED", Work::Failed), ("x k t failed", Work::Failed)] {
            assert_eq!(ReleaseCommand::parse(Prefix::Lock, &words(line), SETTINGS).expect(line).work, work, "{line}");
        }
        assert_eq!(error(Prefix::Mlock, "x 1 k t FAILED"), errors::SYNTAX);
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
            (Prefix::Lock, "x k", errors::SYNTAX),
            (Prefix::Lock, "x k ", errors::BAD_OWNER),
            (Prefix::Lock, "x k t what", errors::SYNTAX),
            (Prefix::Mlock, "x 1 k t what", errors::SYNTAX),
            (Prefix::Rlock, "x k t HOLDS -1", errors::NOT_AN_INTEGER),
            (Prefix::Rwlock, "x k t", errors::SYNTAX),
            (Prefix::Rwlock, "x k t HOLDS 1", errors::SYNTAX),
            (Prefix::Rwlock, "x k t READ READ", errors::SYNTAX),
            (Prefix::Sem, "x k t PERMITS 0", errors::BAD_PERMITS),
            (Prefix::Sem, "x k t LIMIT 1", errors::SYNTAX),
        ];
        for (prefix, line, expected) in cases {
            assert_eq!(error(prefix, line), expected, "{line}");
        }
    }

    #[test]
    fn a_token_that_acquires_as_a_new_one_is_an_owner_like_any_other() {
        let args = words("x k *");
        assert_eq!(ReleaseCommand::parse(Prefix::Lock, &args, SETTINGS).unwrap().owner.as_bytes(), b"*");
    }
}

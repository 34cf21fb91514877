//! `X.RENEW key owner [lease]`.

use lock::value::owner::OwnerRef;
use lock::value::time::Lease;

use super::keys::keys;
use super::lease::LeaseSettings;
use super::options::Options;
use super::owner::owner;
use crate::errors::{self, ErrorReply};
use crate::name::{CommandName, Prefix, Verb};

/// A request to renew, as it was sent.
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
        let owner = owner(args.get(owner_argument).ok_or(errors::SYNTAX)?)?;
        let options = Options::parse(args, owner_argument + 1, command, settings)?;
        Ok(RenewCommand { keys, owner, lease: options.lease })
    }
}

#[cfg(test)]
mod tests {
    use super::super::fixture::{words, SETTINGS};
    use super::*;

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
            (Prefix::Lock, "x k", "ERR syntax error"),
            (Prefix::Lock, "x k ", "ERR the token must have 1 to 1024 bytes"),
            (Prefix::Rwlock, "x k t READ", "ERR syntax error"),
            (Prefix::Mlock, "x 0 k t", "ERR numkeys should be between 1 and 128"),
            (Prefix::Lock, "x k t PX 0", "ERR invalid expire time in 'lock.renew' command"),
            (Prefix::Mlock, "x 1 k t EX 0", "ERR invalid expire time in 'mlock.renew' command"),
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

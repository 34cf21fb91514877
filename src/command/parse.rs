//! Argument lists into requests. Options come in any order and any case; one given twice is a syntax error.

use std::num::NonZeroU64;

use super::number::integer;
use super::words::{self, Words};
use lock::claim::{Claim, Count, Mode};
use lock::owner::MAX_OWNER;
use lock::time::Lease;

/// The settings that requests are read under.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// ms, when a request names no lease.
    pub default_lease_ms: u64,
    /// ms; a longer lease is an error.
    pub max_lease_ms: u64,
}

/// The longest that `lock.max-lease` can be, and its default: a year. Where it is lower, PERSIST is refused too.
pub const MAX_LEASE_MS: u64 = 31_536_000_000;

/// The largest LIMIT and PERMITS.
const MAX_PERMITS: u32 = 1_000_000;

/// The most keys that MLOCK takes at once.
const MAX_KEYS: i64 = 128;

/// A family, as the commands are named.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Family {
    Lock,
    Rlock,
    Rwlock,
    Sem,
    Mlock,
}

/// Who shall hold.
#[derive(Clone, Copy, Debug)]
pub enum Token<'a> {
    Given(&'a [u8]),
    /// `*`: the server makes one up.
    Made,
}

/// `[wait]`: BLOCK, NOTIFY, SESSION.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Wait {
    /// Milliseconds, 0 for ever.
    pub block_ms: Option<u64>,
    /// Which argument is the channel.
    pub notify: Option<usize>,
    pub session: bool,
}

#[derive(Clone, Debug)]
pub struct Acquire<'a> {
    pub keys: &'a [&'a [u8]],
    pub token: Token<'a>,
    pub claim: Claim,
    pub lease: Lease,
    pub wait: Wait,
}

#[derive(Clone, Debug)]
pub struct Release<'a> {
    pub keys: &'a [&'a [u8]],
    pub owner: &'a [u8],
    pub claim: Claim,
}

#[derive(Clone, Debug)]
pub struct Renew<'a> {
    pub keys: &'a [&'a [u8]],
    pub owner: &'a [u8],
    /// `None`: the length last given.
    pub lease: Option<Lease>,
}

/// Reads `X.ACQUIRE …`; `args[0]` is the command's name, and the arity was checked.
pub fn acquire<'a>(family: Family, args: &'a [&'a [u8]], settings: Settings) -> Result<Acquire<'a>, Words> {
    let (keys, at) = keys(family, args)?;
    let token = match *args.get(at).ok_or(words::SYNTAX)? {
        b"*" => Token::Made,
        bytes => Token::Given(owner(bytes)?),
    };
    let (mode, at) = mode(family, args, at + 1)?;
    let options = Options::read(args, at, family.acquire_options(), command_name(family, "acquire"), settings)?;
    if options.session && options.lease == Some(Lease::Persist) {
        return Err(words::SYNTAX.into());
    }
    if options.notify.is_some() && options.block_ms.is_none() {
        return Err(words::SYNTAX.into());
    }
    let wait = Wait { block_ms: options.block_ms, notify: options.notify, session: options.session };
    let claim = acquire_claim(family, mode, &options)?;
    let lease = match options.lease {
        Some(lease) => lease,
        None => lease(settings.default_lease_ms, command_name(family, "acquire"), settings)?,
    };
    Ok(Acquire { keys, token, claim, lease, wait })
}

/// Reads `X.RELEASE …`.
pub fn release<'a>(family: Family, args: &'a [&'a [u8]], settings: Settings) -> Result<Release<'a>, Words> {
    let (keys, at) = keys(family, args)?;
    let owner = owner(args.get(at).ok_or(words::SYNTAX)?)?;
    let (mode, at) = mode(family, args, at + 1)?;
    let options = Options::read(args, at, family.release_options(), command_name(family, "release"), settings)?;
    let count = match (options.holds, options.permits) {
        (Some(holds), _) => Count::Exactly(holds),
        (None, Some(permits)) => Count::Step(permits),
        (None, None) => Count::Step(1),
    };
    let claim = match family {
        Family::Lock | Family::Mlock => Claim::Mutex,
        Family::Rlock => Claim::Reentrant(count),
        Family::Rwlock => Claim::Rw(mode, count),
        Family::Sem => Claim::Permits { limit: 0, count },
    };
    Ok(Release { keys, owner, claim })
}

/// Reads `X.RENEW …`.
pub fn renew<'a>(family: Family, args: &'a [&'a [u8]], settings: Settings) -> Result<Renew<'a>, Words> {
    let (keys, at) = keys(family, args)?;
    let owner = owner(args.get(at).ok_or(words::SYNTAX)?)?;
    let options = Options::read(args, at + 1, LEASE, command_name(family, "renew"), settings)?;
    Ok(Renew { keys, owner, lease: options.lease })
}

/// An owner, as it was sent: 1 to 1,024 bytes.
pub fn owner(bytes: &[u8]) -> Result<&[u8], Words> {
    match bytes.len() {
        1..=MAX_OWNER => Ok(bytes),
        _ => Err(words::BAD_OWNER.into()),
    }
}

fn command_name(family: Family, verb: &'static str) -> CommandName {
    CommandName { family, verb }
}

/// The command's name in lower case, spelled out only for an error.
#[derive(Clone, Copy)]
struct CommandName {
    family: Family,
    verb: &'static str,
}

impl CommandName {
    fn invalid_expire(self) -> Words {
        let family = match self.family {
            Family::Lock => "lock",
            Family::Rlock => "rlock",
            Family::Rwlock => "rwlock",
            Family::Sem => "sem",
            Family::Mlock => "mlock",
        };
        words::invalid_expire(&format!("{family}.{}", self.verb))
    }
}

/// The keys of a command, and the position behind them.
fn keys<'a>(family: Family, args: &'a [&'a [u8]]) -> Result<(&'a [&'a [u8]], usize), Words> {
    if family != Family::Mlock {
        return Ok((args.get(1..2).ok_or(words::SYNTAX)?, 2));
    }
    let number = args.get(1).and_then(|bytes| integer(bytes)).ok_or(words::BAD_NUMKEYS)?;
    let number = usize::try_from(number).ok().filter(|_| (1..=MAX_KEYS).contains(&number)).ok_or(words::BAD_NUMKEYS)?;
    let keys = args.get(2..2 + number).ok_or(words::TOO_MANY_NUMKEYS)?;
    if args.len() <= 2 + number {
        return Err(words::TOO_MANY_NUMKEYS.into());
    }
    if keys.iter().enumerate().any(|(at, key)| keys[..at].contains(key)) {
        return Err(words::KEY_TWICE.into());
    }
    Ok((keys, 2 + number))
}

/// Where the keys of an MLOCK command stand, for the server, which asks before it has checked anything.
pub fn key_positions(args: &[&[u8]]) -> std::ops::Range<usize> {
    match keys(Family::Mlock, args) {
        Ok((_, behind)) => 2..behind,
        Err(_) => 2..2,
    }
}

/// READ or WRITE where the family has modes, and the position behind it.
fn mode(family: Family, args: &[&[u8]], at: usize) -> Result<(Mode, usize), Words> {
    if family != Family::Rwlock {
        return Ok((Mode::Write, at));
    }
    match args.get(at) {
        Some(word) if word.eq_ignore_ascii_case(b"READ") => Ok((Mode::Read, at + 1)),
        Some(word) if word.eq_ignore_ascii_case(b"WRITE") => Ok((Mode::Write, at + 1)),
        _ => Err(words::SYNTAX.into()),
    }
}

fn acquire_claim(family: Family, mode: Mode, options: &Options) -> Result<Claim, Words> {
    if options.holds == Some(0) {
        return Err(words::BAD_HOLDS.into());
    }
    let count = options.holds.map_or(Count::Step(options.permits.unwrap_or(1)), Count::Exactly);
    Ok(match family {
        Family::Lock | Family::Mlock => Claim::Mutex,
        Family::Rlock => Claim::Reentrant(count),
        Family::Rwlock => Claim::Rw(mode, count),
        Family::Sem => {
            let claim = Claim::Permits { limit: options.limit.ok_or(words::NO_LIMIT)?, count };
            if claim.amount() > options.limit.unwrap_or(0) {
                return Err(words::OVER_LIMIT.into());
            }
            claim
        }
    })
}

/// Which options a command takes.
type Allowed = u8;
const LEASE: Allowed = 1;
const WAIT: Allowed = 2;
const HOLDS: Allowed = 4;
const PERMITS: Allowed = 8;
const LIMIT: Allowed = 16;

impl Family {
    fn acquire_options(self) -> Allowed {
        LEASE | WAIT | self.release_options() | if self == Family::Sem { LIMIT } else { 0 }
    }

    fn release_options(self) -> Allowed {
        match self {
            Family::Lock | Family::Mlock => 0,
            Family::Rlock | Family::Rwlock => HOLDS,
            Family::Sem => HOLDS | PERMITS,
        }
    }
}

/// All options that any command takes; what was not given is `None` or false.
#[derive(Default)]
struct Options {
    lease: Option<Lease>,
    block_ms: Option<u64>,
    notify: Option<usize>,
    session: bool,
    holds: Option<u32>,
    permits: Option<u32>,
    limit: Option<u32>,
}

impl Options {
    fn read(
        args: &[&[u8]],
        mut at: usize,
        allowed: Allowed,
        name: CommandName,
        settings: Settings,
    ) -> Result<Options, Words> {
        let mut options = Options::default();
        while let Some(word) = args.get(at) {
            let value = args.get(at + 1).copied();
            let is =
                |option: &str, group: Allowed| allowed & group != 0 && word.eq_ignore_ascii_case(option.as_bytes());
            let needed = || value.ok_or(Words::from(words::SYNTAX));
            at += 2;
            if is("PX", LEASE) {
                once(&mut options.lease, lease_argument(needed()?, 1, name, settings)?)?;
            } else if is("EX", LEASE) {
                once(&mut options.lease, lease_argument(needed()?, 1000, name, settings)?)?;
            } else if is("BLOCK", WAIT) {
                once(&mut options.block_ms, block(needed()?)?)?;
            } else if is("NOTIFY", WAIT) {
                needed()?;
                once(&mut options.notify, at - 1)?;
            } else if is("HOLDS", HOLDS) {
                once(&mut options.holds, holds(needed()?)?)?;
            } else if is("PERMITS", PERMITS) {
                once(&mut options.permits, permits(needed()?)?)?;
            } else if is("LIMIT", LIMIT) {
                once(&mut options.limit, permits(needed()?)?)?;
            } else if is("PERSIST", LEASE) {
                once(&mut options.lease, persist(name, settings)?)?;
                at -= 1;
            } else if is("SESSION", WAIT) && !options.session {
                options.session = true;
                at -= 1;
            } else {
                return Err(words::SYNTAX.into());
            }
        }
        if options.holds.is_some() && options.permits.is_some() {
            return Err(words::SYNTAX.into());
        }
        Ok(options)
    }
}

/// Sets an option that was not given yet.
fn once<T>(option: &mut Option<T>, value: T) -> Result<(), Words> {
    match option.replace(value) {
        None => Ok(()),
        Some(_) => Err(words::SYNTAX.into()),
    }
}

fn lease_argument(bytes: &[u8], unit_ms: u64, name: CommandName, settings: Settings) -> Result<Lease, Words> {
    let number = integer(bytes).ok_or(words::NOT_AN_INTEGER)?;
    let ms = u64::try_from(number).ok().and_then(|number| number.checked_mul(unit_ms));
    lease(ms.ok_or_else(|| name.invalid_expire())?, name, settings)
}

fn lease(ms: u64, name: CommandName, settings: Settings) -> Result<Lease, Words> {
    match NonZeroU64::new(ms) {
        Some(length) if ms <= settings.max_lease_ms => Ok(Lease::Ms(length)),
        _ => Err(name.invalid_expire()),
    }
}

fn persist(name: CommandName, settings: Settings) -> Result<Lease, Words> {
    if settings.max_lease_ms < MAX_LEASE_MS {
        return Err(name.invalid_expire());
    }
    Ok(Lease::Persist)
}

fn block(bytes: &[u8]) -> Result<u64, Words> {
    let number = integer(bytes).ok_or(words::NOT_A_TIMEOUT)?;
    let ms = u64::try_from(number).map_err(|_| words::NEGATIVE_TIMEOUT)?;
    // As BLPOP: a point in time that does not fit a signed number of milliseconds is no time-out.
    if ms > (i64::MAX / 2) as u64 {
        return Err(words::NOT_A_TIMEOUT.into());
    }
    Ok(ms)
}

fn holds(bytes: &[u8]) -> Result<u32, Words> {
    let number = integer(bytes).ok_or(words::NOT_AN_INTEGER)?;
    u32::try_from(number).map_err(|_| words::NOT_AN_INTEGER.into())
}

fn permits(bytes: &[u8]) -> Result<u32, Words> {
    let number = integer(bytes).ok_or(words::NOT_AN_INTEGER)?;
    u32::try_from(number).ok().filter(|n| (1..=MAX_PERMITS).contains(n)).ok_or(words::BAD_PERMITS.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    const SETTINGS: Settings = Settings { default_lease_ms: 30_000, max_lease_ms: MAX_LEASE_MS };

    fn error(family: Family, line: &str) -> String {
        let args: Vec<&[u8]> = line.split(' ').map(str::as_bytes).collect();
        acquire(family, &args, SETTINGS).unwrap_err().0.into_owned()
    }

    #[test]
    fn options_come_in_any_order_and_case() {
        let args: Vec<&[u8]> = "LOCK.ACQUIRE k t session notify c bLoCk 5 ex 2".split(' ').map(str::as_bytes).collect();
        let acquire = acquire(Family::Lock, &args, SETTINGS).unwrap();
        assert_eq!(acquire.lease.as_ms(), 2000);
        assert_eq!(acquire.wait, Wait { block_ms: Some(5), notify: Some(5), session: true });
    }

    #[test]
    fn what_is_said_twice_or_against_itself_is_a_syntax_error() {
        for line in [
            "x k t PX 5 PX 5",
            "x k t PX 5 PERSIST",
            "x k t SESSION SESSION",
            "x k t SESSION PERSIST",
            "x k t BLOCK 1 BLOCK 1",
            "x k t NOTIFY c",
            "x k t PX",
            "x k t HOLDS 1",
            "x k t what",
        ] {
            assert_eq!(error(Family::Lock, line), words::SYNTAX, "{line}");
        }
        assert_eq!(error(Family::Sem, "x k t LIMIT 2 PERMITS 1 HOLDS 1"), words::SYNTAX);
    }

    #[test]
    fn times_answer_in_the_words_of_redis() {
        for line in ["x k t PX 0", "x k t PX -1", "x k t EX 9223372036854775807", "x k t PX 31536000001"] {
            assert_eq!(error(Family::Lock, line), "ERR invalid expire time in 'lock.acquire' command", "{line}");
        }
        assert_eq!(error(Family::Lock, "x k t PX 1x"), words::NOT_AN_INTEGER);
        assert_eq!(error(Family::Lock, "x k t BLOCK -1"), words::NEGATIVE_TIMEOUT);
        assert_eq!(error(Family::Lock, "x k t BLOCK x"), words::NOT_A_TIMEOUT);
    }

    #[test]
    fn several_keys_are_counted_and_distinct() {
        assert_eq!(error(Family::Mlock, "x 0 a t"), words::BAD_NUMKEYS);
        assert_eq!(error(Family::Mlock, "x 129 a t"), words::BAD_NUMKEYS);
        assert_eq!(error(Family::Mlock, "x 2 a b"), words::TOO_MANY_NUMKEYS);
        assert_eq!(error(Family::Mlock, "x 2 a a t"), words::KEY_TWICE);
    }

    #[test]
    fn a_semaphore_never_promises_more_than_its_limit() {
        assert_eq!(error(Family::Sem, "x k t"), words::NO_LIMIT);
        assert_eq!(error(Family::Sem, "x k t LIMIT 2 PERMITS 3"), words::OVER_LIMIT);
        assert_eq!(error(Family::Sem, "x k t LIMIT 0"), words::BAD_PERMITS);
        assert_eq!(error(Family::Rlock, "x k t HOLDS 0"), words::BAD_HOLDS);
    }
}

//! The words of errors. They are API: a code in capitals, then a sentence that says what to do.

use std::borrow::Cow;
use std::fmt::Write;

use lock::circle::Link;
use lock::claim::{Kind, Refusal};
use lock::desk::Error;
use lock::world::News;

/// An error reply, without the leading `-`. Never contains a NUL or a line end: names are escaped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Words(pub Cow<'static, str>);

impl From<&'static str> for Words {
    fn from(words: &'static str) -> Words {
        Words(Cow::Borrowed(words))
    }
}

impl From<String> for Words {
    fn from(words: String) -> Words {
        Words(Cow::Owned(words))
    }
}

pub const SYNTAX: &str = "ERR syntax error";
pub const NOT_AN_INTEGER: &str = "ERR value is not an integer or out of range";
pub const NOT_A_TIMEOUT: &str = "ERR timeout is not an integer or out of range";
pub const NEGATIVE_TIMEOUT: &str = "ERR timeout is negative";
pub const BAD_OWNER: &str = "ERR the token must have 1 to 1024 bytes";
pub const BAD_HOLDS: &str = "ERR HOLDS must be 1 or more to acquire, 0 or more to release";
pub const BAD_PERMITS: &str = "ERR LIMIT and PERMITS must be between 1 and 1000000";
pub const OVER_LIMIT: &str = "ERR more permits than LIMIT lets out";
pub const NO_LIMIT: &str = "ERR SEM.ACQUIRE needs LIMIT";
pub const BAD_NUMKEYS: &str = "ERR numkeys should be between 1 and 128";
pub const TOO_MANY_NUMKEYS: &str = "ERR Number of keys can't be greater than number of args";
pub const KEY_TWICE: &str = "ERR a key is named twice";
pub const IN_SCRIPT: &str = "ERR SESSION and NOTIFY are not allowed in scripts";
pub const INTERNAL: &str = "ERR LOCK.APPLY is internal: it comes from the master or the append-only file only";
pub const BUSY: &str = "ERR the module is busy with another request";
pub const WRONG_TYPE: &str = "WRONGTYPE Operation against a key holding the wrong kind of value";
pub const CANCELLED: &str = "UNBLOCKED cancelled";
pub const SUPERSEDED: &str = "UNBLOCKED superseded by a newer request";
pub const DEMOTED: &str =
    "UNBLOCKED force unblock from blocking operation, instance state changed (master -> replica?)";
pub const TRY_AGAIN: &str = "TRYAGAIN the slot of the key is moving: send the command again";
pub const MAX_WAITERS: &str = "MAXWAITERS lock.max-waiters requests wait already: try again later, or without BLOCK";
pub const PAUSED: &str = "ERR nothing is granted while this transaction keeps writes paused";
pub const GRACE: &str =
    "GRACE the server has just started or been promoted: nothing new is granted during lock.grace, use BLOCK to wait";
pub const NO_FENCE: &str = "ERR no fencing token is left below 2^53: the clock or a restored lock is far in the future";
pub const NO_CHANNEL: &str = "NOPERM No permissions to access the channel used as argument";
pub const CHANNEL_SLOT: &str = "CROSSSLOT the channel of NOTIFY must hash to the slot of the key";

/// How many bytes of a name an error repeats.
const CUT: usize = 48;

/// How many links of a circle an error names.
const LINKS: usize = 8;

/// `ERR invalid expire time in 'lock.acquire' command`, as `SET` says it. `command` in lower case.
pub fn invalid_expire(command: &str) -> Words {
    format!("ERR invalid expire time in '{command}' command").into()
}

/// A name as an error repeats it: escaped, quoted and cut.
fn quoted(name: &[u8]) -> String {
    let cut = name.len() > CUT;
    let shown = if cut { &name[..CUT] } else { name };
    format!("'{}{}'", shown.escape_ascii(), if cut { "..." } else { "" })
}

/// What to say when the key holds a lock of the family `kind`.
pub fn wrong_kind(kind: Kind) -> Words {
    let (article, commands) = match kind {
        Kind::Mutex => ("mutex", "LOCK"),
        Kind::Reentrant => ("reentrant mutex", "RLOCK"),
        Kind::Rw => ("read/write lock", "RWLOCK"),
        Kind::Semaphore => ("semaphore", "SEM"),
    };
    format!("WRONGKIND the key is a {article}: use the {commands}. commands").into()
}

/// What a client reads when the rules refuse its request.
pub fn of_error(error: &Error) -> Words {
    match error {
        Error::WrongType => WRONG_TYPE.into(),
        Error::Refused(refusal) => of_refusal(*refusal),
        Error::Deadlock(links) => deadlock(links),
        Error::MaxWaiters => MAX_WAITERS.into(),
        Error::Grace => GRACE.into(),
        Error::NoFence => NO_FENCE.into(),
    }
}

fn of_refusal(refusal: Refusal) -> Words {
    match refusal {
        Refusal::WrongKind(kind) => wrong_kind(kind),
        Refusal::HoldsMore(held) => {
            format!("ERR this owner already holds {held}: an acquire never takes away, use RELEASE").into()
        }
        Refusal::HoldsFewer(held) => format!("ERR this owner holds only {held}: a release never adds").into(),
        Refusal::TooManyHolds => "ERR too many holds".into(),
        Refusal::OverLimit => OVER_LIMIT.into(),
    }
}

fn deadlock(links: &[Link]) -> Words {
    let mut words = String::from("DEADLOCK waiting would never end:");
    for (at, link) in links.iter().take(LINKS).enumerate() {
        let next = links.get(at + 1).or(links.first()).unwrap_or(link);
        let comma = if at == 0 { "" } else { "," };
        let _ = write!(
            words,
            "{comma} {} waits for {} on {}",
            quoted(link.owner.as_bytes()),
            quoted(next.owner.as_bytes()),
            quoted(&link.key)
        );
    }
    if links.len() > LINKS {
        let _ = write!(words, ", and {} more", links.len() - LINKS);
    }
    words.into()
}

/// What a blocked client reads; `None` for outcomes that are no errors.
pub fn of_news(news: News) -> Option<Words> {
    match news {
        News::Granted { .. } | News::TimedOut => None,
        News::Cancelled => Some(CANCELLED.into()),
        News::Superseded => Some(SUPERSEDED.into()),
        News::WrongType => Some(WRONG_TYPE.into()),
        News::Refused(refusal) => Some(of_refusal(refusal)),
        News::TryAgain => Some(TRY_AGAIN.into()),
        News::Demoted => Some(DEMOTED.into()),
        News::NoFence => Some(NO_FENCE.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lock::owner::Owner;

    #[test]
    fn names_are_quoted_escaped_and_cut() {
        assert_eq!(quoted(b"a\0b\r\n"), "'a\\x00b\\r\\n'");
        assert_eq!(quoted(&[b'x'; 100]), format!("'{}...'", "x".repeat(CUT)));
    }

    #[test]
    fn a_circle_is_told_from_its_beginning_back_to_it() {
        let link = |owner: &[u8], key: &[u8]| Link { owner: Owner::new(owner).unwrap(), key: key.into() };
        let words = deadlock(&[link(b"a", b"k"), link(b"b", b"l")]);
        let told = "DEADLOCK waiting would never end: 'a' waits for 'b' on 'k', 'b' waits for 'a' on 'l'";
        assert_eq!(words.0, told);
    }
}

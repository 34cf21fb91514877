//! Every error reply: an upper-case code, which is API, then a sentence that says what to do. docs/errors.md lists
//! them.
//!
//! This file never turns an outcome into an error, or an error into an outcome.

use std::borrow::Cow;
use std::fmt;

use lock::engine::lock_manager::LockError;
use lock::queue::deadlock::Edge;
use lock::queue::wait_queue::WaiterLimit;
use lock::value::claim::{InvalidClaim, LockType};
use lock::value::outcome::KeyError;

use super::name::CommandName;

/// An error reply, without the leading `-`. Contains no NUL and no line break, because names are escaped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ErrorReply(Cow<'static, str>);

impl ErrorReply {
    const fn of(message: &'static str) -> ErrorReply {
        ErrorReply(Cow::Borrowed(message))
    }

    fn from_string(message: String) -> ErrorReply {
        ErrorReply(Cow::Owned(message))
    }

    /// The code and the sentence.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Redis's wording, without the detail after it.
    #[cfg(test)]
    pub(crate) fn redis_message(&self) -> &str {
        let ends = [" at '", ": "].into_iter().filter_map(|end| self.0.find(end));
        &self.0[..ends.min().unwrap_or(self.0.len())]
    }
}

/// LOCK.SCAN; Redis's wording.
pub const INVALID_CURSOR: ErrorReply = ErrorReply::of("ERR invalid cursor");
/// SCAN was renamed or disabled (rename-command).
pub const NO_SCAN: ErrorReply =
    ErrorReply::of("ERR LOCK.SCAN requires the server's SCAN command, which is renamed or disabled");
/// An owner ID (token) that is empty or too long.
pub const BAD_OWNER: ErrorReply = ErrorReply::of("ERR the token must be 1 to 1024 bytes long");
/// `HOLDS 0` to acquire.
pub const BAD_HOLDS: ErrorReply = ErrorReply::of("ERR HOLDS must be 1 or more to acquire, 0 or more to release");
/// LIMIT or PERMITS out of range.
pub const BAD_PERMITS: ErrorReply = ErrorReply::of("ERR LIMIT and PERMITS must be between 1 and 1000000");
/// A request that could never be granted.
pub const OVER_LIMIT: ErrorReply = ErrorReply::of("ERR requested permits exceed LIMIT");
/// SLOT requested by an owner that holds permits without one.
pub const HOLDS_PERMITS: ErrorReply =
    ErrorReply::of("ERR this owner holds permits without a slot: release them before requesting a slot");
/// Permits without SLOT requested by an owner that holds a slot.
pub const HOLDS_SLOT: ErrorReply = ErrorReply::of("ERR this owner holds a slot: release it before requesting permits");
/// `SEM.ACQUIRE` without LIMIT.
pub const NO_LIMIT: ErrorReply = ErrorReply::of("ERR SEM.ACQUIRE requires LIMIT");
/// `numkeys` out of range, or not a number.
pub const BAD_NUMKEYS: ErrorReply = ErrorReply::of("ERR numkeys should be between 1 and 128");
/// `numkeys` exceeds the number of arguments left besides the token. Redis's wording.
pub const TOO_MANY_NUMKEYS: ErrorReply = ErrorReply::of("ERR Number of keys can't be greater than number of args");
/// The keys of MLOCK must be distinct.
pub const KEY_TWICE: ErrorReply = ErrorReply::of("ERR duplicate key");
/// A script has no connection, and neither has a command called by another module.
pub const NO_CONNECTION: ErrorReply =
    ErrorReply::of("ERR SESSION and NOTIFY are not allowed in scripts or in calls from modules");
/// A client sent LOCK.APPLY.
pub const APPLY_IS_INTERNAL: ErrorReply =
    ErrorReply::of("ERR LOCK.APPLY is internal: it is accepted only from the master or the append-only file");
/// LOCK.EXEC with a token that does not hold the lock.
pub const NOT_HELD: ErrorReply =
    ErrorReply::of("NOTHELD this token does not hold the lock, so the command did not run: acquire the lock again");
/// LOCK.EXEC inside LOCK.EXEC.
pub const EXEC_WITHIN_EXEC: ErrorReply = ErrorReply::of("ERR LOCK.EXEC cannot run LOCK.EXEC");
/// The command name passed to LOCK.EXEC contains a NUL, so no such command exists.
pub const UNKNOWN_COMMAND: ErrorReply = ErrorReply::of("ERR unknown command");
/// The reply of LOCK.EXEC's command cannot be encoded in the client's protocol.
pub const NOT_IN_PROTOCOL: ErrorReply =
    ErrorReply::of("ERR the command ran, but its reply cannot be encoded in RESP2: use HELLO 3");
/// The module's state is in use: a command ran inside a callback inside a command. Any command may return this error.
pub const BUSY: ErrorReply = ErrorReply::of("ERR the module is busy with another request");
/// A panic.
pub const INTERNAL_ERROR: ErrorReply = ErrorReply::of("ERR internal error in redis-lock, see the server log");
/// The key holds a value of another data type. Redis's wording.
pub const WRONG_TYPE: ErrorReply = ErrorReply::of("WRONGTYPE Operation against a key holding the wrong kind of value");
/// LOCK.CANCEL ended the wait.
pub const CANCELLED: ErrorReply = ErrorReply::of("UNBLOCKED cancelled");
/// The same request was sent again and took over the position in the queue.
pub const SUPERSEDED: ErrorReply = ErrorReply::of("UNBLOCKED superseded by a newer request");
/// A command that changes locks, on a replica. Redis's wording; applies even where the replica accepts other writes.
pub const READ_ONLY: ErrorReply = ErrorReply::of("READONLY You can't write against a read only replica.");
/// The server became a replica. Redis's wording.
pub const DEMOTED: ErrorReply =
    ErrorReply::of("UNBLOCKED force unblock from blocking operation, instance state changed (master -> replica?)");
/// The caller's ACL changed while its request waited.
pub const NOT_PERMITTED: ErrorReply = ErrorReply::of(
    "NOPERM this user lost its permission for the command, a key or the channel while the request waited",
);
/// A waiting MLOCK would deadlock because its owner has lost one of the keys. LOCK.LOG shows the cycle.
pub const DEADLOCK_AFTER_LOSS: ErrorReply =
    ErrorReply::of("DEADLOCK this token lost one of the keys, so the request would deadlock: see LOCK.LOG");
/// The slot is moving to another node of the cluster.
pub const TRY_AGAIN: ErrorReply = ErrorReply::of("TRYAGAIN the slot of the key is moving: send the command again");
/// The keys of MLOCK must share one slot. Redis's wording.
pub const CROSS_SLOT: ErrorReply = ErrorReply::of("CROSSSLOT Keys in request don't hash to the same slot");
/// The transaction itself paused the server's writes (CLIENT PAUSE).
pub const WRITES_PAUSED: ErrorReply =
    ErrorReply::of("ERR no lock can be granted while this transaction has paused writes");
/// A translated command that cannot succeed now, and whose protocol has no reply for that.
pub const NOT_NOW: ErrorReply =
    ErrorReply::of("TRYAGAIN the lock cannot be granted now: earlier requests wait for it, or lock.grace is in effect");
/// A translated command on a lock that it must not overwrite or take.
pub const PROTECTED: ErrorReply =
    ErrorReply::of("TRYAGAIN the key holds a lock that this command cannot overwrite: LOCK.BREAK force-releases it");
/// LOCK.ADOPTION RETURN, if the server rejects the command that sets the string or hash.
pub const NOT_RETURNED: ErrorReply =
    ErrorReply::of("ERR the server refused SET, DEL, HSET or PEXPIREAT: the adopted lock was not converted back");
/// The caller may run LOCK.ADOPTED, but not the command that it stands for.
pub const ORIGINAL_NOT_PERMITTED: ErrorReply = ErrorReply::of(
    "NOPERM this user has no permissions to run the command that lock.adopt translated, or to access its keys",
);
/// A request without BLOCK during lock.grace.
pub const GRACE: ErrorReply = ErrorReply::of(
    "GRACE the server has just started or been promoted: no new grants during lock.grace, use BLOCK to wait",
);
/// No fencing tokens are left.
pub const NO_FENCE: ErrorReply =
    ErrorReply::of("ERR no fencing token is left below 2^53: the clock or a restored lock is far in the future");
/// Too many holds of one owner.
pub const TOO_MANY_HOLDS: ErrorReply = ErrorReply::of("ERR too many holds");
/// The caller's ACL does not allow the channel of NOTIFY. Redis's wording.
pub const CHANNEL_NOT_PERMITTED: ErrorReply =
    ErrorReply::of("NOPERM No permissions to access the channel used as argument");
/// In a cluster the channel is a sharded channel.
pub const CHANNEL_SLOT: ErrorReply =
    ErrorReply::of("CROSSSLOT the NOTIFY channel must hash to the same slot as the key");

/// A number of log entries that is below -1 or not a number. Redis's wording.
pub const BAD_LOG_COUNT: ErrorReply = ErrorReply::of("ERR count should be greater than or equal to -1");

/// Longer names are truncated to this length.
const MAX_QUOTED: usize = 48;

/// The most edges of a cycle that an error lists.
const MAX_EDGES: usize = 8;

/// A lease that is not positive or too long: `ERR invalid expire time in 'lock.acquire' command`, the wording of `SET`,
/// then the bound.
#[cold]
pub(crate) fn invalid_expire(command: CommandName, bound: impl fmt::Display) -> ErrorReply {
    ErrorReply::from_string(format!("ERR invalid expire time in '{command}' command: {bound}"))
}

/// A word that is invalid at its position. Redis's wording, then the word and the reason.
#[cold]
pub(crate) fn syntax_at(word: &[u8], problem: &str) -> ErrorReply {
    ErrorReply::from_string(format!("ERR syntax error at {}: {problem}", Quoted(word)))
}

/// Missing or mutually exclusive words. Redis's wording, then the reason.
#[cold]
pub(crate) fn syntax(problem: &str) -> ErrorReply {
    ErrorReply::from_string(format!("ERR syntax error: {problem}"))
}

/// An effect with the format version of another release; `own` is this release's version.
#[cold]
pub(crate) fn effect_of_other_version(version: u32, own: u32) -> ErrorReply {
    ErrorReply::from_string(format!("ERR effect format {version} is not supported; this version applies format {own}"))
}

/// The value of an option is not an integer, or out of range. Redis's wording, then the option and the value.
#[cold]
pub(crate) fn not_an_integer(option: &str, value: &[u8]) -> ErrorReply {
    ErrorReply::from_string(format!("ERR value is not an integer or out of range: {option} {}", Quoted(value)))
}

/// The value of BLOCK is not an integer, or out of range. Redis's wording, then the value.
#[cold]
pub(crate) fn not_a_timeout(value: &[u8]) -> ErrorReply {
    ErrorReply::from_string(format!("ERR timeout is not an integer or out of range: BLOCK {}", Quoted(value)))
}

/// The value of BLOCK is negative. Redis's wording, then the value.
#[cold]
pub(crate) fn negative_timeout(value: &[u8]) -> ErrorReply {
    ErrorReply::from_string(format!("ERR timeout is negative: BLOCK {}", Quoted(value)))
}

/// LOCK.HELP for an unknown command.
#[cold]
pub(crate) fn no_help(name: &[u8]) -> ErrorReply {
    ErrorReply::from_string(format!("ERR unknown command {}. Try LOCK.HELP.", Quoted(name)))
}

/// An unknown subcommand. Redis's wording.
#[cold]
pub(crate) fn unknown_subcommand(subcommand: &[u8]) -> ErrorReply {
    ErrorReply::from_string(format!("ERR unknown subcommand {}. Try LOCK.HELP.", Quoted(subcommand)))
}

/// Too many arguments for a subcommand of LOCK.LOG. Redis's wording.
#[cold]
pub(crate) fn wrong_arity_of_log(subcommand: &str) -> ErrorReply {
    ErrorReply::from_string(format!("ERR wrong number of arguments for 'lock.log|{subcommand}' command"))
}

/// The wrong number of arguments. Redis's wording.
#[cold]
pub(crate) fn wrong_arity(command: &str) -> ErrorReply {
    ErrorReply::from_string(format!("ERR wrong number of arguments for '{}' command", command.to_ascii_lowercase()))
}

/// The error of LOCK.EXEC if the server rejected the command with an error worded for modules, without running it.
/// `None`: the server's error suits clients as well.
pub fn refused_by_server(message: &[u8]) -> Option<ErrorReply> {
    let message = std::str::from_utf8(message).ok()?;
    // Redis 7.0. Later servers reply NOPERM themselves.
    if let Some(reason) = message.strip_prefix("ERR acl verification failed, ") {
        return Some(ErrorReply::from_string(format!("NOPERM this user {}", reason.trim_end_matches('.'))));
    }
    let command = message.strip_prefix("ERR command '")?.strip_suffix("' is not allowed on script mode")?;
    Some(ErrorReply::from_string(format!(
        "ERR LOCK.EXEC cannot run {}: it runs only commands that scripts may call",
        Quoted(command.as_bytes())
    )))
}

impl From<LockError> for ErrorReply {
    fn from(error: LockError) -> ErrorReply {
        match error {
            LockError::Key(error) => error.into(),
            LockError::Deadlock(edges) => deadlock(&edges, |_| true),
            LockError::MaxWaiters(limit) => max_waiters(limit),
            LockError::Grace => GRACE,
        }
    }
}

/// The server or one of the keys has reached its limit of waiters: the setting and its value.
#[cold]
fn max_waiters(limit: WaiterLimit) -> ErrorReply {
    let of_what = match limit {
        WaiterLimit::Server(_) => "",
        WaiterLimit::Key(_) => " for the key",
    };
    ErrorReply::from_string(format!(
        "MAXWAITERS too many waiting requests{of_what} ({limit}): try again later, or without BLOCK"
    ))
}

impl From<KeyError> for ErrorReply {
    fn from(error: KeyError) -> ErrorReply {
        match error {
            KeyError::WrongType => WRONG_TYPE,
            KeyError::Invalid(invalid) => invalid.into(),
            KeyError::NoFence => NO_FENCE,
        }
    }
}

impl From<InvalidClaim> for ErrorReply {
    fn from(invalid: InvalidClaim) -> ErrorReply {
        match invalid {
            InvalidClaim::WrongLockType(lock_type) => wrong_kind(lock_type),
            InvalidClaim::HoldsMore(held) => ErrorReply::from_string(format!(
                "ERR this owner already holds {held}: ACQUIRE cannot reduce them, use RELEASE"
            )),
            InvalidClaim::HoldsFewer(held) => {
                ErrorReply::from_string(format!("ERR this owner holds only {held}: RELEASE cannot exceed that"))
            }
            InvalidClaim::TooManyHolds => TOO_MANY_HOLDS,
            InvalidClaim::OverLimit => OVER_LIMIT,
            InvalidClaim::HoldsPermits => HOLDS_PERMITS,
            InvalidClaim::HoldsSlot => HOLDS_SLOT,
        }
    }
}

/// The key holds a lock of type `lock_type`, not of the command's type.
fn wrong_kind(lock_type: LockType) -> ErrorReply {
    let (kind, prefix) = match lock_type {
        LockType::Mutex => ("mutex", "LOCK"),
        LockType::Reentrant => ("reentrant mutex", "RLOCK"),
        LockType::ReadWrite => ("read/write lock", "RWLOCK"),
        LockType::Semaphore => ("semaphore", "SEM"),
    };
    ErrorReply::from_string(format!("WRONGKIND the key is a {kind}: use the {prefix}. commands"))
}

/// The cycle, edge by edge; the last owner waits for the first. Edges on keys that the caller may not read are only
/// counted, because LOCK.INFO would not show it the holders and waiters of those keys either.
#[cold]
pub fn deadlock(edges: &[Edge], may_read: impl Fn(&[u8]) -> bool) -> ErrorReply {
    let next = edges.iter().cycle().skip(1);
    let readable: Vec<_> = edges.iter().zip(next).filter(|(edge, _)| may_read(&edge.key)).collect();
    let hidden = edges.len() - readable.len();
    let name = |(edge, next): &(&Edge, &Edge)| {
        let [waiter, holder] = [edge, next].map(|edge| Quoted(edge.owner.as_bytes()));
        format!("{waiter} waits for {holder} on {}", Quoted(&edge.key))
    };
    let mut parts: Vec<String> = readable.iter().take(MAX_EDGES).map(name).collect();
    if readable.len() > MAX_EDGES {
        parts.push(format!("and {} more", readable.len() - MAX_EDGES));
    }
    if hidden > 0 {
        parts.push(format!("and {hidden} on keys that this user may not read"));
    }
    ErrorReply::from_string(format!("DEADLOCK this request would deadlock: {}", parts.join(", ")))
}

/// A name in an error or in a line of the server log: escaped, quoted and truncated.
pub struct Quoted<'a>(pub &'a [u8]);

impl fmt::Display for Quoted<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.get(..MAX_QUOTED) {
            Some(shown) if shown.len() < self.0.len() => write!(f, "'{}...'", shown.escape_ascii()),
            _ => write!(f, "'{}'", self.0.escape_ascii()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::name::{Prefix, Verb};
    use lock::value::owner::Owner;

    #[test]
    fn the_error_codes_and_messages_are_stable() {
        let message = [
            (INVALID_CURSOR, "ERR invalid cursor"),
            (NO_SCAN, "ERR LOCK.SCAN requires the server's SCAN command, which is renamed or disabled"),
            (BAD_OWNER, "ERR the token must be 1 to 1024 bytes long"),
            (BAD_HOLDS, "ERR HOLDS must be 1 or more to acquire, 0 or more to release"),
            (BAD_PERMITS, "ERR LIMIT and PERMITS must be between 1 and 1000000"),
            (OVER_LIMIT, "ERR requested permits exceed LIMIT"),
            (NO_LIMIT, "ERR SEM.ACQUIRE requires LIMIT"),
            (BAD_NUMKEYS, "ERR numkeys should be between 1 and 128"),
            (TOO_MANY_NUMKEYS, "ERR Number of keys can't be greater than number of args"),
            (KEY_TWICE, "ERR duplicate key"),
            (NO_CONNECTION, "ERR SESSION and NOTIFY are not allowed in scripts or in calls from modules"),
            (
                APPLY_IS_INTERNAL,
                "ERR LOCK.APPLY is internal: it is accepted only from the master or the append-only file",
            ),
            (NOT_HELD, "NOTHELD this token does not hold the lock, so the command did not run: acquire the lock again"),
            (EXEC_WITHIN_EXEC, "ERR LOCK.EXEC cannot run LOCK.EXEC"),
            (UNKNOWN_COMMAND, "ERR unknown command"),
            (NOT_IN_PROTOCOL, "ERR the command ran, but its reply cannot be encoded in RESP2: use HELLO 3"),
            (BUSY, "ERR the module is busy with another request"),
            (INTERNAL_ERROR, "ERR internal error in redis-lock, see the server log"),
            (WRONG_TYPE, "WRONGTYPE Operation against a key holding the wrong kind of value"),
            (CANCELLED, "UNBLOCKED cancelled"),
            (SUPERSEDED, "UNBLOCKED superseded by a newer request"),
            (READ_ONLY, "READONLY You can't write against a read only replica."),
            (DEMOTED, "UNBLOCKED force unblock from blocking operation, instance state changed (master -> replica?)"),
            (
                NOT_PERMITTED,
                "NOPERM this user lost its permission for the command, a key or the channel while the request waited",
            ),
            (
                DEADLOCK_AFTER_LOSS,
                "DEADLOCK this token lost one of the keys, so the request would deadlock: see LOCK.LOG",
            ),
            (TRY_AGAIN, "TRYAGAIN the slot of the key is moving: send the command again"),
            (CROSS_SLOT, "CROSSSLOT Keys in request don't hash to the same slot"),
            (
                PROTECTED,
                "TRYAGAIN the key holds a lock that this command cannot overwrite: LOCK.BREAK force-releases it",
            ),
            (
                NOT_RETURNED,
                "ERR the server refused SET, DEL, HSET or PEXPIREAT: the adopted lock was not converted back",
            ),
            (
                NOT_NOW,
                "TRYAGAIN the lock cannot be granted now: earlier requests wait for it, or lock.grace is in effect",
            ),
            (
                ORIGINAL_NOT_PERMITTED,
                "NOPERM this user has no permissions to run the command that lock.adopt translated, \
                 or to access its keys",
            ),
            (WRITES_PAUSED, "ERR no lock can be granted while this transaction has paused writes"),
            (
                GRACE,
                "GRACE the server has just started or been promoted: no new grants during lock.grace, \
                 use BLOCK to wait",
            ),
            (NO_FENCE, "ERR no fencing token is left below 2^53: the clock or a restored lock is far in the future"),
            (TOO_MANY_HOLDS, "ERR too many holds"),
            (CHANNEL_NOT_PERMITTED, "NOPERM No permissions to access the channel used as argument"),
            (BAD_LOG_COUNT, "ERR count should be greater than or equal to -1"),
            (CHANNEL_SLOT, "CROSSSLOT the NOTIFY channel must hash to the same slot as the key"),
        ];
        for (error, expected) in message {
            assert_eq!(error.as_str(), expected);
        }
    }

    #[test]
    fn a_lease_out_of_bounds_names_the_command_in_lower_case() {
        let error = invalid_expire(CommandName { prefix: Prefix::Rwlock, verb: Verb::Renew }, "less than 1 ms");
        assert_eq!(error.as_str(), "ERR invalid expire time in 'rwlock.renew' command: less than 1 ms");
    }

    #[test]
    fn an_error_with_redis_wording_shows_its_position() {
        let long = [b'x'; 49];
        let cases = [
            (syntax_at(b"BLOK", "unknown option"), "ERR syntax error at 'BLOK': unknown option".to_string()),
            (syntax_at(b"\r\n", "unknown option"), r"ERR syntax error at '\r\n': unknown option".into()),
            (syntax_at(&long, "x"), format!("ERR syntax error at '{}...': x", "x".repeat(48))),
            (syntax("READ or WRITE is missing"), "ERR syntax error: READ or WRITE is missing".into()),
            (not_an_integer("PX", b"1x"), "ERR value is not an integer or out of range: PX '1x'".into()),
            (not_a_timeout(b"1.5"), "ERR timeout is not an integer or out of range: BLOCK '1.5'".into()),
            (negative_timeout(b"-1"), "ERR timeout is negative: BLOCK '-1'".into()),
            (no_help(b"x"), "ERR unknown command 'x'. Try LOCK.HELP.".into()),
        ];
        for (error, expected) in cases {
            assert_eq!(error.as_str(), expected);
        }
    }

    #[test]
    fn server_messages_meant_for_modules_are_replaced() {
        let cases = [
            (
                "ERR acl verification failed, can't run this command or subcommand.",
                "NOPERM this user can't run this command or subcommand",
            ),
            (
                "ERR command 'config|get' is not allowed on script mode",
                "ERR LOCK.EXEC cannot run 'config|get': it runs only commands that scripts may call",
            ),
        ];
        for (message, expected) in cases {
            assert_eq!(refused_by_server(message.as_bytes()).unwrap().as_str(), expected);
        }
        for kept in ["ERR syntax error", "OOM command not allowed", "ERR command 'x' is not allowed", "", "ERR \u{fc}"]
        {
            assert_eq!(refused_by_server(kept.as_bytes()), None, "{kept}");
        }
        assert_eq!(refused_by_server(b"ERR command '\xff' is not allowed on script mode"), None);
    }

    #[test]
    fn every_key_error_has_its_message() {
        assert_eq!(ErrorReply::from(KeyError::WrongType), WRONG_TYPE);
        assert_eq!(ErrorReply::from(KeyError::NoFence), NO_FENCE);
        let invalid = |invalid| ErrorReply::from(KeyError::Invalid(invalid));
        let cases = [
            (
                invalid(InvalidClaim::HoldsMore(3)),
                "ERR this owner already holds 3: ACQUIRE cannot reduce them, use RELEASE",
            ),
            (invalid(InvalidClaim::HoldsFewer(2)), "ERR this owner holds only 2: RELEASE cannot exceed that"),
            (invalid(InvalidClaim::TooManyHolds), "ERR too many holds"),
            (invalid(InvalidClaim::OverLimit), "ERR requested permits exceed LIMIT"),
            (
                invalid(InvalidClaim::HoldsPermits),
                "ERR this owner holds permits without a slot: release them before requesting a slot",
            ),
            (invalid(InvalidClaim::HoldsSlot), "ERR this owner holds a slot: release it before requesting permits"),
        ];
        for (error, expected) in cases {
            assert_eq!(error.as_str(), expected);
        }
    }

    #[test]
    fn a_lock_of_another_type_names_the_commands_to_use() {
        let cases = [
            (LockType::Mutex, "WRONGKIND the key is a mutex: use the LOCK. commands"),
            (LockType::Reentrant, "WRONGKIND the key is a reentrant mutex: use the RLOCK. commands"),
            (LockType::ReadWrite, "WRONGKIND the key is a read/write lock: use the RWLOCK. commands"),
            (LockType::Semaphore, "WRONGKIND the key is a semaphore: use the SEM. commands"),
        ];
        for (lock_type, expected) in cases {
            assert_eq!(ErrorReply::from(InvalidClaim::WrongLockType(lock_type)).as_str(), expected);
        }
    }

    #[test]
    fn every_request_error_has_its_message() {
        assert_eq!(ErrorReply::from(LockError::Key(KeyError::WrongType)), WRONG_TYPE);
        assert_eq!(ErrorReply::from(LockError::Grace), GRACE);
        let limits = [
            (
                WaiterLimit::Server(10_000),
                "MAXWAITERS too many waiting requests (lock.max-waiters 10000): try again later, or without BLOCK",
            ),
            (
                WaiterLimit::Key(7),
                "MAXWAITERS too many waiting requests for the key (lock.max-waiters-per-key 7): \
                 try again later, or without BLOCK",
            ),
        ];
        for (limit, expected) in limits {
            assert_eq!(ErrorReply::from(LockError::MaxWaiters(limit)).as_str(), expected);
        }
    }

    #[test]
    fn names_are_quoted_escaped_and_truncated() {
        let quoted = |name: &[u8]| Quoted(name).to_string();
        assert_eq!(quoted(b""), "''");
        assert_eq!(quoted(b"a\0b\r\n'\xff"), r"'a\x00b\r\n\'\xff'");
        let (kept, cut) = ("x".repeat(48), "x".repeat(49));
        assert_eq!(quoted(kept.as_bytes()), format!("'{kept}'"));
        assert_eq!(quoted(cut.as_bytes()), format!("'{kept}...'"));
    }

    /// A cycle of owners 0, 1, …, each waiting for the key with its letter: a, b, ….
    fn cycle(len: u8) -> LockError {
        let edge = |n| Edge { owner: Owner::new(&[b'0' + n]).unwrap(), key: [b'a' + n].as_slice().into() };
        LockError::Deadlock((0..len).map(edge).collect())
    }

    #[test]
    fn a_deadlock_lists_the_whole_cycle() {
        let cases = [
            (1, "DEADLOCK this request would deadlock: '0' waits for '0' on 'a'"),
            (2, "DEADLOCK this request would deadlock: '0' waits for '1' on 'a', '1' waits for '0' on 'b'"),
        ];
        for (len, expected) in cases {
            assert_eq!(ErrorReply::from(cycle(len)).as_str(), expected);
        }
    }

    #[test]
    fn a_deadlock_lists_eight_edges_and_counts_the_others() {
        let seven = "DEADLOCK this request would deadlock: '0' waits for '1' on 'a', '1' waits for '2' on 'b', \
                     '2' waits for '3' on 'c', '3' waits for '4' on 'd', '4' waits for '5' on 'e', \
                     '5' waits for '6' on 'f', '6' waits for '7' on 'g'";
        let cases = [
            (8, format!("{seven}, '7' waits for '0' on 'h'")),
            (9, format!("{seven}, '7' waits for '8' on 'h', and 1 more")),
            (10, format!("{seven}, '7' waits for '8' on 'h', and 2 more")),
        ];
        for (len, expected) in cases {
            assert_eq!(ErrorReply::from(cycle(len)).as_str(), expected);
        }
    }
    #[test]
    fn a_deadlock_only_counts_edges_on_unreadable_keys() {
        let eight = "DEADLOCK this request would deadlock: '0' waits for '1' on 'a', '3' waits for '4' on 'd', \
                     '4' waits for '5' on 'e', '5' waits for '6' on 'f', '6' waits for '7' on 'g', \
                     '7' waits for '8' on 'h', '8' waits for '9' on 'i', '9' waits for ':' on 'j'";
        let cases = [
            (
                3,
                &b"bc"[..],
                "DEADLOCK this request would deadlock: '0' waits for '1' on 'a', \
                 and 2 on keys that this user may not read"
                    .to_string(),
            ),
            (11, b"bc", format!("{eight}, and 1 more, and 2 on keys that this user may not read")),
        ];
        for (len, hidden, expected) in cases {
            let LockError::Deadlock(edges) = cycle(len) else { panic!("it is a deadlock") };
            assert_eq!(deadlock(&edges, |key| !hidden.contains(&key[0])).as_str(), expected);
        }
    }
}

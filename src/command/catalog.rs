//! The commands, and all that the server registers about them: `COMMAND INFO`, `COMMAND DOCS`, ACL categories.

use crate::argument_docs::{
    ADOPTION_OPERATION, COMMAND, COMMAND_ARGS, COUNT as COUNT_OPTION, CURSOR, EFFECT, FAILED, HOLDS, KEY, KEYS,
    KEYS_AND_TOKENS, LEASE, LIMIT, LOG_OPERATION, MODE, NEW_OWNER, NEW_TOKEN, NUMKEYS, ONLY_COMMAND, ONLY_OWNER, OWNER,
    PATTERN, PERMITS, PERMITS_OR_SLOT, SESSION, TOKEN, WAIT, WAIT_OR_COALESCE,
};
use crate::name::Prefix;

pub use crate::argument_docs::{Arg, ArgKind};

/// The container command with which the filter prefixes a translated command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Container {
    /// LOCK.ADOPTED: commands that may write.
    Writes,
    /// LOCK.ADOPTED_RO: commands that only read, so that they work on a replica and in read-only scripts.
    Reads,
}

impl Container {
    /// Its name, in upper case.
    pub const fn name(self) -> &'static str {
        match self {
            Container::Writes => "LOCK.ADOPTED",
            Container::Reads => "LOCK.ADOPTED_RO",
        }
    }
}

/// What a command does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Acquires, or queues.
    Acquire(Prefix),
    /// Releases.
    Release(Prefix),
    /// Renews a lease.
    Renew(Prefix),
    /// LOCK.HELD: whether and how a token holds a lock.
    Held,
    /// LOCK.EXEC: runs a command only while a token holds a lock.
    Exec,
    /// LOCK.INFO: the holders of a lock.
    Info,
    /// LOCK.WAITERS: the waiters for a lock.
    Waiters,
    /// LOCK.SCAN: lists the locks of a database.
    Scan,
    /// LOCK.TOP: lists the locks with the most waiters.
    Top,
    /// LOCK.BREAK: force-releases a lock.
    Break,
    /// LOCK.CANCEL: cancels queued requests.
    Cancel,
    /// LOCK.LOG: notable events, for operators.
    Log,
    /// LOCK.HELP: lists the commands.
    Help,
    /// LOCK.ADOPTED and LOCK.ADOPTED_RO: commands of clients that do not know the module.
    Adopted(Container),
    /// LOCK.ADOPTION: reports what lock.adopt does, and reverts an adopted key.
    Adoption,
    /// LOCK.APPLY, internal: an effect from the primary or the append-only file.
    Apply,
}

impl Action {
    /// Whether the command takes `numkeys key [key …]` instead of one key.
    pub const fn takes_multiple_keys(self) -> bool {
        match self {
            Action::Acquire(prefix) | Action::Release(prefix) | Action::Renew(prefix) => prefix.takes_multiple_keys(),
            Action::Held | Action::Exec | Action::Info | Action::Waiters | Action::Scan | Action::Top => false,
            Action::Break | Action::Cancel | Action::Log | Action::Help | Action::Apply => false,
            Action::Adopted(_) | Action::Adoption => false,
        }
    }

    /// The index of its first key argument; the name is argument 0.
    pub const fn first_key(self) -> i32 {
        match self {
            Action::Adoption => 2,
            _ => 1,
        }
    }

    /// The container, if the command has subcommands.
    pub const fn container(self) -> Option<Container> {
        match self {
            Action::Adopted(container) => Some(container),
            _ => None,
        }
    }

    /// Whether its arguments contain another command, which has its own keys.
    pub const fn has_keys_of_another(self) -> bool {
        matches!(self, Action::Exec)
    }
}

/// How a command accesses its keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Reads them.
    Read,
    /// Changes them, possibly without reading them.
    Write,
    /// Reads and changes them.
    Update,
    /// Reads them, and may remove them.
    Delete,
}

/// One command.
#[derive(Debug)]
pub struct Command {
    /// In upper case.
    pub name: &'static str,
    /// What it does.
    pub action: Action,
    /// One sentence.
    pub summary: &'static str,
    /// In big O.
    pub complexity: &'static str,
    /// The number of arguments, including the name; negative: at least that many.
    pub arity: i32,
    /// Space-separated.
    pub flags: &'static str,
    /// The server's own ACL categories, space-separated; only for servers that let modules set them.
    pub categories: &'static str,
    /// How it accesses its keys; `None`: it has no key.
    pub access: Option<Access>,
    /// The arguments after the name.
    pub args: &'static [Arg],
}

impl Command {
    /// The module version that introduced the command. So far all are from the first one.
    pub const fn since(&self) -> &'static str {
        "1.0.0"
    }

    /// Whether the command accepts this many arguments, including its name.
    #[inline]
    pub const fn accepts(&self, arguments: usize) -> bool {
        let arity = self.arity.unsigned_abs() as usize;
        if self.arity.is_negative() {
            arguments >= arity
        } else {
            arguments == arity
        }
    }
}

/// All commands of the module.
pub const CATALOG: &[Command] = &[
    command(
        "LOCK.ACQUIRE",
        Action::Acquire(Prefix::Lock),
        -3,
        &[KEY, NEW_TOKEN, LEASE, WAIT_OR_COALESCE, SESSION],
        "Acquires a mutex, optionally waiting in its queue or, with COALESCE, until the holder has done the work.",
    ),
    command(
        "LOCK.RELEASE",
        Action::Release(Prefix::Lock),
        -3,
        &[KEY, TOKEN, FAILED],
        "Releases a mutex and grants it to the next waiter; unless FAILED, COALESCE waiters learn the work is done.",
    ),
    command("LOCK.RENEW", Action::Renew(Prefix::Lock), -3, &[KEY, TOKEN, LEASE], "Restarts the lease of a mutex."),
    command(
        "RLOCK.ACQUIRE",
        Action::Acquire(Prefix::Rlock),
        -3,
        &[KEY, NEW_OWNER, HOLDS, LEASE, WAIT, SESSION],
        "Acquires or reenters a reentrant mutex, optionally waiting in its queue.",
    ),
    command(
        "RLOCK.RELEASE",
        Action::Release(Prefix::Rlock),
        -3,
        &[KEY, OWNER, HOLDS],
        "Releases holds of a reentrant mutex; releasing the last one grants it to the next waiter.",
    ),
    command(
        "RLOCK.RENEW",
        Action::Renew(Prefix::Rlock),
        -3,
        &[KEY, OWNER, LEASE],
        "Restarts the lease of a reentrant mutex.",
    ),
    command(
        "RWLOCK.ACQUIRE",
        Action::Acquire(Prefix::Rwlock),
        -4,
        &[KEY, NEW_OWNER, MODE, HOLDS, LEASE, WAIT, SESSION],
        "Acquires, reenters or upgrades a read/write lock, optionally waiting in its queue.",
    ),
    command(
        "RWLOCK.RELEASE",
        Action::Release(Prefix::Rwlock),
        -4,
        &[KEY, OWNER, MODE, HOLDS],
        "Releases holds of a read/write lock.",
    ),
    command(
        "RWLOCK.RENEW",
        Action::Renew(Prefix::Rwlock),
        -3,
        &[KEY, OWNER, LEASE],
        "Restarts the lease of one holder of a read/write lock.",
    ),
    command(
        "SEM.ACQUIRE",
        Action::Acquire(Prefix::Sem),
        -5,
        &[KEY, NEW_OWNER, LIMIT, PERMITS_OR_SLOT, LEASE, WAIT, SESSION],
        "Acquires permits of a semaphore, optionally waiting in its queue.",
    ),
    command("SEM.RELEASE", Action::Release(Prefix::Sem), -3, &[KEY, OWNER, PERMITS], "Returns permits of a semaphore."),
    command(
        "SEM.RENEW",
        Action::Renew(Prefix::Sem),
        -3,
        &[KEY, OWNER, LEASE],
        "Restarts the lease of one holder of a semaphore.",
    ),
    command(
        "MLOCK.ACQUIRE",
        Action::Acquire(Prefix::Mlock),
        -4,
        &[NUMKEYS, KEYS, NEW_TOKEN, LEASE, WAIT, SESSION],
        "Acquires multiple mutexes, all or nothing, optionally waiting in their queues.",
    ),
    command("MLOCK.RELEASE", Action::Release(Prefix::Mlock), -4, &[NUMKEYS, KEYS, TOKEN], "Releases multiple mutexes."),
    command(
        "MLOCK.RENEW",
        Action::Renew(Prefix::Mlock),
        -4,
        &[NUMKEYS, KEYS, TOKEN, LEASE],
        "Restarts the leases of multiple mutexes, all or nothing.",
    ),
    command(
        "LOCK.HELD",
        Action::Held,
        3,
        &[KEY, TOKEN],
        "Returns the fencing token, holds and time to live if the token holds the lock, whatever its type.",
    ),
    command(
        "LOCK.EXEC",
        Action::Exec,
        -4,
        &[KEY, TOKEN, COMMAND, COMMAND_ARGS],
        "Atomically checks that the token holds the lock, whatever its type, and runs a command.",
    ),
    command(
        "LOCK.INFO",
        Action::Info,
        -2,
        &[KEY, COUNT_OPTION],
        "Returns the type, the oldest holders and the number of waiters of a lock.",
    ),
    command("LOCK.WAITERS", Action::Waiters, -2, &[KEY, COUNT_OPTION], "Lists the first requests in a lock's queue."),
    command(
        "LOCK.SCAN",
        Action::Scan,
        -2,
        &[CURSOR, PATTERN, COUNT_OPTION],
        "Iterates over the locks of the database, as SCAN does over keys.",
    ),
    command("LOCK.TOP", Action::Top, -1, &[COUNT_OPTION], "Lists the locks with the most waiters, in all databases."),
    command(
        "LOCK.BREAK",
        Action::Break,
        -2,
        &[KEY, ONLY_OWNER],
        "Force-releases a lock, for all its holders or for one of them, and grants it to the next waiter.",
    ),
    command("LOCK.CANCEL", Action::Cancel, 3, &[KEY, TOKEN], "Removes the requests of a token from a lock's queue."),
    command(
        "LOCK.HELP",
        Action::Help,
        -1,
        &[ONLY_COMMAND],
        "Returns the syntax and a summary of all commands, or of those that match a name.",
    ),
    command(
        "LOCK.LOG",
        Action::Log,
        -2,
        &[LOG_OPERATION],
        "Returns, counts or clears log entries: long holds and waits, leases that expired with waiters, deadlocks.",
    ),
    command(
        "LOCK.ADOPTED",
        Action::Adopted(Container::Writes),
        -3,
        &[COMMAND, KEY, COMMAND_ARGS],
        "Runs a Redis command on a key of lock.adopt as one on a native lock, for clients that do not know the module.",
    ),
    command(
        "LOCK.ADOPTED_RO",
        Action::Adopted(Container::Reads),
        -3,
        &[COMMAND, KEY, COMMAND_ARGS],
        "Read-only variant of LOCK.ADOPTED.",
    ),
    command(
        "LOCK.ADOPTION",
        Action::Adoption,
        -2,
        &[ADOPTION_OPERATION],
        "Reports how clients use the keys of lock.adopt and lock.adopt-observe, or converts an adopted lock back.",
    ),
    command(
        "LOCK.APPLY",
        Action::Apply,
        -3,
        &[KEY, EFFECT],
        "Internal: applies a replicated effect; refused for all clients.",
    ),
];

/// How many commands there are.
pub const COUNT: usize = CATALOG.len();

/// The arguments of a subcommand of LOCK.ADOPTED for one key.
pub const ADOPTED_ARGS: &[Arg] = &[KEY, COMMAND_ARGS];

/// The arguments of subcommands with multiple keys: MGET, then MSET and MSETNX.
pub const MULTIPLE_ADOPTED_ARGS: &[Arg] = &[KEYS, KEYS_AND_TOKENS];

const fn command(
    name: &'static str,
    action: Action,
    arity: i32,
    args: &'static [Arg],
    summary: &'static str,
) -> Command {
    let complexity = match action {
        Action::Acquire(_) => "O(1) for the first holder, O(log N) otherwise, N being the other holders and waiters",
        Action::Release(_) | Action::Renew(_) => {
            "O(1) for the only holder, O(log N) otherwise, N being the other holders and waiters"
        }
        Action::Cancel => "O(N) where N is the number of the token's queued requests",
        Action::Held => "O(1)",
        Action::Exec => "O(1) plus the complexity of the command",
        Action::Info => "O(N log N) where N is the number of holders",
        Action::Waiters => "O(N) where N is the number of waiters returned",
        Action::Scan => "O(1) for each call, O(N) for an iteration over N keys, plus O(M) for a lock with M holders",
        Action::Top => "O(N) where N is the number of locks with waiters, plus O(M) for a returned lock with M holders",
        Action::Break => "O(N) for N removed holders, O(log M) for M other holders and waiters",
        Action::Log => "O(N) where N is the number of entries returned or removed",
        Action::Help => "O(1)",
        Action::Adoption => "O(1) to convert a lock back, O(N) for a report on N keys, at most 100,000",
        Action::Adopted(_) => "O(N) where N is the number of keys, each as for LOCK.ACQUIRE or LOCK.HELD",
        Action::Apply => "O(log N) where N is the number of holders",
    };
    let access = match action {
        Action::Scan | Action::Top | Action::Log | Action::Help | Action::Adopted(_) => None,
        Action::Held | Action::Exec | Action::Info | Action::Waiters => Some(Access::Read),
        Action::Acquire(_) | Action::Renew(_) | Action::Cancel | Action::Apply | Action::Adoption => {
            Some(Access::Update)
        }
        Action::Release(_) | Action::Break => Some(Access::Delete),
    };
    let (flags, categories) = match action {
        Action::Acquire(_) => ("write deny-oom fast blocking", "write fast blocking"),
        Action::Release(_) | Action::Renew(_) | Action::Cancel | Action::Apply => ("write fast", "write fast"),
        Action::Exec => ("write", "write"),
        Action::Held | Action::Info | Action::Waiters | Action::Scan | Action::Help => ("readonly", "read"),
        Action::Top | Action::Log => ("readonly admin", "admin dangerous"),
        Action::Break | Action::Adoption => ("write admin", "admin dangerous"),
        Action::Adopted(Container::Writes) => ("write", "write fast"),
        Action::Adopted(Container::Reads) => ("readonly", "read fast"),
    };
    Command { name, action, summary, complexity, arity, flags, categories, access, args }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of_action(action: Action) -> &'static Command {
        CATALOG.iter().find(|command| command.action == action).unwrap()
    }

    /// The command's syntax, as redis-cli hints it.
    fn hint(command: &Command) -> String {
        let args: Vec<_> = command.args.iter().map(Arg::to_string).collect();
        format!("{} {}", command.name, args.join(" ")).trim_end().to_string()
    }

    #[test]
    fn only_lock_exec_has_the_keys_of_another_command() {
        let of_another: Vec<_> = CATALOG.iter().filter(|command| command.action.has_keys_of_another()).collect();
        assert!(matches!(of_another[..], [exec] if exec.action == Action::Exec));
    }

    #[test]
    fn every_hint_matches_the_documented_syntax() {
        let lease = "[EX seconds|PX milliseconds|PERSIST]";
        let wait = "[BLOCK milliseconds [NOTIFY channel]] [SESSION]";
        let hints = [
            format!("LOCK.ACQUIRE key token|* {lease} [BLOCK milliseconds [COALESCE] [NOTIFY channel]] [SESSION]"),
            "LOCK.RELEASE key token [FAILED]".into(),
            format!("LOCK.RENEW key token {lease}"),
            format!("RLOCK.ACQUIRE key owner|* [HOLDS holds] {lease} {wait}"),
            "RLOCK.RELEASE key owner [HOLDS holds]".into(),
            format!("RLOCK.RENEW key owner {lease}"),
            format!("RWLOCK.ACQUIRE key owner|* READ|WRITE [HOLDS holds] {lease} {wait}"),
            "RWLOCK.RELEASE key owner READ|WRITE [HOLDS holds]".into(),
            format!("RWLOCK.RENEW key owner {lease}"),
            format!("SEM.ACQUIRE key owner|* LIMIT limit [PERMITS permits|HOLDS holds|SLOT] {lease} {wait}"),
            "SEM.RELEASE key owner [PERMITS permits|HOLDS holds]".into(),
            format!("SEM.RENEW key owner {lease}"),
            format!("MLOCK.ACQUIRE numkeys key [key ...] token|* {lease} {wait}"),
            "MLOCK.RELEASE numkeys key [key ...] token".into(),
            format!("MLOCK.RENEW numkeys key [key ...] token {lease}"),
            "LOCK.HELD key token".into(),
            "LOCK.EXEC key token command [arg [arg ...]]".into(),
            "LOCK.INFO key [COUNT count]".into(),
            "LOCK.WAITERS key [COUNT count]".into(),
            "LOCK.SCAN cursor [MATCH pattern] [COUNT count]".into(),
            "LOCK.TOP [COUNT count]".into(),
            "LOCK.BREAK key [OWNER owner]".into(),
            "LOCK.CANCEL key token".into(),
            "LOCK.HELP [command]".into(),
            "LOCK.LOG GET [count]|LEN|RESET".into(),
            "LOCK.ADOPTED command key [arg [arg ...]]".into(),
            "LOCK.ADOPTED_RO command key [arg [arg ...]]".into(),
            "LOCK.ADOPTION REPORT|RETURN key".into(),
            "LOCK.APPLY key effect".into(),
        ];
        assert_eq!(CATALOG.iter().map(hint).collect::<Vec<_>>(), hints);
        assert_eq!(COUNT, hints.len());
    }

    #[test]
    fn every_command_of_a_prefix_has_its_name() {
        for command in CATALOG {
            let name = match command.action {
                Action::Acquire(prefix) => format!("{}.ACQUIRE", prefix.name().to_uppercase()),
                Action::Release(prefix) => format!("{}.RELEASE", prefix.name().to_uppercase()),
                Action::Renew(prefix) => format!("{}.RENEW", prefix.name().to_uppercase()),
                Action::Adopted(container) => container.name().to_string(),
                action => format!("LOCK.{}", format!("{action:?}").to_uppercase()),
            };
            assert_eq!(command.name, name);
        }
    }

    #[test]
    fn every_command_is_described() {
        for command in CATALOG {
            assert!(command.summary.ends_with('.') && command.complexity.starts_with("O("), "{}", command.name);
        }
    }

    #[test]
    fn the_arity_matches_the_arguments() {
        for command in CATALOG.iter().filter(|command| command.action != Action::Apply) {
            let least = 1 + command.args.iter().map(Arg::least_words).sum::<i32>();
            let is_open = command.args.iter().any(Arg::is_open);
            assert_eq!(command.arity, if is_open { -least } else { least }, "{}", command.name);
        }
        assert_eq!(of_action(Action::Apply).arity, -3);
    }

    #[test]
    fn a_command_accepts_the_arguments_its_arity_allows() {
        let accepted = |action| (0..9).filter(|arguments| of_action(action).accepts(*arguments)).collect::<Vec<_>>();
        assert_eq!(accepted(Action::Held), [3]);
        assert_eq!(accepted(Action::Info), [2, 3, 4, 5, 6, 7, 8]);
        assert_eq!(accepted(Action::Release(Prefix::Lock)), [3, 4, 5, 6, 7, 8]);
        assert_eq!(accepted(Action::Acquire(Prefix::Sem)), [5, 6, 7, 8]);
    }

    #[test]
    fn flags_categories_and_access_follow_from_the_action() {
        use Access::{Delete, Read, Update};
        let (write, read) = ("write fast", "read");
        let cases = [
            (Action::Acquire(Prefix::Lock), "write deny-oom fast blocking", "write fast blocking", Update),
            (Action::Acquire(Prefix::Mlock), "write deny-oom fast blocking", "write fast blocking", Update),
            (Action::Release(Prefix::Sem), "write fast", write, Delete),
            (Action::Release(Prefix::Mlock), "write fast", write, Delete),
            (Action::Renew(Prefix::Rlock), "write fast", write, Update),
            (Action::Renew(Prefix::Mlock), "write fast", write, Update),
            (Action::Cancel, "write fast", write, Update),
            (Action::Apply, "write fast", write, Update),
            (Action::Exec, "write", "write", Read),
            (Action::Held, "readonly", read, Read),
            (Action::Info, "readonly", read, Read),
            (Action::Waiters, "readonly", read, Read),
            (Action::Break, "write admin", "admin dangerous", Delete),
            (Action::Adoption, "write admin", "admin dangerous", Update),
        ];
        for (action, flags, categories, access) in cases {
            let command = of_action(action);
            let expected = (flags, categories, Some(access));
            assert_eq!((command.flags, command.categories, command.access), expected, "{action:?}");
        }
        let without_keys = [
            (Action::Scan, "readonly", read),
            (Action::Help, "readonly", read),
            (Action::Log, "readonly admin", "admin dangerous"),
            (Action::Top, "readonly admin", "admin dangerous"),
        ];
        for (action, flags, categories) in without_keys {
            let command = of_action(action);
            assert_eq!((command.flags, command.categories, command.access), (flags, categories, None), "{action:?}");
            assert!(command.args.iter().all(|arg| arg.kind != ArgKind::Key), "{action:?}");
        }
    }

    #[test]
    fn only_mlock_takes_multiple_keys() {
        for command in CATALOG {
            assert_eq!(command.action.takes_multiple_keys(), command.name.starts_with("MLOCK."), "{}", command.name);
        }
    }
}

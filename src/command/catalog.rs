//! The commands: names, flags, keys and documentation, from which the server is told everything (`COMMAND INFO`, `COMMAND DOCS`, ACLs).

use super::parse::Family;

/// What a command does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    Acquire(Family),
    Release(Family),
    Renew(Family),
    Held,
    Info,
    Waiters,
    Cancel,
    /// Internal: an effect from the master or the append-only file.
    Apply,
}

/// How a command touches its keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    Read,
    Update,
    Delete,
}

/// One command.
#[derive(Debug)]
pub struct Command {
    pub name: &'static str,
    pub action: Action,
    pub summary: &'static str,
    pub complexity: &'static str,
    /// As the server counts it: negative where more may follow.
    pub arity: i32,
    pub flags: &'static str,
    /// Where the server lets modules set them.
    pub categories: &'static str,
    pub access: Access,
    pub args: &'static [Arg],
}

/// One argument, for `COMMAND DOCS` and the hints of redis-cli.
#[derive(Debug)]
pub struct Arg {
    pub name: &'static str,
    pub form: Form,
    pub token: Option<&'static str>,
    pub is_optional: bool,
    pub is_multiple: bool,
    pub parts: &'static [Arg],
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    Key,
    Text,
    Integer,
    Token,
    OneOf,
    Block,
}

const fn arg(name: &'static str, form: Form) -> Arg {
    Arg { name, form, token: None, is_optional: false, is_multiple: false, parts: &[] }
}

const fn token(name: &'static str, token: &'static str, form: Form) -> Arg {
    Arg { token: Some(token), ..arg(name, form) }
}

const fn optional(of: Arg) -> Arg {
    Arg { is_optional: true, ..of }
}

const fn parts(name: &'static str, form: Form, parts: &'static [Arg]) -> Arg {
    Arg { parts, ..arg(name, form) }
}

const KEY: Arg = arg("key", Form::Key);
const TOKEN: Arg = arg("token", Form::Text);
const OWNER: Arg = arg("owner", Form::Text);
const NUMKEYS: Arg = arg("numkeys", Form::Integer);
const KEYS: Arg = Arg { is_multiple: true, ..arg("key", Form::Key) };
const NEW_TOKEN: Arg = parts("token", Form::OneOf, &[arg("token", Form::Text), token("make-one", "*", Form::Token)]);
const NEW_OWNER: Arg = parts("owner", Form::OneOf, &[arg("owner", Form::Text), token("make-one", "*", Form::Token)]);
const MODE: Arg =
    parts("mode", Form::OneOf, &[token("read", "READ", Form::Token), token("write", "WRITE", Form::Token)]);
const HOLDS: Arg = optional(token("holds", "HOLDS", Form::Integer));
const LIMIT: Arg = token("limit", "LIMIT", Form::Integer);
const PERMITS: Arg = optional(parts(
    "amount",
    Form::OneOf,
    &[token("permits", "PERMITS", Form::Integer), token("holds", "HOLDS", Form::Integer)],
));
const LEASE: Arg = optional(parts(
    "lease",
    Form::OneOf,
    &[
        token("seconds", "EX", Form::Integer),
        token("milliseconds", "PX", Form::Integer),
        token("persist", "PERSIST", Form::Token),
    ],
));
const WAIT: Arg = optional(parts(
    "wait",
    Form::Block,
    &[token("milliseconds", "BLOCK", Form::Integer), optional(token("channel", "NOTIFY", Form::Text))],
));
const SESSION: Arg = optional(token("session", "SESSION", Form::Token));

const ACQUIRE: &str = "write deny-oom fast blocking";
const ACQUIRE_CATEGORIES: &str = "write fast blocking lock";
const WRITE: &str = "write fast";
// In a cluster, Redis 7.0 asks a module's command for keys that do not stand at fixed places; it does not read the key spec.
const ACQUIRE_SEVERAL: &str = "write deny-oom fast blocking getkeys-api";
const WRITE_SEVERAL: &str = "write fast getkeys-api";
const WRITE_CATEGORIES: &str = "write fast lock";
const READ: &str = "readonly";
const READ_CATEGORIES: &str = "read lock";

const ACQUIRE_COST: &str = "O(1) for the first holder, O(log N) with N other holders or waiters";
const RELEASE_COST: &str = "O(1) for the only holder, O(log N) with N other holders or waiters";

const fn command(name: &'static str, action: Action, arity: i32, args: &'static [Arg]) -> Command {
    let (flags, categories, access, complexity) = match action {
        Action::Acquire(Family::Mlock) => (ACQUIRE_SEVERAL, ACQUIRE_CATEGORIES, Access::Update, ACQUIRE_COST),
        Action::Release(Family::Mlock) => (WRITE_SEVERAL, WRITE_CATEGORIES, Access::Delete, RELEASE_COST),
        Action::Renew(Family::Mlock) => (WRITE_SEVERAL, WRITE_CATEGORIES, Access::Update, RELEASE_COST),
        Action::Acquire(_) => (ACQUIRE, ACQUIRE_CATEGORIES, Access::Update, ACQUIRE_COST),
        Action::Release(_) => (WRITE, WRITE_CATEGORIES, Access::Delete, RELEASE_COST),
        Action::Renew(_) => (WRITE, WRITE_CATEGORIES, Access::Update, RELEASE_COST),
        Action::Cancel => (WRITE, WRITE_CATEGORIES, Access::Update, "O(N) with N queued requests of the token"),
        Action::Held => (READ, READ_CATEGORIES, Access::Read, "O(1)"),
        Action::Info => (READ, READ_CATEGORIES, Access::Read, "O(N) with N holders"),
        Action::Waiters => (READ, READ_CATEGORIES, Access::Read, "O(N) with N waiters"),
        Action::Apply => ("write fast", WRITE_CATEGORIES, Access::Update, "O(log N) with N holders"),
    };
    Command { name, action, summary: "", complexity, arity, flags, categories, access, args }
}

const fn with_summary(of: Command, summary: &'static str) -> Command {
    Command { summary, ..of }
}

/// All commands of the module.
pub static CATALOG: [Command; COUNT] = [
    with_summary(
        command("LOCK.ACQUIRE", Action::Acquire(Family::Lock), -3, &[KEY, NEW_TOKEN, LEASE, WAIT, SESSION]),
        "Acquires a mutex, or queues for it.",
    ),
    with_summary(
        command("LOCK.RELEASE", Action::Release(Family::Lock), 3, &[KEY, TOKEN]),
        "Releases a mutex; the next waiter has it at once.",
    ),
    with_summary(
        command("LOCK.RENEW", Action::Renew(Family::Lock), -3, &[KEY, TOKEN, LEASE]),
        "Starts the lease of a mutex again from now.",
    ),
    with_summary(
        command("RLOCK.ACQUIRE", Action::Acquire(Family::Rlock), -3, &[KEY, NEW_OWNER, HOLDS, LEASE, WAIT, SESSION]),
        "Acquires a reentrant mutex, goes deeper, or queues for it.",
    ),
    with_summary(
        command("RLOCK.RELEASE", Action::Release(Family::Rlock), -3, &[KEY, OWNER, HOLDS]),
        "Gives back holds of a reentrant mutex; the last one hands it over.",
    ),
    with_summary(
        command("RLOCK.RENEW", Action::Renew(Family::Rlock), -3, &[KEY, OWNER, LEASE]),
        "Starts the lease of a reentrant mutex again from now.",
    ),
    with_summary(
        command(
            "RWLOCK.ACQUIRE",
            Action::Acquire(Family::Rwlock),
            -4,
            &[KEY, NEW_OWNER, MODE, HOLDS, LEASE, WAIT, SESSION],
        ),
        "Acquires a read/write lock, goes deeper, upgrades, or queues for it.",
    ),
    with_summary(
        command("RWLOCK.RELEASE", Action::Release(Family::Rwlock), -4, &[KEY, OWNER, MODE, HOLDS]),
        "Gives back holds of a read/write lock.",
    ),
    with_summary(
        command("RWLOCK.RENEW", Action::Renew(Family::Rwlock), -3, &[KEY, OWNER, LEASE]),
        "Starts the lease of a holder of a read/write lock again from now.",
    ),
    with_summary(
        command(
            "SEM.ACQUIRE",
            Action::Acquire(Family::Sem),
            -5,
            &[KEY, NEW_OWNER, LIMIT, PERMITS, LEASE, WAIT, SESSION],
        ),
        "Acquires permits of a semaphore, or queues for them.",
    ),
    with_summary(
        command("SEM.RELEASE", Action::Release(Family::Sem), -3, &[KEY, OWNER, PERMITS]),
        "Gives back permits of a semaphore.",
    ),
    with_summary(
        command("SEM.RENEW", Action::Renew(Family::Sem), -3, &[KEY, OWNER, LEASE]),
        "Starts the lease of a holder of a semaphore again from now.",
    ),
    with_summary(
        command("MLOCK.ACQUIRE", Action::Acquire(Family::Mlock), -4, &[NUMKEYS, KEYS, NEW_TOKEN, LEASE, WAIT, SESSION]),
        "Acquires several mutexes, all or nothing, or queues for them.",
    ),
    with_summary(
        command("MLOCK.RELEASE", Action::Release(Family::Mlock), -4, &[NUMKEYS, KEYS, TOKEN]),
        "Releases several mutexes.",
    ),
    with_summary(
        command("MLOCK.RENEW", Action::Renew(Family::Mlock), -4, &[NUMKEYS, KEYS, TOKEN, LEASE]),
        "Starts the leases of several mutexes again from now, of all or of none.",
    ),
    with_summary(
        command("LOCK.HELD", Action::Held, 3, &[KEY, TOKEN]),
        "Tells fence, holds and time to live if the token holds the lock, whatever its family.",
    ),
    with_summary(
        command("LOCK.INFO", Action::Info, 2, &[KEY]),
        "Tells the family, the holders and the number of waiters of a lock.",
    ),
    with_summary(
        command("LOCK.WAITERS", Action::Waiters, 2, &[KEY]),
        "Lists those who wait for a lock, in the order of the queue.",
    ),
    with_summary(
        command("LOCK.CANCEL", Action::Cancel, 3, &[KEY, TOKEN]),
        "Takes the queued requests of a token out of the queue.",
    ),
    with_summary(
        command("LOCK.APPLY", Action::Apply, -3, &[KEY, arg("effect", Form::Text)]),
        "Internal: applies a replicated effect; refused to every client.",
    ),
];

/// How many commands there are.
pub const COUNT: usize = 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_command_is_described() {
        for command in &CATALOG {
            assert!(command.summary.ends_with('.') && !command.complexity.is_empty(), "{}", command.name);
            assert!(command.args.len() < 16 && command.arity != 0, "{}", command.name);
        }
    }
}

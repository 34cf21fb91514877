//! Command names: the prefix before the dot and the verb after it.

use std::fmt;

use lock::value::claim::LockType;

/// The part of a command's name before the dot. `LOCK` and `MLOCK` are for locks of the same type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Prefix {
    /// Mutex.
    Lock,
    /// Reentrant mutex.
    Rlock,
    /// Read/write lock.
    Rwlock,
    /// Semaphore.
    Sem,
    /// Multiple mutexes at once.
    Mlock,
}

impl Prefix {
    /// The type of lock that the commands are for.
    pub const fn lock_type(self) -> LockType {
        match self {
            Prefix::Lock | Prefix::Mlock => LockType::Mutex,
            Prefix::Rlock => LockType::Reentrant,
            Prefix::Rwlock => LockType::ReadWrite,
            Prefix::Sem => LockType::Semaphore,
        }
    }

    /// Whether the commands take `numkeys key [key …]` instead of one key.
    pub const fn takes_multiple_keys(self) -> bool {
        matches!(self, Prefix::Mlock)
    }

    /// The index of the first key argument; the command's name is argument 0.
    pub const fn first_key_argument(self) -> usize {
        if self.takes_multiple_keys() {
            2
        } else {
            1
        }
    }

    /// In lower case, as in Redis's error messages.
    pub const fn name(self) -> &'static str {
        match self {
            Prefix::Lock => "lock",
            Prefix::Rlock => "rlock",
            Prefix::Rwlock => "rwlock",
            Prefix::Sem => "sem",
            Prefix::Mlock => "mlock",
        }
    }
}

/// The part of a command's name after the dot, for the commands that all prefixes have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verb {
    /// `X.ACQUIRE`.
    Acquire,
    /// `X.RELEASE`.
    Release,
    /// `X.RENEW`.
    Renew,
}

impl Verb {
    /// In lower case.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Verb::Acquire => "acquire",
            Verb::Release => "release",
            Verb::Renew => "renew",
        }
    }
}

/// The name of a command; formatted, in lower case, only for an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CommandName {
    /// Before the dot.
    pub(crate) prefix: Prefix,
    /// After the dot.
    pub(crate) verb: Verb,
}

impl fmt::Display for CommandName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.prefix.name(), self.verb.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_prefix_has_its_name_lock_type_and_first_key() {
        let cases = [
            (Prefix::Lock, "lock.acquire", LockType::Mutex, false, 1),
            (Prefix::Rlock, "rlock.acquire", LockType::Reentrant, false, 1),
            (Prefix::Rwlock, "rwlock.acquire", LockType::ReadWrite, false, 1),
            (Prefix::Sem, "sem.acquire", LockType::Semaphore, false, 1),
            (Prefix::Mlock, "mlock.acquire", LockType::Mutex, true, 2),
        ];
        for (prefix, name, lock_type, takes_multiple_keys, first_key_argument) in cases {
            assert_eq!(CommandName { prefix, verb: Verb::Acquire }.to_string(), name);
            assert_eq!(prefix.lock_type(), lock_type);
            assert_eq!(prefix.takes_multiple_keys(), takes_multiple_keys);
            assert_eq!(prefix.first_key_argument(), first_key_argument);
        }
    }

    #[test]
    fn each_verb_has_its_name() {
        let name = |verb| CommandName { prefix: Prefix::Sem, verb }.to_string();
        assert_eq!(name(Verb::Release), "sem.release");
        assert_eq!(name(Verb::Renew), "sem.renew");
    }
}

//! The commands that other lock libraries send. Each is a subcommand of `LOCK.ADOPTED` or `LOCK.ADOPTED_RO`.

use crate::catalog::{Access, Container};

/// Where a command has its keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeysAt {
    /// The first argument.
    First,
    /// All arguments.
    All,
    /// Every other argument, from the first.
    Pairs,
}

/// A command that may be translated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)] // The variants have the names of the commands.
pub enum Original {
    Set,
    SetNx,
    SetEx,
    PSetEx,
    GetSet,
    GetDel,
    MSet,
    MSetNx,
    DelIfEq,
    DelEx,
    Del,
    Unlink,
    Get,
    GetRange,
    MGet,
    HSet,
    HSetNx,
    HIncrBy,
    HDel,
    HExists,
    HGet,
    HLen,
    HKeys,
    HGetAll,
}

/// What the server and the command filter need to know about a subcommand.
#[derive(Debug)]
pub struct OriginalCommand {
    /// The command.
    pub original: Original,
    /// Its name, in upper case.
    pub name: &'static str,
    /// The container it belongs to.
    pub container: Container,
    /// The number of arguments of the original, including its name; negative: at least that many.
    pub arity: i32,
    /// Which arguments are keys; the name is argument 0.
    pub keys_at: KeysAt,
    /// Space-separated.
    pub flags: &'static str,
    /// The access to its keys that it needs at least. The ACL rules of the original are checked when it runs.
    pub access: Access,
    /// One sentence.
    pub summary: &'static str,
}

const GRANTS: &str = "write deny-oom fast";
const WAITS: &str = "write deny-oom fast blocking";
const FREES: &str = "write fast";
const READS: &str = "readonly fast";

/// All original commands, in the order of [`Original`].
pub const ORIGINALS: &[OriginalCommand] = &[
    of(
        Original::Set,
        "SET",
        -3,
        KeysAt::First,
        WAITS,
        "With NX, acquires a mutex; otherwise makes the token its holder.",
    ),
    of(Original::SetNx, "SETNX", 3, KeysAt::First, GRANTS, "Acquires a mutex without a lease."),
    of(
        Original::SetEx,
        "SETEX",
        4,
        KeysAt::First,
        GRANTS,
        "Makes the token the holder of a mutex, with a lease in seconds.",
    ),
    of(
        Original::PSetEx,
        "PSETEX",
        4,
        KeysAt::First,
        GRANTS,
        "Makes the token the holder of a mutex, with a lease in milliseconds.",
    ),
    of(
        Original::GetSet,
        "GETSET",
        3,
        KeysAt::First,
        GRANTS,
        "Makes the token the holder of a mutex and returns the previous token.",
    ),
    of(Original::GetDel, "GETDEL", 2, KeysAt::First, FREES, "Releases a mutex and returns its token."),
    of(Original::MSet, "MSET", -3, KeysAt::Pairs, GRANTS, "Makes each token the holder of its mutex, all or nothing."),
    of(Original::MSetNx, "MSETNX", -3, KeysAt::Pairs, GRANTS, "Acquires multiple mutexes, all or nothing."),
    of(Original::DelIfEq, "DELIFEQ", 3, KeysAt::First, FREES, "Releases a mutex if the token holds it."),
    of(Original::DelEx, "DELEX", -2, KeysAt::First, FREES, "With IFEQ, releases a mutex if the token holds it."),
    of(
        Original::Del,
        "DEL",
        -2,
        KeysAt::All,
        FREES,
        "Removes keys; outside of scripts, keeps those with a native hold.",
    ),
    of(Original::Unlink, "UNLINK", -2, KeysAt::All, FREES, "The same."),
    of(Original::Get, "GET", 2, KeysAt::First, READS, "Returns the token that holds a mutex."),
    of(Original::GetRange, "GETRANGE", 4, KeysAt::First, READS, "Returns a part of the token that holds a mutex."),
    of(
        Original::MGet,
        "MGET",
        -2,
        KeysAt::All,
        READS,
        "Returns the tokens that hold mutexes, and the values of strings.",
    ),
    of(Original::HSet, "HSET", -4, KeysAt::First, GRANTS, "Sets the number of the owner's holds of a reentrant mutex."),
    of(
        Original::HSetNx,
        "HSETNX",
        4,
        KeysAt::First,
        GRANTS,
        "As HSET, for an owner that does not hold the reentrant mutex.",
    ),
    of(
        Original::HIncrBy,
        "HINCRBY",
        4,
        KeysAt::First,
        FREES,
        "Changes the number of the owner's holds of a reentrant mutex.",
    ),
    of(Original::HDel, "HDEL", -3, KeysAt::First, FREES, "Releases all of the owner's holds of a reentrant mutex."),
    of(Original::HExists, "HEXISTS", 3, KeysAt::First, READS, "Returns whether the owner holds the reentrant mutex."),
    of(
        Original::HGet,
        "HGET",
        3,
        KeysAt::First,
        READS,
        "Returns the number of the owner's holds of a reentrant mutex.",
    ),
    of(
        Original::HLen,
        "HLEN",
        2,
        KeysAt::First,
        READS,
        "Returns the number of owners that hold a reentrant mutex: 1 or 0.",
    ),
    of(Original::HKeys, "HKEYS", 2, KeysAt::First, READS, "Returns the owner that holds a reentrant mutex."),
    of(
        Original::HGetAll,
        "HGETALL",
        2,
        KeysAt::First,
        READS,
        "Returns the owner of a reentrant mutex and the number of its holds.",
    ),
];

const fn of(
    original: Original,
    name: &'static str,
    arity: i32,
    keys_at: KeysAt,
    flags: &'static str,
    summary: &'static str,
) -> OriginalCommand {
    let (container, access) = match flags.as_bytes() {
        [b'r', ..] => (Container::Reads, Access::Read),
        _ => (Container::Writes, Access::Write),
    };
    OriginalCommand { original, name, container, arity, keys_at, flags, access, summary }
}

impl OriginalCommand {
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

impl Original {
    /// What the server needs to know about this command.
    #[inline]
    pub fn command(self) -> &'static OriginalCommand {
        &ORIGINALS[self as usize]
    }

    /// The command with this name, case-insensitive. Called for every command that the server runs.
    #[inline]
    pub fn named(name: &[u8]) -> Option<Original> {
        use Original::*;
        // Fast path for the most frequent commands: a general name comparison takes 40 instructions.
        if let [a, b, c] = *name {
            return match [a | 0x20, b | 0x20, c | 0x20] {
                [b'g', b'e', b't'] => Some(Get),
                [b's', b'e', b't'] => Some(Set),
                [b'd', b'e', b'l'] => Some(Del),
                _ => None,
            };
        }
        let is = |other: &str, original| name.eq_ignore_ascii_case(other.as_bytes()).then_some(original);
        match name.len() {
            4 => (is("HGET", HGet).or_else(|| is("HSET", HSet)).or_else(|| is("MGET", MGet)))
                .or_else(|| is("HDEL", HDel))
                .or_else(|| is("MSET", MSet))
                .or_else(|| is("HLEN", HLen)),
            5 => is("SETNX", SetNx)
                .or_else(|| is("SETEX", SetEx))
                .or_else(|| is("DELEX", DelEx))
                .or_else(|| is("HKEYS", HKeys)),
            6 => (is("PSETEX", PSetEx).or_else(|| is("GETSET", GetSet)).or_else(|| is("GETDEL", GetDel)))
                .or_else(|| is("MSETNX", MSetNx))
                .or_else(|| is("HSETNX", HSetNx))
                .or_else(|| is("UNLINK", Unlink)),
            7 => (is("HINCRBY", HIncrBy).or_else(|| is("HEXISTS", HExists)).or_else(|| is("DELIFEQ", DelIfEq)))
                .or_else(|| is("HGETALL", HGetAll)),
            8 => is("GETRANGE", GetRange),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_original_is_found_by_name_and_by_index() {
        for (index, command) in ORIGINALS.iter().enumerate() {
            assert_eq!(command.original as usize, index, "{}", command.name);
            assert_eq!(Original::named(command.name.as_bytes()), Some(command.original));
            assert_eq!(Original::named(command.name.to_ascii_lowercase().as_bytes()), Some(command.original));
            assert!(command.summary.ends_with('.'));
        }
        for name in ["", "DELS", "HMSET", "HVALS", "GETX", "SETX", "LOCK.ACQUIRE", "GETEX", "MSETEX", "SUBSTR"] {
            assert_eq!(Original::named(name.as_bytes()), None, "{name}");
        }
    }

    #[test]
    fn only_commands_with_options_or_multiple_keys_or_fields_take_more_arguments() {
        let more = ["SET", "MSET", "MSETNX", "DELEX", "DEL", "UNLINK", "MGET", "HSET", "HDEL"];
        for command in ORIGINALS {
            let fewest = command.arity.unsigned_abs() as usize;
            let takes_more = more.contains(&command.name);
            let accepted: Vec<usize> = (0..9).filter(|arguments| command.accepts(*arguments)).collect();
            let expected: Vec<usize> = if takes_more { (fewest..9).collect() } else { vec![fewest] };
            assert_eq!(accepted, expected, "{}", command.name);
        }
    }

    #[test]
    fn only_reading_commands_are_read_only() {
        for command in ORIGINALS {
            let hash = ["HEXISTS", "HGET", "HLEN", "HKEYS", "HGETALL"];
            let reads = ["GET", "GETRANGE", "MGET"].iter().chain(&hash).any(|name| *name == command.name);
            assert_eq!(command.container == Container::Reads, reads, "{}", command.name);
            assert_eq!(command.flags.contains("readonly"), reads, "{}", command.name);
        }
    }
}

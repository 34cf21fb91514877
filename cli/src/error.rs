//! The errors of the program. Each message is one sentence that says what to do, and each kind has an exit status.

use std::fmt;
use std::io;
use std::sync::Arc;

use redis::{ErrorKind, RedisError};

use crate::exit_code;
use crate::servers::Missing;
use crate::text::Text;
use crate::usage::MEANING_OF_N;

#[derive(Debug)]
pub enum Error {
    /// An invalid address, number or certificate on the command line.
    Options(String),
    /// The server does not reply, or the connection broke.
    Connection { server: String, cause: RedisError },
    /// Some of the servers could not be queried. The replies of the others have been printed.
    Omitted(Vec<Missing>),
    /// The server does not know the module's commands.
    NoModule { server: String },
    /// A Sentinel that was given as a server.
    Sentinel { server: String },
    /// The server replied with an error: missing permission, or a missing or wrong password.
    NoPermission(String),
    /// The key holds something other than a lock, or a lock of another type: the server's message.
    WrongType(String),
    /// Any other error reply.
    Server(String),
    /// A reply that does not have the documented shape.
    Reply(String),
    /// A file or the terminal.
    Io { what: String, cause: io::Error },
}

/// How a connection failed, if it may be a server of another protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CutOff {
    Ended,
    Silent,
}

impl Error {
    /// An invalid option that names a server.
    pub fn of_options(error: RedisError) -> Error {
        Error::Options(error.to_string())
    }

    /// Why the client could not connect.
    pub fn of_client(server: &str, error: redis_lock_client::Error) -> Error {
        match error {
            redis_lock_client::Error::Redis(error) => Error::of_command(server, error),
            redis_lock_client::Error::NoModule => Error::NoModule { server: server.to_string() },
            error => Error::Server(error.to_string()),
        }
    }

    /// The error of a command that was sent to `server`.
    pub fn of_command(server: &str, error: RedisError) -> Error {
        if error.kind() == ErrorKind::AuthenticationFailed || error.code() == Some("WRONGPASS") {
            let message = format!("{server} rejected this user or password (--user, -a, REDISCLI_AUTH)");
            return Error::NoPermission(message);
        }
        match error.kind() {
            // Input that cannot be parsed is not Redis's protocol.
            ErrorKind::Io | ErrorKind::Parse | ErrorKind::MasterNameNotFoundBySentinel => {
                return Error::Connection { server: server.to_string(), cause: error };
            }
            _ => {}
        }
        let message = message(&error);
        match error.code() {
            Some("NOPERM" | "NOAUTH") => Error::NoPermission(message),
            Some("WRONGTYPE" | "WRONGKIND") => Error::WrongType(message),
            _ if message.contains("cluster support disabled") => {
                Error::Options(format!("{server} is not a cluster node: omit -c (flock's -c is `-- sh -c` here)"))
            }
            _ if message.contains("DB index is out of range") => Error::Options(format!("{message} ({MEANING_OF_N})")),
            Some("MOVED" | "ASK") => {
                Error::Server(format!("{message} (it is a cluster node: use -c to follow redirections)"))
            }
            Some("READONLY") => Error::Server(format!("{message} ({server} is a replica: ask its primary)")),
            _ if is_module_command(&message) => Error::NoModule { server: server.to_string() },
            _ => Error::Server(message),
        }
    }

    /// The key does not hold a lock. `found`: its data type, as in TYPE.
    pub fn no_lock(key: &Text, found: &str) -> Error {
        Error::WrongType(format!("{key} is a {found}, not a lock"))
    }

    /// How the connection failed, if the server closed it before sending any RESP, or stayed silent.
    pub fn cut_off(&self) -> Option<CutOff> {
        use io::ErrorKind::{BrokenPipe, ConnectionAborted, ConnectionReset, TimedOut, UnexpectedEof};
        let Error::Connection { cause, .. } = self else { return None };
        match io_kind(cause) {
            None if cause.kind() == ErrorKind::Parse => Some(CutOff::Ended),
            Some(BrokenPipe | ConnectionAborted | ConnectionReset | UnexpectedEof) => Some(CutOff::Ended),
            Some(TimedOut) => Some(CutOff::Silent),
            _ => None,
        }
    }

    fn is_silence(&self) -> bool {
        self.cut_off() == Some(CutOff::Silent)
    }

    /// The message without the server's name, for a line that already begins with it.
    pub fn without_server(&self) -> String {
        match self {
            Error::Connection { cause, .. } if self.is_silence() => format!("it does not respond: {}", reason(cause)),
            Error::Connection { cause, .. } => format!("no connection: {}", reason(cause)),
            Error::NoModule { .. } => "it has no redis-lock module".to_string(),
            other => other.to_string(),
        }
    }

    pub fn exit_code(&self) -> u8 {
        match self {
            Error::Options(_) | Error::Sentinel { .. } => exit_code::USAGE,
            Error::Connection { .. } | Error::NoModule { .. } => exit_code::UNAVAILABLE,
            Error::Omitted(missing) => missing.first().map_or(exit_code::UNAVAILABLE, |first| first.exit_code),
            Error::NoPermission(_) => exit_code::NO_PERMISSION,
            Error::WrongType(_) => exit_code::WRONG_TYPE,
            Error::Server(_) | Error::Reply(_) => exit_code::PROTOCOL,
            Error::Io { .. } => exit_code::MACHINE,
        }
    }
}

/// Whether the unknown command belongs to the module; otherwise it is a command that was renamed on the server.
fn is_module_command(message: &str) -> bool {
    let Some((_, name)) = message.split_once("unknown command ") else { return false };
    // Redis before 7.0 quotes the name with a backtick.
    let name = name.trim_start_matches(['\'', '`']);
    ["LOCK.", "RLOCK.", "RWLOCK.", "SEM.", "MLOCK."].iter().any(|prefix| name.starts_with(prefix))
}

fn io_kind(cause: &RedisError) -> Option<io::ErrorKind> {
    // The redis crate wraps shared causes in an Arc.
    let shared = std::error::Error::source(cause)?.downcast_ref::<Arc<dyn std::error::Error + Send + Sync>>()?;
    shared.downcast_ref().map(io::Error::kind)
}

/// Why the connection failed, on one line.
fn reason(cause: &RedisError) -> String {
    match cause.kind() {
        ErrorKind::Parse => "what listens there does not speak the Redis protocol".to_string(),
        ErrorKind::MasterNameNotFoundBySentinel => "they know no primary with this name (--master)".to_string(),
        _ => cause.to_string(),
    }
}

/// An error reply as received: its code, then its sentence.
fn message(error: &RedisError) -> String {
    match (error.code(), error.detail()) {
        (Some(code), Some(detail)) => format!("{code} {detail}"),
        _ => error.to_string(),
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Connection { server, cause } if self.is_silence() => {
                write!(f, "{server} does not respond: {}", reason(cause))
            }
            Error::Connection { server, cause } => write!(f, "no connection to {server}: {}", reason(cause)),
            Error::Omitted(missing) => {
                let named = missing.iter().map(|one| format!("{} ({})", one.server, one.error));
                write!(f, "not shown: {}", named.collect::<Vec<_>>().join(", "))
            }
            Error::Sentinel { server } => {
                write!(f, "{server} is a Sentinel, not a server with locks: use --sentinel {server} --master NAME")
            }
            Error::NoModule { server } => write!(
                f,
                "{server} has no redis-lock module: add `loadmodule /path/to/libredis_lock.so` to its redis.conf and \
                 restart it, or send MODULE LOAD /path/to/libredis_lock.so where enable-module-command allows it"
            ),
            Error::Options(message)
            | Error::NoPermission(message)
            | Error::WrongType(message)
            | Error::Server(message) => f.write_str(message),
            Error::Reply(what) => write!(f, "unexpected reply from the server: {what}"),
            Error::Io { what, cause } => write!(f, "{what}: {cause}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_an_unknown_module_command_means_that_the_module_is_missing() {
        let exit_code = |reply: &[u8]| {
            let reply = redis::parse_redis_value(reply).and_then(redis::Value::extract_error);
            Error::of_command("here", reply.unwrap_err()).exit_code()
        };
        assert_eq!(
            exit_code(b"-ERR unknown command 'LOCK.TOP', with args beginning with: \r\n"),
            exit_code::UNAVAILABLE
        );
        assert_eq!(exit_code(b"-ERR unknown command `SEM.ACQUIRE`, with args: \r\n"), exit_code::UNAVAILABLE);
        // Renamed, as some hosting providers do.
        assert_eq!(
            exit_code(b"-ERR unknown command 'INFO', with args beginning with: 'lock' \r\n"),
            exit_code::PROTOCOL
        );
    }
}

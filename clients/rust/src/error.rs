//! The errors of a lock, and the classification of errors of the redis crate: whether they are transient, whether the
//! command may have run, and whether the lock was lost.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use redis::{ErrorKind, RedisError};

use crate::token::Owner;

/// Why a lock could not be acquired, renewed or released.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The lock was lost: its lease expired, an operator broke it, or its key was overwritten.
    #[error("the lock is no longer owned")]
    LockLost,
    /// The request would deadlock, so it was not queued. The message lists the owners in the cycle.
    #[error("deadlock: {0}")]
    Deadlock(String),
    /// The key holds a value that is not a lock, such as the string of a `SET NX` client.
    #[error("{0}")]
    WrongType(String),
    /// The key is a lock of another type.
    #[error("lock of another type: {0}")]
    WrongKind(String),
    /// The queue is full: the server has as many waiters as `lock.max-waiters` or `lock.max-waiters-per-key` allows.
    #[error("too many waiters: {0}")]
    MaxWaiters(String),
    /// An operator (LOCK.CANCEL, CLIENT UNBLOCK … ERROR) or a newer request with the same token ended the wait.
    #[error("the wait was cancelled: {0}")]
    Cancelled(String),
    /// Too few replicas confirmed the grant in time, so the lock was released again.
    #[error("{confirmed} of {wanted} replicas confirmed the grant within {within:?}: released")]
    NotReplicated {
        /// The number of replicas that confirmed.
        confirmed: i64,
        /// The number that [`Lock::replicas`](crate::Lock::replicas) requires.
        wanted: u32,
        /// The timeout for the replicas.
        within: Duration,
    },
    /// The lock was not granted, because another owner holds it or was granted it first. Only with
    /// [`Lock::tell_holder`](crate::Lock::tell_holder).
    #[error("not granted: '{key}' is {}", held_by(.holder))]
    NotGranted {
        /// The key, or the keys.
        key: String,
        /// The oldest holder; None if the lock has become free, or the user may not ask.
        holder: Option<Owner>,
    },
    /// [`Lock::once`](crate::Lock::once) timed out while another caller was still computing the value.
    #[error("no value within {within:?}: another caller holds the lock")]
    NotMade {
        /// The acquire timeout of the call.
        within: Duration,
    },
    /// The command of a [`Lock::run`](crate::Lock::run) or [`Guard::exec`](crate::Guard::exec) did not run, and may be
    /// sent again. The reason is the last failure of the connection, a refusal of the server, or the redirection while
    /// a slot of a cluster is moving. After every other error except [`Error::Redis`] it did not run either.
    #[error("the command did not run: {0}")]
    NotRun(#[source] RedisError),
    /// The server has not loaded the module.
    #[error(
        "this server has no redis-lock module: put `loadmodule /path/to/libredis_lock.so` into redis.conf and restart \
         it, or send MODULE LOAD /path/to/libredis_lock.so where enable-module-command allows it"
    )]
    NoModule,
    /// Options that exclude each other, or an invalid argument. Nothing was sent.
    #[error("{0}")]
    Usage(&'static str),
    /// The server could not be reached, or refused for another reason (NOPERM, OOM, …).
    #[error(transparent)]
    Redis(#[from] RedisError),
}

fn held_by(holder: &Option<Owner>) -> String {
    match holder {
        Some(holder) => format!("held by {holder}"),
        None => "held by another owner, or was until a moment ago".to_string(),
    }
}

/// The result of most calls of this crate.
pub type Result<T> = std::result::Result<T, Error>;

/// A failed command, and whether the server may have run it, with only the reply missing.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) error: RedisError,
    pub(crate) may_have_run: bool,
    /// The error is the server's reply to the command.
    pub(crate) is_reply: bool,
}

impl Failure {
    /// The command was not sent.
    pub(crate) fn unsent(error: RedisError) -> Failure {
        Failure { error, may_have_run: false, is_reply: false }
    }

    /// The command was sent. A reply that cannot be parsed means that it ran.
    pub(crate) fn sent(error: RedisError) -> Failure {
        let may_have_run = is_connection_failure(&error);
        Failure { error, may_have_run, is_reply: !may_have_run }
    }

    pub(crate) fn code(&self) -> &str {
        self.error.code().unwrap_or_default()
    }

    /// True if the request belongs to another node of a cluster, or to none while its slot moves. Nothing was run.
    pub(crate) fn is_redirection(&self) -> bool {
        matches!(self.code(), "ASK" | "MOVED" | "TRYAGAIN")
    }

    /// True if only a node of a cluster replies so: the key belongs to another node, or the keys to multiple nodes.
    pub(crate) fn is_of_cluster_node(&self) -> bool {
        matches!(self.code(), "ASK" | "MOVED" | "CROSSSLOT")
    }

    /// The error for a client of a single server, which knows no other node.
    pub(crate) fn of_cluster_node(self) -> Failure {
        let message = "the server is a node of a cluster: create the client with Client::cluster";
        let error = RedisError::from((ErrorKind::InvalidClientConfig, message, self.error.to_string()));
        Failure { error, may_have_run: false, is_reply: false }
    }

    /// The error if the command did not run for certain.
    pub(crate) fn not_run(self) -> Error {
        match Error::from(self) {
            Error::Redis(error) => Error::NotRun(error),
            error => error,
        }
    }

    /// True if the same request may succeed in a moment: on another connection, node or primary.
    pub(crate) fn is_transient(&self) -> bool {
        match self.code() {
            "ASK" | "BUSY" | "CLUSTERDOWN" | "GRACE" | "LOADING" | "MASTERDOWN" | "MISCONF" | "MOVED"
            | "NOREPLICAS" | "READONLY" | "TRYAGAIN" => true,
            // Redis's message when the server became a replica.
            "UNBLOCKED" => self.error.detail().is_some_and(|detail| detail.contains("instance state changed")),
            _ => is_connection_failure(&self.error),
        }
    }

    /// True if the reply to a release, renewal or exec means that the lock is no longer ours.
    pub(crate) fn means_lost(&self) -> bool {
        matches!(self.code(), "WRONGTYPE" | "WRONGKIND" | "NOTHELD")
    }
}

impl From<Failure> for Error {
    fn from(failure: Failure) -> Error {
        let message = || failure.error.detail().unwrap_or_default().to_string();
        match failure.code() {
            "DEADLOCK" => Error::Deadlock(message()),
            "WRONGTYPE" => Error::WrongType(message()),
            "WRONGKIND" => Error::WrongKind(message()),
            "MAXWAITERS" => Error::MaxWaiters(message()),
            "UNBLOCKED" => Error::Cancelled(message()),
            "NOTHELD" => Error::LockLost,
            _ if is_unknown_command(&failure.error) => Error::NoModule,
            _ => Error::Redis(failure.error),
        }
    }
}

/// True if the connection ended, or the reply did not arrive or was truncated.
pub(crate) fn is_connection_failure(error: &RedisError) -> bool {
    match error.kind() {
        // A retry cannot help against a refused certificate or missing file permissions.
        ErrorKind::Io => {
            let cause = io_error(error).map(io::Error::kind);
            !matches!(cause, Some(io::ErrorKind::InvalidData | io::ErrorKind::PermissionDenied))
        }
        ErrorKind::Parse => true,
        _ => false,
    }
}

/// True if the server does not know a command of the module.
pub(crate) fn is_unknown_command(error: &RedisError) -> bool {
    let Some((_, name)) = error.detail().and_then(|detail| detail.split_once("unknown command ")) else {
        return false;
    };
    // Before 7.0, Redis quotes the name with backticks.
    let name = name.trim_start_matches(['\'', '`']);
    ["LOCK.", "RLOCK.", "RWLOCK.", "SEM.", "MLOCK."].iter().any(|family| name.starts_with(family))
}

fn io_error(error: &RedisError) -> Option<&io::Error> {
    // The redis crate wraps shared causes in an Arc.
    let shared = std::error::Error::source(error)?.downcast_ref::<Arc<dyn std::error::Error + Send + Sync>>()?;
    shared.downcast_ref()
}

/// The error for a reply that no version of the module sends.
pub(crate) fn unexpected(reply: &redis::Value) -> RedisError {
    RedisError::from((ErrorKind::UnexpectedReturnType, "not a reply from the lock module", format!("{reply:?}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_of_the_module_is_unknown_in_the_words_of_every_version() {
        let is_unknown = |reply: &[u8]| {
            let reply = redis::parse_redis_value(reply).and_then(redis::Value::extract_error);
            is_unknown_command(&reply.unwrap_err())
        };
        assert!(is_unknown(b"-ERR unknown command 'RLOCK.ACQUIRE', with args beginning with: 'k' \r\n"));
        assert!(is_unknown(b"-ERR unknown command `LOCK.ACQUIRE`, with args beginning with: `k`, \r\n"));
        assert!(!is_unknown(b"-ERR unknown command 'NOSUCH', with args beginning with: \r\n"));
    }
}

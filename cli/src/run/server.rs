//! What a run asks its server in addition to the lock itself: whether it replies and accepts writes while the run
//! waits. Nothing here acquires, renews or releases a lock.

use std::convert::Infallible;
use std::os::unix::ffi::OsStrExt;
use std::time::Duration;

use redis::{cmd, Cmd};
use redis_lock_client::{make_token, Client};

use super::lock;
use crate::args::{ConnectionArgs, RunArgs};
use crate::error::Error;
use crate::message::say;

/// When a waiting run first checks that the server replies and accepts writes, and how often after that. A run that is
/// granted its lock at once checks nothing.
const FIRST_CHECK: Duration = Duration::from_millis(100);
const CHECK: Duration = Duration::from_secs(30);

/// How long finding the node that serves the key may take, for a message.
const NAMING: Duration = Duration::from_secs(1);

/// The codes of error replies that do not end a wait: the request is sent again until the server accepts it.
const PASSING: [&str; 7] = ["BUSY", "CLUSTERDOWN", "LOADING", "MASTERDOWN", "MISCONF", "NOREPLICAS", "READONLY"];

pub struct Server<'a> {
    pub client: &'a Client,
    pub args: &'a RunArgs,
    pub connection: &'a ConnectionArgs,
}

impl Server<'_> {
    /// The address of the server that serves the key, as far as it can be found.
    pub async fn name(&self) -> String {
        match tokio::time::timeout(NAMING, self.client.server_of(self.key())).await {
            Ok(Ok(server)) => server.name(),
            Ok(Err(_)) | Err(_) => self.connection.server(),
        }
    }

    pub async fn error(&self, error: redis_lock_client::Error) -> Error {
        lock::error(&self.name().await, &self.args.keys, error)
    }

    /// Reports why the wait takes long: it continues while the server is unreachable or accepts no writes.
    pub async fn report_silence(&self) -> Infallible {
        let mut is_reported = false;
        tokio::time::sleep(FIRST_CHECK).await;
        loop {
            // A replica would reply to a PING. This is a write that changes nothing, because no request has this token.
            let reply = self.send(cmd("LOCK.CANCEL").arg(self.key()).arg(make_token())).await;
            let problem = reply.err().filter(does_not_end_a_wait);
            if let (Some(problem), false) = (&problem, is_reported) {
                say(format_args!("{problem}{}; still waiting", self.connection.hint(problem)));
            }
            // Any other error counts as a reply: this user may lack permission for LOCK.CANCEL.
            is_reported = problem.is_some();
            tokio::time::sleep(CHECK).await;
        }
    }

    async fn send(&self, command: &Cmd) -> Result<(), Error> {
        match self.client.query::<redis::Value>(self.key(), command).await {
            Ok(_) => Ok(()),
            Err(error) => Err(self.error(error).await),
        }
    }

    fn key(&self) -> &[u8] {
        self.args.keys[0].as_bytes()
    }
}

fn does_not_end_a_wait(error: &Error) -> bool {
    match error {
        Error::Connection { .. } => true,
        Error::Server(message) => PASSING.iter().any(|code| message.split(' ').next() == Some(code)),
        _ => false,
    }
}

//! A client under faults: each call is one request, sent once, and recorded. The caller decides what to do about a lost
//! reply.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use support::{Client, Reply};

use crate::guarded::Guarded;
use crate::history::{Action, Operation, Outcome, Recorder};
use crate::lock::{Lock, Mode};

/// How long a client waits for a reply beyond the time that it asked the server to wait, and for a connection.
const REPLY_TIMEOUT: Duration = Duration::from_secs(2);

/// The addresses for requests, which change with a failover.
pub trait Route: Send + Sync {
    fn address(&self, key: &str) -> SocketAddr;

    /// Connects there; an error if that fails within `limit`. Overridden for a client on another machine.
    fn connect(&self, address: SocketAddr, limit: Duration) -> io::Result<Client> {
        Client::try_connect_to(address, limit)
    }
}

impl<F: Fn() -> SocketAddr + Send + Sync> Route for F {
    fn address(&self, _: &str) -> SocketAddr {
        self()
    }
}

/// How many replicas must have a client's write before it counts as done, and how long the client waits for them.
#[derive(Clone, Copy, Debug)]
pub struct Wait {
    pub replicas: usize,
    pub limit: Duration,
}

pub struct Caller {
    /// Its number in the history.
    number: usize,
    recorder: Recorder,
    route: Arc<dyn Route>,
    reply_timeout: Duration,
    wait: Option<Wait>,
    connection: Option<(SocketAddr, Client)>,
    redirect: Option<Redirect>,
}

/// The node to which a cluster redirected the request.
enum Redirect {
    /// Permanently, as far as it knows: until a request fails there.
    Moved(SocketAddr),
    /// For the next request only, and only for this key: other keys of the slot may still be on the source, and the
    /// importing node grants every request that has ASKING.
    Ask { address: SocketAddr, key: String },
}

impl Caller {
    pub fn new(number: usize, recorder: Recorder, route: Arc<dyn Route>) -> Caller {
        Caller { number, recorder, route, reply_timeout: REPLY_TIMEOUT, wait: None, connection: None, redirect: None }
    }

    /// How long it waits for replies beyond the time that it asked the server to wait.
    pub fn reply_timeout(mut self, reply_timeout: Duration) -> Caller {
        self.reply_timeout = reply_timeout;
        self
    }

    /// Counts a write as done only when that many replicas have it: `WAIT`.
    pub fn wait(mut self, wait: Option<Wait>) -> Caller {
        self.wait = wait;
        self
    }

    pub fn number(&self) -> usize {
        self.number
    }

    pub fn recorder(&self) -> &Recorder {
        &self.recorder
    }

    /// Requests the lock, and waits in its queue for up to `block`.
    pub fn acquire(
        &mut self,
        lock: &Lock,
        owner: &str,
        mode: Mode,
        lease: Duration,
        block: Option<Duration>,
    ) -> Outcome {
        // A script does not wait.
        let block = block.filter(|_| mode != Mode::Adopted);
        let mut request = mode.acquire(&lock.key, owner);
        request.extend(["PX".into(), lease.as_millis().to_string()]);
        if let Some(block) = block {
            request.extend(["BLOCK".into(), block.as_millis().to_string()]);
        }
        let reply_timeout = self.reply_timeout + block.unwrap_or_default();
        self.call(lock, owner, Action::Acquire { mode, lease, block }, &request, reply_timeout, |reply| match reply {
            nil if nil.is_null() => Outcome::NotGranted,
            grant => Outcome::Granted { fence: grant.fence() },
        })
    }

    pub fn renew(&mut self, lock: &Lock, owner: &str, mode: Mode, lease: Duration) -> Outcome {
        let mut request = mode.renew(&lock.key, owner);
        request.extend(["PX".into(), lease.as_millis().to_string()]);
        self.call(lock, owner, Action::Renew { mode, lease }, &request, self.reply_timeout, |reply| match reply.int() {
            1 => Outcome::Done,
            _ => Outcome::NotHeld,
        })
    }

    pub fn release(&mut self, lock: &Lock, owner: &str, mode: Mode) -> Outcome {
        let request = mode.release(&lock.key, owner);
        self.call(lock, owner, Action::Release { mode }, &request, self.reply_timeout, |reply| {
            if reply.int() == mode.released() {
                Outcome::Done
            } else {
                Outcome::NotHeld
            }
        })
    }

    /// Writes the lock's register as its holder: `LOCK.EXEC … SET`.
    pub fn write(&mut self, lock: &Lock, owner: &str, value: u64) -> Outcome {
        let request = ["LOCK.EXEC", &lock.key, owner, "SET", &lock.register(), &value.to_string()].map(String::from);
        self.call(lock, owner, Action::Write { value }, &request, self.reply_timeout, |reply| {
            assert_eq!(*reply, Reply::ok(), "{request:?}");
            Outcome::Done
        })
    }

    /// Reads the lock's register as its holder: `LOCK.EXEC … GET`.
    pub fn read(&mut self, lock: &Lock, owner: &str) -> Outcome {
        let request = ["LOCK.EXEC", &lock.key, owner, "GET", &lock.register()].map(String::from);
        self.call(lock, owner, Action::Read, &request, self.reply_timeout, |reply| {
            if reply.is_null() {
                Outcome::Value(None)
            } else {
                Outcome::Value(Some(reply.text().parse().expect("a register holds a number")))
            }
        })
    }

    /// Writes to the resource outside the server.
    pub fn write_by_fence(&mut self, guarded: &Guarded, lock: &Lock, owner: &str, fence: i64, value: u64) -> Outcome {
        let invoked = self.recorder.now();
        let outcome = if guarded.write(&lock.key, fence, value) { Outcome::Done } else { Outcome::NotHeld };
        self.record(lock, owner, Action::WriteByFence { fence, value }, invoked, outcome)
    }

    /// Closes its connection, like a client that dies. The next call opens a new one.
    pub fn disconnect(&mut self) {
        self.connection = None;
    }

    /// Sends one request, once; `read` converts a reply that is not an error to an outcome.
    fn call(
        &mut self,
        lock: &Lock,
        owner: &str,
        action: Action,
        request: &[String],
        reply_timeout: Duration,
        read: impl FnOnce(&Reply) -> Outcome,
    ) -> Outcome {
        let (recorder, wait) = (self.recorder.clone(), self.wait);
        // A request that was never sent is not an operation.
        let client = match self.connect(&lock.key) {
            Ok(client) => client,
            Err(error) => {
                self.forget();
                return Outcome::Refused(format!("no connection: {error}"));
            }
        };
        let invoked = recorder.now();
        let outcome = match exchange(client, request, &action, reply_timeout, wait, read) {
            Ok(Outcome::Refused(error)) => self.refused(error, &lock.key),
            Ok(outcome) => outcome,
            Err(error) => {
                if error.kind() != io::ErrorKind::TimedOut {
                    recorder.connection_broke();
                }
                self.forget();
                Outcome::Unknown
            }
        };
        self.record(lock, owner, action, invoked, outcome)
    }

    fn record(&self, lock: &Lock, owner: &str, action: Action, invoked: Duration, outcome: Outcome) -> Outcome {
        self.recorder.record(Operation {
            client: self.number,
            key: lock.key.clone(),
            owner: owner.into(),
            action,
            invoked,
            returned: self.recorder.now(),
            outcome: outcome.clone(),
        });
        outcome
    }

    /// Handles an error reply that redirects to another node, or says that the owner does not hold the lock.
    fn refused(&mut self, error: String, key: &str) -> Outcome {
        let mut words = error.split(' ');
        let (code, address) = (words.next().unwrap_or_default(), words.nth(1).and_then(|word| word.parse().ok()));
        match (code, address) {
            ("NOTHELD", _) => return Outcome::NotHeld,
            ("MOVED", Some(address)) => self.redirect = Some(Redirect::Moved(address)),
            ("ASK", Some(address)) => self.redirect = Some(Redirect::Ask { address, key: key.into() }),
            // A server that replies this may have been replaced: ask the route again.
            ("READONLY" | "CLUSTERDOWN" | "MASTERDOWN" | "UNBLOCKED", _) => self.redirect = None,
            _ => {}
        }
        Outcome::Refused(error)
    }

    /// Forgets what is known of the server, which may be outdated.
    fn forget(&mut self) {
        self.connection = None;
        self.redirect = None;
    }

    fn connect(&mut self, key: &str) -> io::Result<&mut Client> {
        let (address, is_asking) = match &self.redirect {
            Some(Redirect::Moved(address)) => (*address, false),
            Some(Redirect::Ask { address, key: asked }) if asked == key => (*address, true),
            Some(Redirect::Ask { .. }) | None => (self.route.address(key), false),
        };
        if matches!(self.redirect, Some(Redirect::Ask { .. })) {
            self.redirect = None;
        }
        let connection = match self.connection.take() {
            Some(connection) if connection.0 == address => connection,
            _ => (address, self.route.connect(address, self.reply_timeout)?),
        };
        let (_, client) = self.connection.insert(connection);
        if is_asking {
            client.try_cmd_within(&["ASKING"], self.reply_timeout)?;
        }
        Ok(client)
    }
}

/// Sends one request and returns its reply; Unknown if fewer replicas than required have its effect.
fn exchange(
    client: &mut Client,
    request: &[String],
    action: &Action,
    reply_timeout: Duration,
    wait: Option<Wait>,
    read: impl FnOnce(&Reply) -> Outcome,
) -> io::Result<Outcome> {
    let reply = client.try_cmd_within(request, reply_timeout)?;
    if let Reply::Error(error) = reply {
        return Ok(Outcome::Refused(error));
    }
    let outcome = read(&reply);
    let rests_on_a_write = match (action, &outcome) {
        (Action::Acquire { .. }, Outcome::Granted { .. }) => true,
        (Action::Renew { .. } | Action::Write { .. } | Action::Release { .. }, Outcome::Done) => true,
        // The previous release may have taken effect.
        (Action::Release { .. }, Outcome::NotHeld) => true,
        _ => false,
    };
    match wait {
        Some(wait) if rests_on_a_write && !wait.is_met(client, reply_timeout)? => Ok(Outcome::Unknown),
        _ => Ok(outcome),
    }
}

impl Wait {
    fn is_met(self, client: &mut Client, reply_timeout: Duration) -> io::Result<bool> {
        let request = ["WAIT".into(), self.replicas.to_string(), self.limit.as_millis().to_string()];
        match client.try_cmd_within(&request, reply_timeout + self.limit)? {
            Reply::Int(replicas) => Ok(usize::try_from(replicas).is_ok_and(|replicas| replicas >= self.replicas)),
            // It has become a replica.
            _ => Ok(false),
        }
    }
}

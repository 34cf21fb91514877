//! Reports what happened in an engine pass at its end, while its command or the timer may still publish: entries of
//! LOCK.LOG, lines in the server's log, keyspace events.
//!
//! | occurrence           | LOCK.LOG                  | line        | keyspace event                |
//! | -------------------- | ------------------------- | ----------- | ----------------------------- |
//! | granted              | wait, after a long one    |             | lock.acquire                  |
//! | renewed by a request |                           |             | lock.renew                    |
//! | partially released   |                           |             | lock.release                  |
//! | released             | hold, of a long one       |             | lock.release                  |
//! | connection closed    | the same                  |             | lock.release                  |
//! | lease expired        | the same, and expired (1) |             | lock.expire (2)               |
//! | broken               | the same, and broken      | broken      | lock.break                    |
//! | undelivered          | undelivered               | undelivered | lock.release                  |
//! | refused              | deadlock                  | the same (3)|                               |
//! | protected            | protected                 | protected   |                               |
//! | grace period         |                           | start, end  |                               |
//!
//! (1) If other requests waited for the key. (2) If the module removed the hold; if the server removed the key, it
//! publishes `expired`. (3) For a deadlock, and if lock.max-waiters or lock.max-waiters-per-key is reached.
//!
//! At most one line per second is logged of each kind, with the number of omitted lines. Names in it are quoted,
//! escaped and truncated.

use std::cell::RefCell;
use std::fmt::{self, Display};

use command::errors::{ErrorReply, Quoted};
use command::host::GrantedTo;
use command::lock_log::{LockLog, LogEvent, NewEntry};
use lock::engine::lock_manager::{LockError, LockManager};
use lock::engine::observer::{EndedBy, GrantChange, Observe, Occurrence};
use lock::key::{ClientId, Key, KeyRef, RequestId};
use lock::value::fence::Fence;
use lock::value::owner::Owner;
use lock::value::time::Now;

use super::keyspace_events::{self, KeyEvent};
use crate::shell::clients::WaitingClients;
use crate::shell::connections::connection_of;
use crate::shell::ffi::context::{Ctx, LogLevel};
use crate::shell::ffi::main_thread::MainThread;
use crate::shell::ffi::server::{client_address, client_user};
use crate::shell::figures::{RateLimit, FIGURES};
use crate::shell::granted_here;
use crate::shell::keyspace::removals;
use crate::shell::settings;

/// One for each kind of line.
static RATE_LIMITS: MainThread<RefCell<[RateLimit; LineKind::Protected as usize + 1]>> =
    MainThread::new(RefCell::new([RateLimit::NEVER; LineKind::Protected as usize + 1]));

/// Takes what the engine recorded during a pass.
#[inline]
pub fn take(ctx: Ctx<'_>, now: &Now, manager: &mut LockManager, clients: &mut WaitingClients, log: &mut LockLog) {
    for (key, owner, fence) in removals::take_rest() {
        manager.hold_expired(now, key.as_ref(), &owner, fence);
    }
    if !manager.observer.wait_times.is_empty() {
        take_wait_times(manager, now);
    }
    if !manager.observer.occurrences.is_empty() {
        take_occurrences(ctx, now, manager, clients, log);
    }
    clients.forget_granted();
}

#[inline(never)]
fn take_wait_times(manager: &mut LockManager, now: &Now) {
    let mut waits = FIGURES.waits.borrow_mut();
    for ms in manager.observer.wait_times.take() {
        waits.add(now.instant(), ms);
    }
}

/// Out of line, because most passes have nothing to report.
#[cold]
fn take_occurrences(ctx: Ctx<'_>, now: &Now, manager: &mut LockManager, clients: &WaitingClients, log: &mut LockLog) {
    let mut reporter =
        Reporter { ctx, now, observe: manager.observer.settings, clients, log, last_reported: None, last_client: None };
    for occurrence in manager.observer.occurrences.take() {
        reporter.report(occurrence);
    }
}

/// Reports what happened in one engine pass.
struct Reporter<'a> {
    ctx: Ctx<'a>,
    now: &'a Now,
    observe: Observe,
    /// The waiters granted in this pass, and their connections.
    clients: &'a WaitingClients,
    log: &'a mut LockLog,
    /// The request whose wait was logged last: a request for multiple keys is logged once.
    last_reported: Option<RequestId>,
    /// The client that was looked up last: most occurrences of a pass concern the same connection.
    last_client: Option<(ClientId, String)>,
}

impl Reporter<'_> {
    fn report(&mut self, occurrence: Occurrence) {
        match occurrence {
            Occurrence::Granted { key, owner, change, waited, waiters, .. } => {
                let is_long = |ms| self.observe.waits_ms.is_some_and(|long_ms| ms >= long_ms);
                if let Some(waited) =
                    waited.filter(|waited| is_long(waited.ms) && self.last_reported != Some(waited.request))
                {
                    self.last_reported = Some(waited.request);
                    // A retry that is granted at once also ends a wait; its client is the command's.
                    let client = self.clients.granted_client(waited.request).or_else(|| connection_of(self.ctx));
                    self.add(LogEvent::Wait, &key, &owner, waited.ms, waiters, client);
                }
                if change == GrantChange::Anything {
                    self.publish(KeyEvent::Acquire, key);
                }
            }
            Occurrence::Renewed { key, .. } => self.publish(KeyEvent::Renew, key),
            Occurrence::PartiallyReleased { key, .. } => self.publish(KeyEvent::Release, key),
            Occurrence::Ended { key, owner, fence, by, held_ms, waiters, session } => {
                let client = if by == EndedBy::Released { connection_of(self.ctx) } else { session };
                // An old client releases with a script or DEL and has no session: use the client that was granted the
                // lock.
                let client = client.or_else(|| self.name_granted(fence));
                let session = session.or_else(|| self.name_granted(fence));
                let is_long = self.observe.holds_ms.is_some_and(|long_ms| held_ms >= long_ms);
                // No client learned of an undelivered grant, so it was not a hold.
                if is_long && by != EndedBy::Undelivered {
                    self.add(LogEvent::Hold, &key, &owner, held_ms, waiters, client);
                }
                self.record_end(&key, &owner, by, held_ms, waiters, session);
                if let Some(event) = event_of_end(by) {
                    self.publish(event, key);
                }
            }
            Occurrence::DeadlockRefused { key, owner, cycle, waiters } => {
                let client = connection_of(self.ctx);
                self.add(LogEvent::Deadlock, &key, &owner, 0, waiters, client);
                let error = ErrorReply::from(LockError::Deadlock(cycle));
                let caller = CommandSender(self.ctx, client);
                self.line(LineKind::Deadlock, format_args!("request refused: {}; sent by {caller}", error.as_str()));
            }
            Occurrence::MaxWaitersRefused { key, owner, limit } => {
                let lock = OwnerOnKey(&owner, key.as_ref());
                self.line(LineKind::MaxWaiters, format_args!("{limit} reached, request refused: {lock}"));
            }
            Occurrence::Protected { key, owner, waiters } => {
                let client = connection_of(self.ctx);
                self.add(LogEvent::Protected, &key, &owner, 0, waiters, client);
                let (lock, caller) = (OwnerOnKey(&owner, key.as_ref()), CommandSender(self.ctx, client));
                self.line(LineKind::Protected, format_args!("lock.adopt protected a hold from {caller}: {lock}"));
            }
            Occurrence::GraceBegan { ms } => {
                self.line(LineKind::GraceBegan, format_args!("lock.grace started: no new grants for {ms} ms"))
            }
            Occurrence::GraceEnded => self.line(LineKind::GraceEnded, format_args!("lock.grace ended")),
        }
    }

    /// Reports the end of a hold, except for its duration.
    fn record_end(
        &mut self,
        key: &Key,
        owner: &Owner,
        by: EndedBy,
        held_ms: u64,
        waiters: usize,
        session: Option<ClientId>,
    ) {
        let lock = OwnerOnKey(owner, key.as_ref());
        match by {
            EndedBy::LeaseExpired(_) | EndedBy::Expired if waiters > 0 => {
                self.add(LogEvent::Expired, key, owner, held_ms, waiters, session);
            }
            EndedBy::Broken => {
                let client = connection_of(self.ctx);
                self.add(LogEvent::Broken, key, owner, held_ms, waiters, client);
                let caller = CommandSender(self.ctx, client);
                self.line(LineKind::Broken, format_args!("lock broken by {caller}: {lock}"));
            }
            EndedBy::Undelivered => {
                self.add(LogEvent::Undelivered, key, owner, held_ms, waiters, None);
                self.line(LineKind::Undelivered, format_args!("undelivered grant revoked: {lock}"));
            }
            EndedBy::Released | EndedBy::Disconnected | EndedBy::LeaseExpired(_) | EndedBy::Expired => {}
        }
    }

    /// The connection that an adopted lock was granted to. It may have closed; its address is remembered.
    fn name_granted(&mut self, fence: Fence) -> Option<ClientId> {
        let (client, GrantedTo { addr, .. }) = granted_here::granted_to(fence)?;
        self.last_client = Some((client, addr));
        Some(client)
    }

    fn add(&mut self, event: LogEvent, key: &Key, owner: &Owner, ms: u64, waiters: usize, client: Option<ClientId>) {
        if let Some(client) =
            client.filter(|client| self.last_client.as_ref().is_none_or(|(last_client, _)| last_client != client))
        {
            self.last_client = Some((client, client_address(client.0)));
        }
        let client = client.and_then(|_| self.last_client.clone());
        let (time, key) = (self.now.timestamp(), key.as_ref());
        self.log.add(NewEntry { time, event, key, owner, ms, waiters, client }, settings::log_max_len());
    }

    /// Writes a line to the server's log, unless there was one of its kind within the last second, so that clients
    /// cannot flood the log. No message is used as a C format string.
    fn line(&self, kind: LineKind, message: impl Display) {
        let Some(omitted) = RATE_LIMITS.borrow_mut()[kind as usize].admit(self.now.instant()) else { return };
        self.ctx.log(kind.level(), &format!("redis-lock: {message}{}", Omitted(omitted)));
    }

    fn publish(&self, event: KeyEvent, key: Key) {
        if self.observe.changes {
            keyspace_events::record(event, key);
        }
    }
}

/// The keyspace event for the end of a hold; `None`: the server publishes an event for the key.
fn event_of_end(by: EndedBy) -> Option<KeyEvent> {
    match by {
        EndedBy::Released | EndedBy::Disconnected | EndedBy::Undelivered => Some(KeyEvent::Release),
        EndedBy::LeaseExpired(_) => Some(KeyEvent::Expire),
        EndedBy::Broken => Some(KeyEvent::Break),
        EndedBy::Expired => None,
    }
}

/// The sender of the running command, as shown in a line.
struct CommandSender<'a>(Ctx<'a>, Option<ClientId>);

impl Display for CommandSender<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let CommandSender(ctx, Some(client)) = self else { return f.write_str("a script or a module") };
        let (user, address) = (client_user(*ctx, client.0), client_address(client.0));
        write!(f, "user {} from {address}, client {}", Quoted(&user), client.0)
    }
}

/// An owner and its key, as shown in a line.
struct OwnerOnKey<'a>(&'a Owner, KeyRef<'a>);

impl Display for OwnerOnKey<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let OwnerOnKey(owner, key) = self;
        write!(f, "owner {} on key {} in db {}", Quoted(owner.as_bytes()), Quoted(key.name), key.db)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LineKind {
    /// A lock.grace period has begun.
    GraceBegan,
    GraceEnded,
    /// A request was refused: its wait would never have ended.
    Deadlock,
    /// A grant that no client received.
    Undelivered,
    /// A request was refused: there are too many waiters.
    MaxWaiters,
    /// LOCK.BREAK.
    Broken,
    /// A translated command would have ended a native hold.
    Protected,
}

impl LineKind {
    fn level(self) -> LogLevel {
        match self {
            LineKind::GraceBegan | LineKind::GraceEnded => LogLevel::Notice,
            _ => LogLevel::Warning,
        }
    }
}

/// The end of a line if others were omitted before it.
struct Omitted(u64);

impl Display for Omitted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            0 => Ok(()),
            more => write!(f, " ({more} similar messages suppressed)"),
        }
    }
}

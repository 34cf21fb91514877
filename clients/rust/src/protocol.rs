//! How a lock is acquired, kept and released over connections that break.
//!
//! Must never happen: a second hold because of a lost reply, a lock left behind by a caller that gave up, an unreported
//! loss.

use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use redis::{Cmd, RedisError, Value};
use tokio::runtime::Handle;
use tokio::task::JoinHandle;

use crate::background::LockOwner;
use crate::connector::Connector;
use crate::error::{is_unknown_command, Error, Failure, Result};
use crate::family::{answer, held, integer, milliseconds, Answer, Family, Held, Lease, Work};
use crate::hold::{Granted, Hold};
use crate::info::{info, Info};
use crate::observer::warn_of_a_retry;
use crate::pause::{slice_of, Backoff, Resend, Wait};
use crate::token::{jittered, make_token};
use crate::transport::{ReplyTime, Transport};

/// A reply to BLOCK that is later than this counts as lost.
const LATE: Duration = Duration::from_secs(5);
/// How long a request without BLOCK is retried: long enough for a reconnect and for a slot to move.
const RESEND: Duration = Duration::from_secs(1);
/// How long the last attempt may go on after the acquire timeout.
const LAST_ATTEMPT: Duration = Duration::from_secs(1);
/// How long a cancelled caller waits for its cleanup, which then goes on in the background until the lease expires.
pub(crate) const KEPT: Duration = Duration::from_secs(1);
/// The number of holders to ask LOCK.INFO for.
const HOLDERS: u32 = 100;
/// The timeout of one cleanup attempt.
const CLEANUP: Duration = Duration::from_secs(2);

/// One acquire; retries repeat the same bytes.
#[derive(Clone, Debug)]
pub(crate) struct Request {
    pub(crate) family: Arc<Family>,
    pub(crate) token: Arc<[u8]>,
    /// The owner's count in this mode before the request, and after the grant.
    pub(crate) before: u32,
    pub(crate) holds: u32,
    /// The fence of the owner's holds in the other mode; None: it has none. A different fence means a new grant, which
    /// also follows the loss of those holds.
    pub(crate) other_fence: Option<u64>,
    pub(crate) lease: Lease,
    pub(crate) at_least: Option<Duration>,
    pub(crate) session: Session,
    pub(crate) coalesce: Coalesce,
}

/// Whether the lock is bound to the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Session {
    Bound,
    None,
}

/// Whether the end of the holder's work ends the request as well.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Coalesce {
    On,
    Off,
}

impl Coalesce {
    /// What a release reports if no work was done.
    pub(crate) fn work_of_none(self) -> Work {
        match self {
            Coalesce::On => Work::Failed,
            Coalesce::Off => Work::Done,
        }
    }
}

/// How an acquire ended.
#[derive(Debug)]
pub(crate) enum Acquired {
    Granted(Granted),
    /// The reply of the command, for a request with one.
    Ran(Granted, Result<Value>),
    Done {
        fence: u64,
    },
    NotGranted,
}

impl Request {
    fn owner(&self) -> LockOwner {
        LockOwner { key: self.family.key().to_vec(), token: self.token.to_vec() }
    }

    fn command(&self, block: Option<Duration>) -> Cmd {
        let mut command = self.family.acquire(&self.token, self.holds, self.lease);
        if let Some(block) = block {
            command.arg("BLOCK").arg(milliseconds(block));
            if self.coalesce == Coalesce::On {
                command.arg("COALESCE");
            }
        }
        if self.session == Session::Bound {
            command.arg("SESSION");
        }
        command
    }
}

/// Cleans up after an acquire that ends without a guard, even if its future is dropped: withdraws a request that is
/// queued, or was granted meanwhile. If the server cannot be reached, the lease ends the hold.
pub(crate) struct Cleanup {
    connector: Arc<Connector>,
    request: Option<Request>,
    hold: Option<Arc<Hold>>,
    /// The future may be dropped on any thread.
    runtime: Handle,
    /// True if the outcome of a request is unknown: it may be queued or granted.
    is_uncertain: bool,
}

impl Cleanup {
    /// `hold`: that of the owner; None for a request with a command.
    pub(crate) fn of(connector: &Arc<Connector>, request: &Request, hold: Option<&Arc<Hold>>) -> Cleanup {
        Cleanup {
            connector: connector.clone(),
            request: Some(request.clone()),
            hold: hold.cloned(),
            runtime: Handle::current(),
            is_uncertain: false,
        }
    }

    /// Nothing is left to clean up: the grant has a guard, or nothing was granted.
    pub(crate) fn disarm(&mut self) {
        self.is_uncertain = false;
    }

    /// Withdraws the request; `before` is the count of holds to restore.
    pub(crate) async fn run(mut self, before: u32) {
        if let (true, Some(mut request)) = (self.is_uncertain, self.request.take()) {
            request.before = before;
            // In a separate task, because the caller may be dropped meanwhile.
            let working = self.start(request);
            let _done_or_late = tokio::time::timeout(KEPT, working).await;
        }
    }

    fn start(&self, request: Request) -> JoinHandle<()> {
        let (owner, work) = (request.owner(), withdraw(self.connector.clone(), request, self.hold.clone()));
        self.connector.background.spawn_for(&self.runtime, owner, work)
    }
}

impl Drop for Cleanup {
    fn drop(&mut self) {
        if let (true, Some(request)) = (self.is_uncertain, self.request.take()) {
            self.start(request);
        }
    }
}

/// Acquires the lock. `inner`: a command to run under the grant, which is released right after it. `poll`: polls at
/// this interval instead of queueing, because other clients hold the key as a string.
pub(crate) async fn acquire(
    transport: &Transport,
    request: &Request,
    inner: Option<&Cmd>,
    wait: Wait,
    poll: Option<Duration>,
    cleanup: &mut Cleanup,
) -> Result<Acquired> {
    let background = cleanup.connector.background.clone();
    let mut retries = Retries::default();
    {
        // Pinned, because a future that is passed on would be moved.
        let asking = pin!(async {
            if !background.is_settled() {
                let owner = request.owner();
                let settled = Box::pin(background.settled_for(&owner));
                match wait {
                    Wait::Not => tokio::time::timeout(RESEND, settled).await.map_err(|_| late(None))?,
                    Wait::Until(_) | Wait::Unlimited => settled.await,
                }
            }
            ask(transport, request, inner, wait, poll, cleanup, &mut retries).await
        });
        let Some(last) = wait.ends().and_then(|ends| ends.checked_add(LAST_ATTEMPT)) else { return asking.await };
        // The limit covers the whole last attempt: connecting, the reply, finding the node of a cluster.
        if let Ok(acquired) = tokio::time::timeout_at(last.into(), asking).await {
            return acquired;
        }
    }
    Err(late(retries.cause))
}

/// `cause`: that of the previous attempt.
fn late(cause: Option<RedisError>) -> Error {
    let late = "no reply within the time to wait".to_string();
    let words = cause.map_or_else(|| late.clone(), |cause| format!("{late}; the previous attempt: {cause}"));
    Error::Redis(io::Error::new(io::ErrorKind::TimedOut, words).into())
}

/// Records why a request is sent again. Logs the first time, because its caller may wait indefinitely.
#[derive(Default)]
struct Retries {
    cause: Option<RedisError>,
    since: Option<Instant>,
    is_logged: bool,
}

impl Retries {
    fn after(&mut self, failure: Failure, family: &Family, token: &[u8]) {
        let since = *self.since.get_or_insert_with(Instant::now);
        // Every slot move causes redirections, and a start with a grace period causes GRACE.
        let is_usual = failure.code() == "GRACE" || (failure.is_redirection() && since.elapsed() < RESEND);
        if !self.is_logged && !is_usual {
            self.is_logged = true;
            warn_of_a_retry(family, token, &failure.error);
        }
        self.cause = Some(failure.error);
    }
}

async fn ask(
    transport: &Transport,
    request: &Request,
    inner: Option<&Cmd>,
    wait: Wait,
    poll: Option<Duration>,
    cleanup: &mut Cleanup,
    retries: &mut Retries,
) -> Result<Acquired> {
    let waits = poll.is_none() && !matches!(wait, Wait::Not);
    // A command is first sent over the shared connection, without BLOCK, because packets of many tasks are then written
    // together. With 48 tasks that is several times as fast as a connection for each.
    let mut tries = waits && inner.is_some();
    let mut resend = Resend::within(RESEND);
    let mut backoff = Backoff::new();
    let mut unproven = request.at_least;
    let ended = |failure: Failure| if inner.is_some() { failure.not_run() } else { failure.into() };
    loop {
        let was_there = cleanup.is_uncertain;
        cleanup.is_uncertain = true;
        let mut is_left = false;
        let asked = match unproven {
            Some(time) => Box::pin(prove(transport, request, time)).await,
            None => Ok(()),
        };
        let asked = match asked {
            Ok(()) => {
                unproven = None;
                ask_once(transport, request, inner, wait, waits && !tries, &mut is_left).await
            }
            // Nothing has been requested yet.
            Err(failure) => Err(Failure { may_have_run: false, ..failure }),
        };
        let acquired = match asked {
            Ok(acquired) => {
                cleanup.is_uncertain = is_left || matches!(acquired, Acquired::Granted(_));
                acquired
            }
            // An error reply says nothing about an earlier attempt, which may have been granted.
            Err(failure) => {
                cleanup.is_uncertain = was_there || failure.may_have_run || is_left;
                match failure.code() {
                    // The command may have run, so it is not sent again.
                    _ if inner.is_some() && failure.may_have_run => return Err(Error::Redis(failure.error)),
                    "WRONGTYPE" if poll.is_none() => return Err(Box::pin(wrong_type(transport, request)).await),
                    "WRONGTYPE" | "GRACE" if !waits => Acquired::NotGranted,
                    "GRACE" if tries => Acquired::NotGranted,
                    _ if !failure.is_transient() => return Err(ended(failure)),
                    _ if matches!(wait, Wait::Not) => {
                        if resend.is_over() {
                            return Err(ended(failure));
                        }
                        retries.after(failure, &request.family, &request.token);
                        resend.pause().await;
                        continue;
                    }
                    _ if wait.is_over() => return Err(ended(failure)),
                    _ => {
                        retries.after(failure, &request.family, &request.token);
                        tokio::time::sleep(backoff.next(wait.ends())).await;
                        continue;
                    }
                }
            }
        };
        *retries = Retries::default();
        if let Acquired::Granted(_) = acquired {
            return Ok(acquired);
        }
        if let Acquired::Ran(..) = acquired {
            return Ok(acquired);
        }
        if let Acquired::Done { .. } = acquired {
            return Ok(acquired);
        }
        backoff = Backoff::new();
        if std::mem::take(&mut tries) {
            continue;
        }
        match (wait, poll) {
            (Wait::Not, _) => return Ok(Acquired::NotGranted),
            (_, Some(poll)) => {
                // Jittered, because old and new clients that poll in step would starve each other.
                let pause = jittered(poll, 0.5, 1.5);
                if wait.ends().is_some_and(|ends| ends.saturating_duration_since(Instant::now()) < pause) {
                    return Ok(Acquired::NotGranted);
                }
                tokio::time::sleep(pause).await;
            }
            (_, None) if wait.is_over() => return Ok(Acquired::NotGranted),
            (_, None) => {}
        }
    }
}

/// Detects an `at_least` that the server will refuse, because it is above `lock.max-lease` or the user may not renew.
/// Otherwise only the release would fail, after the work. Sends a renewal with that time by an owner that holds
/// nothing, which changes nothing.
async fn prove(transport: &Transport, request: &Request, time: Duration) -> std::result::Result<(), Failure> {
    let command = request.family.renew(&make_token(), Some(time));
    match transport.send(&command, ReplyTime::Immediate, Some(LATE)).await {
        // The acquire reports a key of another type.
        Err(failure) if !failure.means_lost() => Err(failure),
        Ok(_) | Err(_) => Ok(()),
    }
}

/// Sends one request, or one slice of a wait. `is_left`: set if a hold is left after a command.
async fn ask_once(
    transport: &Transport,
    request: &Request,
    inner: Option<&Cmd>,
    wait: Wait,
    waits: bool,
    is_left: &mut bool,
) -> std::result::Result<Acquired, Failure> {
    let sent = Instant::now();
    let block = waits.then(|| {
        let slice = slice_of(transport.reply_timeout());
        wait.ends().map_or(slice, |ends| slice.min(ends.saturating_duration_since(sent)))
    });
    let time = if waits { ReplyTime::Blocking } else { ReplyTime::Immediate };
    let limit = block.map(|block| block.saturating_add(LATE));
    let (reply, ran) = match inner {
        None => (transport.send(&request.command(block), time, limit).await?, None),
        Some(inner) => {
            let Request { family, token, before, .. } = request;
            let release = family.release(token, *before, Work::Done);
            let packet = [request.command(block), family.exec(token, inner), release];
            let [granted, executed, released] = Box::pin(transport.send_packet(packet, time, limit)).await?;
            (granted?, Some((executed, released)))
        }
    };
    let received = Instant::now();
    let (fence, slot) = match answer(&reply).map_err(Failure::sent)? {
        Answer::Granted { fence, slot } => (fence, slot),
        Answer::Done { fence } => return Ok(Acquired::Done { fence }),
        Answer::NotGranted => return Ok(Acquired::NotGranted),
    };
    let granted = Granted { fence, slot, deadline: request.lease.map(|lease| sent + lease), received, holds: None };
    if let Some((executed, released)) = ran {
        *is_left = released.is_err();
        return Ok(Acquired::Ran(granted, result_of(transport, executed, &released)?));
    }
    // The lease began with the grant, which may be a slice later than the request. If that matters, ask the server how
    // much is left.
    let is_lease_whole = request.lease.is_none_or(|lease| received.duration_since(sent) < lease / 10);
    // The local clock cannot tell whether the holds in the other mode lasted until the grant.
    let is_new_grant = request.other_fence.is_some_and(|known| known != fence);
    if is_lease_whole && !is_new_grant {
        return Ok(Acquired::Granted(granted));
    }
    let asked = Instant::now();
    let question = request.family.held(&request.token);
    let asking = Box::pin(transport.send(&question, ReplyTime::Immediate, Some(LATE))).await;
    // The lock was granted, whatever the reason of this failure.
    let reply = asking.map_err(|failure| Failure { may_have_run: true, ..failure })?;
    Ok(match held(&reply).map_err(Failure::sent)? {
        Some(held) => {
            let deadline = held.left.map(|left| asked + left);
            Acquired::Granted(Granted { deadline, holds: Some(held.holds), ..granted })
        }
        None => Acquired::NotGranted,
    })
}

/// Interprets the reply of a command that followed a grant.
///
/// # Errors
/// The command did not run, and may be sent again with its request.
fn result_of(
    transport: &Transport,
    executed: std::result::Result<Value, Failure>,
    released: &std::result::Result<Value, Failure>,
) -> std::result::Result<Result<Value>, Failure> {
    let failure = match executed {
        Ok(reply) => return Ok(Ok(reply)),
        Err(failure) => failure,
    };
    Ok(Err(match failure.code() {
        "NOTHELD" => Error::LockLost,
        // It may concern the lock's key, in which case the release reports it as well, or the command's own key.
        "WRONGTYPE" if released.as_ref().is_err_and(Failure::means_lost) => Error::LockLost,
        _ if !transport.is_of_command(&failure) => return Err(failure),
        _ => own_error(failure),
    }))
}

/// Errors of the inner command are not errors of the lock, whatever their code.
fn own_error(failure: Failure) -> Error {
    if is_unknown_command(&failure.error) {
        return Error::NoModule;
    }
    Error::Redis(failure.error)
}

async fn wrong_type(transport: &Transport, request: &Request) -> Error {
    let mut command = redis::cmd("TYPE");
    command.arg(request.family.key());
    let found = match transport.send(&command, ReplyTime::Immediate, None).await {
        Ok(reply) => redis::from_redis_value::<String>(reply).unwrap_or_default(),
        Err(failure) => return failure.into(),
    };
    let hint = match found.as_str() {
        "string" => "; a SET NX client may hold it: `mixed` shares the lock with such clients",
        _ => "",
    };
    Error::WrongType(format!("the key '{}' is a {found}, not a lock{hint}", request.family.name()))
}

/// Removes the request from the queue, or releases its grant, as soon as the server can be reached within the lease.
async fn withdraw(connector: Arc<Connector>, request: Request, hold: Option<Arc<Hold>>) {
    let transport = Transport::pooled(&connector, request.family.key());
    let release = request.family.release(&request.token, request.before, request.coalesce.work_of_none());
    let limit = || hold.as_ref().map_or(request.lease, |hold| hold.withdrawal_limit(request.lease));
    // Cancel first: a release alone could arrive just before the grant.
    let _cancelled = clean_up(&transport, &request.family.cancel(&request.token), limit()).await;
    if clean_up(&transport, &release, limit()).await.is_err_and(|failure| failure.means_lost()) {
        // One of multiple keys was overwritten, and the release changed nothing.
        for command in request.family.release_each(&request.token) {
            let _released = clean_up(&transport, &command, limit()).await;
        }
    }
    // The owner still holds the other mode, which keeps the fence of an upgrade that was granted meanwhile.
    if let (Some(_), Some(hold)) = (request.other_fence, hold) {
        match ask_held(&transport, &request.family, &request.token).await {
            Ok(Some(held)) => hold.adopt(held.fence),
            Ok(None) => hold.lose(&request.family),
            Err(_) => {}
        }
    }
}

/// Sends a command of a cleanup until it has run, or for this long after its first failure.
async fn clean_up(
    transport: &Transport,
    command: &Cmd,
    limit: Option<Duration>,
) -> std::result::Result<Value, Failure> {
    let mut resend = Resend::behind(limit);
    loop {
        match transport.send(command, ReplyTime::Immediate, Some(CLEANUP)).await {
            Err(failure) if failure.is_transient() && !resend.is_over() => resend.pause().await,
            end => return end,
        }
    }
}

/// Waits until this many replicas have received the grant, which was made on this same connection.
pub(crate) async fn replicated(transport: &Transport, replicas: u32, within: Duration) -> Result<()> {
    // A timeout beyond the range of the clock is unlimited.
    let until = Instant::now().checked_add(within);
    loop {
        let left = until.map_or(Duration::MAX, |until| until.saturating_duration_since(Instant::now()));
        let wait = slice_of(transport.reply_timeout()).min(left);
        let mut command = redis::cmd("WAIT");
        command.arg(replicas).arg(milliseconds(wait));
        // Leave time for the cleanup if no reply comes.
        let reply = transport.send(&command, ReplyTime::Blocking, Some(wait.saturating_add(LATE - KEPT))).await?;
        let confirmed = integer(&reply)?;
        if confirmed >= i64::from(replicas) {
            return Ok(());
        }
        if until.is_some_and(|until| Instant::now() >= until) {
            return Err(Error::NotReplicated { confirmed, wanted: replicas, within });
        }
    }
}

/// The result of a release or a renewal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ownership {
    Held,
    Lost,
}

/// The parameters of a release.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Release {
    /// The owner's count in this mode after the release.
    pub(crate) holds: u32,
    /// Until then the release only sets the lease.
    pub(crate) kept_until: Option<Instant>,
    pub(crate) work: Work,
    /// The lock was known to be lost before.
    pub(crate) was_lost: bool,
}

/// Releases holds. A release whose reply was lost is resent. `session`: the connection that the lock is bound to. It is
/// closed after the first failure, because the server may notice that even if no other connection can reach it.
pub(crate) async fn release(
    transport: &Transport,
    family: &Family,
    token: &[u8],
    Release { holds, kept_until, work, was_lost }: Release,
    mut resend: Resend,
    session: Option<&Transport>,
) -> Result<Ownership> {
    let mut may_be_done = false;
    let mut kept_until = kept_until;
    loop {
        let kept = kept_until.map(|until| until.saturating_duration_since(Instant::now()));
        let kept = kept.filter(|left| !left.is_zero());
        let command = match kept {
            Some(left) => family.renew(token, Some(left)),
            None => family.release(token, holds, work),
        };
        let reply = match transport.send(&command, ReplyTime::Immediate, None).await {
            Ok(reply) => reply,
            Err(failure) if failure.means_lost() => {
                for command in family.release_each(token) {
                    // If this fails, the lease ends the hold.
                    let _ = Box::pin(transport.send(&command, ReplyTime::Immediate, Some(CLEANUP))).await;
                }
                return Ok(Ownership::Lost);
            }
            Err(failure) if !failure.is_transient() || resend.is_over() => return Err(failure.into()),
            Err(failure) => {
                may_be_done |= failure.may_have_run || session.is_some();
                if let Some(session) = session {
                    session.close().await;
                }
                resend.pause().await;
                continue;
            }
        };
        let was_held = match kept {
            Some(_) if integer(&reply)? == 1 => true,
            Some(_) => {
                // One of multiple keys was lost: release the others.
                kept_until = None;
                continue;
            }
            None => family.was_held(&reply)?,
        };
        // If this release finds nothing, an earlier one whose reply was lost has released the lock. If it finds some of
        // multiple keys, no earlier one has run. A loss that was known before remains a loss, even if the server still
        // had the lock.
        let was_held = !was_lost && (was_held || (may_be_done && integer(&reply)? <= 0));
        return Ok(if was_held { Ownership::Held } else { Ownership::Lost });
    }
}

/// Restarts the lease from now.
pub(crate) async fn renew(transport: &Transport, family: &Family, hold: &Hold, lease: Lease) -> Result<Ownership> {
    let mut resend = Resend::within(RESEND);
    loop {
        match renew_once(transport, family, hold, lease).await {
            Ok(ownership) => return Ok(ownership),
            Err(failure) if !failure.is_transient() || resend.is_over() => return Err(failure.into()),
            Err(_) => resend.pause().await,
        }
    }
}

/// One attempt, between two automatic renewals.
async fn renew_once(
    transport: &Transport,
    family: &Family,
    hold: &Hold,
    lease: Lease,
) -> std::result::Result<Ownership, Failure> {
    let _only = hold.renewing().await;
    // The server may still have the hold, but its loss was reported.
    if hold.is_lost() {
        return Ok(Ownership::Lost);
    }
    let mut renewal = Renewal { hold, sent: Instant::now(), lease, may_have_run: true };
    let reply = transport.send(&family.renew(&hold.token, lease), ReplyTime::Immediate, None).await;
    renewal.may_have_run = reply.as_ref().is_err_and(|failure| failure.may_have_run);
    match reply {
        Ok(reply) if integer(&reply).map_err(Failure::sent)? == 1 => {}
        Ok(_) => return Ok(Ownership::Lost),
        Err(failure) if failure.means_lost() => return Ok(Ownership::Lost),
        Err(failure) => return Err(failure),
    }
    if !hold.renewed(renewal.sent, lease) {
        return Ok(Ownership::Lost);
    }
    if let Some(lease) = lease {
        hold.renewed_with(lease);
    }
    Ok(Ownership::Held)
}

/// A renewal on request. If it may have run and has no reply, even because its future is dropped, it may have shortened
/// the lease: the deadline becomes the earlier one, and the next automatic renewal is due.
struct Renewal<'a> {
    hold: &'a Hold,
    sent: Instant,
    lease: Lease,
    may_have_run: bool,
}

impl Drop for Renewal<'_> {
    fn drop(&mut self) {
        if self.may_have_run {
            self.hold.maybe_renewed(self.sent, self.lease);
            self.hold.renew_now();
        }
    }
}

/// Sends a command that is safe to repeat, and retries it while that may help.
pub(crate) async fn query(transport: &Transport, command: &Cmd) -> std::result::Result<Value, Failure> {
    let mut resend = Resend::within(RESEND);
    loop {
        match transport.send(command, ReplyTime::Immediate, None).await {
            Err(failure) if failure.is_transient() && !resend.is_over() => resend.pause().await,
            end => return end,
        }
    }
}

/// The server's view of the token's hold; None: no hold.
pub(crate) async fn ask_held(transport: &Transport, family: &Family, token: &[u8]) -> Result<Option<Held>> {
    match query(transport, &family.held(token)).await {
        Ok(reply) => Ok(held(&reply)?),
        Err(failure) if failure.means_lost() => Ok(None),
        Err(failure) => Err(failure.into()),
    }
}

/// The slot of a semaphore that the token holds; None if it holds none.
pub(crate) async fn ask_slot(transport: &Transport, family: &Family, token: &[u8]) -> Result<Option<u32>> {
    let held = info(&query(transport, &Family::info(family.key(), 0)).await?)?;
    let mut holders = held.into_iter().flat_map(|info| info.holders);
    Ok(holders.find(|holder| holder.owner == *token).and_then(|holder| holder.slot))
}

/// LOCK.INFO of the first of its keys that is held; if none is, of the first one with waiters.
pub(crate) async fn ask_info(transport: &Transport, family: &Family) -> Result<Option<Info>> {
    let mut waited_for = None;
    for key in family.keys() {
        match info(&query(transport, &Family::info(key, HOLDERS)).await?)? {
            Some(found) if found.holding > 0 => return Ok(Some(found)),
            found => waited_for = waited_for.or(found),
        }
    }
    Ok(waited_for)
}

/// Sends LOCK.EXEC. Resends it only if it did not run for certain: for a second, and while its slot moves as long as
/// the hold lasts, because neither node runs a command on multiple keys if one of them is missing.
pub(crate) async fn execute(transport: &Transport, family: &Family, hold: &Hold, inner: &Cmd) -> Result<Value> {
    let command = family.exec(&hold.token, inner);
    let mut resend = Resend::within(RESEND);
    let mut backoff = Backoff::new();
    let mut retries = Retries::default();
    loop {
        // The server may still have the hold, but its loss was reported.
        if hold.is_lost() || hold.is_over() {
            return Err(Error::LockLost);
        }
        match transport.send(&command, ReplyTime::Immediate, None).await {
            Ok(reply) => return Ok(reply),
            Err(failure) if failure.code() == "NOTHELD" => return Err(Error::LockLost),
            // WRONGTYPE may concern the lock's key or the command's own.
            Err(failure) if failure.code() == "WRONGTYPE" => {
                return match ask_held(transport, family, &hold.token).await? {
                    Some(_) => Err(Error::Redis(failure.error)),
                    None => Err(Error::LockLost),
                };
            }
            Err(failure) if failure.may_have_run || transport.is_of_command(&failure) => {
                return Err(own_error(failure))
            }
            Err(failure) if failure.is_redirection() => retries.after(failure, family, &hold.token),
            Err(failure) if !failure.is_transient() || resend.is_over() => return Err(failure.not_run()),
            Err(failure) => retries.after(failure, family, &hold.token),
        }
        tokio::time::sleep(backoff.next(None)).await;
    }
}

//! How a lock is taken, kept and given back over connections that break.
//!
//! What must never happen: a second hold because a reply was lost, a lock left behind by a caller that gave up, a loss
//! that nobody is told of.

use std::time::{Duration, Instant};

use redis::{Cmd, Value};
use tokio::runtime::Handle;

use crate::client::Client;
use crate::error::{is_unknown_command, Error, Result, Trouble};
use crate::family::{fence, integer, milliseconds, time_held, Family, Lease};
use crate::hold::{Granted, Hold};
use crate::line::{Answer, Line};
use crate::pause::{slice_of, Backoff, Resend};
use crate::token::random_between;

/// A reply to BLOCK that is so late will not come.
const LATE: Duration = Duration::from_secs(5);
/// How long a request without BLOCK, or a release, is sent again: long enough for a reconnect and a slot's move.
const RESEND: Duration = Duration::from_secs(1);
const RELEASE: Duration = Duration::from_secs(10);
/// How long it is tried to clear up behind a caller that gave up.
const UNDO: Duration = Duration::from_secs(2);

/// How long an acquire goes on.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Patience {
    /// Without waiting.
    None,
    Until(Instant),
    ForEver,
}

impl Patience {
    pub(crate) fn ends(self) -> Option<Instant> {
        match self {
            Patience::Until(ends) => Some(ends),
            Patience::None | Patience::ForEver => None,
        }
    }

    pub(crate) fn is_over(self) -> bool {
        self.ends().is_some_and(|ends| Instant::now() >= ends)
    }
}

/// One acquire, the same bytes in each retry.
#[derive(Clone, Debug)]
pub(crate) struct Request {
    pub(crate) family: Family,
    pub(crate) token: Vec<u8>,
    /// What the owner holds of this mode before, and once it is granted.
    pub(crate) before: u32,
    pub(crate) holds: u32,
    pub(crate) lease: Lease,
    pub(crate) session: Session,
}

/// Whether the lock is to be bound to the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Session {
    Bound,
    None,
}

impl Request {
    fn words(&self, block: Option<Duration>) -> Cmd {
        let mut words = self.family.acquire(&self.token, self.holds, self.lease);
        if let Some(block) = block {
            words.arg("BLOCK").arg(milliseconds(block));
        }
        if self.session == Session::Bound {
            words.arg("SESSION");
        }
        words
    }
}

/// Clears up behind an acquire that ends without a guard, also when its future is dropped: whatever it left queued or
/// was granted meanwhile goes. What cannot be reached ends with its lease.
pub(crate) struct Undo {
    client: Client,
    request: Option<Request>,
    /// The future may be dropped on any thread.
    runtime: Handle,
    /// A request may be queued or granted that nobody knows of.
    may_be_there: bool,
}

impl Undo {
    pub(crate) fn of(client: &Client, request: &Request) -> Undo {
        Undo { client: client.clone(), request: Some(request.clone()), runtime: Handle::current(), may_be_there: false }
    }

    /// The grant has an owner, or nothing was granted.
    pub(crate) fn disarm(&mut self) {
        self.may_be_there = false;
    }

    /// Withdraws what may be there, down to what was held `before`.
    pub(crate) async fn run(mut self, before: u32) {
        if let (true, Some(mut request)) = (self.may_be_there, self.request.take()) {
            request.before = before;
            // Apart: the caller may be dropped meanwhile.
            let work = withdraw(self.client.clone(), request);
            let _panicked = self.client.background.spawn(&self.runtime, work).await;
        }
    }
}

impl Drop for Undo {
    fn drop(&mut self) {
        if let (true, Some(request)) = (self.may_be_there, self.request.take()) {
            self.client.background.spawn(&self.runtime, withdraw(self.client.clone(), request));
        }
    }
}

/// Takes the lock; None: not granted in time. `poll`: ask again so often in place of waiting in the queue, beside
/// clients that hold the key as a string.
pub(crate) async fn acquire(
    line: &Line,
    request: &Request,
    patience: Patience,
    poll: Option<Duration>,
    undo: &mut Undo,
) -> Result<Option<Granted>> {
    let waits = poll.is_none() && !matches!(patience, Patience::None);
    let mut resend = Resend::within(RESEND);
    let mut backoff = Backoff::new();
    loop {
        let was_there = undo.may_be_there;
        undo.may_be_there = true;
        let granted = match ask_once(line, request, patience, waits).await {
            Ok(granted) => granted,
            Err(Failed::Reply(error)) => return Err(error),
            Err(Failed::Trouble(trouble)) => {
                undo.may_be_there = was_there || trouble.may_have_run;
                match trouble.code() {
                    "WRONGTYPE" if poll.is_none() => return Err(wrong_type(line, request).await),
                    "WRONGTYPE" | "GRACE" if !waits => None,
                    _ if !trouble.heals() => return Err(trouble.into()),
                    _ if matches!(patience, Patience::None) => {
                        if resend.is_over() {
                            return Err(trouble.into());
                        }
                        resend.pause().await;
                        continue;
                    }
                    _ if patience.is_over() => return Err(trouble.into()),
                    _ => {
                        tokio::time::sleep(backoff.next(patience.ends())).await;
                        continue;
                    }
                }
            }
        };
        if granted.is_some() {
            return Ok(granted);
        }
        undo.may_be_there = false;
        backoff = Backoff::new();
        match (patience, poll) {
            (Patience::None, _) => return Ok(None),
            (_, Some(poll)) => {
                // Half to one and a half of it: old and new clients that poll in step would starve each other.
                let pause = poll.mul_f64(random_between(0.5, 1.5));
                if patience.ends().is_some_and(|ends| Instant::now() + pause > ends) {
                    return Ok(None);
                }
                tokio::time::sleep(pause).await;
            }
            (_, None) if patience.is_over() => return Ok(None),
            (_, None) => {}
        }
    }
}

enum Failed {
    Trouble(Trouble),
    /// No reply that we know.
    Reply(Error),
}

impl From<Trouble> for Failed {
    fn from(trouble: Trouble) -> Failed {
        Failed::Trouble(trouble)
    }
}

impl From<Error> for Failed {
    fn from(error: Error) -> Failed {
        Failed::Reply(error)
    }
}

/// One request, or one slice of a wait.
async fn ask_once(
    line: &Line,
    request: &Request,
    patience: Patience,
    waits: bool,
) -> std::result::Result<Option<Granted>, Failed> {
    let sent = Instant::now();
    let block = waits.then(|| {
        let slice = slice_of(line.reply_timeout());
        patience.ends().map_or(slice, |ends| slice.min(ends.saturating_duration_since(sent)))
    });
    let answer = if waits { Answer::Held } else { Answer::AtOnce };
    let reply = line.send(&request.words(block), answer, block.map(|block| block + LATE)).await?;
    let Some(fence) = fence(&reply)? else { return Ok(None) };
    let granted = Granted { fence, deadline: request.lease.map(|lease| sent + lease) };
    let Some(lease) = request.lease else { return Ok(Some(granted)) };
    // The lease began with the grant, which may be a slice later than the request: where that matters, the server is
    // asked how much is left.
    if sent.elapsed() < lease / 10 {
        return Ok(Some(granted));
    }
    let asked = Instant::now();
    let held = line.send(&request.family.held(&request.token), Answer::AtOnce, Some(LATE)).await?;
    Ok(time_held(&held)?.map(|left| Granted { fence, deadline: left.map(|left| asked + left) }))
}

async fn wrong_type(line: &Line, request: &Request) -> Error {
    let mut words = redis::cmd("TYPE");
    words.arg(request.family.key());
    let found = match line.send(&words, Answer::AtOnce, None).await {
        Ok(reply) => redis::from_redis_value::<String>(reply).unwrap_or_default(),
        Err(trouble) => return trouble.into(),
    };
    let hint = match found.as_str() {
        "string" => "; a SET NX client may hold it: `mixed` takes turns with such clients",
        _ => "",
    };
    Error::WrongType(format!("the key '{}' is a {found}, not a lock{hint}", request.family.name()))
}

/// Leaves neither a queued request nor a hold of it behind.
async fn withdraw(client: Client, request: Request) {
    let line = Line::pooled(&client, request.family.key());
    // In this order: a release alone could come just before the grant.
    for words in [request.family.cancel(&request.token), request.family.release(&request.token, request.before)] {
        let mut resend = Resend::within(UNDO);
        while let Err(trouble) = line.send(&words, Answer::AtOnce, Some(UNDO)).await {
            if !trouble.heals() || resend.is_over() {
                break;
            }
            resend.pause().await;
        }
    }
}

/// Waits until the grant, made on this same connection, has reached so many replicas.
pub(crate) async fn replicated(line: &Line, replicas: u32, within: Duration) -> Result<()> {
    let until = Instant::now() + within;
    loop {
        let wait = slice_of(line.reply_timeout()).min(until.saturating_duration_since(Instant::now()));
        let mut words = redis::cmd("WAIT");
        words.arg(replicas).arg(milliseconds(wait));
        let reply = line.send(&words, Answer::Held, Some(wait + LATE)).await?;
        let confirmed = integer(&reply)?;
        if confirmed >= i64::from(replicas) {
            return Ok(());
        }
        if Instant::now() >= until {
            return Err(Error::NotReplicated { confirmed, wanted: replicas, within });
        }
    }
}

/// Whether a release or renewal found the lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Found {
    Held,
    Lost,
}

/// Gives back down to `holds`. A release whose reply was lost is sent again.
pub(crate) async fn release(line: &Line, family: &Family, hold: &Hold, holds: u32, was_lost: bool) -> Result<Found> {
    let mut resend = Resend::within(RELEASE);
    let mut may_be_done = false;
    loop {
        let reply = match line.send(&family.release(&hold.token, holds), Answer::AtOnce, None).await {
            Ok(reply) => reply,
            Err(trouble) if trouble.means_lost() => return Ok(Found::Lost),
            Err(trouble) if !trouble.heals() || resend.is_over() => return Err(trouble.into()),
            Err(trouble) => {
                may_be_done |= trouble.may_have_run;
                resend.pause().await;
                continue;
            }
        };
        // The release whose reply was lost found the lock, unless the lease was over by then.
        let was_held = family.was_held(&reply)? || (may_be_done && !was_lost);
        return Ok(if was_held { Found::Held } else { Found::Lost });
    }
}

/// Starts the lease again from now.
pub(crate) async fn renew(line: &Line, family: &Family, hold: &Hold, lease: Lease) -> Result<Found> {
    let mut resend = Resend::within(RESEND);
    loop {
        let sent = Instant::now();
        let reply = match line.send(&family.renew(&hold.token, lease), Answer::AtOnce, None).await {
            Ok(reply) => reply,
            Err(trouble) if trouble.means_lost() => return Ok(Found::Lost),
            Err(trouble) if !trouble.heals() || resend.is_over() => return Err(trouble.into()),
            Err(_) => {
                resend.pause().await;
                continue;
            }
        };
        if integer(&reply)? != 1 {
            return Ok(Found::Lost);
        }
        hold.extend(lease.map(|lease| sent + lease));
        return Ok(Found::Held);
    }
}

/// A command that may be sent again while that helps.
pub(crate) async fn ask(line: &Line, words: &Cmd, answer: Answer) -> std::result::Result<Value, Trouble> {
    let mut resend = Resend::within(RESEND);
    loop {
        match line.send(words, answer, None).await {
            Err(trouble) if trouble.heals() && !resend.is_over() => resend.pause().await,
            end => return end,
        }
    }
}

/// What is left of the lease as the server has it; None: the token does not hold the lock.
pub(crate) async fn time_left(line: &Line, family: &Family, token: &[u8]) -> Result<Option<Lease>> {
    match ask(line, &family.held(token), Answer::AtOnce).await {
        Ok(reply) => time_held(&reply),
        Err(trouble) if trouble.means_lost() => Ok(None),
        Err(trouble) => Err(trouble.into()),
    }
}

/// LOCK.EXEC. Sent again only where it surely did not run.
pub(crate) async fn execute(line: &Line, family: &Family, token: &[u8], command: &Cmd) -> Result<Value> {
    let words = family.exec(token, command);
    let mut resend = Resend::within(RESEND);
    loop {
        match line.send(&words, Answer::AtOnce, None).await {
            Ok(reply) => return Ok(reply),
            Err(trouble) if trouble.code() == "NOTHELD" => return Err(Error::LockLost),
            Err(trouble) if trouble.heals() && !trouble.may_have_run && !resend.is_over() => resend.pause().await,
            Err(trouble) if is_unknown_command(&trouble.error) => return Err(Error::NoModule),
            // The command's own errors are not ours, whatever their code.
            Err(trouble) => return Err(Error::Redis(trouble.error)),
        }
    }
}

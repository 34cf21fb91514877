//! What happens to the locks of a client, told to its observer and to the log. Must never happen: an observer changes
//! the outcome of a call.

use std::panic::{catch_unwind, AssertUnwindSafe};
use std::sync::{Arc, Mutex as StdMutex};
use std::time::{Duration, Instant};

use redis::RedisError;

use crate::family::Family;
use crate::token::Owner;

/// Told of each event of a client's locks: [`Client::observer`](crate::Client::observer). A closure is one. It is
/// called in the task of the event, so it should return soon; a panic in it is caught.
pub trait Observer: Send + Sync {
    /// Something has happened.
    fn observe(&self, event: &Event);
}

impl<F: Fn(&Event) + Send + Sync> Observer for F {
    fn observe(&self, event: &Event) {
        self(event);
    }
}

/// What has happened to which lock.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Event {
    /// What has happened.
    pub kind: EventKind,
    /// The lock: its [keys](Family::keys) and its [kind](Family::kind).
    pub family: Family,
    /// The token.
    pub owner: Owner,
    /// Of the grant, if there was one.
    pub fence: Option<u64>,
}

/// What happens to a lock, from its acquire to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum EventKind {
    /// The request waits: it has had no answer for 100 ms.
    Queued,
    /// Granted to the caller.
    Granted {
        /// From the call to the grant.
        wait: Duration,
    },
    /// Ended without a grant: not granted in time, given up, done by another caller (COALESCE), or an error.
    NotGranted {
        /// From the call to its end.
        wait: Duration,
    },
    /// The lease has begun anew, by this client. The server's own renewals of a session are not told.
    Renewed,
    /// Known to be lost; without `auto_renew` and `session`, at the latest at the release. Without a confirmed release
    /// the lock counts as lost.
    Lost {
        /// From the grant until the loss was known.
        hold: Duration,
    },
    /// Released by its guard.
    Released {
        /// From the grant to the release.
        hold: Duration,
    },
}

/// A request is told as queued after this time.
const QUEUED: Duration = Duration::from_millis(100);

/// The observer of a client, and the log.
#[derive(Clone, Default)]
pub(crate) struct Observed(Option<Arc<dyn Observer>>);

impl Observed {
    pub(crate) fn by(observer: impl Observer + 'static) -> Observed {
        Observed(Some(Arc::new(observer)))
    }

    fn is_on(&self) -> bool {
        self.0.is_some() || cfg!(feature = "tracing")
    }

    pub(crate) fn tell(&self, kind: EventKind, family: &Family, token: &[u8], fence: Option<u64>) {
        if !self.is_on() {
            return;
        }
        let event = Event { kind, family: family.clone(), owner: Owner::new(token), fence };
        #[cfg(feature = "tracing")]
        log(&event);
        let Some(observer) = &self.0 else { return };
        // The panic's own message is on stderr by now.
        let _told = catch_unwind(AssertUnwindSafe(|| observer.observe(&event)));
        #[cfg(feature = "tracing")]
        if _told.is_err() {
            tracing::error!(target: "redis_lock", ?event, "the observer panicked");
        }
    }
}

/// A request for a lock, or a command under it, is sent again.
pub(crate) fn warn_of_a_retry(_family: &Family, _token: &[u8], _error: &RedisError) {
    #[cfg(feature = "tracing")]
    {
        let (key, owner, error) = (_family.name(), Owner::new(_token), _error);
        tracing::warn!(target: "redis_lock", key, %owner, %error, "the request failed: retrying");
    }
}

#[cfg(feature = "tracing")]
fn log(event: &Event) {
    let (key, owner, fence) = (event.family.name(), &event.owner, event.fence);
    let (what, time) = match event.kind {
        EventKind::Queued => ("queued", None),
        EventKind::Granted { wait } => ("granted", Some(wait)),
        EventKind::NotGranted { wait } => ("not granted", Some(wait)),
        EventKind::Renewed => ("renewed", None),
        EventKind::Lost { hold } => ("lost", Some(hold)),
        EventKind::Released { hold } => ("released", Some(hold)),
    };
    tracing::debug!(target: "redis_lock", key, %owner, fence, after = time.map(tracing::field::debug), "{what}");
}

/// One call that acquires, from its beginning to its one end: also if its future is dropped.
pub(crate) struct Attempt<'a> {
    observed: &'a Observed,
    family: &'a Family,
    began: Instant,
    token: StdMutex<Vec<u8>>,
    is_over: bool,
}

impl<'a> Attempt<'a> {
    pub(crate) fn new(observed: &'a Observed, family: &'a Family) -> Attempt<'a> {
        Attempt { observed, family, began: Instant::now(), token: StdMutex::default(), is_over: false }
    }

    /// The owner of its request.
    pub(crate) fn asks_as(&self, token: &[u8]) {
        if !self.observed.is_on() {
            return;
        }
        *self.token.lock().expect(UNPOISONED) = token.to_vec();
    }

    /// Tells after a while that it waits.
    pub(crate) async fn queued(&self) {
        if !self.observed.is_on() {
            return std::future::pending().await;
        }
        tokio::time::sleep(QUEUED).await;
        self.observed.tell(EventKind::Queued, self.family, &self.token.lock().expect(UNPOISONED), None);
        std::future::pending().await
    }

    pub(crate) fn granted(mut self, fence: u64) {
        self.is_over = true;
        self.tell_end(EventKind::Granted { wait: self.began.elapsed() }, Some(fence));
    }

    fn tell_end(&self, kind: EventKind, fence: Option<u64>) {
        self.observed.tell(kind, self.family, &self.token.lock().expect(UNPOISONED), fence);
    }
}

impl Drop for Attempt<'_> {
    fn drop(&mut self) {
        if !self.is_over {
            self.tell_end(EventKind::NotGranted { wait: self.began.elapsed() }, None);
        }
    }
}

const UNPOISONED: &str = "nothing panics while it is locked";

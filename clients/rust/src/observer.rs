//! The events of a client's locks, for its observer and the log. An observer must never change the outcome of a call.

use std::panic::{catch_unwind, AssertUnwindSafe};
use std::sync::{Arc, Mutex as StdMutex};
use std::time::{Duration, Instant};

use redis::RedisError;

use crate::family::Family;
use crate::token::Owner;

/// Receives each event of a client's locks; see [`Client::observer`](crate::Client::observer). A closure is an
/// observer. It is called in the task of the event, so it should return quickly; a panic in it is caught.
pub trait Observer: Send + Sync {
    /// Handles an event.
    fn observe(&self, event: &Event);
}

impl<F: Fn(&Event) + Send + Sync> Observer for F {
    fn observe(&self, event: &Event) {
        self(event);
    }
}

/// An event of a lock.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Event {
    /// The kind of the event.
    pub kind: EventKind,
    /// The lock, with its [keys](Family::keys) and its [type](Family::kind).
    pub family: Family,
    /// The owner ID.
    pub owner: Owner,
    /// The fencing token of the grant, if there was one.
    pub fence: Option<u64>,
}

/// The kinds of events, from the acquire of a lock to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum EventKind {
    /// The request waits: it got no reply within 100 ms.
    Queued,
    /// The lock was granted.
    Granted {
        /// The time from the call to the grant.
        wait: Duration,
    },
    /// The acquire ended without a grant: it timed out, was cancelled, failed, or another caller did the work
    /// (COALESCE).
    NotGranted {
        /// The time from the call to its end.
        wait: Duration,
    },
    /// This client has renewed the lease. The server's renewals of a session are not reported.
    Renewed,
    /// The lock is known to be lost: without `auto_renew` and `session`, at the latest at the release. Without a
    /// confirmed release the lock counts as lost.
    Lost {
        /// The time from the grant until the loss was known.
        hold: Duration,
    },
    /// The guard released the lock.
    Released {
        /// The time from the grant to the release.
        hold: Duration,
    },
}

/// A request is reported as queued after this time.
const QUEUED: Duration = Duration::from_millis(100);

/// The observer of a client, and the log.
#[derive(Clone, Default)]
pub(crate) struct Observed(Option<Arc<dyn Observer>>);

impl Observed {
    pub(crate) fn by(observer: impl Observer + 'static) -> Observed {
        Observed(Some(Arc::new(observer)))
    }

    fn is_on(&self) -> bool {
        #[cfg(feature = "tracing")]
        let is_logged = tracing::enabled!(target: "redis_lock", tracing::Level::DEBUG);
        #[cfg(not(feature = "tracing"))]
        let is_logged = false;
        self.0.is_some() || is_logged
    }

    pub(crate) fn notify(&self, kind: EventKind, family: &Family, token: &[u8], fence: Option<u64>) {
        if !self.is_on() {
            return;
        }
        let event = Event { kind, family: family.clone(), owner: Owner::new(token), fence };
        #[cfg(feature = "tracing")]
        log(&event);
        let Some(observer) = &self.0 else { return };
        // The panic's own message is on stderr already.
        let _observed = catch_unwind(AssertUnwindSafe(|| observer.observe(&event)));
        #[cfg(feature = "tracing")]
        if _observed.is_err() {
            tracing::error!(target: "redis_lock", ?event, "the observer panicked");
        }
    }
}

/// Logs that a request for a lock, or a command under it, is being retried.
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

/// One call that acquires a lock. Its end is reported once, even if its future is dropped.
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

    /// Sets the owner of its request.
    pub(crate) fn asks_as(&self, token: &[u8]) {
        if !self.observed.is_on() {
            return;
        }
        *self.token.lock().expect(UNPOISONED) = token.to_vec();
    }

    /// Reports after a while that it is queued.
    pub(crate) async fn queued(&self) {
        if !self.observed.is_on() {
            return std::future::pending().await;
        }
        tokio::time::sleep(QUEUED).await;
        self.observed.notify(EventKind::Queued, self.family, &self.token.lock().expect(UNPOISONED), None);
        std::future::pending().await
    }

    pub(crate) fn granted(mut self, fence: u64) {
        self.is_over = true;
        self.report_end(EventKind::Granted { wait: self.began.elapsed() }, Some(fence));
    }

    fn report_end(&self, kind: EventKind, fence: Option<u64>) {
        self.observed.notify(kind, self.family, &self.token.lock().expect(UNPOISONED), fence);
    }
}

impl Drop for Attempt<'_> {
    fn drop(&mut self) {
        if !self.is_over {
            self.report_end(EventKind::NotGranted { wait: self.began.elapsed() }, None);
        }
    }
}

const UNPOISONED: &str = "nothing panics while it is locked";

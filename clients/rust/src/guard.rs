//! The guard of an acquired lock, which releases it.

use std::fmt;
use std::future::Future;
use std::sync::{Arc, Mutex as StdMutex};
use std::time::{Duration, Instant};

use redis::{Cmd, FromRedisValue};
use tokio::task::JoinHandle;

use crate::background::LockOwner;
use crate::error::{Error, Result};
use crate::family::{Family, Work};
use crate::hold::{Granted, Hold};
use crate::observer::EventKind;
use crate::pause::Resend;
use crate::protocol::{self, Ownership, Release};
use crate::transport::Transport;
use crate::turn::Prompt;

/// An acquired lock. [`Guard::release`] releases it and reports if it was no longer held. Dropping a guard releases the
/// lock in the background, retries until the server confirms or the lease expires (for 10 s if its owner keeps other
/// holds), and reports no error.
#[must_use = "dropping a guard releases the lock"]
pub struct Guard {
    hold: Arc<Hold>,
    family: Arc<Family>,
    fence: u64,
    slot: Option<u32>,
    since: Instant,
    /// The number of the owner's holds that this guard releases.
    holds: u32,
    end: StdMutex<End>,
    /// From the start of a release until it has succeeded or goes on in the background: no acquire of the owner comes
    /// in between, because the release would then end its grant.
    releasing: StdMutex<Option<Prompt>>,
}

/// What to do when the guard is dropped.
#[derive(Clone, Copy)]
enum End {
    /// Release, and report this about the work.
    Release(Work),
    Nothing,
}

impl Guard {
    /// `holds`: how many of the owner's holds it releases. `dropped`: what dropping it reports about the work.
    pub(crate) fn new(hold: Arc<Hold>, family: Arc<Family>, granted: Granted, holds: u32, dropped: Work) -> Guard {
        let Granted { fence, slot, received, .. } = granted;
        let (end, releasing) = (StdMutex::new(End::Release(dropped)), StdMutex::default());
        Guard { hold, family, fence, slot, since: received, holds, end, releasing }
    }

    pub(crate) fn hold(&self) -> &Arc<Hold> {
        &self.hold
    }

    /// The fencing token, which increases with every grant. Send it to the resource that the lock protects, which
    /// refuses older ones.
    pub fn fence(&self) -> u64 {
        self.fence
    }

    /// The slot of a [`Client::semaphore_slot`](crate::Client::semaphore_slot): a number from 0, below the limit, that
    /// no other holder has (a worker ID, a GPU, a port). None for other locks.
    pub fn slot(&self) -> Option<u32> {
        self.slot
    }

    /// The owner ID, as LOCK.INFO shows it.
    pub fn token(&self) -> &[u8] {
        &self.hold.token
    }

    /// How many holds the owner has in this mode, over all its guards; for a semaphore, how many permits.
    pub fn holds(&self) -> u32 {
        self.hold.held(self.family.mode())
    }

    /// The remaining time of the lease, counted from before the request was sent; zero if it has expired, None without
    /// a lease.
    pub fn remaining(&self) -> Option<Duration> {
        self.hold.remaining()
    }

    /// True if the lock is known to be lost, at the latest when the lease has expired by the local monotonic clock.
    /// Does not ask the server; see [`Guard::is_held`].
    pub fn is_lost(&self) -> bool {
        self.hold.is_lost()
    }

    /// Resolves when the lock is known to be lost: with [`auto_renew`](crate::Lock::auto_renew) within a third of the
    /// lease, with [`session`](crate::Lock::session) when its connection ends, and otherwise when the lease expires.
    /// Never resolves after a release.
    ///
    /// ```no_run
    /// # use redis_lock_client::{Error, Guard, Result};
    /// # async fn work() {}
    /// # async fn guarded(guard: Guard) -> Result<()> {
    /// tokio::select! {
    ///     () = work() => guard.release().await,
    ///     () = guard.lost() => Err(Error::LockLost),
    /// }
    /// # }
    /// ```
    pub fn lost(&self) -> impl Future<Output = ()> + Send + 'static {
        self.hold.lost()
    }

    /// Asks the server whether the lock is still held.
    ///
    /// # Errors
    /// [`Error::Redis`] if the server could not be reached for a second.
    pub async fn is_held(&self) -> Result<bool> {
        Ok(protocol::ask_held(&self.transport(), &self.family, &self.hold.token).await?.is_some())
    }

    /// Releases the lock; within the time of [`at_least`](crate::Lock::at_least), only sets the lease to the rest of
    /// it.
    ///
    /// # Errors
    /// [`Error::LockLost`] if the lock was lost before. [`Error::Redis`] if the server could not be reached for 10 s:
    /// the lock is no longer renewed, so it expires with its lease.
    pub async fn release(self) -> Result<()> {
        self.end(Work::Done).await
    }

    /// Releases the lock after work that was not done: the next of the requests that wait with COALESCE
    /// ([`Lock::once`](crate::Lock::once)) is granted the lock. Frees the lock even within the time of
    /// [`at_least`](crate::Lock::at_least).
    ///
    /// # Errors
    /// As [`Guard::release`].
    pub async fn release_failed(self) -> Result<()> {
        self.end(Work::Failed).await
    }

    /// If the future is dropped early, or the release fails, it is retried in the background.
    pub(crate) async fn end(&self, work: Work) -> Result<()> {
        self.set_end(End::Release(work));
        let turn = self.hold.turn(self.family.mode());
        self.set_releasing(Some(turn.comes_first()));
        let prompt = turn.comes_first();
        let released = self.held().release(work, prompt, Caller::Waits).await;
        if let Ok(()) | Err(Error::LockLost) = released {
            self.set_end(End::Nothing);
            self.set_releasing(None);
        }
        released
    }

    /// Releases for a caller that has an error, which must be neither hidden nor delayed: waits for the release only as
    /// long as for the cleanup of a cancelled acquire. It then goes on in the background.
    pub(crate) async fn end_after_error(&self, work: Work) {
        self.set_end(End::Nothing);
        let _done_or_late = tokio::time::timeout(protocol::KEPT, self.release_in_background(work)).await;
    }

    /// Releases in the background, and retries until the server confirms or the lease expires. If holds in the same
    /// mode remain, whose release waits for this one, it retries only as long as for a caller.
    fn release_in_background(&self, work: Work) -> JoinHandle<()> {
        let prompt = self.hold.turn(self.family.mode()).comes_first();
        let held = self.held();
        let release = async move { drop(held.release(work, prompt, Caller::Gone).await) };
        let background = &self.hold.connector.background;
        if self.family.counts() {
            // The turn keeps the release and the owner's next request apart.
            background.spawn(&self.hold.runtime, release)
        } else {
            let owner = LockOwner { key: self.family.key().to_vec(), token: self.hold.token.to_vec() };
            background.spawn_for(&self.hold.runtime, owner, release)
        }
    }

    fn held(&self) -> Held {
        let (hold, family) = (self.hold.clone(), self.family.clone());
        Held { hold, family, holds: self.holds, fence: self.fence, since: self.since }
    }

    fn set_end(&self, end: End) {
        *self.end.lock().expect("nothing panics while it is locked") = end;
    }

    fn set_releasing(&self, releasing: Option<Prompt>) {
        *self.releasing.lock().expect("nothing panics while it is locked") = releasing;
    }

    /// Hands off the lock to another process: nothing is released, and this client stops renewing the lease. The other
    /// process calls [`Guard::from_token`] with this token before the lease expires. The lock of a session cannot be
    /// handed off: if this is its only guard, it is released with its connection.
    #[must_use = "a transferred hold must be released by its token"]
    pub fn into_token(self) -> Vec<u8> {
        self.set_end(End::Nothing);
        if self.hold.holds_only(self.family.mode()) && self.holds() == self.holds {
            self.hold.end();
        }
        self.hold.token.to_vec()
    }

    /// Adds this time to what is left of the lease, by the server's clock. Later renewals use the resulting length.
    ///
    /// To restart the lease instead, use [`Guard::renew`]; `extend` of the clients for Node and Java does that.
    ///
    /// # Errors
    /// [`Error::LockLost`] if the lock was lost; [`Error::Usage`] for a lock without a lease and for a time of zero;
    /// [`Error::Redis`] if the server could not be reached for a second, or if the lease is longer than
    /// `lock.max-lease`.
    pub async fn extend(&self, by: Duration) -> Result<()> {
        checked(by)?;
        if self.is_lost() {
            return self.lost_now();
        }
        let Some(held) = protocol::ask_held(&self.transport(), &self.family, &self.hold.token).await? else {
            return self.lost_now();
        };
        let Some(left) = held.left else { return Err(Error::Usage("a lock without a lease cannot be extended")) };
        self.renew(left.saturating_add(by)).await
    }

    /// Restarts the lease: it expires this long from now. Later renewals use this length as well. Waits for the reply
    /// to an automatic renewal that is under way. After [`Error::Redis`] the lease may have been restarted, and
    /// [`Guard::remaining`] is that of the shorter one.
    ///
    /// # Errors
    /// The errors of [`Guard::extend`].
    pub async fn renew(&self, lease: Duration) -> Result<()> {
        checked(lease)?;
        match protocol::renew(&self.transport(), &self.family, &self.hold, Some(lease)).await? {
            Ownership::Held => {
                let observed = &self.hold.connector.observed;
                observed.notify(EventKind::Renewed, &self.family, self.token(), Some(self.fence));
                Ok(())
            }
            Ownership::Lost => self.lost_now(),
        }
    }

    /// Runs a command on the server only while the lock is held, atomically (LOCK.EXEC). The keys of the command must
    /// be in the slot of the lock. While that slot moves, the command is sent again as long as the guard holds the
    /// lock.
    ///
    /// # Errors
    /// [`Error::LockLost`] if the lock was lost, [`Error::NotRun`] if the command could not be sent: in both cases it
    /// did not run. [`Error::Redis`] is the command's own error, or that of a broken connection, after which the
    /// command may have run.
    pub async fn exec<T: FromRedisValue>(&self, command: &Cmd) -> Result<T> {
        match protocol::execute(&self.transport(), &self.family, &self.hold, command).await {
            Ok(reply) => Ok(redis::from_redis_value(reply).map_err(redis::RedisError::from)?),
            Err(Error::LockLost) => self.lost_now(),
            Err(error) => Err(error),
        }
    }

    fn lost_now<T>(&self) -> Result<T> {
        self.hold.lose(&self.family);
        Err(Error::LockLost)
    }

    fn transport(&self) -> Transport {
        Transport::pooled(&self.hold.connector, self.family.key())
    }
}

fn checked(lease: Duration) -> Result<()> {
    match lease {
        Duration::ZERO => Err(Error::Usage("a lease must be greater than zero")),
        _ => Ok(()),
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        if let End::Release(work) = *self.end.lock().expect("nothing panics while it is locked") {
            self.release_in_background(work);
        }
    }
}

impl fmt::Debug for Guard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Guard")
            .field("key", &self.family.name())
            .field("token", &String::from_utf8_lossy(self.token()))
            .field("fence", &self.fence)
            .finish_non_exhaustive()
    }
}

/// The holds of one guard.
struct Held {
    hold: Arc<Hold>,
    family: Arc<Family>,
    holds: u32,
    fence: u64,
    since: Instant,
}

/// Whether the caller of a release still waits for it.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Caller {
    /// After an error the release goes on in the background.
    Waits,
    Gone,
}

impl Held {
    async fn release(&self, work: Work, prompt: Prompt, caller: Caller) -> Result<()> {
        let (hold, family, mode) = (&self.hold, &self.family, self.family.mode());
        let _turn = hold.turn(mode).take_first(prompt).await;
        let left = hold.held(mode).saturating_sub(self.holds);
        let is_last = left == 0 && hold.holds_only(mode);
        let kept_until = hold.kept_until().filter(|_| is_last && work == Work::Done);
        let release = Release { holds: left, kept_until, work, was_lost: hold.is_lost() };
        hold.release_started(mode, left);
        if is_last {
            // A renewal after the release would find no hold and report a loss.
            hold.end();
        }
        let transport = Transport::pooled(&hold.connector, family.key());
        let session = hold.session().filter(|_| is_last);
        let resend = match caller {
            Caller::Gone if left == 0 => Resend::behind(hold.left_on_server()),
            Caller::Gone | Caller::Waits => Resend::of_a_release(),
        };
        let released = protocol::release(&transport, family, &hold.token, release, resend, session).await;
        if let Some(session) = session {
            session.close().await;
        }
        match released {
            Ok(Ownership::Held) => {
                hold.release_ended(mode, left);
                let kind = EventKind::Released { hold: self.since.elapsed() };
                hold.connector.observed.notify(kind, family, &hold.token, Some(self.fence));
                Ok(())
            }
            Ok(Ownership::Lost) => {
                hold.release_ended(mode, left);
                hold.lose(family);
                hold.report_loss(family);
                Err(Error::LockLost)
            }
            Err(error) => {
                if caller == Caller::Gone {
                    // The owner's next request states the count without these holds.
                    hold.release_ended(mode, left);
                    if is_last {
                        hold.report_loss(family);
                    }
                }
                Err(error)
            }
        }
    }
}

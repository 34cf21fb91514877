//! What is held: a guard gives it back.

use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use redis::{Cmd, FromRedisValue};

use crate::error::{Error, Result};
use crate::family::Family;
use crate::hold::Hold;
use crate::protocol::{self, Ownership, Release};
use crate::transport::Transport;

/// A lock that is held. [`Guard::release`] gives it back and says whether it was still held; a guard that is dropped
/// gives it back in the background, as well as it can, and tells nobody.
#[must_use = "a guard that is dropped gives the lock back"]
pub struct Guard {
    hold: Arc<Hold>,
    family: Family,
    fence: u64,
    is_released: bool,
}

impl Guard {
    pub(crate) fn new(hold: Arc<Hold>, family: Family, fence: u64) -> Guard {
        Guard { hold, family, fence, is_released: false }
    }

    pub(crate) fn hold(&self) -> &Arc<Hold> {
        &self.hold
    }

    /// The fencing token: it grows with every grant. Give it to whatever the lock protects, which refuses older ones.
    pub fn fence(&self) -> u64 {
        self.fence
    }

    /// The owner, as LOCK.INFO shows it.
    pub fn token(&self) -> &[u8] {
        &self.hold.token
    }

    /// How often the owner holds it in this mode, with other guards of the same owner; a semaphore's permits.
    pub fn holds(&self) -> u32 {
        self.hold.held(self.family.mode())
    }

    /// How long the lease lasts at least, counted from before the request was sent; zero when it is over, None when it
    /// has no end.
    pub fn remaining(&self) -> Option<Duration> {
        self.hold.remaining()
    }

    /// Whether the lock is known to be lost; by a monotonic local clock at the latest when the lease is over.
    pub fn is_lost(&self) -> bool {
        self.hold.is_lost()
    }

    /// Is ready when the lock is known to be lost: with [`auto_renew`](crate::Lock::auto_renew) within a third of the
    /// lease, with [`session`](crate::Lock::session) when its connection ends, otherwise when the lease is over. Never
    /// when it was released.
    pub fn lost(&self) -> impl Future<Output = ()> + Send + 'static {
        self.hold.lost()
    }

    /// Whether the server says that it is held.
    ///
    /// # Errors
    /// [`Error::Redis`] when the server could not be asked for a second.
    pub async fn is_held(&self) -> Result<bool> {
        Ok(protocol::time_left(&self.transport(), &self.family, &self.hold.token).await?.is_some())
    }

    /// Gives it back, within [`at_least`](crate::Lock::at_least) by leaving it to its lease.
    ///
    /// # Errors
    /// [`Error::LockLost`] when it was lost before. [`Error::Redis`] when the server could not be told for 10 s:
    /// nothing renews the lock any more, so its lease ends it.
    pub async fn release(mut self) -> Result<()> {
        let released = give_back(&self.hold, &self.family).await;
        // Dropped before, or with an error, it is tried again in the background.
        self.is_released = matches!(released, Ok(()) | Err(Error::LockLost));
        released
    }

    /// Adds to what is left of the lease, by the server's clock.
    ///
    /// # Errors
    /// [`Error::LockLost`], [`Error::Usage`] for a lock without a lease, [`Error::Redis`] when the server could not be
    /// asked for a second.
    pub async fn extend(&self, by: Duration) -> Result<()> {
        let Some(left) = protocol::time_left(&self.transport(), &self.family, &self.hold.token).await? else {
            return self.lost_now();
        };
        let Some(left) = left else { return Err(Error::Usage("a lock without a lease has nothing to extend")) };
        self.renew(left + by).await
    }

    /// Starts the lease again from now, with this length.
    ///
    /// # Errors
    /// As [`Guard::extend`].
    pub async fn renew(&self, lease: Duration) -> Result<()> {
        match protocol::renew(&self.transport(), &self.family, &self.hold, Some(lease)).await? {
            Ownership::Held => {
                self.hold.renewed_with(lease);
                Ok(())
            }
            Ownership::Lost => self.lost_now(),
        }
    }

    /// Runs a command on the server only while the lock is held, in one step (LOCK.EXEC). Its keys belong to the lock's
    /// slot.
    ///
    /// # Errors
    /// [`Error::LockLost`] when it was lost: the command did not run. [`Error::Redis`]: what the command answers, or a
    /// connection that broke, and then it may have run.
    pub async fn exec<T: FromRedisValue>(&self, command: &Cmd) -> Result<T> {
        match protocol::execute(&self.transport(), &self.family, &self.hold.token, command).await {
            Ok(reply) => Ok(redis::from_redis_value(reply).map_err(redis::RedisError::from)?),
            Err(Error::LockLost) => self.lost_now(),
            Err(error) => Err(error),
        }
    }

    fn lost_now<T>(&self) -> Result<T> {
        self.hold.lose();
        Err(Error::LockLost)
    }

    fn transport(&self) -> Transport {
        Transport::pooled(&self.hold.connector, self.family.key())
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        if !self.is_released {
            let (hold, family) = (self.hold.clone(), self.family.clone());
            let work = async move { drop(give_back(&hold, &family).await) };
            self.hold.connector.background.spawn(&self.hold.runtime, work);
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

/// Gives back what one guard has.
async fn give_back(hold: &Hold, family: &Family) -> Result<()> {
    let mode = family.mode();
    let _turn = hold.turn(mode).await;
    let left = hold.held(mode).saturating_sub(family.step());
    let is_last = left == 0 && hold.holds_only(mode);
    let release = Release { holds: left, kept_until: hold.kept_until().filter(|_| is_last), was_lost: hold.is_lost() };
    if is_last {
        // A renewal that came after the release would find nothing, and call it lost.
        hold.end();
    }
    let transport = Transport::pooled(&hold.connector, family.key());
    let released = protocol::release(&transport, family, &hold.token, release).await;
    if let (true, Some(session)) = (is_last, hold.session()) {
        session.close().await;
    }
    let found = released?;
    hold.given_back(mode, left);
    match found {
        Ownership::Held => Ok(()),
        Ownership::Lost => {
            hold.lose();
            Err(Error::LockLost)
        }
    }
}

//! Single-flight (request coalescing): one caller does the work, and the others learn that it is done. Work that failed
//! or was cancelled must never count as done.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use crate::error::{Error, Result};
use crate::family::Work;
use crate::guard::Guard;
use crate::lock::{Lock, Taken};
use crate::pause::Wait;
use crate::protocol::Coalesce;

/// The result of an acquire with COALESCE.
#[derive(Debug)]
#[must_use = "dropping a guard releases the lock"]
pub enum Coalesced {
    /// This caller has to do the work. [`Guard::release`] reports it as done to the requests that wait with COALESCE;
    /// [`Guard::release_failed`], or dropping the guard, grants the lock to the next of them.
    Granted(Guard),
    /// Another caller did the work meanwhile, under the hold with this fence.
    Done {
        /// The fencing token of that hold.
        fence: u64,
    },
    /// The wait timed out.
    NotGranted,
}

impl Lock {
    /// Acquires the lock, or waits for at most `wait` until its holder has done the work (COALESCE). Check whether the
    /// work is needed before the call, and again after a grant, because another caller may have done it just before.
    /// [`Lock::once`] does all of that.
    ///
    /// It needs a mutex without [`Lock::mixed`] and [`Lock::at_least`], under which a release would not end the wait.
    ///
    /// # Errors
    /// The errors of [`Lock::acquire_within`], and [`Error::Usage`] for another lock.
    pub async fn acquire_coalesced(&self, wait: Duration) -> Result<Coalesced> {
        self.coalesced(Wait::within(wait)).await
    }

    /// Returns the value that `read` finds. If there is none, one caller computes it with `make` and the others wait:
    /// single-flight, against a cache stampede.
    ///
    /// `read` returns None if there is no value yet. It runs before the lock is requested, after the grant, and after
    /// another caller's release. `make` stores the value where `read` finds it. It gets the guard, for its fence, its
    /// loss and [`Guard::exec`], and must not keep it. The lock needs a lease, so that a caller that dies does not keep
    /// the others waiting; if the work may take longer than the lease, use [`Lock::auto_renew`].
    ///
    /// If `make` fails, only its own caller gets the error, and the next caller computes the value. The same happens if
    /// the future is dropped, and, once the lease has expired, if the process dies. If the lock is lost while `make`
    /// runs, the result is what `read` finds then, or what `make` returned if `read` finds nothing; only the guard
    /// reports the loss. `wait` limits the wait for another caller, but not `read` and `make`.
    ///
    /// ```no_run
    /// # use std::time::Duration;
    /// # use redis_lock_client::{Client, Result};
    /// # async fn render() -> String { String::new() }
    /// # async fn front_page(client: &Client) -> Result<String> {
    /// let lock = client.mutex("making:front-page").auto_renew();
    /// let get = redis::cmd("GET").arg("front-page").to_owned();
    /// lock.once(
    ///     Duration::from_secs(10),
    ///     || client.query::<Option<String>>("front-page", &get),
    ///     |_guard| async {
    ///         let page = render().await;
    ///         let set = redis::cmd("SET").arg("front-page").arg(&page).arg("EX").arg(300).to_owned();
    ///         client.query::<()>("front-page", &set).await?;
    ///         Ok(page)
    ///     },
    /// )
    /// .await
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Error::NotMade`], or with [`Lock::tell_holder`] [`Error::NotGranted`], if there was no value within `wait`;
    /// [`Error::Usage`] without a lease; the errors of `read`, `make` and [`Lock::acquire_coalesced`].
    pub async fn once<T, E, Reading, Making>(
        &self,
        wait: Duration,
        mut read: impl FnMut() -> Reading,
        make: impl FnOnce(Arc<Guard>) -> Making,
    ) -> std::result::Result<T, E>
    where
        E: From<Error>,
        Reading: Future<Output = std::result::Result<Option<T>, E>>,
        Making: Future<Output = std::result::Result<T, E>>,
    {
        self.check_once()?;
        let ends = Wait::within(wait);
        let guard = loop {
            if let Some(value) = read().await? {
                return Ok(value);
            }
            let late = match self.coalesced(ends).await {
                Ok(Coalesced::Granted(guard)) => break Arc::new(guard),
                // Done, but no value (the lock was held for something else, or the value was evicted): try again.
                Ok(Coalesced::Done { .. }) if !ends.is_over() => continue,
                Ok(Coalesced::Done { .. } | Coalesced::NotGranted) => Error::NotMade { within: wait },
                // With `tell_holder`.
                Err(error @ Error::NotGranted { .. }) => error,
                Err(error) => return Err(error.into()),
            };
            return read().await?.ok_or_else(|| late.into());
        };
        let made = match read().await {
            Ok(None) => make(guard.clone()).await,
            Ok(Some(value)) => Ok(value),
            Err(error) => Err(error),
        };
        match made {
            Ok(value) => match guard.end(Work::Done).await {
                // Another caller may have computed the value as well: return what all other callers read.
                Err(Error::LockLost) => Ok(read().await?.unwrap_or(value)),
                // The value was computed under the lock. If the release cannot reach the server, the lease ends the
                // hold.
                Ok(()) | Err(_) => Ok(value),
            },
            Err(error) => {
                // The error of the work says more than one of the release, and must not wait for it.
                guard.end_after_error(Work::Failed).await;
                Err(error)
            }
        }
    }

    async fn coalesced(&self, wait: Wait) -> Result<Coalesced> {
        Ok(match self.take(wait, Coalesce::On).await? {
            Taken::Granted(guard) => Coalesced::Granted(guard),
            Taken::Done { fence } => Coalesced::Done { fence },
            Taken::NotGranted => Coalesced::NotGranted,
        })
    }
}

//! Single-flight (request coalescing): one caller does the work, the others are told that it is done. Must never
//! happen: work that failed or was given up counts as done.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use crate::error::{Error, Result};
use crate::family::Work;
use crate::guard::Guard;
use crate::lock::{Lock, Taken};
use crate::pause::Wait;
use crate::protocol::Coalesce;

/// How an acquire with COALESCE ended.
#[derive(Debug)]
#[must_use = "dropping a guard releases the lock"]
pub enum Coalesced {
    /// The work is this caller's. [`Guard::release`] reports it as done to the requests that wait with COALESCE;
    /// [`Guard::release_failed`], or dropping the guard, grants the lock to the next of them.
    Granted(Guard),
    /// The work was done meanwhile, under the grant with this fence.
    Done {
        /// The fence of the hold that was released.
        fence: u64,
    },
    /// The time was over first.
    NotGranted,
}

impl Lock {
    /// Acquires the lock, or waits until its holder has done the work: for at most `wait`, in the server's queue
    /// (COALESCE). Check whether the work is needed before the call, and again after a grant: another caller may have
    /// done it just before. [`Lock::once`] does all of that.
    ///
    /// Only of a mutex, and neither with [`Lock::mixed`] nor with [`Lock::at_least`]: a release under these ends no
    /// wait.
    ///
    /// # Errors
    /// As [`Lock::acquire_within`].
    pub async fn acquire_coalesced(&self, wait: Duration) -> Result<Coalesced> {
        self.coalesced(Wait::within(wait)).await
    }

    /// Makes a value once for all callers: returns what `read` finds, or what `make` makes while this caller alone
    /// holds the lock (single-flight: no stampede on a missing cache entry). The callers that wait meanwhile read the
    /// new value.
    ///
    /// `read` returns None if there is no value yet; it runs before the lock is requested, after the grant, and after
    /// another caller's release. `make` stores the value where `read` finds it. It gets the guard, for its fence, its
    /// loss and [`Guard::exec`], and must not keep it. The lock needs a lease, or a maker that dies would keep all
    /// other callers waiting; for work that may take longer than the lease it needs [`Lock::auto_renew`].
    ///
    /// An error of `make` is returned to its caller alone; the next caller makes the value. The same after the future
    /// is dropped, and, after the lease, when the process dies. If the lock was lost while `make` ran, the result is
    /// what `read` finds then, or what `make` returned if `read` finds nothing: only the guard reports the loss. `wait`
    /// limits only the wait for another caller; `read` and `make` have no limit.
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
    /// [`Error::NotMade`] if `wait` was over first, with [`Lock::tell_holder`] [`Error::NotGranted`]; [`Error::Usage`]
    /// without a lease; the errors of `read`, `make` and [`Lock::acquire_coalesced`].
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
                // Done but not there (the lock was held for something else, or the value has gone): ask again.
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
                // Another caller may have made the value too: return what all other callers read.
                Err(Error::LockLost) => Ok(read().await?.unwrap_or(value)),
                // The value was made under the lock; if the release cannot reach the server, the lease ends the hold.
                Ok(()) | Err(_) => Ok(value),
            },
            Err(error) => {
                // The error of the work says more than an error of the release, and must not wait for it.
                guard.end_behind(Work::Failed).await;
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

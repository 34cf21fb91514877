//! Single-flight (request coalescing): one caller does the work, the others learn that it is done. What must never
//! happen: work that failed or was given up counts as done.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use crate::error::{Error, Result};
use crate::family::Work;
use crate::guard::Guard;
use crate::lock::{Lock, Taken};
use crate::protocol::{Coalesce, Wait};

/// How an acquire with COALESCE ended.
#[derive(Debug)]
#[must_use = "a guard that is dropped gives the lock back"]
pub enum Coalesced {
    /// The work is this caller's. [`Guard::release`] tells the requests that wait with COALESCE that it is done;
    /// [`Guard::release_failed`], and a guard that is dropped, grant the next of them.
    Granted(Guard),
    /// It was done meanwhile, under the grant with this fence.
    Done {
        /// The fence of the hold that was released.
        fence: u64,
    },
    /// The time was over before.
    NotGranted,
}

impl Lock {
    /// Takes the lock, or waits until the work that is done under it is done: for at most `wait`, in the server's queue
    /// (COALESCE). Look first whether the work is to be done at all, and again when it is granted: another caller may
    /// have done it just before. [`Lock::once`] does all of that.
    ///
    /// Only of a mutex, and neither with [`Lock::mixed`] nor with [`Lock::at_least`]: its release ends nothing.
    ///
    /// # Errors
    /// As [`Lock::acquire_within`].
    pub async fn acquire_coalesced(&self, wait: Duration) -> Result<Coalesced> {
        self.coalesced(Wait::within(wait)).await
    }

    /// Once for all: what `read` finds, or what `make` makes while this caller alone holds the lock (single-flight: no
    /// stampede on a cache entry that is missing). The callers that wait meanwhile read what was made.
    ///
    /// `read` gives None where there is nothing yet; it runs before the lock is asked for, when it is granted, and when
    /// another caller has released it. `make` stores what it makes where `read` finds it. It has the guard, for its
    /// fence, its loss and [`Guard::exec`], and must not keep it. With work that may take longer than the lease the
    /// lock needs [`Lock::auto_renew`].
    ///
    /// An error of `make` is this caller's; the next caller makes it. So it is when the future is dropped or the
    /// process dies, then after the lease. When the lock was lost while `make` ran, what `read` finds then is the
    /// result, and without that [`Error::LockLost`]. Waits for another caller for at most `wait`; `read` and `make`
    /// take what time they take.
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
    /// [`Error::NotMade`] when `wait` was over first; the errors of `read`, `make` and [`Lock::acquire_coalesced`].
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
        let ends = Wait::within(wait);
        let guard = loop {
            if let Some(value) = read().await? {
                return Ok(value);
            }
            match self.coalesced(ends).await? {
                Coalesced::Granted(guard) => break Arc::new(guard),
                // With nothing there it is asked again: the lock was held for something else, or the value has gone.
                Coalesced::Done { .. } if !ends.is_over() => {}
                Coalesced::Done { .. } | Coalesced::NotGranted => {
                    return read().await?.ok_or_else(|| Error::NotMade { within: wait }.into());
                }
            }
        };
        let made = match read().await {
            Ok(None) => make(guard.clone()).await,
            Ok(Some(value)) => Ok(value),
            Err(error) => Err(error),
        };
        match made {
            Ok(value) => match guard.end(Work::Done).await {
                Err(Error::LockLost) => read().await?.ok_or_else(|| Error::LockLost.into()),
                // The value was made under the lock; where the server cannot be told, the lease ends it.
                Ok(()) | Err(_) => Ok(value),
            },
            Err(error) => {
                // The error of the work says more than one of the release, which the lease ends.
                let _ = guard.end(Work::Failed).await;
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

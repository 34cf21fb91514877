//! The turn of one owner: one request of it at a time, since each states the owner's count after it.

use std::io;
use std::ops::{Deref, DerefMut};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use tokio::sync::{Mutex, MutexGuard};

use crate::error::{Error, Result};
use crate::pause::Wait;
use crate::watched::Watched;

/// How long an acquire that does not wait may be delayed by earlier requests of its owner.
const SOON: Duration = Duration::from_secs(1);

/// A value that one request at a time holds.
#[derive(Default)]
pub(crate) struct Turn<T> {
    value: Mutex<T>,
    /// True while a request holds it that may wait in the server's queue.
    is_waiting: Watched<bool>,
    /// The number of waiting requests to which such a request yields. Made for the first of them.
    prompt: OnceLock<Arc<Watched<usize>>>,
}

pub(crate) struct TurnGuard<'a, T> {
    value: MutexGuard<'a, T>,
    of: &'a Turn<T>,
}

impl<T> Turn<T> {
    /// For a release: acquires that start from here on come after it, and one that waits in the queue yields
    /// ([`TurnGuard::yields`]). Otherwise it would keep its turn while it waits, possibly for what is being
    /// released.
    pub(crate) fn comes_first(&self) -> Prompt {
        let prompt = self.prompt();
        prompt.modify(|prompt| *prompt += 1);
        Prompt(prompt.clone())
    }

    fn prompt(&self) -> &Arc<Watched<usize>> {
        self.prompt.get_or_init(Arc::default)
    }

    fn is_prompted(&self) -> bool {
        self.prompt.get().is_some_and(|prompt| prompt.get() > 0)
    }

    /// For a release that [comes first](Turn::comes_first).
    pub(crate) async fn take_first(&self, _prompt: Prompt) -> TurnGuard<'_, T> {
        self.take().await
    }

    /// The value, unless a request holds it.
    pub(crate) fn peek(&self) -> Option<MutexGuard<'_, T>> {
        self.value.try_lock().ok()
    }

    async fn take(&self) -> TurnGuard<'_, T> {
        TurnGuard { value: self.value.lock().await, of: self }
    }

    /// For an acquire. None: its time ran out, or it does not wait and a request that may wait in the queue comes
    /// first.
    ///
    /// # Errors
    /// [`Error::Redis`] if an acquire does not wait, and the requests that come first get no reply.
    pub(crate) async fn take_to_acquire(&self, wait: Wait) -> Result<Option<TurnGuard<'_, T>>> {
        // Most of the time no request holds it.
        let taken = match (self.take_now(), wait) {
            (Some(free), Wait::Not) => return Ok(Some(free)),
            (Some(free), _) => Some(free),
            (None, Wait::Not) => return Box::pin(self.take_soon()).await,
            (None, Wait::Until(ends)) => Box::pin(tokio::time::timeout_at(ends.into(), self.take_last())).await.ok(),
            (None, Wait::Unlimited) => Some(Box::pin(self.take_last()).await),
        };
        if let Some(taken) = &taken {
            taken.of.is_waiting.modify(|is_waiting| *is_waiting = true);
        }
        Ok(taken)
    }

    /// Waits for the releases that come first.
    async fn take_last(&self) -> TurnGuard<'_, T> {
        if self.is_prompted() {
            // An error would mean that the sender is gone, but `self` holds it.
            let _ = self.prompt().subscribe().wait_for(|prompt| *prompt == 0).await;
        }
        self.take().await
    }

    /// None: another request holds it, or comes first.
    fn take_now(&self) -> Option<TurnGuard<'_, T>> {
        if self.is_prompted() {
            return None;
        }
        Some(TurnGuard { value: self.value.try_lock().ok()?, of: self })
    }

    async fn take_soon(&self) -> Result<Option<TurnGuard<'_, T>>> {
        let mut is_waiting = self.is_waiting.subscribe();
        tokio::select! {
            biased;
            taken = self.take_last() => Ok(Some(taken)),
            _ = is_waiting.wait_for(|is_waiting| *is_waiting) => Ok(None),
            () = tokio::time::sleep(SOON) => {
                let error = io::Error::new(io::ErrorKind::TimedOut, "no reply to an earlier request of this owner");
                Err(Error::Redis(error.into()))
            }
        }
    }
}

impl<T> TurnGuard<'_, T> {
    /// Returns when a release comes first. An acquire that waits in the queue then leaves it, ends its turn, and asks
    /// again later.
    pub(crate) async fn yields(&self) {
        // An error would mean that the sender is gone, but the turn holds it.
        let _ = self.of.prompt().subscribe().wait_for(|prompt| *prompt > 0).await;
    }
}

impl<T> Drop for TurnGuard<'_, T> {
    fn drop(&mut self) {
        self.of.is_waiting.modify(|is_waiting| *is_waiting = false);
    }
}

/// Counts a release until it gets its turn, or is dropped.
pub(crate) struct Prompt(Arc<Watched<usize>>);

impl Drop for Prompt {
    fn drop(&mut self) {
        self.0.modify(|prompt| *prompt -= 1);
    }
}

impl<T> Deref for TurnGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.value
    }
}

impl<T> DerefMut for TurnGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.value
    }
}

//! A value that tasks may watch. Its channel is made for the first task that does: to make one costs more than all else
//! of a hold, and few holds are watched.

use std::sync::{Mutex, MutexGuard, OnceLock};

use tokio::sync::watch;

#[derive(Default)]
pub(crate) struct Watched<T> {
    value: Mutex<T>,
    channel: OnceLock<watch::Sender<T>>,
}

impl<T: Copy> Watched<T> {
    pub(crate) fn new(value: T) -> Watched<T> {
        Watched { value: Mutex::new(value), channel: OnceLock::new() }
    }

    pub(crate) fn get(&self) -> T {
        *self.lock()
    }

    /// Changes the value, and notifies the tasks that watch it.
    pub(crate) fn modify<R>(&self, change: impl FnOnce(&mut T) -> R) -> R {
        let mut value = self.lock();
        let result = change(&mut value);
        if let Some(channel) = self.channel.get() {
            channel.send_replace(*value);
        }
        result
    }

    /// A receiver of further changes. Its channel ends with this value.
    pub(crate) fn subscribe(&self) -> watch::Receiver<T> {
        // Locked, so that no change comes between the value and its channel.
        let value = self.lock();
        self.channel.get_or_init(|| watch::Sender::new(*value)).subscribe()
    }

    fn lock(&self) -> MutexGuard<'_, T> {
        self.value.lock().expect("nothing panics while it is locked")
    }
}

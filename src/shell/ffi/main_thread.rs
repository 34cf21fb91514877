//! The server's main thread, and values that are accessed only there.

use std::ops::Deref;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The id of the main thread. A plain static because other threads read it.
static MAIN: AtomicUsize = AtomicUsize::new(0);

/// Call at module start, which happens on the main thread.
pub fn start() {
    MAIN.store(thread_id(), Ordering::Relaxed);
}

/// Whether this code runs on the main thread.
pub fn is_here() -> bool {
    thread_id() == MAIN.load(Ordering::Relaxed)
}

fn thread_id() -> usize {
    // SAFETY: the function has no preconditions.
    (unsafe { libc::pthread_self() }) as usize
}

/// A value that is accessed only by the server's main thread.
pub struct MainThread<T>(T);

impl<T> MainThread<T> {
    /// For use in a `static`.
    pub const fn new(value: T) -> MainThread<T> {
        MainThread(value)
    }
}

impl<T> Deref for MainThread<T> {
    type Target = T;

    #[inline(always)]
    fn deref(&self) -> &T {
        &self.0
    }
}

// SAFETY: the server runs the commands, callbacks, events and timers of a module on its main thread, one after the
// other. Another module may run a command on its own thread, but holds the server's lock while the main thread sleeps,
// so access is still serialized. The exception (`free` of a value, see `keyspace::datatype`) does not access such a
// value from another thread.
unsafe impl<T> Sync for MainThread<T> {}

//! The server's main thread, and values that only it touches.

use std::ops::Deref;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The number of the main thread: a static, as other threads read it.
static MAIN: AtomicUsize = AtomicUsize::new(0);

/// At the module's start, which is on the main thread.
pub fn start() {
    MAIN.store(thread_id(), Ordering::Relaxed);
}

/// Whether the main thread runs this.
pub fn is_here() -> bool {
    thread_id() == MAIN.load(Ordering::Relaxed)
}

fn thread_id() -> usize {
    // SAFETY: takes nothing.
    (unsafe { libc::pthread_self() }) as usize
}

/// A value that only the server's main thread touches.
pub struct MainThread<T>(T);

impl<T> MainThread<T> {
    /// To be a `static`.
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

// SAFETY: the server runs commands, callbacks, events and timers of a module on its main thread, one after the other.
// Another module may run a command on a thread of its own, while it has the server's lock and the main thread sleeps:
// that too is one after the other. The exceptions (`free` of a value, see `keyspace::datatype`) touch no such value
// from another thread.
unsafe impl<T> Sync for MainThread<T> {}

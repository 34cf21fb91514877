//! Values that only the server's main thread touches.

/// A value that only the server's main thread touches.
pub struct MainThread<T>(pub T);

// SAFETY: the server runs commands, callbacks, events and timers of a module on its main thread, one after the other.
// The exceptions (`free` of a value, see `keyspace::datatype`) touch no such value from another thread.
unsafe impl<T> Sync for MainThread<T> {}

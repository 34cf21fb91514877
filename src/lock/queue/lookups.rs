//! Counts lookups of requests and owners in tests: the cost of a search.

#[cfg(test)]
thread_local!(static COUNT: std::cell::Cell<usize> = const { std::cell::Cell::new(0) });

/// A request or an owner is looked up.
#[inline(always)]
pub(super) fn note() {
    #[cfg(test)]
    COUNT.set(COUNT.get() + 1);
}

/// The number of lookups in this thread.
#[cfg(test)]
pub(crate) fn count() -> usize {
    COUNT.get()
}

//! Counts lookups of requests and owners in tests, as the cost of a search.

#[cfg(test)]
thread_local!(static COUNT: std::cell::Cell<usize> = const { std::cell::Cell::new(0) });

/// Counts a lookup of a request or an owner.
#[inline(always)]
pub(super) fn record() {
    #[cfg(test)]
    COUNT.set(COUNT.get() + 1);
}

/// The number of lookups on this thread.
#[cfg(test)]
pub(crate) fn count() -> usize {
    COUNT.get()
}

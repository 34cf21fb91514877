//! The end of every scenario.

use std::fmt::Debug;

/// Fails the test, naming all breaches.
#[track_caller]
pub fn assert_none<T: Debug>(found: &[T]) {
    assert!(found.is_empty(), "{found:#?}");
}

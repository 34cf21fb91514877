//! What every scenario ends with.

use std::fmt::Debug;

/// Fails the test, naming all that was found.
#[track_caller]
pub fn assert_none<T: Debug>(found: &[T]) {
    assert!(found.is_empty(), "{found:#?}");
}

//! Ends every scenario.

use std::fmt::Debug;

/// Fails the test if there are breaches, and lists them.
#[track_caller]
pub fn assert_none<T: Debug>(found: &[T]) {
    assert!(found.is_empty(), "{found:#?}");
}

//! The report of a deadlock: the edges of its cycle in the wait-for graph.

use std::rc::Rc;

use crate::value::owner::Owner;

/// One edge of a cycle: `owner` waits on `key` for the owner of the next edge.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Edge {
    /// The owner that waits.
    pub owner: Owner,
    /// The key that it waits for.
    pub key: Rc<[u8]>,
}

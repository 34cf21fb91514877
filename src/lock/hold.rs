//! An owner's hold of a key, used as a map key.

use std::borrow::Borrow;
use std::cmp::Ordering;

use crate::key::{Key, KeyRef};
use crate::value::owner::Owner;

/// An owner's hold of a key. Ordered by key, then by owner, so the holds of one key are adjacent.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct HoldKey {
    /// The key.
    pub key: Key,
    /// The owner.
    pub owner: Owner,
}

/// A borrowed hold.
#[derive(Clone, Copy, Debug)]
pub struct HoldKeyRef<'a> {
    /// The key.
    pub key: KeyRef<'a>,
    /// The owner's bytes. Empty sorts before all owners.
    pub owner: &'a [u8],
}

/// A hold, owned or borrowed, so that maps can be searched without copying names.
pub trait HoldKeyParts {
    /// The database, the name of the key, and the owner.
    fn parts(&self) -> (i32, &[u8], &[u8]);
}

impl HoldKeyParts for HoldKey {
    fn parts(&self) -> (i32, &[u8], &[u8]) {
        (self.key.db, &self.key.name, self.owner.as_bytes())
    }
}

impl HoldKeyParts for HoldKeyRef<'_> {
    fn parts(&self) -> (i32, &[u8], &[u8]) {
        (self.key.db, self.key.name, self.owner)
    }
}

impl Ord for dyn HoldKeyParts + '_ {
    fn cmp(&self, other: &Self) -> Ordering {
        self.parts().cmp(&other.parts())
    }
}

impl PartialOrd for dyn HoldKeyParts + '_ {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for dyn HoldKeyParts + '_ {
    fn eq(&self, other: &Self) -> bool {
        self.parts() == other.parts()
    }
}

impl Eq for dyn HoldKeyParts + '_ {}

impl<'a> Borrow<dyn HoldKeyParts + 'a> for HoldKey {
    fn borrow(&self) -> &(dyn HoldKeyParts + 'a) {
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_borrowed_hold_is_ordered_as_an_owned_one() {
        let parts = [(0, "k", "a"), (0, "k", "b"), (0, "ka", "a"), (0, "l", "a"), (1, "", "a"), (-1, "k", "a")];
        for (one, other) in parts.into_iter().flat_map(|one| parts.map(|other| (one, other))) {
            let owned = |(db, name, owner): (i32, &str, &str)| HoldKey {
                key: Key::new(db, name.as_bytes()),
                owner: Owner::new(owner.as_bytes()).unwrap(),
            };
            let (one, other) = (owned(one), owned(other));
            let borrowed: &dyn HoldKeyParts = &HoldKeyRef { key: other.key.as_ref(), owner: other.owner.as_bytes() };
            let one_as_parts: &dyn HoldKeyParts = &one;
            assert_eq!(one_as_parts.cmp(borrowed), one.cmp(&other), "{one:?} {other:?}");
        }
    }
}

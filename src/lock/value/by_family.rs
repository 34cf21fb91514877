//! Something for each family of locks.

use super::claim::Family;

/// One of it for each family.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ByFamily<T>(pub [T; Family::ALL.len()]);

impl<T> ByFamily<T> {
    /// That of a family.
    #[inline(always)]
    pub fn of(&self, family: Family) -> &T {
        &self.0[family as usize]
    }

    /// The same, to be changed.
    #[inline(always)]
    pub fn of_mut(&mut self, family: Family) -> &mut T {
        &mut self.0[family as usize]
    }

    /// One made for each family.
    pub fn make(mut make: impl FnMut(Family) -> T) -> ByFamily<T> {
        ByFamily(Family::ALL.map(&mut make))
    }
}

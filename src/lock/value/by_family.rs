//! One value for each family of locks.

use super::claim::Family;

/// One `T` for each family.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ByFamily<T>(pub [T; Family::ALL.len()]);

impl<T> ByFamily<T> {
    /// The value of a family.
    #[inline(always)]
    pub fn of(&self, family: Family) -> &T {
        &self.0[family as usize]
    }

    /// The value of a family, mutable.
    #[inline(always)]
    pub fn of_mut(&mut self, family: Family) -> &mut T {
        &mut self.0[family as usize]
    }

    /// Makes one value for each family.
    pub fn make(mut make: impl FnMut(Family) -> T) -> ByFamily<T> {
        ByFamily(Family::ALL.map(&mut make))
    }
}

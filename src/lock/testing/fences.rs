//! Maps each grant of the model to its fencing token in the rules or on a server. A grant has one token, and the token
//! of a new grant is greater than all earlier ones.

use std::fmt::Debug;

use super::contract::Grant;
use super::model::Model;

/// The fencing tokens of the model's grants seen so far.
#[derive(Clone, Debug)]
pub struct Fences<F> {
    of_grants: Vec<Option<F>>,
    highest: Option<F>,
}

impl<F> Default for Fences<F> {
    fn default() -> Fences<F> {
        Fences { of_grants: Vec::new(), highest: None }
    }
}

impl<F: Copy + Ord + Debug> Fences<F> {
    /// Records that this grant was seen with this fencing token.
    ///
    /// # Errors
    /// The grant had another token before, or a new token is not greater than all that were seen before this
    /// step.
    pub fn see(&mut self, grant: Grant, fence: F) -> Result<(), String> {
        let index = grant.0 as usize;
        self.of_grants.resize(self.of_grants.len().max(index + 1), None);
        match self.of_grants[index] {
            Some(known) if known == fence => return Ok(()),
            Some(known) => return Err(format!("a kept fence changed from {known:?} to {fence:?}")),
            None if Some(fence) <= self.highest => {
                return Err(format!("a new grant has fence {fence:?}, not above {:?}", self.highest));
            }
            None if self.of_grants.contains(&Some(fence)) => return Err(format!("two grants have fence {fence:?}")),
            None => self.of_grants[index] = Some(fence),
        }
        Ok(())
    }

    /// Ends a step: new fencing tokens must be greater than all that were seen until now.
    pub fn end_step(&mut self) {
        self.highest = self.highest.max(self.of_grants.iter().copied().flatten().max());
    }

    /// The greatest fencing token before this step.
    pub fn highest(&self) -> Option<F> {
        self.highest
    }

    /// The grant of this fencing token, for a hold that several requests were granted at once. The contract leaves open
    /// which of them determines the token. The model expects `expected`.
    pub fn of_open_hold(&self, fence: F, expected: Grant, model: &mut Model) -> Grant {
        let known = self.of_grants.iter().position(|known| *known == Some(fence));
        match known {
            Some(index) => Grant(index as u64),
            None if self.of_grants.get(expected.0 as usize).is_none_or(Option::is_none) => expected,
            None => model.next_grant(),
        }
    }
}

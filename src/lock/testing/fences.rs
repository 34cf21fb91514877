//! Maps each grant of the model to its fence in the rules or on a server: a grant has one fence, and that of a new
//! grant is above all before it.

use std::fmt::Debug;

use super::contract::Grant;
use super::model::Model;

/// The fences of the model's grants seen so far.
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
    /// Records that this grant was seen with this fence.
    ///
    /// # Errors
    /// The grant had another fence before, or a new one is not above all that were seen before this step.
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

    /// Ends a step: new fences must be above all that were seen until now.
    pub fn end_step(&mut self) {
        self.highest = self.highest.max(self.of_grants.iter().copied().flatten().max());
    }

    /// The highest fence before this step.
    pub fn highest(&self) -> Option<F> {
        self.highest
    }

    /// The grant behind this fence, for a hold that several requests were granted at once: the contract leaves open
    /// which of them sets the fence. The model expects `expected`.
    pub fn of_open_hold(&self, fence: F, expected: Grant, model: &mut Model) -> Grant {
        let known = self.of_grants.iter().position(|known| *known == Some(fence));
        match known {
            Some(index) => Grant(index as u64),
            None if self.of_grants.get(expected.0 as usize).is_none_or(Option::is_none) => expected,
            None => model.next_grant(),
        }
    }
}

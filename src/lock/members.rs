//! The holders of a shared lock: found by owner and by deadline without a walk, however many there are.
//!
//! A few are walked through, which is faster than any index; past `WALK` holders an index is kept.

use std::collections::{BTreeSet, HashMap};

use super::claim::Kind;
use super::fence::Fence;
use super::owner::Owner;
use super::time::{Deadline, Lease};

/// One owner's hold on a lock.
#[derive(Clone, Debug)]
pub struct Holder {
    pub owner: Owner,
    /// Of the latest grant to this owner that was not merely deeper.
    pub fence: Fence,
    /// The length last asked for.
    pub lease: Lease,
    pub until: Deadline,
    /// Exclusive or write holds, or permits.
    pub holds: u32,
    /// Read holds.
    pub reads: u32,
}

impl Holder {
    /// Whether somebody may hold a lock of that kind and limit so. What a client asks for always may; what a dump or a file
    /// says need not.
    pub fn is_sound(&self, kind: Kind, limit: u32) -> bool {
        match kind {
            Kind::Mutex => limit == 1 && self.holds == 1 && self.reads == 0,
            Kind::Reentrant => limit == 1 && self.holds > 0 && self.reads == 0,
            Kind::Semaphore => limit > 0 && self.holds > 0 && self.reads == 0,
            Kind::Rw => limit == 0 && (self.holds > 0 || self.reads > 0),
        }
    }
}

/// So many holders are cheaper to walk through than to index.
const WALK: usize = 16;

#[derive(Clone, Debug, Default)]
pub struct Members {
    holders: Vec<Holder>,
    index: Option<Box<Index>>,
}

#[derive(Clone, Debug, Default)]
struct Index {
    by_owner: HashMap<Owner, usize>,
    by_until: BTreeSet<(Deadline, usize)>,
}

impl Members {
    /// All holders, in no particular order.
    pub fn as_slice(&self) -> &[Holder] {
        &self.holders
    }

    pub fn len(&self) -> usize {
        self.holders.len()
    }

    pub fn is_empty(&self) -> bool {
        self.holders.is_empty()
    }

    /// Where this owner's hold stands, valid until the next change.
    pub fn position(&self, owner: &[u8]) -> Option<usize> {
        match &self.index {
            Some(index) => index.by_owner.get(owner).copied(),
            None => self.holders.iter().position(|h| h.owner.as_bytes() == owner),
        }
    }

    pub fn get(&self, owner: &[u8]) -> Option<&Holder> {
        self.position(owner).and_then(|at| self.holders.get(at))
    }

    /// Adds a holder whose owner is not among them yet.
    pub fn push(&mut self, holder: Holder) {
        if let Some(index) = &mut self.index {
            index.by_owner.insert(holder.owner.clone(), self.holders.len());
            index.by_until.insert((holder.until, self.holders.len()));
        }
        self.holders.push(holder);
        if self.index.is_none() && self.holders.len() > WALK {
            self.index = Some(Box::new(self.make_index()));
        }
    }

    /// Changes the holder at `position`, all but its owner.
    pub fn change(&mut self, position: usize, change: impl FnOnce(&mut Holder)) {
        let holder = &mut self.holders[position];
        let before = holder.until;
        change(holder);
        if let Some(index) = &mut self.index {
            index.by_until.remove(&(before, position));
            index.by_until.insert((holder.until, position));
        }
    }

    /// Takes out the holder at `position`; the last one moves to its place.
    pub fn remove(&mut self, position: usize) -> Holder {
        let last = self.holders.len() - 1;
        let gone = self.holders.swap_remove(position);
        if self.holders.len() <= WALK / 2 {
            self.index = None;
        }
        if let Some(index) = &mut self.index {
            index.by_owner.remove(gone.owner.as_bytes());
            index.by_until.remove(&(gone.until, position));
            if let Some(moved) = self.holders.get(position) {
                index.by_until.remove(&(moved.until, last));
                index.by_until.insert((moved.until, position));
                index.by_owner.insert(moved.owner.clone(), position);
            }
        }
        gone
    }

    /// The holder whose lease ends first.
    pub fn first_to_end(&self) -> Option<usize> {
        match &self.index {
            Some(index) => index.by_until.first().map(|(_, position)| *position),
            None => (0..self.holders.len()).min_by_key(|at| self.holders[*at].until),
        }
    }

    /// The holder whose lease ends last.
    pub fn last_to_end(&self) -> Option<usize> {
        match &self.index {
            Some(index) => index.by_until.last().map(|(_, position)| *position),
            None => (0..self.holders.len()).max_by_key(|at| self.holders[*at].until),
        }
    }

    /// Bytes on the heap.
    pub fn heap_bytes(&self) -> usize {
        let owners: usize = match &self.index {
            // A walk over thousands of holders would make MEMORY USAGE slow: the first ones tell.
            Some(_) => self.holders.iter().take(WALK).map(|h| h.owner.heap_bytes()).sum::<usize>() / WALK * self.len(),
            None => self.holders.iter().map(|h| h.owner.heap_bytes()).sum(),
        };
        let index_entry = size_of::<(Owner, usize)>() + size_of::<(Deadline, usize)>() + 16;
        let index = if self.index.is_some() { self.len() * index_entry } else { 0 };
        self.holders.capacity() * size_of::<Holder>() + owners + index
    }

    fn make_index(&self) -> Index {
        let numbered = || self.holders.iter().enumerate();
        Index {
            by_owner: numbered().map(|(at, h)| (h.owner.clone(), at)).collect(),
            by_until: numbered().map(|(at, h)| (h.until, at)).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::At;
    use proptest::prelude::*;

    fn holder(name: u8, until: u64) -> Holder {
        Holder {
            owner: Owner::new(&[name]).unwrap(),
            fence: Fence::new(1).unwrap(),
            lease: Lease::Persist,
            until: Deadline::At(At::from_ms(until)),
            holds: 1,
            reads: 0,
        }
    }

    proptest! {
        #[test]
        fn the_index_says_what_a_walk_would_say(steps in prop::collection::vec((0u8..60, 1u64..1000, 0u8..3), 1..400)) {
            let mut members = Members::default();
            for (name, until, what) in steps {
                match (members.position(&[name]), what) {
                    (None, _) => members.push(holder(name, until)),
                    (Some(at), 0) => members.change(at, |h| h.until = Deadline::At(At::from_ms(until))),
                    (Some(at), _) => drop(members.remove(at)),
                }
                let all = members.as_slice();
                for (at, h) in all.iter().enumerate() {
                    prop_assert_eq!(members.position(h.owner.as_bytes()), Some(at));
                }
                let untils = || all.iter().map(|h| h.until);
                prop_assert_eq!(members.first_to_end().map(|at| all[at].until), untils().min());
                prop_assert_eq!(members.last_to_end().map(|at| all[at].until), untils().max());
            }
        }
    }
}

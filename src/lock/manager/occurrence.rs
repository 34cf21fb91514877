//! What the rules tell whoever observes them: events, log entries and log lines are made of it. Data, no callbacks: the
//! rules put it down, and the shell takes it when the turn is over.
//!
//! What is rare is always put down. What every request brings is put down only where [`Observe`] asks for it; the short
//! road (`alone`) puts nothing down, so nobody may take it then.

use crate::key::{ClientId, Key, RequestId};
use crate::queue::edge::Edge;
use crate::queue::wait_queue::WaiterLimit;
use crate::value::claim::Claim;
use crate::value::fence::Fence;
use crate::value::outcome::Grant;
use crate::value::owner::Owner;

/// What is observed beyond the rare.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Observe {
    /// Every grant, renewal and end.
    pub changes: bool,
    /// Ends of holds that lasted so many milliseconds, or longer.
    pub holds_ms: Option<u64>,
    /// Grants to those who waited for so many milliseconds, or longer.
    pub waits_ms: Option<u64>,
}

impl Observe {
    /// Whether every request that meets nobody brings something that is observed: it takes the long road then. Of
    /// holds only those that are long do, which the short road leaves to the long one.
    pub fn needs_long_road(&self) -> bool {
        self.changes
    }
}

/// Something that has happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Occurrence {
    /// An owner was granted a key: anew, more of it, or what it held with another deadline. Of a request for several
    /// keys there is one for each.
    Granted {
        /// Which.
        key: Key,
        /// To whom.
        owner: Owner,
        /// What it asked for.
        claim: Claim,
        /// What it holds; as many holds before as after: the same request was sent again.
        grant: Grant,
        /// What that has changed.
        change: GrantChange,
        /// By a hand-off, and how long it had waited for that; `None`: at once.
        waited: Option<Waited>,
        /// How many others wait for the key.
        waiters: usize,
    },
    /// A lease started again.
    Renewed {
        /// Of which key.
        key: Key,
        /// Whose.
        owner: Owner,
        /// By whom.
        by: RenewedBy,
    },
    /// An owner has given back some of its holds or permits, and keeps the others.
    Fewer {
        /// Of which key.
        key: Key,
        /// Whose.
        owner: Owner,
    },
    /// An owner holds a key no more.
    Ended {
        /// Which.
        key: Key,
        /// Who; of a key with several holders that was removed the one of the latest grant.
        owner: Owner,
        /// How.
        by: EndedBy,
        /// Of the grant by which it held the key.
        fence: Fence,
        /// Milliseconds since that grant, by the wall clock.
        held_ms: u64,
        /// How many wait for the key.
        waiters: usize,
        /// The connection that it was bound to.
        session: Option<ClientId>,
    },
    /// The server has evicted a key.
    Evicted {
        /// Which.
        key: Key,
        /// Who held it; of several the one of the latest grant.
        owner: Owner,
        /// Milliseconds since that grant.
        held_ms: u64,
        /// How many wait for the key.
        waiters: usize,
        /// The connection that the hold was bound to.
        session: Option<ClientId>,
    },
    /// A request was refused: its waiting would never have ended.
    DeadlockRefused {
        /// The first of its keys.
        key: Key,
        /// Whose request.
        owner: Owner,
        /// Who would have waited for whom, on which key.
        cycle: Vec<Edge>,
        /// How many wait for the key.
        waiters: usize,
    },
    /// A request was refused: too many wait already.
    MaxWaitersRefused {
        /// The first of its keys.
        key: Key,
        /// Whose request.
        owner: Owner,
        /// On the server, or for one of its keys.
        limit: WaiterLimit,
    },
    /// From now on nobody new is granted anything.
    GraceBegan {
        /// For so many milliseconds.
        ms: u64,
    },
    /// The grace is over.
    GraceEnded,
}

/// What a grant has changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GrantChange {
    /// Holders, holds or deadlines.
    Anything,
    /// None of them: the request was sent again, and its lease ends no later.
    Nothing,
}

/// Of a grant by a hand-off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Waited {
    /// The request that waited; the same for all of its keys.
    pub request: RequestId,
    /// Milliseconds from its queueing to the grant.
    pub ms: u64,
}

/// How a hold came to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EndedBy {
    /// Its owner gave it back.
    Released,
    /// The connection that it was bound to has ended.
    Disconnected,
    /// Its lease has ended: the rules have taken it out.
    LeaseEnd,
    /// Its lease has ended, and with it the key: the server has removed that.
    Expired,
    /// LOCK.BREAK.
    Broken,
    /// Nobody received the grant.
    Undelivered,
    /// The key was deleted, evicted, overwritten or renamed.
    Removed,
}

/// Who renewed a lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RenewedBy {
    /// Its owner.
    Request,
    /// The server, because the connection of its session lives.
    Session,
}

/// At most so many are put down between two takes.
const MOST: usize = 10_000;

/// Of ends that nobody asked for, as those of thousands of leases at once, the first so many: nobody reads more, and
/// `statistics` counts all of them.
const MOST_UNASKED: usize = 1_000;

/// What was put down and not taken yet.
#[derive(Clone, Debug, Default)]
pub struct Occurrences {
    all: Vec<Occurrence>,
    unasked: usize,
}

impl Occurrences {
    pub(super) fn note(&mut self, occurrence: Occurrence) {
        if self.all.len() < MOST {
            self.all.push(occurrence);
        }
    }

    /// Whether one more end that nobody asked for is to be put down.
    pub(super) fn takes_unasked(&mut self) -> bool {
        let is_taken = self.unasked < MOST_UNASKED;
        self.unasked += 1;
        is_taken
    }

    /// Whether there is nothing to take.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// Takes all of them, the oldest first.
    pub fn take(&mut self) -> Vec<Occurrence> {
        self.unasked = 0;
        std::mem::take(&mut self.all)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_taken_is_bounded() {
        let mut occurrences = Occurrences::default();
        for _ in 0..MOST + 3 {
            occurrences.note(Occurrence::GraceEnded);
        }
        assert_eq!((occurrences.take().len(), occurrences.is_empty()), (MOST, true));
    }

    #[test]
    fn of_ends_that_nobody_asked_for_the_first_are_taken_in_each_turn() {
        let mut occurrences = Occurrences::default();
        for _ in 0..2 {
            let taken = (0..MOST_UNASKED + 3).filter(|_| occurrences.takes_unasked()).count();
            assert_eq!(taken, MOST_UNASKED);
            occurrences.take();
        }
    }
}

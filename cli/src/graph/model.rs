//! The wait-for graph: an owner waits for a lock, and a lock for its holders. Times and names are the server's. Sends
//! no commands.

use std::collections::{BTreeSet, HashMap};

use serde::Serialize;

use crate::info::{self, Holder};
use crate::text::Text;
use crate::waiters::Waiter;

/// An index into the locks of a [`Graph`].
pub type LockId = usize;

/// How many holders and waiters of each lock are shown that are not part of a longer chain.
const SHOWN: usize = 5;

/// A lock with the holders and waiters that were read.
#[derive(Serialize)]
pub struct Lock {
    pub server: String,
    pub db: u64,
    /// The fields of LOCK.INFO.
    #[serde(flatten)]
    pub info: info::Lock,
    /// The fields of LOCK.WAITERS, in queue order.
    pub queue: Vec<Waiter>,
}

/// An owner within one database. The nodes of a cluster count as one database.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize)]
pub struct Owner {
    pub db: u64,
    pub owner: Text,
}

pub struct Graph {
    locks: Vec<Lock>,
    held: HashMap<Owner, BTreeSet<LockId>>,
    awaited: HashMap<Owner, BTreeSet<LockId>>,
    /// The locks to show.
    shown: BTreeSet<LockId>,
}

impl Lock {
    /// The lock type, and the number of waiters.
    pub fn describe(&self, db: u64) -> String {
        let mut text = self.info.kind.clone();
        if text == "semaphore" {
            text += &format!(" of {}", self.info.limit);
        }
        if self.db != db {
            text += &format!(", db {}", self.db);
        }
        let waiting = self.info.waiters.max(self.queue.len() as u64);
        if waiting > 0 {
            text += &format!(", {waiting} waiting");
        }
        text
    }

    pub fn owner_of(&self, name: &Text) -> Owner {
        Owner { db: self.db, owner: name.clone() }
    }

    pub fn holders(&self) -> impl Iterator<Item = (&Holder, Owner)> {
        self.info.holders.iter().map(|holder| (holder, self.owner_of(&holder.owner)))
    }

    pub fn waiters(&self) -> impl Iterator<Item = (&Waiter, Owner)> {
        self.queue.iter().map(|waiter| (waiter, self.owner_of(&waiter.owner)))
    }

    pub fn unread_waiters(&self) -> u64 {
        self.info.waiters.saturating_sub(self.queue.len() as u64)
    }

    pub fn unread_holders(&self) -> u64 {
        self.info.holding.saturating_sub(self.info.holders.len() as u64)
    }
}

impl Graph {
    pub fn new(locks: Vec<Lock>) -> Graph {
        let (mut held, mut awaited) = (HashMap::<_, BTreeSet<_>>::new(), HashMap::<_, BTreeSet<_>>::new());
        for (id, lock) in locks.iter().enumerate() {
            for (_, owner) in lock.holders() {
                held.entry(owner).or_default().insert(id);
            }
            for (_, owner) in lock.waiters() {
                awaited.entry(owner).or_default().insert(id);
            }
        }
        let shown = (0..locks.len()).collect();
        Graph { locks, held, awaited, shown }
    }

    /// All locks that were read, in the order of LOCK.TOP.
    pub fn locks(&self) -> impl Iterator<Item = &Lock> {
        self.locks.iter()
    }

    pub fn lock(&self, id: LockId) -> &Lock {
        &self.locks[id]
    }

    pub fn shown(&self) -> impl Iterator<Item = &Lock> {
        self.shown_ids().map(|id| self.lock(id))
    }

    pub fn shown_ids(&self) -> impl Iterator<Item = LockId> + '_ {
        self.shown.iter().copied()
    }

    pub fn is_shown(&self, id: LockId) -> bool {
        self.shown.contains(&id)
    }

    /// The shown locks that an owner holds, other than this one.
    pub fn held_by<'a>(&'a self, owner: &Owner, other_than: LockId) -> impl Iterator<Item = LockId> + 'a {
        self.others(&self.held, owner, other_than)
    }

    /// The shown locks that an owner waits for, other than this one.
    pub fn awaited_by<'a>(&'a self, owner: &Owner, other_than: LockId) -> impl Iterator<Item = LockId> + 'a {
        self.others(&self.awaited, owner, other_than)
    }

    /// Every owner that holds one lock and waits for another, with the locks that it waits for.
    pub fn owners_in_between(&self) -> HashMap<&Owner, &BTreeSet<LockId>> {
        self.awaited.iter().filter(|(owner, _)| self.held.contains_key(owner)).collect()
    }

    /// The locks that must become free before this one: its holders wait for them.
    pub fn before(&self, id: LockId) -> BTreeSet<LockId> {
        self.lock(id).holders().flat_map(|(_, owner)| self.awaited_by(&owner, id)).collect()
    }

    /// The locks that stay held until this one is free: its waiters hold them.
    pub fn behind(&self, id: LockId) -> BTreeSet<LockId> {
        self.lock(id).waiters().flat_map(|(_, owner)| self.held_by(&owner, id)).collect()
    }

    /// Restricts the graph to this lock, the locks its holders wait for, and the locks its waiters hold, over any
    /// number of steps. A waiter for several locks (MLOCK) may block this one while another of them is held, so those
    /// are kept too, with the locks before them.
    pub fn keep_connected_to(&mut self, center: LockId) {
        let mut kept = self.reachable(center, Graph::behind);
        let awaited = self.lock(center).waiters().flat_map(|(_, owner)| self.awaited_by(&owner, center));
        for id in awaited.chain([center]) {
            kept.append(&mut self.reachable(id, Graph::before));
        }
        self.shown = kept;
    }

    /// This lock, and all locks behind it.
    pub fn all_behind(&self, id: LockId) -> BTreeSet<LockId> {
        self.reachable(id, Graph::behind)
    }

    /// The waiters to show, each with its position from 1, and the number omitted. Shown are the first waiters, and all
    /// that hold a lock with waiters.
    pub fn main_waiters(&self, id: LockId) -> (Vec<(usize, &Waiter, Owner)>, u64) {
        let lock = self.lock(id);
        let has_others_behind = |owner: &Owner| self.held_by(owner, id).next().is_some();
        let numbered = lock.waiters().enumerate().map(|(index, (waiter, owner))| (index + 1, waiter, owner));
        let shown: Vec<_> =
            numbered.filter(|(position, _, owner)| *position <= SHOWN || has_others_behind(owner)).collect();
        let left_out = (lock.queue.len() - shown.len()) as u64 + lock.unread_waiters();
        (shown, left_out)
    }

    /// The holders to show, and the number omitted. Shown are the first holders, and all that wait for another lock.
    pub fn main_holders(&self, id: LockId) -> (Vec<(&Holder, Owner)>, u64) {
        let lock = self.lock(id);
        let waits = |owner: &Owner| self.awaited_by(owner, id).next().is_some();
        let shown: Vec<_> = lock
            .holders()
            .enumerate()
            .filter(|(index, (_, owner))| *index < SHOWN || waits(owner))
            .map(|(_, holder)| holder)
            .collect();
        let left_out = (lock.info.holders.len() - shown.len()) as u64 + lock.unread_holders();
        (shown, left_out)
    }

    fn reachable(&self, from: LockId, step: impl Fn(&Graph, LockId) -> BTreeSet<LockId>) -> BTreeSet<LockId> {
        let (mut found, mut open) = (BTreeSet::from([from]), vec![from]);
        while let Some(id) = open.pop() {
            open.extend(step(self, id).into_iter().filter(|next| found.insert(*next)));
        }
        found
    }

    fn others<'a>(
        &'a self,
        index: &'a HashMap<Owner, BTreeSet<LockId>>,
        owner: &Owner,
        other_than: LockId,
    ) -> impl Iterator<Item = LockId> + 'a {
        let all = index.get(owner).into_iter().flatten().copied();
        all.filter(move |id| *id != other_than && self.is_shown(*id))
    }
}

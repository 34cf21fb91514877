//! Wait queues with a simulated keyspace, for the tests of this folder.

use super::deadlock;
use super::holders::{EndedHolds, HolderLookup};
use super::position::{QueuePosition, Rank};
use super::queues::WaitQueues;
use super::request::{Arrival, NewRequest};
use crate::host::simulated::SimulatedServer;
use crate::host::{Content, Entry, Keys};
use crate::key::{Key, KeyRef, RequestId};
use crate::value::claim::{Claim, InvalidClaim, LockRequest};
use crate::value::fence::FenceClock;
use crate::value::lock::FirstGrant;
use crate::value::owner::Owner;
use crate::value::time::{Deadline, Lease};

/// Holds bound to connections that have ended.
#[derive(Default)]
pub(super) struct Ended(pub Vec<(Key, Owner)>);

impl EndedHolds for Ended {
    fn has_ended(&self, key: KeyRef<'_>, owner: &[u8]) -> bool {
        self.0.iter().any(|(other, of)| other.as_ref() == key && of.as_bytes() == owner)
    }
}

/// Each letter names a key: "kl" means the keys k and l.
#[derive(Default)]
pub(super) struct Fixture {
    pub server: SimulatedServer,
    pub queues: WaitQueues,
    pub ended: Ended,
    fences: FenceClock,
}

impl Fixture {
    /// Lets the owner hold the keys. Returns the multi-key requests that counted on another holder.
    pub fn hold(&mut self, owner: &str, keys: &str, claim: Claim) -> Vec<RequestId> {
        self.hold_for(owner, &names(keys), claim, Lease::Persist)
    }

    /// As `hold`, for keys with any names and with this lease. Keys stay stored after the lease has expired.
    pub fn hold_for(&mut self, owner: &str, names: &[&[u8]], claim: Claim, lease: Lease) -> Vec<RequestId> {
        let now = self.server.now();
        let owner = Owner::new(owner.as_bytes()).unwrap();
        let request = LockRequest { owner: owner.as_ref(), claim, lease };
        for name in names {
            let fence = self.fences.next(now.us()).unwrap();
            let mut keyspace = &mut self.server.keyspace;
            let mut entry = keyspace.open(KeyRef { db: 0, name });
            match entry.content() {
                Content::Lock(lock) => _ = lock.admit(&request, fence, now.timestamp(), Deadline::Never).unwrap(),
                _ => entry.create(&FirstGrant::new(request, now.timestamp(), || Ok::<_, InvalidClaim>(fence)).unwrap()),
            }
        }
        self.record_holders(names)
    }

    /// Queues a request of the owner for the keys, behind all others.
    pub fn wait(&mut self, owner: &str, keys: &str, claim: Claim) -> RequestId {
        self.wait_at(owner, &names(keys), claim, self.queues.last_position(Rank::Normal))
    }

    /// As `wait`, for keys with any names, at this position.
    pub fn wait_at(&mut self, owner: &str, names: &[&[u8]], claim: Claim, position: QueuePosition) -> RequestId {
        let now = self.server.now().instant();
        let owner = Owner::new(owner.as_bytes()).unwrap();
        let request = LockRequest { owner: owner.as_ref(), claim, lease: Lease::Persist };
        let owner_id = self.queues.owner_id(0, owner.as_bytes());
        let id = self.queues.enqueue(Arrival {
            new: NewRequest { db: 0, names, request, owner_id, position, replaces: None },
            since: now,
            until: None,
            session: None,
            may_detach: true,
            coalesces: false,
            lease_deadline: None,
        });
        self.record_holders(names);
        id
    }

    /// The deadlock that a request would complete, as "a@k b@l": a waits on k for b, and b waits on l for a.
    pub fn deadlock(&mut self, owner: &str, keys: &str, claim: Claim) -> Option<String> {
        let position = self.queues.last_position(Rank::Normal);
        self.deadlock_at(owner, keys, claim, position)
    }

    /// As `deadlock`, for a request at this position.
    pub fn deadlock_at(&mut self, owner: &str, keys: &str, claim: Claim, position: QueuePosition) -> Option<String> {
        let owner = Owner::new(owner.as_bytes()).unwrap();
        let request = LockRequest { owner: owner.as_ref(), claim, lease: Lease::Persist };
        let owner_id = self.queues.owner_id(0, owner.as_bytes());
        let new = NewRequest { db: 0, names: &names(keys), request, owner_id, position, replaces: None };
        let now = self.server.now().timestamp();
        let mut keys = &mut self.server.keyspace;
        let mut holders = HolderLookup::new(&mut keys, &self.ended, now);
        let found = deadlock::Search::of(&self.queues, &new).find(&self.queues, &mut holders, &new);
        let is_searched = deadlock::search_for(&self.queues, &new).is_some();
        assert!(is_searched || found.is_none(), "the skipped search would have found a cycle");
        let cycle = found?;
        let edges = cycle.iter().map(|edge| format!("{:?}@{}", edge.owner, edge.key.escape_ascii()));
        Some(edges.collect::<Vec<_>>().join(" "))
    }

    /// Whether requests may wait for an owner in database 0.
    pub fn may_be_waited_for(&self, owner: &str) -> bool {
        self.queues.may_be_waited_for(0, owner.as_bytes(), self.queues.owner_id(0, owner.as_bytes()))
    }

    fn record_holders(&mut self, names: &[&[u8]]) -> Vec<RequestId> {
        let mut lost = Vec::new();
        for key in names.iter().map(|name| KeyRef { db: 0, name }) {
            let Some(id) = self.queues.id_of(key) else { continue };
            lost.extend(match (&mut self.server.keyspace).open(key).content() {
                Content::Lock(lock) => self.queues.record_holders(id, Some(lock)),
                _ => self.queues.record_holders(id, None),
            });
        }
        lost
    }
}

pub(super) fn names(keys: &str) -> Vec<&[u8]> {
    keys.as_bytes().chunks(1).collect()
}

pub(super) fn key(name: &str) -> Key {
    Key::new(0, name.as_bytes())
}

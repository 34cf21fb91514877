//! Invariants that must hold after every step, independent of the model.

use std::collections::{BTreeMap, HashSet};

use super::contract::{Claim, Command, Event, Holds};
use super::rules::{to_key, Rules};
use super::schedule::Step;
use crate::engine::lock_manager::LockManager;
use crate::engine::timers::NextTimer;
use crate::host::simulated::{Keyspace, Stored};
use crate::host::{Content, Entry, Keys, WriteCheck};
use crate::key::Key;
use crate::queue::request::QueuedRequest;
use crate::value::claim::LockType;
use crate::value::fence::Fence;
use crate::value::lock::Lock;
use crate::value::outcome::Admission;
use crate::value::owner::{Owner, MAX_OWNER};
use crate::value::rebuild::LockTypeAndLimit;
use crate::value::time::Deadline;

/// The largest LIMIT of semaphores in schedules.
const LARGEST_LIMIT: u64 = 3;

/// The holds before a step: key, owner, fencing token and deadline.
pub(super) struct Before(Vec<(Key, Owner, Fence, Deadline)>);

impl Before {
    pub fn of(rules: &Rules) -> Before {
        let locks = locks(&rules.server.keyspace.primary);
        let holds = locks.flat_map(|(key, lock, until)| {
            let holds = lock.holds(until).into_iter();
            holds.map(|hold| (key.clone(), hold.owner.clone(), hold.fence, hold.until))
        });
        Before(holds.collect())
    }

    /// A step that ends no hold must not remove a hold whose lease is running.
    pub fn check_no_holder_was_displaced(&self, step: &Step, rules: &Rules) {
        use Command::{Acquire, Break, Cancel, Release, Renew};
        let (mut broken, mut taken) = (None, Vec::new());
        let released = match step {
            Step::Send(Release { owner, .. }) => Some(owner.as_bytes()),
            Step::Send(Break { key, owner }) => {
                broken = Some((to_key(key), owner.map(str::as_bytes)));
                None
            }
            Step::Send(Command::TakeOver { pairs, .. }) => {
                taken.extend(pairs.iter().map(|(key, _)| to_key(key)));
                None
            }
            Step::Send(Acquire(_) | Renew { .. } | Cancel { .. } | Command::Count { .. }) => None,
            Step::Pass(_) | Step::Save => None,
            Step::Lag | Step::CatchUp | Step::Happen(Event::Unblocked(_) | Event::GraceSet(_)) => None,
            _ => return,
        };
        let now = rules.server.keyspace.timestamp();
        for (key, owner, fence, until) in &self.0 {
            // Holds of connections that ended while writes were refused are removed when they are inspected.
            let is_broken = broken
                .as_ref()
                .is_some_and(|(broken, whose)| broken == key && whose.is_none_or(|whose| whose == owner.as_bytes()));
            let is_broken = is_broken || taken.contains(key);
            let is_over = until.has_passed(now) || released == Some(owner.as_bytes()) || rules.manager.has_due();
            let is_held = || match rules.server.keyspace.primary.get(key) {
                Some(Stored::Lock(lock, until)) => {
                    lock.hold(owner.as_bytes(), *until).is_some_and(|h| h.fence >= *fence)
                }
                _ => false,
            };
            assert!(is_over || is_broken || is_held(), "{owner:?} was displaced from {key:?}");
        }
    }
}

fn locks(keys: &BTreeMap<Key, Stored>) -> impl Iterator<Item = (&Key, &Lock, Deadline)> {
    keys.iter().filter_map(|(key, stored)| match stored {
        Stored::Lock(lock, until) => Some((key, lock, *until)),
        Stored::Foreign => None,
    })
}

/// Panics unless requests could have produced this lock.
pub fn check_lock(lock: &Lock) {
    let kind = lock.lock_type_and_limit().expect("a lock has a lock type and a limit");
    assert!(LockTypeAndLimit::new(kind.lock_type, kind.limit).is_some(), "a limit invalid for the lock type: {kind:?}");
    let (fence, holds) = (lock.fence().expect("a stored lock is not vacant"), lock.stored_holds());
    assert!(!holds.is_empty() && !lock.is_vacant(), "a stored lock without a holder");
    assert_eq!((holds.len(), lock.owners().count()), (lock.holders(), lock.holders()), "holders");
    let mut owners = HashSet::new();
    for hold in &holds {
        let owner = hold.owner.as_bytes();
        assert!(owners.insert(owner), "{:?} holds it twice", hold.owner);
        assert!((1..=MAX_OWNER).contains(&owner.len()), "{:?} has an invalid length", hold.owner);
        assert_eq!(lock.fence_of(owner), Some(hold.fence), "{:?} is not found", hold.owner);
        assert!(hold.fence <= fence, "{:?} has a newer fence than the lock", hold.owner);
        // A reentrant mutex may be held 0 times: see `engine/counted_holds`.
        let may_be_none = lock.lock_type() == Some(LockType::Reentrant);
        let is_some = hold.holds > 0 || hold.reads > 0 || may_be_none;
        assert!(lock.is_held_by(owner) && is_some, "{:?} holds nothing", hold.owner);
        assert!(hold.reads == 0 || kind.lock_type == LockType::ReadWrite, "{:?} reads", hold.owner);
        assert!(hold.slot.is_none() || kind.lock_type == LockType::Semaphore && hold.holds == 1, "{:?}", hold.slot);
    }
    let slots: Vec<_> = holds.iter().filter_map(|hold| hold.slot).collect();
    assert_eq!(slots.iter().collect::<HashSet<_>>().len(), slots.len(), "two holders of one slot: {slots:?}");
    assert!(holds.is_sorted_by_key(|hold| hold.fence), "the oldest grant is not the first");
    match kind.lock_type {
        LockType::Mutex => assert_eq!((holds.len(), holds[0].holds, holds[0].fence), (1, 1, fence)),
        LockType::Reentrant => assert_eq!((holds.len(), holds[0].fence), (1, fence)),
        LockType::ReadWrite => {
            assert!(holds.len() == 1 || holds.iter().all(|hold| hold.holds == 0), "a writer next to another holder")
        }
        LockType::Semaphore => {}
    }
    if lock.is_shared() {
        let ends = || holds.iter().map(|hold| hold.until);
        assert_eq!(lock.last_deadline(), ends().max(), "the end of the last holder");
        let first = if holds.len() == 1 { Some(Deadline::Never) } else { ends().min() };
        assert_eq!(Some(lock.first_deadline(Deadline::Never)), first, "the end of the first holder");
    }
}

/// Every lock is valid, and no semaphore of a schedule has more permits held than the largest LIMIT.
pub(super) fn check_locks(keyspace: &Keyspace) {
    for (_, lock, _) in locks(&keyspace.primary) {
        check_lock(lock);
        // After LIMIT was lowered more permits may be held, but never more than the largest LIMIT ever requested.
        let is_within =
            || lock.holds(Deadline::Never).iter().map(|hold| u64::from(hold.holds)).sum::<u64>() <= LARGEST_LIMIT;
        assert!(lock.lock_type() != Some(LockType::Semaphore) || is_within(), "more permits than LIMIT: {lock:?}");
        let slots = lock.holds(Deadline::Never).into_iter().filter_map(|hold| hold.slot);
        let highest = slots.map(|slot| u64::from(slot.number())).max();
        assert!(highest < Some(LARGEST_LIMIT), "a slot is not below LIMIT: {lock:?}");
    }
}

/// A holder with an expired lease is removed from a lock that requests wait for.
pub(super) fn check_ended_leases_hold_nothing(rules: &Rules) {
    let (keyspace, now) = (&rules.server.keyspace, rules.server.keyspace.timestamp());
    if keyspace.write_check != WriteCheck::Allowed {
        return;
    }
    let is_waited_for =
        |key: &Key| rules.manager.queues().of_key(key.as_ref()).is_some_and(|queue| queue.waiters() > 0);
    let waited_for = locks(&keyspace.primary).filter(|(key, ..)| is_waited_for(key));
    for (key, lock, until) in waited_for.filter(|(.., until)| !until.has_passed(now)) {
        let over = lock.holds(until).into_iter().find(|hold| hold.until.has_passed(now));
        assert!(over.is_none(), "{key:?} is held though the lease is over: {over:?}");
    }
}

/// A replica that has applied all effects has the same state as the primary.
pub(super) fn check_replica(keyspace: &Keyspace) {
    if keyspace.lags {
        return;
    }
    let (primary, replica) = (&keyspace.primary, &keyspace.replica.keys);
    assert_eq!(primary.len(), replica.len(), "keys that only one of the two has");
    for (key, stored) in primary {
        let is_same = match (stored, replica.get(key)) {
            (Stored::Foreign, Some(Stored::Foreign)) => true,
            (Stored::Lock(lock, until), Some(Stored::Lock(copy, copy_until))) => {
                let holds = |lock: &Lock, until: Deadline| -> Vec<_> {
                    let holds = lock.holds(until).into_iter();
                    holds
                        .map(|h| (h.owner.clone(), h.fence, h.lease, h.until, h.holds, h.reads, h.slot, h.origin))
                        .collect()
                };
                let is_same_kind = lock.lock_type_and_limit().map(|kind| (kind.lock_type, kind.limit))
                    == copy.lock_type_and_limit().map(|kind| (kind.lock_type, kind.limit));
                is_same_kind && until == copy_until && holds(lock, *until) == holds(copy, *copy_until)
            }
            _ => false,
        };
        assert!(is_same, "{key:?}: {stored:?} {:?}", replica.get(key));
    }
}

/// While the server accepts writes, the head of every wait queue is blocked by a holder.
pub(super) fn check_no_admissible_waiter_is_left(rules: &mut Rules) {
    let keyspace = &mut rules.server.keyspace;
    if keyspace.write_check != WriteCheck::Allowed {
        return;
    }
    let queues = rules.manager.queues();
    for (_, queue) in queues.iter() {
        assert!(queue.waiters() == 0 || !queue.has_reentering(), "requests that may reenter are left: {queue:?}");
        let head = queue.head().and_then(|(_, id)| queues.request(id));
        let Some(head) = head.filter(|head: &&QueuedRequest| !head.has_multiple_keys()) else { continue };
        let (owner, claim) = (head.owner.as_bytes(), head.claim.under_limit(queue.limit));
        let admission = match (&mut *keyspace).open(queue.key.as_ref()).content() {
            Content::Lock(lock) => lock.admission(owner, &claim),
            _ => Lock::Vacant.admission(owner, &claim),
        };
        assert_eq!(admission, Ok(Admission::Wait), "left behind: {head:?}");
    }
}

/// After releasing all holds, the owner holds nothing of the key, unless it waits for more.
pub(super) fn check_release(command: &Command, rules: &Rules) {
    let Command::Release { keys, owner, claim, .. } = command else { return };
    let gives_all = *claim == Claim::Mutex || claim.holds() == Holds::Exactly(0);
    let [key] = keys[..] else { return };
    if let (true, Some(Stored::Lock(lock, until))) = (gives_all, rules.server.keyspace.primary.get(&to_key(key))) {
        let left = lock.hold(owner.as_bytes(), *until).map(|hold| {
            if matches!(claim, Claim::Read(_)) {
                hold.reads
            } else {
                hold.holds
            }
        });
        assert!(
            left.is_none_or(|left| left == 0) || lock.lock_type() != Some(super::rules::lock_type(claim.kind())),
            "the owner released all its holds and still holds the key"
        );
    }
}

/// When all clients have disconnected, no state of them is left.
pub(super) fn check_nothing_is_left(manager: &LockManager) {
    assert!(manager.queues().is_empty(), "{:?}", manager.queues());
    assert!(manager.queues().is_clean(), "{:?}", manager.queues());
    assert!(manager.bindings().is_empty());
    assert!(!manager.has_due());
    assert_eq!(manager.next_timer(), NextTimer::default());
}

//! What must hold after every step, whatever the model says.

use std::collections::HashMap;

use super::contract::{Claim, Command, Event, Holds};
use super::rules::{to_key, Rules};
use super::schedule::Step;
use crate::host::simulated::{Keyspace, Stored};
use crate::host::{Content, Entry, Gate, Keys};
use crate::key::Key;
use crate::manager::lock_manager::LockManager;
use crate::manager::timers::NextTimer;
use crate::queue::request::QueuedRequest;
use crate::value::claim::Family;
use crate::value::fence::Fence;
use crate::value::lock::Lock;
use crate::value::outcome::Admission;
use crate::value::owner::Owner;
use crate::value::time::Deadline;

/// Who held what before a step, until when.
pub(super) struct Before(Vec<(Key, Owner, Fence, Deadline)>);

impl Before {
    pub fn of(rules: &Rules) -> Before {
        let locks = locks(&rules.server.keyspace.primary);
        let holds = locks.flat_map(|(key, lock, until)| {
            let holds = lock.holds(lock.holders_until(until, rules.manager.shortened_to(key.as_ref()))).into_iter();
            holds.map(|hold| (key.clone(), hold.owner.clone(), hold.fence, hold.until))
        });
        Before(holds.collect())
    }

    /// Nobody whose lease goes on lost its hold by a step that takes nothing away.
    pub fn check_nobody_was_displaced(&self, step: &Step, rules: &Rules) {
        use Command::{Acquire, Break, Cancel, Release, Renew};
        let mut broken = None;
        let released = match step {
            Step::Send(Release { owner, .. }) => Some(owner.as_bytes()),
            Step::Send(Break { key, owner }) => {
                broken = Some((to_key(key), owner.map(str::as_bytes)));
                None
            }
            Step::Send(Acquire(_) | Renew { .. } | Cancel { .. }) | Step::Pass(_) | Step::Save => None,
            Step::Lag | Step::CatchUp | Step::Happen(Event::Unblocked(_) | Event::GraceSet(_)) => None,
            _ => return,
        };
        let now = rules.server.keyspace.timestamp();
        for (key, owner, fence, until) in &self.0 {
            // Connections that ended while writes were refused lose their holds when they are looked at.
            let is_broken = broken
                .as_ref()
                .is_some_and(|(broken, whose)| broken == key && whose.is_none_or(|whose| whose == owner.as_bytes()));
            let is_over = until.is_over(now) || released == Some(owner.as_bytes()) || rules.manager.has_due();
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

fn locks(keys: &HashMap<Key, Stored>) -> impl Iterator<Item = (&Key, &Lock, Deadline)> {
    keys.iter().filter_map(|(key, stored)| match stored {
        Stored::Lock(lock, until) => Some((key, lock, *until)),
        Stored::Foreign => None,
    })
}

/// No lock has holders that exclude each other, and every lock has one.
pub(super) fn check_locks(keyspace: &Keyspace) {
    for (_, lock, _) in locks(&keyspace.primary) {
        assert!(!lock.is_vacant(), "nobody holds it, and it is there");
        let holds = lock.holds(Deadline::Never);
        match lock.family().expect("it is not vacant") {
            Family::Mutex | Family::Reentrant => assert_eq!(holds.len(), 1),
            Family::ReadWrite => {
                assert!(holds.len() == 1 || holds.iter().all(|hold| hold.holds == 0), "a writer is alone")
            }
            // A smaller limit drains: no more than the largest that was ever asked for.
            Family::Semaphore => assert!(holds.iter().map(|hold| hold.holds).sum::<u32>() <= 3),
        }
    }
}

/// Whose lease is over holds nothing any more, whether anybody waits or not.
pub(super) fn check_nobody_holds_on(rules: &Rules) {
    let (keyspace, now) = (&rules.server.keyspace, rules.server.keyspace.timestamp());
    if keyspace.gate != Gate::Open || rules.manager.ends_are_put_off(keyspace.instant()) {
        return;
    }
    for (key, lock, until) in locks(&keyspace.primary).filter(|(.., until)| !until.is_over(now)) {
        let over = lock.holds(until).into_iter().find(|hold| hold.until.is_over(now));
        assert!(over.is_none(), "{key:?} is held though the lease is over: {over:?}");
    }
}

/// The replica knows from the effects alone what the primary knows, when it has them all.
pub(super) fn check_replica(keyspace: &Keyspace) {
    if keyspace.lags {
        return;
    }
    let (primary, replica) = (&keyspace.primary, &keyspace.replica.keys);
    assert_eq!(primary.len(), replica.len(), "keys that only one has");
    for (key, stored) in primary {
        let is_same = match (stored, replica.get(key)) {
            (Stored::Foreign, Some(Stored::Foreign)) => true,
            (Stored::Lock(lock, until), Some(Stored::Lock(copy, copy_until))) => {
                let holds = |lock: &Lock, until: Deadline| -> Vec<_> {
                    let holds = lock.holds(until).into_iter();
                    holds.map(|h| (h.owner.clone(), h.fence, h.lease, h.until, h.holds, h.reads)).collect()
                };
                let is_same_kind = lock.family_and_limit().map(|kind| (kind.family, kind.limit))
                    == copy.family_and_limit().map(|kind| (kind.family, kind.limit));
                is_same_kind && until == copy_until && holds(lock, *until) == holds(copy, *copy_until)
            }
            _ => false,
        };
        assert!(is_same, "{key:?}: {stored:?} {:?}", replica.get(key));
    }
}

/// While the server accepts writes, the head of every wait queue has a holder in its way.
pub(super) fn check_nobody_is_left_behind(rules: &mut Rules) {
    let keyspace = &mut rules.server.keyspace;
    if keyspace.gate != Gate::Open {
        return;
    }
    let queues = rules.manager.queues();
    for (_, queue) in queues.iter() {
        let head = queue.first().and_then(|id| queues.request(id));
        let Some(head) = head.filter(|head: &&QueuedRequest| !head.has_several_keys()) else { continue };
        let (owner, claim) = (head.owner.as_bytes(), queue.under_limit(head.claim));
        let admission = match (&mut *keyspace).open(queue.key.as_ref()).content() {
            Content::Lock(lock) => lock.admission(owner, &claim),
            _ => Lock::Vacant.admission(owner, &claim),
        };
        assert_eq!(admission, Ok(Admission::Wait), "left behind: {head:?}");
    }
}

/// A release of all that the owner had leaves it nothing of that key, if it waits for nothing more.
pub(super) fn check_release(command: &Command, rules: &Rules) {
    let Command::Release { keys, owner, claim } = command else { return };
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
            left.is_none_or(|left| left == 0) || lock.family() != Some(super::rules::family(claim.kind())),
            "released, not free"
        );
    }
}

/// When everyone has gone, nothing is left of them.
pub(super) fn check_nothing_is_left(manager: &LockManager) {
    assert!(manager.queues().is_empty(), "{:?}", manager.queues());
    assert!(manager.queues().is_clean(), "{:?}", manager.queues());
    assert!(manager.bindings().is_empty());
    assert!(!manager.has_due());
    assert_eq!(manager.next_timer(), NextTimer::default());
}

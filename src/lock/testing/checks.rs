//! What must hold after every step of a schedule.

use std::collections::HashMap;

use crate::host::simulated::{Keyspace, SimulatedServer};
use crate::host::{Content, Entry, Gate, Keys, WaitOutcome};
use crate::key::{Key, RequestId};
use crate::manager::lock_manager::LockManager;
use crate::queue::request::{Place, QueuedRequest};
use crate::queue::wait_queue::WaitQueue;
use crate::value::claim::{Family, InvalidClaim};
use crate::value::fence::Fence;
use crate::value::lock::Lock;
use crate::value::outcome::Admission;
use crate::value::owner::Owner;
use crate::value::time::Deadline;

/// Who waited and who held before a step.
pub(super) struct Before {
    waiting: HashMap<RequestId, Waiting>,
    held: HashMap<Key, Lock>,
}

/// A queued request as it stood before a step.
struct Waiting {
    owner: Owner,
    keys: Vec<Key>,
    place: Place,
    is_present: bool,
}

impl Before {
    pub fn of(server: &SimulatedServer, manager: &LockManager) -> Before {
        let queues = manager.queues();
        let waiting = |request: &QueuedRequest| Waiting {
            owner: request.owner.clone(),
            keys: queues.keys_of(request).cloned().collect(),
            place: request.place,
            is_present: request.is_present(),
        };
        let stored = server.keyspace.primary.iter();
        Before {
            waiting: queues.requests().map(|(id, request)| (id, waiting(request))).collect(),
            held: stored.map(|(key, (lock, _))| (key.clone(), lock.clone())).collect(),
        }
    }
}

/// What has to be remembered to check the grants.
#[derive(Default)]
pub(super) struct Grants {
    /// The highest fence so far.
    highest: u64,
    /// Owners that were granted something in this step.
    in_this_step: Vec<Owner>,
}

impl Grants {
    pub fn begin_step(&mut self) {
        self.in_this_step.clear();
    }

    /// A grant that answered its request at once.
    pub fn note(&mut self, fence: Fence) {
        self.highest = self.highest.max(fence.get());
    }

    /// Fences grow, and whoever was granted something had nobody ahead who was there before and is there still. Returns
    /// the requests that were granted.
    pub fn check_answers(
        &mut self,
        server: &mut SimulatedServer,
        manager: &LockManager,
        before: &Before,
    ) -> Vec<RequestId> {
        let mut granted = Vec::new();
        let still_waits = |id: RequestId| manager.queues().request(id).is_some_and(QueuedRequest::is_present);
        for (id, outcome) in std::mem::take(&mut server.inbox.answers) {
            assert!(!still_waits(id), "answered, but still waits: {outcome:?}");
            let WaitOutcome::Granted { fence, .. } = outcome else { continue };
            granted.push(id);
            let Some(me) = before.waiting.get(&id) else { continue };
            let had = |key: &Key| before.held.get(key).is_some_and(|lock| lock.is_held_by(me.owner.as_bytes()));
            // Granted before in this step, it reenters now, or goes on to the other keys of another request.
            let reenters = self.in_this_step.contains(&me.owner) || me.keys.iter().any(had);
            self.in_this_step.push(me.owner.clone());
            assert!(reenters || fence.get() > self.highest, "fences grow");
            self.note(fence);
            for (other_id, other) in &before.waiting {
                let is_ahead = other.place < me.place && other.keys.iter().any(|key| me.keys.contains(key));
                let has_several_keys = other.keys.len() > 1;
                let is_overtaken =
                    other.is_present && still_waits(*other_id) && is_ahead && !reenters && !has_several_keys;
                assert!(!is_overtaken, "{:?} overtook {:?}", me.owner, other.owner);
            }
        }
        granted
    }
}

/// The replica knows from the effects alone what the primary knows.
pub(super) fn check_replica(keyspace: &Keyspace) {
    let shown = |locks: &HashMap<Key, (Lock, Deadline)>| {
        let show = |key: &Key, lock: &Lock, until: &Deadline| {
            format!("{key:?} {:?} {until:?} {:?}", lock.family_and_limit(), lock.holds(*until))
        };
        let mut all: Vec<String> = locks.iter().map(|(key, (lock, until))| show(key, lock, until)).collect();
        all.sort();
        all
    };
    assert_eq!(shown(&keyspace.primary), shown(&keyspace.replica));
}

/// No lock has holders that exclude each other, and every lock has one.
pub(super) fn check_locks(keyspace: &Keyspace) {
    for (lock, _) in keyspace.primary.values() {
        assert!(!lock.is_vacant(), "nobody holds it, and it is there");
        let holds = lock.holds(Deadline::Never);
        match lock.family().expect("it is not vacant") {
            Family::Mutex | Family::Reentrant => assert_eq!(holds.len(), 1),
            Family::ReadWrite => {
                assert!(holds.len() == 1 || holds.iter().all(|hold| hold.holds == 0), "a writer is alone")
            }
            // A smaller limit drains: no more than the largest that was ever asked for.
            Family::Semaphore => assert!(holds.iter().map(|hold| hold.holds).sum::<u32>() <= 4),
        }
    }
}

/// While the server accepts writes, the head of every wait queue has a holder in its way.
pub(super) fn check_nobody_is_left_behind(server: &mut SimulatedServer, manager: &LockManager) {
    if server.keyspace.gate != Gate::Open {
        return;
    }
    let queues = manager.queues();
    for (_, queue) in queues.iter() {
        let head = queue.first().and_then(|id| queues.request(id));
        let Some(head) = head.filter(|head| !head.has_several_keys()) else { continue };
        assert_eq!(admission(server, queue, head), Ok(Admission::Wait), "left behind: {head:?}");
    }
}

/// When everyone has gone, nothing is left of them.
pub(super) fn check_nothing_is_left(manager: &LockManager) {
    assert!(manager.queues().is_empty(), "{:?}", manager.queues());
    assert!(manager.queues().is_clean(), "{:?}", manager.queues());
    assert!(manager.bindings().is_empty());
    assert!(!manager.has_due());
    assert_eq!(manager.next_timer(), None);
}

fn admission(server: &mut SimulatedServer, queue: &WaitQueue, head: &QueuedRequest) -> Result<Admission, InvalidClaim> {
    let (owner, claim) = (head.owner.as_bytes(), queue.under_limit(head.claim));
    match (&mut server.keyspace).open(queue.key.as_ref()).content() {
        Content::Lock(lock) => lock.admission(owner, &claim),
        _ => Lock::Vacant.admission(owner, &claim),
    }
}

//! Commands of other clients between two event-loop iterations, while waiters are served a few at a time: no new
//! request overtakes a waiter.
//!
//! The model serves all waiters at once, so it cannot predict the reply to such a new request. The check runs on a copy
//! of the rules, which plays the remaining iterations separately.

use super::checks;
use super::rules::Rules;
use crate::engine::acquire::{AcquireRequest, Acquired, Wait};
use crate::engine::leave::Leave;
use crate::engine::lock_manager::LockError;
use crate::host::{WaitOutcome, WriteCheck};
use crate::key::{Key, RequestId};
use crate::queue::position::QueuePosition;
use crate::queue::wait_queue::WaitQueue;
use crate::value::claim::{Claim, Count, LockRequest, LockType, Mode};
use crate::value::owner::Owner;
use crate::value::time::{Lease, WaitLimit};

/// Another event between the iterations.
#[derive(Clone, Copy, Debug)]
enum Else {
    Nothing,
    Deleted,
    HeadLeaves,
    LastRetries,
}

const ELSE: [Else; 4] = [Else::Nothing, Else::Deleted, Else::HeadLeaves, Else::LastRetries];

/// An owner that holds and waits for nothing requests a waited-for key, and another event follows. `chance` selects
/// both. The new request must not be granted ahead of the waiters.
pub(super) fn check_no_request_overtakes(rules: &Rules, chance: usize) {
    if rules.server.keyspace.write_check != WriteCheck::Allowed {
        return;
    }
    let mut queues: Vec<_> = rules.manager.queues().iter().filter(|(_, queue)| queue.waiters() > 0).collect();
    queues.sort_by_key(|(id, _)| *id);
    let Some((_, queue)) = queues.get(chance % queues.len().max(1)) else { return };
    let ahead: Vec<(QueuePosition, RequestId)> = queue.present().map(|(position, id)| (position.clone(), id)).collect();
    // A multi-key request may be reevaluated in the meantime, which moves it behind the new request.
    let has_one_key = |id: &RequestId| rules.manager.queues().request(*id).is_some_and(|it| !it.has_multiple_keys());
    let of_one_key: Vec<RequestId> = ahead.iter().map(|(_, id)| *id).filter(has_one_key).collect();
    let (key, claim) = (queue.key.clone(), claim_of(queue));
    let mut there = rules.clone();
    there.outcomes = Some(Vec::new());
    let asked = there.ask(&key, "newcomer", claim, None);
    assert!(!matches!(asked, Ok(Acquired::Granted(_))), "{key:?} is granted ahead of its waiters: {asked:?}");
    let newcomer = there.ask(
        &key,
        "newcomer",
        claim,
        Some(Wait { limit: WaitLimit::Unlimited, may_detach: false, coalesces: false, lease_deadline: None }),
    );
    assert!(!matches!(newcomer, Ok(Acquired::Granted(_))), "{key:?} is granted ahead of its waiters: {newcomer:?}");
    match ELSE[chance / 7 % ELSE.len()] {
        Else::Nothing => {}
        Else::Deleted => there.server.keyspace.delete(&key),
        Else::HeadLeaves => {
            let now = there.server.now();
            there.manager.leave(&now, ahead[0].1, Leave::Abandon);
        }
        Else::LastRetries => there.retry(ahead.last().expect("the queue has waiters")),
    }
    let replies = there.go_on();
    let granted = |wanted: RequestId| {
        replies.iter().find_map(|(id, outcome)| match outcome {
            WaitOutcome::Granted { fence, .. } if *id == wanted => Some(*fence),
            _ => None,
        })
    };
    if let Ok(Acquired::Queued(newcomer)) = newcomer {
        if let Some(fence) = granted(newcomer) {
            let queue = there.manager.queues().of_key(key.as_ref());
            let newcomers_position = ahead.last().map(|(position, _)| position).expect("the queue has waiters");
            let left = queue
                .is_some_and(|queue| queue.head().is_some_and(|(_, head)| there.position(head) <= *newcomers_position));
            assert!(!left, "a waiter for {key:?} was overtaken");
            let is_later = of_one_key.iter().filter_map(|id| granted(*id)).all(|other| other < fence);
            assert!(is_later, "the grants of {key:?} are not in the order of the queue: {replies:?}");
        }
    }
    checks::check_locks(&there.server.keyspace);
    checks::check_ended_leases_hold_nothing(&there);
    checks::check_replica(&there.server.keyspace);
    if there.manager.has_grace_ended(&there.server.now()) {
        checks::check_no_admissible_waiter_is_left(&mut there);
    }
}

impl Rules {
    pub(super) fn ask(
        &mut self,
        key: &Key,
        owner: &str,
        claim: Claim,
        wait: Option<Wait>,
    ) -> Result<Acquired, LockError> {
        let owner = Owner::new(owner.as_bytes()).expect("an owner's name is short");
        let request = LockRequest { owner: owner.as_ref(), claim, lease: Lease::Persist };
        let request = AcquireRequest { db: 0, names: &[&key.name], request, wait, session: None };
        let now = self.server.now();
        let acquired = self.manager.with_host(&mut self.server.host(&now)).acquire(request);
        self.number(&acquired);
        acquired
    }

    /// Assigns a number to a queued request, under which its outcome is reported.
    fn number(&mut self, acquired: &Result<Acquired, LockError>) {
        if let Ok(Acquired::Queued(id)) = acquired {
            self.numbers.insert(*id, u64::MAX);
        }
    }

    /// Repeats the same request: it keeps its position or is granted.
    fn retry(&mut self, (position, id): &(QueuePosition, RequestId)) {
        let Some(queued) = self.manager.queues().request(*id).cloned() else { return };
        let keys: Vec<Key> = self.manager.queues().keys_of(&queued).cloned().collect();
        let names: Vec<&[u8]> = keys.iter().map(|key| &*key.name).collect();
        let wait = Some(Wait {
            limit: WaitLimit::Unlimited,
            may_detach: true,
            coalesces: queued.coalesces,
            lease_deadline: None,
        });
        let request = AcquireRequest { db: 0, names: &names, request: queued.request(), wait, session: queued.session };
        let now = self.server.now();
        // If no positions are reserved, a request loses its position when its connection ends.
        let keeps_position = queued.may_detach && self.manager.limits.keep_place_ms > 0;
        let has_position =
            keeps_position && !self.manager.ends_with_outcome(*id) || !self.manager.is_being_removed(*id);
        // An adopted request does not resume the position of a request that still waits.
        let has_position = has_position && queued.claim != Claim::AdoptedMutex;
        let acquired = self.manager.with_host(&mut self.server.host(&now)).acquire(request);
        self.number(&acquired);
        match acquired {
            // If its LIMIT admits a waiter at once, perhaps itself, it may already have been granted.
            Ok(Acquired::Queued(id)) if self.manager.queues().request(id).is_none() => {}
            // The retry detects an upgrade whose owner no longer reads.
            Ok(Acquired::Queued(id)) => {
                let QueuePosition { arrival, .. } = self.position(id);
                // The owner may have become a reader: an upgrade is ahead of all others.
                let is_kept = arrival == position.arrival || self.position(id) < *position;
                assert!(is_kept || !has_position, "a retry keeps its position");
            }
            Ok(Acquired::Granted(_)) | Err(_) => {}
            Ok(Acquired::NotGranted) => panic!("a retry waits"),
        }
    }

    fn position(&self, id: RequestId) -> QueuePosition {
        self.manager.queues().request(id).expect("the request is queued").position.clone()
    }

    /// Plays the remaining iterations. Returns the outcomes of waits.
    fn go_on(&mut self) -> Vec<(RequestId, WaitOutcome)> {
        for _ in 0..1_000 {
            if !self.play_iteration() {
                return self.outcomes.take().unwrap_or_default();
            }
        }
        panic!("the timer never comes to rest");
    }
}

/// The claim of the new request: the one most likely to be admitted.
fn claim_of(queue: &WaitQueue) -> Claim {
    let one = Count::Delta(1);
    match queue.lock_type {
        LockType::Mutex => Claim::Mutex,
        LockType::Reentrant => Claim::Reentrant(one),
        LockType::ReadWrite => Claim::ReadWrite(Mode::Read, one),
        LockType::Semaphore => Claim::Permits { limit: queue.limit.unwrap_or(1), count: one },
    }
}

//! A replica that received arbitrary effects is promoted: it replies to every request, leases expire, waiters are
//! served, and no state is left when all clients have disconnected.

use super::checks;
use super::rules::Rules;
use crate::engine::acquire::{Acquired, Wait};
use crate::engine::release::{HoldsOf, WorkOutcome};
use crate::host::simulated::{Replica, Stored};
use crate::key::Key;
use crate::value::claim::{Claim, Count, Mode, ReleaseAmount};
use crate::value::fence::Fence;
use crate::value::lock::Lock;
use crate::value::rebuild::ReplicatedEffect;
use crate::value::time::{Deadline, Timestamp, WaitLimit};

/// More waiters than the effects of one input can lead to.
const MAX_WAITERS: usize = 1_000;

/// The maximum number of lease expiries to wait for, one after another.
const MAX_ENDS: usize = 40;

const ONE: Count = Count::Delta(1);

/// The claims of new requests on every key. Most are of another lock type than the lock.
const CLAIMS: [Claim; 6] = [
    Claim::Mutex,
    Claim::Reentrant(ONE),
    Claim::ReadWrite(Mode::Read, ONE),
    Claim::ReadWrite(Mode::Write, ONE),
    Claim::Permits { limit: 2, count: ONE },
    Claim::Slot { limit: 2 },
];

/// A server that has only received effects.
#[derive(Clone, Default)]
pub struct ReplicaUnderTest(Replica);

impl ReplicaUnderTest {
    /// Applies an effect, as LOCK.APPLY does.
    pub fn receive(&mut self, key: &[u8], effect: ReplicatedEffect<'_>) {
        self.0.receive(Key::new(0, key), effect);
    }

    /// The lock under a key, and when the key expires.
    pub fn lock(&self, key: &[u8]) -> Option<(&Lock, Deadline)> {
        match self.0.keys.get(&Key::new(0, key))? {
            Stored::Lock(lock, until) => Some((lock, *until)),
            Stored::Foreign => None,
        }
    }

    /// Promotes it, with its wall clock at `now`, and sends new requests until all clients have disconnected. Panics if
    /// a check fails.
    pub fn promote(self, now: Timestamp) {
        let mut rules = Rules::new(MAX_WAITERS, 0);
        let keyspace = &mut rules.server.keyspace;
        keyspace.ahead_ms = i64::try_from(now.ms()).unwrap_or(i64::MAX).saturating_sub_unsigned(keyspace.now_ms);
        let mut keys: Vec<Key> = self.0.keys.keys().cloned().collect();
        keys.sort_by(|a, b| a.name.cmp(&b.name));
        if let Some(fence) = self.0.fence {
            rules.manager.fences.raise(fence);
        }
        keyspace.restart_from(self.0);
        rules.finish_and_check();
        for key in &keys {
            rules.send_new_requests(key);
            rules.finish_and_check();
        }
        for key in &keys {
            rules.first_holder_releases(key);
            rules.finish_and_check();
        }
        rules.wait_for_ends();
        rules.break_all(&keys);
    }
}

impl Rules {
    fn finish_and_check(&mut self) {
        self.play_iterations(|_, _| {});
        self.take_replies();
        for stored in self.server.keyspace.primary.values() {
            if let Stored::Lock(lock, _) = stored {
                checks::check_lock(lock);
            }
        }
        checks::check_ended_leases_hold_nothing(self);
        checks::check_replica(&self.server.keyspace);
        checks::check_no_admissible_waiter_is_left(self);
    }

    fn send_new_requests(&mut self, key: &Key) {
        for (number, claim) in CLAIMS.into_iter().enumerate() {
            let wait = Wait { limit: WaitLimit::Unlimited, may_detach: false, coalesces: false, lease_deadline: None };
            let before = self.last_fence();
            let owner = format!("newcomer {number}");
            // The effects may have made this owner a holder.
            let held = self.server.keyspace.primary.get(key);
            let held_before = matches!(held, Some(Stored::Lock(lock, _)) if lock.is_held_by(owner.as_bytes()));
            let asked = self.ask(key, &owner, claim, Some(wait));
            if let (Ok(Acquired::Granted(grant)), false) = (asked, held_before) {
                assert!(Some(grant.fence) > before, "the fence of a new grant is not above all before it");
            }
        }
    }

    fn last_fence(&self) -> Option<Fence> {
        self.manager.fences.last()
    }

    /// The first holder releases all its holds.
    fn first_holder_releases(&mut self, key: &Key) {
        let now = &self.server.now();
        let Some(Stored::Lock(lock, _)) = self.server.keyspace.primary.get(key) else { return };
        let Some(owner) = lock.owners().next().cloned() else { return };
        let all = Count::Exactly(0);
        for amount in [
            ReleaseAmount::Mutex,
            ReleaseAmount::Reentrant(all),
            ReleaseAmount::ReadWrite(Mode::Read, all),
            ReleaseAmount::ReadWrite(Mode::Write, all),
            ReleaseAmount::Permits(all),
        ] {
            let _ = self.manager.with_host(&mut self.server.host(now)).release(
                key.as_ref(),
                owner.as_bytes(),
                &amount,
                WorkOutcome::Done,
            );
        }
        let held = self.server.keyspace.primary.get(key);
        let is_held = matches!(held, Some(Stored::Lock(lock, _)) if lock.is_held_by(owner.as_bytes()));
        assert!(!is_held, "{owner:?} has released all its holds and still holds {key:?}");
    }

    /// Advances the time from one lease expiry to the next.
    fn wait_for_ends(&mut self) {
        for _ in 0..MAX_ENDS {
            let ahead = self.manager.timers_ahead(&self.server.now());
            let Some(next) = ahead.into_iter().filter(|ahead| *ahead > 0).min() else { return };
            // At most a year, so that the clocks do not overflow.
            self.server.keyspace.now_ms += next.min(31_536_000_000);
            self.finish_and_check();
        }
    }

    /// Breaks all holds until no waiter is left to become a holder.
    fn break_all(&mut self, keys: &[Key]) {
        for key in keys {
            for _ in 0..=CLAIMS.len() {
                let now = &self.server.now();
                let _ =
                    self.manager.with_host(&mut self.server.host(now)).break_holds(key.as_ref(), HoldsOf::AllOwners);
                self.finish_and_check();
            }
        }
        assert!(self.server.keyspace.primary.is_empty(), "held by {:?}", self.server.keyspace.primary);
        checks::check_nothing_is_left(&self.manager);
    }
}

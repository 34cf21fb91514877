//! A lock manager with a simulated server, for the tests of this folder. Methods without a key argument use the key k.

use super::acquire::{AcquireRequest, Acquired, Wait};
use super::leave::Cancelled;
use super::lock_manager::{LockError, LockManager};
use super::release::{HoldsOf, WorkOutcome};
use super::timers::NextTimer;
use crate::host::simulated::{SentEffect, SimulatedServer, Stored};
use crate::key::{ClientId, Key};
use crate::value::claim::{Claim, LockRequest, ReleaseAmount};
use crate::value::lock::Lock;
use crate::value::outcome::{KeyError, Released};
use crate::value::owner::Owner;
use crate::value::time::{Deadline, Instant, Lease, Timestamp, WaitLimit};

#[derive(Default)]
pub(super) struct Fixture {
    pub server: SimulatedServer,
    pub manager: LockManager,
}

pub(super) fn key() -> Key {
    Key::new(0, b"k")
}

pub(super) fn owner(name: &str) -> Owner {
    Owner::new(name.as_bytes()).unwrap()
}

impl Fixture {
    /// Sends these requests in order; each is granted or queued.
    pub fn of(requests: &[(&str, Claim)]) -> Fixture {
        let mut fixture = Fixture::default();
        for (name, claim) in requests {
            fixture.acquire(name, *claim, None, Lease::Persist);
        }
        fixture.server.keyspace.sent_effects = Some(Vec::new());
        fixture
    }

    pub fn acquire(&mut self, name: &str, claim: Claim, session: Option<ClientId>, lease: Lease) -> Acquired {
        self.acquire_all(name, &[b"k"], claim, session, lease)
    }

    pub fn acquire_all(
        &mut self,
        name: &str,
        names: &[&[u8]],
        claim: Claim,
        session: Option<ClientId>,
        lease: Lease,
    ) -> Acquired {
        self.try_acquire_all(name, names, claim, session, lease).unwrap()
    }

    /// As `acquire`, for a request that may be refused.
    pub fn try_acquire(&mut self, name: &str, names: &[&[u8]], claim: Claim) -> Result<Acquired, LockError> {
        self.try_acquire_all(name, names, claim, None, Lease::Persist)
    }

    fn try_acquire_all(
        &mut self,
        name: &str,
        names: &[&[u8]],
        claim: Claim,
        session: Option<ClientId>,
        lease: Lease,
    ) -> Result<Acquired, LockError> {
        let (owner, now) = (owner(name), self.server.now());
        let request = LockRequest { owner: owner.as_ref(), claim, lease };
        let wait =
            Some(Wait { limit: WaitLimit::Unlimited, may_detach: false, coalesces: false, lease_deadline: None });
        let request = AcquireRequest { db: 0, names, request, wait, session };
        self.manager.with_host(&mut self.server.host(&now)).acquire(request)
    }

    pub fn release(&mut self, name: &str, amount: ReleaseAmount) -> Result<Released, KeyError> {
        let now = self.server.now();
        self.manager.with_host(&mut self.server.host(&now)).release(
            key().as_ref(),
            name.as_bytes(),
            &amount,
            WorkOutcome::Done,
        )
    }

    pub fn break_holds(&mut self, holds_of: HoldsOf<'_>) -> Result<usize, KeyError> {
        let now = &self.server.now();
        self.manager.with_host(&mut self.server.host(now)).break_holds(key().as_ref(), holds_of)
    }

    pub fn cancel(&mut self, name: &str) -> Result<Cancelled, KeyError> {
        let now = self.server.now();
        self.manager.with_host(&mut self.server.host(&now)).cancel(key().as_ref(), name.as_bytes())
    }

    /// Processes the timers that are due.
    pub fn tick(&mut self) {
        let now = self.server.now();
        self.manager.with_host(&mut self.server.host(&now)).tick();
    }

    /// When the next timer fires that has something to do. Both clocks show the same time here, unless a test has set
    /// the wall clock.
    pub fn next_timer(&mut self) -> Option<u64> {
        let NextTimer { instant, timestamp } = self.manager.next_timer();
        instant.map(Instant::ms).into_iter().chain(timestamp.map(Timestamp::ms)).min()
    }

    pub fn drain(&mut self) {
        let now = self.server.now();
        self.manager.with_host(&mut self.server.host(&now)).drain();
    }

    /// The holders of the key, in the order of their grants.
    pub fn holders(&self) -> String {
        let stored = self.server.keyspace.primary.get(&key());
        let holds = match stored {
            Some(Stored::Lock(lock, _)) => lock.holds(Deadline::Never),
            Some(Stored::Foreign) | None => Vec::new(),
        };
        holds.iter().map(|hold| format!("{:?}", hold.owner)).collect::<Vec<_>>().join(" ")
    }

    /// The lock under the key, and the key's own deadline.
    pub fn stored(&self) -> (&Lock, Deadline) {
        self.stored_under(&key()).expect("the key holds a lock")
    }

    pub fn stored_under(&self, key: &Key) -> Option<(&Lock, Deadline)> {
        match self.server.keyspace.primary.get(key)? {
            Stored::Lock(lock, until) => Some((lock, *until)),
            Stored::Foreign => None,
        }
    }

    pub fn effects(&mut self) -> Vec<SentEffect> {
        self.server.keyspace.sent_effects.replace(Vec::new()).unwrap_or_default()
    }
}

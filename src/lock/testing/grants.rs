//! What a grant changes in the model, and how an undelivered grant is revoked.

use super::contract::*;
use super::model::{Holder, Lock, Model, UndeliveredGrant, Until, Value};

impl Model {
    /// Grants all keys with one fencing token: the owner's current one, unless a hold is new. Returns the holds before
    /// and after, by key.
    pub(super) fn grant(&mut self, asked: &Acquire, limit: u32) -> (Grant, Vec<(Name, u32, u32)>) {
        let Acquire { keys, owner, claim, lease, .. } = asked;
        let is_upgrade = self.is_upgrade(keys[0], owner, *claim);
        let kept: Vec<_> = keys.iter().map(|key| self.holder(key, owner).map(|holder| holder.grant)).collect();
        let grant = match kept[0] {
            Some(first) if !is_upgrade && kept.iter().all(|kept| *kept == Some(first)) => first,
            _ => self.next_grant(),
        };
        let mut counts = Vec::new();
        let now = self.now;
        let until = lease.map_or(Until::Never, |lease| Until::At(now.wall + lease));
        for key in keys {
            if self.value(key).is_none() {
                let lock = Lock { kind: claim.kind(), limit, until, holders: Vec::new() };
                self.values.push((key, Value::Lock(lock)));
            }
            if let Some(Value::Lock(lock)) = self.value_mut(key) {
                if lock.holders.iter().all(|holder| holder.owner != *owner) {
                    let lease = *lease;
                    // The contract: the smallest number from 0 that no other holder has.
                    let is_taken = |slot: &u32| lock.holders.iter().any(|holder| holder.slot == Some(*slot));
                    let slot = (0..).find(|slot| !is_taken(slot)).filter(|_| matches!(claim, Claim::Slot(_)));
                    let (holds, stays_at_0, reads, session, is_native) = (0, false, 0, None, true);
                    let holder =
                        Holder { owner, grant, holds, stays_at_0, reads, slot, lease, until, session, is_native };
                    lock.holders.push(holder);
                }
            }
            let Some(holder) = self.holder(key, owner) else { continue };
            let before = *holder.count(*claim);
            let after = match claim.holds() {
                Holds::By(more) => before + more,
                Holds::Exactly(exactly) => exactly,
            };
            *holder.count(*claim) = after;
            holder.stays_at_0 = false;
            // The contract: the latest grant decides.
            holder.is_native = !matches!(claim, Claim::Adopted { .. });
            (holder.grant, holder.lease, holder.until) = (grant, *lease, holder.until.max(until));
            if asked.session {
                holder.session = Some((asked.client, Until::Never));
            }
            holder.renew_after_a_third(now.monotonic);
            counts.push((*key, before, after));
            self.holders_changed(key);
        }
        if let Some(limit) = claim.limit().map(|_| limit) {
            self.set_limit(keys[0], limit);
        }
        self.granted_on.push((grant, asked.client));
        keys.iter().for_each(|key| self.confirm_hold(key, owner));
        (grant, counts)
    }

    /// This reply confirms its holds to the owner, even if an earlier grant was not delivered.
    pub(super) fn confirm_hold(&mut self, key: Name, owner: Name) {
        self.undelivered.retain(|other| other.owner != owner || !other.held.iter().any(|(held, ..)| *held == key));
    }

    /// A new grant.
    pub fn next_grant(&mut self) -> Grant {
        self.grants += 1;
        Grant(self.grants)
    }

    /// Adopts what the contract leaves open of this hold (lease, connection of the session, fencing token) from the
    /// server that the model is compared with.
    pub fn adopt(&mut self, key: Name, owner: Name, open: (Option<Ms>, Option<u64>), grant: Grant) {
        let now = self.now;
        let Some(holder) = self.holder(key, owner) else { return };
        let before = std::mem::replace(&mut holder.grant, grant);
        let also: Vec<_> = self.granted_on.iter().filter(|(of, _)| *of == before).map(|(_, on)| (grant, *on)).collect();
        self.granted_on.extend(also);
        let Some(holder) = self.holder(key, owner) else { return };
        if (holder.lease, holder.session.map(|(client, _)| client)) != open {
            holder.lease = open.0;
            holder.session = open.1.map(|client| (client, Until::Never));
            holder.renew_after_a_third(now.monotonic);
        }
    }

    /// The lease just given to this holder started `ms` milliseconds later.
    pub fn began_later(&mut self, key: Name, owner: Name, ms: Ms) {
        let Some(holder) = self.holder(key, owner) else { return };
        let later = |until| match until {
            Until::At(last) => Until::At(last + ms),
            Until::Never => Until::Never,
        };
        holder.until = later(holder.until);
        holder.session = holder.session.map(|(client, due)| (client, later(due)));
        self.holders_changed(key);
    }

    /// The lease of this session's hold was renewed `ago` milliseconds ago.
    pub fn was_renewed(&mut self, key: Name, owner: Name, ago: Ms) {
        let now = self.now;
        self.now = Clocks { wall: now.wall - ago, monotonic: now.monotonic - ago };
        self.start_lease_again(key, owner, None);
        self.now = now;
    }

    /// Records a grant to a client that has disconnected, so that it will be revoked.
    pub(super) fn record_undelivered(&mut self, asked: &Acquire, grant: Grant, held: Vec<(Name, u32, u32)>) {
        self.undelivered.push(UndeliveredGrant { owner: asked.owner, claim: asked.claim, grant, held });
    }

    /// Revokes an undelivered grant if nothing has changed since.
    pub(super) fn revoke(&mut self, undelivered: &UndeliveredGrant) {
        for (key, before, after) in &undelivered.held {
            let holder = self.holder(key, undelivered.owner).filter(|holder| holder.grant == undelivered.grant);
            let Some(holder) = holder else { continue };
            let count = holder.count(undelivered.claim);
            if *count == *after && *before < *after {
                *count = *before;
                self.holders_changed(key);
            }
        }
    }
}

impl Holder {
    /// Holds of the mode, or permits.
    pub(super) fn count(&mut self, claim: Claim) -> &mut u32 {
        match claim {
            Claim::Read(_) => &mut self.reads,
            _ => &mut self.holds,
        }
    }

    pub(super) fn renew_after_a_third(&mut self, now: Ms) {
        let third = self.lease.map_or(Until::Never, |lease| Until::At(now + (lease / 3).max(1)));
        self.session = self.session.map(|(client, _)| (client, third));
    }
}

//! The bindings of holds to connections, and when their leases must be renewed.
//!
//! Bindings are never stored with the lock: a key that is removed, moved or restored loses them.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

use crate::hold::{HoldKey, HoldKeyParts, HoldKeyRef};
use crate::key::{ClientId, Key, KeyRef};
use crate::value::fence::Fence;
use crate::value::owner::{Owner, OwnerRef};
use crate::value::time::Instant;

/// The id of a binding; not reused. Within a connection, older bindings have smaller ids.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BindingId {
    client: ClientId,
    number: u64,
}

/// One owner's hold of one key, bound to a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Binding {
    /// The connection.
    pub client: ClientId,
    /// The key that is held.
    pub key: Key,
    /// The holder.
    pub owner: Owner,
    /// The fencing token of the grant that was bound. A late event about the removal of an older lock must not remove
    /// the binding.
    pub fence: Fence,
    /// When the lease must be renewed; `None` if it never expires.
    pub renewal: Option<Instant>,
}

/// All bindings of one server, found by connection and by hold.
#[derive(Clone, Debug, Default)]
pub struct Bindings {
    all: BTreeMap<BindingId, Binding>,
    by_hold: BTreeMap<HoldKey, BindingId>,
    /// When a third of each bound lease has elapsed.
    renewals: BTreeSet<(Instant, BindingId)>,
    /// Since the last call of [`Bindings::take_needs_rearm`], a renewal was set that is due before all others.
    needs_rearm: bool,
    /// No lease is renewed before this time, because the server refused writes.
    postponed_until: Option<Instant>,
    /// Connections that have ended. The drain still has to end their holds.
    ended: BTreeSet<ClientId>,
    last: u64,
}

/// Queries.
impl Bindings {
    /// Whether no hold is bound.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// The number of bound holds.
    pub fn len(&self) -> usize {
        self.all.len()
    }

    /// The binding, if it still exists.
    pub fn get(&self, id: BindingId) -> Option<&Binding> {
        self.all.get(&id)
    }

    /// The connection that this hold is bound to.
    pub fn client_of(&self, key: KeyRef<'_>, owner: &[u8]) -> Option<ClientId> {
        self.binding_of(key, owner).map(|id| id.client)
    }

    /// The binding of this hold.
    pub fn binding_of(&self, key: KeyRef<'_>, owner: &[u8]) -> Option<BindingId> {
        self.by_hold.get(&HoldKeyRef { key, owner } as &dyn HoldKeyParts).copied()
    }

    /// Whether a hold of this key is bound.
    pub fn has_key(&self, key: KeyRef<'_>) -> bool {
        self.of_key(key).next().is_some()
    }

    /// The bindings of a connection, the oldest first.
    pub fn of_client(&self, client: ClientId) -> impl Iterator<Item = BindingId> + '_ {
        let id = |number| BindingId { client, number };
        self.all.range(id(0)..=id(u64::MAX)).map(|(id, _)| *id)
    }

    /// The owners with bound holds of a key, each with its connection.
    pub fn owners_of(&self, key: KeyRef<'_>) -> Vec<(Owner, ClientId)> {
        self.of_key(key).map(|(hold, id)| (hold.owner.clone(), id.client)).collect()
    }

    fn of_key<'a>(&'a self, key: KeyRef<'a>) -> impl Iterator<Item = (&'a HoldKey, BindingId)> + 'a {
        let first = HoldKeyRef { key, owner: b"" };
        let from_first = self.by_hold.range::<dyn HoldKeyParts, _>((Bound::Included(&first as _), Bound::Unbounded));
        from_first.take_while(move |(hold, _)| hold.key.as_ref() == key).map(|(hold, id)| (hold, *id))
    }
}

/// Changes.
impl Bindings {
    /// Binds the hold to this connection, and to no other.
    pub fn bind(
        &mut self,
        client: ClientId,
        key: KeyRef<'_>,
        owner: OwnerRef<'_>,
        fence: Fence,
        renewal: Option<Instant>,
    ) -> BindingId {
        self.unbind(key, owner.as_bytes());
        self.last += 1;
        let id = BindingId { client, number: self.last };
        let hold = HoldKey { key: key.to_key(), owner: owner.to_owner() };
        let binding = Binding { client, key: hold.key.clone(), owner: hold.owner.clone(), fence, renewal: None };
        let former = self.by_hold.insert(hold, id);
        debug_assert!(former.is_none(), "a hold is bound to one connection");
        self.all.insert(id, binding);
        self.renew_at(id, renewal);
        id
    }

    /// The hold is no longer bound to a connection.
    pub fn unbind(&mut self, key: KeyRef<'_>, owner: &[u8]) {
        if self.is_empty() {
            return;
        }
        if let Some(id) = self.by_hold.remove(&HoldKeyRef { key, owner } as &dyn HoldKeyParts) {
            self.renew_at(id, None);
            let binding = self.all.remove(&id);
            debug_assert!(binding.is_some(), "each hold in the index is bound");
        }
    }

    /// A lock with the latest fencing token `last` was removed from the key, so its holds are no longer bound.
    pub fn unbind_key(&mut self, key: KeyRef<'_>, last: Fence) {
        let is_old = |id: &BindingId| self.get(*id).is_some_and(|binding| binding.fence <= last);
        let old = self.of_key(key).filter(|(_, id)| is_old(id)).map(|(hold, _)| hold.owner.clone());
        for owner in old.collect::<Vec<_>>() {
            self.unbind(key, owner.as_bytes());
        }
    }

    /// The holds of the database, or of all databases, are no longer bound.
    pub fn unbind_db(&mut self, db: Option<i32>) {
        let Some(db) = db else {
            (self.all, self.by_hold, self.renewals, self.ended) = Default::default();
            return;
        };
        self.all.retain(|_, binding| binding.key.db != db);
        self.by_hold.retain(|hold, _| hold.key.db != db);
        self.renewals.retain(|(_, id)| self.all.contains_key(id));
    }
}

/// Ended connections.
impl Bindings {
    /// The connection has ended, so its holds must be ended.
    pub fn end(&mut self, client: ClientId) {
        if self.of_client(client).next().is_some() {
            self.ended.insert(client);
        }
    }

    /// Whether a connection has ended whose holds have not been ended yet.
    #[inline]
    pub fn has_any_ended(&self) -> bool {
        !self.ended.is_empty()
    }

    /// Whether the connection has ended.
    pub fn is_ended(&self, client: ClientId) -> bool {
        self.ended.contains(&client)
    }

    /// The next hold to end, the oldest of its connection. Returns the same hold until it is unbound.
    pub fn next_ended(&mut self) -> Option<Binding> {
        while let Some(client) = self.ended.first() {
            if let Some(binding) = self.of_client(*client).next().and_then(|id| self.get(id)) {
                return Some(binding.clone());
            }
            self.ended.pop_first();
        }
        None
    }
}

/// Renewals.
impl Bindings {
    /// Sets when the lease of a binding must be renewed; `None` if it never expires.
    pub fn renew_at(&mut self, id: BindingId, renewal: Option<Instant>) {
        let Some(binding) = self.all.get_mut(&id) else { return };
        if let Some(before) = std::mem::replace(&mut binding.renewal, renewal) {
            self.renewals.remove(&(before, id));
        }
        if let Some(due) = renewal {
            self.needs_rearm |= self.renewals.first().is_none_or(|(next, _)| due < *next);
            let is_new = self.renewals.insert((due, id));
            debug_assert!(is_new, "a binding has one renewal");
        }
    }

    /// Renews no lease before `until`, because the server refuses writes.
    pub fn postpone_renewals(&mut self, until: Instant) {
        self.postponed_until = Some(until);
    }

    /// Makes the leases of all bindings due for renewal now.
    pub fn renew_all(&mut self, now: Instant) {
        let with_end = self.all.iter().filter(|(_, binding)| binding.renewal.is_some());
        for id in with_end.map(|(id, _)| *id).collect::<Vec<_>>() {
            self.renew_at(id, Some(now));
        }
    }

    /// When the next lease must be renewed.
    pub fn next_renewal(&self) -> Option<Instant> {
        self.renewals.first().map(|(due, _)| (*due).max(self.postponed_until.unwrap_or(*due)))
    }

    /// Removes and returns a binding whose lease is due for renewal. `None` while renewals are postponed.
    pub fn take_renewal(&mut self, now: Instant) -> Option<BindingId> {
        if self.postponed_until.is_some_and(|until| until > now) {
            return None;
        }
        self.postponed_until = None;
        let (due, id) = self.renewals.first().copied().filter(|(due, _)| *due <= now)?;
        self.renewals.remove(&(due, id));
        debug_assert!(self.get(id).is_some_and(|binding| binding.renewal == Some(due)), "the renewal of a binding");
        Some(id)
    }

    /// Whether the host must rearm its timer: since the last call, a renewal was set that is due before all others.
    #[inline]
    pub fn take_needs_rearm(&mut self) -> bool {
        std::mem::take(&mut self.needs_rearm)
    }

    /// Until when no lease is renewed.
    #[cfg(any(test, feature = "testing"))]
    pub fn renewals_postponed_until(&self) -> Option<Instant> {
        self.postponed_until
    }

    /// Panics unless the tables agree.
    #[cfg(any(test, feature = "testing"))]
    pub fn check_tables(&self) {
        assert_eq!(self.by_hold.len(), self.all.len(), "{self:?}");
        for (hold, id) in &self.by_hold {
            let binding = self.all.get(id).expect("a hold in the index is bound");
            assert!(binding.key == hold.key && binding.owner == hold.owner && binding.client == id.client, "{self:?}");
        }
        let renewals = self.all.iter().filter_map(|(id, binding)| Some((binding.renewal?, *id)));
        assert!(self.renewals.is_subset(&renewals.collect()), "a renewal without a binding: {self:?}");
    }

    /// When the lease of each binding must be renewed.
    #[cfg(any(test, feature = "testing"))]
    pub fn renewals(&self) -> impl Iterator<Item = Instant> + '_ {
        let due = self.all.values().filter_map(|binding| binding.renewal);
        due.map(|due| due.max(self.postponed_until.unwrap_or(due)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key::Key;

    fn owner(name: &str) -> Owner {
        Owner::new(name.as_bytes()).unwrap()
    }

    fn fence(number: u64) -> Fence {
        Fence::new(number).unwrap()
    }

    fn bind(bindings: &mut Bindings, client: u64, db: i32, name: &str, holder: &str, number: u64) -> BindingId {
        let key = Key::new(db, name.as_bytes());
        bindings.bind(ClientId(client), key.as_ref(), owner(holder).as_ref(), fence(number), None)
    }

    #[test]
    fn a_hold_is_bound_to_the_connection_that_asked_last() {
        let mut bindings = Bindings::default();
        let key = Key::new(0, b"k");
        bind(&mut bindings, 1, 0, "k", "a", 1);
        bind(&mut bindings, 2, 0, "k", "a", 1);
        assert_eq!(bindings.client_of(key.as_ref(), b"a"), Some(ClientId(2)));
        assert_eq!(bindings.of_client(ClientId(1)).count(), 0);
        assert_eq!(bindings.of_client(ClientId(2)).count(), 1);
    }

    #[test]
    fn the_bindings_of_a_removed_key_or_flushed_database_end() {
        let mut bindings = Bindings::default();
        for (db, name) in [(0, "k"), (0, "l"), (1, "k"), (2, "k")] {
            bind(&mut bindings, 1, db, name, "a", 2);
        }
        let key = Key::new(0, b"k");
        bindings.unbind_key(key.as_ref(), fence(1));
        assert_eq!(bindings.len(), 4, "an older lock was removed");
        bindings.unbind_key(key.as_ref(), fence(2));
        assert_eq!((bindings.len(), bindings.client_of(key.as_ref(), b"a")), (3, None));
        bindings.unbind_db(Some(1));
        assert_eq!(bindings.len(), 2);
        bindings.unbind_db(None);
        assert!(bindings.is_empty() && bindings.by_hold.is_empty() && bindings.renewals.is_empty());
    }

    #[test]
    fn an_id_does_not_name_a_later_binding() {
        let mut bindings = Bindings::default();
        let first = bind(&mut bindings, 1, 0, "k", "a", 1);
        bindings.unbind(Key::new(0, b"k").as_ref(), b"a");
        let second = bind(&mut bindings, 1, 0, "k", "a", 1);
        assert!(bindings.get(first).is_none() && first < second);
        bindings.renew_at(first, Some(Instant::from_ms(7)));
        assert_eq!((bindings.get(second).unwrap().renewal, bindings.next_renewal()), (None, None));
    }

    #[test]
    fn a_binding_is_renewed_once_at_the_time_that_was_set_last() {
        let at = Instant::from_ms;
        let mut bindings = Bindings::default();
        let id = bind(&mut bindings, 1, 0, "k", "a", 1);
        bindings.renew_at(id, Some(at(20)));
        bindings.renew_at(id, Some(at(30)));
        assert_eq!((bindings.next_renewal(), bindings.take_renewal(at(29))), (Some(at(30)), None));
        assert_eq!((bindings.take_renewal(at(30)), bindings.take_renewal(at(99))), (Some(id), None));
        bindings.renew_at(id, Some(at(40)));
        bindings.unbind(Key::new(0, b"k").as_ref(), b"a");
        assert_eq!((bindings.next_renewal(), bindings.take_renewal(at(99))), (None, None));
    }

    #[test]
    fn a_renewal_before_all_others_is_reported_once() {
        let at = Instant::from_ms;
        let mut bindings = Bindings::default();
        for (name, ms, is_sooner) in [("k", 20, true), ("l", 30, false), ("m", 10, true)] {
            let id = bind(&mut bindings, 1, 0, name, "a", 1);
            bindings.renew_at(id, Some(at(ms)));
            assert_eq!((bindings.take_needs_rearm(), bindings.take_needs_rearm()), (is_sooner, false), "{name}");
        }
    }

    /// After any sequence of binds and unbinds, each index agrees with a plain list.
    #[test]
    fn each_index_has_what_a_list_has() {
        let mut bindings = Bindings::default();
        let mut list: Vec<(u64, String, String)> = Vec::new();
        let mut random: u64 = 7;
        for step in 0..2_000 {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let mut pick = |n: u64| {
                random = random.rotate_left(17).wrapping_mul(0x9e37_79b9_7f4a_7c15);
                (random >> 40) % n
            };
            let (client, name, holder) = (pick(3), format!("k{}", pick(3)), format!("o{}", pick(4)));
            let key = Key::new(0, name.as_bytes());
            list.retain(|(_, other, owner)| (other, owner) != (&name, &holder));
            match step % 5 {
                0 | 1 => bindings.unbind(key.as_ref(), holder.as_bytes()),
                _ => {
                    bind(&mut bindings, client, 0, &name, &holder, 1);
                    list.push((client, name.clone(), holder.clone()));
                }
            }
            for client in 0..3 {
                let bound = bindings.of_client(ClientId(client)).filter_map(|id| bindings.get(id));
                let mut bound: Vec<_> =
                    bound.map(|bound| (bound.key.name.to_vec(), format!("{:?}", bound.owner))).collect();
                let expected = list.iter().filter(|(other, ..)| *other == client);
                let mut expected: Vec<_> =
                    expected.map(|(_, name, owner)| (name.clone().into_bytes(), owner.clone())).collect();
                bound.sort();
                expected.sort();
                assert_eq!(bound, expected, "of client {client} in step {step}");
            }
            let mut owners: Vec<_> = bindings
                .owners_of(key.as_ref())
                .iter()
                .map(|(owner, client)| (format!("{owner:?}"), client.0))
                .collect();
            let expected = list.iter().filter(|(_, other, _)| *other == name);
            let mut expected: Vec<_> = expected.map(|(client, _, owner)| (owner.clone(), *client)).collect();
            owners.sort();
            expected.sort();
            assert_eq!(owners, expected, "of key {name} in step {step}");
        }
        assert_eq!((bindings.len(), bindings.by_hold.len()), (list.len(), list.len()));
    }

    #[test]
    fn no_lease_is_renewed_while_renewals_are_postponed() {
        let at = Instant::from_ms;
        let mut bindings = Bindings::default();
        let id = bind(&mut bindings, 1, 0, "k", "a", 1);
        let other = bind(&mut bindings, 1, 0, "l", "a", 1);
        bindings.renew_at(id, Some(at(10)));
        bindings.renew_at(other, Some(at(90)));
        bindings.postpone_renewals(at(50));
        assert_eq!(bindings.renewals().collect::<Vec<_>>(), [at(50), at(90)]);
        assert_eq!((bindings.next_renewal(), bindings.take_renewal(at(49))), (Some(at(50)), None));
        assert_eq!(bindings.renewals_postponed_until(), Some(at(50)));
        assert_eq!((bindings.take_renewal(at(50)), bindings.renewals_postponed_until()), (Some(id), None));
    }
}

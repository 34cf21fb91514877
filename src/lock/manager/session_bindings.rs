//! Which holds are bound to which connection.
//!
//! Bindings are never stored with the lock: a key that is removed, moved or restored has none.

use std::collections::HashMap;
use std::rc::Rc;

use crate::id_map::{IdMap, IdSet};
use crate::key::{ClientId, Key, KeyRef};
use crate::shrink;
use crate::value::fence::Fence;
use crate::value::owner::Owner;

/// Names a binding; never used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BindingId(u64);

/// One owner's hold of one key, bound to a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Binding {
    /// The connection.
    pub client: ClientId,
    /// The key that is held.
    pub key: Key,
    /// Who holds it.
    pub owner: Owner,
    /// Of the grant that was bound: a removal of an older lock does not concern it.
    pub fence: Fence,
}

type Owners = HashMap<Owner, BindingId>;

/// All bindings of one server, found by connection and by hold.
#[derive(Clone, Debug, Default)]
pub struct Bindings {
    bindings: IdMap<BindingId, Binding>,
    by_client: IdMap<ClientId, IdSet<BindingId>>,
    by_key: IdMap<i32, HashMap<Rc<[u8]>, Owners>>,
    last: u64,
}

impl Bindings {
    /// Nothing is bound.
    pub fn is_empty(&self) -> bool {
        self.bindings.is_empty()
    }

    /// A binding that is still there.
    pub fn get(&self, id: BindingId) -> Option<&Binding> {
        self.bindings.get(&id)
    }

    /// All bindings, in no order.
    pub fn ids(&self) -> impl Iterator<Item = BindingId> + '_ {
        self.bindings.keys().copied()
    }

    /// The connection that this hold is bound to.
    pub fn client_of(&self, key: KeyRef<'_>, owner: &[u8]) -> Option<ClientId> {
        self.binding_of(key, owner).and_then(|id| self.bindings.get(&id)).map(|binding| binding.client)
    }

    /// The binding of this hold.
    pub fn binding_of(&self, key: KeyRef<'_>, owner: &[u8]) -> Option<BindingId> {
        self.by_key.get(&key.db)?.get(key.name)?.get(owner).copied()
    }

    /// Binds the hold to the connection, and to no other that it was bound to.
    pub fn bind(&mut self, client: ClientId, key: KeyRef<'_>, owner: &Owner, fence: Fence) -> BindingId {
        self.unbind(key, owner.as_bytes());
        self.last += 1;
        let (id, key) = (BindingId(self.last), key.to_key());
        self.by_client.entry(client).or_default().insert(id);
        self.by_key.entry(key.db).or_default().entry(key.name.clone()).or_default().insert(owner.clone(), id);
        self.bindings.insert(id, Binding { client, key, owner: owner.clone(), fence });
        id
    }

    /// The hold is bound to nothing any more; the binding that it had.
    pub fn unbind(&mut self, key: KeyRef<'_>, owner: &[u8]) -> Option<BindingId> {
        if self.is_empty() {
            return None;
        }
        let names = self.by_key.get_mut(&key.db)?;
        let owners = names.get_mut(key.name)?;
        let id = owners.remove(owner)?;
        if owners.is_empty() {
            names.remove(key.name);
            if names.is_empty() {
                self.by_key.remove(&key.db);
            }
        }
        self.forget(id);
        Some(id)
    }

    /// A lock whose latest fence was `last` is gone from the key: no hold of it is bound any more.
    pub fn unbind_key(&mut self, key: KeyRef<'_>, last: Fence) -> Vec<BindingId> {
        let owners = self.owners_of(key).into_iter();
        let old: Vec<_> = owners
            .map(|(owner, _)| owner)
            .filter(|owner| {
                let binding = self.binding_of(key, owner.as_bytes()).and_then(|id| self.bindings.get(&id));
                binding.is_some_and(|binding| binding.fence <= last)
            })
            .collect();
        old.iter().filter_map(|owner| self.unbind(key, owner.as_bytes())).collect()
    }

    /// No hold of the database, or of any, is bound any more.
    pub fn unbind_db(&mut self, db: Option<i32>) -> Vec<BindingId> {
        let dbs: Vec<i32> = self.by_key.keys().copied().filter(|other| db.is_none_or(|db| db == *other)).collect();
        let names = dbs.iter().filter_map(|db| self.by_key.remove(db)).flatten();
        let ids: Vec<_> = names.flat_map(|(_, owners)| owners.into_values()).collect();
        ids.iter().for_each(|id| self.forget(*id));
        ids
    }

    /// Everything that is bound to a connection.
    pub fn of_client(&self, client: ClientId) -> Vec<Binding> {
        let ids = self.by_client.get(&client).into_iter().flatten();
        ids.filter_map(|id| self.bindings.get(id)).cloned().collect()
    }

    /// The owners of a key whose holds are bound.
    pub fn owners_of(&self, key: KeyRef<'_>) -> Vec<(Owner, ClientId)> {
        let owners = self.by_key.get(&key.db).and_then(|names| names.get(key.name)).into_iter().flatten();
        owners.filter_map(|(owner, id)| Some((owner.clone(), self.bindings.get(id)?.client))).collect()
    }

    fn forget(&mut self, id: BindingId) {
        let Some(binding) = self.bindings.remove(&id) else { return };
        shrink::map(&mut self.bindings);
        shrink::map(&mut self.by_client);
        if let Some(ids) = self.by_client.get_mut(&binding.client) {
            ids.remove(&id);
            if ids.is_empty() {
                self.by_client.remove(&binding.client);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn owner(name: &str) -> Owner {
        Owner::new(name.as_bytes()).unwrap()
    }

    fn fence(number: u64) -> Fence {
        Fence::new(number).unwrap()
    }

    #[test]
    fn a_hold_is_bound_to_the_connection_that_asked_last() {
        let mut bindings = Bindings::default();
        let key = Key::new(0, b"k");
        bindings.bind(ClientId(1), key.as_ref(), &owner("a"), fence(1));
        bindings.bind(ClientId(2), key.as_ref(), &owner("a"), fence(1));
        assert_eq!(bindings.client_of(key.as_ref(), b"a"), Some(ClientId(2)));
        assert!(bindings.of_client(ClientId(1)).is_empty());
        assert_eq!(bindings.of_client(ClientId(2)).len(), 1);
    }

    #[test]
    fn nothing_is_left_of_a_key_or_database_that_went() {
        let mut bindings = Bindings::default();
        for (db, name) in [(0, "k"), (0, "l"), (1, "k"), (2, "k")] {
            bindings.bind(ClientId(1), Key::new(db, name.as_bytes()).as_ref(), &owner("a"), fence(2));
        }
        assert_eq!(bindings.unbind_key(Key::new(0, b"k").as_ref(), fence(1)).len(), 0, "an older lock");
        assert_eq!(bindings.unbind_key(Key::new(0, b"k").as_ref(), fence(2)).len(), 1);
        assert_eq!(bindings.unbind_db(Some(1)).len(), 1);
        assert_eq!(bindings.bindings.len(), 2);
        assert_eq!(bindings.unbind_db(None).len(), 2);
        assert!(bindings.is_empty() && bindings.by_client.is_empty() && bindings.by_key.is_empty());
    }
}

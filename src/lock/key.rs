//! Identifiers of keys, clients and requests.

use std::rc::Rc;

/// A key of a database. Clones share the name, because a hand-off makes several.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key {
    /// The number of the database.
    pub db: i32,
    /// Any bytes.
    pub name: Rc<[u8]>,
}

impl Key {
    /// Copies the name.
    pub fn new(db: i32, name: &[u8]) -> Key {
        Key { db, name: name.into() }
    }

    /// Borrows the key.
    pub fn as_ref(&self) -> KeyRef<'_> {
        KeyRef { db: self.db, name: &self.name }
    }
}

/// A key of a database, borrowed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyRef<'a> {
    /// The number of the database.
    pub db: i32,
    /// Any bytes.
    pub name: &'a [u8],
}

impl KeyRef<'_> {
    /// Copies the name.
    pub fn to_key(self) -> Key {
        Key::new(self.db, self.name)
    }
}

/// A client connection, identified by the server's client id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClientId(pub u64);

/// A queued request. Unique for the lifetime of the process; ids are not reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RequestId(pub(crate) u64);

impl RequestId {
    /// No id is smaller.
    pub const FIRST: RequestId = RequestId(0);
    /// No id is greater.
    pub const LAST: RequestId = RequestId(u64::MAX);
}

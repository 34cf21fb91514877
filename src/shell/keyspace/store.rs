//! The server's keyspace as the rules see it: opens keys, stores, expires, replicates, signals.

use command::host::KeyArguments;
use lock::host::{Content, Effect, Entry, Gate, Keys};
use lock::key::KeyRef;
use lock::value::fence::Fence;
use lock::value::lock::FirstGrant;
use lock::value::owner::Owner;
use lock::value::time::Deadline;

use super::lock_key::LockKey;
use super::removals;
use crate::shell::background::gate::{self, HoldsFor};
use crate::shell::ffi::context::Ctx;
use crate::shell::ffi::string::{OwnedStr, Str};
use crate::shell::replication::{self, Scope};

/// The keyspace of a command or of a turn of the timer.
pub struct Store<'a> {
    ctx: Ctx<'a>,
    scope: Scope,
    /// The selected database: the timer works in any, a command stays in its own.
    selected: Option<i32>,
    /// The command's own arguments: they need no new string object.
    arguments: KeyArguments<'a, Str<'a>>,
    /// The gate's answer in this turn of the timer, where it is the same for all keys.
    gate: Option<Gate>,
    was_refused: bool,
}

impl<'a> Store<'a> {
    /// # Safety
    /// It is the only one in the callback that is running, and no key that it opens is open otherwise meanwhile.
    #[inline]
    pub unsafe fn of_command(ctx: Ctx<'a>, arguments: KeyArguments<'a, Str<'a>>) -> Store<'a> {
        Store { ctx, scope: Scope::Command, selected: None, arguments, gate: None, was_refused: false }
    }

    /// # Safety
    /// As [`Store::of_command`].
    pub unsafe fn of_timer(ctx: Ctx<'a>) -> Store<'a> {
        let arguments = KeyArguments { arguments: &[], names: &[] };
        let selected = Some(ctx.db());
        Store { ctx, scope: Scope::Timer, selected, arguments, gate: None, was_refused: false }
    }

    /// Whether the gate was closed for some key: due queues are tried again later.
    pub fn was_refused(&self) -> bool {
        self.was_refused
    }

    /// The string object of an argument with these bytes. Of several keys only the very argument is found: comparing
    /// each opened key with the names of 128 keys would cost too much.
    #[inline]
    fn argument_of(&self, name: &[u8]) -> Option<Str<'a>> {
        let KeyArguments { arguments, names } = self.arguments;
        let is_it = |argument: &&[u8]| match names {
            [_] => *argument == name,
            _ => std::ptr::eq(*argument, name),
        };
        let position = names.iter().position(is_it)?;
        arguments.get(position).copied()
    }

    #[inline]
    fn select(&mut self, db: i32) {
        if self.selected.is_some_and(|selected| selected != db) {
            self.ctx.select_db(db);
            self.selected = Some(db);
        }
    }
}

impl Keys for Store<'_> {
    type Entry<'e>
        = StoredKey<'e>
    where
        Self: 'e;

    #[inline]
    fn open<'e>(&'e mut self, key: KeyRef<'e>) -> StoredKey<'e> {
        self.select(key.db);
        let name = match self.argument_of(key.name) {
            Some(argument) => Name::Argument(argument),
            None => Name::Own(OwnedStr::new(key.name)),
        };
        // SAFETY: one key is open at a time, because it borrows the store, which is the only one.
        unsafe { StoredKey::open(self.ctx, self.scope, name) }
    }

    fn gate(&mut self, key: KeyRef<'_>) -> Gate {
        // The server accepted a command for its own keys; in a cluster it has not checked others yet.
        if self.scope == Scope::Command && (!gate::is_in_cluster() || self.arguments.names.contains(&key.name)) {
            // Only a transaction that paused the server itself comes here during a pause.
            return if self.ctx.avoids_replica_traffic() { Gate::Closed } else { Gate::Open };
        }
        if let Some(gate) = self.gate {
            return gate;
        }
        self.select(key.db);
        let name = OwnedStr::new(key.name);
        let (gate, holds_for) = gate::ask(self.ctx, name.as_str());
        if holds_for == HoldsFor::EveryKey {
            self.gate = Some(gate);
        }
        self.was_refused |= gate == Gate::Closed;
        gate
    }
}

/// A key of the store, open for the rules.
pub struct StoredKey<'e> {
    // Closed before its name is freed.
    lock_key: LockKey<'e>,
    name: Name<'e>,
    ctx: Ctx<'e>,
    scope: Scope,
}

impl<'e> StoredKey<'e> {
    /// The key of a command, without a store.
    ///
    /// # Safety
    /// As [`LockKey::open`].
    #[inline(always)]
    pub unsafe fn of_command(ctx: Ctx<'e>, key: Str<'e>) -> StoredKey<'e> {
        // SAFETY: the caller vouches for it.
        unsafe { StoredKey::open(ctx, Scope::Command, Name::Argument(key)) }
    }

    /// # Safety
    /// As [`LockKey::open`].
    #[inline(always)]
    unsafe fn open(ctx: Ctx<'e>, scope: Scope, name: Name<'e>) -> StoredKey<'e> {
        // SAFETY: the caller vouches for it.
        let lock_key = unsafe { LockKey::open(ctx, name.as_str()) };
        StoredKey { lock_key, name, ctx, scope }
    }
}

enum Name<'e> {
    Argument(Str<'e>),
    Own(OwnedStr),
}

impl Name<'_> {
    #[inline]
    fn as_str(&self) -> Str<'_> {
        match self {
            Name::Argument(name) => *name,
            Name::Own(name) => name.as_str(),
        }
    }
}

impl Entry for StoredKey<'_> {
    fn take_expired(&mut self) -> Option<(Owner, Fence)> {
        removals::take_expired(KeyRef { db: self.ctx.db(), name: self.name.as_str().bytes() })
    }

    #[inline]
    fn content(&mut self) -> Content<'_> {
        self.lock_key.content()
    }

    fn until(&self) -> Deadline {
        self.lock_key.until()
    }

    #[inline(always)]
    fn create(&mut self, first: &FirstGrant<'_>) {
        self.lock_key.set(|| first.lock());
        if first.until() != Deadline::Never {
            self.lock_key.set_until(first.until());
        }
        if let Content::Lock(lock) = self.lock_key.content() {
            replication::send_hold(self.ctx, self.scope, self.name.as_str(), lock, first.owner(), first.until());
        }
        self.ctx.signal_modified(self.name.as_str());
    }

    fn update(&mut self, effect: Effect<'_>, until: Option<Deadline>) {
        let (ctx, scope, name) = (self.ctx, self.scope, self.name.as_str());
        let until = match until {
            Some(until) => {
                self.lock_key.set_until(until);
                until
            }
            None => self.lock_key.until(),
        };
        let Content::Lock(lock) = self.lock_key.content() else { return };
        match effect {
            Effect::Hold(owner) | Effect::Renew(owner) => replication::send_hold(ctx, scope, name, lock, owner, until),
            Effect::Drop(owner) => replication::send_drop(ctx, scope, name, owner),
            Effect::Limit => replication::send_limit(ctx, scope, name, lock),
            Effect::Clamp => replication::send_clamp(ctx, scope, name),
        }
        if matches!(effect, Effect::Hold(_) | Effect::Drop(_)) {
            ctx.signal_modified(name);
        }
    }

    #[inline(always)]
    fn remove(&mut self) {
        self.lock_key.remove();
        replication::send_removal(self.ctx, self.scope, self.name.as_str());
        self.ctx.signal_modified(self.name.as_str());
    }
}

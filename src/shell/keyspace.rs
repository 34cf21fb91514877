//! The server's keyspace as the [`World`] of the rules: opens keys, stores, expires, replicates, answers.
//!
//! One key is open at a time, and stays open for as long as the rules keep asking for it: an uncontended request opens one key once.

use std::ffi::c_void;
use std::ptr::NonNull;

use super::api::{Content, Ctx, OpenKey, OwnedStr, Str};
use super::datatype;
use super::effect;
use super::gate;
use super::waiting::Waiting;
use lock::queue::{KeyRef, RequestId};
use lock::state::{First, Lock};
use lock::time::{At, Deadline};
use lock::world::{Delivery, Effect, Found, Gate, News, World};

/// From where the keyspace is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// A client's command: the server has accepted a write, in this database.
    Command,
    /// The timer: nobody has accepted anything, any database.
    Timer,
}

pub struct Keyspace<'a> {
    ctx: Ctx,
    scope: Scope,
    db: i32,
    /// The key arguments of the command and their bytes: they need not be made anew.
    arguments: &'a [Str],
    names: &'a [&'a [u8]],
    waiting: &'a mut Waiting,
    open: Option<Open>,
    /// What the gate said in this timer, where it is the same for all keys.
    gate: Option<Gate>,
    was_refused: bool,
}

struct Open {
    // Closed before its name is freed.
    key: OpenKey,
    name: Name,
    /// The bytes of `name`, so that asking for the same key again costs no call.
    bytes: *const [u8],
    content: Content,
}

enum Name {
    Argument(Str),
    Own(OwnedStr),
}

impl Name {
    fn as_str(&self) -> Str {
        match self {
            Name::Argument(name) => *name,
            Name::Own(name) => name.as_str(),
        }
    }
}

impl<'a> Keyspace<'a> {
    pub fn of_command(ctx: Ctx, arguments: &'a [Str], names: &'a [&'a [u8]], waiting: &'a mut Waiting) -> Keyspace<'a> {
        Keyspace {
            ctx,
            scope: Scope::Command,
            db: ctx.db(),
            arguments,
            names,
            waiting,
            open: None,
            gate: None,
            was_refused: false,
        }
    }

    pub fn of_timer(ctx: Ctx, waiting: &'a mut Waiting) -> Keyspace<'a> {
        Keyspace {
            ctx,
            scope: Scope::Timer,
            db: ctx.db(),
            arguments: &[],
            names: &[],
            waiting,
            open: None,
            gate: None,
            was_refused: false,
        }
    }

    /// Whether the gate was found closed for some key: what is pending then has to wait.
    pub fn was_refused(&self) -> bool {
        self.was_refused
    }

    /// The database that the command works in.
    pub fn db(&self) -> i32 {
        self.db
    }

    /// The key, opened once for all that the rules ask of it in a row.
    #[inline(always)]
    fn open(&mut self, key: KeyRef<'_>) -> &mut Open {
        let is_same = |open: &Open| key.db == self.db && std::ptr::eq(open.bytes, key.name);
        if !self.open.as_ref().is_some_and(is_same) {
            self.open_other(key);
        }
        self.open.as_mut().expect("just opened")
    }

    #[inline(never)]
    fn open_other(&mut self, key: KeyRef<'_>) {
        if !self.is_open(key) {
            self.close();
            if key.db != self.db && self.scope == Scope::Timer {
                self.ctx.select_db(key.db);
                self.db = key.db;
            }
            let name = self.name(key);
            let opened = OpenKey::write(self.ctx, name.as_str());
            let content = opened.content(datatype::raw_type());
            let bytes: *const [u8] = match &name {
                Name::Argument(_) => key.name,
                // SAFETY: the name lives as long as the open key.
                Name::Own(name) => unsafe { name.as_str().bytes() },
            };
            self.open = Some(Open { key: opened, name, bytes, content });
        }
    }

    fn is_open(&self, key: KeyRef<'_>) -> bool {
        // SAFETY: the name lives as long as the open key.
        let is_named = |open: &Open| unsafe { &*open.bytes } == key.name;
        key.db == self.db && self.open.as_ref().is_some_and(is_named)
    }

    fn close(&mut self) {
        self.open = None;
    }

    fn name(&self, key: KeyRef<'_>) -> Name {
        let mut arguments = self.names.iter().zip(self.arguments);
        match arguments.find(|(name, _)| std::ptr::eq(name.as_ptr(), key.name.as_ptr())) {
            Some((_, argument)) => Name::Argument(*argument),
            None => Name::Own(self.ctx.string(key.name)),
        }
    }
}

/// The lock of an open key.
///
/// The lifetime is the caller's: it must not outlive the key's being open.
fn lock_of<'a>(value: NonNull<c_void>) -> &'a mut Lock {
    // SAFETY: values of our type are boxed locks (`datatype`), and only one is referred to at a time.
    unsafe { value.cast::<Lock>().as_mut() }
}

fn deadline(ms: Option<u64>) -> Deadline {
    ms.map_or(Deadline::Never, |ms| Deadline::At(At::from_ms(ms)))
}

fn ms(until: Deadline) -> Option<u64> {
    until.at().map(At::ms)
}

impl World for Keyspace<'_> {
    fn find(&mut self, key: KeyRef<'_>) -> Found<'_> {
        match self.open(key).content {
            Content::Empty => Found::Free,
            Content::Foreign => Found::Foreign,
            Content::Ours(value) => Found::Lock(lock_of(value)),
        }
    }

    fn until(&mut self, key: KeyRef<'_>) -> Deadline {
        deadline(self.open(key).key.expire_at_ms())
    }

    fn create(&mut self, key: KeyRef<'_>, first: First<'_>) {
        let (ctx, scope) = (self.ctx, self.scope);
        let open = self.open(key);
        let value = datatype::keep(|| first.lock());
        open.key.set(datatype::raw_type(), value);
        open.content = Content::Ours(value);
        if let Some(at) = ms(first.until()) {
            open.key.set_expire_at_ms(Some(at));
        }
        effect::send_hold(ctx, scope, open.name.as_str(), lock_of(value), first.owner(), || first.until());
        ctx.signal_modified(open.name.as_str());
    }

    fn update(&mut self, key: KeyRef<'_>, effect: Effect<'_>, until: Option<Deadline>) {
        let (ctx, scope) = (self.ctx, self.scope);
        let open = self.open(key);
        let Content::Ours(value) = open.content else { return };
        let (name, lock) = (open.name.as_str(), lock_of(value));
        if let Some(until) = until {
            open.key.set_expire_at_ms(ms(until));
        }
        match effect {
            Effect::Hold(owner) | Effect::Renew(owner) => {
                effect::send_hold(ctx, scope, name, lock, owner, || deadline(open.key.expire_at_ms()));
            }
            Effect::Drop(owner) => effect::send_drop(ctx, name, owner),
            Effect::Limit => effect::send_limit(ctx, name, lock.limit()),
            Effect::Clamp => effect::send_clamp(ctx, name),
        }
        if matches!(effect, Effect::Hold(_) | Effect::Drop(_)) {
            ctx.signal_modified(name);
        }
    }

    fn remove(&mut self, key: KeyRef<'_>) {
        let (ctx, scope) = (self.ctx, self.scope);
        let open = self.open(key);
        if let Content::Ours(value) = open.content {
            datatype::remove(&open.key, value);
        }
        open.content = Content::Empty;
        effect::send_removal(ctx, scope, open.name.as_str());
        ctx.signal_modified(open.name.as_str());
    }

    fn gate(&mut self, key: KeyRef<'_>) -> Gate {
        // The server accepted a command for its own keys; of others in a cluster it knows nothing yet.
        if self.scope == Scope::Command && (!gate::is_in_cluster() || self.names.contains(&key.name)) {
            // Only a transaction that paused the server itself comes here during a pause.
            return if self.ctx.avoids_replica_traffic() { Gate::Closed } else { Gate::Open };
        }
        if let Some(gate) = self.gate {
            return gate;
        }
        // The question runs a command on the key: it must not be open meanwhile.
        self.close();
        if key.db != self.db && self.scope == Scope::Timer {
            self.ctx.select_db(key.db);
            self.db = key.db;
        }
        let name = self.ctx.string(key.name);
        let (gate, holds_for_all_keys) = gate::ask(self.ctx, name.as_str());
        if holds_for_all_keys {
            self.gate = Some(gate);
        }
        self.was_refused |= gate == Gate::Closed;
        gate
    }

    fn answer(&mut self, request: RequestId, news: News) -> Delivery {
        self.waiting.answer(Some(self.ctx), request, news)
    }
}

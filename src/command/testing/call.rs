//! Runs a command on the simulated server: one of the module's, with the server as its host, one of the server's own,
//! or the commands of a transaction.

use std::cell::RefCell;
use std::ffi::CStr;
use std::num::NonZeroU64;

use lock::engine::lock_manager::LockManager;
use lock::host::simulated::{Keyspace, Stored};
use lock::host::{Host, Keys};
use lock::key::{ClientId, KeyRef};
use lock::value::claim::{LockRequest, LockType, ReleaseAmount};
use lock::value::fence::Fence;
use lock::value::lock::Lock;
use lock::value::outcome::{Grant, KeyError, Released};
use lock::value::rebuild::ReplicatedEffect;
use lock::value::time::{Now, WaitLimit};

use super::clients::{AllClients, Parking};
use super::native;
use super::parts::{Call, Sender};
use super::resp::Encoder;
use crate::adopted::seen::Seen;
use crate::adopted::{Original, PatternMode, PatternRow};
use crate::catalog::CATALOG;
use crate::errors::{self, ErrorReply};
use crate::host::{CommandHost, GrantedTo, KeyArguments, NewWaiter, OriginalOutcome, ReadLock, Scanned, VisitedKey};
use crate::lock_log::LockLog;
use crate::parse::{LeaseSettings, ScanCommand};
use crate::reply::ReplyWriter;
use crate::run::{self, is_held};

/// Runs a command sent by a connection: at once, or queued with its transaction.
pub fn run_of_connection(call: Call<'_>, args: &[&[u8]]) {
    let name = args[0].to_ascii_uppercase();
    let is_queued = {
        let mut clients = call.server.clients.borrow_mut();
        let queued = clients.connections.get_mut(&call.client).and_then(|connection| connection.queued.as_mut());
        let is_of_transaction = matches!(name.as_slice(), b"EXEC" | b"DISCARD" | b"MULTI" | b"WATCH");
        match queued {
            Some(queued) if !is_of_transaction => {
                queued.push(args.iter().map(|word| word.to_vec()).collect());
                true
            }
            _ => false,
        }
    };
    match (is_queued, name.as_slice()) {
        (true, _) => call.reply.borrow_mut().status("QUEUED"),
        (false, b"EXEC") => exec(call),
        (false, _) => run(call, args),
    }
}

/// Runs a command.
pub fn run<'a>(mut call: Call<'a>, args: &'a [&'a [u8]]) {
    let container = Original::named(args[0]).and_then(|original| {
        let adopted = &call.server.settings.borrow().adopted;
        adopted.container_of(original, || args.len(), |position| args.get(position).copied())
    });
    if let Some(container) = container {
        let translated: Vec<&[u8]> = [container.name().as_bytes()].into_iter().chain(args.iter().copied()).collect();
        return run(call, &translated);
    }
    let name = args[0].to_ascii_uppercase();
    if let Some(command) = CATALOG.iter().find(|command| command.name.as_bytes() == name) {
        if let Err(error) = run::run(command, call, args) {
            call.error(&error);
        }
        return;
    }
    if let Err(words) = native::run(call, &name, args) {
        call.reply.borrow_mut().error_message(&words);
    }
}

/// Runs the queued commands of a transaction.
fn exec(call: Call<'_>) {
    let (queued, is_dirty) = call.with_connection(|connection| {
        connection.watched.clear();
        (connection.queued.take(), std::mem::take(&mut connection.is_dirty))
    });
    let Some(queued) = queued else {
        return call.reply.borrow_mut().error_message("ERR EXEC without MULTI");
    };
    if is_dirty {
        return call.reply.borrow_mut().null();
    }
    call.reply.borrow_mut().array(queued.len());
    for words in queued {
        let args: Vec<&[u8]> = words.iter().map(Vec::as_slice).collect();
        let db = call.with_connection(|connection| connection.db);
        // The transaction may outlive the arguments of a single command.
        let reply = RefCell::new(Encoder::new(call.reply.borrow().protocol));
        run(Call { server: call.server, client: call.client, sender: Sender::Transaction, db, reply: &reply }, &args);
        call.reply.borrow_mut().bytes.append(&mut reply.borrow_mut().bytes);
    }
}

impl ReplyWriter for Call<'_> {
    fn array(&mut self, len: usize) {
        self.reply.borrow_mut().array(len);
    }

    fn map(&mut self, len: usize) {
        self.reply.borrow_mut().map(len);
    }

    fn integer(&mut self, n: i64) {
        self.reply.borrow_mut().integer(n);
    }

    fn bytes(&mut self, bytes: &[u8]) {
        self.reply.borrow_mut().bytes(bytes);
    }

    fn status(&mut self, line: &str) {
        self.reply.borrow_mut().status(line);
    }

    fn null(&mut self) {
        self.reply.borrow_mut().null();
    }

    fn null_string(&mut self) {
        self.reply.borrow_mut().null_string();
    }

    fn error(&mut self, error: &ErrorReply) {
        self.reply.borrow_mut().error(error);
    }
}

impl Call<'_> {
    fn stored<R>(self, key: KeyRef<'_>, look: impl FnOnce(Option<&Stored>) -> R) -> R {
        let mut keyspace = self.server.keyspace.borrow_mut();
        let key = key.to_key();
        keyspace.expire(&key);
        look(keyspace.primary.get(&key))
    }
}

impl<'a> CommandHost<'a> for Call<'a> {
    type Argument = &'a [u8];
    type Opened = ();
    type Keys<'t> = &'t mut Keyspace;
    type Clients<'t> = Parking<'t>;
    type Waiting = AllClients;

    fn db(self) -> i32 {
        self.db
    }

    fn connection(self) -> Option<ClientId> {
        (self.sender != Sender::Command).then_some(self.client)
    }

    fn may_publish(self, _: &'a [u8]) -> bool {
        true
    }

    fn readable(self, _: &CStr) -> impl Fn(&[u8]) -> bool {
        |_| true
    }

    fn leases(self) -> LeaseSettings {
        self.server.settings.borrow().leases
    }

    fn new_token(self) -> [u8; 36] {
        let number = self.server.tokens.replace(self.server.tokens.get() + 1);
        let mut token = [0; 36];
        token.copy_from_slice(format!("00000000-0000-4000-8000-{number:012x}").as_bytes());
        token
    }

    fn check_slots(self, _: &[&'a [u8]]) -> Result<(), ErrorReply> {
        Ok(())
    }

    fn has_other_slot(self, _: &'a [u8], _: &'a [u8]) -> bool {
        false
    }

    fn are_writes_paused(self) -> bool {
        false
    }

    fn is_primary(self) -> bool {
        true
    }

    fn is_replicated(self) -> bool {
        false
    }

    fn now(self) -> Now {
        self.server.keyspace.borrow().now()
    }

    fn acquire_uncontended(
        self,
        key: &'a [u8],
        request: &LockRequest<'_>,
        session: Option<ClientId>,
    ) -> Result<Result<Grant, KeyError>, Option<()>> {
        if self.server.has_events() {
            return Err(None);
        }
        let (key, now) = (KeyRef { db: self.db, name: key }, self.now());
        let (mut manager, mut keyspace) = (self.server.manager.borrow_mut(), self.server.keyspace.borrow_mut());
        let mut keys = &mut *keyspace;
        manager.acquire_uncontended(&now, key, || keys.open(key), request, session).map_err(|_| None)
    }

    fn release_uncontended(
        self,
        key: &'a [u8],
        owner: &[u8],
        amount: &ReleaseAmount,
    ) -> Option<Result<Released, KeyError>> {
        if self.server.has_events() {
            return None;
        }
        let (key, now) = (KeyRef { db: self.db, name: key }, self.now());
        let (mut manager, mut keyspace) = (self.server.manager.borrow_mut(), self.server.keyspace.borrow_mut());
        let mut keys = &mut *keyspace;
        manager.release_uncontended(|| now.us(), key, || keys.open(key), owner, amount)
    }

    fn decide_on<R>(
        self,
        _: Option<()>,
        _: KeyArguments<'_, &'a [u8]>,
        waiter: Option<NewWaiter<'_, &'a [u8]>>,
        decide: impl FnOnce(&mut LockManager, &mut Host<'_, &mut Keyspace, Parking<'_>>) -> R,
    ) -> Result<R, ErrorReply> {
        self.server.apply_events();
        let now = self.now();
        let mut manager = self.server.manager.try_borrow_mut().map_err(|_| errors::BUSY)?;
        let (mut keyspace, mut clients) = (self.server.keyspace.borrow_mut(), self.server.clients.borrow_mut());
        let mut reply = self.reply.borrow_mut();
        let waiter = waiter.filter(|_| self.sender == Sender::Connection);
        let clients =
            Parking { clients: &mut clients, waiter: waiter.map(|waiter| (self.client, waiter)), reply: &mut reply };
        Ok(decide(&mut manager, &mut Host { keys: &mut *keyspace, clients, now: &now }))
    }

    fn update(self, update: impl FnOnce(&mut LockManager)) {
        update(&mut self.server.manager.borrow_mut());
    }

    fn inspect<R>(self, inspect: impl FnOnce(&LockManager, &AllClients, &Now) -> R) -> Result<R, ErrorReply> {
        self.server.apply_events();
        let manager = self.server.manager.try_borrow().map_err(|_| errors::BUSY)?;
        Ok(inspect(&manager, &self.server.clients.borrow(), &self.now()))
    }

    fn with_log<R>(self, work: impl FnOnce(&mut LockLog) -> R) -> Result<R, ErrorReply> {
        Ok(work(&mut self.server.log.borrow_mut()))
    }

    fn has_waiters_or_sessions(self) -> bool {
        true
    }

    fn is_closing(self, _: ClientId) -> bool {
        false
    }

    fn read<R>(self, key: &'a [u8], look: impl FnOnce(Option<ReadLock<'_>>) -> R) -> Result<R, ErrorReply> {
        self.read_key(KeyRef { db: self.db, name: key }, look)
    }

    fn read_key<R>(self, key: KeyRef<'_>, look: impl FnOnce(Option<ReadLock<'_>>) -> R) -> Result<R, ErrorReply> {
        self.stored(key, |stored| match stored {
            None => Ok(look(None)),
            Some(Stored::Lock(lock, until)) => Ok(look(Some(ReadLock { lock, until: *until }))),
            Some(Stored::Foreign) => Err(errors::WRONG_TYPE),
        })
    }

    /// Returns everything in one call.
    fn scan(self, command: &ScanCommand<'_>) -> Result<Scanned, ErrorReply> {
        let keyspace = self.server.keyspace.borrow();
        let locks =
            keyspace.primary.iter().filter(|(_, stored)| matches!(stored, Stored::Lock(lock, _) if is_held_lock(lock)));
        let names = locks.filter(|(key, _)| key.db == self.db).map(|(key, _)| key.name.to_vec());
        let mut keys: Vec<_> =
            names.filter(|name| command.pattern.is_none_or(|pattern| native::matches(pattern, name))).collect();
        keys.sort();
        Ok(Scanned { cursor: b"0".to_vec(), keys })
    }

    /// Unreachable: effects from clients are rejected earlier.
    fn apply_effect(self, _: &'a [u8], _: ReplicatedEffect<'_>) {}

    fn adopts(self, key: &[u8], lock_type: LockType) -> bool {
        self.server.settings.borrow().adopted.adopt(key, lock_type)
    }

    fn protects(self, key: &[u8]) -> bool {
        self.server.settings.borrow().adopted.is_among(key)
    }

    fn is_in_script_or_transaction(self) -> bool {
        self.sender == Sender::Transaction
    }

    fn count_observed(self, key: &[u8], lock_type: LockType, count: impl FnOnce(&mut Seen)) {
        if let Some(seen) = self.server.settings.borrow_mut().adopted.seen_mut(key, lock_type) {
            count(seen);
        }
    }

    fn pattern_rows(self) -> Vec<PatternRow> {
        self.server.settings.borrow().adopted.rows(PatternMode::Adopt).collect()
    }

    fn keys_and_types(self, _: usize, is_wanted: impl Fn(&[u8]) -> bool) -> Result<Vec<VisitedKey>, ErrorReply> {
        let keyspace = self.server.keyspace.borrow();
        let of_db = keyspace.primary.iter().filter(|(key, _)| key.db == self.db);
        let with_type = of_db.map(|(key, stored)| {
            let kind = if matches!(stored, Stored::Lock(..)) { "redislock" } else { "string" };
            VisitedKey { name: key.name.to_vec(), kind: is_wanted(&key.name).then(|| kind.to_string()) }
        });
        Ok(with_type.collect())
    }

    fn refused_users(self, _: &[Vec<&[u8]>], _: &[Vec<&[u8]>]) -> Vec<String> {
        Vec::new()
    }

    fn adopt_wait(self) -> Option<WaitLimit> {
        NonZeroU64::new(self.server.settings.borrow().adopt_wait_ms).map(WaitLimit::Ms)
    }

    fn record_grant_to_connection(self, key: &[u8], fence: Fence) {
        let settings = self.server.settings.borrow();
        if settings.adopt_wait_ms > 0 && settings.adopted.may_hold_adopted(key) {
            self.server.granted_here.borrow_mut().insert((fence, self.connection()));
        }
    }

    fn record_adopted(self, fence: Fence) {
        self.server.granted_here.borrow_mut().insert((fence, self.connection()));
    }

    fn granted_to(self, _: Fence) -> Option<GrantedTo> {
        Some(GrantedTo::default())
    }

    fn may_be_held_by_connection(self, fence: Fence) -> bool {
        let granted = self.server.granted_here.borrow();
        granted.contains(&(fence, None)) || granted.contains(&(fence, Some(self.client)))
    }

    fn is_out_of_memory(self) -> bool {
        false
    }

    fn is_replayed(self) -> bool {
        false
    }

    fn is_replica(self) -> bool {
        false
    }

    fn check_permission(self, _: &[&'a [u8]]) -> Result<(), ErrorReply> {
        Ok(())
    }

    fn run_original(self, args: &[&'a [u8]]) -> Result<OriginalOutcome, ErrorReply> {
        Ok(native::run_original(self, args))
    }

    fn call(self, words: &[&[u8]]) -> Result<(), ErrorReply> {
        let reply = RefCell::new(Encoder::new(self.reply.borrow().protocol));
        let call = Call { reply: &reply, ..self };
        native::run(call, words[0], words).map_err(|_| errors::NOT_RETURNED)
    }

    fn original_mget(self, args: &[&'a [u8]]) -> Result<Vec<Option<Vec<u8>>>, ErrorReply> {
        Ok(args[1..].iter().map(|name| native::string(self, name)).collect())
    }

    fn exec(self, args: &'a [&'a [u8]]) -> Result<(), ErrorReply> {
        let (key, command) = (args[1], &args[3..]);
        if self.sender == Sender::Command {
            return Err(errors::EXEC_WITHIN_EXEC);
        }
        if !is_held(self, key, args[2])? {
            self.update(|manager| manager.observer.statistics.execs_not_held += 1);
            return Err(errors::NOT_HELD);
        }
        self.update(|manager| manager.observer.statistics.execs += 1);
        run(Call { sender: Sender::Command, ..self }, command);
        Ok(())
    }
}

fn is_held_lock(lock: &Lock) -> bool {
    lock.held_lock_type().is_some()
}

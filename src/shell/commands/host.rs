//! The real server as the host of a command.

use std::ffi::CStr;

use command::adopted::seen::Seen;
use command::adopted::PatternRow;
use command::errors::{self, ErrorReply};
use command::host::{
    CommandHost, GrantedTo, KeyArguments, NewWaiter, OriginalOutcome, ReadLock, Scanned, VisitedKey, Waiting,
};
use command::lock_log::LockLog;
use command::parse::{LeaseSettings, ScanCommand};
use lock::engine::lock_manager::LockManager;
use lock::host::Host;
use lock::key::{ClientId, KeyRef, RequestId};
use lock::value::claim::{LockRequest, LockType, ReleaseAmount};
use lock::value::fence::Fence;
use lock::value::outcome::{Grant, KeyError, Released};
use lock::value::rebuild::ReplicatedEffect;
use lock::value::time::{Now, WaitLimit};
use redis_module::raw;
use uuid::Uuid;

use super::exec;
use crate::shell::adopt;
use crate::shell::background::{events, write_check};
use crate::shell::clients::{PassClients, WaitingClients};
use crate::shell::connections::connection_of;
use crate::shell::engine_pass::{self, FastPass};
use crate::shell::ffi::call::{self, call_again};
use crate::shell::ffi::context::Ctx;
use crate::shell::ffi::server::{self, client_address, Reader};
use crate::shell::ffi::string::{OwnedStr, Str};
use crate::shell::keyspace::store::{ReadContent, ReadKey, Store, StoredKey};
use crate::shell::keyspace::{datatype, effects};
use crate::shell::observe::{keyspace_events, report};
use crate::shell::slots::slot_of;
use crate::shell::state::State;
use crate::shell::{clock, granted_here, settings};

/// `EPERM`: in a cluster, the key belongs to another node; SCAN has no key.
const NOT_MY_SLOT: i32 = 1;

impl<'a> CommandHost<'a> for Ctx<'a> {
    type Argument = Str<'a>;
    type Opened = StoredKey<'a>;
    type Keys<'t> = Store<'t>;
    type Clients<'t> = PassClients<'t>;
    type Waiting = WaitingClients;

    #[inline]
    fn db(self) -> i32 {
        Ctx::db(self)
    }

    fn connection(self) -> Option<ClientId> {
        connection_of(self)
    }

    fn may_publish(self, channel: Str<'a>) -> bool {
        server::may_publish(self, self.client_id(), channel)
    }

    fn readable(self, command: &CStr) -> impl Fn(&[u8]) -> bool {
        let reader = Reader::of(self, command);
        move |key| reader.may_read(OwnedStr::new(key).as_str())
    }

    #[inline]
    fn leases(self) -> LeaseSettings {
        settings::leases()
    }

    #[cold]
    fn new_token(self) -> [u8; 36] {
        let mut token = [0; 36];
        Uuid::new_v4().hyphenated().encode_lower(&mut token);
        token
    }

    #[inline]
    fn check_slots(self, keys: &[Str<'a>]) -> Result<(), ErrorReply> {
        write_check::check_slots(self, keys)
    }

    fn has_other_slot(self, key: Str<'a>, channel: Str<'a>) -> bool {
        write_check::is_in_cluster() && slot_of(key.bytes()) != slot_of(channel.bytes())
    }

    #[inline]
    fn are_writes_paused(self) -> bool {
        self.avoids_replica_traffic()
    }

    fn is_primary(self) -> bool {
        self.has_flag(raw::REDISMODULE_CTX_FLAGS_MASTER)
    }

    fn is_replicated(self) -> bool {
        self.has_flag(raw::REDISMODULE_CTX_FLAGS_REPLICATED | raw::REDISMODULE_CTX_FLAGS_LOADING)
    }

    fn now(self) -> Now {
        clock::now()
    }

    #[inline(always)]
    fn acquire_uncontended(
        self,
        key: Str<'a>,
        request: &LockRequest<'_>,
        session: Option<ClientId>,
    ) -> Result<Result<Grant, KeyError>, Option<StoredKey<'a>>> {
        if !events::allow_fast_path() {
            return Err(None);
        }
        FastPass::begin(self, key).ok_or(None)?.acquire(request, session)
    }

    #[inline(always)]
    fn release_uncontended(
        self,
        key: Str<'a>,
        owner: &[u8],
        amount: &ReleaseAmount,
    ) -> Option<Result<Released, KeyError>> {
        if !events::allow_fast_path() {
            return None;
        }
        FastPass::begin(self, key)?.release(owner, amount)
    }

    fn decide_on<R>(
        self,
        opened: Option<StoredKey<'a>>,
        keys: KeyArguments<'_, Str<'a>>,
        waiter: Option<NewWaiter<'_, Str<'a>>>,
        decide: impl FnOnce(&mut LockManager, &mut Host<'_, Store<'_>, PassClients<'_>>) -> R,
    ) -> Result<R, ErrorReply> {
        if events::is_replica() {
            return Err(errors::READ_ONLY);
        }
        engine_pass::of_command(self, opened, keys, waiter, decide)
    }

    fn update(self, update: impl FnOnce(&mut LockManager)) {
        // Skipped during an engine pass.
        _ = engine_pass::with_state(|state, _| update(&mut state.manager));
    }

    fn inspect<R>(self, inspect: impl FnOnce(&LockManager, &WaitingClients, &Now) -> R) -> Result<R, ErrorReply> {
        engine_pass::with_state(|state, now| inspect(&state.manager, &state.clients, now))
    }

    /// Applies pending events first, so that LOCK.LOG is up to date.
    fn with_log<R>(self, work: impl FnOnce(&mut LockLog) -> R) -> Result<R, ErrorReply> {
        let worked = engine_pass::with_state(|State { manager, clients, log }, now| {
            report::take(self, now, manager, clients, log);
            work(log)
        });
        keyspace_events::publish(self);
        worked
    }

    fn has_waiters_or_sessions(self) -> bool {
        events::has_waiters_or_sessions()
    }

    fn is_closing(self, client: ClientId) -> bool {
        server::is_closing(self, client.0)
    }

    fn read<R>(self, key: Str<'a>, look: impl FnOnce(Option<ReadLock<'_>>) -> R) -> Result<R, ErrorReply> {
        read(self, key, look)
    }

    fn read_key<R>(self, key: KeyRef<'_>, look: impl FnOnce(Option<ReadLock<'_>>) -> R) -> Result<R, ErrorReply> {
        let name = OwnedStr::new(key.name);
        if key.db == Ctx::db(self) {
            read(self, name.as_str(), look)
        } else {
            self.in_db(key.db, || read(self, name.as_str(), look))
        }
    }

    /// Does not use the module API's own scan (`RedisModule_Scan`): a client cannot pass its cursor back.
    fn scan(self, command: &ScanCommand<'_>) -> Result<Scanned, ErrorReply> {
        let mut words = vec![command.cursor, b"TYPE", datatype::NAME.to_bytes()];
        words.extend(command.pattern.into_iter().flat_map(|pattern| [b"MATCH", pattern]));
        words.extend(command.count.into_iter().flat_map(|count| [b"COUNT", count]));
        let mut found = call::scan(self, &words);
        if write_check::is_in_cluster() && matches!(found, Err(NOT_MY_SLOT)) {
            found = call_again(self, || call::scan(self, &words));
        }
        found.map_err(|_| errors::NO_SCAN)
    }

    /// A replica forwards the effects of its primary to its own replicas and append-only file.
    fn apply_effect(self, key: Str<'a>, effect: ReplicatedEffect<'_>) {
        effects::apply(self, key, effect);
        self.replicate_verbatim();
    }

    fn adopts(self, key: &[u8], lock_type: LockType) -> bool {
        adopt::adopts(key, lock_type)
    }

    fn protects(self, key: &[u8]) -> bool {
        adopt::protects(key)
    }

    fn is_in_script_or_transaction(self) -> bool {
        self.has_flag(raw::REDISMODULE_CTX_FLAGS_LUA | raw::REDISMODULE_CTX_FLAGS_MULTI)
    }

    fn count_observed(self, key: &[u8], lock_type: LockType, count: impl FnOnce(&mut Seen)) {
        adopt::count(key, lock_type, count);
    }

    fn pattern_rows(self) -> Vec<PatternRow> {
        adopt::rows()
    }

    fn keys_and_types(self, most: usize, is_wanted: impl Fn(&[u8]) -> bool) -> Result<Vec<VisitedKey>, ErrorReply> {
        adopt::original::keys_and_types(self, most, is_wanted)
    }

    fn refused_users(self, commands: &[Vec<&[u8]>], containers: &[Vec<&[u8]>]) -> Vec<String> {
        adopt::original::refused_users(self, commands, containers)
    }

    fn adopt_wait(self) -> Option<WaitLimit> {
        settings::adopt_wait()
    }

    #[inline]
    fn record_grant_to_connection(self, key: &[u8], fence: Fence) {
        if adopt::may_be_waited_for(key) {
            granted_here::record(fence, connection_of(self));
        }
    }

    fn record_adopted(self, fence: Fence) {
        granted_here::record_adopted(self, fence, connection_of(self));
    }

    fn granted_to(self, fence: Fence) -> Option<GrantedTo> {
        granted_here::granted_to(fence).map(|(_, granted)| granted)
    }

    fn may_be_held_by_connection(self, fence: Fence) -> bool {
        granted_here::may_belong_to(fence, ClientId(self.client_id()))
    }

    fn is_out_of_memory(self) -> bool {
        self.has_flag(raw::REDISMODULE_CTX_FLAGS_OOM)
    }

    fn is_replayed(self) -> bool {
        /// The client that loads an append-only file.
        const AOF: u64 = u64::MAX;
        self.client_id() == AOF || (events::is_replica() || write_check::is_in_cluster()) && self.is_replicated()
    }

    fn is_replica(self) -> bool {
        events::is_replica()
    }

    fn check_permission(self, args: &[Str<'a>]) -> Result<(), ErrorReply> {
        adopt::original::check_permission(self, args)
    }

    fn run_original(self, args: &[Str<'a>]) -> Result<OriginalOutcome, ErrorReply> {
        adopt::original::run(self, args)
    }

    fn call(self, words: &[&[u8]]) -> Result<(), ErrorReply> {
        adopt::original::call(self, words)
    }

    fn original_mget(self, args: &[Str<'a>]) -> Result<Vec<Option<Vec<u8>>>, ErrorReply> {
        adopt::original::strings(self, args)
    }

    fn exec(self, args: &'a [Str<'a>]) -> Result<(), ErrorReply> {
        exec::run(self, args)
    }
}

fn read<R>(ctx: Ctx<'_>, key: Str<'_>, look: impl FnOnce(Option<ReadLock<'_>>) -> R) -> Result<R, ErrorReply> {
    // SAFETY: the running command has no other key open.
    match unsafe { ReadKey::open(ctx, key) } {
        ReadContent::Lock(key) => Ok(look(Some(ReadLock { lock: key.lock(), until: key.until() }))),
        ReadContent::Free => Ok(look(None)),
        ReadContent::Foreign => Err(errors::WRONG_TYPE),
    }
}

impl Waiting for WaitingClients {
    fn client_of(&self, request: RequestId) -> Option<(ClientId, String)> {
        let client = WaitingClients::client_of(self, request)?;
        Some((client, client_address(client.0)))
    }
}

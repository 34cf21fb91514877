//! How a client's command comes in, and its answer goes out.

use std::ffi::c_int;

use redis_module::raw;
use smallvec::SmallVec;

use super::api::{self, guard, Ctx, Str};
use super::config;
use super::drain;
use super::effect;
use super::events;
use super::keyspace::Keyspace;
use super::look;
use super::state::{self, State};
use super::waiting::notify_ticket;
use command::catalog::{Action, CATALOG, COUNT};
use command::parse::{self, Family, Token};
use command::words::{self, Words};
use lock::claim::{AskRef, Kind};
use lock::desk::{self, Acquire, Acquired, Wait};
use lock::outcome::Released;
use lock::owner::{Owner, OwnerRef};
use lock::queue::{ClientId, KeyRef, RequestId};
use lock::serve::Leaving;
use lock::time::Now;

/// What the server calls for a command.
pub type Entry = unsafe extern "C" fn(*mut raw::RedisModuleCtx, *mut *mut raw::RedisModuleString, c_int) -> c_int;

/// The entry of every command of the catalog, in its order.
pub const ENTRIES: [Entry; COUNT] = [
    enter::<0>,
    enter::<1>,
    enter::<2>,
    enter::<3>,
    enter::<4>,
    enter::<5>,
    enter::<6>,
    enter::<7>,
    enter::<8>,
    enter::<9>,
    enter::<10>,
    enter::<11>,
    enter::<12>,
    enter::<13>,
    enter::<14>,
    enter::<15>,
    enter::<16>,
    enter::<17>,
    enter::<18>,
    enter::<19>,
];

/// So many arguments need no heap.
const FEW: usize = 16;

unsafe extern "C" fn enter<const INDEX: usize>(
    ctx: *mut raw::RedisModuleCtx,
    argv: *mut *mut raw::RedisModuleString,
    argc: c_int,
) -> c_int {
    let Some(ctx) = Ctx::new(ctx) else { return raw::REDISMODULE_ERR as c_int };
    let ran = guard(CATALOG[INDEX].name, || {
        // SAFETY: the server passes that many arguments, which live and stay the same while the command runs.
        let strings = unsafe { std::slice::from_raw_parts(argv.cast::<Str>(), usize::try_from(argc).unwrap_or(0)) };
        let mut args = SmallVec::<[&[u8]; FEW]>::new();
        args.push(CATALOG[INDEX].name.as_bytes());
        args.extend(strings.iter().skip(1).map(|string| unsafe { string.bytes() }));
        let result = dispatch(CATALOG[INDEX].action, CATALOG[INDEX].arity, ctx, &args, strings);
        if let Err(words) = result {
            ctx.reply_error(&words.0);
        }
    });
    if ran.is_none() {
        ctx.reply_error("ERR internal error of redis-lock, see the server's log");
    }
    raw::REDISMODULE_OK as c_int
}

#[inline(always)]
fn dispatch(action: Action, arity: i32, ctx: Ctx, args: &[&[u8]], strings: &[Str]) -> Result<(), Words> {
    if let Action::Acquire(Family::Mlock) | Action::Release(Family::Mlock) | Action::Renew(Family::Mlock) = action {
        if api::asks_for_keys(ctx) {
            parse::key_positions(args).for_each(|at| api::tell_key(ctx, at));
            return Ok(());
        }
    }
    let least = usize::try_from(arity.unsigned_abs()).unwrap_or(usize::MAX);
    if args.len() < least || (arity > 0 && args.len() > least) {
        ctx.reply_wrong_arity();
        return Ok(());
    }
    match action {
        Action::Acquire(family) => acquire(family, ctx, args, strings),
        Action::Release(family) => release(family, ctx, args, strings),
        Action::Renew(family) => renew(family, ctx, args, strings),
        Action::Cancel => cancel(ctx, args, strings),
        Action::Held => look::held(ctx, &state::now(), strings[1], args[2]),
        Action::Info => look_at_state(|state, now| look::info(ctx, now, state, strings[1], args[1])),
        Action::Waiters => look_at_state(|state, now| look::waiters(ctx, now, state, strings[1], args[1])),
        Action::Apply => apply(ctx, args, strings),
    }
}

fn look_at_state(look: impl FnOnce(&State, &Now) -> Result<(), Words>) -> Result<(), Words> {
    state::with(|state, now| {
        let result = look(state, now);
        drain::schedule(state, now);
        result
    })
    .unwrap_or(Err(words::BUSY.into()))
}

/// The key arguments of a command that takes these keys.
fn key_strings<'a>(family: Family, keys: &[&[u8]], strings: &'a [Str]) -> &'a [Str] {
    let first = if family == Family::Mlock { 2 } else { 1 };
    &strings[first..first + keys.len()]
}

fn acquire(family: Family, ctx: Ctx, args: &[&[u8]], strings: &[Str]) -> Result<(), Words> {
    let request = parse::acquire(family, args, config::settings())?;
    let mut made = uuid::Uuid::encode_buffer();
    let (token, is_made_up): (&[u8], bool) = match request.token {
        Token::Given(token) => (token, false),
        // A random UUID.
        Token::Made => (uuid::Uuid::new_v4().hyphenated().encode_lower(&mut made).as_bytes(), true),
    };
    let owner = OwnerRef::new(token).ok_or(words::BAD_OWNER)?;
    let ask = AskRef { owner, claim: request.claim, lease: request.lease };
    let waits = Waits::find_out(ctx, request.wait, strings, key_strings(family, request.keys, strings)[0])?;
    let kind = request.claim.kind();
    refuse_while_paused(ctx)?;
    state::with(|state, now| {
        let State { desk, waiting } = state;
        let mut world = Keyspace::of_command(ctx, key_strings(family, request.keys, strings), request.keys, waiting);
        let asked = Acquire {
            db: world.db(),
            names: request.keys,
            ask,
            wait: waits.block_ms.map(|block_ms| Wait {
                until: (block_ms > 0).then(|| now.at().plus_ms(block_ms)),
                may_come_back: !is_made_up,
            }),
            session: waits.session,
        };
        let acquired = desk.acquire(&mut world, now, asked);
        drop(world);
        let result = match acquired {
            Ok(Acquired::Granted(receipt)) => {
                reply_grant(ctx, token, kind, receipt.fence.get(), receipt.holds);
                Ok(())
            }
            Ok(Acquired::No) => {
                ctx.reply_null();
                Ok(())
            }
            Ok(Acquired::Queued(id)) => queued(ctx, state, now, id, ask, &waits, request.keys[0]),
            Err(error) => Err(words::of_error(&error)),
        };
        if state::is_attended() || !state.desk.queue().is_empty() || !state.desk.sessions().is_empty() {
            drain::schedule(state, now);
        }
        result
    })
    .unwrap_or(Err(words::BUSY.into()))
}

/// Only a transaction that paused the server itself comes here while writes are paused. Redis does not delete what has expired then, and ends
/// itself when something is stored in its place.
fn refuse_while_paused(ctx: Ctx) -> Result<(), Words> {
    match ctx.avoids_replica_traffic() {
        true => Err(words::PAUSED.into()),
        false => Ok(()),
    }
}

/// What of BLOCK, NOTIFY and SESSION holds for this client.
struct Waits {
    block_ms: Option<u64>,
    /// The channel, and whether the shard's subscribers are meant.
    notify: Option<(Str, bool)>,
    session: Option<ClientId>,
    client: ClientId,
}

impl Waits {
    fn find_out(ctx: Ctx, wait: parse::Wait, strings: &[Str], key: Str) -> Result<Waits, Words> {
        let mut waits = Waits { block_ms: None, notify: None, session: None, client: ClientId(0) };
        if wait == parse::Wait::default() {
            return Ok(waits);
        }
        let flags = ctx.flags();
        if flags & raw::REDISMODULE_CTX_FLAGS_LUA != 0 && (wait.notify.is_some() || wait.session) {
            return Err(words::IN_SCRIPT.into());
        }
        waits.client = ClientId(ctx.client_id());
        waits.session = wait.session.then_some(waits.client);
        // As BLPOP: who may not block gets its answer at once.
        if flags & raw::REDISMODULE_CTX_FLAGS_DENY_BLOCKING == 0 {
            waits.block_ms = wait.block_ms;
        }
        if let Some(channel) = wait.notify.and_then(|at| strings.get(at)) {
            let in_cluster = flags & raw::REDISMODULE_CTX_FLAGS_CLUSTER != 0;
            if !api::may_publish(ctx, *channel) {
                return Err(words::NO_CHANNEL.into());
            }
            if in_cluster && api::slot(ctx, *channel) != api::slot(ctx, key) {
                return Err(words::CHANNEL_SLOT.into());
            }
            waits.notify = Some((*channel, in_cluster));
        }
        Ok(waits)
    }
}

fn queued(
    ctx: Ctx,
    state: &mut State,
    now: &Now,
    id: RequestId,
    ask: AskRef<'_>,
    waits: &Waits,
    key: &[u8],
) -> Result<(), Words> {
    let (owner, kind) = (ask.owner.to_owner(), ask.claim.kind());
    events::watch_keys(ctx);
    let Some((channel, to_shard)) = waits.notify else {
        if !state.waiting.park(ctx, id, waits.client, owner, kind) {
            state.desk.leave(now, id, Leaving::ForGood);
            ctx.reply_null();
        }
        return Ok(());
    };
    reply_grant(ctx, owner.as_bytes(), kind, 0, 0);
    let ticket = notify_ticket(waits.client, owner, kind, channel, key, to_shard);
    let (channel, token) = (unsafe { channel.bytes() }, ticket.owner.clone());
    if let Some(news) = state.waiting.subscribe(id, ticket) {
        let message = command::news::message(key, token.as_bytes(), news);
        api::publish(ctx, channel, &message, to_shard);
    }
    Ok(())
}

/// `[token, fence]` of a mutex, `[owner, fence, holds]` of the others.
pub fn reply_grant(ctx: Ctx, owner: &[u8], kind: Kind, fence: u64, holds: u32) {
    ctx.reply_array(if kind == Kind::Mutex { 2 } else { 3 });
    ctx.reply_bytes(owner);
    ctx.reply_integer(i64::try_from(fence).unwrap_or(i64::MAX));
    if kind != Kind::Mutex {
        ctx.reply_integer(i64::from(holds));
    }
}

fn release(family: Family, ctx: Ctx, args: &[&[u8]], strings: &[Str]) -> Result<(), Words> {
    let request = parse::release(family, args, config::settings())?;
    let released = state::with(|state, now| {
        let State { desk, waiting } = state;
        let mut world = Keyspace::of_command(ctx, key_strings(family, request.keys, strings), request.keys, waiting);
        let db = world.db();
        if family == Family::Mlock {
            desk.check(&mut world, db, request.keys, Kind::Mutex)?;
        }
        let (mut last, mut count) = (Released::NotHeld, 0);
        for name in request.keys {
            last = desk.release(&mut world, now, KeyRef { db, name }, request.owner, &request.claim)?;
            count += i64::from(last == Released::Gone);
        }
        drop(world);
        if state::is_attended() {
            drain::schedule(state, now);
        }
        Ok((last, count))
    });
    let (last, count) = released.unwrap_or(Ok((Released::NotHeld, 0))).map_err(|error| words::of_error(&error))?;
    ctx.reply_integer(match (family, last) {
        (Family::Lock | Family::Mlock, _) => count,
        (_, Released::NotHeld) => -1,
        (_, Released::Same(left) | Released::Fewer(left)) => i64::from(left),
        (_, Released::Gone) => 0,
    });
    Ok(())
}

fn renew(family: Family, ctx: Ctx, args: &[&[u8]], strings: &[Str]) -> Result<(), Words> {
    let request = parse::renew(family, args, config::settings())?;
    let kind = match family {
        Family::Lock | Family::Mlock => Kind::Mutex,
        Family::Rlock => Kind::Reentrant,
        Family::Rwlock => Kind::Rw,
        Family::Sem => Kind::Semaphore,
    };
    let renewed = state::with(|state, now| {
        let State { desk, waiting } = state;
        let mut world = Keyspace::of_command(ctx, key_strings(family, request.keys, strings), request.keys, waiting);
        let db = world.db();
        let asked = desk::Renew { db, names: request.keys, owner: request.owner, kind, lease: request.lease };
        let renewed = desk.renew(&mut world, now, asked);
        drop(world);
        if state::is_attended() {
            drain::schedule(state, now);
        }
        renewed
    });
    let renewed = renewed.unwrap_or(Ok(false)).map_err(|error| words::of_error(&error))?;
    ctx.reply_integer(i64::from(renewed));
    Ok(())
}

fn cancel(ctx: Ctx, args: &[&[u8]], strings: &[Str]) -> Result<(), Words> {
    let owner = Owner::new(args[2]).ok_or(words::BAD_OWNER)?;
    refuse_while_paused(ctx)?;
    let cancelled = state::with(|state, now| {
        let State { desk, waiting } = state;
        let mut world = Keyspace::of_command(ctx, &strings[1..2], &args[1..2], waiting);
        let key = KeyRef { db: world.db(), name: args[1] };
        desk.check_type(&mut world, key)?;
        let cancelled = desk.cancel(&mut world, now, key, &owner);
        drop(world);
        drain::schedule(state, now);
        Ok(cancelled)
    });
    let cancelled = cancelled.unwrap_or(Ok(false)).map_err(|error| words::of_error(&error))?;
    ctx.reply_integer(i64::from(cancelled));
    Ok(())
}

fn apply(ctx: Ctx, args: &[&[u8]], strings: &[Str]) -> Result<(), Words> {
    if effect::is_probe() {
        ctx.reply_ok();
        return Ok(());
    }
    let trusted = raw::REDISMODULE_CTX_FLAGS_REPLICATED | raw::REDISMODULE_CTX_FLAGS_LOADING;
    if !ctx.has_flag(trusted) {
        return Err(words::INTERNAL.into());
    }
    if !effect::apply(ctx, strings[1], &args[2..]) {
        return Err(words::SYNTAX.into());
    }
    // What a replica was told, it tells its own replicas and its own append-only file.
    // SAFETY: the context is that of a command.
    unsafe { api::api!(RedisModule_ReplicateVerbatim(ctx.raw())) };
    ctx.reply_ok();
    Ok(())
}

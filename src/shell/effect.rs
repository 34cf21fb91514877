//! What replicas and the append-only file get: who holds a lock, until when, with which fence. Never a request.
//!
//! `LOCK.APPLY key HOLD owner "kind limit holds reads fence lease until"`: this owner holds it so. `lease` and `until` in ms, -1 for
//! never; a mutex' holder replaces the one before. `LOCK.APPLY key DROP owner`, `LOCK.APPLY key LIMIT n`, `LOCK.APPLY key CLAMP`, `LOCK.APPLY key FENCE n`, and the server's own `DEL` when
//! the last holder goes. They are applied as they come: whoever applies them judges nothing and reads no clock.

use std::cell::Cell;
use std::ffi::{c_int, c_longlong, CStr};
use std::ptr::NonNull;

use redis_module::raw;

use super::api::{api, Content, Ctx, MainThread, OpenKey, Str};
use super::datatype;
use super::keyspace::Scope;
use super::listen;
use super::state;
use command::number::integer;
use lock::claim::Kind;
use lock::fence::Fence;
use lock::members::Holder;
use lock::outcome::Hold;
use lock::owner::Owner;
use lock::state::Lock;
use lock::time::{At, Deadline, Lease};

/// The internal command.
pub const APPLY: &CStr = c"LOCK.APPLY";

/// The argument with which the gate asks whether a write would be accepted.
pub const PROBE: &CStr = c"PROBE";

static PROBING: MainThread<Cell<bool>> = MainThread(Cell::new(false));

/// Sends how this owner holds the lock now; `key_until` is asked only where somebody listens.
pub fn send_hold(ctx: Ctx, scope: Scope, key: Str, lock: &Lock, owner: &[u8], key_until: impl FnOnce() -> Deadline) {
    if !is_unheard(ctx, scope) {
        send(ctx, key, lock, owner, key_until());
    }
}

/// Where nobody listens, no effect is built: the server only counts the change, for its save points.
fn is_unheard(ctx: Ctx, scope: Scope) -> bool {
    if scope == Scope::Timer || listen::is_anybody_there() {
        return false;
    }
    // SAFETY: the context is that of a command. Nothing is sent: nobody is there.
    unsafe { api!(RedisModule_ReplicateVerbatim(ctx.raw())) };
    true
}

fn send(ctx: Ctx, key: Str, lock: &Lock, owner: &[u8], key_until: Deadline) {
    let Some(hold) = lock.hold(owner, key_until) else { return };
    let fields = fields(lock, &hold);
    // SAFETY: format and arguments agree; the server copies what it keeps.
    unsafe {
        api!(RedisModule_Replicate(
            ctx.raw(),
            APPLY.as_ptr(),
            c"scbb".as_ptr(),
            key.raw(),
            c"HOLD".as_ptr(),
            owner.as_ptr(),
            owner.len(),
            fields.as_ptr(),
            fields.len(),
        ));
    }
}

/// Writes a lock into an append-only file that is being rewritten.
pub fn emit(aof: *mut raw::RedisModuleIO, key: Str, lock: &Lock) {
    for hold in lock.stored_holds() {
        let (owner, fields) = (hold.owner.as_bytes(), fields(lock, &hold));
        // SAFETY: as in `send`.
        unsafe {
            api!(RedisModule_EmitAOF(
                aof,
                APPLY.as_ptr(),
                c"scbb".as_ptr(),
                key.raw(),
                c"HOLD".as_ptr(),
                owner.as_ptr(),
                owner.len(),
                fields.as_ptr(),
                fields.len(),
            ));
        }
    }
    if let (Lock::Crowd(_), Some(fence)) = (lock, lock.fence()) {
        emit_rest(aof, key, fence);
    }
}

/// The lock's own fence where its holder has gone since, and that the key has no end of its own: the server's `PEXPIREAT` follows
/// where it has.
fn emit_rest(aof: *mut raw::RedisModuleIO, key: Str, fence: Fence) {
    let fence = c_longlong::try_from(fence.get()).unwrap_or(c_longlong::MAX);
    // SAFETY: formats and arguments agree.
    unsafe {
        api!(RedisModule_EmitAOF(aof, APPLY.as_ptr(), c"scl".as_ptr(), key.raw(), c"FENCE".as_ptr(), fence));
        api!(RedisModule_EmitAOF(aof, c"PERSIST".as_ptr(), c"s".as_ptr(), key.raw()));
    }
}

/// Sends that this owner holds the lock no more.
pub fn send_drop(ctx: Ctx, key: Str, owner: &[u8]) {
    // SAFETY: format and arguments agree.
    unsafe {
        api!(RedisModule_Replicate(
            ctx.raw(),
            APPLY.as_ptr(),
            c"scb".as_ptr(),
            key.raw(),
            c"DROP".as_ptr(),
            owner.as_ptr(),
            owner.len(),
        ));
    }
}

/// Sends the limit of a semaphore.
pub fn send_limit(ctx: Ctx, key: Str, limit: u32) {
    // SAFETY: format and arguments agree.
    unsafe {
        api!(RedisModule_Replicate(
            ctx.raw(),
            APPLY.as_ptr(),
            c"scl".as_ptr(),
            key.raw(),
            c"LIMIT".as_ptr(),
            c_longlong::from(limit),
        ));
    }
}

/// Sends that the holders' deadlines follow the key's, which somebody changed.
pub fn send_clamp(ctx: Ctx, key: Str) {
    // SAFETY: format and arguments agree.
    unsafe { api!(RedisModule_Replicate(ctx.raw(), APPLY.as_ptr(), c"sc".as_ptr(), key.raw(), c"CLAMP".as_ptr())) };
}

/// Sends that the key is gone.
pub fn send_removal(ctx: Ctx, scope: Scope, key: Str) {
    if is_unheard(ctx, scope) {
        return;
    }
    // SAFETY: format and arguments agree.
    unsafe { api!(RedisModule_Replicate(ctx.raw(), c"DEL".as_ptr(), c"s".as_ptr(), key.raw())) };
}

/// `kind limit holds reads fence lease until` in one argument: it costs the server a third of what seven cost.
fn fields(lock: &Lock, hold: &Hold<'_>) -> String {
    let kind = lock.kind().unwrap_or(Kind::Mutex).word();
    let until = hold.until.at().map_or(-1, |at| i64::try_from(at.ms()).unwrap_or(i64::MAX));
    let Hold { holds, reads, fence, lease, .. } = hold;
    format!("{kind} {} {holds} {reads} {} {} {until}", lock.limit(), fence.get(), lease.as_ms())
}

/// Asks whether the server would accept a write of this key, by running [`PROBE`]. `Err`: it refuses, with the number of its error.
pub fn probe(ctx: Ctx, key: Str) -> Result<(), i32> {
    PROBING.0.set(true);
    // `S`: as a script would call it, so that the server refuses what it would refuse a client. `E`: a refusal is a reply, without which
    // Valkey 9.1 reads a null pointer.
    // SAFETY: format and arguments agree; the reply is freed.
    let (reply, error) = unsafe {
        let reply = api!(RedisModule_Call(ctx.raw(), APPLY.as_ptr(), c"SEsc".as_ptr(), key.raw(), PROBE.as_ptr()));
        (NonNull::new(reply), std::io::Error::last_os_error().raw_os_error().unwrap_or(0))
    };
    PROBING.0.set(false);
    // SAFETY: the reply is ours.
    let accepted = reply.is_some_and(|reply| unsafe {
        let kind = api!(RedisModule_CallReplyType(reply.as_ptr()));
        api!(RedisModule_FreeCallReply(reply.as_ptr()));
        kind != raw::REDISMODULE_REPLY_ERROR as c_int
    });
    if accepted {
        Ok(())
    } else {
        Err(error)
    }
}

/// Whether the command that runs now is our own probe.
pub fn is_probe() -> bool {
    PROBING.0.get()
}

/// Applies an effect; `args` follow the command's name. False: these are no arguments of an effect.
pub fn apply(ctx: Ctx, key: Str, args: &[&[u8]]) -> bool {
    match args {
        [b"HOLD", owner, fields] => read_hold(owner, fields)
            .filter(|(kind, limit, holder)| holder.is_sound(*kind, *limit))
            .map(|(kind, limit, holder)| apply_hold(ctx, key, kind, limit, holder))
            .is_some(),
        [b"DROP", owner] => {
            apply_drop(ctx, key, owner);
            true
        }
        [b"LIMIT", limit] => match integer(limit).and_then(|limit| u32::try_from(limit).ok()) {
            Some(limit) => {
                if let Some((_open, lock)) = open_lock(ctx, key) {
                    lock.set_limit(limit);
                    ctx.signal_modified(key);
                }
                true
            }
            None => false,
        },
        [b"FENCE", fence] => {
            let fence = integer(fence).and_then(|fence| u64::try_from(fence).ok()).and_then(Fence::new);
            if let (Some(fence), Some((_open, lock))) = (fence, open_lock(ctx, key)) {
                state::with(|state, _| state.desk.fences.raise(fence));
                lock.raise_fence(fence);
            }
            fence.is_some()
        }
        [b"CLAMP"] => {
            if let Some((open, lock)) = open_lock(ctx, key) {
                lock.clamp(open.expire_at_ms().map_or(Deadline::Never, |ms| Deadline::At(At::from_ms(ms))));
            }
            true
        }
        _ => false,
    }
}

fn read_hold(owner: &[u8], fields: &[u8]) -> Option<(Kind, u32, Holder)> {
    let mut fields = fields.split(|byte| *byte == b' ');
    let kind = match fields.next()? {
        b"mutex" => Kind::Mutex,
        b"reentrant" => Kind::Reentrant,
        b"rw" => Kind::Rw,
        b"semaphore" => Kind::Semaphore,
        _ => return None,
    };
    let mut number = || fields.next().and_then(integer);
    let small = |number: Option<i64>| number.and_then(|number| u32::try_from(number).ok());
    let (limit, holds, reads) = (small(number())?, small(number())?, small(number())?);
    let (fence, lease, until) = (number()?, number()?, number()?);
    let holder = Holder {
        owner: Owner::new(owner)?,
        fence: Fence::new(u64::try_from(fence).ok()?)?,
        lease: Lease::from_ms(lease)?,
        until: match until {
            -1 => Deadline::Never,
            ms => Deadline::At(At::from_ms(u64::try_from(ms).ok()?)),
        },
        holds,
        reads,
    };
    Some((kind, limit, holder))
}

fn apply_hold(ctx: Ctx, key: Str, kind: Kind, limit: u32, holder: Holder) {
    state::with(|state, _| state.desk.fences.raise(holder.fence));
    let until = holder.until;
    let open = OpenKey::write(ctx, key);
    let lock = match open.content(datatype::raw_type()) {
        // SAFETY: values of our type are boxed locks, and the key is open.
        Content::Ours(value) => unsafe { value.cast::<Lock>().as_mut() },
        _ => {
            let value = datatype::keep(|| Lock::Vacant);
            open.set(datatype::raw_type(), value);
            // SAFETY: just boxed, and the key is open.
            unsafe { value.cast::<Lock>().as_mut() }
        }
    };
    lock.apply_hold(kind, limit, holder);
    let until = lock.last_deadline().unwrap_or(until);
    open.set_expire_at_ms(until.at().map(At::ms));
    ctx.signal_modified(key);
}

fn apply_drop(ctx: Ctx, key: Str, owner: &[u8]) {
    let Some((open, lock)) = open_lock(ctx, key) else { return };
    lock.evict(owner);
    if lock.is_vacant() {
        datatype::remove(&open, NonNull::from(lock).cast());
    } else if let Some(until) = lock.last_deadline() {
        open.set_expire_at_ms(until.at().map(At::ms));
    }
    ctx.signal_modified(key);
}

/// The lock under a key, which stays open for as long as the first part lives.
fn open_lock<'a>(ctx: Ctx, key: Str) -> Option<(OpenKey, &'a mut Lock)> {
    let open = OpenKey::write(ctx, key);
    match open.content(datatype::raw_type()) {
        // SAFETY: values of our type are boxed locks, and the caller holds the key open.
        Content::Ours(value) => Some((open, unsafe { value.cast::<Lock>().as_mut() })),
        _ => None,
    }
}

//! The commands that only look: LOCK.HELD, LOCK.INFO, LOCK.WAITERS. They change nothing, also where something has expired.

use std::ptr::NonNull;

use super::api::{client_address, Content, Ctx, OpenKey, Str};
use super::datatype;
use super::state::State;
use command::words::{self, Words};
use lock::claim::{Claim, Kind};
use lock::outcome::Hold;
use lock::queue::{KeyRef, Line, Request};
use lock::state::Lock;
use lock::time::{At, Deadline, Now};

/// A key that holds a lock, opened for reading.
struct Looked {
    key: OpenKey,
    value: NonNull<Lock>,
}

impl Looked {
    /// `None`: nothing is there, or it has expired.
    fn at(ctx: Ctx, key: Str) -> Result<Option<Looked>, Words> {
        let Some(key) = OpenKey::read(ctx, key) else { return Ok(None) };
        match key.content(datatype::raw_type()) {
            Content::Ours(value) => Ok(Some(Looked { key, value: value.cast() })),
            Content::Empty => Ok(None),
            Content::Foreign => Err(words::WRONG_TYPE.into()),
        }
    }

    fn lock(&self) -> &Lock {
        // SAFETY: values of our type are boxed locks, and the key is open as long as we borrow.
        unsafe { self.value.as_ref() }
    }

    fn until(&self) -> Deadline {
        self.key.expire_at_ms().map_or(Deadline::Never, |ms| Deadline::At(At::from_ms(ms)))
    }
}

/// `LOCK.HELD key token`
pub fn held(ctx: Ctx, now: &Now, key: Str, token: &[u8]) -> Result<(), Words> {
    let looked = Looked::at(ctx, key)?;
    let hold = looked.as_ref().and_then(|looked| looked.lock().hold(token, looked.until()));
    match hold.filter(|hold| !hold.until.is_over(now.at())) {
        Some(hold) => {
            ctx.reply_array(3);
            reply_fence(ctx, hold.fence.get());
            ctx.reply_integer(i64::from(hold.holds) + i64::from(hold.reads));
            ctx.reply_integer(hold.until.ttl_ms(now.at()));
        }
        None => ctx.reply_null(),
    }
    Ok(())
}

/// `LOCK.INFO key`
pub fn info(ctx: Ctx, now: &Now, state: &State, key: Str, name: &[u8]) -> Result<(), Words> {
    let looked = Looked::at(ctx, key)?;
    let queue = state.desk.queue();
    let line = queue.line_of(ctx.db(), name).and_then(|id| queue.line(id)).filter(|line| line.waiters() > 0);
    let until = looked.as_ref().map_or(Deadline::Never, Looked::until);
    let mut holds = looked.as_ref().map(|looked| looked.lock().holds(until)).unwrap_or_default();
    holds.retain(|hold| !hold.until.is_over(now.at()));
    let lock = looked.as_ref().map(Looked::lock).filter(|_| !holds.is_empty());
    let (kind, limit) = match (lock, line) {
        (Some(lock), _) => (lock.kind().unwrap_or(Kind::Mutex), lock.limit()),
        (None, Some(line)) => (line.kind, limit_of(line)),
        (None, None) => {
            ctx.reply_null();
            return Ok(());
        }
    };
    ctx.reply_map(6);
    ctx.reply_bytes(b"kind");
    ctx.reply_bytes(kind.word().as_bytes());
    ctx.reply_bytes(b"limit");
    ctx.reply_integer(i64::from(limit));
    ctx.reply_bytes(b"fence");
    reply_fence(ctx, lock.and_then(Lock::fence).map_or(0, |fence| fence.get()));
    ctx.reply_bytes(b"ttl");
    ctx.reply_integer(if lock.is_some() { until.ttl_ms(now.at()) } else { -2 });
    ctx.reply_bytes(b"holders");
    let rows: Vec<_> = holds.iter().flat_map(|hold| rows_of(hold, kind)).collect();
    ctx.reply_array(rows.len());
    rows.iter().for_each(|row| reply_holder(ctx, now, state, KeyRef { db: ctx.db(), name }, row));
    ctx.reply_bytes(b"waiters");
    ctx.reply_integer(line.map_or(0, |line| line.waiters() as i64));
    Ok(())
}

/// The limit that is told of a free key.
fn limit_of(line: &Line) -> u32 {
    match line.kind {
        Kind::Mutex | Kind::Reentrant => 1,
        Kind::Rw => 0,
        Kind::Semaphore => line.limit,
    }
}

/// A hold in one mode: who writes and reads is told twice.
struct Row<'a> {
    hold: &'a Hold<'a>,
    mode: &'static str,
    holds: u32,
}

fn rows_of<'a>(hold: &'a Hold<'a>, kind: Kind) -> impl Iterator<Item = Row<'a>> {
    let mode = match kind {
        Kind::Mutex | Kind::Reentrant => "exclusive",
        Kind::Rw => "write",
        Kind::Semaphore => "permits",
    };
    let exclusive = (hold.holds > 0).then_some(Row { hold, mode, holds: hold.holds });
    let read = (hold.reads > 0).then_some(Row { hold, mode: "read", holds: hold.reads });
    exclusive.into_iter().chain(read)
}

fn reply_holder(ctx: Ctx, now: &Now, state: &State, key: KeyRef<'_>, row: &Row<'_>) {
    let hold = row.hold;
    // A fence is the time of its grant, as far as the clock was not set back since.
    let age_ms = now.at().ms_since(At::from_ms(hold.fence.get() / 1000));
    let session = state.desk.sessions().client_of(key, hold.owner.as_bytes()).map_or(0, |client| client.0);
    ctx.reply_map(8);
    ctx.reply_bytes(b"owner");
    ctx.reply_bytes(hold.owner.as_bytes());
    ctx.reply_bytes(b"mode");
    ctx.reply_bytes(row.mode.as_bytes());
    for (name, number) in [
        ("holds", i64::from(row.holds)),
        ("fence", i64::try_from(hold.fence.get()).unwrap_or(i64::MAX)),
        ("ttl", hold.until.ttl_ms(now.at())),
        ("lease", hold.lease.as_ms()),
        ("age", i64::try_from(age_ms).unwrap_or(i64::MAX)),
        ("session", i64::try_from(session).unwrap_or(0)),
    ] {
        ctx.reply_bytes(name.as_bytes());
        ctx.reply_integer(number);
    }
}

/// `LOCK.WAITERS key`
pub fn waiters(ctx: Ctx, now: &Now, state: &State, key: Str, name: &[u8]) -> Result<(), Words> {
    Looked::at(ctx, key)?;
    let queue = state.desk.queue();
    let line = queue.line_of(ctx.db(), name).and_then(|id| queue.line(id));
    let ids: Vec<_> = line.into_iter().flat_map(|line| line.present().map(|(_, id)| id)).collect();
    ctx.reply_array(ids.len());
    for id in ids {
        let client = state.waiting.ticket(id).map_or(0, |ticket| ticket.client.0);
        if let Some(request) = queue.request(id) {
            reply_waiter(ctx, now, request, client);
        }
    }
    Ok(())
}

fn reply_waiter(ctx: Ctx, now: &Now, request: &Request, client: u64) {
    let claim = &request.ask.claim;
    let permits = if matches!(claim, Claim::Permits { .. }) { claim.amount() } else { 1 };
    let remaining = request.until.map_or(-1, |until| i64::try_from(until.ms_since(now.at())).unwrap_or(i64::MAX));
    ctx.reply_map(7);
    ctx.reply_bytes(b"owner");
    ctx.reply_bytes(request.ask.owner.as_bytes());
    ctx.reply_bytes(b"mode");
    ctx.reply_bytes(claim.mode_word().as_bytes());
    ctx.reply_bytes(b"permits");
    ctx.reply_integer(i64::from(permits));
    ctx.reply_bytes(b"client");
    ctx.reply_integer(i64::try_from(client).unwrap_or(0));
    ctx.reply_bytes(b"addr");
    ctx.reply_bytes(client_address(client).as_bytes());
    ctx.reply_bytes(b"waited");
    ctx.reply_integer(i64::try_from(now.at().ms_since(request.since)).unwrap_or(i64::MAX));
    ctx.reply_bytes(b"remaining");
    ctx.reply_integer(remaining);
}

/// A fence is below 2^53, so it always fits.
fn reply_fence(ctx: Ctx, fence: u64) {
    ctx.reply_integer(i64::try_from(fence).unwrap_or(i64::MAX));
}

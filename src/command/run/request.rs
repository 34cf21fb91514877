//! The commands that grant, end or renew holds: `*.ACQUIRE`, `*.RELEASE`, `*.RENEW`, LOCK.CANCEL, LOCK.BREAK.

use lock::engine::acquire::{AcquireRequest, Acquired, Wait};
use lock::engine::lock_manager::LockError;
use lock::engine::release::WorkOutcome;
use lock::engine::session::RenewRequest;
use lock::key::{ClientId, KeyRef};
use lock::value::claim::{LockRequest, LockType, ReleaseAmount};
use lock::value::outcome::Grant;
use lock::value::owner::OwnerRef;
use smallvec::SmallVec;

use super::Arguments;
use crate::errors::{self, ErrorReply};
use crate::host::{CommandHost, KeyArguments, NewWaiter, OriginalOutcome};
use crate::name::Prefix;
use crate::parse::{self, AcquireCommand, Argument, ReleaseCommand, RenewCommand, Token, WaitOptions};
use crate::reply;

/// `*.ACQUIRE`: grants, queues or refuses. Inlined, so that each command has a copy specialized for its prefix.
#[inline(always)]
pub(super) fn acquire<'h, 'a, H: CommandHost<'h>, A: Argument<'a>>(
    prefix: Prefix,
    host: H,
    strings: &'h [H::Argument],
    args: &'a [A],
) -> Result<(), ErrorReply> {
    let command = AcquireCommand::parse(prefix, args, host.leases())?;
    let mut generated;
    let (owner, may_detach) = match command.token {
        Token::Given(owner) => (owner, true),
        // A random UUID: the request cannot be retried, so no position is reserved for it.
        Token::Generated => {
            generated = [0; 36];
            (make_token(host, &mut generated)?, false)
        }
    };
    let keys = key_arguments(host, prefix, strings, command.keys.len())?;
    let terms = match command.wait {
        WaitOptions { channel_argument: None, session: false, .. } => ConnectionTerms { session: None, channel: None },
        options => ConnectionTerms::find(host, options, strings, keys)?,
    };
    refuse_while_paused(host)?;
    let request = LockRequest { owner, claim: command.claim, lease: command.lease };
    let mut opened = None;
    if let &[key] = keys {
        match host.acquire_uncontended(key, &request, terms.session) {
            Ok(granted) => {
                let granted = granted?;
                if prefix.lock_type() == LockType::Mutex && host.adopt_wait().is_some() {
                    host.record_grant_to_connection(key.bytes(), granted.fence);
                }
                reply_granted(host, &request, granted);
                return Ok(());
            }
            Err(key) => opened = key,
        }
    }
    let keys = KeyArguments { arguments: keys, names: &names(command.keys) };
    let WaitOptions { block, coalesce: coalesces, .. } = command.wait;
    let wait = block.map(|limit| Wait { limit, may_detach, coalesces, lease_deadline: None });
    acquire_among_others(host, prefix, opened, keys, &request, wait, terms)
}

#[inline(never)]
fn acquire_among_others<'h, H: CommandHost<'h>>(
    mut host: H,
    prefix: Prefix,
    opened: Option<H::Opened>,
    keys: KeyArguments<'_, H::Argument>,
    request: &LockRequest<'_>,
    wait: Option<Wait>,
    terms: ConnectionTerms<H::Argument>,
) -> Result<(), ErrorReply> {
    let (db, names, ConnectionTerms { session, channel }) = (host.db(), keys.names, terms);
    let waiter = wait.map(|_| NewWaiter { owner: request.owner, prefix, claim: request.claim, key: names[0], channel });
    let acquired = host.decide_on(opened, keys, waiter, |manager, rules| {
        manager.with_host(rules).acquire(AcquireRequest { db, names, request: *request, wait, session })
    })?;
    match acquired.map_err(|error| refusal(host, error))? {
        Acquired::Granted(grant) => {
            if prefix.lock_type() == LockType::Mutex {
                for name in names {
                    host.record_grant_to_connection(name, grant.fence);
                }
            }
            reply_granted(host, request, grant);
        }
        Acquired::NotGranted => host.null(),
        // The client is blocked, or got its reply when it was queued.
        Acquired::Queued(_) => {}
    }
    Ok(())
}

/// The error of a deadlock names only keys that the caller may read.
#[cold]
fn refusal<'h>(host: impl CommandHost<'h>, error: LockError) -> ErrorReply {
    let LockError::Deadlock(edges) = error else { return error.into() };
    errors::deadlock(&edges, host.readable(c"lock.acquire"))
}

#[inline]
fn reply_granted<'h>(mut host: impl CommandHost<'h>, request: &LockRequest<'_>, grant: Grant) {
    reply::grant(&mut host, request.claim.lock_type(), request.owner, grant.fence, grant.holds, grant.slot);
}

#[cold]
fn make_token<'h, 'b>(host: impl CommandHost<'h>, buffer: &'b mut [u8; 36]) -> Result<OwnerRef<'b>, ErrorReply> {
    *buffer = host.new_token();
    OwnerRef::new(buffer).ok_or(errors::BAD_OWNER)
}

/// The connection that NOTIFY and SESSION require.
#[derive(Clone, Copy)]
struct ConnectionTerms<A> {
    /// For SESSION: the connection that the grant is bound to.
    session: Option<ClientId>,
    /// For NOTIFY.
    channel: Option<A>,
}

impl<A: Copy> ConnectionTerms<A> {
    fn find<'h, H: CommandHost<'h, Argument = A>>(
        host: H,
        options: WaitOptions,
        strings: &[A],
        keys: &[A],
    ) -> Result<ConnectionTerms<A>, ErrorReply> {
        // A caller without a connection may have no user either; asking Redis 7.0 for the user's name would crash the
        // server.
        let client = host.connection().ok_or(errors::NO_CONNECTION)?;
        let channel = options.channel_argument.and_then(|position| strings.get(position).copied());
        if let Some(channel) = channel {
            if !host.may_publish(channel) {
                return Err(errors::CHANNEL_NOT_PERMITTED);
            }
            if keys.first().is_none_or(|key| host.has_other_slot(*key, channel)) {
                return Err(errors::CHANNEL_SLOT);
            }
        }
        Ok(ConnectionTerms { session: options.session.then_some(client), channel })
    }
}

/// `*.RELEASE`: releases, and hands off to the waiters. Inlined, so that each command has a copy specialized for its
/// prefix.
#[inline(always)]
pub(super) fn release<'h, 'a, H: CommandHost<'h>, A: Argument<'a>>(
    prefix: Prefix,
    mut host: H,
    strings: &'h [H::Argument],
    args: &'a [A],
) -> Result<(), ErrorReply> {
    let command = ReleaseCommand::parse(prefix, args, host.leases())?;
    let (amount, owner) = (&command.amount, command.owner.as_bytes());
    let keys = key_arguments(host, prefix, strings, command.keys.len())?;
    let released = match keys {
        // For a shared lock the fast path would only open the key a second time.
        &[key] if prefix.lock_type().is_exclusive() && !prefix.takes_multiple_keys() => {
            host.release_uncontended(key, owner, amount)
        }
        _ => None,
    };
    if let Some(released) = released {
        reply::released(&mut host, prefix.lock_type(), released?);
        return Ok(());
    }
    let keys = KeyArguments { arguments: keys, names: &names(command.keys) };
    release_among_others(prefix, host, keys, owner, amount, command.work)
}

#[inline(never)]
fn release_among_others<'h, H: CommandHost<'h>>(
    prefix: Prefix,
    mut host: H,
    keys: KeyArguments<'_, H::Argument>,
    owner: &[u8],
    amount: &ReleaseAmount,
    work: WorkOutcome,
) -> Result<(), ErrorReply> {
    let (db, names) = (host.db(), keys.names);
    if let (false, [name]) = (prefix.takes_multiple_keys(), names) {
        let key = KeyRef { db, name };
        let released =
            host.decide(keys, None, |manager, rules| manager.with_host(rules).release(key, owner, amount, work))?;
        reply::released(&mut host, prefix.lock_type(), released?);
        return Ok(());
    }
    let released =
        host.decide(keys, None, |manager, rules| manager.with_host(rules).release_multiple(db, names, owner))?;
    host.integer(reply::count(released?));
    Ok(())
}

/// `*.RENEW`: restarts the lease.
pub(super) fn renew<'h, H: CommandHost<'h>>(
    prefix: Prefix,
    mut host: H,
    args: Arguments<'h, '_, H::Argument>,
) -> Result<(), ErrorReply> {
    let RenewCommand { keys: names, owner, lease } = RenewCommand::parse(prefix, args.bytes, host.leases())?;
    let keys = KeyArguments { arguments: key_arguments(host, prefix, args.strings, names.len())?, names };
    let request = RenewRequest { db: host.db(), names, owner: owner.as_bytes(), lock_type: prefix.lock_type(), lease };
    let renewed = host.decide(keys, None, |manager, rules| manager.with_host(rules).renew(&request))?;
    reply::renewed(&mut host, renewed?);
    Ok(())
}

/// `LOCK.CANCEL key token`: removes the token's requests from the queue.
pub(super) fn cancel<'h, H: CommandHost<'h>>(
    mut host: H,
    args: Arguments<'h, '_, H::Argument>,
) -> Result<(), ErrorReply> {
    let owner = parse::owner(args.bytes[2])?;
    refuse_while_paused(host)?;
    let key = KeyRef { db: host.db(), name: args.bytes[1] };
    let cancelled =
        host.decide(only_key(&args), None, |manager, rules| manager.with_host(rules).cancel(key, owner.as_bytes()))?;
    reply::cancelled(&mut host, cancelled?);
    Ok(())
}

/// `LOCK.BREAK key [OWNER owner]`: force-releases a lock and hands off to the waiters.
pub(super) fn break_holds<'h, H: CommandHost<'h>>(
    mut host: H,
    args: Arguments<'h, '_, H::Argument>,
) -> Result<(), ErrorReply> {
    let holds_of = parse::broken_holders(args.bytes)?;
    let key = KeyRef { db: host.db(), name: args.bytes[1] };
    let broken =
        host.decide(only_key(&args), None, |manager, rules| manager.with_host(rules).break_holds(key, holds_of))?;
    host.integer(reply::count(broken?));
    Ok(())
}

/// The key of a command that takes exactly one.
fn only_key<'k, A>(args: &Arguments<'k, 'k, A>) -> KeyArguments<'k, A> {
    KeyArguments { arguments: &args.strings[1..2], names: &args.bytes[1..2] }
}

/// The key arguments, of which the command takes this many.
///
/// # Errors
/// In a cluster: this node does not serve all of them.
#[inline(always)]
fn key_arguments<'h, H: CommandHost<'h>>(
    host: H,
    prefix: Prefix,
    strings: &'h [H::Argument],
    number: usize,
) -> Result<&'h [H::Argument], ErrorReply> {
    let first = prefix.first_key_argument();
    let keys = &strings[first..first + number];
    if prefix.takes_multiple_keys() {
        host.check_slots(keys)?;
    }
    Ok(keys)
}

/// The bytes of these keys; a single key needs no heap allocation.
#[inline]
fn names<'a, A: Argument<'a>>(keys: &[A]) -> SmallVec<[&'a [u8]; 1]> {
    match keys {
        [key] => SmallVec::from_buf([key.bytes()]),
        keys => keys.iter().map(|key| key.bytes()).collect(),
    }
}

/// The transaction may itself have paused writes. Redis then does not delete expired keys, and hits an assertion if one
/// is overwritten.
#[inline]
pub(super) fn refuse_while_paused<'h>(host: impl CommandHost<'h>) -> Result<(), ErrorReply> {
    if host.are_writes_paused() {
        return Err(errors::WRITES_PAUSED);
    }
    Ok(())
}

/// Runs a server command unchanged.
pub(super) fn run_original<'h, H: CommandHost<'h>>(host: H, args: &[H::Argument]) -> Result<(), ErrorReply> {
    match host.run_original(args)? {
        OriginalOutcome::Replied => Ok(()),
        OriginalOutcome::WrongType => Err(errors::WRONG_TYPE),
    }
}

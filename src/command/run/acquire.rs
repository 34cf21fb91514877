//! `*.ACQUIRE`: grants, queues, or neither.

use lock::key::ClientId;
use lock::manager::acquire::{AcquireRequest, Acquired, Wait};
use lock::manager::lock_manager::LockError;
use lock::value::claim::LockRequest;
use lock::value::outcome::Grant;
use lock::value::owner::OwnerRef;

use super::{connection, key_arguments, names, refuse_while_paused};
use crate::errors::{self, ErrorReply};
use crate::host::{CommandHost, KeyArguments, NewWaiter};
use crate::name::Prefix;
use crate::parse::{AcquireCommand, Argument, Token, WaitOptions};
use crate::reply;

/// Inlined: each command has its own copy, which knows its prefix.
#[inline(always)]
pub(super) fn acquire<'h, 'a, H: CommandHost<'h>, A: Argument<'a>>(
    prefix: Prefix,
    host: H,
    strings: &'h [H::Argument],
    args: &'a [A],
) -> Result<(), ErrorReply> {
    let command = AcquireCommand::parse(prefix, args, host.leases())?;
    let mut made;
    let (owner, may_come_back) = match command.token {
        Token::Given(owner) => (owner, true),
        // A random UUID: the request cannot be retried, and keeps no place.
        Token::Made => {
            made = [0; 36];
            (make_token(host, &mut made)?, false)
        }
    };
    let keys = key_arguments(host, prefix, strings, command.keys.len())?;
    let terms = match command.wait {
        WaitOptions { channel_argument: None, session: false, .. } => ConnectionTerms { session: None, channel: None },
        options => ConnectionTerms::find(host, options, strings, keys)?,
    };
    refuse_while_paused(host)?;
    let request = LockRequest { owner, claim: command.claim, lease: command.lease };
    if let &[key] = keys {
        if let Some(granted) = host.acquire_uncontended(key, &request, terms.session) {
            reply_granted(host, &request, granted?);
            return Ok(());
        }
    }
    let keys = KeyArguments { arguments: keys, names: &names(command.keys) };
    let WaitOptions { block, coalesce: coalesces, .. } = command.wait;
    let wait = block.map(|limit| Wait { limit, may_come_back, coalesces });
    acquire_among_others(host, prefix, keys, &request, wait, terms)
}

#[inline(never)]
fn acquire_among_others<'h, H: CommandHost<'h>>(
    mut host: H,
    prefix: Prefix,
    keys: KeyArguments<'_, H::Argument>,
    request: &LockRequest<'_>,
    wait: Option<Wait>,
    terms: ConnectionTerms<H::Argument>,
) -> Result<(), ErrorReply> {
    let (db, names, ConnectionTerms { session, channel }) = (host.db(), keys.names, terms);
    let waiter = wait.map(|_| NewWaiter { owner: request.owner, prefix, claim: request.claim, key: names[0], channel });
    let acquired = host.decide(keys, waiter, |manager, rules| {
        manager.acquire(rules, AcquireRequest { db, names, request: *request, wait, session })
    })?;
    match acquired.map_err(|error| refusal(host, error))? {
        Acquired::Granted(grant) => reply_granted(host, request, grant),
        Acquired::NotGranted => reply::not_granted(&mut host),
        // The client is blocked, or got its reply when it was parked.
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
    reply::grant(&mut host, request.claim.family(), request.owner, grant.fence, grant.holds, grant.slot);
}

#[cold]
fn make_token<'h, 'b>(host: impl CommandHost<'h>, buffer: &'b mut [u8; 36]) -> Result<OwnerRef<'b>, ErrorReply> {
    *buffer = host.new_token();
    OwnerRef::new(buffer).ok_or(errors::BAD_OWNER)
}

/// The connection that NOTIFY and SESSION need.
#[derive(Clone, Copy)]
struct ConnectionTerms<A> {
    /// For SESSION: the connection to which the grant is bound.
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
        // A client that is no connection may have no user either; asking Redis 7.0 for its name would end the server.
        let client = connection(host)?;
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

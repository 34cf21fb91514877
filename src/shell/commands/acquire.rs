//! `*.ACQUIRE`: grants, queues, or neither.

use command::errors::{self, ErrorReply};
use command::name::Prefix;
use command::parse::{AcquireCommand, Argument, Token, WaitOptions};
use command::reply;
use lock::key::ClientId;
use lock::manager::acquire::{AcquireRequest, Acquired, Wait};
use lock::manager::lock_manager::LockError;
use lock::value::claim::LockRequest;
use lock::value::outcome::{Grant, KeyError};
use lock::value::owner::OwnerRef;
use uuid::Uuid;

use super::arguments::{key_arguments, names, refuse_while_paused};
use crate::shell::background::events::Step;
use crate::shell::background::slots::slot_of;
use crate::shell::background::{gate, turn_end};
use crate::shell::clients::connections::connection_of;
use crate::shell::clients::parking::NewWaiter;
use crate::shell::ffi::context::Ctx;
use crate::shell::ffi::server::{may_publish, Audience, Reader};
use crate::shell::ffi::string::{OwnedStr, Str};
use crate::shell::keyspace::store::KeyArguments;
use crate::shell::settings;
use crate::shell::turn::{self, AloneTurn};

/// Runs the command. Inlined: each command has its own copy, which knows its prefix.
#[inline(always)]
pub fn run<'a, A: Argument<'a>>(
    prefix: Prefix,
    ctx: Ctx<'a>,
    strings: &'a [Str<'a>],
    args: &'a [A],
) -> Result<(), ErrorReply> {
    let command = AcquireCommand::parse(prefix, args, settings::leases())?;
    let mut made;
    let (owner, may_come_back) = match command.token {
        Token::Given(owner) => (owner, true),
        // A random UUID. Nobody can retry the request: it keeps no place.
        Token::Made => {
            made = Uuid::encode_buffer();
            (make_token(&mut made)?, false)
        }
    };
    let keys = key_arguments(ctx, prefix, strings, command.keys.len())?;
    let terms = match command.wait {
        WaitOptions { channel_argument: None, session: false, .. } => ConnectionTerms::default(),
        options => ConnectionTerms::find(ctx, options, strings, keys)?,
    };
    refuse_while_paused(ctx)?;
    let request = LockRequest { owner, claim: command.claim, lease: command.lease };
    if let &[key] = keys {
        if let Some(granted) = acquire_alone(ctx, key, &request, terms.session) {
            reply_granted(ctx, &request, granted?);
            return Ok(());
        }
    }
    let keys = KeyArguments { strings: keys, names: &names(command.keys) };
    let wait = command.wait.block.map(|limit| Wait { limit, may_come_back });
    acquire_among_others(ctx, prefix, keys, &request, wait, &terms)
}

/// `None`: it meets others.
#[inline(always)]
fn acquire_alone(
    ctx: Ctx<'_>,
    key: Str<'_>,
    request: &LockRequest<'_>,
    session: Option<ClientId>,
) -> Option<Result<Grant, KeyError>> {
    AloneTurn::begin(ctx, key, Step::Grant)?.acquire(request, session)
}

#[inline(never)]
fn acquire_among_others(
    mut ctx: Ctx<'_>,
    prefix: Prefix,
    keys: KeyArguments<'_>,
    request: &LockRequest<'_>,
    wait: Option<Wait>,
    terms: &ConnectionTerms<'_>,
) -> Result<(), ErrorReply> {
    let (names, ConnectionTerms { session, channel }) = (keys.names, *terms);
    let waiter = wait.map(|_| NewWaiter { owner: request.owner, prefix, key: names[0], channel });
    let acquired = turn::of_command(ctx, keys, waiter, |manager, host| {
        manager.acquire(host, AcquireRequest { db: host.keys.db(), names, request: *request, wait, session })
    })?;
    match acquired.map_err(|error| refusal(ctx, error))? {
        Acquired::Granted(grant) => reply_granted(ctx, request, grant),
        Acquired::NotGranted => reply::not_granted(&mut ctx),
        // The client is blocked, or was told so when it was parked.
        Acquired::Queued(_) => {
            if turn_end::is_idle() && connection_of(ctx).is_some() {
                turn_end::rest_if_idle();
            }
        }
    }
    Ok(())
}

/// Of a deadlock the client is told what it may read.
#[cold]
fn refusal(ctx: Ctx<'_>, error: LockError) -> ErrorReply {
    let LockError::Deadlock(edges) = error else { return error.into() };
    let reader = Reader::of(ctx, c"lock.acquire");
    errors::deadlock(&edges, |key| reader.may_read(OwnedStr::new(key).as_str()))
}

#[inline]
fn reply_granted(mut ctx: Ctx<'_>, request: &LockRequest<'_>, grant: Grant) {
    reply::grant(&mut ctx, request.claim.family(), request.owner, grant.fence, grant.holds);
}

#[cold]
fn make_token(buffer: &mut [u8]) -> Result<OwnerRef<'_>, ErrorReply> {
    let token = Uuid::new_v4().hyphenated().encode_lower(buffer);
    OwnerRef::new(token.as_bytes()).ok_or(errors::BAD_OWNER)
}

/// What NOTIFY and SESSION are about: the connection that they need.
#[derive(Clone, Copy, Default)]
struct ConnectionTerms<'a> {
    /// Of SESSION: to what the grant is bound.
    session: Option<ClientId>,
    /// Of NOTIFY.
    channel: Option<(Str<'a>, Audience)>,
}

impl<'a> ConnectionTerms<'a> {
    fn find(
        ctx: Ctx<'a>,
        options: WaitOptions,
        strings: &'a [Str<'a>],
        keys: &[Str<'a>],
    ) -> Result<ConnectionTerms<'a>, ErrorReply> {
        // A client that is no connection may have no user either; asking Redis 7.0 for its name would end the server.
        let client = connection_of(ctx).ok_or(errors::NO_CONNECTION)?;
        let is_cluster = gate::is_in_cluster();
        let audience = if is_cluster { Audience::Shard } else { Audience::Everybody };
        let channel = options.channel_argument.and_then(|position| strings.get(position).copied());
        if let Some(channel) = channel {
            if !may_publish(ctx, channel) {
                return Err(errors::CHANNEL_NOT_PERMITTED);
            }
            if is_cluster && keys.first().map(|key| slot_of(key.bytes())) != Some(slot_of(channel.bytes())) {
                return Err(errors::CHANNEL_SLOT);
            }
        }
        Ok(ConnectionTerms {
            session: options.session.then_some(client),
            channel: channel.map(|channel| (channel, audience)),
        })
    }
}

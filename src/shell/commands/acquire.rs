//! `*.ACQUIRE`: grants, queues, or neither.

use command::errors::{self, ErrorReply};
use command::name::Prefix;
use command::parse::{AcquireCommand, BlockLimit, Token, WaitOptions};
use command::reply;
use lock::key::ClientId;
use lock::manager::acquire::{AcquireRequest, Acquired, Wait};
use lock::value::claim::LockRequest;
use lock::value::owner::OwnerRef;
use redis_module::raw;
use uuid::Uuid;

use super::arguments::{refuse_while_paused, Arguments};
use crate::shell::clients::parking::NewWaiter;
use crate::shell::ffi::call::slot;
use crate::shell::ffi::context::Ctx;
use crate::shell::ffi::server::{is_connection, may_publish, Audience};
use crate::shell::ffi::string::Str;
use crate::shell::keyspace::key_events;
use crate::shell::{settings, turn};

/// Runs the command.
pub fn run(prefix: Prefix, mut ctx: Ctx<'_>, args: Arguments<'_>) -> Result<(), ErrorReply> {
    let command = AcquireCommand::parse(prefix, args.bytes, settings::leases())?;
    let mut made = Uuid::encode_buffer();
    let (owner, may_come_back) = match command.token {
        Token::Given(owner) => (owner, true),
        // A random UUID. Nobody can retry the request: it keeps no place.
        Token::Made => (make_token(&mut made)?, false),
    };
    let keys = args.keys(ctx, prefix, command.keys)?;
    let wait = WaitTerms::find(ctx, command.wait, args.strings, keys.strings)?;
    refuse_while_paused(ctx)?;
    let family = command.claim.family();
    let waiter = wait.block.zip(wait.client).map(|(_, client)| NewWaiter {
        client,
        owner,
        family,
        key: command.keys[0],
        channel: wait.channel,
    });
    let acquired = turn::of_command(ctx, keys, waiter, |manager, host| {
        let request = AcquireRequest {
            db: host.keys.db(),
            names: command.keys,
            request: LockRequest { owner, claim: command.claim, lease: command.lease },
            wait: wait.block.map(|block| Wait { until: block.until(host.now.instant()), may_come_back }),
            session: wait.client.filter(|_| command.wait.session),
        };
        manager.acquire(host, request)
    })?;
    match acquired? {
        Acquired::Granted(grant) => reply::grant(&mut ctx, family, owner, grant.fence, grant.holds),
        Acquired::NotGranted => reply::not_granted(&mut ctx),
        // The client is blocked, or was told so when it was parked.
        Acquired::Queued(_) => key_events::watch(ctx),
    }
    Ok(())
}

fn make_token(buffer: &mut [u8]) -> Result<OwnerRef<'_>, ErrorReply> {
    let token = Uuid::new_v4().hyphenated().encode_lower(buffer);
    OwnerRef::new(token.as_bytes()).ok_or(errors::BAD_OWNER)
}

/// In a script the client is the script's own, in a call by a module a temporary one: neither ever disconnects. And a
/// temporary one may have no user; asking Redis 7.0 for its name would end the server.
fn require_connection(ctx: Ctx<'_>, flags: u32, client: u64) -> Result<(), ErrorReply> {
    let is_script = flags & raw::REDISMODULE_CTX_FLAGS_LUA != 0;
    if is_script || !is_connection(ctx, client) {
        return Err(errors::NO_CONNECTION);
    }
    Ok(())
}

/// What of BLOCK, NOTIFY and SESSION holds for this client.
#[derive(Default)]
struct WaitTerms<'a> {
    /// The connection; `None` where none of the options was given.
    client: Option<ClientId>,
    block: Option<BlockLimit>,
    channel: Option<(Str<'a>, Audience)>,
}

impl<'a> WaitTerms<'a> {
    fn find(
        ctx: Ctx<'a>,
        options: WaitOptions,
        strings: &'a [Str<'a>],
        keys: &[Str<'a>],
    ) -> Result<WaitTerms<'a>, ErrorReply> {
        if options == WaitOptions::default() {
            return Ok(WaitTerms::default());
        }
        let flags = ctx.flags();
        let client = ctx.client_id();
        if options.channel_argument.is_some() || options.session {
            require_connection(ctx, flags, client)?;
        }
        let is_cluster = flags & raw::REDISMODULE_CTX_FLAGS_CLUSTER != 0;
        let audience = if is_cluster { Audience::Shard } else { Audience::Everybody };
        let channel = options.channel_argument.and_then(|position| strings.get(position).copied());
        if let Some(channel) = channel {
            if !may_publish(ctx, channel) {
                return Err(errors::CHANNEL_NOT_PERMITTED);
            }
            if is_cluster && keys.first().map(|key| slot(ctx, *key)) != Some(slot(ctx, channel)) {
                return Err(errors::CHANNEL_SLOT);
            }
        }
        // As BLPOP: who may not block gets its answer at once.
        let may_block = flags & raw::REDISMODULE_CTX_FLAGS_DENY_BLOCKING == 0;
        Ok(WaitTerms {
            client: Some(ClientId(client)),
            block: options.block.filter(|_| may_block),
            channel: channel.map(|channel| (channel, audience)),
        })
    }
}

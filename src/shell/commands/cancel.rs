//! `LOCK.CANCEL key token`: takes the requests of a token out of the queue.

use command::errors::ErrorReply;
use command::parse;
use command::reply;
use lock::key::KeyRef;

use super::arguments::{refuse_while_paused, Arguments};
use crate::shell::ffi::context::Ctx;
use crate::shell::keyspace::store::KeyArguments;
use crate::shell::turn;

/// Runs the command.
pub fn run(mut ctx: Ctx<'_>, args: Arguments<'_>) -> Result<(), ErrorReply> {
    let owner = parse::owner(args.bytes[2])?;
    refuse_while_paused(ctx)?;
    let keys = KeyArguments { strings: &args.strings[1..2], names: &args.bytes[1..2] };
    let cancelled = turn::of_command(ctx, keys, None, |manager, host| {
        let key = KeyRef { db: host.keys.db(), name: args.bytes[1] };
        manager.cancel(host, key, owner.as_bytes())
    })?;
    reply::cancelled(&mut ctx, cancelled?);
    Ok(())
}

//! `LOCK.BREAK key [OWNER owner]`: takes a lock from its holders, and hands over to who waits.

use command::errors::ErrorReply;
use command::{parse, reply};
use lock::key::KeyRef;

use super::arguments::Arguments;
use crate::shell::ffi::context::Ctx;
use crate::shell::keyspace::store::KeyArguments;
use crate::shell::turn;

/// Runs the command.
pub fn run(mut ctx: Ctx<'_>, args: Arguments<'_>) -> Result<(), ErrorReply> {
    let whose = parse::whose_holds(args.bytes)?;
    let keys = KeyArguments { strings: &args.strings[1..2], names: &args.bytes[1..2] };
    let broken = turn::of_command(ctx, keys, None, |manager, host| {
        let key = KeyRef { db: host.keys.db(), name: args.bytes[1] };
        manager.break_holds(host, key, whose)
    })?;
    reply::broken(&mut ctx, broken?);
    Ok(())
}

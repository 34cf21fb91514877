//! `*.RELEASE`: gives back, and hands over to who waits.

use command::errors::ErrorReply;
use command::name::Prefix;
use command::parse::ReleaseCommand;
use command::reply;
use lock::key::KeyRef;

use super::arguments::Arguments;
use crate::shell::ffi::context::Ctx;
use crate::shell::{settings, turn};

/// Runs the command.
pub fn run(prefix: Prefix, mut ctx: Ctx<'_>, args: Arguments<'_>) -> Result<(), ErrorReply> {
    let command = ReleaseCommand::parse(prefix, args.bytes, settings::leases())?;
    let (names, portion, owner) = (command.keys, &command.portion, command.owner.as_bytes());
    let keys = args.keys(ctx, prefix, names)?;
    if let (false, [name]) = (prefix.takes_several_keys(), names) {
        let released = turn::of_command(ctx, keys, None, |manager, host| {
            let key = KeyRef { db: host.keys.db(), name };
            manager.release(host, key, owner, portion)
        })?;
        reply::released(&mut ctx, prefix.family(), released?);
        return Ok(());
    }
    let released = turn::of_command(ctx, keys, None, |manager, host| {
        let db = host.keys.db();
        manager.release_several(host, db, names, owner)
    })?;
    reply::released_keys(&mut ctx, released?);
    Ok(())
}

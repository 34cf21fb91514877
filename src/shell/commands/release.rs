//! `*.RELEASE`: gives back, and hands over to who waits.

use command::errors::ErrorReply;
use command::name::Prefix;
use command::parse::ReleaseCommand;
use command::reply;
use lock::key::KeyRef;
use lock::value::outcome::{KeyError, Released};

use super::arguments::Arguments;
use crate::shell::ffi::context::Ctx;
use crate::shell::{settings, turn};

/// Runs the command.
pub fn run(prefix: Prefix, mut ctx: Ctx<'_>, args: Arguments<'_>) -> Result<(), ErrorReply> {
    let command = ReleaseCommand::parse(prefix, args.bytes, settings::leases())?;
    let (names, portion, owner) = (command.keys, &command.portion, command.owner.as_bytes());
    let keys = args.keys(prefix, names);
    let released = turn::of_command(ctx, keys, None, |manager, host| {
        let db = host.keys.db();
        // Of several keys none is released where one of them is no mutex.
        if names.len() > 1 {
            manager.check_family(host, db, names, prefix.family())?;
        }
        let (mut last, mut count) = (Released::NotHeld, 0);
        for name in names {
            last = manager.release(host, KeyRef { db, name }, owner, portion)?;
            count += usize::from(last == Released::Gone);
        }
        Ok::<_, KeyError>((last, count))
    })?;
    let (last, count) = released?;
    if prefix.takes_several_keys() {
        reply::released_keys(&mut ctx, count);
    } else {
        reply::released(&mut ctx, prefix.family(), last);
    }
    Ok(())
}

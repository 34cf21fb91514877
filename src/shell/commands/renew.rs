//! `*.RENEW`: the lease starts again from now.

use command::errors::ErrorReply;
use command::name::Prefix;
use command::parse::RenewCommand;
use command::reply;
use lock::manager::renewal::RenewRequest;

use super::arguments::{key_arguments, Arguments};
use crate::shell::ffi::context::Ctx;
use crate::shell::keyspace::store::KeyArguments;
use crate::shell::{settings, turn};

/// Runs the command.
pub fn run(prefix: Prefix, mut ctx: Ctx<'_>, args: Arguments<'_>) -> Result<(), ErrorReply> {
    let RenewCommand { keys: names, owner, lease } = RenewCommand::parse(prefix, args.bytes, settings::leases())?;
    let keys = KeyArguments { strings: key_arguments(ctx, prefix, args.strings, names.len())?, names };
    let renewed = turn::of_command(ctx, keys, None, |manager, host| {
        let (db, family) = (host.keys.db(), prefix.family());
        manager.renew(host, &RenewRequest { db, names, owner: owner.as_bytes(), family, lease })
    })?;
    reply::renewed(&mut ctx, renewed?);
    Ok(())
}

//! Tells the server about the commands of the catalog.

use command::catalog::CATALOG;

use super::dispatch::ENTRIES;
use crate::shell::ffi::command_info::{add_acl_category, register};
use crate::shell::ffi::context::Ctx;

/// The ACL category of the module's commands.
const CATEGORY: &str = "lock";

/// Registers all commands.
///
/// # Errors
/// The name of the command that the server refused.
pub fn register_all(ctx: Ctx<'_>) -> Result<(), &'static str> {
    if !add_acl_category(ctx, CATEGORY) {
        ctx.warn(
            "redis-lock: another module, or a load that failed, has added the ACL category 'lock': \
             rules with @lock are about the commands of both",
        );
    }
    CATALOG
        .iter()
        .zip(ENTRIES)
        .try_for_each(|(command, entry)| register(ctx, command, entry, CATEGORY).ok_or(command.name))
}

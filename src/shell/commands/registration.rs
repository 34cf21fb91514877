//! Tells the server about the commands of the catalog.

use std::ffi::CStr;

use command::catalog::CATALOG;

use super::dispatch::ENTRIES;
use crate::shell::ffi::command_info::{add_acl_category, register};
use crate::shell::ffi::context::Ctx;

/// The ACL category of the module's commands.
const CATEGORY: &CStr = c"lock";

/// Registers all commands.
///
/// # Errors
/// The name of the command that the server refused.
pub fn register_all(ctx: Ctx<'_>) -> Result<(), &'static str> {
    let has_acl_category = add_acl_category(ctx, CATEGORY);
    CATALOG
        .iter()
        .zip(ENTRIES)
        .try_for_each(|(command, entry)| register(ctx, command, entry, has_acl_category).ok_or(command.name))
}

//! `LOCK.HELP`: what the commands are.

use command::errors::ErrorReply;
use command::reply;

use crate::shell::ffi::context::Ctx;

/// Runs the command.
pub fn run(mut ctx: Ctx<'_>) -> Result<(), ErrorReply> {
    reply::help(&mut ctx);
    Ok(())
}

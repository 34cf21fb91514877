//! `LOCK.LOG GET [n] | LEN | RESET`: what an operator may want to know of later, as SLOWLOG keeps it.

use command::errors::ErrorReply;
use command::parse::LogCommand;
use command::reply;

use super::arguments::Arguments;
use crate::shell::ffi::context::Ctx;
use crate::shell::turn;

/// Runs the command.
pub fn run(mut ctx: Ctx<'_>, args: Arguments<'_>) -> Result<(), ErrorReply> {
    let command = LogCommand::parse(args.bytes)?;
    turn::of_log(ctx, |log| match command {
        LogCommand::Get(length) => {
            let entries: Vec<_> = length.of(log.entries()).collect();
            reply::log(&mut ctx, entries.into_iter());
        }
        LogCommand::Len => reply::log_len(&mut ctx, log.len()),
        LogCommand::Reset => {
            log.reset();
            ctx.reply_ok();
        }
    })
}

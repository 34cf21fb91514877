//! Registers `LOCK.ADOPTED` and `LOCK.ADOPTED_RO` with the server: containers with a subcommand for each original
//! command, which has its own keys, flags and arity.

use command::adopted::{KeysAt, OriginalCommand, ORIGINALS};
use command::catalog::Command;

use super::{bit, ADOPTION};
use crate::shell::ffi::command_info::{self, keys_of, CommandEntry, KeyRange};
use crate::shell::ffi::context::Ctx;
use crate::shell::ffi::string::{OwnedStr, Str};

/// Registers a container with a subcommand for each original command that the server has. `None`: the server refuses.
pub fn register(ctx: Ctx<'_>, container: &Command, entry: CommandEntry, category: &str) -> Option<()> {
    command_info::register_container(ctx, container, category)?;
    let is_its = |original: &&OriginalCommand| Some(original.container) == container.action.container();
    for original in ORIGINALS.iter().filter(is_its).filter(|original| has(ctx, original)) {
        ADOPTION.known.set(ADOPTION.known.get() | bit(original.original));
        // One more for the container's name.
        let arity = original.arity + original.arity.signum();
        let (last, step) = match original.keys_at {
            KeysAt::First => (0, 1),
            KeysAt::All => (-1, 1),
            KeysAt::Pairs => (-1, 2),
        };
        let keys = KeyRange { first: 2, last, step };
        command_info::register_subcommand(ctx, container, original, arity, keys, entry, category)?;
    }
    Some(())
}

/// Whether the server has the original command: it must know the keys of a call.
fn has(ctx: Ctx<'_>, original: &OriginalCommand) -> bool {
    let words: Vec<_> = (0..original.arity.unsigned_abs().max(2))
        .map(|index| OwnedStr::new(if index == 0 { original.name.as_bytes() } else { b"1" }))
        .collect();
    let words: Vec<Str<'_>> = words.iter().map(OwnedStr::as_str).collect();
    !keys_of(ctx, &words).is_empty()
}

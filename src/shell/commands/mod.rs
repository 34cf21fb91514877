//! The entries of the commands, and the parts of them that only a server has. Their work is in crate `command`.

pub mod dispatch;
mod exec;
mod host;

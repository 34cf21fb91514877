//! The entry points of the commands, and the parts of them that need a real server. The rest is in the crate `command`.

pub mod dispatch;
mod exec;
mod host;

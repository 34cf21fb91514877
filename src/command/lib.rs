//! The commands: parse the arguments, let the engine decide, write the reply, on any host. Also the stored format of a
//! lock. No unsafe code, and no dependency on Redis.
//!
//! Imports run one way: `name <- errors <- parse, reply <- host <- run`, `lock_log <- host`, `parse <- effect <- run`,
//! and `name, argument_docs <- catalog <- adopted <- run`.

#![forbid(unsafe_code)]
#![deny(missing_docs)]

pub mod adopted;
mod argument_docs;
pub mod catalog;
pub mod effect;
pub mod errors;
pub mod host;
pub mod lock_log;
pub mod name;
pub mod notification;
pub mod parse;
pub mod rdb_codec;
pub mod reply;
pub mod run;
#[cfg(feature = "testing")]
pub mod testing;

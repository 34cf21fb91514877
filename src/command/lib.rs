//! The commands: bytes in, a request out; an outcome in, a reply out. And a lock as bytes. No unsafe, no Redis.
//!
//! | file            | question                                             |
//! | --------------- | ---------------------------------------------------- |
//! | `catalog`       | which commands are there: flags, keys, documentation |
//! | `argument_docs` | how are their arguments described to the server      |
//! | `name`          | which prefixes and verbs do their names consist of   |
//! | `parse`         | what does this argument list ask for                 |
//! | `reply`         | what is the shape of the reply to this outcome       |
//! | `notification`  | what is published to a waiter that does not block    |
//! | `errors`        | which words does an error have                       |
//! | `effect`        | what is an effect as bytes, to and fro               |
//! | `rdb_codec`     | what is a lock as bytes, in RDB and DUMP             |
//!
//! Imports run one way: `name <- errors <- parse, reply`, `parse <- effect`, and `name, argument_docs <- catalog`.

#![forbid(unsafe_code)]
#![deny(missing_docs)]

mod argument_docs;
pub mod catalog;
pub mod effect;
pub mod errors;
pub mod name;
pub mod notification;
pub mod parse;
pub mod rdb_codec;
pub mod reply;

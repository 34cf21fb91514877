//! The commands: bytes in, a request out, decided by the rules, the reply out, on any host. And a lock as bytes. No
//! unsafe, no Redis.
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
//! | `run`           | how does a command run, from its bytes to its reply  |
//! | `host`          | what must be there to run it                         |
//! | `lock_log`      | which entries has LOCK.LOG                           |
//! | `effect`        | what is an effect as bytes, to and fro               |
//! | `rdb_codec`     | what is a lock as bytes, in RDB and DUMP             |
//! | `testing`       | a simulated server that runs whole commands          |
//!
//! Imports run one way: `name <- errors <- parse, reply <- lock_log <- host <- run`, `parse <- effect <- run`, and
//! `name, argument_docs <- catalog <- run`.

#![forbid(unsafe_code)]
#![deny(missing_docs)]

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

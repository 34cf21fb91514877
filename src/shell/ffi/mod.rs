//! The module API behind safe, typed wrappers. Nothing here decides anything. Other rooms have unsafe code only in the
//! callbacks that the server calls, and where they vouch for what a wrapper asks.
//!
//! | file             | question                                                               |
//! | ---------------- | ---------------------------------------------------------------------- |
//! | `context`        | what does the server say of the callback that is running               |
//! | `string`         | what are the arguments                                                 |
//! | `reply`          | how is a reply written                                                 |
//! | `key`            | how is a key opened, stored, expired, deleted                          |
//! | `blocked`        | how is a client blocked and unblocked, exactly once                    |
//! | `replicate`      | how is an effect sent to replicas and the append-only file             |
//! | `call`           | how is a command of the server's own called                            |
//! | `server`         | what does the server know of itself and of clients; channels           |
//! | `rdb_io`         | how are bytes written into a dump and a digest, and read out of a dump |
//! | `command_keys`   | which arguments of a command are keys                                  |
//! | `command_info`   | how is a command registered and described                              |
//! | `time`           | what time is it; how is a timer made, and the event loop woken          |
//! | `module`         | what does the module tell the server about itself; a section of INFO   |
//! | `setting`        | how is a setting registered                                            |
//! | `functions`      | does the server have every function that is called                     |
//! | `main_thread`    | which values does only the main thread touch                           |
//! | `guard`          | how is a panic kept from leaving through C                             |
//!
//! Of the crate `redis-module` only the bindings and the allocator are used. Its wrappers call functions that
//! `functions` would not know of, and do not say when the server refuses; they allocate or retain for each argument
//! (`decode_args`), block a client without callbacks, free a timer's data as another type (`stop_timer`), or hand out
//! `&mut` without a borrow check (`RedisGILGuard`).

pub mod blocked;
pub mod call;
pub mod command_info;
pub mod command_keys;
pub mod context;
pub mod functions;
pub mod guard;
pub mod key;
pub mod main_thread;
pub mod module;
pub mod rdb_io;
pub mod replicate;
pub mod reply;
pub mod server;
pub mod setting;
pub mod string;
pub mod time;

pub(super) use functions::{api, probe};

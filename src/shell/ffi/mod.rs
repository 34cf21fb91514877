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
//! Of the crate `redis-module` (2.0.8) the bindings, the allocator and the registration of settings are used. What its
//! wrappers call has to be named in `functions` by hand, or where one is missing the first call would end the server,
//! and not the load. Apart from that:
//!
//! | ours                     | the crate's                | why it does not do                                      |
//! | ------------------------ | -------------------------- | ------------------------------------------------------- |
//! | `Ctx`                    | `Context`                  | copyable, with a lifetime; no client id, `SelectDb`,    |
//! |                          |                            | `SignalModifiedKey` or `PublishMessage` there           |
//! | `Str`, `OwnedStr`        | `RedisString`              | it retains each string; `decode_args` allocates besides |
//! | `reply`                  | `Context::reply`           | it makes a tree of values of each reply                 |
//! | `OpenKey`                | `RedisKeyWritable`         | its values are `&mut` of any lifetime; no `SetAbsExpire` |
//! | `blocked`                | `block_client`             | without callbacks, and its drop unblocks                |
//! | `time`                   | `create_timer`             | `stop_timer` frees the data as another type             |
//! | `replicate`              | `Context::replicate`       | it makes a string object of each argument                |
//! | `rdb_io`                 | `save_slice` and the like  | the same; digests and the rewriting of an AOF are there |
//! |                          |                            | only as bindings                                        |
//! | `call`                   | `call_ext`                 | no `errno`; the reply is made a tree of values          |
//! | `server`                 | `get_current_user`, …      | ends Redis 7.0 where the caller has no user             |
//! | `command_info`, `module` | macros                     | commands need descriptions and ACL categories; one      |
//! |                          |                            | listener for all events of a kind, without its database |
//! | `main_thread`, `guard`   | `RedisGILGuard`            | it hands out `&mut` without a borrow check; no wrapper  |
//! |                          |                            | catches a panic                                         |

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

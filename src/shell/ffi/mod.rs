//! The module API behind safe, typed wrappers. Nothing here decides anything. Other rooms have unsafe code only in the
//! callbacks that the server calls, and where they vouch for what a wrapper asks.
//!
//! Of the crate `redis-module` (2.0.8) the bindings, the allocator and the registration of settings are used. Functions
//! that its wrappers call have to be named in `functions` by hand: otherwise, on a server without one, the load would
//! succeed and the first call end the server. Apart from that:
//!
//! | ours                     | the crate's                | why it does not do                                      |
//! | ------------------------ | -------------------------- | ------------------------------------------------------- |
//! | `Ctx`                    | `Context`                  | copyable, with a lifetime; no client id, `SelectDb`,    |
//! |                          |                            | `SignalModifiedKey` or `PublishMessage` there           |
//! | `Str`, `OwnedStr`        | `RedisString`              | it retains each string; `decode_args` allocates besides |
//! | `ReplyWriter` for `Ctx`  | `Context::reply`           | it makes a tree of values of each reply                 |
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
//! | `main_thread`            | `RedisGILGuard`            | it hands out `&mut` without a borrow check              |
//! | `context::guard`         | none                       | no wrapper catches a panic                              |

pub mod allocator;
pub mod blocked;
pub mod call;
pub mod command_info;
pub mod context;
pub mod filter;
pub mod functions;
pub mod key;
pub mod main_thread;
pub mod module;
pub mod rdb_io;
pub mod replicate;
pub mod server;
pub mod string;
pub mod time;

pub(super) use functions::{api, api_unchecked, probe};

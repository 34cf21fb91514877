//! Safe, typed wrappers around the module API. Nothing here decides anything. Other directories contain unsafe code
//! only in the callbacks that the server calls, and where they meet the requirements of a wrapper.
//!
//! The crate `redis-module` (2.0.8) provides the bindings, the allocator and the registration of settings. Functions
//! that its wrappers call must be listed in `functions` by hand. Otherwise, on a server without such a function, the
//! load would succeed and the first call would crash the server. Everything else of the crate is replaced:
//!
//! | ours                     | the crate's                | why the crate's is unsuitable                           |
//! | ------------------------ | -------------------------- | ------------------------------------------------------- |
//! | `Ctx`                    | `Context`                  | ours is copyable, with a lifetime; no client id,        |
//! |                          |                            | `SelectDb`, `SignalModifiedKey` or `PublishMessage`     |
//! | `Str`, `OwnedStr`        | `RedisString`              | retains each string; `decode_args` also allocates       |
//! | `ReplyWriter` for `Ctx`  | `Context::reply`           | builds a tree of values for each reply                  |
//! | `KeyHandle`              | `RedisKeyWritable`         | values are `&mut` of any lifetime; no `SetAbsExpire`    |
//! | `blocked`                | `block_client`             | no callbacks, and dropping it unblocks                  |
//! | `time`                   | `create_timer`             | `stop_timer` frees the data as another type             |
//! | `replicate`              | `Context::replicate`       | creates a string object for each argument               |
//! | `rdb_io`                 | `save_slice` and similar   | the same; digests and AOF rewriting exist only as       |
//! |                          |                            | bindings                                                |
//! | `call`                   | `call_ext`                 | no `errno`; converts the reply to a tree of values      |
//! | `server`                 | `get_current_user`, …      | crashes Redis 7.0 if the caller has no user             |
//! | `command_info`, `module` | macros                     | no descriptions and ACL categories for commands; one    |
//! |                          |                            | listener for all events of a kind, without the database |
//! | `main_thread`            | `RedisGILGuard`            | hands out `&mut` without a borrow check                 |
//! | `context::guard`         | none                       | no wrapper catches panics                               |

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

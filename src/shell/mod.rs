//! The shell: everything that touches the server, and all unsafe code.
//!
//! | room          | question                                                              |
//! | ------------- | --------------------------------------------------------------------- |
//! | `start`       | what happens when the module is loaded                                |
//! | `commands`    | how does a client's command come in, and its reply go out             |
//! | `turn`        | how do the rules get their turn: for a command, or by the timer       |
//! | `observe`     | what are operators told of what the rules do                          |
//! | `keyspace`    | how are locks stored in keys: data type, codec, events of single keys |
//! | `state`       | what does the module remember that is not in a key                    |
//! | `clients`     | how does a client wait, and how is it woken                           |
//! | `background`  | what does the server tell, when is the next turn, are writes accepted |
//! | `replication` | what do replicas and the append-only file get                         |
//! | `settings`    | which settings are there                                              |
//! | `clock`       | what time is it                                                       |
//! | `main_state`  | what is remembered that callbacks reach in the middle of a turn       |
//! | `figures`     | how long did waits, holds and turns last                              |
//! | `event`       | what happens where nothing may be decided                             |
//! | `slots`       | which slot has a key of a cluster; sets of slots                      |
//! | `ffi`         | how is the module API called safely                                   |
//!
//! Imports run from the top of the table to its bottom.

mod background;
mod clients;
mod clock;
mod commands;
mod event;
mod ffi;
mod figures;
mod keyspace;
mod main_state;
mod observe;
mod replication;
mod settings;
mod slots;
mod start;
mod state;
mod turn;

//! The shell: everything that touches the server, and all unsafe code.
//!
//! | file       | question                                                                  |
//! | ---------- | ------------------------------------------------------------------------- |
//! | `api`      | how is the module API called safely                                        |
//! | `start`    | what happens when the module is loaded                                     |
//! | `config`   | which settings are there                                                   |
//! | `register` | how does the server learn the commands                                     |
//! | `run`      | how does a client's command come in, and its answer go out                 |
//! | `look`     | how do the read-only commands answer                                       |
//! | `keyspace` | how do the rules find and change a stored lock                             |
//! | `stored`   | what is a lock as bytes, in RDB and DUMP                                   |
//! | `datatype` | what does the server ask of the data type                                  |
//! | `effect`   | what do replicas and the append-only file get, and how do they apply it    |
//! | `listen`   | does anybody listen to effects                                             |
//! | `waiting`  | how does a client wait, and how is it woken                                |
//! | `drain`    | when is decided what no command asked for: the one timer                   |
//! | `gate`     | does the server accept writes now                                          |
//! | `events`   | what does the server tell, and what does it mean for waiters and sessions   |
//! | `state`    | what does the module remember                                              |

pub mod api;
pub mod config;
pub mod datatype;
mod drain;
mod effect;
mod events;
mod gate;
mod keyspace;
mod listen;
mod look;
mod register;
mod run;
pub mod start;
mod state;
mod stored;
mod waiting;

//! The commands: one file for each kind, from the server's arguments to the reply.
//!
//! | file           | question                                                  |
//! | -------------- | --------------------------------------------------------- |
//! | `registration` | how does the server learn the commands                    |
//! | `dispatch`     | how does a command come in                                |
//! | `arguments`    | which of its arguments are the keys                       |
//! | `acquire`      | `*.ACQUIRE`                                               |
//! | `release`      | `*.RELEASE`                                               |
//! | `renew`        | `*.RENEW`                                                 |
//! | `cancel`       | `LOCK.CANCEL`                                             |
//! | `inspect`      | `LOCK.HELD`, `LOCK.INFO`, `LOCK.WAITERS`                  |
//! | `log`          | `LOCK.LOG`                                                |
//! | `scan`         | `LOCK.SCAN`                                               |
//! | `top`          | `LOCK.TOP`                                                |
//! | `breaking`     | `LOCK.BREAK`                                              |
//! | `help`         | `LOCK.HELP`                                               |
//! | `exec`         | `LOCK.EXEC`                                               |
//! | `apply`        | `LOCK.APPLY`: an effect from the primary or out of a file |

mod acquire;
mod apply;
mod arguments;
mod breaking;
mod cancel;
mod dispatch;
mod exec;
mod help;
mod inspect;
mod log;
pub mod registration;
mod release;
mod renew;
mod scan;
mod top;

//! How the commands come in, and what only a server has for them. What they do is in crate `command`.
//!
//! | file           | question                                                     |
//! | -------------- | ------------------------------------------------------------ |
//! | `registration` | how does the server learn the commands                       |
//! | `dispatch`     | how does a command come in                                   |
//! | `host`         | what does the server do for a command that runs              |
//! | `exec`         | `LOCK.EXEC`: how does the server run the command behind it   |

mod dispatch;
mod exec;
mod host;
pub mod registration;

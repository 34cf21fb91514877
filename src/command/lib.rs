//! The commands: bytes in, a request out; an answer of the rules in, the words of a reply out. No unsafe, no Redis.
//!
//! | file      | question                                             |
//! | --------- | ---------------------------------------------------- |
//! | `parse`   | what does this argument list ask for                  |
//! | `number`  | is this an integer, a time, in Redis's sense          |
//! | `words`   | which error words does the client see                 |
//! | `news`    | what is published to a waiter that does not block     |
//! | `catalog` | which commands are there: flags, keys, documentation  |

#![forbid(unsafe_code)]

pub mod catalog;
pub mod news;
pub mod number;
pub mod parse;
pub mod words;

//! redis-lock: distributed locks as a native data type of Redis and Valkey.
//!
//! The rules so far; the commands and the shell that carry them out build on them.

#![allow(dead_code)] // until the shell calls the rules

mod lock;

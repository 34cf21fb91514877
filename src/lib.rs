//! redis-lock: distributed locks as a native data type of Redis and Valkey.
//!
//! The rules and the words of the commands so far; the shell that carries them out builds on them.

#![allow(dead_code)] // until the shell calls them

mod command;
mod lock;

//! Tests of the command line against real servers: one module for each subcommand, and shared helpers.

mod adopt;
mod arguments;
mod break_lock;
mod cancel;
mod completions;
mod connecting;
mod documents;
mod errors;
mod graph;
mod info;
mod log;
mod ls;
mod manual;
mod missing;
mod names;
mod package;
mod readme;
mod refusals;
mod run;
mod screen;
mod stable;
mod tool;
mod top;
mod waiters;

//! `make bench-peers`: compares redis-lock with other lock services, each run as its documentation recommends, in one
//! run on one machine. Everything runs in separate network namespaces (Linux, root), so that ports are free, bytes are
//! counted, and the loss of a machine can be simulated.
//!
//!     peers [--quick] [--rounds N] [--only WORD,…] [--parts pair,…] [--data FILE]    measures into a JSON file
//!     peers report DATA DIRECTORY         generates the page, its charts and README's rows from that file
//!     peers load KIND name=value…         the load, started by the run

// The clients' futures are deeply nested.
#![recursion_limit = "256"]

mod judged;
mod load;
mod peers;
mod report;
mod run;
mod servers;
mod settings;
mod stats;
mod task;

use std::process::ExitCode;

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let done = match words.first().map(String::as_str) {
        Some("load") => load::main(&words[1..]),
        Some("report") => report::main(&words[1..]),
        _ => run::main(&words),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("peers: {error}");
            ExitCode::FAILURE
        }
    }
}

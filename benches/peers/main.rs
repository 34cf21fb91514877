//! `make bench-peers`: redis-lock beside other services that lock, each as its documentation says to run it, in one run
//! on one machine. All of it is in networks of the run's own (Linux, root), so that ports are free, bytes are counted,
//! and a machine can be made to vanish.
//!
//!     peers [--quick] [--rounds N] [--only WORD,…] [--parts pair,…] [--data FILE]    measures into a JSON file
//!     peers report DATA DIRECTORY         makes the page, its charts and README's rows from that file
//!     peers load KIND name=value…         the load, which the run starts

// The clients' futures are deep.
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

//! `redis-lock`: runs commands under locks, and shows who holds and who waits. One file for each subcommand; what they
//! share are the connection, the errors and how tables and JSON are written.

mod args;
mod connection;
mod error;
mod exit_code;
mod run;

use std::process::ExitCode;

use args::Command;
use error::Error;

fn main() -> ExitCode {
    let line = args::parse();
    let done = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|cause| Error::Io { what: "no runtime".into(), cause })
        .and_then(|runtime| runtime.block_on(dispatch(line)));
    done.unwrap_or_else(|error| {
        eprintln!("redis-lock: {error}");
        ExitCode::from(error.exit_code())
    })
}

async fn dispatch(line: args::CommandLine) -> Result<ExitCode, Error> {
    match line.subcommand {
        Command::Run(run) => run::run(run, line.connection).await,
        _ => Err(Error::Server("not written yet".into())),
    }
}

//! `redis-lock`: runs commands under locks, and shows holders and waiters. There is one file for each subcommand; they
//! share the connection, the errors, and the formatting of times, tables and JSON.

mod adopt;
mod args;
mod break_lock;
mod cancel;
mod condition;
mod connection;
mod duration;
mod error;
mod exit_code;
mod generate;
mod graph;
mod info;
mod log;
mod ls;
mod message;
mod output;
mod reply;
mod run;
mod servers;
mod table;
mod text;
mod top;
mod usage;
mod waiters;

use std::process::ExitCode;

use args::{Command, CommandLine, ConnectionArgs};
use error::Error;

fn main() -> ExitCode {
    let line = args::parse();
    let connection = line.connection.clone();
    let done = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|cause| Error::Io { what: "no runtime".into(), cause })
        .and_then(|runtime| {
            let done = runtime.block_on(dispatch(line));
            // Do not wait for a name server that does not reply.
            runtime.shutdown_background();
            done
        });
    done.unwrap_or_else(|error| {
        message::say(format_args!("{error}{}", connection.hint(&error)));
        ExitCode::from(error.exit_code())
    })
}

async fn dispatch(line: CommandLine) -> Result<ExitCode, Error> {
    let CommandLine { subcommand, connection, .. } = line;
    match execute(subcommand, &connection).await {
        Err(Error::NoModule { server }) if connection.is_of_a_sentinel().await => Err(Error::Sentinel { server }),
        done => done,
    }
}

async fn execute(subcommand: Command, server: &ConnectionArgs) -> Result<ExitCode, Error> {
    match subcommand {
        Command::Run(run) => run::run(run, server).await,
        Command::Top(args) => top::top(args, server).await,
        Command::Graph(args) => graph::graph(args, server).await.map(ExitCode::from),
        Command::Ls(args) => ls::ls(args, server).await.map(succeeded),
        Command::Info(args) => info::info(args, server).await.map(ExitCode::from),
        Command::Waiters(args) => waiters::waiters(args, server).await.map(succeeded),
        Command::Break(args) => break_lock::break_lock(args, server).await.map(ExitCode::from),
        Command::Cancel(args) => cancel::cancel(args, server).await.map(ExitCode::from),
        Command::Log(args) => log::log(args, server).await.map(succeeded),
        Command::Adopt(args) => adopt::adopt(args, server).await.map(succeeded),
        Command::Generate(args) => generate::generate(args).map(succeeded),
    }
}

fn succeeded((): ()) -> ExitCode {
    ExitCode::SUCCESS
}

//! `redis-lock run`: a command under a lock.

mod command_group;
mod dispositions;
mod exit;
mod job;
mod signals;
mod supervise;
mod terminal;

use std::ffi::OsStr;
use std::process::ExitCode;

use crate::args::{ConnectionArgs, RunArgs};
use crate::error::Error;

struct Never;
impl job::Watched for Never {
    async fn lost(&self) {
        if let Some(n) = std::env::var("LOSE").ok().and_then(|n| n.parse().ok()) {
            tokio::time::sleep(std::time::Duration::from_secs(n)).await
        } else {
            std::future::pending().await
        }
    }
    fn is_over(&self) -> bool {
        false
    }
}

pub async fn run(args: RunArgs, _: ConnectionArgs) -> Result<ExitCode, Error> {
    let mask = dispositions::Mask::of_this_thread();
    let signals = signals::Signals::that_end().unwrap();
    let vars = [("REDIS_LOCK_KEY", OsStr::new("k"))];
    let exit = match job::Job::start(&args.command, &vars, signals, mask) {
        Err(error) => exit::not_started(&error),
        Ok(mut job) => match job.run(&Never, args.kill_after).await {
            job::Done::Ended(ended) => exit::after(ended, exit::LockAtEnd::Released, 75),
            job::Done::LostLock => exit::Exit::Status(75),
        },
    };
    Ok(exit.leave())
}

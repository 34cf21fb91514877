//! `redis-lock run`: a command under a lock.

use std::process::ExitCode;

use crate::args::{ConnectionArgs, RunArgs};
use crate::error::Error;

pub async fn run(_: RunArgs, _: ConnectionArgs) -> Result<ExitCode, Error> {
    Err(Error::Server("run is not written yet".into()))
}

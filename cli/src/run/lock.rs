//! The lock that the command runs under: converts the options to the client's lock, and the client's errors to ours.

use std::ffi::OsString;
use std::future::Future;
use std::os::unix::ffi::OsStrExt;

use redis_lock_client::{Client, Family, Guard, Lock};

use super::job::Watched;
use crate::args::RunArgs;
use crate::error::Error;
use crate::text::Text;

/// The lock with its lease and its kind of renewal.
pub fn lock(client: &Client, args: &RunArgs) -> Lock {
    let lock = client.lock(lock_type(args)).lease(args.lease).at_least(args.at_least);
    if args.session {
        lock.session()
    } else {
        lock.auto_renew()
    }
}

fn lock_type(args: &RunArgs) -> Family {
    let keys: Vec<Vec<u8>> = args.keys.iter().map(|key| key.as_bytes().to_vec()).collect();
    match <[Vec<u8>; 1]>::try_from(keys) {
        Ok([key]) if args.shared => Family::Read { key },
        Ok([key]) if args.exclusive => Family::Write { key },
        Ok([key]) => match args.limit {
            Some(limit) if args.slot => Family::Slot { key, limit },
            Some(limit) => Family::Semaphore { key, limit, permits: 1 },
            None => Family::Mutex { key },
        },
        Err(keys) => Family::Several { keys },
    }
}

/// The keys, as shown in messages.
pub fn name(keys: &[OsString]) -> String {
    let names: Vec<String> = keys.iter().map(|key| Text(key.as_bytes().to_vec()).to_string()).collect();
    names.join(", ")
}

/// The lock could not be acquired, or its state is unknown.
pub fn error(server: &str, keys: &[OsString], error: redis_lock_client::Error) -> Error {
    use redis_lock_client::Error as Failed;
    match error {
        // The client's message would name an option that only programs have.
        Failed::WrongType(message) => Error::WrongType(
            message.rsplit_once("; a SET NX client").map_or(message.as_str(), |(found, _)| found).into(),
        ),
        Failed::WrongKind(message) => Error::WrongType(format!(
            "{}: {message} (--shared and --exclusive share one lock type; --limit, and neither option, have others)",
            name(keys)
        )),
        Failed::Usage(problem) => Error::Options(problem.to_string()),
        other => Error::of_client(server, other),
    }
}

impl Watched for Guard {
    fn lost(&self) -> impl Future<Output = ()> {
        Guard::lost(self)
    }

    fn is_over(&self) -> bool {
        self.is_lost()
    }
}

//! `redis-lock run`: runs a command under a lock, like flock(1).
//!
//! | question | file |
//! | --- | --- |
//! | which lock | `lock` |
//! | what the server is asked in addition to the lock | `server` |
//! | from the start of the command to its end | `job` |
//! | starting, signalling and waiting for the command | `command_group` |
//! | which signals are forwarded, and to which process | `signals` |
//! | which process group has the terminal | `terminal` |
//! | the reaction when the command stops | `supervise` |
//! | how this process ends | `exit` |
//! | ending the command if SIGKILL ends this process | `watchdog` |
//! | signal dispositions and masks | `dispositions` |

mod command_group;
mod dispositions;
mod exit;
mod job;
mod lock;
mod server;
mod signals;
mod supervise;
mod terminal;
mod watchdog;

use std::ffi::{OsStr, OsString};
use std::future::Future;
use std::os::unix::ffi::OsStrExt;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use redis_lock_client::{Client, Coalesced, Guard, Lock};
use rustix::process::Signal;

use crate::args::{ConnectionArgs, RunArgs, WaitLimit};
use crate::duration::human;
use crate::error::Error;
use crate::message::say;
use crate::text::Text;
use command_group::Ended;
use dispositions::Mask;
use exit::{Exit, LockAtEnd};
use job::{Job, Outcome};
use server::Server;
use signals::Signals;

/// When --verbose first reports the holder, and how often it checks for a new one.
const HOLDER_FIRST: Duration = Duration::from_millis(100);
const HOLDER_CHECK: Duration = Duration::from_secs(5);

/// How long releasing a lost lock may take.
const LOSS_RELEASE_LIMIT: Duration = Duration::from_secs(1);

/// How long a wait or a release may continue after a signal that ends it, in order to leave neither a queue position
/// nor a grant.
const CLEANUP_LIMIT: Duration = Duration::from_secs(2);

/// Runs the command under the lock that the options name, and ends with the command's status.
///
/// # Errors
/// If the lock could not be requested. The command did not run.
pub async fn run(args: RunArgs, connection: &ConnectionArgs) -> Result<ExitCode, Error> {
    let mask = Mask::of_this_thread();
    let mut signals = Signals::that_end().map_err(|cause| Error::Io { what: "signals".into(), cause })?;
    let client = connection.client()?;
    let server = Server { client: &client, args: &args, connection };
    let started = Instant::now();
    let taken = take(&server, &mut signals).await?;
    if args.verbose {
        report(&client, &args, &taken, started.elapsed()).await;
    }
    let exit = match taken {
        Taken::Granted(guard) => run_under(guard, &args, &server.name().await, signals, mask).await,
        Taken::Done => Exit::Status(0),
        Taken::NotGranted => Exit::Status(args.conflict_exit_code),
        Taken::Interrupted(signal) => Exit::Signal(signal.as_raw()),
    };
    Ok(exit.leave())
}

enum Taken {
    Granted(Guard),
    /// With --once: another run has succeeded.
    Done,
    NotGranted,
    /// A signal came first.
    Interrupted(Signal),
}

async fn report(client: &Client, args: &RunArgs, taken: &Taken, after: Duration) {
    let name = lock::name(&args.keys);
    match taken {
        Taken::Granted(guard) => say(format_args!("{name}: granted after {after:.3?}, fence {}", guard.fence())),
        Taken::NotGranted => {
            let held = holders(&lock::lock(client, args)).await.map(|(_, held)| format!(", {held}"));
            say(format_args!("{name}: not granted after {after:.3?}{}", held.unwrap_or_default()));
        }
        Taken::Done | Taken::Interrupted(_) => {}
    }
}

/// The fencing token of the first holder, and the holders as text; None: there is none, or this user may not see it.
async fn holders(lock: &Lock) -> Option<(u64, String)> {
    let info = lock.info().await.ok()??;
    let first = info.holders.first()?;
    let owner = Text(first.owner.as_bytes().to_vec());
    let age = human(u64::try_from(first.age.as_millis()).unwrap_or(u64::MAX));
    let others = match info.holding {
        0 | 1 => String::new(),
        holding => format!(", and {} more", holding - 1),
    };
    Some((first.fence, format!("held by {owner} for {age}{others}")))
}

/// Reports the holder that the request waits for, and the next one after a hand-off.
async fn report_holder(lock: &Lock, args: &RunArgs) -> std::convert::Infallible {
    let mut reported_fence = None;
    tokio::time::sleep(HOLDER_FIRST).await;
    loop {
        if let Some((fence, held)) = holders(lock).await {
            if reported_fence.replace(fence) != Some(fence) {
                say(format_args!("{}: waiting, {held}", lock::name(&args.keys)));
            }
        }
        tokio::time::sleep(HOLDER_CHECK).await;
    }
}

async fn take(server: &Server<'_>, signals: &mut Signals) -> Result<Taken, Error> {
    let Server { client, args, .. } = *server;
    let lock = lock::lock(client, args);
    let taken = tokio::select! {
        biased;
        signal = signals.next() => Taken::Interrupted(signal),
        granted = acquire(&lock, args) => match granted {
            Ok(Coalesced::Granted(guard)) => Taken::Granted(guard),
            Ok(Coalesced::Done { fence }) => {
                say(format_args!("{}: done by another run, fence {fence}", lock::name(&args.keys)));
                Taken::Done
            }
            Ok(Coalesced::NotGranted) => Taken::NotGranted,
            Err(redis_lock_client::Error::Cancelled(message)) => {
                say(format_args!("{}: the wait was cancelled: {message}", lock::name(&args.keys)));
                Taken::NotGranted
            }
            Err(error) => {
                return Err(match server.error(error).await {
                    Error::Server(message) if is_about_a_time(&message) => {
                        Error::Options(format!("{}: {message}", longest_time(args)))
                    }
                    error => error,
                });
            }
        },
        never = server.report_silence(), if !args.no_wait => match never {},
        never = report_holder(&lock, args), if args.verbose && !args.no_wait => match never {},
    };
    if let Taken::Interrupted(_) = taken {
        // Waits until neither a queue position nor a grant is left. If the server stays unreachable for this long, the
        // grant is left to expire. A second signal, which may come within a millisecond, cuts nothing short.
        let _settled_or_timed_out = tokio::time::timeout(CLEANUP_LIMIT, client.settled()).await;
    }
    Ok(taken)
}

/// Whether the server rejected a time because it exceeds `lock.max-lease`.
fn is_about_a_time(message: &str) -> bool {
    message.starts_with("ERR invalid expire time ")
        || message.starts_with("ERR value is not an integer or out of range")
}

/// The option with the longer time, which the server checks first.
fn longest_time(args: &RunArgs) -> &'static str {
    if args.at_least.is_some_and(|time| time > args.lease) {
        "--at-least"
    } else {
        "--lease"
    }
}

async fn acquire(lock: &Lock, args: &RunArgs) -> redis_lock_client::Result<Coalesced> {
    let granted = match args.wait {
        _ if args.no_wait => lock.try_acquire().await?,
        WaitLimit::For(limit) if args.once => return lock.acquire_coalesced(limit).await,
        WaitLimit::Forever if args.once => return lock.acquire_coalesced(Duration::MAX).await,
        WaitLimit::For(limit) => lock.acquire_within(limit).await?,
        WaitLimit::Forever => Some(lock.acquire().await?),
    };
    Ok(granted.map_or(Coalesced::NotGranted, Coalesced::Granted))
}

async fn run_under(guard: Guard, args: &RunArgs, server: &str, signals: Signals, mask: Mask) -> Exit {
    let fence = OsString::from(guard.fence().to_string());
    let mut variables = vec![
        ("REDIS_LOCK_KEY", args.written.join(OsStr::new("\n"))),
        ("REDIS_LOCK_TOKEN", OsStr::from_bytes(guard.token()).to_os_string()),
        ("REDIS_LOCK_FENCE", fence),
    ];
    variables.extend(guard.slot().map(|slot| ("REDIS_LOCK_SLOT", slot.to_string().into())));
    let mut job = match Job::start(&args.command, &variables, signals, mask, args.kill_after) {
        Ok(job) => job,
        Err(error) => {
            let why = exit::why_not_started(&error);
            say(format_args!("{}: {why}", args.command[0].to_string_lossy()));
            release(guard, Work::Undone, args, server, std::future::pending()).await;
            return exit::not_started(&error);
        }
    };
    match job.outcome_under(&guard).await {
        Outcome::Ended(ended) => {
            let work = if args.once && ended != Ended::Exited(0) { Work::Undone } else { Work::Done };
            let lock = release(guard, work, args, server, job.terminating()).await;
            exit::after(ended, lock, args.lost_exit_code)
        }
        Outcome::LockLost => {
            say(format_args!("{}: the lock was lost: terminating the command", lock::name(&args.keys)));
            job.end(args.kill_after).await;
            release_the_rest(guard).await;
            Exit::Status(args.lost_exit_code)
        }
    }
}

/// Whether the release reports the work as done, for waiting runs with --once, and for --at-least.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Work {
    Done,
    /// The command could not be started or, with --once, failed.
    Undone,
}

/// Releases the lock. Whether it was held is decided by our own clock only: a later reply from the server says nothing
/// about the time in which the command ran. `terminating` resolves on a signal, after which we do not wait for an
/// unreachable server.
async fn release(
    guard: Guard,
    work: Work,
    args: &RunArgs,
    server: &str,
    terminating: impl Future<Output = ()>,
) -> LockAtEnd {
    let name = lock::name(&args.keys);
    let lost = || {
        say(format_args!("{name}: the lock was lost while the command ran"));
        LockAtEnd::Lost
    };
    if guard.is_lost() {
        release_the_rest(guard).await;
        return lost();
    }
    let left = guard.remaining().unwrap_or(args.lease);
    let release = async {
        match work {
            Work::Done => guard.release().await,
            Work::Undone => guard.release_failed().await,
        }
    };
    let limit = async {
        tokio::select! {
            () = tokio::time::sleep(left) => {}
            // Includes a signal that came earlier: it may have ended the command.
            () = async { tokio::time::sleep(CLEANUP_LIMIT).await; terminating.await } => {}
        }
    };
    let released = tokio::select! {
        biased;
        released = release => Ok(released),
        () = limit => Err(()),
    };
    let why = match released {
        Ok(Ok(())) => return LockAtEnd::Released,
        Ok(Err(redis_lock_client::Error::LockLost)) => return lost(),
        Ok(Err(error)) => lock::error(server, &args.keys, error).to_string(),
        Err(()) => format!("no response from {server}"),
    };
    say(format_args!("{name}: the lock could not be released and will expire with its lease: {why}"));
    LockAtEnd::LeftToExpire
}

/// Releases a lock that no command runs under: after one of multiple keys is lost, others may still be held. The reply
/// does not change the outcome.
async fn release_the_rest(guard: Guard) {
    let _ = tokio::time::timeout(LOSS_RELEASE_LIMIT, guard.release_failed()).await;
}

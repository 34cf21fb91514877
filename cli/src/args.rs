//! The options and arguments of the command line. Parsing only: nothing in here connects or prints.

use std::collections::HashSet;
use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;
use std::time::Duration;

use clap::builder::{OsStringValueParser, TypedValueParser};
use clap::error::ErrorKind;
use clap::{ArgAction, Args, CommandFactory, Parser, Subcommand, ValueEnum};

use crate::text::{unescaped, Text};
use crate::{exit_code, usage};

/// Run commands under locks of a Redis or Valkey server with the redis-lock module, and show their holders and waiters.
#[derive(Debug, Parser)]
#[command(
    name = "redis-lock",
    version,
    disable_help_flag = true,
    override_usage = "redis-lock [OPTIONS] COMMAND [ARGUMENT…]",
    after_help = exit_code::help()
)]
pub struct CommandLine {
    #[command(subcommand)]
    pub subcommand: Command,
    #[command(flatten)]
    pub connection: ConnectionArgs,
    /// Print help
    #[arg(long, global = true, action = ArgAction::Help)]
    help: Option<bool>,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run a command while holding a lock, as flock(1) does
    #[command(override_usage = "redis-lock run [OPTIONS] KEY [KEY…] -- COMMAND [ARGUMENT…]")]
    Run(RunArgs),
    /// Show the locks with the most waiters, continuously
    #[command(override_usage = "redis-lock top [OPTIONS]")]
    Top(TopArgs),
    /// Show the wait-for graph as a tree: holders, their waiters, and what the waiters hold
    #[command(override_usage = "redis-lock graph [OPTIONS] [KEY]")]
    Graph(GraphArgs),
    /// List the locks of this database
    #[command(override_usage = "redis-lock ls [OPTIONS] [PATTERN]")]
    Ls(LsArgs),
    /// Show the holders of a lock
    #[command(override_usage = "redis-lock info [OPTIONS] KEY")]
    Info(InfoArgs),
    /// Show the waiters of a lock, in queue order
    #[command(override_usage = "redis-lock waiters [OPTIONS] KEY")]
    Waiters(WaitersArgs),
    /// Force-release a lock; it is granted to the next waiter
    #[command(override_usage = "redis-lock break [OPTIONS] KEY")]
    Break(BreakArgs),
    /// Remove a waiter from the queue of a lock
    #[command(override_usage = "redis-lock cancel [OPTIONS] KEY TOKEN")]
    Cancel(CancelArgs),
    /// Show the server's lock log: long holds and waits, expired leases, broken locks
    #[command(override_usage = "redis-lock log [OPTIONS]")]
    Log(LogArgs),
    /// Show whether the patterns of lock.adopt and lock.adopt-observe suit the way clients use their keys
    #[command(override_usage = "redis-lock adopt [OPTIONS]")]
    Adopt(AdoptArgs),
    /// Write man pages, or completions for bash, zsh and fish, to a directory
    #[command(override_usage = "redis-lock generate man|completions DIR")]
    Generate(GenerateArgs),
}

/// Which server, in redis-cli's words.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Connection")]
pub struct ConnectionArgs {
    /// Server: redis://[user[:password]@]host[:port][/db], rediss:// for TLS, unix:///path [env: REDIS_LOCK_URL]
    #[arg(short = 'u', global = true, value_name = "URI")]
    pub uri: Option<String>,
    /// The URI is that of the environment.
    #[arg(skip)]
    pub is_from_environment: bool,
    /// Host name [default: 127.0.0.1]
    #[arg(short = 'h', global = true, value_name = "HOST")]
    pub host: Option<String>,
    /// Port [default: 6379]
    #[arg(short = 'p', global = true, value_name = "PORT")]
    pub port: Option<u16>,
    /// Unix socket, instead of a host and port
    #[arg(short = 's', global = true, value_name = "SOCKET")]
    pub socket: Option<PathBuf>,
    /// Password; visible to other users of this machine, unlike the environment variable REDISCLI_AUTH
    #[arg(short = 'a', long = "pass", global = true, value_name = "PASSWORD", allow_hyphen_values = true)]
    pub password: Option<String>,
    /// ACL user, with the password of -a
    #[arg(long, global = true, value_name = "NAME")]
    pub user: Option<String>,
    /// Database number (flock's -n is --no-wait here)
    #[arg(short = 'n', global = true, value_name = "DB")]
    pub db: Option<u32>,
    /// Cluster mode: follow redirections; ls, top, graph, log and adopt query all primaries
    #[arg(short = 'c', global = true)]
    pub cluster: bool,
    /// Ask these Sentinels, host:port or redis://user:password@host:port, for the primary [env: REDIS_LOCK_SENTINELS]
    #[arg(long, global = true, value_name = "HOST:PORT,…", value_delimiter = ',')]
    pub sentinel: Vec<String>,
    /// Name of the primary in the configuration of the Sentinels [env: REDIS_LOCK_MASTER]
    #[arg(long, global = true, value_name = "NAME")]
    pub master: Option<String>,
    /// Connect with TLS
    #[arg(long, global = true)]
    pub tls: bool,
    /// CA certificates (PEM) for verifying the server [default: the system's]
    #[arg(long, global = true, value_name = "FILE")]
    pub cacert: Option<PathBuf>,
    /// Client certificate (PEM)
    #[arg(long, global = true, value_name = "FILE")]
    pub cert: Option<PathBuf>,
    /// Private key of the client certificate (PEM)
    #[arg(long, global = true, value_name = "FILE")]
    pub key: Option<PathBuf>,
    /// Do not verify the server's certificate
    #[arg(long, global = true)]
    pub insecure: bool,
}

/// How the names of keys and owners are written. The names themselves are the bytes that they stand for, from
/// [`parse`] on.
#[derive(Debug, Args)]
pub struct NameArgs {
    /// Read names in the escaped form that this program prints: \xe9 is a byte, \n a newline, \\ a backslash
    #[arg(long)]
    pub escaped: bool,
}

impl NameArgs {
    /// A hint for messages saying that nothing has one of these names.
    pub fn hint(&self, names: &[&Text]) -> &'static str {
        let is_one_printed = names.iter().any(|name| name.0.contains(&b'\\'));
        if is_one_printed && !self.escaped {
            " (for a name in its printed form, add --escaped)"
        } else {
            ""
        }
    }
}

#[derive(Debug, Args)]
pub struct RunArgs {
    /// The lock, or multiple locks, acquired all or nothing
    #[arg(value_name = "KEY", required = true, value_parser = no_empty())]
    pub keys: Vec<OsString>,
    /// The keys as they were written.
    #[arg(skip)]
    pub written: Vec<OsString>,
    #[command(flatten)]
    pub names: NameArgs,
    /// The command and its arguments
    #[arg(value_name = "COMMAND", last = true)]
    pub command: Vec<OsString>,
    /// How long to wait for the lock: 500ms, 30s, 5m, or `forever`
    #[arg(long, value_name = "TIME", default_value = "forever", value_parser = parse_wait_limit)]
    pub wait: WaitLimit,
    /// Do not wait for the lock
    #[arg(long, conflicts_with = "wait")]
    pub no_wait: bool,
    /// Lease: how long the lock stays held if this process cannot release it; renewed while the command runs
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = parse_lease)]
    pub lease: Duration,
    /// Bind the lock to the connection: the server renews it, and releases it as soon as the connection closes
    #[arg(long)]
    pub session: bool,
    /// Acquire a read lock, shared with other readers
    #[arg(long, conflicts_with_all = ["exclusive", "limit"])]
    pub shared: bool,
    /// Acquire a write lock, which excludes readers
    #[arg(long, conflicts_with = "limit")]
    pub exclusive: bool,
    /// Acquire one of N permits of a semaphore
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub limit: Option<u32>,
    /// With --limit: assign a number below N that no other holder has, in REDIS_LOCK_SLOT
    #[arg(long, requires = "limit")]
    pub slot: bool,
    /// Keep the lock held for at least this time, even if the command ends earlier
    #[arg(long, value_name = "TIME", value_parser = parse_lease, conflicts_with = "session")]
    pub at_least: Option<Duration>,
    /// Single-flight: exit with 0 without running the command if another run succeeds while this one waits
    #[arg(long, conflicts_with_all = ["no_wait", "shared", "exclusive", "limit", "at_least"])]
    pub once: bool,
    /// If the lock is lost, the command gets SIGTERM, and SIGKILL if it is still running after this time
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = parse_time)]
    pub kill_after: Duration,
    /// Report which owner holds the lock while waiting, how long acquiring it took, or that it was not granted
    #[arg(short, long)]
    pub verbose: bool,
    /// Exit status if the lock is lost while the command runs
    #[arg(long, value_name = "STATUS", default_value_t = 75)]
    pub lost_exit_code: u8,
    /// Exit status if the lock is not granted
    #[arg(long, value_name = "STATUS", default_value_t = 1)]
    pub conflict_exit_code: u8,
}

/// How long to wait for a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WaitLimit {
    For(Duration),
    Forever,
}

#[derive(Debug, Args)]
pub struct TopArgs {
    /// Number of locks to request from each server
    #[arg(long, value_name = "N", default_value_t = 50, value_parser = clap::value_parser!(u16).range(1..=1000))]
    pub count: u16,
    /// Refresh interval; with --once: how long to measure the rates per second
    #[arg(short, long, value_name = "TIME", default_value = "1s", value_parser = parse_interval)]
    pub interval: Duration,
    /// Print once, without a screen
    #[arg(long)]
    pub once: bool,
    /// Print JSON
    #[arg(long, requires = "once")]
    pub json: bool,
}

#[derive(Debug, Args)]
pub struct GraphArgs {
    /// Only this lock, and those that it waits for or keeps waiting
    #[arg(value_name = "KEY", value_parser = no_empty())]
    pub lock: Option<OsString>,
    #[command(flatten)]
    pub names: NameArgs,
    /// Number of locks to read, those with the most waiters first
    #[arg(long, value_name = "N", default_value_t = 50, value_parser = clap::value_parser!(u16).range(1..=1000))]
    pub locks: u16,
    /// Number of waiters, and of holders, to read for each lock
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u16).range(1..=10_000))]
    pub waiters: u16,
    /// Print the graph for Graphviz
    #[arg(long)]
    pub dot: bool,
    /// Print JSON
    #[arg(long, conflicts_with = "dot")]
    pub json: bool,
}

#[derive(Debug, Args)]
pub struct LsArgs {
    /// Only keys that match this pattern, as in SCAN's MATCH
    #[arg(value_name = "PATTERN")]
    pub pattern: Option<OsString>,
    #[command(flatten)]
    pub names: NameArgs,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Args)]
pub struct InfoArgs {
    #[arg(value_name = "KEY", value_parser = no_empty())]
    pub lock: OsString,
    #[command(flatten)]
    pub names: NameArgs,
    /// Number of holders to show, oldest first; 0: all
    #[arg(long, value_name = "N", default_value_t = 100)]
    pub count: u32,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Args)]
pub struct WaitersArgs {
    #[arg(value_name = "KEY", value_parser = no_empty())]
    pub lock: OsString,
    #[command(flatten)]
    pub names: NameArgs,
    /// Number of waiters to show; 0: all
    #[arg(long, value_name = "N", default_value_t = 100)]
    pub count: u32,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Args)]
pub struct BreakArgs {
    #[arg(value_name = "KEY", value_parser = no_empty())]
    pub lock: OsString,
    #[command(flatten)]
    pub names: NameArgs,
    /// Only this owner's holds
    #[arg(long, value_name = "OWNER", value_parser = no_empty())]
    pub owner: Option<OsString>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Args)]
pub struct CancelArgs {
    #[arg(value_name = "KEY", value_parser = no_empty())]
    pub lock: OsString,
    /// The token or owner, as `waiters` shows it
    #[arg(value_name = "TOKEN", value_parser = no_empty())]
    pub token: OsString,
    #[command(flatten)]
    pub names: NameArgs,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Args)]
pub struct LogArgs {
    /// Number of entries to show from each server
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..))]
    pub count: u32,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Args)]
pub struct AdoptArgs {
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Args)]
pub struct GenerateArgs {
    /// What to write
    pub what: Generated,
    /// Target directory; created if it does not exist
    #[arg(value_name = "DIR")]
    pub directory: PathBuf,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum Generated {
    Man,
    Completions,
}

/// Parses this process's arguments and, for the connection, its environment. Does not return if the arguments ask for
/// help or are invalid.
pub fn parse() -> CommandLine {
    let parsed = CommandLine::try_parse().map_err(usage::with_hint).and_then(|mut line| {
        // A value that is not UTF-8 is still a value. Ignoring it would select another server, the one at localhost.
        let variable = |name: &str| std::env::var_os(name).map(|value| value.to_string_lossy().into_owned());
        line.connection.complete(|name| variable(name).filter(|value| !value.is_empty()));
        let unreadable = line.subcommand.unescape_names().err();
        match unreadable.as_deref().or_else(|| contradiction(&line)) {
            Some(problem) => Err(CommandLine::command().error(ErrorKind::ArgumentConflict, problem)),
            None => contradiction_of_run(&line.subcommand)
                .map_or(Ok(line), |problem| Err(usage::of_run(CommandLine::command(), problem))),
        }
    });
    parsed.unwrap_or_else(|error| {
        // stderr may be closed; the exit status says the same.
        let _ = error.print();
        let is_answer = matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion);
        std::process::exit(if is_answer { 0 } else { exit_code::USAGE.into() })
    })
}

/// Selects the server where command lines should be short: in a crontab, or in a container's environment.
pub const URL_VARIABLE: &str = "REDIS_LOCK_URL";
pub const SENTINELS_VARIABLE: &str = "REDIS_LOCK_SENTINELS";
pub const MASTER_VARIABLE: &str = "REDIS_LOCK_MASTER";

impl ConnectionArgs {
    /// Without an option that names a server, the environment names it. With Sentinels, its URL is the login for the
    /// primary. A master name without Sentinels is read too, so that [`contradiction`] reports it.
    fn complete(&mut self, variable: impl Fn(&str) -> Option<String>) {
        let is_named = self.uri.is_some() || self.host.is_some() || self.port.is_some() || self.socket.is_some();
        let is_of_environment = !is_named && self.sentinel.is_empty();
        if is_of_environment {
            self.uri = variable(URL_VARIABLE);
            self.is_from_environment = self.uri.is_some();
            let sentinels = variable(SENTINELS_VARIABLE).unwrap_or_default();
            self.sentinel = sentinels.split(',').filter(|one| !one.is_empty()).map(str::to_string).collect();
        }
        if self.master.is_none() && (is_of_environment || !self.sentinel.is_empty()) {
            self.master = variable(MASTER_VARIABLE);
        }
    }
}

impl Command {
    /// Replaces escaped names with the bytes that they stand for.
    fn unescape_names(&mut self) -> Result<(), String> {
        let (names, written): (&NameArgs, Vec<&mut OsString>) = match self {
            Command::Run(args) => {
                args.written = args.keys.clone();
                (&args.names, args.keys.iter_mut().collect())
            }
            Command::Graph(args) => (&args.names, args.lock.iter_mut().collect()),
            Command::Ls(args) => (&args.names, args.pattern.iter_mut().collect()),
            Command::Info(args) => (&args.names, vec![&mut args.lock]),
            Command::Waiters(args) => (&args.names, vec![&mut args.lock]),
            Command::Break(args) => (&args.names, std::iter::once(&mut args.lock).chain(&mut args.owner).collect()),
            Command::Cancel(args) => (&args.names, vec![&mut args.lock, &mut args.token]),
            Command::Top(_) | Command::Log(_) | Command::Adopt(_) | Command::Generate(_) => return Ok(()),
        };
        for name in written.into_iter().filter(|_| names.escaped) {
            *name = OsString::from_vec(unescaped(name.as_bytes())?);
        }
        Ok(())
    }
}

/// Conflicts that clap cannot detect: a global option may come before or after the subcommand, and clap compares it
/// only with the options on the same side.
fn contradiction(line: &CommandLine) -> Option<&'static str> {
    let to = &line.connection;
    let ways = [
        to.uri.is_some() && !to.is_from_environment,
        to.host.is_some() || to.port.is_some(),
        to.socket.is_some(),
        !to.sentinel.is_empty() || to.master.is_some(),
    ];
    if ways.into_iter().filter(|given| *given).count() > 1 {
        return Some("-u, -h and -p, -s, and --sentinel each name the server: use only one of them");
    }
    if to.sentinel.is_empty() != to.master.is_none() {
        return Some("--sentinel and --master (REDIS_LOCK_SENTINELS and REDIS_LOCK_MASTER) must be used together");
    }
    if to.cluster && (to.socket.is_some() || !to.sentinel.is_empty()) {
        return Some("-c requires a cluster node: give -u, or -h and -p");
    }
    if to.cluster && to.db.is_some_and(|db| db != 0) {
        return Some("a cluster has only database 0: -n is the database, as in redis-cli");
    }
    if to.cert.is_some() != to.key.is_some() {
        return Some("--cert and --key must be used together");
    }
    None
}

fn contradiction_of_run(subcommand: &Command) -> Option<String> {
    let Command::Run(run) = subcommand else { return None };
    if run.command.is_empty() {
        return Some(usage::no_command(&run.written));
    }
    let is_no_mutex = run.shared || run.exclusive || run.limit.is_some();
    let problem = match run.keys.len() {
        2.. if is_no_mutex => {
            "multiple keys are locked as mutexes: --shared, --exclusive and --limit cannot be used with them"
        }
        2.. if run.once => "--once takes only one key",
        129.. => "at most 128 keys can be locked at once",
        _ if has_one_twice(&run.keys) => "duplicate key: give each key only once",
        _ => return None,
    };
    Some(problem.to_string())
}

fn has_one_twice(keys: &[OsString]) -> bool {
    let mut seen = HashSet::new();
    !keys.iter().all(|key| seen.insert(key))
}

/// In a script an empty name is usually an unset variable, and the empty keys of all scripts would be the same lock.
fn no_empty() -> impl TypedValueParser<Value = OsString> {
    OsStringValueParser::new().try_map(|text| {
        if text.is_empty() {
            Err("it is empty: is a variable unset?")
        } else {
            Ok(text)
        }
    })
}

fn parse_wait_limit(text: &str) -> Result<WaitLimit, String> {
    match text {
        "forever" => Ok(WaitLimit::Forever),
        _ => parse_time(text).map(WaitLimit::For),
    }
}

/// In whole milliseconds, the unit of the server, rounded up.
fn parse_lease(text: &str) -> Result<Duration, String> {
    const MILLISECOND: Duration = Duration::from_millis(1);
    let time = at_least(MILLISECOND, text)?;
    let part = time.subsec_nanos() % 1_000_000;
    let rest = if part == 0 { Duration::ZERO } else { MILLISECOND - Duration::from_nanos(part.into()) };
    Ok(time.saturating_add(rest))
}

fn parse_interval(text: &str) -> Result<Duration, String> {
    at_least(Duration::from_millis(100), text)
}

fn at_least(shortest: Duration, text: &str) -> Result<Duration, String> {
    let time = parse_time(text)?;
    if time < shortest {
        Err(format!("must be at least {}", humantime::format_duration(shortest)))
    } else {
        Ok(time)
    }
}

fn parse_time(text: &str) -> Result<Duration, String> {
    use humantime::DurationError;
    humantime::parse_duration(text).map_err(|error| match error {
        _ if text.starts_with('-') => "a time cannot be negative".to_string(),
        DurationError::NumberOverflow => "too long".to_string(),
        DurationError::UnknownUnit { unit, .. } if unit.is_empty() => {
            format!("missing unit: {text}s, {text}ms or {text}m")
        }
        _ => "a time is a number with a unit: 500ms, 30s, 5m".to_string(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn leases_are_whole_milliseconds_and_times_do_not_overflow() {
        let lease = |text: &str| parse_lease(text).map(|time| time.as_nanos());
        assert_eq!(lease("1ms"), Ok(1_000_000));
        assert_eq!(lease("1ms 1ns"), Ok(2_000_000));
        assert_eq!(lease("1500us"), Ok(2_000_000));
        assert_eq!(lease("0.0015s"), Ok(2_000_000));
        assert_eq!(lease("999ms 999us 999ns"), Ok(1_000_000_000));
        assert!(lease("999us").is_err() && lease("0s").is_err() && lease("-1s").is_err());
        assert_eq!(lease("18446744073709551615s"), Ok(u128::from(u64::MAX) * 1_000_000_000));
        assert!(lease("18446744073709551616s").is_err());
        assert_eq!(parse_wait_limit("18446744073709551615s"), Ok(WaitLimit::For(Duration::from_secs(u64::MAX))));
    }

    #[test]
    fn the_command_line_passes_clap_debug_assert() {
        CommandLine::command().debug_assert();
    }
}

//! Compares the module with every common way to lock with Redis.
//!
//! `cargo bench --bench locks -- --help` prints the usage. The benchmark starts and stops its own servers.
//!
//! A slow timing never fails the run. A wrong reply of a lock does.

mod batch;
mod clients;
mod plots;
mod reasons;
mod report;
mod rivals;
mod scale;
mod section;
mod server;
mod stats;
mod watch;
mod workloads;

use std::io;
use std::path::{Path, PathBuf};
use std::time::Instant;

use report::Chapter;
use scale::Scale;
use section::Section;
use server::{stock, Server};
use workloads::plan::Plan;
use workloads::{adopted, base, callgrind, contended, exec, instructions, iterations, memory, pair, wakeup};

const USAGE: &str = "\
cargo bench --bench locks -- [--quick] [--only WORD] [--instructions] [--docs DIRECTORY]

  --quick            small workloads
  --only WORD        only workloads whose names contain the word
  --instructions     also those that count with valgrind (`instructions`, `adopted-instructions`, `exec`)
  --docs DIRECTORY   where to write benchmarks.md; by default a full run writes results/benchmarks.md, others nothing

  SERVERS=path,path           the servers to measure; default: redis-server from the PATH
  REDIS_LOCK_MODULE=path      the module; default: the one in this program's build folder. Without a module only the
                              rivals run
  REDIS_LOCK_FLOOR=path       the floor (benches/floor); default: the one in this program's build folder
  REDIS_LOCK_BASE=path        another build of the module: the workload `base` runs the pair and the hand-off of both
                              alternately and shows the ratios; add --only base to run only that

Workloads:";

type Workload = fn(&Plan) -> io::Result<Section>;

const WORKLOADS: &[(&str, Workload)] = &[
    ("instructions", instructions::per_pair),
    ("adopted-instructions", adopted::instructions),
    ("exec", exec::only_while_holding),
    ("iterations", iterations::longest),
    ("pair", pair::pipelined),
    ("contended", contended::no_hold),
    ("contended-10ms", contended::short_hold),
    ("fairness", contended::fairness),
    ("adopted-pollers", adopted::pollers),
    ("wakeup", wakeup::lease_end),
    ("memory", memory::locks),
    ("memory-waiters", memory::waiters),
    ("base", base::beside_base),
];

struct Options {
    scale: Scale,
    only: Option<String>,
    docs: Option<PathBuf>,
    /// Whether valgrind also counts instructions.
    instructions: bool,
}

fn main() -> std::process::ExitCode {
    match run() {
        Ok(()) => std::process::ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("benchmark: {error}");
            std::process::ExitCode::FAILURE
        }
    }
}

fn run() -> io::Result<()> {
    let Some(options) = options()? else {
        let names: Vec<&str> = WORKLOADS.iter().map(|(name, _)| *name).collect();
        println!("{USAGE} {}", names.join(", "));
        return Ok(());
    };
    let files = support::raise_file_limit()?;
    let servers = std::env::var("SERVERS").unwrap_or_else(|_| "redis-server".to_owned());
    let module = support::built_module();
    let floor = built_floor()?;
    // An absolute path, because the server runs in another directory.
    let base = std::env::var_os("REDIS_LOCK_BASE").map(std::path::absolute).transpose()?;
    let machine = machine();
    println!("{machine}; {files} open files allowed");
    match &module {
        Some(path) => println!("module: {}", path.display()),
        None => println!("module: none, the rivals run alone"),
    }
    if floor.is_none() {
        println!("floor: none; scripts/build floor makes it");
    }
    if let Some(path) = &base {
        println!("base: {}", path.display());
    }

    let start = Instant::now();
    let mut chapters = Vec::new();
    for program in servers.split(',').filter(|path| !path.is_empty()) {
        let builder = stock(Path::new(program), module.as_deref());
        let version = Server::start(&builder)?.info("server")?.version();
        println!("\n{version} ({program})");
        let (module, floor, base) = (module.clone(), floor.clone(), base.clone());
        let plan = Plan { builder, module, floor, base, scale: options.scale, files };
        let sections =
            run_workloads(&plan, &options).map_err(|error| io::Error::other(format!("on {version}: {error}")))?;
        chapters.push(Chapter { version, sections });
    }
    println!("\n{:.0} s in all", start.elapsed().as_secs_f64());
    if let Some(directory) = &options.docs {
        let mut command = options.scale.pick("make bench", "make bench-quick").to_owned();
        if let Some(word) = &options.only {
            command += &format!(" BENCH='--only {word}'");
        }
        report::write(directory, &chapters, &machine, options.scale, &command)?;
        println!("written: {}", directory.join("benchmarks.md").display());
    }
    Ok(())
}

/// Runs the selected workloads on one server, and prints the results of each.
fn run_workloads(plan: &Plan, options: &Options) -> io::Result<Vec<Section>> {
    let mut sections = Vec::new();
    for (name, run) in WORKLOADS {
        let is_wanted = options.only.as_ref().is_none_or(|word| name.contains(word.as_str()));
        let is_possible = match *name {
            "base" => plan.base.is_some(),
            "instructions" | "adopted-instructions" | "exec" => {
                options.instructions || (options.scale == Scale::Full && callgrind::has_valgrind())
            }
            _ => true,
        };
        if !is_wanted || !is_possible {
            continue;
        }
        let start = Instant::now();
        let section = run(plan).map_err(|error| io::Error::other(format!("{name}: {error}")))?;
        report::print(&section);
        println!("  [{name}: {:.0} s]", start.elapsed().as_secs_f64());
        sections.push(section);
    }
    Ok(sections)
}

/// None if the arguments ask for help.
fn options() -> io::Result<Option<Options>> {
    let mut options = Options { scale: Scale::Full, only: None, docs: None, instructions: false };
    let mut args = std::env::args().skip(1);
    while let Some(arg) = args.next() {
        let mut value = || args.next().ok_or_else(|| io::Error::other(format!("{arg} needs a value")));
        match arg.as_str() {
            "--quick" => options.scale = Scale::Quick,
            "--only" => options.only = Some(value()?),
            "--instructions" => options.instructions = true,
            "--docs" => options.docs = Some(value()?.into()),
            // Cargo adds this to every benchmark.
            "--bench" => {}
            "--help" => return Ok(None),
            other => return Err(io::Error::other(format!("unknown option {other}; see --help"))),
        }
    }
    if options.docs.is_none() && options.only.is_none() && options.scale == Scale::Full {
        options.docs = Some("results".into());
    }
    Ok(Some(options))
}

/// The module of benches/floor: `REDIS_LOCK_FLOOR`, or the one in this program's build folder.
fn built_floor() -> io::Result<Option<PathBuf>> {
    let path = match std::env::var_os("REDIS_LOCK_FLOOR") {
        Some(path) => PathBuf::from(path),
        None => {
            let program = std::env::current_exe()?;
            let profile = program.parent().and_then(Path::parent).unwrap_or(Path::new(""));
            let (prefix, suffix) = (std::env::consts::DLL_PREFIX, std::env::consts::DLL_SUFFIX);
            profile.join(format!("{prefix}redis_lock_floor{suffix}"))
        }
    };
    // An absolute path, because the server runs in another directory.
    Ok(if path.exists() { Some(std::path::absolute(path)?) } else { None })
}

/// The processor and the operating system, for the report.
fn machine() -> String {
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    let cpuinfo = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = cpuinfo.lines().find(|line| line.starts_with("model name"));
    let model = model.and_then(|line| line.split(':').nth(1)).unwrap_or("unknown processor").trim();
    let kernel = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    format!("{cores} cores of {model}, {} {}", std::env::consts::OS, kernel.trim())
}

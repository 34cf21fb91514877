//! `redis-lock generate`: generates man pages and completions for packages from the definition of the command line.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::Path;

use clap::CommandFactory;
use clap_complete::Shell;
use clap_mangen::Man;

use crate::args::{CommandLine, GenerateArgs, Generated};
use crate::error::Error;
use crate::exit_code;

const SHELLS: [Shell; 3] = [Shell::Bash, Shell::Zsh, Shell::Fish];

pub fn generate(args: GenerateArgs) -> Result<(), Error> {
    let directory = &args.directory;
    let done = fs::create_dir_all(directory).and_then(|()| match args.what {
        Generated::Man => man_pages(directory),
        Generated::Completions => completions(directory),
    });
    done.map_err(|cause| Error::Io { what: directory.display().to_string(), cause })
}

/// Writes one page for the program and one for each subcommand.
fn man_pages(directory: &Path) -> io::Result<()> {
    let mut command = CommandLine::command().disable_help_subcommand(true);
    command.build();
    for subcommand in command.get_subcommands().filter(|subcommand| !subcommand.is_hide_set()) {
        man_page(subcommand.clone(), directory)?;
    }
    man_page(command, directory)
}

fn man_page(command: clap::Command, directory: &Path) -> io::Result<()> {
    let has_subcommands = command.has_subcommands();
    let source = format!("redis-lock {}", env!("CARGO_PKG_VERSION"));
    let page = Man::new(command).source(source).manual("redis-lock");
    let mut file = File::create(directory.join(page.get_filename()))?;
    page.render_title(&mut file)?;
    page.render_name_section(&mut file)?;
    page.render_synopsis_section(&mut file)?;
    page.render_description_section(&mut file)?;
    if has_subcommands {
        page.render_subcommands_section(&mut file)?;
    }
    page.render_options_section(&mut file)?;
    let is_run = page.get_filename() == "redis-lock-run.1";
    section(&mut file, "EXIT STATUS")?;
    if is_run {
        for (status, meaning) in exit_code::STATUSES_OF_RUN {
            entry(&mut file, status, meaning)?;
        }
        paragraph(&mut file, "If the command did not run:")?;
    }
    // `run` documents its own 0 and 1.
    for (status, meaning) in exit_code::STATUSES.into_iter().filter(|(status, _)| !is_run || *status > exit_code::NO) {
        entry(&mut file, &status.to_string(), meaning)?;
    }
    if !is_run {
        paragraph(&mut file, exit_code::OF_RUN)?;
    }
    section(&mut file, "ENVIRONMENT")?;
    for (variable, meaning) in VARIABLES {
        entry(&mut file, variable, meaning)?;
    }
    if is_run {
        paragraph(&mut file, "The environment of the command has, in addition:")?;
        for (variable, meaning) in VARIABLES_OF_RUN {
            entry(&mut file, variable, meaning)?;
        }
        section(&mut file, "SIGNALS")?;
        for (signals, meaning) in SIGNALS {
            entry(&mut file, signals, meaning)?;
        }
        section(&mut file, "EXAMPLES")?;
        for (line, meaning) in EXAMPLES {
            entry(&mut file, line, meaning)?;
        }
    }
    file.flush()
}

const VARIABLES: [(&str, &str); 4] = [
    (
        "REDIS_LOCK_URL",
        "The server, like -u, if no option names one. With Sentinels, the user and password of the primary.",
    ),
    ("REDIS_LOCK_SENTINELS", "The Sentinels, like --sentinel, if no option names a server."),
    ("REDIS_LOCK_MASTER", "The name of the primary, like --master."),
    ("REDISCLI_AUTH", "The password, if neither -a nor the URI has one."),
];

const VARIABLES_OF_RUN: [(&str, &str); 4] = [
    ("REDIS_LOCK_KEY", "The key; if there are multiple keys, one per line."),
    ("REDIS_LOCK_TOKEN", "The owner, for LOCK.EXEC and LOCK.HELD."),
    ("REDIS_LOCK_FENCE", "The fencing token: the protected resource should reject smaller ones."),
    ("REDIS_LOCK_SLOT", "With --slot: the smallest number from 0 that no other holder of the semaphore has."),
];

const SIGNALS: [(&str, &str); 6] = [
    ("SIGTERM, SIGINT, SIGHUP, SIGQUIT", "Forwarded to the command and to all processes in its group."),
    ("SIGUSR1, SIGUSR2", "Forwarded to the command alone."),
    ("SIGTSTP, SIGCONT, SIGWINCH", "Forwarded to the command's group."),
    ("While it waits for the lock", "One of the first six removes the request from the queue and ends redis-lock."),
    (
        "SIGKILL",
        "Cannot be forwarded: a process named lock-watchdog ends the command's group, and the lock is released when \
         its lease expires, or at once with --session.",
    ),
    (
        "When the lock is lost",
        "The command's group gets SIGTERM and, after --kill-after, SIGKILL; likewise after a SIGKILL of redis-lock.",
    ),
];

const EXAMPLES: [(&str, &str); 6] = [
    ("redis-lock run deploy -- ./deploy.sh production", "On one machine at a time; the others wait."),
    (
        "redis-lock run --wait 30s deploy -- ./deploy.sh production",
        "Waits up to 30 seconds; exit status 1 if not granted.",
    ),
    ("redis-lock run --no-wait --at-least 4m mirror -- ./mirror", "From cron every five minutes, on every machine."),
    (
        "redis-lock run --limit 4 --slot gpu -- sh -c './train --device $REDIS_LOCK_SLOT'",
        "One of four permits, with its number.",
    ),
    (
        "redis-lock run --once --wait 10m build:42 -- ./build.sh 42",
        "Single-flight: runs that waited in the meantime skip the command.",
    ),
    ("redis-lock run orders invoices -- ./close-month.sh", "Multiple locks, all or nothing."),
];

fn section(file: &mut File, title: &str) -> io::Result<()> {
    writeln!(file, ".SH \"{title}\"")
}

fn entry(file: &mut File, term: &str, meaning: &str) -> io::Result<()> {
    writeln!(file, ".TP\n{}\n{}", escaped(term), escaped(meaning))
}

fn paragraph(file: &mut File, text: &str) -> io::Result<()> {
    writeln!(file, ".PP\n{}", escaped(text))
}

/// Escapes hyphens so that they can be copied into a shell, and lines that roff would read as a request.
fn escaped(text: &str) -> String {
    let text = text.replace('\\', "\\e").replace('-', "\\-");
    text.lines()
        .map(|line| if line.starts_with(['.', '\'']) { format!("\\&{line}") } else { line.into() })
        .collect::<Vec<_>>()
        .join("\n")
}

fn completions(directory: &Path) -> io::Result<()> {
    let mut command = CommandLine::command();
    let name = command.get_name().to_string();
    for shell in SHELLS {
        let path = clap_complete::generate_to(shell, &mut command, &name, directory)?;
        if shell == Shell::Bash {
            // clap_complete 4.6 jumps to `redis__lock__subcmd__run` but defines `redis__subcmd__lock__subcmd__run`: it
            // uses two forms of a name with a hyphen, so options of subcommands are not completed.
            // name with a hyphen has two names, and no option of a subcommand is completed.
            let script = fs::read_to_string(&path)?;
            fs::write(&path, script.replace("redis__subcmd__lock", "redis__lock"))?;
        }
    }
    Ok(())
}

//! `redis-lock generate`: man pages and completions, generated from the command line's definition. For packages.

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

/// One page for the program, and one for each subcommand.
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
    writeln!(file, ".SH \"EXIT STATUS\"")?;
    for (status, meaning) in exit_code::STATUSES {
        writeln!(file, ".TP\n{status}\n{meaning}")?;
    }
    writeln!(file, ".PP\n{}", exit_code::OF_RUN)?;
    writeln!(file, ".SH ENVIRONMENT\n.TP\nREDISCLI_AUTH\nThe password, where neither \\-a nor the URI has one.")?;
    file.flush()
}

fn completions(directory: &Path) -> io::Result<()> {
    let mut command = CommandLine::command();
    let name = command.get_name().to_string();
    for shell in SHELLS {
        let path = clap_complete::generate_to(shell, &mut command, &name, directory)?;
        if shell == Shell::Bash {
            // clap_complete 4.6 goes to `redis__lock__subcmd__run`, and describes `redis__subcmd__lock__subcmd__run`: a
            // name with a hyphen has two names, and no option of a subcommand is completed.
            let script = fs::read_to_string(&path)?;
            fs::write(&path, script.replace("redis__subcmd__lock", "redis__lock"))?;
        }
    }
    Ok(())
}

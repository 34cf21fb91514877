//! LOCK.HELP: two lines for each command of the catalog, as Redis's own HELP subcommands have them.

use super::reply_writer::ReplyWriter;
use crate::catalog::{Command, CATALOG};

/// An array of status lines: a headline, then for each command its syntax and, indented, its summary.
pub fn help(out: &mut impl ReplyWriter) {
    out.array(1 + 2 * CATALOG.len());
    out.status("The commands of redis-lock are:");
    for command in CATALOG {
        out.status(&syntax(command));
        out.status(&format!("    {}", command.summary));
    }
}

fn syntax(command: &Command) -> String {
    let args = command.args.iter().map(|arg| format!(" {arg}"));
    std::iter::once(command.name.to_string()).chain(args).collect()
}

#[cfg(test)]
mod tests {
    use super::super::recorder::{record, Written};
    use super::*;

    #[test]
    fn every_command_has_its_syntax_and_its_summary() {
        let written = record(help);
        assert_eq!(written[0], Written::Array(written.len() - 1));
        let lines: Vec<&str> = written[1..]
            .iter()
            .map(|line| match line {
                Written::Status(line) => line.as_str(),
                other => panic!("{other:?}"),
            })
            .collect();
        for command in CATALOG {
            let place = lines.iter().position(|line| line.split(' ').next() == Some(command.name));
            let place = place.unwrap_or_else(|| panic!("no line of {}", command.name));
            assert_eq!(lines[place + 1], format!("    {}", command.summary));
        }
        assert!(lines.contains(&"RLOCK.RELEASE key owner [HOLDS holds]") && lines.contains(&"LOCK.HELP"), "{lines:?}");
    }
}

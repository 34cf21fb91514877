//! LOCK.HELP.

use crate::support::{each_protocol, Reply};

#[test]
fn it_has_the_syntax_and_summary_of_every_command() {
    each_protocol(|client| {
        let help = client.run("LOCK.HELP");
        let lines: Vec<&str> = help
            .items()
            .iter()
            .map(|line| match line {
                Reply::Status(line) => line.as_str(),
                other => panic!("a line as XINFO HELP has them, not {other:?}"),
            })
            .collect();
        let commands = client.run("COMMAND LIST FILTERBY MODULE lock");
        // Subcommands are covered by their container.
        let names = commands.items().iter().map(|name| name.text().to_uppercase());
        let names: Vec<String> = names.filter(|name| !name.contains('|')).collect();
        assert_eq!(lines.len(), 1 + 2 * names.len());
        for command in names {
            let index = lines.iter().position(|line| line.split(' ').next() == Some(&command));
            let index = index.unwrap_or_else(|| panic!("no line of {command}"));
            let docs = client.cmd(&["COMMAND", "DOCS", &command]);
            let summary = docs.pairs()[0].1.get("summary").text().to_string();
            assert_eq!(lines[index + 1], format!("    {summary}"));
        }
        assert!(lines.contains(&"SEM.RELEASE key owner [PERMITS permits|HOLDS holds]"), "{lines:?}");
        assert_eq!(client.run("LOCK.HELP sem.renew").items().len(), 3);
        assert_eq!(client.run("LOCK.HELP me").error(), "ERR unknown command 'me'. Try LOCK.HELP.");
    });
}

//! `faults-table <rows> <document> <page> <day>`: replaces the last run in the document, results/faults.md (everything
//! after the heading that begins with `## Last run`), with the reported rows under a heading with the day, and the
//! figures of the page, docs/safety.md, with their sums. `faults-table <document> <page>`: updates only the page.

use std::{env, fs};

use faults::{seen, Row};

const HEADING: &str = "## Last run";

fn main() {
    let args: Vec<String> = env::args().skip(1).collect();
    let (document, page) = match args.as_slice() {
        [rows, document, page, day] => {
            let rows = Row::parse(&read(rows));
            let text = read(document);
            let (prose, _) = text.split_once(HEADING).expect("the document has the heading");
            write(document, &format!("{prose}{HEADING}, {day}\n\n{}", Row::table(&rows)));
            (document, page)
        }
        [document, page] => (document, page),
        _ => panic!("usage: faults-table [<rows>] <document> <page> [<day>]"),
    };
    let run = read(document);
    let (day, rows) = Row::last_run(&run);
    write(page, &seen::updated(&read(page), day, &rows));
}

fn read(path: &str) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{path}: {error}"))
}

fn write(path: &str, text: &str) {
    fs::write(path, text).unwrap_or_else(|error| panic!("{path}: {error}"));
}

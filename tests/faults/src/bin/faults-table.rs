//! `faults-table <rows> <document> <date>`: replaces the last run in the document (everything behind the heading that
//! begins with `## Last run`) by the reported rows, under a heading with the date.

use std::{env, fs};

use faults::Row;

const HEADING: &str = "## Last run";

fn main() {
    let args: Vec<String> = env::args().skip(1).collect();
    let [rows, document, when] = args.as_slice() else { panic!("usage: faults-table <rows> <document> <when>") };
    let rows = Row::parse(&fs::read_to_string(rows).expect("the rows can be read"));
    let text = fs::read_to_string(document).expect("the document can be read");
    let (prose, _) = text.split_once(HEADING).expect("the document has the heading");
    let table = Row::table(&rows);
    fs::write(document, format!("{prose}{HEADING}, {when}\n\n{table}")).expect("the document can be written");
}

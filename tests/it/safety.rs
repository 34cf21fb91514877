//! docs/safety.md is a test: the tests and make targets that it names exist, and its SQL has the printed output.

use std::collections::BTreeSet;
use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::pages::anchors;
use crate::support::skip::skip;

const SAFETY: &str = include_str!("../../docs/safety.md");
const MAKEFILE: &str = include_str!("../../Makefile");

/// What is between backticks, on one line.
fn quoted() -> impl Iterator<Item = &'static str> {
    SAFETY.split('`').skip(1).step_by(2).filter(|quoted| !quoted.contains('\n'))
}

#[test]
fn every_transcript_that_the_page_names_exists() {
    let named: BTreeSet<(&str, &str)> = quoted().filter_map(|quoted| quoted.split_once(".txt::")).collect();
    assert!(!named.is_empty());
    for (file, title) in named {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests").join(file).with_extension("txt");
        let chapter = fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        assert!(chapter.lines().any(|line| line == format!("# {title}")), "{} has no {title}", path.display());
    }
}

#[test]
fn every_test_that_the_page_names_exists() {
    let named: BTreeSet<(&str, &str)> = quoted().filter_map(|quoted| quoted.split_once(".rs::")).collect();
    assert!(named.len() > 20, "only {} tests were found", named.len());
    for (file, test) in named {
        let (place, file) = file.split_once('/').expect("it/… or faults/…");
        let tests = match place {
            "it" => "tests/it",
            "faults" => "tests/faults/tests/faults",
            other => panic!("there are no tests in {other}/"),
        };
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(tests).join(file).with_extension("rs");
        let source = fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        let lines: Vec<&str> = source.lines().map(str::trim).collect();
        let is_test = |pair: &[&str]| pair[0] == "#[test]" && pair[1].starts_with(&format!("fn {test}("));
        assert!(lines.windows(2).any(is_test), "{} has no test {test}", path.display());
    }
}

#[test]
fn every_make_target_that_the_page_names_exists() {
    let targets: BTreeSet<&str> = quoted().filter_map(|quoted| quoted.strip_prefix("make ")).collect();
    assert!(!targets.is_empty());
    for target in targets {
        assert!(MAKEFILE.lines().any(|line| line.starts_with(&format!("{target}:"))), "there is no make {target}");
    }
}

#[test]
fn every_link_leads_to_a_heading() {
    let anchors = anchors(SAFETY);
    for link in SAFETY.split("](#").skip(1).filter_map(|rest| rest.split(')').next()) {
        assert!(anchors.contains(link), "there is no #{link}");
    }
}

#[test]
fn late_writers_are_refused_by_the_sql_of_the_page() {
    let (_, rest) = SAFETY.split_once("```sql\n").expect("a block of SQL");
    let (sql, rest) = rest.split_once("```\n").expect("its end");
    let printed = rest.split("```").nth(1).expect("what it prints").trim_start();
    let sqlite = Command::new("sqlite3").arg(":memory:").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
    let Ok(mut sqlite) = sqlite else {
        return skip("there is no sqlite3 here");
    };
    sqlite.stdin.take().expect("it is piped").write_all(sql.as_bytes()).expect("sqlite3 reads");
    let output = sqlite.wait_with_output().expect("sqlite3 ends");
    assert_eq!(String::from_utf8(output.stdout).expect("text"), printed);
}

//! Tests docs/safety.md: its SQL produces the output that it shows, and tests/claims.md names existing tests.

use std::collections::BTreeSet;
use std::fs;
use std::io::Write;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::pages::anchors;
use crate::support::skip::skip;

const SAFETY: &str = include_str!("../../docs/safety.md");
const CLAIMS: &str = include_str!("../claims.md");
const MAKEFILE: &str = include_str!("../../Makefile");

/// The text between backticks, on one line.
fn quoted(page: &'static str) -> impl Iterator<Item = &'static str> {
    page.split('`').skip(1).step_by(2).filter(|quoted| !quoted.contains('\n'))
}

#[test]
fn every_transcript_that_the_page_names_exists() {
    let named: BTreeSet<(&str, &str)> = quoted(CLAIMS).filter_map(|quoted| quoted.split_once(".txt::")).collect();
    assert!(!named.is_empty());
    for (file, title) in named {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests").join(file).with_extension("txt");
        let chapter = fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        assert!(chapter.lines().any(|line| line == format!("# {title}")), "{} has no {title}", path.display());
    }
}

#[test]
fn every_test_that_the_page_names_exists() {
    let named: BTreeSet<(&str, &str)> = quoted(CLAIMS).filter_map(|quoted| quoted.split_once(".rs::")).collect();
    assert!(named.len() > 20, "only {} tests were found", named.len());
    for (file, test) in named {
        let (suite, file) = file.split_once('/').expect("it/… or faults/…");
        let tests = match suite {
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
    let targets: BTreeSet<&str> =
        [SAFETY, CLAIMS].into_iter().flat_map(quoted).filter_map(|quoted| quoted.strip_prefix("make ")).collect();
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

/// The SQL of the page, and the output shown below it.
fn sql_of_the_page() -> (&'static str, &'static str) {
    let (_, rest) = SAFETY.split_once("```sql\n").expect("a block of SQL");
    let (sql, rest) = rest.split_once("```\n").expect("its end");
    (sql, rest.split("```").nth(1).expect("what it prints").trim_start())
}

/// The program's output for this input; None if the program is not installed.
fn output_of(program: &mut Command, input: &str) -> Option<String> {
    let mut child = program.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().ok()?;
    child.stdin.take().expect("it is piped").write_all(input.as_bytes()).expect("it reads");
    let output = child.wait_with_output().expect("it ends");
    Some(String::from_utf8(output.stdout).expect("text"))
}

#[test]
fn late_writers_are_rejected_by_the_pages_sql_in_sqlite() {
    let (sql, printed) = sql_of_the_page();
    match output_of(Command::new("sqlite3").arg(":memory:"), sql) {
        Some(output) => assert_eq!(output, printed),
        None => skip("there is no sqlite3 here"),
    }
}

/// On a separate server, which only listens on a socket in its own directory. It does not run as root.
#[test]
fn late_writers_are_rejected_by_the_pages_sql_in_postgresql() {
    let (sql, printed) = sql_of_the_page();
    let versions = fs::read_dir("/usr/lib/postgresql").into_iter().flatten().map(|entry| entry.expect("an entry"));
    let Some(programs) = versions.map(|entry| entry.path().join("bin")).find(|bin| bin.join("initdb").exists()) else {
        return skip("there is no PostgreSQL here");
    };
    let folder = tempfile::tempdir().expect("a temporary directory");
    let folder = folder.path();
    let is_root = fs::metadata(folder).expect("it is there").uid() == 0;
    if is_root && !Command::new("chown").arg("postgres").arg(folder).status().is_ok_and(|status| status.success()) {
        return skip("there is no user postgres");
    }
    let program = |name: &str| {
        let path = programs.join(name);
        if !is_root {
            return Command::new(path);
        }
        let mut command = Command::new("runuser");
        command.args(["-u", "postgres", "--"]).arg(path);
        command
    };
    let run = |name: &str, arguments: &[&str]| {
        let mut command = program(name);
        let done = command.current_dir(folder).arg("-D").arg(folder).args(arguments).output();
        let done = done.unwrap_or_else(|error| panic!("{command:?}: {error}"));
        assert!(done.status.success(), "{command:?}: {}", String::from_utf8_lossy(&done.stderr));
    };
    run("initdb", &["--auth=trust", "--username=postgres", "--no-sync"]);
    let socket = folder.to_str().expect("a path in UTF-8");
    run("pg_ctl", &["start", "--wait", "--log=log", "-o", &format!("-k {socket} -h '' -F")]);
    let mut psql = program("psql");
    psql.current_dir(folder).args(["-qAtX", "-v", "ON_ERROR_STOP=1", "-U", "postgres", "-h", socket]);
    let output = output_of(&mut psql, sql);
    run("pg_ctl", &["stop", "--wait", "--mode=immediate"]);
    assert_eq!(output.as_deref(), Some(printed));
}

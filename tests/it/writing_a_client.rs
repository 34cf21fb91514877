//! clients/writing-a-client.md has every case of the conformance suite, and valid links. Its bytes are played by
//! tests/spec.

use crate::pages::anchors;
use std::collections::BTreeSet;
use std::path::Path;

const PAGE: &str = include_str!("../../clients/writing-a-client.md");
const CONFORMANCE: &str = include_str!("../../clients/conformance.md");

#[test]
fn the_page_has_each_case_of_the_conformance_suite_and_no_other() {
    let rows = CONFORMANCE.lines().skip_while(|line| !line.starts_with("| --- |")).skip(1);
    let named: BTreeSet<&str> =
        rows.take_while(|line| line.starts_with('|')).filter_map(|row| Some(row.split('|').nth(1)?.trim())).collect();
    let section = PAGE.split_once("\n## The conformance cases\n").expect("the section").1;
    let section = section.split("\n## ").next().expect("its text");
    let documented: BTreeSet<&str> = section.lines().filter_map(|line| line.strip_prefix("### ")).collect();
    assert!(named.len() > 15, "only {} cases were found", named.len());
    assert_eq!(documented, named);
}

#[test]
fn every_link_has_a_target() {
    let here = anchors(PAGE);
    let clients = Path::new(env!("CARGO_MANIFEST_DIR")).join("clients");
    for target in PAGE.split("](").skip(1).filter_map(|rest| rest.split(')').next()) {
        match target.split_once('#') {
            Some(("", name)) => assert!(here.contains(name), "there is no #{name}"),
            _ if target.starts_with("https://") => {}
            Some((file, name)) => {
                let text =
                    std::fs::read_to_string(clients.join(file)).unwrap_or_else(|error| panic!("{file}: {error}"));
                assert!(anchors(&text).contains(name), "no heading for {target}");
            }
            None => assert!(clients.join(target).exists(), "no file {target}"),
        }
    }
}

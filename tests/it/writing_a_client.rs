//! clients/writing-a-client.md is a test: the bytes of its `wire` blocks are sent to real servers, and the replies are
//! compared byte by byte. The page explains the lines of a block under "How the bytes are written".

mod play;
mod steps;
mod wire;

use crate::readme::anchors;
use play::play;
use std::collections::BTreeSet;
use std::path::Path;
use steps::{scripts, Script, Servers, Step};

const PAGE: &str = include_str!("../../clients/writing-a-client.md");
const CONFORMANCE: &str = include_str!("../../clients/conformance.md");

/// Plays all blocks for servers of this kind; at least so many.
fn play_all(least: usize, are_such: fn(&Servers) -> bool) {
    let all = scripts(PAGE);
    let scripts: Vec<&Script> = all.iter().filter(|script| are_such(&script.servers)).collect();
    assert!(scripts.len() >= least, "only {} blocks were found", scripts.len());
    scripts.into_iter().for_each(play);
}

#[test]
fn the_bytes_are_what_one_server_answers() {
    play_all(20, |servers| !matches!(servers, Servers::PrimaryAndReplica | Servers::TwoNodes));
}

#[test]
fn the_bytes_are_what_a_primary_and_its_replica_answer() {
    play_all(2, |servers| *servers == Servers::PrimaryAndReplica);
}

#[test]
fn the_bytes_are_what_the_nodes_of_a_cluster_answer() {
    play_all(2, |servers| *servers == Servers::TwoNodes);
}

#[test]
fn the_page_has_each_case_of_the_conformance_suite_and_no_other() {
    let rows = CONFORMANCE.lines().skip_while(|line| !line.starts_with("| --- |")).skip(1);
    let named: BTreeSet<&str> =
        rows.take_while(|line| line.starts_with('|')).filter_map(|row| Some(row.split('|').nth(1)?.trim())).collect();
    let section = PAGE.split_once("\n## The conformance cases\n").expect("the section").1;
    let section = section.split("\n## ").next().expect("its text");
    let told: BTreeSet<&str> = section.lines().filter_map(|line| line.strip_prefix("### ")).collect();
    assert!(named.len() > 15, "only {} cases were found", named.len());
    assert_eq!(told, named);
}

/// A block that only sends would pass whatever the server does.
#[test]
fn every_block_compares_something() {
    for script in scripts(PAGE) {
        let compares = |step: &Step| matches!(step, Step::Receives { .. } | Step::Loses { .. } | Step::Test { .. });
        assert!(script.steps.iter().any(|(_, step)| compares(step)), "line {}", script.line);
    }
}

#[test]
fn every_link_leads_somewhere() {
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

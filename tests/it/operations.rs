//! docs/operations.md: its sessions, and what it names.

use crate::readme::{anchors, type_sessions};
use crate::support::{in_sync, Server};

const DOCUMENT: &str = include_str!("../../docs/operations.md");

/// The document without a section, and that section.
fn without(heading: &str) -> (String, &'static str) {
    let begin = DOCUMENT.find(heading).unwrap_or_else(|| panic!("no section {heading}"));
    let rest = &DOCUMENT[begin + heading.len()..];
    let section = &rest[..rest.find("\n### ").expect("a section follows")];
    (DOCUMENT.replace(section, ""), section)
}

#[test]
fn the_runbook_is_what_redis_cli_prints() {
    let sessions = type_sessions(&Server::start(), "docs/operations.md", &without("### After a failover\n").0);
    assert!(sessions > 8, "only {sessions} sessions were found");
}

/// It is typed into a replica after its primary was killed.
#[test]
fn the_runbook_of_a_failover_is_what_the_new_primary_prints() {
    let mut primary = Server::start();
    let replica = Server::builder().replica_of(&primary).config("lock.grace 600000").start();
    primary.client().run("LOCK.ACQUIRE billing:april worker-7 PX 60000").fence();
    in_sync(&primary, &replica);
    primary.kill();
    assert_eq!(type_sessions(&replica, "docs/operations.md", without("### After a failover\n").1), 2);
}

#[test]
fn every_link_leads_to_a_heading() {
    let anchors = anchors(DOCUMENT);
    let links: Vec<&str> = DOCUMENT.split("](#").skip(1).filter_map(|rest| rest.split(')').next()).collect();
    assert!(links.len() > 30, "only {} links were found", links.len());
    for link in links {
        assert!(anchors.contains(link), "nothing is under #{link}");
    }
}

#[test]
fn it_names_every_field_of_info() {
    let info = Server::start().client().run("INFO lock");
    let names = info.text().lines().filter_map(|line| line.split_once(':')?.0.strip_prefix("lock_"));
    for field in names {
        let family = ["wait_ms_", "hold_ms_"].into_iter().find(|family| field.starts_with(family));
        let told = family.map_or(format!("`{field}`"), |family| format!("`{family}…`"));
        assert!(DOCUMENT.contains(&told), "docs/operations.md does not name {field}");
    }
}

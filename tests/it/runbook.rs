//! docs/runbook.md: its sessions.

use crate::readme::type_sessions;
use crate::support::{in_sync, Server};

const DOCUMENT: &str = include_str!("../../docs/runbook.md");

/// The document without a section, and that section.
fn without(heading: &str) -> (String, &'static str) {
    let begin = DOCUMENT.find(heading).unwrap_or_else(|| panic!("no section {heading}"));
    let rest = &DOCUMENT[begin + heading.len()..];
    let section = &rest[..rest.find("\n## ").expect("a section follows")];
    (DOCUMENT.replace(section, ""), section)
}

#[test]
fn the_runbook_is_what_redis_cli_prints() {
    let sessions = type_sessions(&Server::start(), "docs/runbook.md", &without("## After a failover\n").0);
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
    assert_eq!(type_sessions(&replica, "docs/runbook.md", without("## After a failover\n").1), 2);
}

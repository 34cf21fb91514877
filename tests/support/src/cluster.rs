//! Nodes of a cluster, and what they report about it.

use crate::{until, Builder, Info, Reply, Server};

/// A cluster of one node, which owns all slots.
#[track_caller]
pub fn single_node() -> Server {
    single_node_of(Server::builder())
}

/// [`single_node`] with additional configuration.
#[track_caller]
pub fn single_node_of(builder: Builder) -> Server {
    let server = builder.cluster().start();
    expect_ok(&server, "CLUSTER ADDSLOTSRANGE 0 16383");
    until_cluster(&server, "ok", 1);
    server
}

/// Adds `newcomer` to the cluster of `node`, and waits until every slot has an owner.
#[track_caller]
pub fn meet(node: &Server, newcomer: &Server) {
    let bus = node.client().run("CONFIG GET cluster-port");
    expect_ok(newcomer, &format!("CLUSTER MEET 127.0.0.1 {} {}", node.port(), bus.get("cluster-port").text()));
    for node in [node, newcomer] {
        until_cluster(node, "ok", 2);
    }
}

#[track_caller]
pub fn until_cluster(node: &Server, state: &str, known: i64) {
    let mut client = node.client();
    until(&format!("the cluster is {state}"), || {
        let info = Info::parse(client.run("CLUSTER INFO").text());
        info.text("cluster_state") == state && info.number("cluster_known_nodes") == known
    });
}

#[track_caller]
pub fn expect_ok(node: &Server, line: &str) {
    assert_eq!(node.client().run(line), Reply::ok(), "{line}");
}

#[track_caller]
pub fn node_id(node: &Server) -> String {
    node.client().run("CLUSTER MYID").text().to_string()
}

#[track_caller]
pub fn slot(node: &Server, key: &str) -> i64 {
    node.client().run(&format!("CLUSTER KEYSLOT {key}")).int()
}

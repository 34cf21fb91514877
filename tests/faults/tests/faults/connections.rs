//! Connections that end at any moment, with or without a request under way: nothing is lost but replies.

use support::Server;

use crate::load::{under_load, waiting};

#[test]
fn connections_that_are_killed_cost_nothing_but_their_replies() {
    let server = Server::start();
    let mut client = server.client();
    under_load("CLIENT KILL of all clients", &server, &waiting(), |workers| {
        workers.wait_for_grants(10);
        client.run("CLIENT KILL TYPE normal SKIPME yes");
    });
}

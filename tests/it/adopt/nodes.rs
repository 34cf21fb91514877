//! Clusters and I/O threads.

use super::*;
use crate::support::cluster::*;
use crate::support::io_threads::*;
use crate::support::Pipeline;

#[test]
fn a_cluster_redirects_and_keeps_keys_of_several_slots_apart() {
    let server =
        Server::builder().cluster().config("cluster-require-full-coverage no").config("lock.adopt *lock*").start();
    expect_ok(&server, "CLUSTER ADDSLOTSRANGE 0 8191");
    until_cluster(&server, "ok", 1);
    let mut client = server.client();
    assert!((0..8192).contains(&slot(&server, "k")) && slot(&server, "t") > 8191);
    assert!(set_nx(&mut client, "lock:{k}", "a"));
    assert_eq!(type_of(&mut client, "lock:{k}"), "redislock");
    assert_eq!(client.run("MSETNX lock:{k}1 a lock:{k}2 b"), Reply::Int(1));
    assert_eq!(client.run("MGET lock:{k}1 lock:{k}2 x{k}").items().len(), 3);
    let unserved = client.run("STRLEN lock:{t}");
    for line in ["SET lock:{t} a NX", "GET lock:{t}", "MSETNX lock:{t} a", "GETDEL lock:{t}"] {
        assert_eq!(client.run(line), unserved, "{line}");
    }
    for line in ["MSETNX lock:{k} a lock:{x} b", "MGET lock:{k} lock:{x}"] {
        assert!(client.run(line).error().starts_with("CROSSSLOT "), "{line}");
    }
    assert!(compare_and_delete(&mut client, "lock:{k}", "a"));
}

#[test]
fn a_node_of_a_cluster_sends_clients_to_the_slots_owner() {
    let first = single_node_of(Server::builder().config("lock.adopt lock:*"));
    let second = Server::builder().cluster().config("lock.adopt lock:*").start();
    meet(&first, &second);
    let mut client = second.client();
    for line in ["SET lock:k a NX PX 9", "GET lock:k", "SETNX lock:k a"] {
        assert!(client.run(line).error().starts_with("MOVED "), "{line}");
    }
}

fn pipeline(lines: &[Vec<&str>]) -> Pipeline {
    let mut pipeline = Pipeline::default();
    lines.iter().for_each(|words| pipeline.push(words));
    pipeline
}

#[test]
fn io_threads_serve_many_clients_of_adopted_locks() {
    let builders = [with_io_threads(), with_io_threads().cluster()];
    for builder in builders {
        let mut server = builder.config("lock.adopt lock:*").start();
        if server.info("cluster").number("cluster_enabled") == 1 {
            expect_ok(&server, "CLUSTER ADDSLOTSRANGE 0 16383");
            until_cluster(&server, "ok", 1);
        }
        assert_serves_many(&mut server, |number| {
            let (own, shared) = (format!("lock:{number}"), format!("lock:{{s}}{}", number % 3));
            let token = format!("t{number}");
            pipeline(&[
                vec!["SET", &own, &token, "NX", "PX", "60000"],
                vec!["GET", &own],
                vec!["EVAL", COMPARE_AND_DELETE, "1", &own, &token],
                vec!["SET", &shared, &token, "NX", "PX", "60000"],
                vec!["MGET", &shared, "plain{s}"],
                vec!["EVAL", COMPARE_AND_DELETE, "1", &shared, &token],
                vec!["SET", "plain{s}", &token],
            ])
        });
    }
}

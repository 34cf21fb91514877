//! A server in a cluster: multiple keys in one slot, and calls that the server refuses.

use crate::support::cluster::*;
use crate::support::io_threads::*;
use crate::support::waiting::*;
use crate::support::{Client, Pipeline, Reply, Server};

mod multiple_keys {
    use super::*;

    const CROSS_SLOT: &str = "CROSSSLOT Keys in request don't hash to the same slot";

    /// The three commands with these two keys.
    fn commands(first: &str, second: &str) -> [String; 3] {
        ["ACQUIRE", "RENEW", "RELEASE"].map(|verb| format!("MLOCK.{verb} 2 {first} {second} a"))
    }

    #[test]
    fn of_multiple_slots_are_refused_with_the_servers_message() {
        let server = single_node();
        let mut client = server.client();
        assert_eq!(client.run("MGET x y"), Reply::Error(CROSS_SLOT.into()));
        assert!(client.run("MLOCK.ACQUIRE 1 x a").fence() > 0);
        for line in commands("x", "y") {
            assert_eq!(client.run(&line), Reply::Error(CROSS_SLOT.into()), "{line}");
            let replies = client.pipeline(&["MULTI", &line, "EXEC"]);
            // Redis 8.6 checks the keys of a command when it is queued.
            let refusal = match &replies[2] {
                Reply::Array(replies) => &replies[0],
                Reply::Error(error) if error.starts_with("EXECABORT ") => &replies[1],
                reply => panic!("{line}: {reply:?}"),
            };
            assert_eq!(*refusal, Reply::Error(CROSS_SLOT.into()), "{line}");
            let words: Vec<_> = line.split(' ').map(|word| format!("'{word}'")).collect();
            let script = format!("return redis.call({})", words.join(","));
            let refusal = client.cmd(&["EVAL", &script, "1", "x"]);
            assert!(refusal.error().contains("CROSSSLOT"), "{line}: {refusal:?}");
        }
        assert_eq!(client.run("DBSIZE"), Reply::Int(1));
        assert_held(&mut client, "x", "a");
        assert_eq!(client.run("MLOCK.RELEASE 1 x a"), Reply::Int(1));
    }

    #[test]
    fn of_one_slot_are_acquired_in_scripts_and_transactions() {
        let server = single_node();
        let mut client = server.client();
        let replies = multi(&mut client, &["MLOCK.ACQUIRE 2 {t}x {t}y a", "MLOCK.RELEASE 2 {t}x {t}y a"]);
        assert!(replies[0].fence() > 0 && replies[1] == Reply::Int(2), "{replies:?}");
        let script = "return redis.call('MLOCK.ACQUIRE', 2, KEYS[1], KEYS[2], 'a')";
        assert!(client.cmd(&["EVAL", script, "2", "{t}x", "{t}y"]).fence() > 0);
        assert_held(&mut client, "{t}y", "a");
    }

    #[test]
    fn are_routed_by_the_first() {
        let server = Server::builder().cluster().config("cluster-require-full-coverage no").start();
        expect_ok(&server, "CLUSTER ADDSLOTSRANGE 0 8191");
        until_cluster(&server, "ok", 1);
        let mut client = server.client();
        assert!((0..8192).contains(&slot(&server, "k")) && slot(&server, "t") > 8191);
        for (mine, unserved) in commands("{k}x", "{k}y").iter().zip(commands("{t}x", "{t}y")) {
            assert!(!client.run(mine).is_error(), "{mine}");
            assert_eq!(client.run(&unserved), client.run("GET {t}x"), "{unserved}");
            assert!(client.run(&unserved).error().starts_with("CLUSTERDOWN "), "{unserved}");
        }
    }

    #[test]
    fn are_all_checked_for_permission() {
        let server = single_node();
        let mut client = server.client();
        client.run("ACL SETUSER limited on nopass +@all ~{t}x ~{t}y*");
        client.run("AUTH limited any");
        for (line, reply) in commands("{t}x", "{t}z").iter().zip(commands("{t}z", "{t}x")) {
            assert!(client.run(line).error().starts_with("NOPERM "), "{line}");
            assert!(client.run(&reply).error().starts_with("NOPERM "), "{reply}");
        }
        for line in commands("{t}x", "{t}y1") {
            assert!(!client.run(&line).is_error(), "{line}");
        }
        let keys = client.run("COMMAND GETKEYS MLOCK.ACQUIRE 3 {t}x {t}y {t}y1 a PX 5 BLOCK 0 SESSION");
        assert_eq!(keys, Reply::Array(["{t}x", "{t}y", "{t}y1"].map(Reply::bulk).into()));
    }

    /// Valkey asks for the keys on its I/O threads.
    #[test]
    fn are_acquired_by_many_clients_of_a_server_with_io_threads() {
        let mut server = single_node_of(with_io_threads());
        let pairs = |number: usize| {
            let mut pipeline = Pipeline::default();
            for n in 0..8 {
                let (first, second) = (format!("{{t}}a{number}-{n}"), format!("{{t}}b{n}"));
                pipeline.push(&["MLOCK.ACQUIRE", "2", &first, &second, "t", "PX", "50"]);
                pipeline.push(&["MLOCK.RELEASE", "2", &first, &second, "t"]);
            }
            pipeline
        };
        assert_serves_many(&mut server, pairs);
        assert_eq!(server.client().run("DBSIZE"), Reply::Int(0));
    }

    #[track_caller]
    fn assert_held(client: &mut Client, key: &str, owner: &str) {
        assert_eq!(holders(client, key), [owner], "{key}");
    }
}

/// After a call that named keys of multiple slots, Valkey 9.1 fails later calls with the same internal client with the
/// same error, whichever module makes them.
mod after_a_call_with_multiple_slots {
    use super::*;

    /// Calls for keys of multiple slots, with the internal client that the server uses next.
    #[track_caller]
    fn spoil(client: &mut Client) {
        let refused = client.cmd(&["EVAL", "return redis.call('MGET', 'x', 'y')", "0"]);
        assert!(refused.is_error(), "{refused:?}");
    }

    /// Puts many of the server's internal clients into a bad state: two are in use for each blocked client.
    #[track_caller]
    fn spoil_many(server: &Server) {
        let mut client = server.client();
        hold(&mut client, "spoilt", "a");
        let waiters: Vec<_> = (0..8)
            .map(|number| {
                spoil(&mut client);
                let owner = number.to_string();
                line_up(server, "spoilt", [owner.as_str()])
            })
            .collect();
        drop(waiters);
        server.wait_blocked(0);
        spoil(&mut client);
    }

    #[test]
    fn a_waiter_is_granted_a_lock_that_ends() {
        let server = single_node();
        spoil_many(&server);
        let mut client = server.client();
        hold(&mut client, "k", "a");
        let [mut b, mut c] = line_up(&server, "k", ["b", "c"]);
        client.run("PEXPIRE k 50");
        b.granted("b");
        (0..4).for_each(|_| spoil(&mut client));
        client.run("DEL k");
        c.granted("c");
    }

    #[test]
    fn an_mlock_request_is_granted() {
        let server = single_node();
        let mut client = server.client();
        hold(&mut client, "{t}x", "a");
        let mut b = Waiter::park(&server, "MLOCK.ACQUIRE 2 {t}x {t}y b PX 60000 BLOCK 0");
        spoil(&mut client);
        assert_eq!(client.run("LOCK.RELEASE {t}x a"), Reply::Int(1));
        b.granted("b");
        spoil(&mut client);
        assert_eq!(client.run("MLOCK.RELEASE 2 {t}x {t}y b"), Reply::Int(2));
    }

    #[test]
    fn a_channel_of_another_slot_is_refused() {
        let server = single_node();
        let mut client = server.client();
        spoil(&mut client);
        let refused = client.run("LOCK.ACQUIRE x a BLOCK 0 NOTIFY y");
        assert!(refused.error().starts_with("CROSSSLOT "), "{refused:?}");
    }
}

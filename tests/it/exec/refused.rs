//! Commands that LOCK.EXEC does not run.

use super::*;
use crate::support::waiting::*;
use crate::support::{built_caller, until, Server};

#[test]
fn commands_that_scripts_may_not_call_are_refused() {
    let server = Server::start();
    let mut client = server.client();
    hold(&mut client, "k", "a");
    for line in [
        "EVAL return_1 0",
        "EVALSHA da39a3ee5e6b4b0d3255bfef95601890afd80709 0",
        "FCALL f 0",
        "MULTI",
        "EXEC",
        "DISCARD",
        "WATCH x",
        "SUBSCRIBE ch",
        "SSUBSCRIBE ch",
        "PSUBSCRIBE ch",
        "MONITOR",
        "RESET",
        "HELLO 3",
        "AUTH x",
        "CLIENT KILL ID 1",
        "CLIENT REPLY OFF",
        "CONFIG SET maxmemory 1",
        "DEBUG SEGFAULT",
        "SHUTDOWN NOSAVE",
        "REPLICAOF NO ONE",
        "SCRIPT FLUSH",
        "FUNCTION FLUSH",
        "MODULE UNLOAD lock",
        "ACL SETUSER default off",
        "BGSAVE",
        "SYNC",
    ] {
        let reply = client.run(&format!("LOCK.EXEC k a {line}"));
        let named = line.split(' ').next().expect("a name").to_lowercase();
        let error = reply.error();
        assert!(error.starts_with(&format!("ERR LOCK.EXEC cannot run '{named}")), "{line}: {error}");
        assert!(error.ends_with("it runs only commands that scripts may call"), "{line}: {error}");
    }
    assert_in_step(&mut client);
}

#[test]
fn blocking_commands_are_refused_on_redis_7_0_and_do_not_block_elsewhere() {
    let server = Server::start();
    let is_old = server.info("server").text("redis_version").starts_with("7.0.");
    let mut client = server.client();
    hold(&mut client, "k", "a");
    for line in ["BLPOP list 0", "BRPOP list 0", "BLMOVE list other LEFT LEFT 0", "BZPOPMIN zset 0", "BZPOPMAX zset 0"]
    {
        let reply = client.run(&format!("LOCK.EXEC k a {line}"));
        if is_old {
            assert!(reply.error().starts_with("ERR LOCK.EXEC cannot run "), "{line}: {reply:?}");
        } else {
            assert!(reply.is_null(), "{line}: {reply:?}");
        }
    }
    for line in ["XREAD BLOCK 0 STREAMS stream $", "BLMPOP 0 1 list LEFT", "BZMPOP 0 1 zset MIN"] {
        let reply = client.run(&format!("LOCK.EXEC k a {line}"));
        assert!(reply.is_null(), "{line}: {reply:?}");
    }
    assert_eq!(server.blocked_clients(), 0);
}

/// A command of another module that blocks without checking whether it may. If called, it crashes the server, whichever
/// module calls it; docs/operations.md explains how to find such a command before permitting it together with
/// LOCK.EXEC.
#[test]
fn a_command_that_blocks_unconditionally_is_an_error_in_scripts_and_transactions() {
    let caller = built_caller().expect("the test module is built");
    let mut server = Server::builder().config(format!("loadmodule {}", caller.display())).start();
    let mut client = server.client();
    hold(&mut client, "k", "a");
    for line in ["TEST.BLOCK", "LOCK.EXEC k a TEST.BLOCK", "TEST.CALL LOCK.EXEC k a TEST.BLOCK"] {
        let mut script = vec!["EVAL", "return redis.call(unpack(ARGV))", "0"];
        script.extend(line.split(' '));
        for (reply, kind) in
            [(client.cmd(&script), "Lua script"), (multi(&mut client, &[line]).remove(0), "transaction")]
        {
            let expected =
                [&format!("Blocking module command called from {kind}"), "Blocking module command was refused"];
            assert!(expected.iter().any(|words| reply.error().contains(words)), "{line}: {reply:?}");
        }
    }
    assert_in_step(&mut client);
    assert!(server.is_alive());
}

#[test]
fn lock_exec_itself_is_refused_even_through_another_module() {
    let caller = built_caller().expect("the test module is built");
    let server = Server::builder().config(format!("loadmodule {}", caller.display())).start();
    let mut client = server.client();
    hold(&mut client, "k", "a");
    for line in [
        "LOCK.EXEC k a LOCK.EXEC k a SET x 1",
        "LOCK.EXEC k a lock.exec k a SET x 1",
        "LOCK.EXEC k a TEST.CALL LOCK.EXEC k a SET x 1",
        "TEST.CALL LOCK.EXEC k a TEST.CALL LOCK.EXEC k a SET x 1",
    ] {
        assert_eq!(client.run(line), Reply::Error("ERR LOCK.EXEC cannot run LOCK.EXEC".into()), "{line}");
    }
    assert_eq!(client.run("EXISTS x"), Reply::Int(0));
    assert_eq!(client.run("LOCK.EXEC k a SET x 1"), Reply::ok(), "it is not refused afterwards");
}

/// At any depth, and even if the server asks for the keys: for a user with key patterns, and for COMMAND GETKEYS.
#[test]
fn unbounded_nesting_does_not_crash_the_server() {
    let mut server = Server::start();
    let mut client = server.client();
    hold(&mut client, "k", "a");
    let mut request = vec!["COMMAND", "GETKEYS"];
    request.extend(["LOCK.EXEC", "k", "a"].repeat(20_000));
    request.extend(["GET", "x"]);
    assert!(!client.cmd(&request).is_error());
    assert!(client.cmd(&request[2..]).is_error());
    client.run("ACL SETUSER default resetkeys ~k ~x");
    assert!(client.cmd(&request[2..]).is_error());
    assert_in_step(&mut client);
    assert!(server.is_alive());
}

#[test]
fn in_an_acquire_block_is_ignored_and_session_and_notify_are_errors() {
    let server = quiet().start();
    let mut client = server.client();
    hold(&mut client, "k", "a");
    hold(&mut client, "held", "b");
    let commands = [
        "LOCK.ACQUIRE KEY a PX 60000",
        "RLOCK.ACQUIRE KEY a PX 60000",
        "RWLOCK.ACQUIRE KEY a READ PX 60000",
        "SEM.ACQUIRE KEY a LIMIT 1 PX 60000",
        "MLOCK.ACQUIRE 1 KEY a PX 60000",
    ];
    for line in commands {
        let exec = format!("LOCK.EXEC k a {line}");
        for option in ["SESSION", "BLOCK 0 NOTIFY ch"] {
            for key in ["free", "held"] {
                let reply = client.run(&format!("{} {option}", exec.replace("KEY", key)));
                assert!(reply.error().starts_with("ERR SESSION and NOTIFY "), "{line} {option}: {reply:?}");
            }
        }
        if line.starts_with("LOCK") || line.starts_with("MLOCK") {
            assert!(client.run(&format!("{} BLOCK 0", exec.replace("KEY", "held"))).is_nil(), "{line}");
        }
        assert!(client.run(&format!("{} BLOCK 0", exec.replace("KEY", "free"))).fence() > 0, "{line}");
        client.run("DEL free");
    }
    assert_eq!(queue(&mut client, "held"), [""; 0]);
    until("no client is blocked", || server.blocked_clients() == 0);
}

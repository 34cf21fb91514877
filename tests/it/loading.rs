//! Loading the module: on a server that lacks something, the load fails with a line in the log. A failed load leaves
//! nothing behind: the server continues, and the next load works.

use crate::support::cluster::expect_ok;
use crate::support::{built_caller, built_module, skip, until, Builder, Client, Reply, Server};

/// A server that loads modules by command.
fn plain() -> Server {
    Server::builder().no_module().config("enable-module-command yes").start()
}

/// MODULE LOADEX with these settings and arguments.
fn load(client: &mut Client, words: &str) -> Reply {
    let module = built_module().expect("the module is built: cargo build --release");
    let path = std::path::absolute(module).expect("a path").display().to_string();
    let words = words.split_whitespace();
    client.cmd(&["MODULE", "LOADEX", &path].into_iter().chain(words).collect::<Vec<_>>())
}

fn is_listed(client: &mut Client) -> bool {
    client.run("MODULE LIST").items().iter().any(|module| module.get("name").text() == "lock")
}

/// Triggers every call that a server could still make into a module after a failed load: connections, settings,
/// flushes, cron, commands and timers.
#[track_caller]
fn assert_continues(server: &Server) {
    let mut client = server.client();
    drop(server.client());
    assert_eq!(client.run("CONFIG SET maxmemory-samples 6"), Reply::ok());
    assert_eq!(client.run("SET k 1 PX 1"), Reply::ok());
    until("the cron has expired a key", || client.run("DBSIZE").int() == 0);
    assert_eq!(client.run("FLUSHALL"), Reply::ok());
    assert!(!client.run("INFO everything").is_error());
}

#[track_caller]
fn assert_not_loaded(server: &Server, client: &mut Client) {
    assert!(!is_listed(client));
    assert!(client.run("LOCK.ACQUIRE k a").error().starts_with("ERR unknown command"));
    assert_eq!(client.run("CONFIG GET lock.*").pairs().len(), 0);
    assert_continues(server);
}

/// Checks that it has the settings it was loaded with, grants locks, and is in its ACL category where supported.
#[track_caller]
fn assert_loads(server: &Server, client: &mut Client) {
    assert_eq!(load(client, "CONFIG lock.max-lease 70000 ARGS default-lease 60000"), Reply::ok());
    assert!(is_listed(client));
    let settings = client.run("CONFIG GET lock.*");
    let [lease, longest, grace] =
        ["lock.default-lease", "lock.max-lease", "lock.grace"].map(|name| settings.get(name).text());
    assert_eq!((lease, longest, grace), ("60000", "70000", "0"));
    client.run("LOCK.ACQUIRE k a").fence();
    assert_eq!(client.run("LOCK.RELEASE k a"), Reply::Int(1));
    if client.run("ACL CAT").items().iter().any(|category| category.text() == "lock") {
        assert!(client.run("ACL CAT lock").items().len() > 20);
    }
    assert_continues(server);
    assert!(load(client, "").is_error(), "it is loaded already");
    assert!(is_listed(client));
}

#[test]
fn a_load_that_failed_due_to_a_setting_can_be_repeated() {
    let wrong = [
        "CONFIG lock.grace -1",
        "CONFIG lock.grace soon",
        "CONFIG lock.keyspace-events soon",
        "CONFIG lock.grace 600000 CONFIG lock.max-waiters -1",
        "CONFIG lock.grace 600000 ARGS log-hold -1",
        "ARGS grace 600000 nonsense 1",
    ];
    for words in wrong {
        let server = plain();
        let mut client = server.client();
        for _ in 0..3 {
            let reply = load(&mut client, words);
            assert!(reply.is_error(), "{words}: {reply:?}");
            assert_not_loaded(&server, &mut client);
        }
        let log = server.log();
        assert!(log.contains("redis-lock: not loaded: "), "{words}:\n{log}");
        assert_loads(&server, &mut client);
    }
}

/// If the module is in the configuration file, the server exits and logs why.
#[test]
fn a_server_does_not_start_with_an_invalid_setting() {
    for line in ["lock.grace -1", "lock.max-lease soon", "lock.keyspace-events soon"] {
        let Err(log) = Server::builder().config(line).try_start() else { panic!("it started with {line}") };
        assert!(log.contains("redis-lock: not loaded: invalid value for a setting"), "{line}:\n{log}");
    }
}

/// The server detects an unknown setting only after the load. Then it unloads the module, or cannot.
#[test]
fn an_unknown_setting_does_not_crash_the_server() {
    let mut server = plain();
    let version = server.info("server").version();
    let mut client = server.client();
    let words = "CONFIG lock.grace 600000 CONFIG lock.nonsense 1";
    if ["Redis 7.2.", "Redis 7.4.", "Valkey "].iter().any(|ends| version.starts_with(ends)) {
        return skip("this server ends after a MODULE LOADEX with an unknown setting, if the module has a data type");
    }
    let reply = load(&mut client, words);
    assert!(reply.is_error(), "{reply:?}");
    assert_continues(&server);
    if is_listed(&mut client) {
        assert!(version.starts_with("Redis 7.0."), "a server that cannot unload a module with a data type: {version}");
        assert!(client.run("LOCK.ACQUIRE k a").error().starts_with("GRACE "), "it has the given settings");
    } else {
        assert_not_loaded(&server, &mut client);
        assert_loads(&server, &mut client);
    }
    assert!(server.is_alive());
}

#[test]
fn a_grace_that_begins_with_the_load_is_logged_even_without_requests() {
    let server = plain();
    assert_eq!(load(&mut server.client(), "CONFIG lock.grace 600000"), Reply::ok());
    until("the log shows the grace period", || server.log().contains("grace"));
}

#[test]
fn it_does_not_load_if_a_required_function_is_missing() {
    let version = Server::builder().no_module().start().info("server").version();
    if !["Redis 7.0.0", "Redis 7.0.1", "Redis 7.0.2", "Redis 7.0.3", "Redis 7.0.4"].contains(&version.as_str()) {
        return skip("this server has all functions that the module calls");
    }
    let Err(log) = Server::builder().try_start() else { panic!("it started on {version}") };
    let line = "redis-lock: not loaded: this server lacks RedisModule_GetAbsExpire, available since Redis 7.0.5";
    assert!(log.contains(line), "{log}");
}

#[track_caller]
fn assert_does_not_start(builder: Builder, command: &str) {
    let Err(log) = builder.try_start() else { panic!("it started without {command}") };
    assert!(log.contains(&format!("redis-lock: not loaded: the server has no {command} command ")), "{log}");
}

/// Without DEL, a release would reach neither replicas nor the append-only file.
#[test]
fn it_does_not_load_if_del_was_renamed() {
    for line in ["rename-command DEL \"\"", "rename-command DEL REMOVE"] {
        assert_does_not_start(Server::builder().config(line), "DEL");
        let primary = Server::start();
        assert_does_not_start(Server::builder().config(line).replica_of(&primary).appendonly(), "DEL");
    }
}

#[test]
fn it_does_not_load_in_a_cluster_if_exists_was_renamed() {
    let line = "rename-command EXISTS \"\"";
    assert_does_not_start(Server::builder().config(line).cluster(), "EXISTS");
    let server = Server::builder().config(line).start();
    server.client().run("MLOCK.ACQUIRE 2 k other a").fence();
}

/// Slots are compared without the server's help.
#[test]
fn a_cluster_needs_no_command_to_know_the_slots_of_keys() {
    let server = Server::builder().config("rename-command CLUSTER HIDDEN").cluster().start();
    expect_ok(&server, "HIDDEN ADDSLOTSRANGE 0 16383");
    let mut client = server.client();
    until("the cluster is ok", || client.run("HIDDEN INFO").text().contains("cluster_state:ok"));
    client.run("MLOCK.ACQUIRE 2 {k}1 {k}2 a").fence();
    let apart = client.run("MLOCK.ACQUIRE 2 k other a");
    assert!(apart.error().starts_with("CROSSSLOT "), "{apart:?}");
    assert!(client.run("LOCK.EXEC {k}1 a GET other").error().starts_with("CROSSSLOT "));
    assert!(client.run("LOCK.EXEC {k}1 a GET {k}3").is_null());
}

/// A user with permission for everything except the categories `admin` and `dangerous`.
#[track_caller]
fn assert_break_is_dangerous(server: &Server) {
    let mut client = server.client();
    client.run("ACL SETUSER worker on nopass ~* +@all -@admin -@dangerous");
    client.run("AUTH worker any");
    client.run("LOCK.ACQUIRE k a").fence();
    for line in ["LOCK.BREAK k", "LOCK.TOP", "LOCK.LOG GET"] {
        assert!(client.run(line).error().starts_with("NOPERM "), "{line}");
    }
    assert_eq!(client.run("LOCK.RELEASE k a"), Reply::Int(1));
}

/// Whether modules can add categories; skips the test on Redis 7.0 and 7.2, where they cannot.
fn skips_categories() -> bool {
    let has_categories =
        Server::start().client().run("ACL CAT").items().iter().any(|category| category.text() == "lock");
    if !has_categories {
        skip("modules cannot add ACL categories to this server");
    }
    !has_categories
}

#[test]
fn commands_are_in_their_categories_even_if_another_module_owns_the_category() {
    if skips_categories() {
        return;
    }
    let caller = built_caller().expect("the test module is built: cargo build --workspace");
    let server = plain();
    let mut client = server.client();
    let caller = caller.display().to_string();
    assert_eq!(client.cmd(&["MODULE", "LOAD", &caller, "lock"]), Reply::ok());
    assert_eq!(load(&mut client, ""), Reply::ok());
    assert!(server.log().contains("has added the ACL category 'lock'"), "{}", server.log());
    assert_break_is_dangerous(&server);
}

/// A server supports 64 categories, including its own.
#[test]
fn commands_are_in_the_servers_categories_if_no_other_can_be_added() {
    if skips_categories() {
        return;
    }
    let caller = built_caller().expect("the test module is built: cargo build --workspace").display().to_string();
    let server = plain();
    let mut client = server.client();
    let own = client.run("ACL CAT").items().len();
    let names: Vec<String> = (own..64).map(|number| format!("category-{number}")).collect();
    let words = ["MODULE", "LOAD", &caller].map(String::from).into_iter().chain(names);
    assert_eq!(client.cmd(&words.collect::<Vec<_>>()), Reply::ok());
    assert_eq!(load(&mut client, ""), Reply::ok());
    assert!(!client.run("ACL CAT").items().iter().any(|category| category.text() == "lock"));
    assert_break_is_dangerous(&server);
}

#[test]
fn commands_are_in_their_categories_after_a_load_that_failed() {
    if skips_categories() {
        return;
    }
    let server = plain();
    let mut client = server.client();
    assert!(load(&mut client, "CONFIG lock.grace -1").is_error());
    assert_eq!(load(&mut client, ""), Reply::ok());
    assert_break_is_dangerous(&server);
    client.run("ACL SETUSER reader on nopass ~* +@lock");
    client.run("AUTH reader any");
    client.run("LOCK.ACQUIRE k a").fence();
}

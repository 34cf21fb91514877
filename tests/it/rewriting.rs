//! CONFIG REWRITE, which each Sentinel failover runs, adds a `loadmodule` line for a module that came from an included
//! file or from an argument. The next start then loads the module twice, and fails. So each documented way of loading
//! is started, rewritten and restarted, twice.

use std::fs::{self, Permissions};
use std::io::ErrorKind;
use std::os::unix::fs::{symlink, MetadataExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::{absolute, Path, PathBuf};
use std::process::{Child, Command, Stdio};

use crate::pages::documents;
use crate::support::skip::skip;
use crate::support::waiting::{hold, LONG};
use crate::support::{built_module, die_with_parent, free_port, until, Builder, Client, Reply, Server};

fn module() -> String {
    let module = built_module().expect("the module is built: cargo build --release");
    absolute(module).expect("a path").display().to_string()
}

/// A server without the test harness's own `loadmodule` line, which restarts with the file that CONFIG REWRITE left.
fn with_lines<'a>(lines: impl IntoIterator<Item = &'a str>) -> Builder {
    let module = module();
    let lines = lines.into_iter().map(|line| line.replace("MODULE", &module));
    lines.fold(Server::builder().no_module().keeps_file(), |builder, line| builder.config(line))
}

fn settings(client: &mut Client) -> Vec<(String, String)> {
    let reply = client.run("CONFIG GET lock.*");
    let mut settings: Vec<_> =
        reply.pairs().iter().map(|(name, value)| (name.text().to_string(), value.text().to_string())).collect();
    settings.sort();
    settings
}

/// Checks that the server restarts with the same settings and locks.
#[track_caller]
fn assert_survives(builder: Builder, way: &str) {
    let mut server = builder.config("appendonly yes").config("appendfsync always").start();
    let expected = settings(&mut server.client());
    assert!(expected.len() > 5, "{way}: {expected:?}");
    // lock.grace is short where it is set.
    let fence = server.client().run(&format!("LOCK.ACQUIRE kept a {LONG} BLOCK 0")).fence();
    for _ in 0..2 {
        assert_eq!(server.client().run("CONFIG REWRITE"), Reply::ok(), "{way}");
        server.stop();
        if let Err(log) = server.try_restart() {
            let file = fs::read_to_string(server.config_file()).expect("a configuration");
            panic!("{way}: it does not restart:\n{log}\n{file}");
        }
        assert_eq!(settings(&mut server.client()), expected, "{way}");
        assert_eq!(server.client().run("LOCK.HELD kept a").items()[0].int(), fence, "{way}");
    }
    let file = fs::read_to_string(server.config_file()).expect("a configuration");
    let lines = file.lines().filter(|line| line.starts_with("loadmodule ") && line.contains("redis_lock"));
    assert_eq!(lines.count(), 1, "{way}: {file}");
}

#[test]
fn a_loadmodule_line_of_the_configuration_file_survives_with_its_arguments_and_settings() {
    let ways: [&[&str]; 5] = [
        &["loadmodule MODULE"],
        &["loadmodule MODULE", "lock.grace 5", "lock.keyspace-events yes"],
        &["lock.grace 5", "loadmodule MODULE"],
        &["loadmodule MODULE grace 5 default-lease 7000"],
        &["loadmodule MODULE grace 5", "lock.grace 6"],
    ];
    for lines in ways {
        assert_survives(with_lines(lines.iter().copied()), &format!("{lines:?}"));
    }
    let argued = with_lines(["loadmodule MODULE"]).arg("--lock.grace").arg("5");
    assert_survives(argued, "a setting as an argument");
    let folder = tempfile::tempdir().expect("a folder");
    let included = folder.path().join("settings.conf");
    fs::write(&included, "lock.grace 5\n").expect("written");
    let include = format!("include {}", included.display());
    assert_survives(with_lines(["loadmodule MODULE", &include]), "settings in an included file");
}

#[test]
fn settings_changed_at_run_time_survive_a_rewrite() {
    let mut server = with_lines(["loadmodule MODULE grace 5"]).start();
    let mut client = server.client();
    for line in ["CONFIG SET lock.grace 0", "CONFIG SET lock.default-lease 7000", "CONFIG REWRITE"] {
        assert_eq!(client.run(line), Reply::ok(), "{line}");
    }
    server.stop();
    server.restart();
    let settings = server.client().run("CONFIG GET lock.*");
    let [grace, lease] = ["lock.grace", "lock.default-lease"].map(|name| settings.get(name).text());
    assert_eq!((grace, lease), ("0", "7000"));
}

#[test]
fn a_module_loaded_by_command_survives_only_with_a_rewrite() {
    let mut server = with_lines(["enable-module-command yes"]).start();
    let is_loaded = |server: &Server| !settings(&mut server.client()).is_empty();
    let load = ["MODULE", "LOADEX", &module(), "CONFIG", "lock.grace", "5", "ARGS", "default-lease", "7000"];
    assert_eq!(server.client().cmd(&load), Reply::ok());
    server.stop();
    server.restart();
    assert!(!is_loaded(&server));
    assert_eq!(server.client().cmd(&load), Reply::ok());
    let expected = settings(&mut server.client());
    for _ in 0..2 {
        assert_eq!(server.client().run("CONFIG REWRITE"), Reply::ok());
        server.stop();
        server.restart();
        assert_eq!(settings(&mut server.client()), expected);
    }
}

/// Why no page recommends these. If a server did restart here, the pages could be simpler.
#[test]
fn a_module_from_an_included_file_or_an_argument_is_loaded_twice_after_a_rewrite() {
    let folder = tempfile::tempdir().expect("a folder");
    let included = folder.path().join("lock.conf");
    fs::write(&included, format!("loadmodule {}\n", module())).expect("written");
    let include = format!("include {}", included.display());
    let ways = [with_lines([include.as_str()]), with_lines([]).arg("--loadmodule").arg(module())];
    for way in ways {
        let mut server = way.start();
        assert_eq!(server.client().run("CONFIG REWRITE"), Reply::ok());
        server.stop();
        let log = server.try_restart().expect_err("it starts with two loadmodule lines");
        assert!(log.contains("redis-lock: not loaded: "), "{log}");
    }
}

/// `docker run redis-lock-redis`, the README of an archive, the platform tests.
#[test]
fn a_server_without_a_file_has_nothing_to_rewrite_and_may_load_by_argument() {
    let folder = tempfile::tempdir().expect("a folder");
    let program = program();
    for _ in 0..2 {
        let port = free_port().to_string();
        let mut command = Command::new(&program);
        command.args(["--port", &port, "--save", "", "--loadmodule", &module()]).current_dir(folder.path());
        let server = Process::start(command, port.parse().expect("a port"));
        let refused = server.client().run("CONFIG REWRITE");
        assert!(refused.error().contains("without a config file"), "{refused:?}");
        hold(&mut server.client(), "k", "a");
    }
}

/// The files that this project distributes.
#[test]
fn each_packaged_configuration_survives() {
    let unit = include_str!("../../packaging/systemd/lock-server.conf");
    let manifest = include_str!("../../packaging/kubernetes/lock-server.yaml");
    let (_, of_the_pod) = manifest.split_once("  redis.conf: |\n").expect("a configuration");
    let (of_the_pod, _) = of_the_pod.split_once("---\n").expect("its end");
    let example = include_str!("../../redis.conf.example").replace("\n# loadmodule ", "\nloadmodule ");
    for (name, text) in [("systemd", unit), ("kubernetes", of_the_pod), ("redis.conf.example", &example)] {
        let lines = text.lines().map(str::trim).filter(|line| {
            !line.is_empty() && !["#", "port ", "bind ", "dir "].iter().any(|begin| line.starts_with(begin))
        });
        let module = module();
        let own = |line: &str| match line.strip_prefix("loadmodule ") {
            Some(_) => format!("loadmodule {module}"),
            None => line.to_string(),
        };
        let lines: Vec<String> = lines.map(own).collect();
        assert!(lines.iter().any(|line| line.starts_with("loadmodule ")), "{name}");
        assert_survives(with_lines(lines.iter().map(String::as_str)), name);
    }
}

/// In the directory that the page creates for it. Needs root, which may start a server as another user.
#[test]
fn the_user_of_the_unit_may_rewrite_its_file() {
    const USER: u32 = 65_534;
    let unit = include_str!("../../packaging/systemd/redis-lock-server.service");
    let of_unit = |name: &str| unit.lines().find_map(|line| line.strip_prefix(name)).expect("a line of the unit");
    let file = of_unit("ExecStart=").split(' ').nth(1).expect("its configuration");
    let (home, name) = file.rsplit_once('/').expect("a path");
    assert_eq!(of_unit("ReadWritePaths="), home);
    let page = include_str!("../../docs/managed.md");
    let typed: Vec<&str> =
        page.lines().map(str::trim).filter(|line| line.starts_with("install ") && line.contains(home)).collect();
    assert_eq!(typed.len(), 2, "{typed:?}");
    let folder = tempfile::tempdir().expect("a folder");
    if fs::metadata(folder.path()).expect("a folder").uid() != 0 {
        return skip("only root may start a server as another user");
    }
    let as_user = Command::new(program()).arg("--version").current_dir("/").uid(USER).gid(USER).output();
    if as_user.is_err_and(|error| error.kind() == ErrorKind::PermissionDenied) {
        return skip("another user may not run this server, which lies in a home directory");
    }
    fs::set_permissions(folder.path(), Permissions::from_mode(0o755)).expect("readable");
    let own_module = folder.path().join("libredis_lock.so");
    fs::copy(module(), &own_module).expect("the module");
    let own_home = folder.path().join("etc");
    for line in typed {
        let names = format!("-o {USER} -g {USER}");
        let (user, group) = (of_unit("User="), of_unit("Group="));
        let own = line.replace(&format!("-o {user} -g {group}"), &names);
        assert_ne!(own, line, "it belongs to the unit's user");
        let own = own.replace(home, own_home.to_str().expect("a path"));
        assert!(Command::new("sh").args(["-c", &own]).current_dir(root()).status().expect("sh").success());
    }
    let own_file = own_home.join(name);
    let text = fs::read_to_string(&own_file).expect("the configuration");
    let text = text.replace("/usr/lib/redis/modules/libredis_lock.so", own_module.to_str().expect("a path"));
    let port = free_port();
    let text = text.replace("port 6390", &format!("port {port}"));
    fs::write(&own_file, text.replace("/var/lib/redis-lock", own_home.to_str().expect("a path"))).expect("written");
    let mut command = Command::new(program());
    command.arg(&own_file).current_dir(&own_home).uid(USER).gid(USER);
    let server = Process::start(command, port);
    assert_eq!(server.client().run("CONFIG REWRITE"), Reply::ok());
    hold(&mut server.client(), "k", "a");
}

/// Even if it is typed again after an upgrade.
#[test]
fn the_pages_line_is_written_once() {
    let page = include_str!("../../docs/operations.md");
    let (_, typed) = page.split_once("\n    grep -q ").expect("the line");
    let (typed, _) = typed.split_once("\n    systemctl ").expect("its end");
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("redis.conf");
    fs::write(&file, "# loadmodule /path/to/libredis_lock.so\n").expect("written");
    let own = typed.replace("/etc/redis/redis.conf", file.to_str().expect("a path"));
    let own = own.replace("/usr/lib/redis/modules/libredis_lock.so", &module());
    for _ in 0..2 {
        assert!(Command::new("sh").args(["-c", &format!("grep -q {own}")]).status().expect("sh").success());
    }
    let text = fs::read_to_string(&file).expect("the file");
    assert_survives(with_lines(text.lines()), "the line of the page");
}

/// As `make run` writes it (scripts/run).
#[test]
fn make_run_writes_the_line_to_its_configuration_file() {
    let script = include_str!("../../scripts/run");
    let (_, begin) = script.split_once("# the configuration\n").expect("with a new file");
    let (lines, _) = begin.split_once("# end of it\n").expect("the end");
    let folder = tempfile::tempdir().expect("a folder");
    let here = folder.path().display();
    let made = format!("set -eu\ndata={here}\nmodule={}\n{lines}", module());
    assert!(Command::new("bash").args(["-c", &made]).current_dir(root()).status().expect("bash").success());
    let text = fs::read_to_string(folder.path().join("redis.conf")).expect("the file");
    let lines = text.lines().filter(|line| !["bind ", "port "].iter().any(|begin| line.starts_with(begin)));
    assert_survives(with_lines(lines), "make run");
}

/// It passes the modules in its directory as arguments, unless the file names them.
#[test]
fn the_entrypoint_of_the_images_loads_each_module_once() {
    let folder = tempfile::tempdir().expect("a folder");
    let modules = folder.path().join("modules");
    let programs = folder.path().join("programs");
    for path in [&modules, &programs] {
        fs::create_dir(path).expect("a folder");
    }
    let loaded = modules.join("libredis_lock.so");
    fs::copy(module(), &loaded).expect("the module");
    let server = program();
    let name = if server.to_string_lossy().contains("valkey") { "valkey-server" } else { "redis-server" };
    symlink(server, programs.join(name)).expect("a link");
    symlink(on_path("grep"), programs.join("grep")).expect("a link");
    let script = include_str!("../../packaging/images/redis-lock-entrypoint");
    let entrypoint = folder.path().join("entrypoint");
    let own = script.replace("=/usr/local/lib/redis/modules\n", &format!("={}\n", modules.display()));
    assert_ne!(own, script);
    fs::write(&entrypoint, own).expect("the script");
    let file = folder.path().join("node.conf");
    // With a `loadmodule` line of the user, as pages of other images may recommend, and without.
    for line in ["", "loadmodule MODULE\n", "  LoadModule \"MODULE\"\n"] {
        fs::write(&file, line.replace("MODULE", loaded.to_str().expect("a path"))).expect("written");
        for _ in 0..3 {
            let port = free_port();
            let mut command = Command::new("/bin/sh");
            command.arg(&entrypoint).arg("node.conf").args(["--port", &port.to_string(), "--save", ""]);
            command.current_dir(folder.path()).env("PATH", &programs);
            let server = Process::start(command, port);
            hold(&mut server.client(), "k", "a");
            assert_eq!(server.client().run("CONFIG REWRITE"), Reply::ok(), "{line}");
        }
    }
}

/// A real Sentinel rewrites the files of both servers. Both restart.
#[test]
fn both_servers_restart_after_a_failover() {
    let own = ["loadmodule MODULE", "lock.default-lease 7000", "repl-diskless-sync-delay 0"];
    let mut primary = with_lines(own).start();
    let mut replica = with_lines(own).replica_of(&primary).start();
    until("the replica is in sync", || replica.info("replication").text("master_link_status") == "up");
    let sentinel = Server::builder()
        .sentinel()
        .config(format!("sentinel monitor locks 127.0.0.1 {} 1", primary.port()))
        .config("sentinel down-after-milliseconds locks 3000")
        .config("sentinel failover-timeout locks 5000")
        .start();
    // If both were a second, the time between two pings would equal the silence that counts as a failure, and a ping on
    // a connection that Sentinel itself has closed would cause another failover. The other settings make it faster, as
    // in the fault tests.
    for line in ["ping-period 400", "publish-period 250", "info-period 250", "tilt-trigger 60000"] {
        assert_eq!(sentinel.client().run(&format!("SENTINEL DEBUG {line}")), Reply::ok(), "{line}");
    }
    let replicas = |sentinel: &Server| sentinel.info("sentinel").text("master0").contains("slaves=1");
    until("Sentinel knows the replica", || replicas(&sentinel));
    primary.kill();
    let current_primary =
        || sentinel.client().run("SENTINEL GET-MASTER-ADDR-BY-NAME locks").items()[1].text().to_string();
    until("the replica is promoted, and Sentinel says so", || current_primary() == replica.port().to_string());
    primary.restart();
    // Checked in the files, because Sentinel closes client connections when it makes a server a replica.
    let is_rewritten = |server: &Server, words: &str| {
        let file = fs::read_to_string(server.config_file()).expect("a configuration");
        file.contains("Generated by CONFIG REWRITE") && file.contains("\nreplicaof ") == (words == "replica")
    };
    until("both files are rewritten", || is_rewritten(&primary, "replica") && is_rewritten(&replica, "primary"));
    // It would also close connections of restarting servers.
    drop(sentinel);
    for server in [&mut primary, &mut replica] {
        server.kill();
        server.restart();
        let lease = server.client().run("CONFIG GET lock.default-lease");
        assert_eq!(lease.get("lock.default-lease").text(), "7000");
    }
    assert_eq!(replica.info("replication").text("role"), "master");
    hold(&mut replica.client(), "k", "a");
}

/// A page that documents another way needs a test above.
#[test]
fn no_page_or_script_documents_another_way() {
    let mut ways = 0;
    let mut texts = documents();
    for path in ["redis.conf.example", "Makefile", "scripts/run", "packaging/debian/README.Debian"] {
        texts.push((path.into(), fs::read_to_string(root().join(path)).expect("a file")));
    }
    for (path, text) in texts {
        let is_documented = |line: &&str| !path.starts_with("CHANGELOG.md") && line.contains("loadmodule");
        for line in text.lines().filter(is_documented) {
            ways += 1;
            // It is an argument only if the command names no file; with `…` it is not a command.
            let command = line.split('`').find(|code| code.contains("--loadmodule") && !code.contains('…'));
            assert!(!command.is_some_and(|command| command.contains(".conf")), "{}: {line}", path.display());
        }
        let included = text.lines().find(|line| line.trim_start().starts_with("include /usr"));
        assert_eq!(included, None, "{}", path.display());
    }
    assert!(ways > 10, "only {ways} lines were found");
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// The server under test.
fn program() -> PathBuf {
    let named = PathBuf::from(std::env::var_os("REDIS_SERVER").unwrap_or_else(|| "redis-server".into()));
    let is_name = named.components().count() == 1;
    if is_name {
        on_path(named.to_str().expect("a name"))
    } else {
        absolute(named).expect("a path")
    }
}

fn on_path(name: &str) -> PathBuf {
    let path = std::env::var_os("PATH").expect("a PATH");
    std::env::split_paths(&path).map(|folder| folder.join(name)).find(|path| path.is_file()).expect("a program")
}

/// A server that was not started by the test harness.
struct Process {
    process: Child,
    port: u16,
}

impl Process {
    #[track_caller]
    fn start(mut command: Command, port: u16) -> Process {
        die_with_parent(&mut command);
        let process = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().expect("a server");
        let mut server = Process { process, port };
        until("the server replies", || {
            if server.process.try_wait().expect("a child").is_some() {
                let mut log = String::new();
                let output = server.process.stdout.as_mut().expect("its output");
                std::io::Read::read_to_string(output, &mut log).expect("text");
                panic!("it has ended:\n{log}");
            }
            let is_up = || Client::try_connect(port)?.try_cmd(&["PING"]);
            is_up().is_ok_and(|reply| !reply.is_error())
        });
        server
    }

    fn client(&self) -> Client {
        Client::connect(self.port)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // An error means that it has already ended.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

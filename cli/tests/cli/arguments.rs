use crate::tool::{redis_lock, redis_lock_with};

#[test]
fn invalid_arguments_exit_with_64_and_the_reason() {
    let cases = [
        ("", "Usage: redis-lock"),
        ("nonsense", "unrecognized subcommand"),
        ("info", "<KEY>"),
        ("run k", "missing command: redis-lock run k -- COMMAND"),
        ("run k true", "put the command after `--`: redis-lock run k -- true"),
        ("run --no-wait k sleep 5", "put the command after `--`: redis-lock run k -- sleep 5"),
        ("run k ls -l", "the command with its own after it: redis-lock run KEY -- COMMAND"),
        ("run -w 5 k -- true", "--wait 30s waits up to 30 seconds (flock -w 30)"),
        ("run -E 5 k -- true", "--conflict-exit-code STATUS"),
        ("run -x k -- true", "--exclusive"),
        ("run -n k -- true", "-n is the database, as in redis-cli; flock's -n is --no-wait, consul lock's is --limit"),
        ("run -s k -- true", "flock's -s is --shared"),
        ("run -- true", "<KEY>"),
        ("run a b --shared -- true", "multiple keys are locked as mutexes"),
        ("run a b --limit 2 -- true", "multiple keys are locked as mutexes"),
        ("run a --shared --limit 2 -- true", "cannot be used with"),
        ("run a --no-wait --wait 1s -- true", "cannot be used with"),
        ("run a --limit 0 -- true", "0 is not in 1..=1000000"),
        ("run a --slot -- true", "--limit"),
        ("run a --at-least 0s -- true", "at least 1ms"),
        ("run a --at-least 1s --session -- true", "cannot be used with"),
        ("run a --once --at-least 1s -- true", "cannot be used with"),
        ("run a --once --no-wait -- true", "cannot be used with"),
        ("run a --once --limit 2 -- true", "cannot be used with"),
        ("run a --once --shared -- true", "cannot be used with"),
        ("run a b --once -- true", "--once takes only one key"),
        ("run a b a -- true", "duplicate key: give each key only once"),
        ("run a a --once -- true", "--once takes only one key"),
        ("run a --wait 30 -- true", "'30' for '--wait <TIME>': missing unit: 30s, 30ms or 30m"),
        ("run a --wait=-5s -- true", "'-5s' for '--wait <TIME>': a time cannot be negative"),
        ("run a --kill-after=-5s -- true", "'-5s' for '--kill-after <TIME>': a time cannot be negative"),
        ("run a --lease soon -- true", "a time is a number with a unit: 500ms, 30s, 5m"),
        ("run a --wait 99999999999999999999s -- true", "too long"),
        ("run a --lease 0s -- true", "at least 1ms"),
        ("-h x -u redis://y ls", "use only one of them"),
        ("-s x ls -p 1", "use only one of them"),
        (
            "--sentinel x:1 ls",
            "--sentinel and --master (REDIS_LOCK_SENTINELS and REDIS_LOCK_MASTER) must be used together",
        ),
        ("ls --master m", "--sentinel and --master (REDIS_LOCK_SENTINELS and REDIS_LOCK_MASTER) must be used together"),
        ("-c -s /x ls", "-c requires a cluster node"),
        ("-c -n 1 ls", "a cluster has only database 0"),
        ("--tls --cert x ls", "--cert and --key must be used together"),
        ("-u nonsense ls", "redis-lock: -u is not the URI of a server: redis://"),
        ("--sentinel x,,y --master m ls", "has an address that is neither host:port nor redis://"),
        ("top --json", "--once"),
        ("top --once --interval 1ms", "at least 100ms"),
        ("top --once --count 1001", "1001 is not in 1..=1000"),
        ("top", "top requires a terminal"),
        ("graph --locks 1001", "1001 is not in 1..=1000"),
        ("graph --waiters 0", "0 is not in 1..=10000"),
        ("graph --dot --json", "cannot be used with"),
        ("log --count 0", "0 is not in 1.."),
    ];
    for (line, reason) in cases {
        let output = redis_lock(line);
        assert_eq!((output.status, output.stdout.as_str()), (64, ""), "{line}: {}", output.stderr);
        assert!(output.stderr.contains(reason), "{line}: {}", output.stderr);
        // That hint would run a command named `-w`.
        assert!(!line.starts_with("run") || !output.stderr.contains("use '-- -"), "{line}: {}", output.stderr);
    }
}

#[test]
fn an_empty_key_is_rejected() {
    for line in [
        &["run", "", "--", "true"][..],
        &["run", "a", "", "--", "true"],
        &["info", ""],
        &["waiters", ""],
        &["break", ""],
        &["break", "k", "--owner", ""],
        &["cancel", "", "w"],
        &["cancel", "k", ""],
        &["graph", ""],
    ] {
        let output = redis_lock_with(line);
        assert_eq!((output.status, output.stdout.as_str()), (64, ""), "{line:?}: {}", output.stderr);
        assert!(output.stderr.contains("it is empty: is a variable unset?"), "{line:?}: {}", output.stderr);
    }
}

#[test]
fn help_has_only_a_long_option_and_lists_the_exit_statuses() {
    let output = redis_lock("--help");
    for subcommand in ["run", "top", "graph", "ls", "info", "waiters", "break", "cancel", "log", "adopt", "generate"] {
        assert!(output.text().contains(&format!("\n  {subcommand} ")), "{subcommand}");
        let own = redis_lock(&format!("{subcommand} --help"));
        assert!(own.text().contains("Usage: redis-lock ") && own.text().contains("-h <HOST>"), "{}", own.stdout);
    }
    for status in ["0 ", "1 ", "64", "65", "69", "74", "76", "77"] {
        assert!(output.text().contains(&format!("\n  {status}  ")), "{status}");
    }
}

#[test]
fn the_version_is_that_of_the_package() {
    assert_eq!(redis_lock("--version").text(), format!("redis-lock {}\n", env!("CARGO_PKG_VERSION")));
}

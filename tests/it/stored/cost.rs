//! The cost of locks: memory, bytes in the AOF and in the replication stream, and no iteration over other holders.

use super::*;
use crate::support::cpu_time;

#[test]
fn a_mutex_of_either_kind_costs_at_most_200_bytes_beyond_its_key_and_owner() {
    let server = Server::start();
    let mut client = server.client();
    for (key_length, owner_length) in [(1, 1), (16, 36), (40, 23), (40, 24), (60, 100), (200, 500)] {
        let (key, owner) = ("k".repeat(key_length), "o".repeat(owner_length));
        for command in ["LOCK.ACQUIRE", "RLOCK.ACQUIRE"] {
            client.cmd(&[command, &key, &owner]).fence();
            let used = client.cmd(&["MEMORY", "USAGE", &key]).int();
            let own = i64::try_from(key_length + owner_length).expect("small numbers");
            // Valkey does not count a key that is embedded in its entry.
            assert!(used >= own - i64::try_from(key_length).expect("small"), "{command}: {used} bytes cannot be all");
            assert!(used - own <= 200, "{command}, key of {key_length}, owner of {owner_length}: {used} bytes");
            client.cmd(&["DEL", &key]);
        }
    }
}

#[test]
fn hundreds_of_thousands_of_pairs_do_not_grow_the_heap() {
    let server = Server::start();
    let mut client = server.client();
    let pairs: Vec<String> = (0..1000)
        .flat_map(|key| match key % 2 {
            0 => [format!("LOCK.ACQUIRE k{key} owner-{key}"), format!("LOCK.RELEASE k{key} owner-{key}")],
            _ => [format!("RLOCK.ACQUIRE k{key} owner-{key}"), format!("RLOCK.RELEASE k{key} owner-{key}")],
        })
        .collect();
    let mut thousand_pairs = || {
        for (at, reply) in client.pipeline(&pairs).iter().enumerate() {
            assert!(!reply.is_error() && !reply.is_nil(), "{}: {reply:?}", pairs[at]);
        }
    };
    // The first runs fill caches and buffers that stay.
    (0..20).for_each(|_| thousand_pairs());
    let before = server.info("memory").number("used_memory");
    (0..300).for_each(|_| thousand_pairs());
    // The server trims client buffers on its own schedule.
    let mut after = 0;
    until("the heap is as small as before, but for a tenth of a byte a pair", || {
        after = server.info("memory").number("used_memory");
        after - before < 30_000
    });
    assert_eq!(server.client().run("DBSIZE").int(), 0);
}

const READERS: usize = 2_000;
const PERMITS: usize = 10_000;

/// Gives `key` to that many owners, whose names have the same length.
fn fill(client: &mut Client, key: &str, count: usize) {
    let line = |n: usize| match key {
        "readers" => format!("RWLOCK.ACQUIRE readers owner-{n:05} READ PX 600000"),
        _ => format!("SEM.ACQUIRE permits owner-{n:05} LIMIT 1000000 PX 600000"),
    };
    for batch in (0..count).collect::<Vec<_>>().chunks(500) {
        let lines: Vec<String> = batch.iter().map(|n| line(*n)).collect();
        client.pipeline(&lines).iter().for_each(|reply| assert!(reply.fence() > 0));
    }
}

/// Every kind of change to a holder, in the presence of any number of others.
fn changes(key: &str) -> [String; 4] {
    let (command, options) = match key {
        "readers" => ("RWLOCK", "READ"),
        _ => ("SEM", ""),
    };
    let limit = if command == "SEM" { "LIMIT 1000000" } else { "" };
    [
        format!("{command}.ACQUIRE {key} someone {options} {limit} PX 700000"),
        format!("{command}.ACQUIRE {key} someone {options} {limit} PX 700000"),
        format!("{command}.RENEW {key} someone PX 800000"),
        format!("{command}.RELEASE {key} someone {options} HOLDS 0"),
    ]
}

#[test]
fn a_logged_change_is_of_constant_size() {
    let server = plain_aof(Server::builder()).start();
    let mut client = server.client();
    client.run("CONFIG SET appendfsync no");
    for (key, count) in [("readers", READERS), ("permits", PERMITS)] {
        fill(&mut client, key, 1);
        let few: Vec<usize> = changes(key).map(|line| logged(&server, &mut client, &line)).into();
        fill(&mut client, key, count);
        let many: Vec<usize> = changes(key).map(|line| logged(&server, &mut client, &line)).into();
        assert_eq!(many, few, "bytes, with {count} other holders and with one");
        assert!(few.iter().all(|bytes| (1..500).contains(bytes)), "{few:?}");
    }
}

/// How many bytes a command adds to the AOF.
#[track_caller]
fn logged(server: &Server, client: &mut Client, line: &str) -> usize {
    let size = |server: &Server| server.info("persistence").number("aof_current_size");
    let before = size(server);
    assert!(!client.run(line).is_error(), "{line}");
    usize::try_from(size(server) - before).expect("an AOF grows")
}

#[test]
fn a_replicated_change_is_of_constant_size() {
    let master = Server::start();
    let replica = Server::builder().replica_of(&master).start();
    in_sync(&master, &replica);
    let mut client = master.client();
    // Rare enough that none comes between two measurements.
    client.run("CONFIG SET repl-ping-replica-period 3600");
    let offset = |server: &Server| server.info("replication").number("master_repl_offset");
    for (key, count) in [("readers", READERS), ("permits", PERMITS)] {
        let mut sizes = [Vec::new(), Vec::new()];
        for (sizes, holders) in sizes.iter_mut().zip([1, count]) {
            fill(&mut client, key, holders);
            for line in changes(key) {
                let before = offset(&master);
                client.run(&line);
                sizes.push(offset(&master) - before);
            }
        }
        assert_eq!(sizes[0], sizes[1], "{key}");
        in_sync(&master, &replica);
        assert_eq!(client.stored(key), replica.client().stored(key));
    }
}

#[test]
fn memory_usage_counts_every_holder_and_is_freed() {
    let server = Server::start();
    let mut client = server.client();
    // Once before measuring, so that the connection's buffers have grown.
    fill(&mut client, "readers", 1000);
    client.run("DEL readers");
    for (key, count) in [("readers", READERS), ("permits", PERMITS)] {
        let used = |server: &Server| server.info("memory").number("used_memory");
        let before = used(&server);
        fill(&mut client, key, count);
        let reported = client.run(&format!("MEMORY USAGE {key}")).int();
        let measured = used(&server) - before;
        assert!(reported * 2 > measured && reported < measured * 2, "{key}: {reported} reported, {measured} measured");
        let each = usize::try_from(reported).expect("bytes") / count;
        assert!((50..500).contains(&each), "{each} bytes for a holder of {key}");
        assert_eq!(client.run(&format!("DEL {key}")), Reply::Int(1));
        until("the memory is back", || used(&server) - before < measured / 10);
    }
}

/// A loose bound, because machines are busy: iterating over all holders would take hundreds of times as long.
#[test]
fn acquire_and_release_do_not_iterate_over_other_holders() {
    let server = Server::start();
    let mut client = server.client();
    for (key, count) in [("readers", READERS), ("permits", PERMITS)] {
        fill(&mut client, key, 30);
        let few = cost_of_changes(&server, &mut client, key);
        fill(&mut client, key, count);
        let many = cost_of_changes(&server, &mut client, key);
        assert!(many < few * 10, "{key}: {many:?} with {count} other holders, {few:?} with 30");
    }
}

/// The best of multiple runs of many changes: the server's CPU time, or the elapsed time if that is unknown.
fn cost_of_changes(server: &Server, client: &mut Client, key: &str) -> Duration {
    let lines: Vec<String> = (0..500).flat_map(|_| changes(key)).collect();
    let began = Instant::now();
    let spent = || cpu_time(server.pid()).unwrap_or_else(|| began.elapsed());
    let run = |_| {
        let before = spent();
        let replies = client.pipeline(&lines);
        let taken = spent() - before;
        assert!(replies.iter().all(|reply| !reply.is_error() && !reply.is_nil()));
        taken
    };
    (0..5).map(run).min().expect("some runs")
}

#[test]
fn ten_thousand_leases_that_expire_together_are_removed_without_blocking() {
    let server = quiet().start();
    let mut client = server.client();
    let lines: Vec<String> = (0..PERMITS).map(|n| format!("SEM.ACQUIRE k owner-{n} LIMIT 1000000 PX 400")).collect();
    client.pipeline(&lines).iter().for_each(|reply| assert!(reply.fence() > 0));
    assert!(client.run("SEM.ACQUIRE k last LIMIT 1000000 PX 60000").fence() > 0);
    let mut all = Waiter::request(&server, "SEM.ACQUIRE k all LIMIT 1000000 PERMITS 999999 BLOCK 0");
    assert_eq!(all.client.read().items()[2], Reply::Int(999_999));
    assert_eq!(holders(&mut client, "k"), ["last", "all"]);
    assert!(held(&mut client, "k", "owner-77").is_none());
}

/// While loading an RDB file a server has a replication backlog, which it frees afterwards without an event. Building
/// effects without a consumer is visible only as a cost, so allocations are counted.
#[test]
fn after_a_start_from_an_rdb_file_no_effects_are_built_without_replicas() {
    // jemalloc counts exactly only without thread caches. A server's embedded copy reads the second variable.
    let counting = ["env", "MALLOC_CONF=tcache:false", "JE_MALLOC_CONF=tcache:false"];
    let mut server = Server::builder().config("hz 100").run_by(&counting).start();
    if allocations(&server).is_none() {
        return skip("the server's allocator does not count its calls");
    }
    // Makes the module recount the consumers of effects: there are none.
    assert_eq!(server.client().run("CONFIG SET maxmemory 0"), Reply::ok());
    let without_effects = allocations_per_pair(&server);
    server.client().run("LOCK.ACQUIRE held a PERSIST").fence();
    assert_eq!(server.client().run("SAVE"), Reply::ok());
    server.kill();
    server.restart();
    // Depending on the hash seed of each start, Redis 8.2 allocates one more entry for a key that shares its bucket
    // with another.
    assert_eq!(server.client().run("LOCK.RELEASE held a"), Reply::Int(1));
    // Other allocations of the server add up to less than one; an effect takes an array and some strings.
    until("effects are not built any more", || allocations_per_pair(&server) < without_effects + 1.0);

    let replica = Server::builder().replica_of(&server).start();
    let fence = server.client().run("LOCK.ACQUIRE k b PERSIST").fence();
    in_sync(&server, &replica);
    assert_eq!(replica.client().run("LOCK.HELD k b").items()[0], Reply::Int(fence));
    let with_effects = allocations_per_pair(&server);
    assert!(with_effects > without_effects + 2.0, "{with_effects} and {without_effects}: nothing was built");
}

/// Of a mutex that is acquired and released.
fn allocations_per_pair(server: &Server) -> f64 {
    const PAIRS: usize = 2000;
    let mut client = server.client();
    let pairs = ["LOCK.ACQUIRE pair a", "LOCK.RELEASE pair a"].repeat(PAIRS);
    let mut run = || client.pipeline(&pairs).iter().for_each(|reply| assert!(!reply.is_error()));
    // Fills buffers that stay.
    run();
    let before = allocations(server).expect("it was reported before");
    run();
    (allocations(server).expect("it was reported before") - before) as f64 / PAIRS as f64
}

/// How often jemalloc has allocated memory since the start; `None` for other allocators.
fn allocations(server: &Server) -> Option<u64> {
    let reply = server.client().run("MEMORY MALLOC-STATS");
    let text = String::from_utf8_lossy(reply.bytes()).into_owned();
    let mut lines = text.lines().skip_while(|line| !line.contains("nmalloc"));
    let column = lines.next()?.split_whitespace().position(|name| name == "nmalloc")?;
    let total = lines.find_map(|line| line.strip_prefix("total:"))?;
    total.split_whitespace().nth(column)?.parse().ok()
}

#[test]
fn a_lock_that_had_many_holders_shrinks_even_if_one_remains() {
    const MANY: usize = 20_000;
    let server = Server::start();
    let mut client = server.client();
    for (key, release) in [("permits", "SEM.RELEASE permits"), ("readers", "RWLOCK.RELEASE readers")] {
        fill(&mut client, key, 1);
        let used = |server: &Server| server.info("memory").number("used_memory");
        let (before, own) = (used(&server), client.cmd(&["MEMORY", "USAGE", key]).int());
        fill(&mut client, key, MANY);
        assert!(used(&server) - before > 100 * MANY as i64);
        let mode = if key == "readers" { " READ" } else { "" };
        // The first owner acquired twice.
        let lines: Vec<String> = (1..MANY).map(|n| format!("{release} owner-{n:05}{mode}")).collect();
        for batch in lines.chunks(500) {
            client.pipeline(batch).iter().for_each(|reply| assert_eq!(reply, &Reply::Int(0)));
        }
        assert!(client.cmd(&["MEMORY", "USAGE", key]).int() < own + 40_000);
        // The server trims client buffers on its own schedule.
        let mut after = 0;
        until("the memory of removed holders is freed", || {
            after = used(&server);
            after - before < 200_000
        });
    }
}

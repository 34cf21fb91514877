//! Random schedules over all lock types: replicas and the AOF match the master.

use super::*;

/// Replicas and the AOF match the master for any order of events. A failure names its seed; `LOCK_TEST_SEED` reproduces
/// it.
#[test]
fn after_random_schedules_replica_and_aof_match_the_master() {
    let mut master = Server::builder().appendonly().config("appendfsync no").start();
    let replica = Server::builder().replica_of(&master).start();
    let mut rng = Rng::new(20_261_121);
    let seed = rng.seed();
    let mut client = master.client();
    for round in 0..60 {
        let lines: Vec<String> = (0..100).map(|_| random_line(&mut rng)).collect();
        for (line, reply) in lines.iter().zip(client.pipeline(&lines)) {
            assert_is_understood(line, &reply);
        }
        let (mut ours, mut theirs) = (master.client(), replica.client());
        // A command may leave work for later event-loop iterations.
        until(&format!("both say the same, round {round}, seed {seed}: {lines:#?}"), || {
            in_sync(&master, &replica);
            RANDOM_KEYS.iter().all(|key| ours.stored(key) == theirs.stored(key))
        });
    }
    let before: Vec<_> = RANDOM_KEYS.map(|key| client.stored(key)).into();
    master.kill();
    master.restart();
    let mut client = master.client();
    let after: Vec<_> = RANDOM_KEYS.map(|key| client.stored(key)).into();
    assert_eq!(after, before, "seed {seed}");
}

const RANDOM_KEYS: [&str; 6] = ["m1", "m2", "nested", "rw", "rw2", "sem"];

/// Usually valid requests, sometimes invalid ones; no lease expires during the test.
fn random_line(rng: &mut Rng) -> String {
    let owner = *rng.pick(&["a", "b", "c", "d"]);
    let mode = *rng.pick(&["READ", "READ", "READ", "WRITE"]);
    let rw = *rng.pick(&["rw", "rw2"]);
    let lease = *rng.pick(&["PX 100000", "PX 200000", "PX 300000", "EX 400", "PERSIST", ""]);
    let count = 1 + rng.below(3);
    let limit = 3 + rng.below(4);
    match rng.below(24) {
        0..=3 => format!("RWLOCK.ACQUIRE {rw} {owner} {mode} {lease}"),
        4 => format!("RWLOCK.ACQUIRE {rw} {owner} {mode} HOLDS {count} {lease}"),
        5 | 6 => format!("RWLOCK.RELEASE {rw} {owner} {mode}"),
        7 => format!("RWLOCK.RELEASE {rw} {owner} {mode} HOLDS {}", count - 1),
        8 => format!("RWLOCK.RENEW {rw} {owner} {lease}"),
        9..=11 => format!("SEM.ACQUIRE sem {owner} LIMIT {limit} PERMITS {count} {lease}"),
        12 => format!("SEM.ACQUIRE sem {owner} LIMIT {limit} HOLDS {count} {lease} BLOCK 0 NOTIFY ch"),
        13 => format!("SEM.RELEASE sem {owner} PERMITS {count}"),
        14 => format!("SEM.RELEASE sem {owner} HOLDS {}", count - 1),
        15 => format!("SEM.RENEW sem {owner} {lease}"),
        16 => format!("MLOCK.ACQUIRE 2 m1 m2 {owner} {lease} BLOCK 0 NOTIFY ch"),
        17 => format!("MLOCK.RELEASE {count} {} {owner}", ["m1", "m2", "m3"][..count].join(" ")),
        18 => format!("RWLOCK.ACQUIRE {rw} {owner} {mode} {lease} BLOCK 0 NOTIFY ch"),
        19 | 20 => format!("RLOCK.ACQUIRE nested {owner} {lease}"),
        21 => format!("RLOCK.RELEASE nested {owner} HOLDS {}", count - 1),
        22 => format!("LOCK.ACQUIRE m1 {owner} {lease}"),
        _ => {
            let key = *rng.pick(&RANDOM_KEYS);
            match rng.below(6) {
                0 => format!("PERSIST {key}"),
                1 => format!("PEXPIRE {key} {}", 50_000 + rng.below(400_000)),
                2 => format!("LOCK.CANCEL {key} {owner}"),
                3 => format!("PEXPIRE {key} 600000"),
                4 => "RENAME rw rw2".into(),
                _ => format!("DEL {key}"),
            }
        }
    }
}

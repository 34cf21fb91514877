//! Random requests for multiple keys, while a client watches for partial holds.

use super::*;

/// Twelve clients acquire random pairs and triples of ten keys, 10,000 times in total.
#[test]
fn random_pairs_and_triples_never_overlap_and_never_stall() {
    const CLIENTS: usize = 12;
    const TAKEN: usize = 10_000;
    const KEYS: usize = 10;

    let server = Server::start();
    let port = server.port();
    let done = AtomicBool::new(false);
    let rng = Rng::new(4);
    let seed = rng.seed();
    thread::scope(|scope| {
        let clients: Vec<_> = (0..CLIENTS)
            .map(|number| {
                scope.spawn(move || {
                    let mut client = Client::connect(port);
                    let mut rng = Rng::with_seed(seed.wrapping_add(number as u64));
                    // Some acquire one more, so that the total is exact.
                    let mine = TAKEN / CLIENTS + usize::from(number < TAKEN % CLIENTS);
                    for _ in 0..mine {
                        take_random_keys(&mut client, &mut rng, number, KEYS);
                    }
                })
            })
            .collect();
        let watcher = scope.spawn(|| watch_for_partial_holds(&server, &done, KEYS));
        let results: Vec<_> = clients.into_iter().map(|client| client.join()).collect();
        done.store(true, Ordering::Relaxed);
        assert!(watcher.join().expect("nothing partial is ever seen") > 0, "it has looked");
        results.into_iter().for_each(|result| result.unwrap_or_else(|_| panic!("seed {seed}")));
    });

    let mut client = server.client();
    assert_eq!(client.run("GET taken"), Reply::bulk(TAKEN.to_string()));
    for key in 0..KEYS {
        assert_eq!(client.run(&format!("GET inside:{key}")), Reply::bulk("0"), "key {key}");
        assert_eq!(client.run(&format!("EXISTS {{s}}:{key}")), Reply::Int(0));
    }
    assert_eq!(server.blocked_clients(), 0);
}

/// Acquires two or three keys, counts itself in and out of each, and releases them.
fn take_random_keys(client: &mut Client, rng: &mut Rng, number: usize, keys: usize) {
    let count = 2 + rng.below(2);
    let mut chosen: Vec<usize> = Vec::new();
    while chosen.len() < count {
        let key = rng.below(keys);
        if !chosen.contains(&key) {
            chosen.push(key);
        }
    }
    let names: Vec<String> = chosen.iter().map(|key| format!("{{s}}:{key}")).collect();
    let names = names.join(" ");
    let grant = client.run(&format!("MLOCK.ACQUIRE {count} {names} owner-{number} PX 60000 BLOCK 20000"));
    assert!(grant.fence() > 0);

    let mut lines: Vec<String> = chosen.iter().map(|key| format!("INCR inside:{key}")).collect();
    lines.push("INCR taken".into());
    lines.extend(chosen.iter().map(|key| format!("DECR inside:{key}")));
    lines.push(format!("MLOCK.RELEASE {count} {names} owner-{number}"));
    // In two round trips, so that others have a chance to interfere.
    let (entered, left) = lines.split_at(count);
    for reply in client.pipeline(entered) {
        assert_eq!(reply, Reply::Int(1), "another client is inside");
    }
    let replies = client.pipeline(left);
    assert!(replies[1..=count].iter().all(|reply| *reply == Reply::Int(0)), "{replies:?}");
    assert_eq!(replies[count + 1].int(), count as i64);
}

/// Reads all keys at once, repeatedly: an owner of one key must hold two or three with the same fencing token. Returns
/// how often.
fn watch_for_partial_holds(server: &Server, done: &AtomicBool, keys: usize) -> usize {
    let mut client = server.client();
    let lines: Vec<String> = (0..keys).map(|key| format!("LOCK.INFO {{s}}:{key}")).collect();
    let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
    let mut seen = 0;
    while !done.load(Ordering::Relaxed) {
        let infos = multi(&mut client, &lines);
        let mut fences: Vec<(i64, String)> = infos
            .iter()
            .filter(|info| !info.is_nil())
            .flat_map(|info| info.get("holders").items())
            .map(|held| (held.get("fence").int(), held.get("owner").text().to_string()))
            .collect();
        fences.sort();
        for held in fences.chunk_by(|one, other| one == other) {
            assert!((2..=3).contains(&held.len()), "a part of a hold: {held:?} of {fences:?}");
        }
        seen += usize::from(!fences.is_empty());
        thread::sleep(Duration::from_millis(2));
    }
    seen
}

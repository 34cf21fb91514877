//! One client of a Rust library, unchanged: `worker LIBRARY turns|hold PORT KEY ITERATIONS` (see `run` for the modes).

use std::time::Duration;

use rslock::LockManager;

const LEASE: Duration = Duration::from_secs(2);

#[tokio::main]
async fn main() {
    let args: Vec<String> = std::env::args().collect();
    let [_, _, mode, port, key, turns] = args.as_slice() else { panic!("six arguments") };
    let address = format!("redis://127.0.0.1:{port}/");
    let mut locks = LockManager::new(vec![address.clone()]);
    locks.set_retry(20_000, Duration::from_millis(5));
    if mode == "hold" {
        let _lock = locks.acquire_no_guard(key.as_str(), LEASE).await.expect("a lock");
        println!("held");
        tokio::time::sleep(Duration::from_secs(600)).await;
    }
    let client = redis::Client::open(address).expect("an address");
    let mut connection = client.get_connection().expect("a connection");
    let mut count = |command: &str| -> i64 {
        redis::cmd(command).arg("inside").query(&mut connection).expect("a number")
    };
    for _ in 0..turns.parse::<u32>().expect("a number") {
        let lock = locks.acquire_no_guard(key.as_str(), LEASE).await.expect("a lock");
        assert!(count("INCR") == 1 && count("DECR") == 0, "not alone");
        locks.unlock(&lock).await;
    }
    println!("done");
}

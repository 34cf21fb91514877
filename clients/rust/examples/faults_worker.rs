//! The worker of the Rust client: `faults_worker PORT SEED`. clients/faults/README.md says what it prints. Tasks
//! acquire, hold and release locks until a line arrives on stdin.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use redis_lock_client::{Client, Error, Guard, Lock};

const LINES: u64 = 6;
const KEYS: u64 = 4;
static STOPPING: AtomicBool = AtomicBool::new(false);

/// SplitMix64: pseudorandom numbers from the seed.
struct Rng(u64);

impl Rng {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit.max(1)
    }
}

fn now() -> u128 {
    SystemTime::now().duration_since(UNIX_EPOCH).expect("the clock is set").as_millis()
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> redis_lock_client::Result<()> {
    let arguments: Vec<u64> = std::env::args().skip(1).filter_map(|argument| argument.parse().ok()).collect();
    let [port, seed] = arguments[..] else { panic!("faults_worker PORT SEED") };
    let client = Client::open(format!("redis://127.0.0.1:{port}/"))?;
    std::thread::spawn(|| {
        let _end_of_input_too = std::io::stdin().read_line(&mut String::new());
        STOPPING.store(true, Ordering::SeqCst);
    });
    let lines: Vec<_> = (0..LINES).map(|line| tokio::spawn(turns(client.clone(), Rng(seed * 1000 + line)))).collect();
    for line in lines {
        if let Err(panicked) = line.await {
            println!(r#"{{"e":"unexpected","what":"{panicked}"}}"#);
        }
    }
    let settled = tokio::time::timeout(Duration::from_secs(20), client.settled()).await;
    println!(r#"{{"e":"end","left":{}}}"#, u8::from(settled.is_err()));
    Ok(())
}

async fn turns(client: Client, mut rng: Rng) {
    while !STOPPING.load(Ordering::SeqCst) {
        let key = format!("k{}", rng.below(KEYS));
        let kind = rng.below(10);
        let lease = Duration::from_millis(match kind {
            0..3 => 1500,
            3..5 => 60_000,
            _ => 3000,
        });
        let lock = client.mutex(key.as_str()).lease(lease);
        let (lock, is_session, is_renewed) = match kind {
            0 => (lock.session(), true, false),
            1 | 2 => (lock.auto_renew(), false, true),
            _ => (lock, false, false),
        };
        let wait = if rng.below(10) == 0 { 0 } else { 100 + rng.below(1900) };
        let cancel = (rng.below(4) == 0).then(|| Duration::from_millis(rng.below(wait.max(50))));
        let hold = Duration::from_millis(if is_renewed && rng.below(5) == 0 { rng.below(2500) } else { rng.below(60) });
        if let Some(guard) = taken(&lock, &key, wait, cancel).await {
            used(guard, &key, hold, is_session).await;
        }
    }
}

async fn taken(lock: &Lock, key: &str, wait: u64, cancel: Option<Duration>) -> Option<Guard> {
    let began = now();
    let acquiring = async {
        match wait {
            0 => lock.try_acquire().await,
            _ => lock.acquire_within(Duration::from_millis(wait)).await,
        }
    };
    let mut cancelled = 0;
    let end = match cancel {
        None => Some(acquiring.await),
        Some(after) => tokio::time::timeout(after, acquiring).await.ok(),
    };
    let (outcome, guard) = match end {
        Some(Ok(Some(guard))) => ("granted", Some(guard)),
        Some(Ok(None)) => ("refused", None),
        Some(Err(_)) => ("failed", None),
        None => {
            cancelled = now();
            ("cancelled", None)
        }
    };
    let ended = now();
    print!(r#"{{"e":"acquire","key":"{key}","wait":{wait},"began":{began},"ended":{ended},"#);
    println!(r#""outcome":"{outcome}","cancelled":{cancelled}}}"#);
    guard
}

async fn used(guard: Guard, key: &str, hold: Duration, is_session: bool) {
    let since = now();
    let mut until = 0;
    let began = Instant::now();
    while !guard.is_lost() {
        until = now();
        if began.elapsed() >= hold {
            break;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let fence = guard.fence();
    if until > 0 {
        println!(
            r#"{{"e":"held","key":"{key}","fence":{fence},"since":{since},"until":{until},"session":{is_session}}}"#
        );
    }
    let began = now();
    let outcome = match guard.release().await {
        Ok(()) => "released",
        Err(Error::LockLost) => "lost",
        // The guard continues in the background.
        Err(_) => "failed",
    };
    println!(r#"{{"e":"release","began":{began},"ended":{},"outcome":"{outcome}"}}"#, now());
}

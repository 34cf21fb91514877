//! Many clients that contend for one lock, all on one thread, because the machine's other core is for the server: more
//! client threads would take CPU time from the measured server. Every way is measured with the same clients.

use std::cell::{Cell, RefCell};
use std::io;
use std::rc::Rc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use async_executor::LocalExecutor;
use async_io::{block_on, Timer};
use hdrhistogram::Histogram;

use crate::rivals::{ClientConfig, Locker, Names, Rival, Threading, LEASE_MS};
use crate::server::Server;

/// How many clients contend for one lock, and how long they hold it.
#[derive(Clone, Copy)]
pub struct Contention {
    pub clients: usize,
    /// How long each holds the lock. Zero: released at once.
    pub hold: Duration,
    /// The measured time. A warm-up of a fifth of it precedes it.
    pub time: Duration,
}

impl Contention {
    pub fn new(clients: usize, hold: Duration, time: Duration) -> Contention {
        Contention { clients, hold, time }
    }
}

/// What the clients did in the measured time.
pub struct Outcome {
    pub seconds: f64,
    /// The number of grants.
    pub grants: u64,
    /// Grants to a different client than the one before. A client that re-acquires its own lock is not a hand-off.
    pub handoffs: u64,
    pub commands: u64,
    pub server_cpu_us: f64,
    /// Nanoseconds from the request to the grant.
    pub waits: Histogram<u64>,
    /// Grants of the client that got the fewest and of the one that got the most.
    pub fewest: u64,
    pub most: u64,
    /// Grants while another client still held the lock. Must be 0 for a lock.
    pub overlaps: u64,
}

impl Outcome {
    pub fn per_second(&self) -> f64 {
        self.handoffs as f64 / self.seconds
    }

    pub fn cpu_us_per_handoff(&self) -> f64 {
        self.server_cpu_us / self.handoffs as f64
    }

    pub fn cpu_us_per_grant(&self) -> f64 {
        self.server_cpu_us / self.grants as f64
    }

    pub fn commands_per_handoff(&self) -> f64 {
        self.commands as f64 / self.handoffs as f64
    }

    /// By how much the most grants exceed the fewest: 0.01 is one percent.
    pub fn spread(&self) -> f64 {
        self.most as f64 / self.fewest as f64 - 1.0
    }
}

/// The counts of all clients together.
struct Counters {
    holder: Cell<Option<usize>>,
    last_holder: Cell<Option<usize>>,
    handoffs: Cell<u64>,
    overlaps: Cell<u64>,
    grants: RefCell<Vec<u64>>,
    sent: Rc<Cell<u64>>,
    waits: RefCell<Histogram<u64>>,
    error: RefCell<Option<io::Error>>,
}

impl Counters {
    fn new(clients: usize) -> Counters {
        Counters {
            holder: Cell::new(None),
            last_holder: Cell::new(None),
            handoffs: Cell::new(0),
            overlaps: Cell::new(0),
            grants: RefCell::new(vec![0; clients]),
            sent: Rc::default(),
            waits: RefCell::new(Histogram::new(3).expect("three digits")),
            error: RefCell::new(None),
        }
    }

    fn granted(&self, client: usize, waited: Duration) {
        if self.holder.replace(Some(client)).is_some() {
            self.overlaps.set(self.overlaps.get() + 1);
        }
        if self.last_holder.replace(Some(client)) != Some(client) {
            self.handoffs.set(self.handoffs.get() + 1);
        }
        self.grants.borrow_mut()[client] += 1;
        self.waits.borrow_mut().record(waited.as_nanos() as u64).expect("the histogram grows");
    }

    /// Resets the counts after the warm-up.
    fn clear(&self) {
        self.handoffs.set(0);
        self.grants.borrow_mut().fill(0);
        self.waits.borrow_mut().clear();
    }
}

/// Runs `contention.clients` clients that acquire one lock repeatedly.
pub fn contend(
    server: &mut Server,
    rival: &Rival,
    scripts: &Rc<[String]>,
    contention: Contention,
) -> io::Result<Outcome> {
    // A new key and new owners each time, because the clients end without releasing the lock and their queue positions
    // stay reserved.
    static RUNS: AtomicUsize = AtomicUsize::new(0);
    let run = RUNS.fetch_add(1, Ordering::Relaxed);
    let key = format!("lock:contended:{run}");
    let names = |client: usize| Names::new(key.clone(), run * 100_000 + client, LEASE_MS, scripts);
    let others = server.info_number("clients", "connected_clients")?;
    let open = rival.open.expect("only locks are contended");
    let counters = Rc::new(Counters::new(contention.clients));
    let outcome = block_on(async {
        let mut lockers = Vec::new();
        for client in 0..contention.clients {
            let config = ClientConfig {
                port: server.port(),
                names: names(client),
                threading: Threading::Shared,
                sent: counters.sent.clone(),
            };
            lockers.push(open(config).await?);
        }
        let executor = LocalExecutor::new();
        for (client, locker) in lockers.into_iter().enumerate() {
            executor.spawn(compete(client, locker, contention.hold, counters.clone())).detach();
        }
        executor.run(count(server, contention, &counters)).await
        // Dropping the executor drops all clients and their connections, even while they wait.
    })?;
    if let Some(error) = counters.error.take() {
        return Err(io::Error::other(format!("{}: {error}", rival.name)));
    }
    await_removal(server, others)?;
    Ok(outcome)
}

async fn compete(client: usize, mut locker: Box<dyn Locker>, hold: Duration, counters: Rc<Counters>) {
    let outcome: io::Result<()> = async {
        loop {
            let asked = Instant::now();
            locker.acquire().await?;
            counters.granted(client, asked.elapsed());
            if !hold.is_zero() {
                Timer::after(hold).await;
            }
            // The next client may be granted the lock before the reply to the release arrives.
            counters.holder.set(None);
            locker.release().await?;
        }
    }
    .await;
    if let Err(error) = outcome {
        counters.error.borrow_mut().get_or_insert(error);
    }
}

async fn count(server: &mut Server, contention: Contention, counters: &Counters) -> io::Result<Outcome> {
    Timer::after(contention.time / 5).await;
    counters.clear();
    let sent_before = counters.sent.get();
    let start = Instant::now();
    let cpu_before = server.cpu_us()?;
    Timer::after(contention.time).await;
    let seconds = start.elapsed().as_secs_f64();
    let server_cpu_us = server.cpu_us()? - cpu_before;
    let sent = counters.sent.get();
    let grants = counters.grants.borrow();
    Ok(Outcome {
        seconds,
        grants: grants.iter().sum(),
        handoffs: counters.handoffs.get(),
        commands: sent - sent_before,
        server_cpu_us,
        waits: counters.waits.borrow().clone(),
        fewest: grants.iter().copied().min().unwrap_or(0),
        most: grants.iter().copied().max().unwrap_or(0),
        overlaps: counters.overlaps.get(),
    })
}

/// Waits until the server has noticed that the clients have disconnected.
fn await_removal(server: &mut Server, others: f64) -> io::Result<()> {
    while server.info_number("clients", "connected_clients")? > others {
        std::thread::sleep(Duration::from_millis(1));
    }
    Ok(())
}

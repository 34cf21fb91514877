//! What an event costs the other clients of the server. One connection sends PING without a pause, and records how much
//! CPU time the server spends between two of them: that is one event-loop iteration. Two clients hand off a
//! separate lock to each other without a pause, and record how long each hand-off takes.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{channel, Sender};
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use async_io::block_on;
use futures_lite::future::try_zip;
use support::{cpu_time, Connection, Reply};

use crate::server::Server;

pub struct Watch {
    stop: Arc<AtomicBool>,
    /// One thread for all three connections: the machine may have two cores, and the server needs one.
    watcher: JoinHandle<io::Result<Longest>>,
}

#[derive(Clone, Copy)]
pub struct Longest {
    /// CPU time of the server, if the system reports it, because it excludes other load on the machine.
    pub iteration: Duration,
    /// Wall-clock time from sending a RELEASE until the other client reads its grant.
    pub hand_off: Duration,
}

impl Watch {
    /// Returns when the watch is running.
    pub fn start(server: &Server) -> io::Result<Watch> {
        let (port, pid) = (server.port(), server.pid());
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = stop.clone();
        let (ready, is_ready) = channel();
        let watcher = thread::spawn(move || block_on(observe(port, pid, &stopped, ready)));
        // An error of the thread is reported when it is joined.
        let _ = is_ready.recv();
        Ok(Watch { stop, watcher })
    }

    pub fn longest(self) -> io::Result<Longest> {
        self.stop.store(true, Ordering::Relaxed);
        self.watcher.join().map_err(|_| io::Error::other("the watch ended early"))?
    }
}

async fn observe(port: u16, pid: u32, stop: &AtomicBool, ready: Sender<()>) -> io::Result<Longest> {
    let mut client = Connection::connect_shared(port).await?;
    let mut pair = Pair::start(port).await?;
    ping(&mut client).await?;
    // If the caller no longer waits, it has failed and reports its own error.
    let _ = ready.send(());
    let (iteration, hand_off) = try_zip(longest_iteration(&mut client, pid, stop), pair.longest(stop)).await?;
    Ok(Longest { iteration, hand_off })
}

async fn longest_iteration(client: &mut Connection, pid: u32, stop: &AtomicBool) -> io::Result<Duration> {
    let mut longest = Duration::ZERO;
    let mut spent = cpu_time(pid);
    // What happened since the last PING belongs to an iteration too, so there is one more.
    let mut is_last = false;
    while !is_last {
        is_last = stop.load(Ordering::Relaxed);
        let asked = Instant::now();
        ping(client).await?;
        let now = cpu_time(pid);
        let iteration = now.zip(spent).map_or_else(|| asked.elapsed(), |(now, before)| now.saturating_sub(before));
        longest = longest.max(iteration);
        spent = now;
    }
    Ok(longest)
}

async fn ping(client: &mut Connection) -> io::Result<()> {
    match client.call(&["PING"]).await? {
        Reply::Status(_) => Ok(()),
        other => Err(io::Error::other(format!("PING answered {other:?}"))),
    }
}

/// Two clients, one of which holds the lock while the other waits for it.
struct Pair {
    clients: [Connection; 2],
    holder: usize,
}

/// A database that no event uses, so that a FLUSHDB of the first database does not end this lock.
const DATABASE: &str = "1";
const KEY: &str = "handed-over";
const OWNERS: [&str; 2] = ["left", "right"];

impl Pair {
    async fn start(port: u16) -> io::Result<Pair> {
        let mut clients = [Connection::connect_shared(port).await?, Connection::connect_shared(port).await?];
        for client in &mut clients {
            client.call(&["SELECT", DATABASE]).await?;
        }
        let mut pair = Pair { clients, holder: 0 };
        pair.request(0).await?;
        pair.granted(0).await?;
        pair.request(1).await?;
        Ok(pair)
    }

    async fn longest(&mut self, stop: &AtomicBool) -> io::Result<Duration> {
        let mut longest = Duration::ZERO;
        while !stop.load(Ordering::Relaxed) {
            longest = longest.max(self.hand_off().await?);
        }
        Ok(longest)
    }

    /// The holder releases the lock and queues again.
    async fn hand_off(&mut self) -> io::Result<Duration> {
        let (holder, next) = (self.holder, 1 - self.holder);
        let start = Instant::now();
        self.clients[holder].send(&["LOCK.RELEASE", KEY, OWNERS[holder]]).await?;
        self.request(holder).await?;
        self.granted(next).await?;
        let took = start.elapsed();
        match self.clients[holder].receive().await? {
            Reply::Int(1) => self.holder = next,
            other => return Err(io::Error::other(format!("the release of a hand-off answered {other:?}"))),
        }
        Ok(took)
    }

    async fn request(&mut self, client: usize) -> io::Result<()> {
        let request = ["LOCK.ACQUIRE", KEY, OWNERS[client], "PX", "600000", "BLOCK", "0"];
        self.clients[client].send(&request).await
    }

    async fn granted(&mut self, client: usize) -> io::Result<()> {
        match self.clients[client].receive().await? {
            Reply::Array(_) => Ok(()),
            other => Err(io::Error::other(format!("the request of a hand-off answered {other:?}"))),
        }
    }
}

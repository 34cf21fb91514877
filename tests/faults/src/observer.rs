//! Takes snapshots of the queues while workers contend for locks, and measures how much time the server has.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use support::{Client, Reply, Stopwatch};

use crate::caller::Route;
use crate::history::{Look, Recorder};
use crate::lock::Lock;

/// The time between two snapshots: a [`Stopwatch`] counts no more than twice this between two of its readings.
const TICK: Duration = Duration::from_millis(5);

/// How long to wait for a reply, because a server may be paused.
const REPLY_TIMEOUT: Duration = Duration::from_millis(100);

pub struct Observer {
    stopping: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Observer {
    /// Watches one server; its process is `pid`, which changes when the server restarts. Without locks to inspect, it
    /// only measures the server's time without sending commands.
    pub fn start(recorder: &Recorder, locks: &[Lock], route: Arc<dyn Route>, pid: Arc<AtomicU32>) -> Observer {
        let stopping = Arc::new(AtomicBool::new(false));
        let (recorder, locks, is_over) = (recorder.clone(), locks.to_vec(), stopping.clone());
        let thread = thread::spawn(move || {
            let mut client = None;
            let mut watch = Watch::of(pid.load(Ordering::Relaxed), Duration::ZERO);
            let mut next = locks.iter().cycle();
            while !is_over.load(Ordering::Relaxed) {
                let pid = pid.load(Ordering::Relaxed);
                if watch.pid != pid {
                    watch = Watch::of(pid, watch.elapsed());
                }
                recorder.record_server_time(watch.elapsed());
                if let Some(lock) = next.next() {
                    client = look(client, &recorder, &lock.key, route.as_ref());
                }
                thread::sleep(TICK);
            }
        });
        Observer { stopping, thread: Some(thread) }
    }

    /// Stops it; its snapshots are in the history.
    pub fn stop(mut self) {
        self.end();
    }

    fn end(&mut self) {
        self.stopping.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // The test has already reported its panic, or a reply was malformed.
            assert!(thread.join().is_ok() || thread::panicking(), "the observer failed");
        }
    }
}

impl Drop for Observer {
    fn drop(&mut self) {
        self.end();
    }
}

/// The time of one process, added to that of the processes before it.
struct Watch {
    pid: u32,
    before: Duration,
    stopwatch: Stopwatch,
}

impl Watch {
    fn of(pid: u32, before: Duration) -> Watch {
        Watch { pid, before, stopwatch: Stopwatch::start(Some(pid)) }
    }

    fn elapsed(&mut self) -> Duration {
        self.before + self.stopwatch.elapsed()
    }
}

/// Records the waiters of a key; returns the connection if it is still usable.
fn look(client: Option<Client>, recorder: &Recorder, key: &str, route: &dyn Route) -> Option<Client> {
    let mut client = match client {
        Some(client) => client,
        None => Client::try_connect_to(route.address(key), REPLY_TIMEOUT).ok()?,
    };
    let invoked = recorder.now();
    let reply = client.try_cmd_within(&["LOCK.WAITERS", key, "COUNT", "0"], REPLY_TIMEOUT).ok()?;
    if let Reply::Array(waiters) = &reply {
        let waiters = waiters.iter().map(|waiter| waiter.get("owner").text().to_string()).collect();
        recorder.record_look(Look { key: key.into(), invoked, returned: recorder.now(), waiters });
    }
    Some(client)
}

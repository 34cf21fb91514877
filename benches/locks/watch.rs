//! How long the server was held: a connection of its own sends PING without a pause, and notes how long each takes, and
//! how much CPU time the server spends from one to the next.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use support::cpu_time;

use crate::server::Server;

pub struct Watch {
    stop: Arc<AtomicBool>,
    pings: JoinHandle<io::Result<Held>>,
}

/// The longest between two PINGs, each by its own measure.
#[derive(Clone, Copy, Default)]
pub struct Held {
    /// CPU time of the server, where the system tells: what others run on the machine is not in it.
    pub cpu: Option<Duration>,
    /// From a PING to its reply.
    pub clock: Duration,
}

impl Watch {
    /// Returns when the watch is under way.
    pub fn start(server: &Server) -> io::Result<Watch> {
        let mut stream = TcpStream::connect(("127.0.0.1", server.port()))?;
        stream.set_nodelay(true)?;
        let pid = server.pid();
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = stop.clone();
        let (ready, is_ready) = channel();
        let pings = thread::spawn(move || {
            ping(&mut stream)?;
            let mut spent = cpu_time(pid);
            let _ = ready.send(());
            let mut longest = Held { cpu: spent.map(|_| Duration::ZERO), clock: Duration::ZERO };
            // What happened since the last PING belongs to a turn too, so there is one more.
            let mut is_last = false;
            while !is_last {
                is_last = stopped.load(Ordering::Relaxed);
                let asked = Instant::now();
                ping(&mut stream)?;
                longest.clock = longest.clock.max(asked.elapsed());
                let now = cpu_time(pid);
                let more = now.zip(spent).map(|(now, before)| now.saturating_sub(before));
                longest.cpu = longest.cpu.max(more);
                spent = now;
            }
            Ok(longest)
        });
        // An error of the thread is found when it is joined.
        let _ = is_ready.recv();
        Ok(Watch { stop, pings })
    }

    pub fn longest(self) -> io::Result<Held> {
        self.stop.store(true, Ordering::Relaxed);
        self.pings.join().map_err(|_| io::Error::other("the watch ended early"))?
    }
}

impl Held {
    /// CPU time where it is known, or the clock's, in ms.
    pub fn ms(&self) -> f64 {
        self.cpu.unwrap_or(self.clock).as_secs_f64() * 1e3
    }

    pub fn clock_ms(&self) -> f64 {
        self.clock.as_secs_f64() * 1e3
    }
}

fn ping(stream: &mut TcpStream) -> io::Result<()> {
    stream.write_all(b"PING\r\n")?;
    let mut reply = *b"+PONG\r\n";
    stream.read_exact(&mut reply)?;
    match &reply {
        b"+PONG\r\n" => Ok(()),
        _ => Err(io::Error::other("PING was answered otherwise")),
    }
}

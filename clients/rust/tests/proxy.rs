//! Forwards to a server, and cuts or holds back the reply to a chosen request.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::AbortHandle;

pub struct Proxy {
    pub port: u16,
    plan: Arc<Plan>,
    accepting: AbortHandle,
}

#[derive(Default)]
struct Plan {
    next: Mutex<Option<(Vec<u8>, Fate)>>,
    done: AtomicUsize,
    split: Mutex<Option<Vec<u8>>>,
    rest: tokio::sync::Notify,
    /// The data that arrived together, of requests with LOCK.EXEC.
    packets: Mutex<Vec<Vec<u8>>>,
    network: watch::Sender<Network>,
}

#[derive(Clone, Copy, Default, PartialEq, Eq)]
struct Network {
    /// Silent: no data passes, and no connection ends.
    is_silent: bool,
    /// Connections of an earlier generation end.
    generation: u32,
}

/// What happens to a reply.
#[derive(Clone, Copy)]
enum Fate {
    /// Its connection ends after this many bytes.
    Cut(usize),
    /// It never arrives, and its connection stays open.
    Held,
}

impl Proxy {
    pub async fn to(server: u16) -> Proxy {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.expect("a port is free");
        let port = listener.local_addr().expect("it listens").port();
        let plan = Arc::new(Plan::default());
        let accepting = tokio::spawn(accept(listener, server, plan.clone())).abort_handle();
        Proxy { port, plan, accepting }
    }

    /// Lets the next request with these bytes through, and ends its connection after this many bytes of the reply.
    pub fn cut_reply(&self, request: &str, after: usize) {
        *self.plan.next.lock().expect("no test panics with it") = Some((request.into(), Fate::Cut(after)));
    }

    /// Lets the next request with these bytes through up to them, and holds the rest back until `deliver`.
    pub fn split_request(&self, at: &str) {
        *self.plan.split.lock().expect("no test panics with it") = Some(at.into());
    }

    pub fn deliver(&self) {
        self.plan.rest.notify_one();
    }

    /// The data that arrived together since the last call, of requests with LOCK.EXEC.
    pub fn packets(&self) -> Vec<String> {
        let packets = std::mem::take(&mut *self.plan.packets.lock().expect("no test panics with it"));
        packets.iter().map(|packet| String::from_utf8_lossy(packet).into_owned()).collect()
    }

    /// Lets the next such request through, and never delivers its reply.
    pub fn hold_reply(&self, request: &str) {
        *self.plan.next.lock().expect("no test panics with it") = Some((request.into(), Fate::Held));
    }

    /// Silences the network: from now on no data passes, no connection ends, and new ones are accepted.
    pub fn silence(&self) {
        self.plan.network.send_modify(|network| network.is_silent = true);
    }

    /// Ends the silence and delivers the held-back data, like a network that retransmits its packets.
    pub fn speak(&self) {
        self.plan.network.send_modify(|network| network.is_silent = false);
    }

    /// Ends every connection.
    pub fn disconnect(&self) {
        self.plan.network.send_modify(|network| network.generation += 1);
    }

    /// How many replies were cut or held back.
    pub fn done(&self) -> usize {
        self.plan.done.load(Ordering::SeqCst)
    }
}

impl Plan {
    async fn passes(&self) {
        // The sender belongs to the same plan, so it exists.
        let _ = self.network.subscribe().wait_for(|network| !network.is_silent).await;
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

async fn accept(listener: TcpListener, server: u16, plan: Arc<Plan>) {
    while let Ok((client, _)) = listener.accept().await {
        // The server may be gone: then the client's connection ends.
        let Ok(server) = TcpStream::connect(("127.0.0.1", server)).await else { continue };
        let (from_client, to_client) = client.into_split();
        let (from_server, to_server) = server.into_split();
        let fate = Arc::new(Mutex::new(None));
        let (plan, its_fate) = (plan.clone(), fate.clone());
        let mut network = plan.network.subscribe();
        let generation = network.borrow_and_update().generation;
        tokio::spawn(async move {
            tokio::select! {
                _ = network.wait_for(|network| network.generation > generation) => {}
                () = requests(from_client, to_server, &plan, &its_fate) => {}
                () = replies(from_server, to_client, &plan, &fate) => {}
            }
        });
    }
}

async fn requests(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, plan: &Plan, fate: &Mutex<Option<Fate>>) {
    let mut bytes = vec![0; 64 * 1024];
    while let Ok(length @ 1..) = from.read(&mut bytes).await {
        plan.passes().await;
        let request = &bytes[..length];
        {
            let mut next = plan.next.lock().expect("no test panics with it");
            let is_meant = |words: &[u8]| request.windows(words.len()).any(|window| window == words);
            if next.as_ref().is_some_and(|(words, _)| is_meant(words)) {
                *fate.lock().expect("no test panics with it") = next.take().map(|(_, fate)| fate);
            }
        }
        let position_of = |words: &[u8]| request.windows(words.len()).position(|window| window == words);
        if position_of(b"LOCK.EXEC").is_some() {
            plan.packets.lock().expect("no test panics with it").push(request.to_vec());
        }
        let split = {
            let mut split = plan.split.lock().expect("no test panics with it");
            let at = split.as_ref().and_then(|words| position_of(words));
            // In front of the command's own header.
            at.and_then(|at| request[..at].iter().rposition(|byte| *byte == b'*')).inspect(|_| *split = None)
        };
        let (now, rest) = request.split_at(split.unwrap_or(request.len()));
        if to.write_all(now).await.is_err() {
            return;
        }
        if !rest.is_empty() {
            plan.rest.notified().await;
            if to.write_all(rest).await.is_err() {
                return;
            }
        }
    }
}

async fn replies(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, plan: &Plan, fate: &Mutex<Option<Fate>>) {
    let mut bytes = vec![0; 64 * 1024];
    while let Ok(length @ 1..) = from.read(&mut bytes).await {
        plan.passes().await;
        let fate = *fate.lock().expect("no test panics with it");
        match fate {
            Some(Fate::Cut(after)) => {
                // It may be gone, like any client.
                let _ = to.write_all(&bytes[..after.min(length)]).await;
                plan.done.fetch_add(1, Ordering::SeqCst);
                return;
            }
            Some(Fate::Held) => {
                plan.done.fetch_add(1, Ordering::SeqCst);
            }
            None => {
                if to.write_all(&bytes[..length]).await.is_err() {
                    return;
                }
            }
        }
    }
}

//! A TCP proxy between a server and its clients. It can hold traffic back in one direction or both, and cut
//! connections. It works wherever tests run, even without network namespaces.
//!
//! It forwards bytes and ignores their meaning. Bytes that were held back arrive late, complete and in order, as on a
//! network that was cut and healed while TCP kept retransmitting. So a grant may arrive long after it was made.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, Weak};
use std::thread::{self, JoinHandle};

/// The direction of bytes. The side that connects to the proxy is the client, even if it is a replica.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    ToServer,
    ToClient,
}

pub const BOTH: [Direction; 2] = [Direction::ToServer, Direction::ToClient];

/// A proxy for one server. Dropping it closes its connections.
pub struct Proxy {
    port: u16,
    shared: Arc<Shared>,
    acceptor: Option<JoinHandle<()>>,
}

struct Shared {
    server: SocketAddr,
    state: Mutex<State>,
    changed: Condvar,
}

struct State {
    held: Vec<Direction>,
    entry: Entry,
    /// How often all connections were cut: connections from before a cut are dead.
    cuts: u64,
    links: Vec<Weak<Link>>,
}

/// What happens to a new connection.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Entry {
    Open,
    Refused,
    /// The proxy is being dropped.
    Closed,
}

/// One client's connection, and the proxy's own to the server.
struct Link {
    client: TcpStream,
    server: TcpStream,
    /// The value of [`State::cuts`] when it was created.
    cuts: u64,
}

impl Proxy {
    /// A proxy on its own port, for a server on this port of the same machine.
    ///
    /// # Errors
    /// Errors from listening and from starting a thread.
    pub fn to(server: u16) -> io::Result<Proxy> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, support::free_port()))?;
        let port = listener.local_addr()?.port();
        let shared = Arc::new(Shared {
            server: (Ipv4Addr::LOCALHOST, server).into(),
            state: Mutex::new(State { held: Vec::new(), entry: Entry::Open, cuts: 0, links: Vec::new() }),
            changed: Condvar::new(),
        });
        let accepting = shared.clone();
        let acceptor =
            thread::Builder::new().name(format!("proxy {port}")).spawn(move || accepting.accept(&listener))?;
        Ok(Proxy { port, shared, acceptor: Some(acceptor) })
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    /// Holds back bytes in these directions until [`Proxy::heal`]. The close of a connection is held back too: a client
    /// does not learn that the server is gone.
    pub fn stall(&self, directions: &[Direction]) {
        self.shared.state().held.extend(directions);
    }

    /// Closes all connections and drops what is held back; new connections are refused until [`Proxy::heal`].
    pub fn cut(&self) {
        self.shared.end_links(Entry::Refused);
    }

    /// Delivers the bytes that were held back, and accepts connections again.
    pub fn heal(&self) {
        let mut state = self.shared.state();
        state.held.clear();
        state.entry = Entry::Open;
        self.shared.changed.notify_all();
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.shared.end_links(Entry::Closed);
        // Wakes the accepting thread. A failure means that it no longer listens.
        let _ = TcpStream::connect((Ipv4Addr::LOCALHOST, self.port));
        if let Some(acceptor) = self.acceptor.take() {
            // The thread has no result; a panic has already been printed.
            let _ = acceptor.join();
        }
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no holder of this mutex panics")
    }

    fn accept(self: Arc<Self>, listener: &TcpListener) {
        for client in listener.incoming() {
            let entry = self.state().entry;
            match (entry, client) {
                (Entry::Closed, _) => return,
                // The server may be down; then the client is refused.
                (Entry::Open, Ok(client)) => drop(self.link(client)),
                (Entry::Refused, _) | (_, Err(_)) => {}
            }
        }
    }

    fn link(self: &Arc<Self>, client: TcpStream) -> io::Result<()> {
        let server = TcpStream::connect(self.server)?;
        for stream in [&client, &server] {
            stream.set_nodelay(true)?;
        }
        let mut state = self.state();
        if state.entry != Entry::Open {
            return Ok(());
        }
        let link = Arc::new(Link { client, server, cuts: state.cuts });
        state.links.retain(|link| link.strong_count() > 0);
        state.links.push(Arc::downgrade(&link));
        for direction in BOTH {
            let (shared, link) = (self.clone(), link.clone());
            thread::Builder::new().name(format!("proxy {direction:?}")).spawn(move || {
                // Both an error and a return mean that the connection is closed.
                let _ = shared.carry(&link, direction);
                link.end();
            })?;
        }
        Ok(())
    }

    fn carry(&self, link: &Link, direction: Direction) -> io::Result<()> {
        let (mut from, mut to) = match direction {
            Direction::ToServer => (&link.client, &link.server),
            Direction::ToClient => (&link.server, &link.client),
        };
        let mut bytes = [0; 16 * 1024];
        loop {
            // An error counts as the end of the connection, and is held back as well.
            let length = from.read(&mut bytes).unwrap_or(0);
            self.wait_until_passing(link, direction);
            if length == 0 {
                return Ok(());
            }
            to.write_all(&bytes[..length])?;
        }
    }

    /// Waits while this direction is held back, but not on a connection that was cut, whose sockets accept nothing any
    /// more.
    fn wait_until_passing(&self, link: &Link, direction: Direction) {
        let is_held = |state: &mut State| state.held.contains(&direction) && state.cuts == link.cuts;
        drop(self.changed.wait_while(self.state(), is_held).expect("no holder of this mutex panics"));
    }

    fn end_links(&self, entry: Entry) {
        let mut state = self.state();
        state.entry = entry;
        state.cuts += 1;
        for link in state.links.drain(..).filter_map(|link| link.upgrade()) {
            link.end();
        }
        self.changed.notify_all();
    }
}

impl Link {
    fn end(&self) {
        for stream in [&self.client, &self.server] {
            // An error means that it has already closed.
            let _ = stream.shutdown(Shutdown::Both);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::ErrorKind;
    use std::time::Duration;

    /// Long enough for bytes that are not held back.
    const A_WHILE: Duration = Duration::from_millis(100);

    fn pair() -> (Proxy, TcpListener) {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
        let proxy = Proxy::to(listener.local_addr().expect("it listens").port()).expect("a port is free");
        (proxy, listener)
    }

    fn connect(proxy: &Proxy, listener: &TcpListener) -> (TcpStream, TcpStream) {
        let client = TcpStream::connect(("127.0.0.1", proxy.port())).expect("it listens");
        (client, listener.accept().expect("the proxy connects").0)
    }

    #[track_caller]
    fn assert_arrives(to: &mut TcpStream, bytes: &[u8]) {
        let mut received = vec![0; bytes.len()];
        to.set_read_timeout(Some(support::LIMIT)).expect("a time");
        to.read_exact(&mut received).expect("the bytes come");
        assert_eq!(received, bytes);
    }

    #[track_caller]
    fn assert_silent(to: &mut TcpStream) {
        to.set_read_timeout(Some(A_WHILE)).expect("a time");
        let kind = to.read(&mut [0]).expect_err("nothing comes").kind();
        assert!(matches!(kind, ErrorKind::WouldBlock | ErrorKind::TimedOut), "{kind:?}");
    }

    #[track_caller]
    fn assert_ended(to: &mut TcpStream) {
        to.set_read_timeout(Some(support::LIMIT)).expect("a time");
        match to.read(&mut [0]) {
            Ok(length) => assert_eq!(length, 0, "a byte came"),
            Err(error) => assert_eq!(error.kind(), ErrorKind::ConnectionReset),
        }
    }

    #[test]
    fn bytes_held_back_in_one_direction_arrive_complete_and_in_order() {
        let (proxy, listener) = pair();
        let (mut client, mut server) = connect(&proxy, &listener);
        proxy.stall(&[Direction::ToServer]);
        client.write_all(b"first ").expect("it is written");
        assert_silent(&mut server);
        server.write_all(b"other way").expect("it is written");
        assert_arrives(&mut client, b"other way");
        client.write_all(b"second").expect("it is written");
        proxy.heal();
        assert_arrives(&mut server, b"first second");
    }

    #[test]
    fn a_close_is_held_back_too() {
        let (proxy, listener) = pair();
        let (mut client, server) = connect(&proxy, &listener);
        proxy.stall(&BOTH);
        drop(server);
        assert_silent(&mut client);
        proxy.heal();
        assert_ended(&mut client);
    }

    #[test]
    fn a_cut_closes_all_connections_and_drops_what_was_held_back() {
        let (proxy, listener) = pair();
        let (mut client, mut server) = connect(&proxy, &listener);
        proxy.stall(&[Direction::ToServer]);
        client.write_all(b"lost").expect("it is written");
        assert_silent(&mut server);
        proxy.cut();
        assert_ended(&mut client);
        assert_ended(&mut server);
        let mut refused = TcpStream::connect(("127.0.0.1", proxy.port())).expect("it listens");
        assert_ended(&mut refused);
        proxy.heal();
        let (mut client, mut server) = connect(&proxy, &listener);
        client.write_all(b"new").expect("it is written");
        assert_arrives(&mut server, b"new");
    }

    #[test]
    fn a_dropped_proxy_closes_its_connections() {
        let (proxy, listener) = pair();
        let (mut client, mut server) = connect(&proxy, &listener);
        proxy.stall(&BOTH);
        drop(proxy);
        assert_ended(&mut client);
        assert_ended(&mut server);
    }
}

//! A connection that speaks RESP2 or RESP3 and hides nothing: commands can be sent without waiting for the reply,
//! replies can be awaited with a limit, and every kind of reply stays as it was on the wire.

use std::collections::VecDeque;
use std::io::{self, ErrorKind, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use crate::reply::Reply;
use crate::resp::{encode, Inbox, Pipeline};
use crate::stopwatch::{Stopwatch, TICK};
use crate::wait::LIMIT;

/// The shortest time limit that a socket takes, because timers and sockets round.
const SHORTEST: Duration = Duration::from_millis(1);

pub struct Client {
    stream: TcpStream,
    inbox: Inbox,
    /// RESP3 push messages (invalidations, published messages) received while waiting for a reply.
    pushes: VecDeque<Reply>,
    /// The process at the other end, if known.
    server: Option<u32>,
}

/// Shuts the connection down. A server that another thread is starting also has this socket open, until its `exec`;
/// that must not keep the connection alive.
impl Drop for Client {
    fn drop(&mut self) {
        // It fails if the server has closed the connection.
        _ = self.stream.shutdown(Shutdown::Both);
    }
}

impl Client {
    #[track_caller]
    pub fn connect(port: u16) -> Client {
        Client::try_connect(port).expect("a server listens")
    }

    pub fn try_connect(port: u16) -> io::Result<Client> {
        Client::over(TcpStream::connect(("127.0.0.1", port))?)
    }

    /// Connects to any address; an error if that fails within `limit`.
    pub fn try_connect_to(address: SocketAddr, limit: Duration) -> io::Result<Client> {
        Client::over(TcpStream::connect_timeout(&address, limit)?)
    }

    fn over(stream: TcpStream) -> io::Result<Client> {
        stream.set_nodelay(true)?;
        Ok(Client { stream, inbox: Inbox::default(), pushes: VecDeque::new(), server: None })
    }

    /// Sets the process at the other end, so that a stopped process can be detected.
    pub fn of_process(mut self, pid: u32) -> Client {
        self.server = Some(pid);
        self
    }

    /// Switches this connection to RESP3.
    #[track_caller]
    pub fn into_resp3(mut self) -> Client {
        let hello = self.run("HELLO 3");
        assert!(matches!(hello, Reply::Map(_)), "HELLO 3: {hello:?}");
        self
    }

    /// Sends one command and returns its reply, which may be an error. Arguments are any bytes.
    #[track_caller]
    pub fn cmd<A: AsRef<[u8]>>(&mut self, args: &[A]) -> Reply {
        self.send(args);
        self.read()
    }

    /// [`Client::cmd`] with the arguments as the words of a line.
    #[track_caller]
    pub fn run(&mut self, line: &str) -> Reply {
        self.send_line(line);
        self.read()
    }

    /// [`Client::cmd`] for a connection that may break, because the server is starting or ending.
    pub fn try_cmd<A: AsRef<[u8]>>(&mut self, args: &[A]) -> io::Result<Reply> {
        self.try_cmd_within(args, LIMIT)
    }

    /// [`Client::try_cmd`] with a time limit, after which the connection can no longer be used.
    pub fn try_cmd_within<A: AsRef<[u8]>>(&mut self, args: &[A], limit: Duration) -> io::Result<Reply> {
        self.stream.write_all(&encoded(args))?;
        self.try_read(limit)
    }

    /// Sends one command on a connection that may have closed.
    pub fn try_send<A: AsRef<[u8]>>(&mut self, args: &[A]) -> io::Result<()> {
        self.stream.write_all(&encoded(args))
    }

    /// Sends one command without waiting for its reply.
    #[track_caller]
    pub fn send<A: AsRef<[u8]>>(&mut self, args: &[A]) {
        self.send_raw(&encoded(args));
    }

    #[track_caller]
    pub fn send_line(&mut self, line: &str) {
        self.send(&words(line));
    }

    /// Sends bytes as they are: a pre-encoded pipeline, or half a command.
    #[track_caller]
    pub fn send_raw(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).expect("the server reads");
    }

    /// Sends all lines at once, then reads all replies.
    #[track_caller]
    pub fn pipeline<L: AsRef<str>>(&mut self, lines: &[L]) -> Vec<Reply> {
        let mut pipeline = Pipeline::default();
        for line in lines {
            pipeline.push(&words(line.as_ref()));
        }
        self.send_raw(&pipeline.bytes);
        lines.iter().map(|_| self.read()).collect()
    }

    /// The next reply; fails the test if none arrives within [`LIMIT`] or the connection closes.
    #[track_caller]
    pub fn read(&mut self) -> Reply {
        match self.try_read(LIMIT) {
            Ok(reply) => reply,
            Err(error) => panic!("no reply: {error}"),
        }
    }

    /// The next reply, or nothing if the server stays silent for `limit`.
    #[track_caller]
    pub fn read_within(&mut self, limit: Duration) -> Option<Reply> {
        match self.try_read(limit) {
            Ok(reply) => Some(reply),
            Err(error) if error.kind() == ErrorKind::TimedOut => None,
            Err(error) => panic!("the connection broke: {error}"),
        }
    }

    /// The next reply, or nothing if the server had `limit` of run time and stayed silent. For replies that must arrive
    /// in time: see [`Stopwatch`].
    #[track_caller]
    pub fn read_soon(&mut self, limit: Duration) -> Option<Reply> {
        let mut watch = self.stopwatch();
        self.read_by(&mut watch, limit)
    }

    /// [`Client::read_soon`] with a stopwatch that is already running.
    #[track_caller]
    pub fn read_by(&mut self, watch: &mut Stopwatch, limit: Duration) -> Option<Reply> {
        match self.try_read_by(watch, limit) {
            Ok(reply) => Some(reply),
            Err(error) if error.kind() == ErrorKind::TimedOut => None,
            Err(error) => panic!("the connection broke: {error}"),
        }
    }

    /// [`Client::read_by`] for a connection that may close.
    pub fn try_read_by(&mut self, watch: &mut Stopwatch, limit: Duration) -> io::Result<Reply> {
        loop {
            match self.try_read(TICK) {
                Err(error) if error.kind() == ErrorKind::TimedOut && watch.elapsed() < limit => {}
                end => return end,
            }
        }
    }

    /// Starts measuring the time that the server has had.
    pub fn stopwatch(&self) -> Stopwatch {
        Stopwatch::start(self.server)
    }

    /// The next reply if it has arrived, or how the connection closed. Push messages are set aside.
    pub fn read_now(&mut self) -> io::Result<Option<Reply>> {
        loop {
            match self.read_any_now()? {
                Some(push @ Reply::Push(_)) => self.pushes.push_back(push),
                reply => return Ok(reply),
            }
        }
    }

    /// The next reply or push message if it has arrived, or how the connection closed.
    pub fn read_any_now(&mut self) -> io::Result<Option<Reply>> {
        self.stream.set_nonblocking(true)?;
        let filled = self.inbox.fill(&mut self.stream);
        self.stream.set_nonblocking(false)?;
        if let Err(error) = &filled {
            if error.kind() != ErrorKind::WouldBlock {
                return Err(filled.unwrap_err());
            }
        }
        match (self.inbox.next()?, filled) {
            (None, Ok(0)) => Err(ErrorKind::UnexpectedEof.into()),
            (reply, _) => Ok(reply),
        }
    }

    /// Its own address, as seen by the server.
    #[track_caller]
    pub fn address(&self) -> String {
        self.stream.local_addr().expect("it is connected").to_string()
    }

    /// Whether a reply, or the end of the connection, can be read.
    pub fn has_reply(&mut self) -> bool {
        let is_silent = |error: io::Error| {
            matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted)
        };
        !self.inbox.is_empty()
            || self.limit_reads(SHORTEST).is_err()
            || !self.inbox.fill(&mut self.stream).is_err_and(is_silent)
    }

    /// The next reply, or `TimedOut`, or how the connection closed. Push messages are set aside.
    pub fn try_read(&mut self, limit: Duration) -> io::Result<Reply> {
        let deadline = Instant::now() + limit;
        loop {
            match self.read_any(deadline)? {
                push @ Reply::Push(_) => self.pushes.push_back(push),
                reply => return Ok(reply),
            }
        }
    }

    /// The next RESP3 push message, or nothing if none arrives within `limit`. For connections without a pending reply.
    #[track_caller]
    pub fn next_push(&mut self, limit: Duration) -> Option<Reply> {
        if let Some(push) = self.pushes.pop_front() {
            return Some(push);
        }
        match self.read_any(Instant::now() + limit) {
            Ok(push @ Reply::Push(_)) => Some(push),
            Ok(reply) => panic!("a reply where only pushes were expected: {reply:?}"),
            Err(error) if error.kind() == ErrorKind::TimedOut => None,
            Err(error) => panic!("the connection broke: {error}"),
        }
    }

    /// The id of this connection in CLIENT LIST.
    #[track_caller]
    pub fn id(&mut self) -> i64 {
        self.run("CLIENT ID").int()
    }

    /// Everything stored under a key: the value as bytes, and the key's deadline.
    #[track_caller]
    pub fn stored(&mut self, key: &str) -> (Reply, Reply) {
        (self.cmd(&["DUMP", key]), self.cmd(&["PEXPIRETIME", key]))
    }

    /// The remaining time of a key in milliseconds.
    #[track_caller]
    pub fn pttl(&mut self, key: &str) -> i64 {
        self.cmd(&["PTTL", key]).int()
    }

    fn read_any(&mut self, deadline: Instant) -> io::Result<Reply> {
        loop {
            if let Some(reply) = self.inbox.next()? {
                return Ok(reply);
            }
            // A reply that has begun is read to its end.
            let limit = if self.inbox.is_empty() {
                deadline.saturating_duration_since(Instant::now()).max(SHORTEST)
            } else {
                LIMIT
            };
            self.limit_reads(limit)?;
            match self.inbox.fill(&mut self.stream) {
                Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
                Ok(_) => {}
                // The process was stopped and continued during the wait.
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                // Systems report a timeout by one name or the other.
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Err(ErrorKind::TimedOut.into()),
                Err(error) => return Err(error),
            }
        }
    }

    fn limit_reads(&self, limit: Duration) -> io::Result<()> {
        self.stream.set_read_timeout(Some(limit))
    }
}

fn words(line: &str) -> Vec<&str> {
    line.split_whitespace().collect()
}

fn encoded<A: AsRef<[u8]>>(args: &[A]) -> Vec<u8> {
    let mut request = Vec::new();
    encode(&mut request, args);
    request
}

//! A connection that speaks RESP2 or RESP3 and hides nothing: commands can be sent without waiting for the reply,
//! replies can be awaited with a limit, and every kind of reply stays what it was on the wire.

use super::stopwatch::TICK;
use super::{Reply, Stopwatch, LIMIT};
use std::collections::VecDeque;
use std::io::{self, BufRead, BufReader, ErrorKind, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

/// Timers and sockets round: the shortest time limit that a socket takes.
const SHORTEST: Duration = Duration::from_millis(1);

pub struct Client {
    stream: BufReader<TcpStream>,
    /// RESP3 push messages (invalidations, published messages) that came while a reply was awaited.
    pushes: VecDeque<Reply>,
    /// The process at the other end, where it is known.
    server: Option<u32>,
}

impl Client {
    #[track_caller]
    pub fn connect(port: u16) -> Client {
        Client::try_connect(port).expect("a server listens")
    }

    pub fn try_connect(port: u16) -> io::Result<Client> {
        let stream = TcpStream::connect(("127.0.0.1", port))?;
        stream.set_nodelay(true)?;
        Ok(Client { stream: BufReader::new(stream), pushes: VecDeque::new(), server: None })
    }

    /// Tells which process is at the other end, so that it can be seen whether it stands still.
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

    /// Sends one command and returns its reply, be it an error. Arguments are any bytes.
    #[track_caller]
    pub fn cmd<A: AsRef<[u8]>>(&mut self, args: &[A]) -> Reply {
        self.send(args);
        self.read()
    }

    /// [`Client::cmd`] with the arguments as words of a line.
    #[track_caller]
    pub fn run(&mut self, line: &str) -> Reply {
        self.send_line(line);
        self.read()
    }

    /// [`Client::cmd`] where the connection may break: the server is starting or ending.
    pub fn try_cmd<A: AsRef<[u8]>>(&mut self, args: &[A]) -> io::Result<Reply> {
        self.stream.get_mut().write_all(&encode(args))?;
        self.try_read(LIMIT)
    }

    /// Sends one command without waiting for its reply.
    #[track_caller]
    pub fn send<A: AsRef<[u8]>>(&mut self, args: &[A]) {
        let request = encode(args);
        self.send_raw(&request);
    }

    #[track_caller]
    pub fn send_line(&mut self, line: &str) {
        self.send(&line.split_whitespace().collect::<Vec<_>>());
    }

    /// Sends bytes as they are: a pipeline that was encoded before, or half a command.
    #[track_caller]
    pub fn send_raw(&mut self, bytes: &[u8]) {
        self.stream.get_mut().write_all(bytes).expect("the server reads");
    }

    /// Sends all lines at once, then reads all replies.
    #[track_caller]
    pub fn pipeline<L: AsRef<str>>(&mut self, lines: &[L]) -> Vec<Reply> {
        let mut requests = Vec::new();
        for line in lines {
            let words: Vec<&str> = line.as_ref().split_whitespace().collect();
            requests.extend(encode(&words));
        }
        self.send_raw(&requests);
        lines.iter().map(|_| self.read()).collect()
    }

    /// The next reply; fails the test when none comes within [`LIMIT`] or the connection ends.
    #[track_caller]
    pub fn read(&mut self) -> Reply {
        match self.try_read(LIMIT) {
            Ok(value) => value,
            Err(error) => panic!("no reply: {error}"),
        }
    }

    /// The next reply, or nothing when the server stays silent for `limit`.
    #[track_caller]
    pub fn read_within(&mut self, limit: Duration) -> Option<Reply> {
        match self.try_read(limit) {
            Ok(value) => Some(value),
            Err(error) if error.kind() == ErrorKind::TimedOut => None,
            Err(error) => panic!("the connection broke: {error}"),
        }
    }

    /// The next reply, or nothing when the server has had `limit` for it and stayed silent. For what must come in time:
    /// see [`Stopwatch`].
    #[track_caller]
    pub fn read_soon(&mut self, limit: Duration) -> Option<Reply> {
        let mut watch = self.stopwatch();
        self.read_by(&mut watch, limit)
    }

    /// [`Client::read_soon`] by a watch that has run before.
    #[track_caller]
    pub fn read_by(&mut self, watch: &mut Stopwatch, limit: Duration) -> Option<Reply> {
        match self.try_read_by(watch, limit) {
            Ok(value) => Some(value),
            Err(error) if error.kind() == ErrorKind::TimedOut => None,
            Err(error) => panic!("the connection broke: {error}"),
        }
    }

    /// [`Client::read_by`] where the connection may end.
    pub fn try_read_by(&mut self, watch: &mut Stopwatch, limit: Duration) -> io::Result<Reply> {
        loop {
            match self.try_read(TICK) {
                Err(error) if error.kind() == ErrorKind::TimedOut && watch.elapsed() < limit => {}
                end => return end,
            }
        }
    }

    /// Begins to count the time that the server has.
    pub fn stopwatch(&self) -> Stopwatch {
        Stopwatch::start(self.server)
    }

    /// Whether a reply, or the end of the connection, is there to be read.
    pub fn is_answered(&mut self) -> bool {
        self.limit_reads(SHORTEST).is_err() || self.stream.fill_buf().is_ok()
    }

    /// The next reply, or `TimedOut`, or how the connection ended. Push messages are set aside.
    pub fn try_read(&mut self, limit: Duration) -> io::Result<Reply> {
        let deadline = Instant::now() + limit;
        loop {
            match self.read_any(deadline)? {
                push @ Reply::Push(_) => self.pushes.push_back(push),
                reply => return Ok(reply),
            }
        }
    }

    /// The next RESP3 push message, or nothing when none comes within `limit`. For connections with no reply pending.
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

    /// The number by which CLIENT LIST knows this connection.
    #[track_caller]
    pub fn id(&mut self) -> i64 {
        self.run("CLIENT ID").int()
    }

    /// Everything that is stored under a key: the value, byte by byte, and the key's deadline.
    #[track_caller]
    pub fn stored(&mut self, key: &str) -> (Reply, Reply) {
        (self.cmd(&["DUMP", key]), self.cmd(&["PEXPIRETIME", key]))
    }

    /// The milliseconds a key has left.
    #[track_caller]
    pub fn pttl(&mut self, key: &str) -> i64 {
        self.cmd(&["PTTL", key]).int()
    }

    /// Waits for the first byte only: a reply that has begun is read to its end.
    fn read_any(&mut self, deadline: Instant) -> io::Result<Reply> {
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            self.limit_reads(left.max(SHORTEST))?;
            match self.stream.fill_buf() {
                Ok([]) => return Err(ErrorKind::UnexpectedEof.into()),
                Ok(_) => break,
                // A stopped and continued process, in the middle of its waiting.
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                // The two names that systems have for the same thing.
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Err(ErrorKind::TimedOut.into()),
                Err(error) => return Err(error),
            }
        }
        self.limit_reads(LIMIT)?;
        Reply::read(&mut self.stream)
    }

    fn limit_reads(&self, limit: Duration) -> io::Result<()> {
        self.stream.get_ref().set_read_timeout(Some(limit))
    }
}

fn encode<A: AsRef<[u8]>>(args: &[A]) -> Vec<u8> {
    let mut request = format!("*{}\r\n", args.len()).into_bytes();
    for arg in args {
        let arg = arg.as_ref();
        request.extend(format!("${}\r\n", arg.len()).into_bytes());
        request.extend(arg);
        request.extend(b"\r\n");
    }
    request
}

//! Clients that wait for locks, and what a server reports about the queues.

use super::{decode_all, until, Builder, Client, Reply, Server};
use std::fs;
use std::thread;
use std::time::{Duration, Instant};

/// The limit for events that the contract promises immediately or within milliseconds, in the server's own time (see
/// [`Stopwatch`](super::Stopwatch)). Far more than a server needs, but less than the second that a missed wake-up may
/// cost on a [`quiet`] server.
pub const SOON: Duration = Duration::from_millis(500);

/// How long to watch that a forbidden event does not happen.
pub const A_WHILE: Duration = Duration::from_millis(200);

/// Longer than any test takes.
pub const LONG: &str = "PX 60000";

/// Longer than any test takes.
pub const FOR_EVER: Duration = Duration::from_secs(600);

/// A server whose cron runs only once a second, so that it does not hide a wake-up that the module missed.
pub fn quiet() -> Builder {
    Server::builder().config("hz 1")
}

/// A client with one pending command, which the server has queued and not yet replied to.
pub struct Waiter {
    pub client: Client,
    pub id: i64,
}

impl Waiter {
    /// Sends `line` over a new connection, and returns when the server has queued it.
    #[track_caller]
    pub fn park(server: &Server, line: &str) -> Waiter {
        Waiter::park_over(server.client(), server, line)
    }

    /// [`Waiter::park`] over an existing connection.
    #[track_caller]
    pub fn park_over(mut client: Client, server: &Server, line: &str) -> Waiter {
        let id = client.id();
        client.send_line(line);
        let mut observer = server.client();
        until(&format!("`{line}` waits"), || {
            if is_blocked(&mut observer, id) {
                return true;
            }
            if let Ok(reply) = client.try_read(Duration::ZERO) {
                panic!("`{line}` should wait, but got {reply:?}");
            }
            false
        });
        Waiter { client, id }
    }

    /// Sends `line`, a request that may get its reply before it was seen waiting: when this returns, the server has
    /// queued it or replied.
    #[track_caller]
    pub fn request(server: &Server, line: &str) -> Waiter {
        Waiter::request_over(server.client(), server, line)
    }

    /// [`Waiter::request`] over an existing connection.
    #[track_caller]
    pub fn request_over(mut client: Client, server: &Server, line: &str) -> Waiter {
        let id = client.id();
        client.send_line(line);
        let mut observer = server.client();
        until(&format!("`{line}` waits or has its reply"), || is_blocked(&mut observer, id) || client.has_reply());
        Waiter { client, id }
    }

    /// The reply, which must arrive now.
    #[track_caller]
    pub fn reply(&mut self) -> Reply {
        self.reply_within(SOON)
    }

    /// The reply, which must arrive before the server has had this much time for it.
    #[track_caller]
    pub fn reply_within(&mut self, limit: Duration) -> Reply {
        match self.client.read_soon(limit) {
            Some(reply) => reply,
            None => panic!("no reply within {limit:?}"),
        }
    }

    /// The fencing token of the grant to `owner`, which must arrive now.
    #[track_caller]
    pub fn granted(&mut self, owner: &str) -> i64 {
        self.granted_within(owner, SOON)
    }

    /// The fencing token of the grant to `owner`, which must arrive before the server has had this much time for it.
    #[track_caller]
    pub fn granted_within(&mut self, owner: &str, limit: Duration) -> i64 {
        let reply = self.reply_within(limit);
        assert!(
            matches!(&reply, Reply::Array(grant) if grant[0] == Reply::bulk(owner)),
            "expected a grant to {owner}, got {reply:?}"
        );
        reply.fence()
    }

    /// Fails if a reply has arrived.
    #[track_caller]
    pub fn assert_silent(&mut self) {
        self.assert_silent_for(Duration::ZERO);
    }

    /// Fails if a reply arrives within `time`.
    #[track_caller]
    pub fn assert_silent_for(&mut self, time: Duration) {
        if let Some(reply) = self.client.read_within(time) {
            panic!("expected silence, got {reply:?}");
        }
    }

    /// Reads the pending reply, and checks that there is no second one.
    #[track_caller]
    pub fn only_reply(&mut self) -> Reply {
        let reply = self.reply();
        assert_eq!(self.client.run("PING"), Reply::Status("PONG".into()), "after {reply:?}");
        reply
    }
}

/// The milliseconds since `start`, plus one for the rounding of millisecond clocks.
pub fn ms_since(start: Instant) -> u128 {
    start.elapsed().as_millis() + 1
}

/// Gives `key` to `owner` for a long time.
#[track_caller]
pub fn hold(client: &mut Client, key: &str, owner: &str) -> i64 {
    client.run(&format!("LOCK.ACQUIRE {key} {owner} {LONG}")).fence()
}

/// Queues `owners` for `key`, without a limit and in this order.
#[track_caller]
pub fn line_up<const N: usize>(server: &Server, key: &str, owners: [&str; N]) -> [Waiter; N] {
    owners.map(|owner| Waiter::park(server, &format!("LOCK.ACQUIRE {key} {owner} {LONG} BLOCK 0")))
}

/// The owners that wait for `key`, in queue order.
#[track_caller]
pub fn queue(client: &mut Client, key: &str) -> Vec<String> {
    let waiters = client.cmd(&["LOCK.WAITERS", key, "COUNT", "0"]);
    waiters.items().iter().map(|waiter| waiter.get("owner").text().to_string()).collect()
}

/// The owners that hold `key`.
#[track_caller]
pub fn holders(client: &mut Client, key: &str) -> Vec<String> {
    let info = client.cmd(&["LOCK.INFO", key, "COUNT", "0"]);
    if info.is_nil() {
        return Vec::new();
    }
    info.get("holders").items().iter().map(|holder| holder.get("owner").text().to_string()).collect()
}

/// Waits until exactly `owners` are queued for `key`.
#[track_caller]
pub fn until_queue(client: &mut Client, key: &str, owners: &[&str]) {
    until(&format!("{owners:?} wait for {key}"), || queue(client, key) == owners);
}

/// Waits until a renewal has moved the deadline of `key`: the lease must not expire first.
#[track_caller]
pub fn until_renewed(client: &mut Client, key: &str) {
    until_all_renewed(client, &[key]);
}

/// [`until_renewed`] for multiple keys at once.
#[track_caller]
pub fn until_all_renewed(client: &mut Client, keys: &[&str]) {
    let mut deadlines = || -> Vec<i64> {
        let request = |key: &&str| client.cmd(&["PEXPIRETIME", key]).int();
        let deadlines: Vec<i64> = keys.iter().map(request).collect();
        assert!(deadlines.iter().all(|deadline| *deadline > 0), "ended, or without an end: {keys:?}, {deadlines:?}");
        deadlines
    };
    let first = deadlines();
    until(&format!("{keys:?} are renewed"), || deadlines().iter().zip(&first).all(|(now, first)| now > first));
}

/// Waits until the server has closed the client with this id.
#[track_caller]
pub fn until_exited(observer: &mut Client, id: i64) {
    until(&format!("client {id} is gone"), || observer.run(&format!("CLIENT LIST ID {id}")).bytes().is_empty());
}

/// Runs `lines` in one transaction and returns their replies.
#[track_caller]
pub fn multi(client: &mut Client, lines: &[&str]) -> Vec<Reply> {
    let all: Vec<&str> = [&["MULTI"], lines, &["EXEC"]].concat();
    let mut replies = client.pipeline(&all);
    let results = replies.pop().expect("EXEC replies");
    for (line, queued) in lines.iter().zip(&replies[1..]) {
        assert_eq!(*queued, Reply::Status("QUEUED".into()), "{line}");
    }
    results.items().to_vec()
}

/// Fails if a random line is one that no server understands; any other reply may be correct.
#[track_caller]
pub fn assert_is_understood(line: &str, reply: &Reply) {
    let invalid = ["unknown", "syntax error", "wrong number", "not an integer", "invalid expire", "NOAUTH", "LOADING"];
    let is_invalid = |error: &str| invalid.iter().any(|mistake| error.contains(mistake));
    assert!(!matches!(reply, Reply::Error(error) if is_invalid(error)), "{line}: {reply:?}");
}

#[track_caller]
pub fn is_blocked(observer: &mut Client, id: i64) -> bool {
    let list = observer.run(&format!("CLIENT LIST ID {id}"));
    client_field(list.text(), "flags").is_some_and(|flags| flags.contains('b'))
}

pub fn client_field<'a>(line: &'a str, name: &str) -> Option<&'a str> {
    let mut fields = line.split_whitespace().filter_map(|field| field.split_once('='));
    fields.find(|(field, _)| *field == name).map(|(_, value)| value)
}

/// Checks that nothing of any waiter is left: no blocked client, no entry in the queues of these keys.
#[track_caller]
pub fn assert_no_waiters(server: &Server, keys: &[&str]) {
    server.wait_blocked(0);
    let mut client = server.client();
    for key in keys {
        assert_eq!(queue(&mut client, key), [""; 0], "{key}");
        let info = client.cmd(&["LOCK.INFO", key]);
        if !info.is_nil() {
            assert_eq!(info.get("waiters").int(), 0, "{key}");
        }
    }
}

/// Puts the server's only thread to sleep, so that everything that arrives during the sleep is there at its next
/// iteration. The returned client gets `+OK` when the server is awake again.
#[track_caller]
pub fn put_to_sleep(server: &Server, time: Duration) -> Client {
    let mut probe = server.client();
    let mut sleeper = server.client();
    let sleep = format!("DEBUG SLEEP {}", time.as_secs_f64());
    sleeper.send_line(&sleep);
    until("the server sleeps", || {
        // It may have woken up again unnoticed.
        if sleeper.has_reply() {
            assert_eq!(sleeper.read(), Reply::ok());
            sleeper.send_line(&sleep);
        }
        probe.send_line("PING");
        probe.read_within(Duration::from_millis(15)).is_none()
    });
    sleeper
}

/// Lets time pass for a promise about time; not for waiting for something that can be observed.
pub fn let_time_pass(time: Duration) {
    thread::sleep(time);
}

/// Every command in the server's AOF, in order. The server must have been built with [`plain_aof`].
#[track_caller]
pub fn aof(server: &Server) -> Vec<Vec<Vec<u8>>> {
    let folder = server.dir().join("appendonlydir");
    let mut files: Vec<_> = fs::read_dir(folder)
        .expect("the server writes an AOF")
        .map(|entry| entry.expect("a readable folder").path())
        .filter(|path| path.to_string_lossy().ends_with(".aof"))
        .collect();
    // The base also sorts before the increments by name.
    files.sort();
    let mut commands = Vec::new();
    for path in files {
        for command in decode_all(&fs::read(path).expect("the AOF is readable")).expect("the AOF holds commands") {
            commands.push(command.items().iter().map(|arg| arg.bytes().to_vec()).collect());
        }
    }
    commands
}

/// An AOF that contains only commands, which [`aof`] can read.
pub fn plain_aof(builder: Builder) -> Builder {
    builder.appendonly().config("aof-use-rdb-preamble no")
}

/// All locks of a server, by database and key: type, fencing token and holders. Without deadlines, which differ by the
/// time that the queries take.
#[track_caller]
pub fn all_locks(server: &Server) -> Vec<(u8, String, String)> {
    let mut client = server.client();
    let mut locks = Vec::new();
    for db in 0..16 {
        client.run(&format!("SELECT {db}"));
        for key in client.run("KEYS *").items() {
            let key = key.text();
            let lock = match client.cmd(&["TYPE", key]).text() {
                "redislock" => {
                    let info = client.cmd(&["LOCK.INFO", key]);
                    let holders = info.get("holders").items();
                    let held: Vec<_> = holders
                        .iter()
                        .map(|held| ["owner", "mode", "holds", "fence"].map(|field| held.get(field).clone()))
                        .collect();
                    format!("{:?} {:?} {held:?}", info.get("kind"), info.get("fence"))
                }
                other => other.to_string(),
            };
            locks.push((db, key.to_string(), lock));
        }
    }
    locks.sort();
    locks
}

/// How often the server's process has waited for something to do.
pub fn wake_ups(server: &Server) -> Option<u64> {
    let status = fs::read_to_string(format!("/proc/{}/status", server.pid())).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"))?;
    line.trim().parse().ok()
}

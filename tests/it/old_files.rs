//! Today's module reads the files of 0.1.0: RDB files, append-only files and DUMP payloads, written on three servers.
//!
//! The files are in `tests/data/0.1.0`, with a README that describes them. [`write_the_files_of_0_1_0`] wrote them.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use crate::support::skip::{skip, skips_shifted_clock};
use crate::support::{Builder, Client, Reply, Server};

/// Leases in the files never end, or on the first of January of these years, in ms.
const IN_2100: i64 = 4_102_444_800_000;
const IN_2110: i64 = 4_417_977_600_000;

/// A clock before the files were written.
const BEFORE: &str = "@2025-01-01 00:00:00";

macro_rules! files_of {
    ($($name:ident: $folder:literal,)*) => {$(
        mod $name {
            use super::*;

            #[test]
            fn an_rdb_keeps_every_lock() {
                super::an_rdb_keeps_every_lock(&Files::of($folder));
            }

            #[test]
            fn an_aof_keeps_every_lock() {
                super::an_aof_keeps_every_lock(&Files::of($folder));
            }

            #[test]
            fn a_rewritten_aof_keeps_every_lock() {
                super::a_rewritten_aof_keeps_every_lock(&Files::of($folder));
            }

            #[test]
            fn every_dump_is_restored() {
                super::every_dump_is_restored(&Files::of($folder));
            }

            #[test]
            fn no_fence_of_an_rdb_is_given_again() {
                super::no_fence_of_an_rdb_is_given_again(&Files::of($folder));
            }

            #[test]
            fn no_fence_of_an_aof_is_given_again() {
                super::no_fence_of_an_aof_is_given_again(&Files::of($folder));
            }
        }
    )*};
}

files_of! {
    of_redis_7_0: "redis-7.0.15",
    of_redis_8_0: "redis-8.0.6",
    of_valkey_9_1: "valkey-9.1.2",
}

fn an_rdb_keeps_every_lock(files: &Files) {
    if let Some(server) = files.load_rdb(Server::builder()) {
        assert_all_there(&server, files);
    }
}

fn an_aof_keeps_every_lock(files: &Files) {
    assert_forms("aof", files, &["DROP", "CLAMP", "HOLD", "LIMIT"]);
    assert_all_there(&files.load_aof("aof", Server::builder()), files);
}

fn a_rewritten_aof_keeps_every_lock(files: &Files) {
    assert_forms("aof-rewritten", files, &["FENCE", "HOLD"]);
    assert_all_there(&files.load_aof("aof-rewritten", Server::builder()), files);
}

fn every_dump_is_restored(files: &Files) {
    let dumps: Vec<Dump> =
        fs::read_to_string(files.path("dumps")).expect("the dumps").lines().map(Dump::parse).collect();
    let server = Server::start();
    if !reads(&server, Format::of_dump(&dumps[0].payload), "payloads") {
        return;
    }
    let mut client = server.client();
    for dump in &dumps {
        client.run(&format!("SELECT {}", dump.db));
        let until = dump.until.to_string();
        let reply = client.cmd(&[b"RESTORE", dump.key.as_bytes(), until.as_bytes(), &dump.payload, b"ABSTTL"]);
        assert_eq!(reply, Reply::ok(), "{}", dump.key);
    }
    assert_all_there(&server, files);
}

fn no_fence_of_an_rdb_is_given_again(files: &Files) {
    if skips_shifted_clock() {
        return;
    }
    if let Some(server) = files.load_rdb(Server::builder().clock(BEFORE)) {
        assert_next_fence_follows(&server, files.last_fence());
    }
}

fn no_fence_of_an_aof_is_given_again(files: &Files) {
    if skips_shifted_clock() {
        return;
    }
    let server = files.load_aof("aof", Server::builder().clock(BEFORE));
    assert_next_fence_follows(&server, files.last_fence());
    // A rewritten file has the fences of its locks only, also of locks with an ended holder.
    let server = files.load_aof("aof-rewritten", Server::builder().clock(BEFORE));
    assert_next_fence_follows(&server, files.largest_fence());
}

/// The clock is far behind, so the next fence comes from the file or from nowhere.
#[track_caller]
fn assert_next_fence_follows(server: &Server, last: i64) {
    assert_eq!(server.client().run("LOCK.ACQUIRE fresh a").fence(), last + 1);
}

/// Whether all locks are as they were, seen from every owner; and whether all their holds can be released.
#[track_caller]
fn assert_all_there(server: &Server, files: &Files) {
    assert_eq!(describe_all(server), files.locks());
    let mut client = server.client();
    let next = client.run("LOCK.ACQUIRE fresh a").fence();
    assert!(next > files.last_fence(), "{next} is not after {}", files.last_fence());
    client.run("LOCK.RELEASE fresh a");
    for (db, key) in keys(&mut client) {
        client.run(&format!("SELECT {db}"));
        give_back(&mut client, &key);
        assert_eq!(client.cmd(&["EXISTS", &key]).int(), 0, "{key} of database {db} is free");
    }
}

/// Ends every hold in LOCK.INFO, after checking that LOCK.HELD says the same and that no other owner is granted it.
#[track_caller]
fn give_back(client: &mut Client, key: &str) {
    let info = client.cmd(&["LOCK.INFO", key]);
    let kind = info.get("kind").text();
    let stranger = match kind {
        "mutex" => client.cmd(&["LOCK.ACQUIRE", key, "stranger"]),
        "reentrant" => client.cmd(&["RLOCK.ACQUIRE", key, "stranger"]),
        "rw" => client.cmd(&["RWLOCK.ACQUIRE", key, "stranger", "WRITE"]),
        _ => client.cmd(&["SEM.ACQUIRE", key, "stranger", "LIMIT", "90", "PERMITS", "90"]),
    };
    assert!(stranger.is_nil(), "{key}: {stranger:?}");
    for row in info.get("holders").items() {
        let (owner, holds) = (row.get("owner").bytes(), row.get("holds").int());
        let held = client.cmd(&[b"LOCK.HELD", key.as_bytes(), owner]);
        assert_eq!(held.items()[0], *row.get("fence"), "{key}");
        // LOCK.HELD adds up the holds that LOCK.INFO lists by mode, and the released holds are gone.
        assert!(held.items()[1].int() >= holds, "{key}: {held:?}");
        let family: &[u8] = match kind {
            "mutex" => b"LOCK.RELEASE",
            "reentrant" => b"RLOCK.RELEASE",
            "rw" => b"RWLOCK.RELEASE",
            _ => b"SEM.RELEASE",
        };
        let mode = row.get("mode").text().to_uppercase();
        let (released, left) = match kind {
            "mutex" => (client.cmd(&[family, key.as_bytes(), owner]), 1),
            "rw" => (client.cmd(&[family, key.as_bytes(), owner, mode.as_bytes(), b"HOLDS", b"0"]), 0),
            _ => (client.cmd(&[family, key.as_bytes(), owner, b"HOLDS", b"0"]), 0),
        };
        assert_eq!(released.int(), left, "{key}");
    }
}

/// A server's form of values: RDB files and payloads carry its number.
#[derive(Clone, Copy, Debug)]
struct Format(u16);

impl Format {
    /// `REDIS0010…`, `VALKEY080…`.
    fn of_rdb(bytes: &[u8]) -> Format {
        let digits = std::str::from_utf8(&bytes[..9]).expect("a header").trim_start_matches(char::is_alphabetic);
        Format(digits.parse().expect("a version"))
    }

    /// Two bytes before the checksum of eight.
    fn of_dump(payload: &[u8]) -> Format {
        let at = payload.len() - 10;
        Format(u16::from_le_bytes([payload[at], payload[at + 1]]))
    }

    /// No server reads a newer format. Up to 11 the numbers are common; then they are Redis' own, and from 80 on
    /// Valkey's.
    fn reads(self, other: Format) -> bool {
        other.0 <= self.0 && (other.0 <= 11 || (other.0 < 80) == (self.0 < 80))
    }
}

/// Whether this server reads `format`; if not, the test is skipped.
fn reads(server: &Server, format: Format, what: &str) -> bool {
    server.client().run("SAVE");
    let own = Format::of_rdb(&fs::read(server.dir().join("dump.rdb")).expect("an RDB file"));
    if !own.reads(format) {
        skip(&format!("{what} of version {} cannot be read by this server, whose own are of {}", format.0, own.0));
    }
    own.reads(format)
}

/// The files of one server.
struct Files {
    folder: PathBuf,
}

impl Files {
    fn of(server: &str) -> Files {
        Files { folder: Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/0.1.0").join(server) }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    fn lines(&self) -> Vec<String> {
        fs::read_to_string(self.path("locks")).expect("the list of locks").lines().map(String::from).collect()
    }

    /// The output of [`describe_all`] when the files were written.
    fn locks(&self) -> Vec<String> {
        self.lines().into_iter().filter(|line| !line.starts_with("last-fence ")).collect()
    }

    /// The fence of the last grant before the files were written: of a lock that was given back.
    fn last_fence(&self) -> i64 {
        let line = self.lines().pop().expect("lines");
        line.strip_prefix("last-fence ").and_then(|number| number.parse().ok()).expect("a fence, last")
    }

    /// The largest fence of the locks that are held.
    fn largest_fence(&self) -> i64 {
        let locks = self.locks();
        let fences = locks.iter().filter(|line| line.starts_with("lock ")).map(|line| line.split(' ').nth(5));
        fences.map(|fence| fence.and_then(|fence| fence.parse().ok()).expect("a fence")).max().expect("locks")
    }

    /// A server that has loaded the RDB file, where it can.
    fn load_rdb(&self, builder: Builder) -> Option<Server> {
        let mut server = builder.start();
        let file = fs::read(self.path("dump.rdb")).expect("an RDB file");
        if !reads(&server, Format::of_rdb(&file), "RDB files") {
            return None;
        }
        server.kill();
        fs::write(server.dir().join("dump.rdb"), file).expect("the file is put in place");
        server.restart();
        Some(server)
    }

    /// A server that has loaded one of the append-only files. They are commands without a version: every server can.
    fn load_aof(&self, name: &str, builder: Builder) -> Server {
        let mut server = builder.appendonly().start();
        server.kill();
        let folder = server.dir().join("appendonlydir");
        fs::remove_dir_all(&folder).expect("the server's own is gone");
        copy_files(&self.path(name), &folder);
        server.restart();
        server
    }
}

/// Whether the append-only file has every one of these forms of LOCK.APPLY.
#[track_caller]
fn assert_forms(name: &str, files: &Files, forms: &[&str]) {
    let mut found: Vec<String> = effects(&files.path(name)).into_iter().map(|words| words[2].clone()).collect();
    found.sort_unstable();
    found.dedup();
    for form in forms {
        assert!(found.iter().any(|there| there == form), "{name} has no {form}, only {found:?}");
    }
}

/// Every LOCK.APPLY of an append-only file.
fn effects(folder: &Path) -> Vec<Vec<String>> {
    let files = fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("a file").path());
    let commands = files
        .filter(|path| path.extension().is_some_and(|extension| extension == "aof"))
        .flat_map(|path| ::support::decode_all(&fs::read(path).expect("an append-only file")).expect("whole commands"));
    let words = commands
        .map(|command| command.items().iter().map(|word| word.bytes().escape_ascii().to_string()).collect::<Vec<_>>());
    words.filter(|words| words[0] == "LOCK.APPLY").collect()
}

fn copy_files(from: &Path, to: &Path) {
    fs::create_dir_all(to).expect("a folder");
    for entry in fs::read_dir(from).expect("a folder") {
        let entry = entry.expect("a file");
        fs::copy(entry.path(), to.join(entry.file_name())).expect("a copy");
    }
}

/// A line of `dumps`: `db key until payload`, the payload in hexadecimal.
struct Dump {
    db: u8,
    key: String,
    /// ms since the epoch, 0 for never: the argument of RESTORE … ABSTTL.
    until: i64,
    payload: Vec<u8>,
}

impl Dump {
    fn parse(line: &str) -> Dump {
        let [db, key, until, hex] = line.split(' ').collect::<Vec<_>>()[..] else { panic!("four fields: {line}") };
        let byte = |at: usize| u8::from_str_radix(&hex[at..at + 2], 16).expect("hexadecimal");
        Dump {
            db: db.parse().expect("a database"),
            key: key.into(),
            until: until.parse().expect("a deadline"),
            payload: (0..hex.len()).step_by(2).map(byte).collect(),
        }
    }

    fn line(&self) -> String {
        let hex: String = self.payload.iter().map(|byte| format!("{byte:02x}")).collect();
        format!("{} {} {} {hex}\n", self.db, self.key, self.until)
    }
}

/// Every key, with its database.
fn keys(client: &mut Client) -> Vec<(u8, String)> {
    let mut keys = Vec::new();
    for db in 0..16 {
        client.run(&format!("SELECT {db}"));
        keys.extend(client.run("KEYS *").items().iter().map(|key| (db, key.text().to_string())));
    }
    keys.sort();
    keys
}

/// A description of all locks, deadlines as dates: a line `lock db key kind limit fence until`, and below it a line
/// `holder owner mode holds fence lease until` for each, oldest first.
fn describe_all(server: &Server) -> Vec<String> {
    let mut client = server.client();
    let mut lines = Vec::new();
    for (db, key) in keys(&mut client) {
        client.run(&format!("SELECT {db}"));
        let until = client.cmd(&["PEXPIRETIME", &key]).int();
        let info = client.cmd(&["LOCK.INFO", &key]);
        assert_eq!(as_date(info.get("ttl").int()), until, "{key} ends when its time to live does");
        let [kind, limit, fence] = ["kind", "limit", "fence"].map(|field| describe(info.get(field)));
        lines.push(format!("lock {db} {key} {kind} {limit} {fence} {until}"));
        for row in info.get("holders").items() {
            let words = ["owner", "mode", "holds", "fence", "lease"].map(|field| describe(row.get(field)));
            lines.push(format!("holder {} {}", words.join(" "), as_date(row.get("ttl").int())));
        }
    }
    lines
}

fn describe(value: &Reply) -> String {
    match value {
        Reply::Int(number) => number.to_string(),
        words => words.bytes().escape_ascii().to_string(),
    }
}

/// The deadline that is `ttl_ms` away. All of them are whole days, so that the time of the question is rounded off.
fn as_date(ttl_ms: i64) -> i64 {
    const ROUND: i64 = 10 * 60_000;
    if ttl_ms < 0 {
        return ttl_ms;
    }
    let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("a clock after 1970").as_millis();
    let until = i64::try_from(now).expect("a date") + ttl_ms;
    (until + ROUND / 2) / ROUND * ROUND
}

/// The commands by which 0.1.0 made the locks in the files: every family in every stored form, and on the way every
/// effect.
const REQUESTS: &[&str] = &[
    "LOCK.ACQUIRE mutex a PERSIST",
    "LOCK.ACQUIRE mutex-until-2100 a PX 40000",
    "PEXPIREAT mutex-until-2100 IN_2100",
    // Up to 38 bytes lie inside the lock, longer owners on the heap.
    "LOCK.ACQUIRE mutex-of-38 a-token-of-thirty-eight-bytes-01234567 PERSIST",
    "LOCK.ACQUIRE mutex-of-39 a-token-of-thirty-nine-bytes-0123456789 PERSIST",
    "LOCK.ACQUIRE mutex-renewed a PX 50000",
    "LOCK.RENEW mutex-renewed a PERSIST",
    "LOCK.ACQUIRE mutex-given-back a",
    "LOCK.RELEASE mutex-given-back a",
    "MLOCK.ACQUIRE 2 several-1 several-2 a PERSIST",
    "RLOCK.ACQUIRE reentrant a HOLDS 3 PERSIST",
    "RLOCK.ACQUIRE reentrant-until-2100 an-owner-of-more-than-thirty-eight-bytes-0123456789 HOLDS 5 EX 60",
    "RLOCK.RELEASE reentrant-until-2100 an-owner-of-more-than-thirty-eight-bytes-0123456789",
    "PEXPIREAT reentrant-until-2100 IN_2100",
    "RWLOCK.ACQUIRE rw-read a READ PERSIST",
    "RWLOCK.ACQUIRE rw-read b READ HOLDS 2 PERSIST",
    "RWLOCK.ACQUIRE rw-write a WRITE HOLDS 2 PERSIST",
    "RWLOCK.ACQUIRE rw-write a READ HOLDS 3 PERSIST",
    "RWLOCK.ACQUIRE rw-until-2100 a WRITE PX 45000",
    "PEXPIREAT rw-until-2100 IN_2100",
    // Three deadlines: the first holder's is its key's, the second's is later cut to its key's, the third has none.
    "RWLOCK.ACQUIRE rw-deadlines a READ PX 45000",
    "PEXPIREAT rw-deadlines IN_2100",
    "RWLOCK.ACQUIRE rw-deadlines b READ PERSIST",
    "PEXPIREAT rw-deadlines IN_2110",
    "RWLOCK.ACQUIRE rw-deadlines c READ PERSIST",
    // The fence of the latest grant is above the fences of the holders.
    "RWLOCK.ACQUIRE rw-latest-gone a READ PERSIST",
    "RWLOCK.ACQUIRE rw-latest-gone b READ PERSIST",
    "RWLOCK.RELEASE rw-latest-gone b READ",
    "SEM.ACQUIRE semaphore a LIMIT 9 PERMITS 2 PERSIST",
    "SEM.ACQUIRE semaphore b LIMIT 8 PERMITS 3 PERSIST",
    "SEM.ACQUIRE semaphore an-owner-of-more-than-thirty-eight-bytes-0123456789 LIMIT 7 PERSIST",
    "SEM.ACQUIRE semaphore-deadlines a LIMIT 6 PX 45000",
    "PEXPIREAT semaphore-deadlines IN_2100",
    "SEM.ACQUIRE semaphore-deadlines b LIMIT 6 PERMITS 2 PERSIST",
    "PEXPIREAT semaphore-deadlines IN_2110",
    "SEM.ACQUIRE semaphore-deadlines c LIMIT 6 PERSIST",
    "SEM.ACQUIRE semaphore-latest-gone a LIMIT 4 PERSIST",
    "SEM.ACQUIRE semaphore-latest-gone b LIMIT 4 PERSIST",
    "SEM.RELEASE semaphore-latest-gone b",
    // Queued, it sets the limit, and times out.
    "SEM.ACQUIRE semaphore-lowered a LIMIT 5 PERMITS 3 PERSIST",
    "SEM.ACQUIRE semaphore-lowered b LIMIT 3 PERMITS 2 BLOCK 1",
    "SELECT 3",
    "LOCK.ACQUIRE mutex in-3 PERSIST",
    "RWLOCK.ACQUIRE rw-read in-3 READ PERSIST",
    "SELECT 15",
    "SEM.ACQUIRE semaphore in-15 LIMIT 2 PERMITS 2 PERSIST",
    "SELECT 0",
];

/// Past 16 holders an index is kept.
const MANY_HOLDERS: usize = 25;

/// Takes the locks and returns the fence of the last grant, which is given back.
fn take_locks(client: &mut Client) -> i64 {
    for line in REQUESTS {
        let line = line.replace("IN_2100", &IN_2100.to_string()).replace("IN_2110", &IN_2110.to_string());
        let reply = client.run(&line);
        assert!(!reply.is_error() && reply.is_nil() == line.contains("BLOCK"), "{line}: {reply:?}");
    }
    // The longest owner, with bytes that are special in some formats.
    let owner: Vec<u8> = b"\0\r\n\xff*$".iter().copied().cycle().take(1024).collect();
    client.cmd(&[&b"LOCK.ACQUIRE"[..], b"mutex-of-1024", &owner, b"PERSIST"]).fence();
    for number in 1..=MANY_HOLDERS {
        client
            .run(&format!("SEM.ACQUIRE semaphore-index owner-{number} LIMIT 90 PERMITS {} PERSIST", number % 3 + 1))
            .fence();
        client.run(&format!("RWLOCK.ACQUIRE rw-index owner-{number} READ PERSIST")).fence();
    }
    client.run("RWLOCK.RELEASE rw-index owner-7 READ");
    let last = client.run("LOCK.ACQUIRE last a").fence();
    client.run("LOCK.RELEASE last a");
    last
}

/// Not a test: it made the files, once. With the module of the time, and for each server:
/// `REDIS_LOCK_MODULE=… REDIS_SERVER=… DATA=tests/data/0.1.0/… cargo test --test it -- --ignored write_the_files`.
#[test]
#[ignore = "writes the files that the tests read"]
fn write_the_files_of_0_1_0() {
    let folder = PathBuf::from(std::env::var_os("DATA").expect("DATA names a folder"));
    fs::create_dir_all(&folder).expect("a folder");
    let server = Server::builder().appendonly().config("aof-use-rdb-preamble no").start();
    let mut client = server.client();
    let last_fence = take_locks(&mut client);
    let own = server.dir().join("appendonlydir");

    copy_files(&own, &folder.join("aof"));
    let locks = describe_all(&server).join("\n");
    fs::write(folder.join("locks"), format!("{locks}\nlast-fence {last_fence}\n")).expect("written");

    assert_eq!(client.run("SAVE"), Reply::ok());
    fs::copy(server.dir().join("dump.rdb"), folder.join("dump.rdb")).expect("a copy");

    let mut dumps = String::new();
    for (db, key) in keys(&mut client) {
        client.run(&format!("SELECT {db}"));
        let until = client.cmd(&["PEXPIRETIME", &key]).int().max(0);
        let payload = client.cmd(&["DUMP", &key]).bytes().to_vec();
        dumps += &Dump { db, key, until, payload }.line();
    }
    fs::write(folder.join("dumps"), dumps).expect("written");

    assert!(!client.run("BGREWRITEAOF").is_error());
    server.wait_aof_rewritten();
    copy_files(&own, &folder.join("aof-rewritten"));
}

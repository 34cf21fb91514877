//! Counts what clients do on the keys of a pattern, for `LOCK.ADOPTION REPORT`, and derives the assessment.
//!
//! On keys of `lock.adopt` the commands themselves report their outcome. On keys of `lock.adopt-observe` nothing is
//! translated: the filter reports each command, and [`Shadow`] derives what adoption would reply from the commands seen
//! before.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{DefaultHasher, Hash, Hasher};

use lock::value::claim::LockType;
use lock::value::time::Lease;

use super::originals::Original;
use crate::parse::{Argument, Condition, Expiry, SetCommand};

/// What a command did, or would do, to a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Act {
    /// A free lock was granted.
    Grant,
    /// A lock was not granted.
    Refuse,
    /// Its holder renewed it.
    Renew,
    /// Another token took the lock from its holder.
    TakeOver,
    /// It was released.
    Release,
    /// A command that compares no token released it, outside scripts and transactions.
    ReleaseWithoutToken,
    /// The client was queued.
    Wait,
    /// The lock was protected from the command.
    Protect,
    /// The caller lacks permission for the original command.
    NoPermission,
}

/// The acts, in the order of the report's fields.
const ACTS: [(Act, &str); 9] = [
    (Act::Grant, "grant"),
    (Act::Refuse, "refuse"),
    (Act::Renew, "renew"),
    (Act::TakeOver, "takeover"),
    (Act::Release, "release"),
    (Act::ReleaseWithoutToken, "release_without_token"),
    (Act::Wait, "wait"),
    (Act::Protect, "protected"),
    (Act::NoPermission, "noperm"),
];

/// Clients beyond this number are not counted.
const MOST_CLIENTS: usize = 10_000;

/// The counters of a pattern.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Seen {
    acts: [u64; ACTS.len()],
    /// Locks without a lease.
    no_lease: u64,
    /// SETs without NX, outside scripts and transactions.
    plain_sets: u64,
    /// Commands to which a lock replies WRONGTYPE.
    wrong_type: BTreeMap<&'static str, u64>,
    /// Values that cannot be a token.
    empty: u64,
    too_long: u64,
    /// Values that look like a timestamp or a counter rather than a token.
    times: u64,
    counters: u64,
    clients: BTreeSet<u64>,
}

const MOST_OF_TOKEN: usize = 1_024;

impl Seen {
    /// Counts an act.
    pub fn act(&mut self, act: Act) {
        self.acts[act as usize] += 1;
    }

    /// Counts a client, if it is known.
    pub fn client(&mut self, client: Option<u64>) {
        if let Some(client) = client.filter(|_| self.clients.len() < MOST_CLIENTS) {
            self.clients.insert(client);
        }
    }

    /// Counts a command to which a lock replies WRONGTYPE.
    pub fn wrong_type(&mut self, command: &'static str) {
        *self.wrong_type.entry(command).or_default() += 1;
    }

    /// Counts what kind of value this looks like.
    pub fn value(&mut self, value: &[u8]) {
        if value.is_empty() {
            self.empty += 1;
        } else if value.len() > MOST_OF_TOKEN {
            self.too_long += 1;
        } else if is_time(value) {
            self.times += 1;
        } else if is_counter(value) {
            self.counters += 1;
        }
    }

    /// Counts a lock without a lease.
    pub fn without_lease(&mut self) {
        self.no_lease += 1;
    }

    /// The counted acts with their field names.
    pub fn acts(&self) -> impl Iterator<Item = (&'static str, u64)> + '_ {
        ACTS.iter().zip(self.acts).map(|((_, name), count)| (*name, count))
    }

    fn of(&self, act: Act) -> u64 {
        self.acts[act as usize]
    }

    /// The other counters with their field names.
    pub fn numbers(&self) -> [(&'static str, u64); 6] {
        [
            ("no_lease", self.no_lease),
            ("values_empty", self.empty),
            ("values_long", self.too_long),
            ("values_time", self.times),
            ("values_counter", self.counters),
            ("clients", self.clients.len() as u64),
        ]
    }

    /// The commands to which a lock replies WRONGTYPE, with their counts.
    pub fn wrong_types(&self) -> &BTreeMap<&'static str, u64> {
        &self.wrong_type
    }

    fn is_none(&self) -> bool {
        *self == Seen::default()
    }
}

/// Whether the value looks like a current Unix time in seconds, milliseconds or microseconds.
fn is_time(value: &[u8]) -> bool {
    const SECONDS: std::ops::Range<u64> = 1_000_000_000..4_000_000_000;
    let whole = value.split(|byte| *byte == b'.').next().unwrap_or_default();
    let is_number = value.iter().all(|byte| byte.is_ascii_digit() || *byte == b'.');
    let number = std::str::from_utf8(whole).ok().filter(|_| is_number).and_then(|text| text.parse::<u64>().ok());
    number.is_some_and(|number| [1, 1_000, 1_000_000].iter().any(|unit| SECONDS.contains(&(number / unit))))
}

/// Whether the value is a small number. Several libraries use 1 as their token.
fn is_counter(value: &[u8]) -> bool {
    value != b"1" && value.len() < 10 && !value.is_empty() && value.iter().all(u8::is_ascii_digit)
}

/// Whether a pattern is suitable for adoption.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Assessment {
    /// `yes`, `remark`, `no` or `no match`.
    pub fits: &'static str,
    /// Why.
    pub reason: String,
}

/// What is known of a pattern besides the commands on its keys.
#[derive(Clone, Debug, Default)]
pub struct Surroundings {
    /// How many keys match now, by data type.
    pub keys: BTreeMap<String, u64>,
    /// Whether the pattern matches every key.
    pub matches_all: bool,
    /// Whether it is for locks in a hash.
    pub is_hash: bool,
    /// Users that would get NOPERM.
    pub refused_users: Vec<String>,
}

impl Seen {
    /// Assesses the pattern.
    pub fn assess(&self, around: &Surroundings) -> Assessment {
        let value = if around.is_hash { "hash" } else { "string" };
        let others: Vec<_> = around.keys.keys().filter(|kind| !["redislock", value].contains(&kind.as_str())).collect();
        let list = |names: Vec<&str>| names.join(", ");
        let no = |reason: String| Assessment { fits: "no", reason };
        if around.matches_all {
            return no("the pattern matches every key".into());
        }
        if !others.is_empty() {
            let kinds = list(others.iter().map(|kind| kind.as_str()).collect());
            let is_hash = !around.is_hash && others.iter().all(|kind| *kind == "hash");
            let hint = if is_hash { " (for locks stored in hashes, prefix the pattern with hash:)" } else { "" };
            return no(format!("keys of another type match: {kinds}{hint}"));
        }
        if !self.wrong_type.is_empty() {
            let commands = list(self.wrong_type.keys().copied().collect());
            return no(format!("these commands fail with WRONGTYPE on a lock: {commands}"));
        }
        if self.empty + self.too_long > 0 {
            return no("values are empty or longer than 1024 bytes, so they cannot be tokens".into());
        }
        if self.is_none() && around.keys.is_empty() {
            return Assessment { fits: "no match", reason: "no key matches, and no command has used one".into() };
        }
        if self.plain_sets > 0 && self.of(Act::Refuse) == 0 && self.plain_sets >= self.of(Act::Grant) {
            return no("keys are set without NX outside of scripts, so they are values and not locks".into());
        }
        let mut remarks = Vec::new();
        if self.of(Act::ReleaseWithoutToken) > 0 {
            remarks.push("releases do not check the token: a late DEL releases the lock of another old client".into());
        }
        if self.times > 0 {
            remarks.push("values look like timestamps: do not use these keys with native clients".into());
        }
        if self.counters > 0 {
            remarks.push("values are numbers: make sure that these keys are not counters".into());
        }
        if self.no_lease > 0 {
            remarks.push("locks have no lease: if a client crashes, its lock stays held until LOCK.BREAK".into());
        }
        if !around.refused_users.is_empty() {
            let users = around.refused_users.join(", ");
            remarks.push(format!("users that get NOPERM without +lock.adopted +lock.adopted_ro: {users}"));
        }
        let fits = if remarks.is_empty() { "yes" } else { "remark" };
        Assessment { fits, reason: remarks.join("; ") }
    }
}

/// The locks that observed commands have set, by the hash of the key. A key that existed before counts as free the
/// first time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Shadow {
    held: BTreeMap<u64, ShadowHold>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct ShadowHold {
    token: u64,
    lock_type: LockType,
    /// In server wall-clock time; `None`: no lease.
    until_ms: Option<u64>,
}

/// A lock that a command asks for.
struct Wanted<'a> {
    token: &'a [u8],
    lock_type: LockType,
    until_ms: Option<u64>,
    condition: Condition<'a>,
}

/// How many keys are remembered. At this number, those whose locks have ended are forgotten; if that leaves more than
/// half, all are. The next SET of a forgotten key counts as a grant.
const MOST_HELD: usize = 10_000;

/// The origin of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ObservedCaller {
    /// A connection.
    Connection,
    /// A script or a function.
    Script,
}

/// An observed command.
#[derive(Clone, Copy, Debug)]
pub struct ObservedCommand<'c, A> {
    /// Its arguments, beginning with the name.
    pub words: &'c [A],
    /// Its origin.
    pub from: ObservedCaller,
    /// The connection, if it is known.
    pub client: Option<u64>,
    /// The server's wall clock.
    pub now_ms: u64,
}

impl Shadow {
    /// No lock.
    pub const fn none() -> Shadow {
        Shadow { held: BTreeMap::new() }
    }

    /// The type of the lock that the key holds according to the observed commands.
    pub fn lock_type_of(&self, key: &[u8]) -> Option<LockType> {
        self.held.get(&hash_of(key)).map(|held| held.lock_type)
    }

    /// Counts a command that is not translated, for one of its keys and the pattern which that key matches.
    pub fn see<'a, A: Argument<'a>>(
        &mut self,
        seen: &mut Seen,
        key: &[u8],
        is_hash: bool,
        command: ObservedCommand<'_, A>,
    ) {
        let ObservedCommand { words, from, client, now_ms } = command;
        let Some(name) = words.first().map(|word| word.bytes()) else { return };
        let original = Original::named(name);
        if let Some(wrong) = wrong_type_of(name, original, words, is_hash) {
            seen.wrong_type(wrong);
        }
        if from == ObservedCaller::Connection {
            seen.client(client);
        }
        let Some(original) = original else { return self.expire(seen, key, words, now_ms) };
        if let Some(set) = SetCommand::parse(original, words) {
            self.see_set(seen, key, &set, from, now_ms);
            if let Some(value) = value_of(original, words) {
                seen.value(value);
            }
            return;
        }
        match original {
            Original::MSet | Original::MSetNx => {
                let pair = words[1..].chunks_exact(2).find(|pair| pair[0].bytes() == key);
                let Some(value) = pair.map(|pair| pair[1].bytes()) else { return };
                seen.value(value);
                let is_nx = original == Original::MSetNx;
                let condition = if is_nx { Condition::Free } else { Condition::Always };
                self.hold(
                    seen,
                    key,
                    Wanted { token: value, lock_type: LockType::Mutex, until_ms: None, condition },
                    now_ms,
                );
            }
            // The DEL that follows counts as the release.
            Original::HIncrBy if words.last().is_some_and(|number| number.bytes().starts_with(b"-")) => {}
            Original::HSet | Original::HSetNx | Original::HIncrBy if is_hash && words.len() == 4 => {
                // The next command sets its lease.
                let (token, until_ms) = (words[2].bytes(), Some(u64::MAX));
                let lock_type = LockType::Reentrant;
                self.hold(seen, key, Wanted { token, lock_type, until_ms, condition: Condition::Free }, now_ms);
            }
            Original::Del | Original::Unlink | Original::GetDel => self.release(seen, key, from, now_ms),
            Original::DelIfEq | Original::DelEx | Original::HDel => {
                self.release(seen, key, ObservedCaller::Script, now_ms)
            }
            _ => {}
        }
    }

    fn see_set(&mut self, seen: &mut Seen, key: &[u8], set: &SetCommand<'_>, from: ObservedCaller, now_ms: u64) {
        let Some(token) = set.token else { return };
        if set.condition == Condition::Always && from == ObservedCaller::Connection {
            seen.plain_sets += 1;
        }
        let until_ms = match set.expiry {
            Expiry::Lease(Lease::Ms(ms)) => Some(now_ms.saturating_add(ms.get())),
            Expiry::At(at) => Some(at.ms()),
            Expiry::Kept => self.held.get(&hash_of(key)).and_then(|held| held.until_ms),
            Expiry::Lease(Lease::Persist) => None,
        };
        let (token, lock_type, condition) = (token.as_bytes(), LockType::Mutex, set.condition);
        self.hold(seen, key, Wanted { token, lock_type, until_ms, condition }, now_ms);
    }

    fn hold(&mut self, seen: &mut Seen, key: &[u8], wanted: Wanted<'_>, now_ms: u64) {
        let Wanted { token, lock_type, until_ms, condition } = wanted;
        let is_live = |held: &ShadowHold| held.until_ms.is_none_or(|until| until > now_ms);
        let token = hash_of(token);
        let act = match (self.held.get(&hash_of(key)).filter(|held| is_live(held)), condition) {
            (Some(held), _) if lock_type == LockType::Reentrant && held.token == token => Act::Renew,
            (None, Condition::Held | Condition::HeldBy(_)) | (Some(_), Condition::Free) => Act::Refuse,
            (None, _) => Act::Grant,
            (Some(held), _) if held.token == token => Act::Renew,
            (Some(_), Condition::HeldBy(other))
                if self.held.get(&hash_of(key)).is_some_and(|held| held.token != hash_of(other)) =>
            {
                Act::Refuse
            }
            (Some(_), _) => Act::TakeOver,
        };
        seen.act(act);
        if act == Act::Refuse {
            return;
        }
        if act == Act::Grant && until_ms.is_none() {
            seen.without_lease();
        }
        if self.held.len() >= MOST_HELD {
            self.held.retain(|_, held| is_live(held));
            if self.held.len() > MOST_HELD / 2 {
                self.held.clear();
            }
        }
        self.held.insert(hash_of(key), ShadowHold { token, lock_type, until_ms });
    }

    /// EXPIRE and PEXPIRE: a renewal, or the lease of a lock that was set without one.
    fn expire<'a, A: Argument<'a>>(&mut self, seen: &mut Seen, key: &[u8], words: &[A], now_ms: u64) {
        let [name, _, time, ..] = words else { return };
        let unit_ms = match name.bytes().to_ascii_uppercase().as_slice() {
            b"EXPIRE" => 1_000,
            b"PEXPIRE" => 1,
            _ => return,
        };
        let time = crate::parse::integer(time.bytes()).and_then(|time| u64::try_from(time).ok());
        let held = self.held.get_mut(&hash_of(key)).filter(|held| held.until_ms.is_none_or(|until| until > now_ms));
        let (Some(time), Some(held)) = (time, held) else { return };
        match held.until_ms {
            None => seen.no_lease = seen.no_lease.saturating_sub(1),
            Some(u64::MAX) => {}
            Some(_) => seen.act(Act::Renew),
        }
        held.until_ms = Some(now_ms.saturating_add(time.saturating_mul(unit_ms)));
    }

    fn release(&mut self, seen: &mut Seen, key: &[u8], from: ObservedCaller, now_ms: u64) {
        let held = self.held.remove(&hash_of(key)).filter(|held| held.until_ms.is_none_or(|until| until > now_ms));
        if held.is_some() {
            seen.act(Act::Release);
        }
        // Counts even if the lease has expired: that is the case in which it frees the successor's lock.
        if from == ObservedCaller::Connection {
            seen.act(Act::ReleaseWithoutToken);
        }
    }
}

fn value_of<'a, A: Argument<'a>>(original: Original, words: &[A]) -> Option<&'a [u8]> {
    let position = if matches!(original, Original::SetEx | Original::PSetEx) { 3 } else { 2 };
    words.get(position).map(|word| word.bytes())
}

fn hash_of(token: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    token.hash(&mut hasher);
    hasher.finish()
}

/// Commands to which a lock replies WRONGTYPE, sorted.
const WRONG_TYPE: [&str; 92] = [
    "APPEND",
    "BITCOUNT",
    "BITFIELD",
    "BITFIELD_RO",
    "BITPOS",
    "BLMOVE",
    "BLPOP",
    "BRPOP",
    "BRPOPLPUSH",
    "BZPOPMAX",
    "BZPOPMIN",
    "DECR",
    "DECRBY",
    "GEOADD",
    "GEOPOS",
    "GEOSEARCH",
    "GETBIT",
    "GETEX",
    "GETRANGE",
    "HDEL",
    "HEXISTS",
    "HGET",
    "HGETALL",
    "HINCRBY",
    "HINCRBYFLOAT",
    "HKEYS",
    "HLEN",
    "HMGET",
    "HMSET",
    "HRANDFIELD",
    "HSCAN",
    "HSET",
    "HSETNX",
    "HSTRLEN",
    "HVALS",
    "INCR",
    "INCRBY",
    "INCRBYFLOAT",
    "LINDEX",
    "LINSERT",
    "LLEN",
    "LMOVE",
    "LPOP",
    "LPOS",
    "LPUSH",
    "LPUSHX",
    "LRANGE",
    "LREM",
    "LSET",
    "LTRIM",
    "PFADD",
    "PFCOUNT",
    "RPOP",
    "RPOPLPUSH",
    "RPUSH",
    "RPUSHX",
    "SADD",
    "SCARD",
    "SETBIT",
    "SETRANGE",
    "SISMEMBER",
    "SMEMBERS",
    "SMISMEMBER",
    "SMOVE",
    "SORT",
    "SPOP",
    "SRANDMEMBER",
    "SREM",
    "SSCAN",
    "STRLEN",
    "SUBSTR",
    "XACK",
    "XADD",
    "XDEL",
    "XLEN",
    "XRANGE",
    "XREADGROUP",
    "XTRIM",
    "ZADD",
    "ZCARD",
    "ZCOUNT",
    "ZINCRBY",
    "ZPOPMIN",
    "ZRANGE",
    "ZRANGEBYSCORE",
    "ZRANK",
    "ZREM",
    "ZREMRANGEBYRANK",
    "ZREMRANGEBYSCORE",
    "ZREVRANGE",
    "ZSCAN",
    "ZSCORE",
];

/// Whether the command requires a data type other than a lock.
pub fn has_type(name: &[u8]) -> bool {
    index_of(name).is_some()
}

/// The index in [`WRONG_TYPE`], case-insensitive. Does not copy the name, because it is called for many commands.
fn index_of(name: &[u8]) -> Option<usize> {
    let upper = || name.iter().map(u8::to_ascii_uppercase);
    WRONG_TYPE.binary_search_by(|other| other.bytes().cmp(upper())).ok()
}

/// The lock type that the command is for. `None`: it is for keys of any data type.
pub fn lock_type_of(name: &[u8], original: Option<Original>) -> Option<LockType> {
    match original {
        Some(Original::Del | Original::Unlink) => None,
        None if !has_type(name) => None,
        _ if name.first().is_some_and(|byte| byte.eq_ignore_ascii_case(&b'H')) => Some(LockType::Reentrant),
        _ => Some(LockType::Mutex),
    }
}

/// The command, if a lock of this pattern replies WRONGTYPE to it.
pub fn wrong_type_of<'a, A: Argument<'a>>(
    name: &[u8],
    original: Option<Original>,
    words: &[A],
    is_hash: bool,
) -> Option<&'static str> {
    let index = index_of(name);
    let is_of_hash = name.first().is_some_and(|byte| byte.eq_ignore_ascii_case(&b'H'));
    match (index, original) {
        // A reentrant mutex has a single field, which holds the count.
        (Some(index), Some(Original::HSet | Original::HSetNx | Original::HIncrBy)) if is_hash => {
            let is_count = words.len() == 4 && crate::parse::integer(words[3].bytes()).is_some();
            (!is_count).then_some(WRONG_TYPE[index])
        }
        (Some(_), Some(_)) if is_hash == is_of_hash => None,
        (Some(index), _) => Some(WRONG_TYPE[index]),
        (None, _) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_whose_locks_have_ended_make_room_for_others() {
        let (mut shadow, mut seen) = (Shadow::default(), Seen::default());
        let mut set = |key: String, now_ms| {
            let words: [&[u8]; 6] = [b"SET", key.as_bytes(), b"a", b"NX", b"PX", b"1000"];
            let command = ObservedCommand { words: &words, from: ObservedCaller::Connection, client: None, now_ms };
            shadow.see(&mut seen, key.as_bytes(), false, command);
            (shadow.held.len(), seen.of(Act::Refuse))
        };
        for number in 0..MOST_HELD {
            set(format!("k{number}"), 1_000);
        }
        assert_eq!(set("other".into(), 3_000), (1, 0));
        assert_eq!(set("other".into(), 3_500), (1, 1), "it is remembered");
    }

    /// Sends these lines for the key `k`; `|` marks a line sent from a script.
    fn see(lines: &[&str]) -> Seen {
        see_on(lines, false)
    }

    fn see_on(lines: &[&str], is_hash: bool) -> Seen {
        let (mut shadow, mut seen, mut now_ms) = (Shadow::default(), Seen::default(), 1_000);
        for line in lines {
            let (from, line) = match line.strip_prefix('|') {
                Some(line) => (ObservedCaller::Script, line),
                None => (ObservedCaller::Connection, *line),
            };
            if let Some(ms) = line.strip_prefix("after ") {
                now_ms += ms.parse::<u64>().unwrap();
                continue;
            }
            let words: Vec<&[u8]> = line.split(' ').map(str::as_bytes).collect();
            shadow.see(&mut seen, b"k", is_hash, ObservedCommand { words: &words, from, client: Some(7), now_ms });
        }
        seen
    }

    fn acts(lines: &[&str]) -> Vec<(&'static str, u64)> {
        see(lines).acts().filter(|(_, count)| *count > 0).collect()
    }

    fn around(kinds: &[&str]) -> Surroundings {
        let keys = kinds.iter().map(|kind| (kind.to_string(), 1)).collect();
        Surroundings { keys, ..Surroundings::default() }
    }

    fn fits(lines: &[&str], kinds: &[&str]) -> (&'static str, String) {
        let Assessment { fits, reason } = see(lines).assess(&around(kinds));
        (fits, reason)
    }

    #[test]
    fn adoptions_replies_are_derived_from_observed_commands() {
        let redis_py = ["SET k a NX PX 100", "SET k b NX PX 100", "|GET k", "|DEL k", "SET k b NX PX 100"];
        assert_eq!(acts(&redis_py), [("grant", 2), ("refuse", 1), ("release", 1)]);
        let expired = ["SET k a NX PX 100", "after 100", "SET k b NX PX 100", "DEL k"];
        assert_eq!(acts(&expired), [("grant", 2), ("release", 1), ("release_without_token", 1)]);
        let renewed = ["SET k a NX PX 100", "|SET k a PX 100", "|SET k b PX 100", "SET k c XX PX 100"];
        assert_eq!(acts(&renewed), [("grant", 1), ("renew", 1), ("takeover", 2)]);
        assert_eq!(acts(&["SET k a XX", "SETNX k a", "MSETNX k a"]), [("grant", 1), ("refuse", 2)]);
        assert_eq!(
            acts(&["SETNX k a", "SET k b IFEQ x", "SET k b IFEQ a"]),
            [("grant", 1), ("refuse", 1), ("takeover", 1)]
        );
    }

    #[test]
    fn the_owner_of_a_hash_reenters_and_releases_step_by_step() {
        let redisson = ["|HINCRBY k o 1", "|HINCRBY k o 1", "|HINCRBY k p 1", "|HINCRBY k o -1", "|DEL k"];
        let seen = see_on(&redisson, true);
        let acts: Vec<_> = seen.acts().filter(|(_, count)| *count > 0).collect();
        assert_eq!(acts, [("grant", 1), ("refuse", 1), ("renew", 1), ("release", 1)]);
    }

    #[test]
    fn library_locks_are_suitable() {
        assert_eq!(fits(&["SET k a NX PX 100", "|DEL k"], &["string"]), ("yes", String::new()));
        assert_eq!(fits(&[], &["redislock"]), ("yes", String::new()));
        assert_eq!(fits(&["SETNX k token", "EXPIRE k 9", "PEXPIRE k 900", "|DEL k"], &[]), ("yes", String::new()));
        // The script checks first.
        assert_eq!(fits(&["|EXISTS k", "|SET k a PX 100", "|SET k a PX 100", "|DEL k"], &[]).0, "yes");
        let redisson = ["|HINCRBY k o 1", "|PEXPIRE k 9", "|HEXISTS k o", "|DEL k"];
        let seen = see_on(&redisson, true);
        let around = Surroundings { is_hash: true, ..around(&["hash"]) };
        assert_eq!(seen.assess(&around).fits, "yes", "{seen:?}");
    }

    #[test]
    fn things_to_know_are_remarks() {
        for (lines, word) in [
            (&["SET k 1 NX EX 9", "DEL k"][..], "do not check the token"),
            (&["SETNX k 1795890246.02", "|DEL k"], "timestamps"),
            (&["SETNX k token"], "no lease"),
            (&["SETNX k token", "DEL k", "SETNX k token", "EXPIRE k 9"], "no lease"),
            (&["SET k 57 NX PX 9"], "numbers"),
        ] {
            let (fits, reason) = fits(lines, &["string"]);
            assert!(fits == "remark" && reason.contains(word), "{lines:?}: {fits}: {reason}");
        }
        let refused = Surroundings { refused_users: vec!["app".into()], ..around(&["string"]) };
        let assessment = see(&["SET k a NX PX 9"]).assess(&refused);
        assert!(assessment.fits == "remark" && assessment.reason.contains("+lock.adopted_ro: app"), "{assessment:?}");
    }

    #[test]
    fn values_that_are_not_locks_are_unsuitable() {
        for (lines, kinds, word) in [
            (&["INCR k", "EXPIRE k 9"][..], &["string"][..], "INCR"),
            (&["ZADD k 1 a"], &[], "ZADD"),
            (&["SETEX k 60 page", "GET k"], &["string"], "values and not locks"),
            (&["SET k "], &["string"], "cannot be tokens"),
            (&["SET k a NX PX 9"], &["zset"], "another type match: zset"),
            (&["HSET k user me"], &[], "HSET"),
            (&["HSET k user me"], &["hash"], "prefix the pattern with hash:"),
        ] {
            let (fits, reason) = fits(lines, kinds);
            assert!(fits == "no" && reason.contains(word), "{lines:?}: {fits}: {reason}");
        }
        let all = Surroundings { matches_all: true, ..Surroundings::default() };
        assert_eq!(see(&[]).assess(&all).fits, "no");
        assert_eq!(fits(&[], &[]).0, "no match");
        assert_eq!(see_on(&["HSET k a 1 b 2"], true).wrong_types().keys().collect::<Vec<_>>(), [&"HSET"]);
    }

    #[test]
    fn timestamps_and_counters_are_distinguished_from_tokens() {
        for time in ["1795890246", "1795890246.02", "1795890246020", "1795890246020123"] {
            assert!(is_time(time.as_bytes()) && !is_counter(time.as_bytes()), "{time}");
        }
        for token in ["1", "a", "", "17958902460201231795", "179589024.x", "host:7", "0x12"] {
            assert!(!is_time(token.as_bytes()) && !is_counter(token.as_bytes()), "{token}");
        }
        assert!(is_counter(b"0") && is_counter(b"42"));
    }

    #[test]
    fn the_commands_are_sorted() {
        assert!(WRONG_TYPE.is_sorted());
        assert!(has_type(b"incr") && has_type(b"ZADD") && !has_type(b"EXPIRE") && !has_type(b""));
    }
}

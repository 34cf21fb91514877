//! Converts commands of the contract to words, and replies to outcomes of the contract.

use lock::testing::contract::*;
use lock::testing::model::Value;

use crate::support::Reply;

/// Converts to a command that can be written: more than one hold at a time is possible only for permits.
pub fn sayable(command: &Command) -> Command {
    let sayable = |claim| match claim {
        Claim::Reentrant(Holds::By(_)) => Claim::Reentrant(Holds::By(1)),
        Claim::Read(Holds::By(_)) => Claim::Read(Holds::By(1)),
        Claim::Write(Holds::By(_)) => Claim::Write(Holds::By(1)),
        claim => claim,
    };
    let mut command = command.clone();
    match &mut command {
        Command::Acquire(Acquire { claim, .. }) | Command::Release { claim, .. } => *claim = sayable(*claim),
        Command::Renew { .. } | Command::Break { .. } | Command::Cancel { .. } => {}
        Command::TakeOver { .. } | Command::Count { .. } => {}
    }
    command
}

/// Whether it requests more permits than its own LIMIT, which is an error whatever is under the key.
pub fn is_wrong_in_itself(command: &Command) -> bool {
    let Command::Acquire(Acquire { claim: Claim::Permits(limit, count), .. }) = command else { return false };
    let (Holds::By(number) | Holds::Exactly(number)) = count;
    number > limit
}

/// The channel for the request's outcome, if it has no reply.
pub fn channel(number: u64) -> String {
    format!("request:{number}")
}

/// The number of the request whose outcome is published on this channel.
pub fn number_of(channel: &str) -> Option<u64> {
    channel.strip_prefix("request:")?.parse().ok()
}

/// The keys of `lock.adopt`.
pub const ADOPTED: &str = "lock.adopt a,b,c,hash:e";

/// Whether a lock of this type is adopted on the key.
fn is_adopted(key: Name, kind: Kind) -> bool {
    match kind {
        Kind::Mutex => ["a", "b", "c"].contains(&key),
        Kind::Reentrant => key == "e",
        Kind::ReadWrite | Kind::Semaphore => false,
    }
}

/// Whether the command of another lock library acquires no lock: on a key with a string or without a pattern, or with
/// an invalid count.
pub fn is_no_lock(command: &Command, value: impl Fn(Name) -> Option<Value>) -> bool {
    match command {
        Command::Acquire(Acquire { claim: Claim::Adopted { .. }, keys, .. }) => !is_adopted(keys[0], Kind::Mutex),
        Command::TakeOver { pairs, .. } => {
            let is_lock = |key: Name| is_adopted(key, Kind::Mutex) && !matches!(value(key), Some(Value::Foreign));
            !pairs.iter().all(|(key, _)| is_lock(key))
        }
        Command::Count { key, change, .. } => {
            let is_count = matches!(change, Change::By(1..) | Change::To(1..));
            !is_adopted(key, Kind::Reentrant) || value(key).is_none() && !is_count
        }
        _ => false,
    }
}

/// The connection number for scripts, which have no connection.
pub const SCRIPT: u64 = u64::MAX;

/// Whether a script sends it: with a lease, and without the wait that it would otherwise have.
pub fn is_of_script(asked: &Acquire) -> bool {
    matches!(asked.claim, Claim::Adopted { .. }) && asked.block.is_none() && asked.lease.is_some()
}

/// `SET key owner NX` with its expiry.
fn set_nx(asked: &Acquire, is_absolute: bool, wall: Ms) -> String {
    let (key, owner) = (asked.keys[0], asked.owner);
    let (unit, time) = match asked.lease {
        None if asked.number % 2 == 0 => return format!("SETNX {key} {owner}"),
        None => return format!("SET {key} {owner} NX"),
        Some(lease) if is_absolute => ("PXAT", wall + lease),
        Some(lease) => ("PX", lease),
    };
    if is_of_script(asked) {
        let script = "return(redis.call('SET',KEYS[1],ARGV[1],'NX',ARGV[2],ARGV[3]))";
        format!("EVAL {script} 1 {key} {owner} {unit} {time}")
    } else {
        format!("SET {key} {owner} {unit} {time} NX")
    }
}

/// Whether this is the correct reply to an adopted command; `None`: it is another command.
pub fn is_adopted_reply(command: &Command, expected: Outcome, reply: &Reply) -> Option<bool> {
    let has_code = |code: &str| matches!(reply, Reply::Error(text) if text.starts_with(code));
    let (Command::Acquire(Acquire { claim: Claim::Adopted { .. }, .. })
    | Command::TakeOver { .. }
    | Command::Count { .. }) = command
    else {
        return None;
    };
    Some(match (command, expected) {
        (Command::Acquire(_), Outcome::Granted(..)) => matches!(reply, Reply::Status(_) | Reply::Int(1)),
        (Command::Acquire(_), _) => reply.is_null() || *reply == Reply::Int(0),
        (_, Outcome::TakenOver(_)) => *reply == Reply::ok(),
        (_, Outcome::NotNow | Outcome::Protected) => has_code("TRYAGAIN "),
        (Command::Count { change: Change::By(_), .. }, Outcome::Counted(now, _)) => *reply == Reply::Int(now.into()),
        (_, Outcome::Counted(_, before)) => *reply == Reply::Int(before.is_none().into()),
        (_, Outcome::Refused(Refusal::Invalid)) => has_code("ERR "),
        _ => has_code("WRONGTYPE "),
    })
}

/// The words of a command at this wall-clock time.
pub fn line(command: &Command, wall: Ms) -> String {
    match command {
        Command::Acquire(asked @ Acquire { claim: Claim::Adopted { is_absolute }, .. }) => {
            set_nx(asked, *is_absolute, wall)
        }
        Command::TakeOver { pairs, lease, .. } => match (&pairs[..], lease) {
            ([(key, owner)], None) => format!("SET {key} {owner} KEEPTTL"),
            ([(key, owner)], Some(None)) => format!("SET {key} {owner}"),
            ([(key, owner)], Some(Some(ms))) => format!("SET {key} {owner} PX {ms}"),
            _ => pairs.iter().fold("MSET".into(), |line, (key, owner)| format!("{line} {key} {owner}")),
        },
        Command::Count { key, owner, change: Change::By(by), .. } => format!("HINCRBY {key} {owner} {by}"),
        Command::Count { key, owner, change: Change::To(count), .. } => format!("HSET {key} {owner} {count}"),
        Command::Acquire(asked) => {
            let mut line =
                format!("{} {}{}", head(asked.claim.kind(), "ACQUIRE", &asked.keys), asked.owner, claim(asked.claim));
            line += &lease(asked.lease);
            if let Some(block) = asked.block {
                line += &format!(" BLOCK {block}");
                line += if asked.coalesce { " COALESCE" } else { "" };
                if asked.notify {
                    line += &format!(" NOTIFY {}", channel(asked.number));
                }
            }
            line + if asked.session { " SESSION" } else { "" }
        }
        Command::Release { keys, owner, claim: released_claim, failed } => {
            let released_claim = match released_claim {
                Claim::Permits(_, holds) => permits(*holds),
                Claim::Slot(_) => String::new(),
                other => claim(*other),
            };
            let failed = if *failed { " FAILED" } else { "" };
            format!("{} {owner}{released_claim}{failed}", head(kind_of(command), "RELEASE", keys))
        }
        Command::Renew { keys, owner, kind, lease: given } => {
            format!("{} {owner}{}", head(*kind, "RENEW", keys), given.map_or(String::new(), lease))
        }
        Command::Break { key, owner: Some(owner) } => format!("LOCK.BREAK {key} OWNER {owner}"),
        Command::Break { key, owner: None } => format!("LOCK.BREAK {key}"),
        Command::Cancel { key, owner } => format!("LOCK.CANCEL {key} {owner}"),
    }
}

fn kind_of(command: &Command) -> Kind {
    match command {
        Command::Acquire(Acquire { claim, .. }) | Command::Release { claim, .. } => claim.kind(),
        Command::Renew { kind, .. } => *kind,
        Command::Count { .. } => Kind::Reentrant,
        Command::Break { .. } | Command::Cancel { .. } | Command::TakeOver { .. } => Kind::Mutex,
    }
}

fn head(kind: Kind, verb: &str, keys: &[Name]) -> String {
    let prefix = match kind {
        Kind::Mutex if keys.len() > 1 => return format!("MLOCK.{verb} {} {}", keys.len(), keys.join(" ")),
        Kind::Mutex => "LOCK",
        Kind::Reentrant => "RLOCK",
        Kind::ReadWrite => "RWLOCK",
        Kind::Semaphore => "SEM",
    };
    format!("{prefix}.{verb} {}", keys[0])
}

fn lease(lease: Option<Ms>) -> String {
    lease.map_or(" PERSIST".into(), |ms| format!(" PX {ms}"))
}

fn claim(claim: Claim) -> String {
    let holds = |holds| match holds {
        Holds::By(_) => String::new(),
        Holds::Exactly(n) => format!(" HOLDS {n}"),
    };
    match claim {
        Claim::Mutex | Claim::Adopted { .. } => String::new(),
        Claim::Reentrant(n) => holds(n),
        Claim::Read(n) => format!(" READ{}", holds(n)),
        Claim::Write(n) => format!(" WRITE{}", holds(n)),
        Claim::Permits(limit, n) => format!(" LIMIT {limit}{}", permits(n)),
        Claim::Slot(limit) => format!(" SLOT LIMIT {limit}"),
    }
}

fn permits(holds: Holds) -> String {
    match holds {
        Holds::By(n) => format!(" PERMITS {n}"),
        Holds::Exactly(n) => format!(" HOLDS {n}"),
    }
}

/// An event that is a server command.
pub fn native(event: Event) -> Option<String> {
    Some(match event {
        // Outside a script DEL does not release a native hold.
        Event::Deleted(key) => format!("EVAL return(redis.call('DEL',KEYS[1])) 1 {key}"),
        // An empty value cannot be a token, so this is a string even on a key of `lock.adopt`. It overwrites no lock.
        Event::Overwritten(key) => {
            format!("EVAL redis.call('DEL',KEYS[1])return(redis.call('SET',KEYS[1],'')) 1 {key}")
        }
        Event::Renamed(from, to) => format!("RENAME {from} {to}"),
        Event::Flushed => "FLUSHALL".into(),
        Event::Expire(key, Some(ms)) => format!("PEXPIRE {key} {ms}"),
        Event::Expire(key, None) => format!("PERSIST {key}"),
        Event::Writes(Writes::Refused) => "CONFIG SET min-replicas-to-write 1".into(),
        Event::Writes(Writes::Accepted) => "CONFIG SET min-replicas-to-write 0".into(),
        Event::GraceSet(ms) => format!("CONFIG SET lock.grace {ms}"),
        Event::KeepPlaceSet(ms) => format!("CONFIG SET lock.keep-place {ms}"),
        Event::MaxWaitersPerKeySet(most) => format!("CONFIG SET lock.max-waiters-per-key {}", most.unwrap_or(0)),
        Event::Restored(..) | Event::Unblocked(_) | Event::ClientGone(_) | Event::SlotMoved => return None,
    })
}

/// The meaning of a reply to a command.
pub fn outcome(command: &Command, reply: &Reply) -> Result<Outcome<i64>, String> {
    let strange = || format!("{}: {reply:?}", line(command, 0));
    if let Reply::Error(text) = reply {
        return refusal(text).map(Outcome::Refused).ok_or_else(strange);
    }
    match (command, reply) {
        (Command::Acquire(asked), reply) => match grant(asked, reply) {
            _ if reply.is_nil() => Ok(Outcome::NotGranted),
            Some((0, 0)) => Ok(Outcome::Queued),
            Some((fence, holds)) => Ok(Outcome::Granted(fence, holds)),
            None => Err(strange()),
        },
        (Command::Release { keys, .. }, Reply::Int(n)) => Ok(match (kind_of(command), n) {
            (Kind::Mutex, released) if keys.len() > 1 => Outcome::Released(*released as u32),
            (Kind::Mutex, 1) => Outcome::Released(0),
            (Kind::Mutex, 0) | (_, -1) => Outcome::NotHeld,
            (Kind::Mutex, _) => return Err(strange()),
            (_, left) => Outcome::Released(*left as u32),
        }),
        (Command::Renew { .. }, Reply::Int(n @ 0..=1)) => Ok(Outcome::Renewed(*n == 1)),
        (Command::Break { .. }, Reply::Int(n)) => Ok(Outcome::Broken(*n as u32)),
        (Command::Cancel { .. }, Reply::Int(n @ 0..=1)) => Ok(Outcome::Cancelled(*n == 1)),
        _ => Err(strange()),
    }
}

/// `[owner, fence]` for a mutex, `[owner, fence, holds]` for others, followed by the slot if any; a granted mutex is
/// held once. LOCK.INFO shows which slot.
fn grant(asked: &Acquire, reply: &Reply) -> Option<(i64, u32)> {
    let Reply::Array(items) = reply else { return None };
    let is_mutex = asked.claim.kind() == Kind::Mutex;
    if let (Claim::Slot(_), [owner, Reply::Int(fence), Reply::Int(holds @ 0..=1), Reply::Int(slot)]) =
        (asked.claim, &items[..])
    {
        let is_queued_reply = owner.is_bulk(asked.owner) && (*slot >= 0) == (*fence > 0);
        return is_queued_reply.then_some((*fence, *holds as u32));
    }
    let is_slot = matches!(asked.claim, Claim::Slot(_));
    match &items[..] {
        [owner, Reply::Int(fence)] if is_mutex && owner.is_bulk(asked.owner) => Some((*fence, (*fence > 0).into())),
        [owner, Reply::Int(fence), Reply::Int(holds)] if !is_mutex && !is_slot && owner.is_bulk(asked.owner) => {
            Some((*fence, *holds as u32))
        }
        _ => None,
    }
}

fn refusal(text: &str) -> Option<Refusal> {
    Some(match text.split(' ').next()? {
        "WRONGTYPE" => Refusal::WrongType,
        "WRONGKIND" => Refusal::WrongKind,
        "DEADLOCK" => Refusal::Deadlock,
        "MAXWAITERS" => Refusal::MaxWaiters,
        "GRACE" => Refusal::Grace,
        "ERR" => Refusal::Invalid,
        _ => return None,
    })
}

/// The outcome of a wait: text that does not depend on the fencing token, and the token.
pub type WaitOutcome<F> = (String, Option<F>);

/// The reply of a blocked client.
pub fn outcome_of_reply(asked: &Acquire, reply: &Reply) -> WaitOutcome<i64> {
    if matches!(asked.claim, Claim::Adopted { .. }) {
        match reply {
            Reply::Status(text) if text == "OK" => return ("granted 1".into(), None),
            reply if reply.is_null() => return ("nil".into(), None),
            _ => {}
        }
    }
    match grant(asked, reply) {
        Some((fence, holds)) => (format!("granted {holds}"), Some(fence)),
        None if reply.is_nil() => ("nil".into(), None),
        None => match reply {
            Reply::Array(items) if matches!(items[..], [Reply::Null | Reply::NullArray, Reply::Int(_)]) => {
                ("done".into(), Some(items[1].int()))
            }
            Reply::Error(text) if text.starts_with("UNBLOCKED") => (text.clone(), None),
            Reply::Error(text) => (text.split(' ').next().unwrap_or_default().into(), None),
            other => (format!("{other:?}"), None),
        },
    }
}

/// The message published to a waiter.
pub fn outcome_of_message(asked: &Acquire, message: &[u8]) -> WaitOutcome<i64> {
    let strange = (String::from_utf8_lossy(message).into_owned(), None);
    let Ok(json) = serde_json::from_slice::<serde_json::Value>(message) else { return strange };
    if json["key"] != asked.keys[0] || json["token"] != asked.owner {
        return strange;
    }
    match (json["outcome"].as_str(), json["fence"].as_i64(), json["holds"].as_i64()) {
        (Some("granted"), Some(fence), Some(holds))
            if json["slot"].is_number() == matches!(asked.claim, Claim::Slot(_)) =>
        {
            (format!("granted {holds}"), Some(fence))
        }
        (Some("done"), Some(fence), None) => ("done".into(), Some(fence)),
        (Some(outcome), None, None) if outcome != "granted" => (outcome.into(), None),
        _ => strange,
    }
}

/// The contract's form of this outcome.
pub fn expected_outcome(asked: &Acquire, answer: WaitReply) -> WaitOutcome<Grant> {
    let (by_reply, by_message) = match answer {
        WaitReply::Granted(grant, holds) => return (format!("granted {holds}"), Some(grant)),
        WaitReply::Done(grant) => return ("done".into(), Some(grant)),
        WaitReply::Cancelled | WaitReply::Superseded | WaitReply::Refused(_)
            if matches!(asked.claim, Claim::Adopted { .. }) =>
        {
            ("nil", "")
        }
        WaitReply::TimedOut => ("nil", "timeout"),
        WaitReply::Cancelled => ("UNBLOCKED cancelled", "cancelled"),
        WaitReply::Superseded => ("UNBLOCKED superseded by a newer request", "superseded"),
        WaitReply::Refused(Refusal::WrongType) => ("WRONGTYPE", "wrongtype"),
        WaitReply::Refused(Refusal::WrongKind) => ("WRONGKIND", "wrongkind"),
        WaitReply::Refused(Refusal::Deadlock) => ("DEADLOCK", "unblocked"),
        WaitReply::Refused(_) => ("ERR", "unblocked"),
        WaitReply::TryAgain => ("TRYAGAIN", "moved"),
        WaitReply::Demoted => ("UNBLOCKED", "unblocked"),
    };
    (if asked.notify { by_message } else { by_reply }.into(), None)
}

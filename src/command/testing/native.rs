//! The simulated server's own commands: DEL, RENAME and similar, MULTI, subscriptions, CONFIG and CLIENT, as far as the
//! transcripts of `tests/spec` need them.

use lock::engine::leave::Leave;
use lock::host::simulated::{Keyspace, Stored};
use lock::key::{ClientId, Key};
use lock::value::time::{Deadline, Timestamp};

use super::parts::Call;
use super::resp::Protocol;
use crate::host::OriginalOutcome;
use crate::parse::integer;
use crate::reply::ReplyWriter;

/// `Err` is the error message that the command replies with.
type CommandResult = Result<(), String>;

const SYNTAX: &str = "ERR syntax error";
const WRONG_TYPE: &str = "WRONGTYPE Operation against a key holding the wrong kind of value";
const NOT_AN_INTEGER: &str = "ERR value is not an integer or out of range";

/// A command of the simulated server itself.
pub fn run_original(call: Call<'_>, args: &[&[u8]]) -> OriginalOutcome {
    match run(call, &args[0].to_ascii_uppercase(), args) {
        Ok(()) => OriginalOutcome::Replied,
        Err(words) if words == WRONG_TYPE => OriginalOutcome::WrongType,
        Err(words) => {
            call.reply.borrow_mut().error_message(&words);
            OriginalOutcome::Replied
        }
    }
}

/// The string under a key.
pub fn string(call: Call<'_>, name: &[u8]) -> Option<Vec<u8>> {
    let (key, mut keyspace) = (Key::new(call.db, name), call.server.keyspace.borrow_mut());
    keyspace.expire(&key);
    matches!(keyspace.primary.get(&key), Some(Stored::Foreign)).then(|| call.server.strings.borrow()[&key].clone())
}

/// Runs one of the server's own commands; `name` is in upper case.
pub fn run(call: Call<'_>, name: &[u8], args: &[&[u8]]) -> CommandResult {
    match (name, &args[1..]) {
        (b"PING", []) => call.reply.borrow_mut().status("PONG"),
        (b"ECHO", [word]) => call.reply.borrow_mut().bytes(word),
        (b"HELLO", [version]) => return hello(call, version),
        (b"SELECT", [db]) => {
            let db = number(db)? as i32;
            call.with_connection(|connection| connection.db = db);
            call.reply.borrow_mut().status("OK");
        }
        (b"MULTI", []) => {
            call.with_connection(|connection| connection.queued = Some(Vec::new()));
            call.reply.borrow_mut().status("OK");
        }
        (b"DISCARD", []) => {
            call.with_connection(|connection| connection.queued = None);
            call.reply.borrow_mut().status("OK");
        }
        (b"WATCH", keys) => {
            let watched = keys.iter().map(|name| (call.db, name.to_vec()));
            call.with_connection(|connection| connection.watched.extend(watched));
            call.reply.borrow_mut().status("OK");
        }
        (b"UNWATCH", []) => {
            call.with_connection(|connection| connection.watched.clear());
            call.reply.borrow_mut().status("OK");
        }
        (b"SUBSCRIBE", channels) => channels.iter().for_each(|channel| subscribe(call, channel)),
        (b"CLIENT", [sub, rest @ ..]) => return client(call, &sub.to_ascii_uppercase(), rest),
        (b"CONFIG", [sub, name, value]) if sub.eq_ignore_ascii_case(b"SET") => return config_set(call, name, value),
        (b"CONFIG", [sub, name]) if sub.eq_ignore_ascii_case(b"GET") => return config_get(call, name),
        _ => return run_on_keys(call, name, args),
    }
    Ok(())
}

fn run_on_keys(call: Call<'_>, name: &[u8], args: &[&[u8]]) -> CommandResult {
    let mut reply = call.reply.borrow_mut();
    let mut keyspace = call.server.keyspace.borrow_mut();
    let mut strings = call.server.strings.borrow_mut();
    let now = keyspace.timestamp();
    let key = |name: &[u8]| Key::new(call.db, name);
    let is_there = |keyspace: &mut Keyspace, key: &Key| {
        keyspace.expire(key);
        keyspace.primary.contains_key(key)
    };
    match (name, &args[1..]) {
        (b"EXISTS", names) => {
            let there = names.iter().filter(|name| is_there(&mut keyspace, &key(name))).count();
            reply.integer(there as i64);
        }
        (b"TYPE", [name]) => {
            keyspace.expire(&key(name));
            reply.status(match keyspace.primary.get(&key(name)) {
                None => "none",
                Some(Stored::Foreign) => "string",
                Some(Stored::Lock(..)) => "redislock",
            });
        }
        (b"DEL" | b"UNLINK", names) => {
            let keys: Vec<Key> =
                names.iter().map(|name| key(name)).filter(|key| is_there(&mut keyspace, key)).collect();
            keys.iter().for_each(|key| keyspace.delete(key));
            reply.integer(keys.len() as i64);
        }
        (b"SET", [name, _, b"NX", ..]) if is_there(&mut keyspace, &key(name)) => reply.null_string(),
        (b"SETNX", [name, _]) if is_there(&mut keyspace, &key(name)) => reply.integer(0),
        (b"SET", [name, value] | [name, value, b"NX"]) => {
            keyspace.put(&key(name), Stored::Foreign);
            strings.insert(key(name), value.to_vec());
            reply.status("OK");
        }
        (b"GET", [name]) => {
            keyspace.expire(&key(name));
            match keyspace.primary.get(&key(name)) {
                None => reply.null_string(),
                Some(Stored::Lock(..)) => return Err(WRONG_TYPE.into()),
                Some(Stored::Foreign) => reply.bytes(&strings[&key(name)]),
            }
        }
        (b"INCR", [name]) => {
            keyspace.expire(&key(name));
            let before = match keyspace.primary.get(&key(name)) {
                None => 0,
                Some(Stored::Lock(..)) => return Err(WRONG_TYPE.into()),
                Some(Stored::Foreign) => integer(&strings[&key(name)]).ok_or(NOT_AN_INTEGER)?,
            };
            keyspace.put(&key(name), Stored::Foreign);
            strings.insert(key(name), (before + 1).to_string().into_bytes());
            reply.integer(before + 1);
        }
        (b"EXPIRE" | b"PEXPIRE" | b"EXPIREAT" | b"PEXPIREAT", [of, amount]) => {
            let amount = number(amount)?;
            let ms = if name.starts_with(b"P") { amount } else { amount * 1_000 };
            let from = if name.ends_with(b"AT") { 0 } else { now.ms() as i64 };
            let is_set = is_there(&mut keyspace, &key(of));
            match u64::try_from(from + ms).ok().filter(|at| *at > now.ms()) {
                Some(at) => keyspace.set_deadline(&key(of), Deadline::At(Timestamp::from_ms(at))),
                None => keyspace.delete(&key(of)),
            }
            reply.integer(i64::from(is_set));
        }
        (b"PERSIST", [name]) => {
            let had_end = until(&mut keyspace, &key(name)).is_some_and(|until| until != Deadline::Never);
            keyspace.set_deadline(&key(name), Deadline::Never);
            reply.integer(i64::from(had_end));
        }
        (b"TTL" | b"PTTL", [of]) => {
            let ttl = until(&mut keyspace, &key(of)).map_or(-2, |until| until.ttl_ms(now));
            reply.integer(if name == b"TTL" && ttl > 0 { (ttl + 500) / 1_000 } else { ttl });
        }
        (b"PEXPIRETIME", [name]) => {
            let until = until(&mut keyspace, &key(name));
            reply.integer(until.map_or(-2, |until| until.timestamp().map_or(-1, Timestamp::signed_ms)));
        }
        (b"RENAME", [from, to]) => {
            let moved = keyspace.take_copy(&key(from)).ok_or("ERR no such key")?;
            if from != to {
                keyspace.delete(&key(from));
                keyspace.put(&key(to), moved);
                if let Some(value) = strings.remove(&key(from)) {
                    strings.insert(key(to), value);
                }
            }
            reply.status("OK");
        }
        (b"MOVE", [name, db]) => {
            let to = Key::new(number(db)? as i32, name);
            let is_free = !is_there(&mut keyspace, &to);
            let moved = keyspace.take_copy(&key(name)).filter(|_| is_free);
            reply.integer(i64::from(moved.is_some()));
            if let Some(moved) = moved {
                keyspace.delete(&key(name));
                keyspace.put(&to, moved);
            }
        }
        (b"DUMP", [name]) => match keyspace.take_copy(&key(name)) {
            None => reply.null_string(),
            Some(copy) => {
                let mut dumps = call.server.dumps.borrow_mut();
                reply.bytes(format!("dump:{}", dumps.len()).as_bytes());
                dumps.push(copy);
            }
        },
        (b"RESTORE", [name, ttl, dump, options @ ..]) => {
            let number_of = std::str::from_utf8(dump).ok().and_then(|text| text.strip_prefix("dump:")?.parse().ok());
            let dumps = call.server.dumps.borrow();
            let stored: Option<&Stored> = number_of.and_then(|number: usize| dumps.get(number));
            let stored = stored.ok_or("ERR DUMP payload version or checksum are wrong")?.clone();
            if is_there(&mut keyspace, &key(name)) && options.is_empty() {
                return Err("BUSYKEY Target key name already exists.".into());
            }
            let until = match number(ttl)? {
                0 => Deadline::Never,
                ms => Deadline::At(now.plus_ms(ms as u64)),
            };
            let stored = match stored {
                Stored::Lock(lock, _) => Stored::Lock(lock, until),
                Stored::Foreign => Stored::Foreign,
            };
            keyspace.put(&key(name), stored);
            reply.status("OK");
        }
        (b"FLUSHDB" | b"FLUSHALL", _) => {
            let db = (name == b"FLUSHDB").then_some(call.db);
            let keys: Vec<Key> =
                keyspace.primary.keys().filter(|key| db.is_none_or(|db| key.db == db)).cloned().collect();
            keys.iter().for_each(|key| keyspace.delete(key));
            keyspace.events.clear();
            call.server.manager.borrow_mut().db_changed(db);
            reply.status("OK");
        }
        (b"SWAPDB", [one, other]) => {
            let (one, other) = (number(one)? as i32, number(other)? as i32);
            swap(&mut keyspace, one, other);
            for db in [one, other] {
                call.server.manager.borrow_mut().db_changed(Some(db));
            }
            reply.status("OK");
        }
        _ => return Err(format!("ERR unknown command '{}' in the simulated server", args[0].escape_ascii())),
    }
    Ok(())
}

/// The key's own deadline; `None`: the key does not exist.
fn until(keyspace: &mut Keyspace, key: &Key) -> Option<Deadline> {
    keyspace.expire(key);
    keyspace.primary.get(key).map(|stored| match stored {
        Stored::Lock(_, until) => *until,
        Stored::Foreign => Deadline::Never,
    })
}

fn swap(keyspace: &mut Keyspace, one: i32, other: i32) {
    let stored = std::mem::take(&mut keyspace.primary);
    keyspace.primary = stored
        .into_iter()
        .map(|(key, stored)| {
            let db = match key.db {
                db if db == one => other,
                db if db == other => one,
                db => db,
            };
            (Key::new(db, &key.name), stored)
        })
        .collect();
}

fn hello(call: Call<'_>, version: &[u8]) -> CommandResult {
    let protocol = match version {
        b"2" => Protocol::Resp2,
        b"3" => Protocol::Resp3,
        _ => return Err("NOPROTO unsupported protocol version".into()),
    };
    call.with_connection(|connection| connection.outbox.protocol = protocol);
    let mut reply = call.reply.borrow_mut();
    reply.protocol = protocol;
    reply.map(1);
    reply.bytes(b"proto");
    reply.integer(if protocol == Protocol::Resp3 { 3 } else { 2 });
    Ok(())
}

fn subscribe(call: Call<'_>, channel: &[u8]) {
    let number = call.with_connection(|connection| {
        connection.channels.insert(channel.to_vec());
        connection.channels.len()
    });
    let mut reply = call.reply.borrow_mut();
    reply.push(3);
    reply.bytes(b"subscribe");
    reply.bytes(channel);
    reply.integer(number as i64);
}

fn client(call: Call<'_>, sub: &[u8], args: &[&[u8]]) -> CommandResult {
    match (sub, args) {
        (b"ID", []) => call.reply.borrow_mut().integer(call.client.0 as i64),
        (b"UNBLOCK", [id, how @ ..]) => {
            let client = ClientId(number(id)? as u64);
            let request = call.server.clients.borrow().blocked_by(client);
            if let Some(request) = request {
                let mut clients = call.server.clients.borrow_mut();
                let is_adopted = clients.waiting.remove(&request).is_some_and(|waiting| waiting.is_adopted);
                let with_error = how.first().is_some_and(|how| how.eq_ignore_ascii_case(b"ERROR"));
                if let Some(connection) = clients.connections.get_mut(&client) {
                    if with_error {
                        connection.outbox.error_message("UNBLOCKED client unblocked via CLIENT UNBLOCK");
                    } else if is_adopted {
                        connection.outbox.null_string();
                    } else {
                        connection.outbox.null();
                    }
                }
                let now = call.server.keyspace.borrow().now();
                call.server.manager.borrow_mut().leave(&now, request, Leave::Abandon);
            }
            call.reply.borrow_mut().integer(i64::from(request.is_some()));
        }
        (b"KILL", [by, id]) if by.eq_ignore_ascii_case(b"ID") => {
            let client = ClientId(number(id)? as u64);
            let is_there = call.server.clients.borrow().connections.contains_key(&client);
            call.server.disconnect(client);
            call.reply.borrow_mut().integer(i64::from(is_there));
        }
        _ => return Err(SYNTAX.into()),
    }
    Ok(())
}

fn config_set(call: Call<'_>, name: &[u8], value: &[u8]) -> CommandResult {
    if name == b"lock.adopt" {
        let mut settings = call.server.settings.borrow_mut();
        settings.adopted = settings.adopted.change(value).map_err(|_| SYNTAX)?;
        call.reply.borrow_mut().status("OK");
        return Ok(());
    }
    let value = u64::try_from(number(value)?).map_err(|_| SYNTAX)?;
    let count = usize::try_from(value).map_err(|_| SYNTAX)?;
    let now = call.server.keyspace.borrow().now();
    let (mut manager, mut settings) = (call.server.manager.borrow_mut(), call.server.settings.borrow_mut());
    match name {
        b"lock.default-lease" => settings.leases.default_ms = value,
        b"lock.max-lease" => settings.leases.max_ms = value,
        b"lock.max-waiters" => manager.limits.max_waiters = count,
        b"lock.max-waiters-per-key" => manager.limits.max_waiters_per_key = Some(count).filter(|count| *count > 0),
        b"lock.keep-place" => manager.limits.keep_place_ms = value,
        b"lock.grace" => manager.change_grace(&now, value),
        b"lock.log-hold" => manager.observer.settings.holds_ms = Some(value).filter(|ms| *ms > 0),
        b"lock.log-wait" => manager.observer.settings.waits_ms = Some(value).filter(|ms| *ms > 0),
        b"lock.log-max-len" => settings.log_max_len = count,
        b"lock.adopt-wait" => settings.adopt_wait_ms = value,
        _ => return Err(format!("ERR Unknown option {}", name.escape_ascii())),
    }
    call.reply.borrow_mut().status("OK");
    Ok(())
}

fn config_get(call: Call<'_>, name: &[u8]) -> CommandResult {
    let (manager, settings) = (call.server.manager.borrow(), call.server.settings.borrow());
    let value = match name {
        b"lock.default-lease" => settings.leases.default_ms,
        b"lock.max-lease" => settings.leases.max_ms,
        b"lock.keep-place" => manager.limits.keep_place_ms,
        b"lock.max-waiters" => manager.limits.max_waiters as u64,
        b"lock.max-waiters-per-key" => manager.limits.max_waiters_per_key.unwrap_or(0) as u64,
        b"lock.log-max-len" => settings.log_max_len as u64,
        _ => return Err(format!("ERR Unknown option {}", name.escape_ascii())),
    };
    let mut reply = call.reply.borrow_mut();
    reply.map(1);
    reply.bytes(name);
    reply.bytes(value.to_string().as_bytes());
    Ok(())
}

fn number(word: &[u8]) -> Result<i64, String> {
    integer(word).ok_or_else(|| "ERR value is not an integer or out of range".to_string())
}

/// Globs with `*` and `?` only.
pub fn matches(pattern: &[u8], name: &[u8]) -> bool {
    match (pattern, name) {
        ([], []) => true,
        ([b'*', rest @ ..], _) => (0..=name.len()).any(|from| matches(rest, &name[from..])),
        ([b'?', pattern @ ..], [_, name @ ..]) => matches(pattern, name),
        ([one, pattern @ ..], [other, name @ ..]) if one == other => matches(pattern, name),
        _ => false,
    }
}

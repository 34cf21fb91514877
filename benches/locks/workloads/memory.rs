//! Memory: per lock, per blocked client, per request that waits with NOTIFY.

use std::io;
use std::time::Duration;

use support::{Builder, Connection, Pipeline, Reply};

use super::plan::Plan;
use crate::plots::{Line, Plot};
use crate::rivals::{self, prepare, Names, Pair, Rival};
use crate::section::{Section, Verdict};
use crate::server::Server;
use crate::stats::{digits, Figure};

const WAYS: &[&Rival] =
    &[&rivals::LOCK, &rivals::RLOCK, &rivals::SET_DEL, &rivals::LUA_HASH, &rivals::COUNTER, &rivals::TWO_KEYS];

/// Disables snapshots, whose fork would copy pages during the measurement.
fn without_snapshots(plan: &Plan) -> Builder {
    plan.builder.clone().config("save \"\"")
}

pub fn locks(plan: &Plan) -> io::Result<Section> {
    let sizes: &[usize] = plan.scale.pick(&[1000, 10_000, 100_000, 1_000_000], &[1000, 10_000, 100_000]);
    let mut columns =
        vec!["implementation", "beyond key and owner, to SET NX PX", "MEMORY USAGE", "beyond key and owner"];
    let labels: Vec<String> = sizes.iter().map(|size| format!("used_memory per lock, {size} locks")).collect();
    columns.extend(labels.iter().map(String::as_str));
    let mut section = Section::new(
        "Memory per lock",
        "Locks have names of 12 bytes and owners of 36, and are held once. MEMORY USAGE is that of one lock, with all \
         its keys. used_memory is the growth of the whole server, including its tables of keys and deadlines, divided \
         by the number of locks; with fewer than a thousand, the buffers of the connection that creates them dominate. \
         There are no snapshots.",
        &columns,
    );
    let builder = without_snapshots(plan);
    let mut all = Vec::new();
    for rival in WAYS {
        let mut server = Server::start(&builder)?;
        let (here, missing) = prepare(&mut server, &[rival])?;
        let Some((rival, scripts)) = here.first() else {
            section.missing(&missing);
            continue;
        };
        let mut client = Connection::connect(server.port())?;
        client.command(&["PING"])?;
        let empty = server.info_number("memory", "used_memory")?;
        let mut per_lock = Vec::new();
        let mut made = 0;
        for size in sizes {
            while made < *size {
                let mut pair = Pair::default();
                for index in made..made + 1000 {
                    (rival.pair)(&mut pair, &Names::numbered(index, scripts));
                }
                made += 1000;
                client.run(&pair.acquire)?;
            }
            per_lock.push((server.info_number("memory", "used_memory")? - empty) / made as f64);
        }
        let usage = usage_of_one(&mut server, &Names::numbered(0, scripts).key)?;
        all.push((*rival, usage, per_lock));
    }

    let beyond = |usage: f64| usage - 48.0;
    let floor = all.iter().find(|(rival, ..)| rival.name == rivals::SET_DEL.name).map(|(_, usage, _)| beyond(*usage));
    for (rival, usage, per_lock) in &all {
        let name = if rival.name == rivals::SET_DEL.name { "SET NX PX" } else { rival.name };
        let ratio = floor.map_or(String::new(), |floor| digits(beyond(*usage) / floor));
        let mut cells = vec![name.to_owned(), ratio, digits(*usage), digits(beyond(*usage))];
        cells.extend(per_lock.iter().map(|bytes| digits(*bytes)));
        section.cells(cells);
        if rival.name == rivals::LOCK.name {
            let measured = Some(Figure::of(vec![beyond(*usage)]));
            section.verdicts =
                vec![Verdict::at_most("memory of a lock beyond key and owner", 150.0, measured).unit(" bytes")];
        }
    }
    if section.verdicts.is_empty() {
        section.verdicts = vec![Verdict::at_most("memory of a lock beyond key and owner", 150.0, None).unit(" bytes")];
    }
    let lines = all
        .iter()
        .map(|(rival, _, per_lock)| Line {
            label: rival.name.to_owned(),
            points: sizes.iter().map(|size| *size as f64).zip(per_lock.iter().copied()).collect(),
        })
        .collect();
    section.plot =
        Some(Plot::Lines { file: "memory", title: "Memory per lock", x: "locks", y: "bytes per lock", lines });
    Ok(section)
}

/// The sum of MEMORY USAGE over all keys of one lock.
fn usage_of_one(server: &mut Server, key: &str) -> io::Result<f64> {
    let mut sum = 0;
    for part in [key.to_owned(), format!("{key}:count"), format!("{key}:owner")] {
        if let Reply::Int(bytes) = server.must(&["MEMORY", "USAGE", &part])? {
            sum += bytes;
        }
    }
    Ok(sum as f64)
}

/// The memory of waiters, excluding their connections.
pub fn waiters(plan: &Plan) -> io::Result<Section> {
    let mut section = Section::new(
        "Memory per waiter",
        "The growth of used_memory when existing connections begin to wait for one lock, and when one connection \
         queues requests with NOTIFY. The connection itself has its own row. There are no snapshots.",
        &["what", "to a connection", "bytes each", "how many"],
    );
    let count = plan.scale.pick(5000, 1000).min(plan.files.saturating_sub(200) as usize);
    let mut server = Server::start(&without_snapshots(plan))?;
    let _ = server.command(&["CONFIG", "SET", "lock.max-waiters", "30000"])?;

    let before = server.info_number("memory", "used_memory")?;
    let connection = {
        let _clients = connect(&mut server, count)?;
        (server.info_number("memory", "used_memory")? - before) / count as f64
    };
    await_connections(&mut server, 1)?;
    section.row(["an idle connection".to_owned(), digits(1.0), digits(connection), count.to_string()]);

    let ours = server.knows("LOCK.ACQUIRE")?;
    if ours {
        server.must(&["LOCK.ACQUIRE", "held", "holder", "PX", "3600000"])?;
        let each = blocked(&mut server, count, |index| {
            ["LOCK.ACQUIRE", "held", &format!("waiter:{index}"), "BLOCK", "0"].map(str::to_owned).to_vec()
        })?;
        section.row(["LOCK.ACQUIRE … BLOCK 0".to_owned(), digits(each / connection), digits(each), count.to_string()]);
        match notified(&mut server, 10_000)? {
            Some(each) => section.row([
                "LOCK.ACQUIRE … BLOCK … NOTIFY".to_owned(),
                digits(each / connection),
                digits(each),
                "10000".to_owned(),
            ]),
            None => section.missing(&["LOCK.ACQUIRE … BLOCK … NOTIFY"]),
        }
    } else {
        section.missing(&["LOCK.ACQUIRE … BLOCK 0", "LOCK.ACQUIRE … BLOCK … NOTIFY"]);
    }
    let each = blocked(&mut server, count, |_| ["BLPOP", "signal", "0"].map(str::to_owned).to_vec())?;
    section.row(["BLPOP".to_owned(), digits(each / connection), digits(each), count.to_string()]);
    Ok(section)
}

fn connect(server: &mut Server, count: usize) -> io::Result<Vec<Connection>> {
    let mut clients = Vec::new();
    for _ in 0..count {
        let mut client = Connection::connect(server.port())?;
        client.command(&["PING"])?;
        clients.push(client);
    }
    Ok(clients)
}

fn blocked(server: &mut Server, count: usize, command: impl Fn(usize) -> Vec<String>) -> io::Result<f64> {
    let mut clients = connect(server, count)?;
    let before = server.info_number("memory", "used_memory")?;
    for (index, client) in clients.iter_mut().enumerate() {
        let command = command(index);
        let args: Vec<&str> = command.iter().map(String::as_str).collect();
        futures_lite::future::block_on(client.send(&args))?;
    }
    while (server.info_number("clients", "blocked_clients")? as usize) < count {
        std::thread::sleep(Duration::from_millis(1));
    }
    let each = (server.info_number("memory", "used_memory")? - before) / count as f64;
    drop(clients);
    await_connections(server, 1)?;
    Ok(each)
}

/// None if the module does not support NOTIFY.
fn notified(server: &mut Server, count: usize) -> io::Result<Option<f64>> {
    let mut client = Connection::connect(server.port())?;
    client.command(&["PING"])?;
    let mut pipeline = Pipeline::default();
    for index in 0..count {
        let token = Names::numbered(index, &Vec::new().into()).token;
        pipeline.push(&["LOCK.ACQUIRE", "held", &token, "BLOCK", "3600000", "NOTIFY", "channel"]);
    }
    let before = server.info_number("memory", "used_memory")?;
    let mut refused = false;
    client.pipeline(&pipeline, |_, reply| refused |= matches!(reply, Reply::Error(_)))?;
    let each = (server.info_number("memory", "used_memory")? - before) / count as f64;
    drop(client);
    await_connections(server, 1)?;
    Ok((!refused).then_some(each))
}

fn await_connections(server: &mut Server, count: usize) -> io::Result<()> {
    while server.info_number("clients", "connected_clients")? as usize > count {
        std::thread::sleep(Duration::from_millis(1));
    }
    Ok(())
}

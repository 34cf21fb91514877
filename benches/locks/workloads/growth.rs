//! (3) The cost of a hand-off when more and more clients wait: for one lock, and for others beside it.

use std::io;
use std::time::{Duration, Instant};

use async_io::{block_on, Timer};
use support::{Connection, Pipeline, Reply};

use super::plan::Plan;
use crate::clients::{contend, Contention, Outcome, WarmUp};
use crate::plots::{Line, Plot};
use crate::rivals::{self, prepare, Rival};
use crate::section::{Section, Verdict};
use crate::server::{within, Server};
use crate::stats::{digits, Figure};

/// The time limit of a reading of another way, with all clients that have to come and go.
const LIMIT: Duration = Duration::from_secs(60);

const FLOOR: &str = "two PINGs by each connection in turn";
const NESTED: &str = "LOCK, each waiter holds another lock";

/// The subject of a curve; a way is named by its place among the ways that the server can run.
enum Who {
    Floor,
    Clients(usize),
    /// Clients each of which holds another lock.
    NestedClients(usize),
}

/// A way and its readings: CPU per hand-off, for each size, a reading for each round.
struct Curve {
    name: &'static str,
    sizes: Vec<usize>,
    us: Vec<Vec<f64>>,
    rates: Vec<Vec<f64>>,
}

impl Curve {
    fn new(name: &'static str, sizes: &[usize]) -> Curve {
        Curve { name, sizes: sizes.to_vec(), us: vec![Vec::new(); sizes.len()], rates: vec![Vec::new(); sizes.len()] }
    }

    fn at(&self, size: usize) -> Option<&Vec<f64>> {
        self.sizes.iter().position(|other| *other == size).map(|place| &self.us[place])
    }

    fn ratio(&self, many: usize, few: usize) -> Option<Figure> {
        Some(Figure::of_ratios(self.at(many)?, self.at(few)?))
    }
}

pub fn waiters(plan: &Plan) -> io::Result<Section> {
    let mut section = Section::new(
        "Growth: many waiters on one lock",
        "The given number of clients wait for one lock; the holder gives it back at once and queues again. The floor \
         is what the same number of connections costs a server to which each in turn sends PING, twice: kernel and \
         caches, no lock. Where each waiter holds another lock as well, which has no waiters, the search for a \
         deadlock has more to inspect. Sizes take turns; ratios are taken within a round. The floor and LOCK have \
         several rounds, the others one, each on a server of its own, which has a minute for it.",
        &["way", "waiters", "CPU to the fewest waiters", "server CPU µs per hand-off", "hand-offs/s"],
    );
    // A connection here is one there, and Redisson's clients have two.
    let room = plan.files.min(15_000).saturating_sub(100) as usize;
    let fits = |sizes: &[usize], connections: usize| -> Vec<usize> {
        sizes.iter().copied().filter(|size| (size + 1) * connections <= room).collect()
    };
    let all = fits(plan.scale.pick(&[10, 50, 1000, 5000, 10_000], &[10, 1000, 10_000]), 1);
    let signalled = fits(plan.scale.pick(&[10, 1000, 10_000], &[10, 1000]), 1);
    let fair = fits(plan.scale.pick(&[10, 100, 1000], &[10, 100]), 2);

    let mut server = Server::start(&plan.builder)?;
    // The default is ten thousand, and clients that were dropped a moment ago still count.
    let _ = server.command(&["CONFIG", "SET", "lock.max-waiters", "30000"])?;
    let ways: &[&Rival] = &[&rivals::LOCK, &rivals::PYTHON_REDIS_LOCK, &rivals::REDISSON_FAIR];
    let (here, missing) = prepare(&mut server, ways)?;
    let mut curves = vec![(Curve::new(FLOOR, &all), Who::Floor)];
    for (way, (rival, _)) in here.iter().enumerate() {
        let sizes = match rival.name {
            name if name == rivals::LOCK.name => &all,
            name if name == rivals::REDISSON_FAIR.name => &fair,
            _ => &signalled,
        };
        curves.push((Curve::new(rival.name, sizes), Who::Clients(way)));
        if rival.name == rivals::LOCK.name {
            curves.push((Curve::new(NESTED, &all), Who::NestedClients(way)));
        }
    }
    for round in 0..plan.scale.pick(3, 1) {
        for (curve, who) in &mut curves {
            // Targets are for these two; the others show how they grow.
            if round > 0 && curve.name != FLOOR && curve.name != rivals::LOCK.name {
                continue;
            }
            for (place, waiters) in curve.sizes.iter().enumerate() {
                let mut contention = Contention::new(waiters + 1, Duration::ZERO, plan.time(500, 200));
                contention.warm_up = WarmUp::Lap;
                contention.nested = matches!(who, Who::NestedClients(_));
                let (us, rate) = match who {
                    Who::Floor => ping_in_turn(&mut server, contention)?,
                    Who::Clients(way) | Who::NestedClients(way) if here[*way].0.name == rivals::LOCK.name => {
                        let (rival, scripts) = &here[*way];
                        let outcome = contend(&mut server, rival, scripts, contention)?;
                        (outcome.cpu_us_per_handoff(), outcome.per_second())
                    }
                    Who::Clients(way) | Who::NestedClients(way) => match apart(plan, here[*way].0, contention)? {
                        Some(outcome) => (outcome.cpu_us_per_handoff(), outcome.per_second()),
                        None => continue,
                    },
                };
                curve.us[place].push(us);
                curve.rates[place].push(rate);
            }
        }
    }

    let curves: Vec<Curve> = curves.into_iter().map(|(curve, _)| curve).collect();
    for curve in &curves {
        for (place, size) in curve.sizes.iter().enumerate() {
            if curve.us[place].is_empty() || curve.us[0].is_empty() {
                let late = format!("not measured: over {} s", LIMIT.as_secs());
                section.row([curve.name.to_owned(), size.to_string(), String::new(), late, String::new()]);
                continue;
            }
            let cost = Figure::of(curve.us[place].clone());
            let ratio = Figure::of_ratios(&curve.us[place], &curve.us[0]);
            let rate = Figure::of(curve.rates[place].clone()).median;
            section.row([curve.name.to_owned(), size.to_string(), ratio.show(), cost.show(), digits(rate)]);
        }
    }
    section.missing(&missing);
    let find = |name: &str| curves.iter().find(|curve| curve.name == name);
    section.verdicts = vec![
        Verdict::at_most(
            "CPU per hand-off, 10,000 waiters to 10",
            1.2,
            find(rivals::LOCK.name).and_then(|curve| curve.ratio(10_000, 10)),
        ),
        Verdict::at_most(
            "CPU per hand-off, 5,000 waiters to 50",
            1.2,
            find(rivals::LOCK.name).and_then(|curve| curve.ratio(5000, 50)),
        ),
    ];
    for (many, few) in [(10_000, 10), (5000, 50)] {
        if let Some(growth) = find(FLOOR).and_then(|floor| floor.ratio(many, few)) {
            let note = format!("{many} connections to {few} without any lock, {FLOOR}: {}.", growth.show());
            section.notes.push(note);
        }
    }
    section.plot = Some(plot("growth-waiters", "Server CPU per hand-off, by waiters", "waiters", &curves));
    Ok(section)
}

/// The same on a server of its own, which is ended if that takes too long: thousands of clients blocked on one list may
/// keep a server busy for many minutes.
fn apart(plan: &Plan, rival: &'static Rival, contention: Contention) -> io::Result<Option<Outcome>> {
    let mut server = Server::start(&plan.builder)?;
    within(LIMIT, &mut server, |server| {
        let (here, _) = prepare(server, &[rival])?;
        let (rival, scripts) = here.first().ok_or_else(|| io::Error::other("it ran here before"))?;
        contend(server, rival, scripts, contention)
    })
}

/// Every connection sends two commands, then the next one does.
fn ping_in_turn(server: &mut Server, contention: Contention) -> io::Result<(f64, f64)> {
    block_on(async {
        let mut clients = Vec::new();
        for _ in 0..contention.clients {
            clients.push(Connection::connect_shared(server.port()).await?);
        }
        for client in &mut clients {
            client.call(&["PING"]).await?;
        }
        let before = server.cpu_us()?;
        let start = Instant::now();
        let mut turns = 0;
        // Whole laps, so that every connection is as warm as in the queue of a lock.
        while start.elapsed() < contention.time {
            for client in &mut clients {
                client.call(&["PING"]).await?;
                client.call(&["PING"]).await?;
                turns += 1;
            }
        }
        let seconds = start.elapsed().as_secs_f64();
        let spent = server.cpu_us()? - before;
        Ok((spent / f64::from(turns), f64::from(turns) / seconds))
    })
}

pub fn locks(plan: &Plan) -> io::Result<Section> {
    let mut section = Section::new(
        "Growth: many locks with waiters",
        "48 clients hand one lock around, while so many other locks are each held, with a lease that runs, and waited \
         for by a client of their own.",
        &["other locks, each with a waiter", "CPU to none", "server CPU µs per hand-off", "hand-offs/s"],
    );
    let room = plan.files.min(15_000).saturating_sub(200) as usize;
    let sizes: Vec<usize> = plan
        .scale
        .pick(&[0, 10, 100, 1000, 9900][..], &[0, 100, 5000][..])
        .iter()
        .copied()
        .filter(|size| *size <= room)
        .collect();
    let mut server = Server::start(&plan.builder)?;
    let _ = server.command(&["CONFIG", "SET", "lock.max-waiters", "30000"])?;
    let (here, missing) = prepare(&mut server, &[&rivals::LOCK])?;
    let Some((rival, scripts)) = here.first() else {
        section.missing(&missing);
        return Ok(section);
    };
    let mut contention = Contention::new(48, Duration::ZERO, plan.time(500, 200));
    contention.warm_up = WarmUp::Lap;
    let mut curve = Curve::new(rivals::LOCK.name, &sizes);
    let mut parked = Vec::new();
    // Each reading is paired with one of a server without other locks: they cannot be taken away again.
    let mut baseline = Server::start(&plan.builder)?;
    let mut base = Vec::new();
    for (place, size) in sizes.iter().enumerate() {
        park(&mut server, &mut parked, *size)?;
        let mut readings: Vec<Outcome> = Vec::new();
        let mut bases = Vec::new();
        for _ in 0..plan.scale.pick(2, 1) {
            bases.push(contend(&mut baseline, rival, scripts, contention)?.cpu_us_per_handoff());
            readings.push(contend(&mut server, rival, scripts, contention)?);
        }
        curve.us[place] = readings.iter().map(Outcome::cpu_us_per_handoff).collect();
        curve.rates[place] = readings.iter().map(Outcome::per_second).collect();
        base.push(bases);
    }
    for (place, size) in sizes.iter().enumerate() {
        let cost = Figure::of(curve.us[place].clone());
        let ratio = Figure::of_ratios(&curve.us[place], &base[place]);
        section.row([
            size.to_string(),
            ratio.show(),
            cost.show(),
            digits(Figure::of(curve.rates[place].clone()).median),
        ]);
    }
    section.plot =
        Some(plot("growth-locks", "Server CPU per hand-off, by other locks with waiters", "locks", &[curve]));
    Ok(section)
}

/// Adds other locks, up to `size`: each has a holder without a connection and a waiter with one, all of
/// different names.
fn park(server: &mut Server, parked: &mut Vec<Connection>, size: usize) -> io::Result<()> {
    let mut holders = Pipeline::default();
    let from = parked.len();
    for index in from..size {
        holders.push(&["LOCK.ACQUIRE", &format!("other:{index}"), &format!("holder:{index}"), "PX", "3600000"]);
    }
    let mut client = Connection::connect(server.port())?;
    let mut refused = None;
    client.pipeline(&holders, |_, reply| {
        if !matches!(reply, Reply::Array(_)) {
            refused.get_or_insert(reply);
        }
    })?;
    if let Some(reply) = refused {
        return Err(io::Error::other(format!("LOCK.ACQUIRE answered {reply:?}")));
    }
    block_on(async {
        for index in from..size {
            let mut waiter = Connection::connect_shared(server.port()).await?;
            let [key, owner] = ["other", "waiter"].map(|word| format!("{word}:{index}"));
            waiter.send(&["LOCK.ACQUIRE", &key, &owner, "BLOCK", "0"]).await?;
            parked.push(waiter);
        }
        while (server.info_number("clients", "blocked_clients")? as usize) < size {
            Timer::after(Duration::from_millis(1)).await;
        }
        Ok(())
    })
}

fn plot(file: &'static str, title: &'static str, x: &'static str, curves: &[Curve]) -> Plot {
    let lines = curves
        .iter()
        .map(|curve| Line {
            label: curve.name.to_owned(),
            points: curve
                .sizes
                .iter()
                .zip(&curve.us)
                .filter(|(_, us)| !us.is_empty())
                .map(|(size, us)| (*size.max(&1) as f64, Figure::of(us.clone()).median))
                .collect(),
        })
        .collect();
    Plot::Lines { file, title, x, y: "µs of server CPU per hand-off", lines }
}

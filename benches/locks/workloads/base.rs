//! Compares this build of the module with another one, the base, to find out whether a change made the pair or the
//! hand-off slower.

use std::io;
use std::path::Path;
use std::time::{Duration, Instant};

use futures_lite::future::block_on;
use support::Connection;

use super::plan::Plan;
use crate::batch::Batch;
use crate::clients::{contend, Contention};
use crate::rivals::{self, prepare, ClientConfig, Locker, Names, Ready, Rival, Threading};
use crate::section::Section;
use crate::server::Server;
use crate::stats::Figure;

const LOCK_TYPES: &[&Rival] =
    &[&rivals::LOCK, &rivals::RLOCK, &rivals::RWLOCK_READ, &rivals::RWLOCK_WRITE, &rivals::SEM, &rivals::MLOCK];

const CLIENTS: usize = 48;

/// Pairs in one latency reading.
const PAIRS: usize = 200;

pub fn beside_base(plan: &Plan) -> io::Result<Section> {
    let (Some(module), Some(base)) = (&plan.module, &plan.base) else {
        return Err(io::Error::other("it takes the module and REDIS_LOCK_BASE, another build of it"));
    };
    let mut section = Section::new(
        "The module compared with another build of it",
        "Two servers, one with the module and one with the base, do the same in turn, A, B, B, A, so that what slows \
         the machine down for a while slows both. Ratios are taken within a round; the table gives their median and \
         quartiles, over several pairs of servers, because the place of a server's memory moves its cost by some \
         hundredths. A build compared with itself gives 0.98 to 1.03 on a busy machine.",
        &["what", "module to base", "module", "module (base)"],
    );
    let mut readings: Vec<Readings> = Vec::new();
    for round in 0..plan.scale.pick(12, 4) {
        // Alternate which build gets the server that is started first.
        let mut sides = match round % 2 {
            0 => {
                let ours = Side::start(plan, module)?;
                Sides { ours, base: Side::start(plan, base)? }
            }
            _ => {
                let base = Side::start(plan, base)?;
                Sides { ours: Side::start(plan, module)?, base }
            }
        };
        for (which, reading) in sides.compare(plan)?.into_iter().enumerate() {
            match readings.get_mut(which) {
                Some(before) => before.extend(reading),
                None => readings.push(reading),
            }
        }
    }
    for Readings { what, ours, base } in readings {
        let ratio = Figure::of_ratios(&ours, &base).show();
        section.row([what, ratio, Figure::of(ours).show(), Figure::of(base).show()]);
    }
    Ok(section)
}

/// One figure of both builds, a reading for each round.
struct Readings {
    what: String,
    ours: Vec<f64>,
    base: Vec<f64>,
}

impl Readings {
    fn new(what: String) -> Readings {
        Readings { what, ours: Vec::new(), base: Vec::new() }
    }

    fn extend(&mut self, more: Readings) {
        self.ours.extend(more.ours);
        self.base.extend(more.base);
    }
}

struct Sides {
    ours: Side,
    base: Side,
}

impl Sides {
    /// All that is compared, in the order of the table.
    fn compare(&mut self, plan: &Plan) -> io::Result<Vec<Readings>> {
        let mut all = Vec::new();
        for (lock_type, rival) in LOCK_TYPES.iter().enumerate() {
            let what = format!("{} pair, µs of server CPU", rival.name);
            let [us] = self.in_turn(plan.scale.pick(10, 6), [what], |side| side.pair_cpu_us(lock_type))?;
            all.push(us);
        }
        let what = "LOCK pair, one at a time, p50 µs".to_owned();
        let [us] = self.in_turn(plan.scale.pick(10, 6), [what], |side| Ok([side.latency_us()?]))?;
        all.push(us);
        let what = ["LOCK hand-off, µs of server CPU", "LOCK hand-offs/s"].map(str::to_owned);
        let contention = Contention::new(CLIENTS, Duration::ZERO, plan.time(400, 200));
        all.extend(self.in_turn(plan.scale.pick(4, 3), what, |side| side.hand_off(contention))?);
        Ok(all)
    }

    /// Measures the same figures on both sides, one right after the other.
    fn in_turn<const N: usize>(
        &mut self,
        rounds: usize,
        what: [String; N],
        mut measure: impl FnMut(&mut Side) -> io::Result<[f64; N]>,
    ) -> io::Result<[Readings; N]> {
        let mut readings = what.map(Readings::new);
        for round in 0..=rounds {
            let (ours, base) = if round % 2 == 0 {
                let ours = measure(&mut self.ours)?;
                (ours, measure(&mut self.base)?)
            } else {
                let base = measure(&mut self.base)?;
                (measure(&mut self.ours)?, base)
            };
            // The first round is a warm-up.
            if round > 0 {
                for (which, readings) in readings.iter_mut().enumerate() {
                    readings.ours.push(ours[which]);
                    readings.base.push(base[which]);
                }
            }
        }
        Ok(readings)
    }
}

/// A server with one of the builds, and its clients.
struct Side {
    server: Server,
    client: Connection,
    locker: Box<dyn Locker>,
    lock: Ready,
    batches: Vec<Batch>,
}

impl Side {
    fn start(plan: &Plan, module: &Path) -> io::Result<Side> {
        let mut server = Server::start(&plan.builder.clone().module(module))?;
        let (ready, missing) = prepare(&mut server, LOCK_TYPES)?;
        let Some(lock) = ready.first().filter(|_| missing.is_empty()).cloned() else {
            return Err(io::Error::other(format!("{} lacks {}", module.display(), missing.join(", "))));
        };
        let (rival, scripts) = &lock;
        let config = ClientConfig {
            port: server.port(),
            names: Names::numbered(0, scripts),
            threading: Threading::Own,
            sent: Default::default(),
        };
        let locker = block_on(rival.open.expect("a lock can be opened")(config))?;
        let client = Connection::connect(server.port())?;
        let batches = ready.iter().map(|(rival, scripts)| Batch::of(rival, scripts)).collect();
        Ok(Side { server, client, locker, lock, batches })
    }

    fn pair_cpu_us(&mut self, lock_type: usize) -> io::Result<[f64; 1]> {
        Ok([self.batches[lock_type].cpu_us_per_pair(&mut self.server, &mut self.client)?])
    }

    /// The median over some pairs.
    fn latency_us(&mut self) -> io::Result<f64> {
        let mut us = Vec::with_capacity(PAIRS);
        for _ in 0..PAIRS {
            let start = Instant::now();
            block_on(self.locker.acquire())?;
            block_on(self.locker.release())?;
            us.push(start.elapsed().as_secs_f64() * 1e6);
        }
        Ok(Figure::of(us).median)
    }

    /// CPU per hand-off and hand-offs per second.
    fn hand_off(&mut self, contention: Contention) -> io::Result<[f64; 2]> {
        let (rival, scripts) = &self.lock;
        let outcome = contend(&mut self.server, rival, scripts, contention)?;
        Ok([outcome.cpu_us_per_handoff(), outcome.per_second()])
    }
}

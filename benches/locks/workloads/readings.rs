//! CPU per pair of several ways on the same server, in turn.

use std::borrow::BorrowMut;
use std::io;

use support::Connection;

use super::plan::Plan;
use crate::batch::Batch;
use crate::rivals::{prepare, Rival};
use crate::server::Server;

/// CPU per pair of one rival, a reading for each round.
pub struct Readings {
    pub rival: &'static Rival,
    pub us: Vec<f64>,
}

/// Each way once in every round; and the names of the ways that the server cannot run.
pub fn in_turn(
    server: &mut Server,
    rivals: &[&'static Rival],
    rounds: usize,
) -> io::Result<(Vec<Readings>, Vec<&'static str>)> {
    let (here, missing) = prepare(server, rivals)?;
    let mut client = Connection::connect(server.port())?;
    let batch_of: Vec<Batch> = here.iter().map(|(rival, scripts)| Batch::of(rival, scripts)).collect();
    let mut readings: Vec<Readings> = here.iter().map(|(rival, _)| Readings { rival, us: Vec::new() }).collect();
    for round in 0..=rounds {
        for turn in 0..readings.len() {
            // Every round starts with another way, so that none always runs behind the same neighbour.
            let which = (turn + round) % readings.len();
            let us = batch_of[which].cpu_us_per_pair(server, &mut client)?;
            // The first round warms up.
            if round > 0 {
                readings[which].us.push(us);
            }
        }
    }
    Ok((readings, missing))
}

/// Two or three ways that every one of these servers has, with nothing in between: A, B, B, A. On several servers,
/// because where the memory of one happens to lie moves a ratio by some hundredths.
pub fn on_several_servers<S: BorrowMut<Server>>(
    plan: &Plan,
    start: impl Fn() -> io::Result<S>,
    rivals: &[&'static Rival],
) -> io::Result<Vec<Readings>> {
    let mut all: Vec<Readings> = rivals.iter().map(|rival| Readings { rival, us: Vec::new() }).collect();
    for _ in 0..plan.scale.pick(5, 2) {
        let mut server = start()?;
        let (readings, _) = in_turn(server.borrow_mut(), rivals, plan.scale.pick(25, 12))?;
        all.iter_mut().zip(readings).for_each(|(all, reading)| all.us.extend(reading.us));
    }
    Ok(all)
}

//! (1) The latency of an uncontended acquire and its release, when each waits for its reply.

use std::io;
use std::rc::Rc;
use std::time::Instant;

use futures_lite::future::block_on;
use hdrhistogram::Histogram;

use super::plan::Plan;
use crate::plots::{Bar, Plot};
use crate::rivals::{self, prepare, ClientConfig, Names, Threading};
use crate::section::Section;
use crate::server::Server;
use crate::stats::digits;

pub fn one_at_a_time(plan: &Plan) -> io::Result<Section> {
    let mut server = Server::start(&plan.builder)?;
    let (here, missing) = prepare(&mut server, rivals::LOCKS)?;
    let mut lockers = Vec::new();
    for (rival, scripts) in &here {
        let open = rival.open.expect("only floors cannot be opened");
        let config = ClientConfig {
            port: server.port(),
            names: Names::numbered(0, scripts),
            threading: Threading::Own,
            sent: Rc::default(),
        };
        lockers.push((rival, block_on(open(config))?, Histogram::<u64>::new(3).expect("three digits")));
    }
    let rounds = plan.scale.pick(20, 5);
    let pairs = plan.scale.pick(400, 100);
    for round in 0..=rounds {
        let count = lockers.len();
        for turn in 0..count {
            let (_, locker, histogram) = &mut lockers[(turn + round) % count];
            for _ in 0..pairs {
                let start = Instant::now();
                block_on(locker.acquire())?;
                block_on(locker.release())?;
                if round > 0 {
                    histogram.record(start.elapsed().as_nanos() as u64).expect("the histogram grows");
                }
            }
            server.must(&["FLUSHALL"])?;
        }
    }

    let mut section = Section::new(
        "Uncontended pair, one at a time: latency",
        "One connection takes and frees one lock and waits for each reply, over the loopback interface.",
        &["way", "p50 to LOCK", "p50 µs", "p99 µs", "p99.9 µs"],
    );
    let ours = lockers.iter().find(|(rival, ..)| rival.name == rivals::LOCK.name);
    let ours = ours.map(|(_, _, histogram)| histogram.value_at_quantile(0.5) as f64);
    let mut bars = Vec::new();
    for (rival, _, histogram) in &lockers {
        let us = |quantile| histogram.value_at_quantile(quantile) as f64 / 1000.0;
        let ratio = ours.map_or("no module".to_owned(), |ours| digits(us(0.5) * 1000.0 / ours));
        section.row([rival.name.to_owned(), ratio, digits(us(0.5)), digits(us(0.99)), digits(us(0.999))]);
        bars.push(Bar { label: rival.name, value: us(0.5), low: us(0.25), high: us(0.75) });
    }
    section.missing(&missing);
    section.plot =
        Some(Plot::Bars { file: "pair-latency", title: "Latency of an uncontended pair", unit: "µs", bars });
    Ok(section)
}

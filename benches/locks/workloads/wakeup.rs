//! How long after the lease of a crashed holder expires the next client has the lock.

use std::cell::RefCell;
use std::io;
use std::rc::Rc;
use std::time::{Duration, Instant};

use async_executor::LocalExecutor;
use async_io::{block_on, Timer};
use hdrhistogram::Histogram;

use super::plan::Plan;
use crate::plots::{Bar, Plot};
use crate::rivals::{self, prepare, ClientConfig, Names, Rival, Threading};
use crate::section::Section;
use crate::server::Server;
use crate::stats::digits;

const LEASE: Duration = Duration::from_millis(1000);

pub fn lease_end(plan: &Plan) -> io::Result<Section> {
    let mut section = Section::new(
        "Wake-up after a lease expires",
        "For each of many locks, one client acquires it with a lease of one second and is never heard of again, while \
         another client waits for it. The locks are spread over a second, and the waiters arrive up to 100 ms after \
         the holders, so that no polling interval coincides with the end of a lease by design. Late is the time from \
         the end of that second, counted from before the holder sent its request, until the waiter had the lock. The \
         server's clock counts whole milliseconds, which alone accounts for up to one.",
        &["implementation", "p50 to LOCK", "late p50 ms", "p99 ms", "p99.9 ms", "most ms", "ends"],
    );
    let mut server = Server::start(&plan.builder)?;
    let ways: &[&Rival] = &[
        &rivals::LOCK,
        &rivals::RLOCK,
        &rivals::SET_LUA,
        &rivals::REDIS_PY,
        &rivals::PYTHON_REDIS_LOCK,
        &rivals::REDISSON,
        &rivals::REDISSON_FAIR,
    ];
    let (here, missing) = prepare(&mut server, ways)?;
    let mut all = Vec::new();
    for (rival, scripts) in &here {
        let ours = rival.name == rivals::LOCK.name;
        let rounds = if ours { plan.scale.pick(3, 1) } else { 1 };
        // Few enough for the polling clients to keep up with their interval of a millisecond.
        let locks = if ours { 400 } else { 20 };
        let mut late = Histogram::new(3).expect("three digits");
        let mut early = 0;
        for round in 0..rounds {
            let (histogram, before_its_time) = ends(&server, rival, scripts, locks, round)?;
            late.add(&histogram).expect("the histogram grows");
            early += before_its_time;
        }
        if early > 0 {
            section.notes.push(format!("{}: granted more than a millisecond early {early} times.", rival.name));
        }
        all.push((*rival, late));
    }

    let ms = |histogram: &Histogram<u64>, quantile| histogram.value_at_quantile(quantile) as f64 / 1e6;
    let ours = all.iter().find(|(rival, _)| rival.name == rivals::LOCK.name).map(|(_, late)| late);
    let mut bars = Vec::new();
    for (rival, late) in &all {
        let ratio = ours.map_or(String::new(), |ours| digits(ms(late, 0.5) / ms(ours, 0.5)));
        section.row([
            rival.name.to_owned(),
            ratio,
            digits(ms(late, 0.5)),
            digits(ms(late, 0.99)),
            digits(ms(late, 0.999)),
            digits(late.max() as f64 / 1e6),
            late.len().to_string(),
        ]);
        bars.push(Bar { label: rival.name, value: ms(late, 0.5), low: ms(late, 0.25), high: ms(late, 0.75) });
    }
    section.missing(&missing);
    section.plot = Some(Plot::Bars { file: "wakeup", title: "Late after a lease end, p50", unit: "ms", bars });
    Ok(section)
}

/// How late each of `locks` was granted, and how many were granted earlier than the resolution of a millisecond
/// explains.
fn ends(
    server: &Server,
    rival: &Rival,
    scripts: &Rc<[String]>,
    locks: u32,
    round: usize,
) -> io::Result<(Histogram<u64>, u64)> {
    let open = rival.open.expect("only locks have leases");
    let late = RefCell::new(Histogram::new(3).expect("three digits"));
    let early = RefCell::new(0);
    let error = RefCell::new(None);
    let executor = LocalExecutor::new();
    block_on(async {
        let mut tasks = Vec::new();
        for lock in 0..locks {
            let config = |owner| ClientConfig {
                port: server.port(),
                names: Names::new(format!("wake:{round}:{lock}"), owner, LEASE.as_millis() as u32, scripts),
                threading: Threading::Shared,
                sent: Rc::default(),
            };
            let mut holder = open(config(1)).await?;
            let mut waiter = open(config(2)).await?;
            let (late, early, error) = (&late, &early, &error);
            tasks.push(executor.spawn(async move {
                let outcome: io::Result<()> = async {
                    Timer::after(LEASE * lock / locks).await;
                    // Read before the request is sent, so the lease cannot expire earlier than this.
                    let end = Instant::now() + LEASE;
                    holder.acquire().await?;
                    Timer::after(Duration::from_millis(100) * lock / locks).await;
                    waiter.acquire().await?;
                    let now = Instant::now();
                    if now + Duration::from_millis(1) < end {
                        *early.borrow_mut() += 1;
                    }
                    let by = now.saturating_duration_since(end).as_nanos() as u64;
                    late.borrow_mut().record(by).expect("the histogram grows");
                    waiter.release().await
                }
                .await;
                if let Err(failure) = outcome {
                    error.borrow_mut().get_or_insert(failure);
                }
            }));
        }
        executor
            .run(async {
                for task in tasks {
                    task.await;
                }
            })
            .await;
        io::Result::Ok(())
    })?;
    drop(executor);
    match error.into_inner() {
        Some(failure) => Err(io::Error::other(format!("{}: {failure}", rival.name))),
        None => Ok((late.into_inner(), early.into_inner())),
    }
}

//! The CPU time and the allocations that a pair of acquire and release, a command under a lock and a hand-off cost the
//! client. Each round runs all contenders in turn, so that a busy machine slows them alike; the ratios are medians of
//! the ratios within a round.

use std::process::Command;
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::cmd;
use rslock::LockManager;
use support::{CountingAllocator, Info, Server};

use super::{own_cpu, turns, Counted, InOnePacket, InScript, Mutex, Ours, Outcome, Raw, Rslock, LEASE, TASKS};

const ROUNDS: usize = 31;
const HAND_OFF_ROUNDS: usize = 5;

#[global_allocator]
static COUNTING: CountingAllocator = CountingAllocator;

/// SET NX PX and a script that compares and deletes.
#[derive(Clone)]
struct SetAndScript(MultiplexedConnection, String);

const UNLOCK: &str = "if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end return 0";
const TOKEN: &str = "bench:1:0123456789abcdef";

impl SetAndScript {
    async fn over(mut connection: MultiplexedConnection) -> Outcome<SetAndScript> {
        let sha = cmd("SCRIPT").arg("LOAD").arg(UNLOCK).query_async(&mut connection).await?;
        Ok(SetAndScript(connection, sha))
    }
}

impl Mutex for SetAndScript {
    fn title(&self) -> String {
        "the redis crate: SET NX PX, EVALSHA".into()
    }

    async fn turn(&self, held: impl FnOnce()) -> Outcome<()> {
        let mut connection = self.0.clone();
        let acquire = cmd("SET").arg("set").arg(TOKEN).arg("NX").arg("PX").arg(30_000).to_owned();
        acquire.query_async::<()>(&mut connection).await?;
        held();
        let release = cmd("EVALSHA").arg(&self.1).arg(1).arg("set").arg(TOKEN).to_owned();
        Ok(release.query_async(&mut connection).await?)
    }
}

/// One contender's costs, a value for each round.
#[derive(Default)]
struct Costs {
    cpu_us: Vec<f64>,
    allocations: u64,
}

impl Costs {
    async fn add(&mut self, mutex: &impl Mutex, pairs: u32) -> Outcome<()> {
        let (allocations, cpu) = (CountingAllocator::count(), own_cpu());
        for _ in 0..pairs {
            mutex.turn(|| {}).await?;
        }
        self.cpu_us.push((own_cpu() - cpu).as_secs_f64() * 1e6 / f64::from(pairs));
        self.allocations = (CountingAllocator::count() - allocations) / u64::from(pairs);
        Ok(())
    }

    fn row(&self, title: &str, bases: &[&Costs]) {
        let ratios: Vec<String> = bases
            .iter()
            .map(|base| {
                let ratios = self.cpu_us.iter().zip(&base.cpu_us).map(|(own, base)| own / base);
                format!("{:.2}", median(ratios.collect()))
            })
            .collect();
        let (cpu, allocations, ratios) = (median(self.cpu_us.clone()), self.allocations, ratios.join(" | "));
        println!("| {title} | {cpu:.1} | {allocations} | {ratios} |");
    }
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

pub(crate) async fn cost(server: &Server, url: &str, ours: &Ours, is_quick: bool) -> Outcome<()> {
    pin(server)?;
    let pairs = if is_quick { 200 } else { 2000 };
    let raw = Raw::to(url).await?;
    let set = SetAndScript::over(raw.0.clone()).await?;
    let rslock = Rslock(LockManager::new(vec![url.to_string()]), LEASE);
    let script = InScript::over(raw.0.clone()).await?;
    let run = InOnePacket(ours.0.clone(), cmd("INCR").arg("n").to_owned());
    let mut costs: [Costs; 6] = Default::default();
    for round in 0..=ROUNDS {
        if round == 1 {
            // The first one connects and warms up.
            costs = Default::default();
        }
        let [set_costs, raw_costs, rslock_costs, our_costs, script_costs, run_costs] = &mut costs;
        set_costs.add(&set, pairs).await?;
        raw_costs.add(&raw, pairs).await?;
        rslock_costs.add(&rslock, pairs).await?;
        our_costs.add(ours, pairs).await?;
        script_costs.add(&script, pairs).await?;
        run_costs.add(&run, pairs).await?;
    }
    let [set_costs, raw_costs, rslock_costs, our_costs, script_costs, run_costs] = &costs;
    println!("| pair | client CPU µs | allocations | to SET, EVALSHA | to LOCK.* | to rslock |");
    println!("| --- | --- | --- | --- | --- | --- |");
    let bases = [set_costs, raw_costs, rslock_costs];
    set_costs.row("SET NX PX, EVALSHA", &bases);
    raw_costs.row("LOCK.ACQUIRE, LOCK.RELEASE", &bases);
    rslock_costs.row("rslock", &bases);
    our_costs.row("redis-lock-client", &bases);
    println!("\n| command under a lock | client CPU µs | allocations | to the script |\n| --- | --- | --- | --- |");
    script_costs.row("one script", &[script_costs]);
    run_costs.row("`run`", &[script_costs]);
    println!("\n| hand-offs | per second | client CPU µs |\n| --- | --- | --- |");
    for tasks in [2, TASKS] {
        let (mut rates, mut cpu) = (Vec::new(), Vec::new());
        for _ in 0..HAND_OFF_ROUNDS {
            let time = Duration::from_millis(if is_quick { 200 } else { 1000 });
            let figures = turns(server, ours, Counted::HandOffs, tasks, time).await?;
            rates.push(figures.per_second);
            cpu.push(figures.own_cpu_us);
        }
        println!("| {tasks} tasks | {:.0} | {:.1} |", median(rates), median(cpu));
    }
    Ok(())
}

/// Gives the server another core than `bench` gave this process.
fn pin(server: &Server) -> Outcome<()> {
    let info = Info::parse(server.client().run("INFO server").text());
    let pid = info.text("process_id").to_string();
    Command::new("taskset").args(["--all-tasks", "--pid", "--cpu-list", "0", &pid]).output()?;
    Ok(())
}

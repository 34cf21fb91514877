//! Compares the rules with an earlier version of themselves on the same random schedules. The model does not see the
//! order of effects and replies, and compares only the state after all work is done. This test compares both.
//!
//! `scripts/test-module base` builds the tests of the earlier version. `LOCK_BASE` names the program.

use std::fmt::Write as _;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, Command, Stdio};

use super::random::{outcome_of, quietly};
use super::schedule::{schedule, Cast, Step};
use super::search::{play_random, seeds, LENGTH};
use super::{simulator, trace};

/// What the rules do in these steps of the schedule with this seed.
fn trace_of(seed: u64, chosen: &[usize]) -> Vec<String> {
    let (cast, steps) = schedule(seed, LENGTH);
    let steps: Vec<Step> = chosen.iter().map(|index| steps[*index].clone()).collect();
    let mut failure = Ok(());
    let mut lines = trace::of(|| failure = outcome_of(|| simulator::play(&cast, &steps)));
    lines.extend(failure.err().map(|failure| format!("panic: {failure}")));
    lines
}

fn hash(lines: &[String]) -> u64 {
    let mut hasher = DefaultHasher::new();
    lines.hash(&mut hasher);
    hasher.finish()
}

/// The tests of the earlier version, which play the requested steps.
struct Base {
    program: Child,
    asks: ChildStdin,
    replies: Box<dyn Iterator<Item = String>>,
}

impl Base {
    fn start(program: &str) -> Base {
        let name = "testing::beside::plays_what_it_is_told_to";
        let mut program = Command::new(program)
            .args([name, "--exact", "--ignored", "--nocapture"])
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .expect("it was built");
        let asks = program.stdin.take().expect("it is piped");
        let replies = BufReader::new(program.stderr.take().expect("it is piped")).lines();
        Base { program, asks, replies: Box::new(replies.map_while(Result::ok)) }
    }

    fn ask(&mut self, how: &str, seed: u64, chosen: &[usize]) {
        let mut line = format!("{how} {seed}");
        chosen.iter().for_each(|index| write!(line, " {index}").expect("a String takes all"));
        // It does not reply if it has ended.
        _ = writeln!(self.asks, "{line}");
    }

    fn reply(&mut self) -> Result<String, String> {
        self.replies.next().ok_or_else(|| "the earlier version has ended".into())
    }

    fn replies(&mut self) -> Result<Vec<String>, String> {
        std::iter::from_fn(|| Some(self.reply()).filter(|line| line.as_deref() != Ok("done"))).collect()
    }
}

impl Drop for Base {
    fn drop(&mut self) {
        _ = self.program.kill();
        _ = self.program.wait();
    }
}

/// Runs in the program of an earlier version: `hash SEED STEP …` prints a hash of the trace, `show SEED STEP …` the
/// trace.
#[test]
#[ignore = "a later version of the rules plays it"]
fn plays_what_it_is_told_to() {
    quietly(|| {
        for line in std::io::stdin().lines().map_while(Result::ok) {
            let mut words = line.split(' ');
            let how = words.next().unwrap_or_default();
            let mut numbers = words.map(|word| word.parse::<u64>().expect("a number"));
            let seed = numbers.next().expect("the seed of a schedule");
            let chosen: Vec<_> = numbers.map(|index| index as usize).collect();
            let lines = trace_of(seed, &chosen);
            match how {
                "hash" => eprintln!("{}", hash(&lines)),
                _ => lines.iter().for_each(|line| eprintln!("{}", line.replace('\n', " "))),
            }
            eprintln!("done");
        }
    });
}

/// Plays these steps on both. Fails with the lines around the first difference.
fn compare(base: &mut Base, seed: u64, chosen: &[usize]) -> Result<(), String> {
    base.ask("hash", seed, chosen);
    let lines = trace_of(seed, chosen);
    if base.replies()? == [hash(&lines).to_string()] {
        return Ok(());
    }
    base.ask("show", seed, chosen);
    let mut before = base.replies()?;
    let mut now: Vec<_> = lines.iter().map(|line| line.replace('\n', " ")).collect();
    let same = now.iter().zip(&before).take_while(|(now, before)| now == before).count();
    let begins = now[..same].iter().rposition(|line| line.starts_with("step")).unwrap_or(0);
    let common = now[begins..same].join("\n");
    let rest = |lines: &mut Vec<String>| lines.drain(same..).take(12).collect::<Vec<_>>().join("\n");
    Err(format!("\n{common}\n--- base\n{}\n--- now\n{}\n", rest(&mut before), rest(&mut now)))
}

/// The indexes of the chosen steps in the schedule.
fn indexes(all: &[Step], chosen: &[Step]) -> Vec<usize> {
    let mut from = 0;
    let mut index_of = |step: &Step| {
        let index = from + all[from..].iter().position(|one| one == step).expect("a step of the schedule");
        from = index + 1;
        index
    };
    chosen.iter().map(&mut index_of).collect()
}

#[test]
#[ignore = "scripts/test-module base plays it"]
fn the_rules_do_what_an_earlier_version_did() {
    let mut base = Base::start(&std::env::var("LOCK_BASE").expect("LOCK_BASE names the tests of an earlier version"));
    let mut count = 0;
    for (first, steps) in seeds(400_000) {
        for seed in (0..steps.div_ceil(LENGTH) as u64).map(|n| first.wrapping_add(n)) {
            let (_, all) = schedule(seed, LENGTH);
            let play = |_: &Cast, steps: &[Step]| compare(&mut base, seed, &indexes(&all, steps));
            quietly(|| play_random(seed, LENGTH, play)).unwrap_or_else(|failure| panic!("{failure}"));
            count += LENGTH;
        }
    }
    println!("{count} steps");
}

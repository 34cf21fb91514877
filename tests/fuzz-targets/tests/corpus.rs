//! Runs every target on stable Rust with the inputs of `fuzz/corpus/*.tar` and random mutations of them.
//! `LOCK_TEST_SEED` repeats a failed run.

use std::fs::File;
use std::io::Read;
use std::panic::{catch_unwind, resume_unwind};
use std::path::Path;

use support::Rng;

/// Mutated inputs per target; fewer for schedules, which take longer.
const CHANGED: usize = 3_000;
const CHANGED_SCHEDULES: usize = 500;

#[test]
fn arguments_are_read_or_refused() {
    find_nothing("arguments", fuzz_targets::arguments, CHANGED);
}

#[test]
fn effects_leave_locks_that_a_server_goes_on_with() {
    find_nothing("effects", fuzz_targets::effects, CHANGED);
}

#[test]
fn payloads_are_locks_or_nothing() {
    find_nothing("payload", fuzz_targets::payload, CHANGED);
}

#[test]
fn locks_come_back_from_what_is_stored_and_sent_of_them() {
    find_nothing("round_trip", fuzz_targets::round_trip, CHANGED);
}

#[test]
fn schedules_do_what_the_contract_says() {
    find_nothing("schedule", fuzz_targets::schedule, CHANGED_SCHEDULES);
}

fn find_nothing(name: &str, target: fn(&[u8]), changes: usize) {
    let corpus = corpus(name);
    corpus.iter().for_each(|input| run(name, target, input));
    let mut rng = Rng::new(21);
    for _ in 0..changes {
        let input = changed(&mut rng, &corpus);
        run(name, target, &input);
    }
}

/// A failure prints the input, so that it can be added to the corpus.
fn run(name: &str, target: fn(&[u8]), input: &[u8]) {
    if let Err(panic) = catch_unwind(|| target(input)) {
        eprintln!("{name} with \"{}\"", input.escape_ascii());
        resume_unwind(panic);
    }
}

/// The inputs of `fuzz/corpus/<name>.tar`, in the order of the archive, which `fuzz/run` sorts.
fn corpus(name: &str) -> Vec<Vec<u8>> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("../../fuzz/corpus/{name}.tar"));
    let file = File::open(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let mut archive = tar::Archive::new(file);
    let entries = archive.entries().expect("an archive");
    let inputs: Vec<_> = entries
        .map(|entry| {
            let mut entry = entry.unwrap_or_else(|error| panic!("{}: {error}", path.display()));
            let mut input = Vec::new();
            entry.read_to_end(&mut input).expect("an input");
            assert_eq!(input.len() as u64, entry.size(), "{} is cut off", path.display());
            input
        })
        .collect();
    assert!(inputs.len() > 10, "{} has {} inputs", path.display(), inputs.len());
    inputs
}

/// A mutated input: bytes changed, removed or inserted, or its tail replaced by that of another input.
fn changed(rng: &mut Rng, corpus: &[Vec<u8>]) -> Vec<u8> {
    let mut input = rng.pick(corpus).clone();
    for _ in 0..=rng.below(4) {
        let position = rng.below(input.len() + 1);
        match rng.below(6) {
            0 => input.truncate(position),
            1 => {
                let length = 1 + rng.below(8);
                let extra = rng.bytes(length);
                input.splice(position..position, extra);
            }
            2 => {
                let other = rng.pick(corpus);
                let rest = other.get(rng.below(other.len() + 1)..).unwrap_or_default().to_vec();
                input.truncate(position);
                input.extend(rest);
            }
            3 if position < input.len() => drop(input.remove(position)),
            4 if position < input.len() => {
                input[position] = *rng.pick(&[0, 1, b'\n', b' ', b'-', b'0', b'9', 0x7f, 0x80, 0xff])
            }
            _ if position < input.len() => input[position] ^= 1 << rng.below(8),
            _ => input.push(b'0'),
        }
    }
    input
}

//! The contract as transcripts (`../*.txt`; the format is described in `../README.md`), played on the simulated server
//! in milliseconds, and on a real one. The bytes of clients/writing-a-client.md are played on real servers ([`wire`]).
//!
//! `SPEC=words` plays only the promises with these words in their titles.

mod backend;
mod pattern;
mod play;
mod real;
mod simulated;
mod transcript;
mod wire;

use play::play;
use real::Real;
use simulated::Simulated;
use support::skip;
use transcript::{promises, Promise, Stage};

const PAGE: &str = "clients/writing-a-client.md";
const BYTES: &str = include_str!("../../../clients/writing-a-client.md");

/// The longest time that a transcript may take in real time.
const MOST_MS: u64 = 3_000;

/// The promises of the chapter that were selected.
fn chosen(text: &str) -> Vec<Promise> {
    let words = std::env::var("SPEC").unwrap_or_default();
    let mut promises = promises(text);
    promises.retain(|promise| promise.title.contains(&words));
    promises
}

fn play_simulated(file: &str, text: &str) {
    let promises = chosen(text);
    let played = promises.iter().filter(|promise| promise.stage == Stage::Any);
    fail_with(played.filter_map(|promise| play(file, promise, &mut Simulated::default()).err()).collect());
}

fn play_real(file: &str, text: &str) {
    let mut shared: Option<Real> = None;
    let mut failures = Vec::new();
    for promise in chosen(text) {
        let played = match &promise.stage {
            Stage::Any | Stage::Server => {
                let real = shared.get_or_insert_with(Real::start);
                if !real.has_standing_clocks() && promise.ms() > MOST_MS {
                    skip(&format!(
                        "{}: {} ms pass, and the server's clocks cannot be set",
                        promise.title,
                        promise.ms()
                    ));
                    continue;
                }
                let played = play(file, &promise, real);
                if played.is_ok() {
                    real.reset();
                } else {
                    // After a failure its leftovers must not affect the next transcript.
                    shared = None;
                }
                played
            }
            stage => play(file, &promise, &mut Real::of(stage)),
        };
        failures.extend(played.err());
    }
    fail_with(failures);
}

/// Plays the blocks of the page that run on such servers; there must be at least `least`.
fn play_bytes(least: usize, is_selected: fn(&Stage) -> bool) {
    let words = std::env::var("SPEC").unwrap_or_default();
    let blocks = wire::blocks(BYTES).into_iter().filter(|block| is_selected(&block.stage));
    let blocks: Vec<Promise> = blocks.collect();
    assert!(blocks.len() >= least, "only {} blocks were found", blocks.len());
    let played = blocks.iter().filter(|block| block.title.contains(&words));
    fail_with(played.filter_map(|block| play(PAGE, block, &mut Real::of(&block.stage)).err()).collect());
}

fn fail_with(failures: Vec<String>) {
    assert!(failures.is_empty(), "{} transcripts went otherwise:\n\n{}\n", failures.len(), failures.join("\n\n"));
}

macro_rules! chapters {
    ($($name:ident)*) => {
        const CHAPTERS: &[(&str, &str)] = &[$((
            concat!("tests/spec/", stringify!($name), ".txt"),
            include_str!(concat!("../", stringify!($name), ".txt")),
        )),*];

        mod simulator {
            $(#[test]
            fn $name() {
                let text = include_str!(concat!("../", stringify!($name), ".txt"));
                crate::play_simulated(concat!("tests/spec/", stringify!($name), ".txt"), text);
            })*
        }

        mod server {
            $(#[test]
            fn $name() {
                let text = include_str!(concat!("../", stringify!($name), ".txt"));
                crate::play_real(concat!("tests/spec/", stringify!($name), ".txt"), text);
            })*
        }
    };
}

chapters! {
    common lock_types mutex reentrant rwlock semaphore mlock waiting coalesce deadlock endings notify sessions exec
    inspecting settings adopt
    durability
}

/// The name makes `server::` select these too, with everything else that needs a real server.
mod bytes_on_a_server {
    use crate::transcript::Stage;

    #[test]
    fn of_one_server() {
        crate::play_bytes(20, |stage| !matches!(stage, Stage::Replicated | Stage::TwoNodes));
    }

    #[test]
    fn of_a_primary_and_its_replica() {
        crate::play_bytes(2, |stage| *stage == Stage::Replicated);
    }

    #[test]
    fn of_the_nodes_of_a_cluster() {
        crate::play_bytes(2, |stage| *stage == Stage::TwoNodes);
    }
}

#[test]
fn the_selected_words_occur_in_a_title() {
    let words = std::env::var("SPEC").unwrap_or_default();
    let is_in_bytes = || wire::blocks(BYTES).iter().any(|block| block.title.contains(&words));
    let is_there = is_in_bytes() || CHAPTERS.iter().any(|(_, text)| !chosen(text).is_empty());
    assert!(is_there, "no title has these words: SPEC={}", std::env::var("SPEC").unwrap_or_default());
}

#[test]
fn every_promise_compares_something_and_has_a_unique_title() {
    let mut titles = std::collections::BTreeSet::new();
    let chapters = CHAPTERS.iter().map(|(file, text)| (*file, promises(text)));
    for (file, promises) in chapters.chain([(PAGE, wire::blocks(BYTES))]) {
        for promise in promises {
            let compares = |step: &transcript::Step| {
                use transcript::Action::{Gets, IsClosed, Loses, Sends, Until};
                match &step.action {
                    Sends { ends, .. } => !ends.is_empty(),
                    Gets { .. } | IsClosed { .. } | Loses { .. } | Until { .. } => true,
                    _ => false,
                }
            };
            assert!(promise.steps.iter().any(compares), "{file}: {}", promise.title);
            let lock_type = promise.lock_type.map(|lock_type| lock_type.name);
            assert!(titles.insert((promise.title.clone(), lock_type)), "{file}: {}: twice", promise.title);
        }
    }
}

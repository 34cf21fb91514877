//! The contract as transcripts (`../*.txt`; how they are read: `../README.md`), played on the simulated server in
//! milliseconds, and on a real one.
//!
//! `SPEC=words` plays only the promises with these words in their titles.

mod backend;
mod pattern;
mod play;
mod real;
mod sentences;
mod simulated;
mod transcript;

use play::play;
use real::Real;
use simulated::Simulated;
use support::skip;
use transcript::{promises, Promise, Stage};

/// So long a transcript may take where time passes as it does.
const MOST_MS: u64 = 3_000;

/// The promises to be played, of the chapter and of all that are asked for.
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
                match played.is_ok() {
                    true => real.reset(),
                    // What it has left is not for the next.
                    false => shared = None,
                }
                played
            }
            stage => play(file, &promise, &mut Real::of(stage)),
        };
        failures.extend(played.err());
    }
    fail_with(failures);
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
    words families mutex reentrant rwlock semaphore mlock waiting coalesce deadlock endings notify sessions exec looking
    settings
    lasting
}

#[test]
fn the_words_that_are_asked_for_are_in_a_title() {
    let is_there = CHAPTERS.iter().any(|(_, text)| !chosen(text).is_empty());
    assert!(is_there, "no title has these words: SPEC={}", std::env::var("SPEC").unwrap_or_default());
}

#[test]
fn every_promise_compares_something_and_has_a_title_of_its_own() {
    let mut titles = std::collections::BTreeSet::new();
    for (file, text) in CHAPTERS {
        for promise in promises(text) {
            let compares = |step: &transcript::Step| {
                use transcript::Action::{Gets, IsClosed, Sends};
                matches!(step.action, Sends { .. } | Gets { .. } | IsClosed { .. })
            };
            assert!(promise.steps.iter().any(compares), "{file}: {}", promise.title);
            let family = promise.family.map(|family| family.name);
            assert!(titles.insert((promise.title.clone(), family)), "{file}: {}: twice", promise.title);
        }
    }
}

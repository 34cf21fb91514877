//! Signals at any moment while a run starts: between the request, the grant and the start of the command.

use std::process::Stdio;
use std::thread;
use std::time::Duration;

use rustix::process::Signal;
use support::{until, Rng, Server};

use super::runner::{is_held, send, words};
use crate::tool::command;

/// How many runs are interrupted in each way.
const RUNS: usize = 60;

/// What a run could leave on the server, as fields of INFO.
const LEFT: [&str; 7] =
    ["held_mutex", "held_reentrant", "held_rw", "held_semaphore", "waiters", "kept_places", "sessions"];

#[test]
fn no_signal_at_the_start_of_a_run_leaves_a_lock_or_a_request() {
    let server = Server::start();
    let port = server.port().to_string();
    for options in ["", "--session", "--at-least 1ms", "--limit 1", "--exclusive", "--once", "other"] {
        thread::scope(|scope| {
            for worker in 0..4 {
                let port = &port;
                scope.spawn(move || {
                    let mut random = Rng::new(worker);
                    for run in 0..RUNS / 4 {
                        let mut program = command();
                        program.args(["-p", port, "run", "--lease", "1h"]).args(words(options));
                        program.args(["k", "--", "sleep", "0.002"]).stderr(Stdio::null());
                        let mut child = program.spawn().expect("the program is built");
                        thread::sleep(Duration::from_micros(random.below(20_000) as u64));
                        let id = i32::try_from(child.id()).expect("a process id");
                        // Like an impatient user, or a terminal that hangs up: the second signal cuts nothing short.
                        let signals = [Signal::INT, Signal::TERM, Signal::HUP];
                        for signal in &signals[run % 2..][..1 + run % 2] {
                            send(id, *signal);
                            thread::sleep(Duration::from_micros(random.below(4_000) as u64));
                        }
                        child.wait().expect("a child");
                    }
                });
            }
        });
        // The leases are far longer than this waits.
        until(&format!("nothing is left of the runs with {options:?}"), || {
            ["k", "other"].iter().all(|key| !is_held(&server, key)) && {
                let info = server.info("lock");
                LEFT.iter().all(|field| info.number(&format!("lock_{field}")) == 0)
            }
        });
    }
    assert!(server.info("lock").number("lock_grants_immediate") > 0);
}

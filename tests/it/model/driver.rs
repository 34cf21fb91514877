//! Runs schedules on a server, one after the other.

use std::panic::{catch_unwind, AssertUnwindSafe};

use lock::testing::contract::Clocks;
use lock::testing::schedule::{Cast, Step};

use super::play::{put, Play, KEEP_PLACE, MAX_WAITERS};
use super::wire::ADOPTED;
use crate::support::skip::skip;
use crate::support::Server;

/// Arbitrary times, different for the monotonic clock.
const START: Clocks = Clocks { wall: 1_800_000_000_000, monotonic: 1_000_000 };

/// The server's cron checks 500 times a second, so every 2 ms, whether the clock was set.
const HZ: &str = "hz 500";

/// Runs on one server, which is replaced after a failure.
pub struct Driver {
    server: Option<Server>,
    now: Clocks,
}

impl Driver {
    /// Skips the test if no server can be made to use controlled clocks.
    pub fn by_standing_clocks() -> Option<Driver> {
        if !cfg!(target_os = "linux") {
            skip("clocks that stand are preloaded into the server, which is done on Linux only");
            return None;
        }
        let mut driver = Driver { server: None, now: START };
        if !driver.uses_its_clocks() {
            skip("the server, or its module, goes by another clock than the one that is preloaded");
            return None;
        }
        Some(driver)
    }

    fn server(&mut self) -> &mut Server {
        let now = self.now;
        self.server.get_or_insert_with(|| {
            let settings = format!("max-waiters {MAX_WAITERS} keep-place {KEEP_PLACE}");
            Server::builder().config(HZ).config(ADOPTED).module_args(settings).clocks(put(now)).start()
        })
    }

    pub fn version(&mut self) -> String {
        self.server().info("server").version()
    }

    /// Whether both server and module use the preloaded clocks. A build may read the CPU's counter, or open modules in
    /// a way that hides the preloaded library from them.
    fn uses_its_clocks(&mut self) -> bool {
        let mut client = self.server().client();
        let fence = client.run("LOCK.ACQUIRE k a PX 1").fence();
        self.now = self.now.plus(1_000);
        let now = self.now;
        self.server().put_clocks(put(now));
        client.run("PING");
        let later = client.run("LOCK.ACQUIRE k b PX 1").fence();
        later - fence == 1_000_000
    }

    /// Plays a schedule; an error is the failure, with what was sent before it.
    pub fn play(&mut self, cast: &Cast, steps: &[Step]) -> Result<(), String> {
        // Far enough from the timers of an earlier schedule.
        let Clocks { wall, monotonic } = self.now.plus(10_000);
        let now = Clocks { wall: wall.max(START.wall + monotonic), monotonic };
        self.now = now;
        self.server().put_clocks(put(now));
        let mut play = Play::new(self.server(), cast, now);
        let played = catch_unwind(AssertUnwindSafe(|| {
            play.begin()?;
            for step in steps {
                play.record(format!("{step:?}"));
                play.step(step)?;
            }
            play.end()
        }));
        let played = played.unwrap_or_else(|_| Err("the server does not reply".into()));
        let (now, sent) = (play.now, play.sent.join("\n"));
        self.now = now;
        played.map_err(|error| {
            // The next schedule starts a new server.
            self.server = None;
            format!("{error}\n{sent}\n")
        })
    }
}

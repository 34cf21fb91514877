//! The program of README.md that ends on SIGTERM: its text is that of `work` here, which runs as a separate process.

use std::process::{Child, Command};
use std::time::Duration;

use support::Server;

use crate::servers::{client_of, eventually, Observed, LONG};

const README: &str = include_str!("../README.md");
const HERE: &str = include_str!("shutdown.rs");

/// Set where this program is the worker's process: the server's URL.
const URL: &str = "REDIS_LOCK_TEST_WORKER";

// The program begins.
async fn work(url: &str) -> redis_lock_client::Result<()> {
    let client = redis_lock_client::Client::open(url)?;
    let lock = client.mutex("worker").auto_renew();
    let mut stop = signal(SignalKind::terminate()).expect("a handler");
    loop {
        let guard = tokio::select! {
            biased;
            _ = stop.recv() => break, // the request that waits is dropped, and leaves the queue
            granted = lock.acquire() => granted?,
        };
        tokio::select! {
            () = step(&guard) => guard.release().await?, // a step that has begun ends under the lock
            () = guard.lost() => eprintln!("the lock was lost: this step is abandoned"),
        }
    }
    // What was dropped is withdrawn in the background, unless the runtime ends first.
    let _ = tokio::time::timeout(Duration::from_secs(2), client.settled()).await;
    Ok(())
}
// The program ends.

use tokio::signal::unix::{signal, SignalKind};

/// Lasts until the key `go` exists.
async fn step(guard: &redis_lock_client::Guard) {
    while !guard.exec::<bool>(redis::cmd("EXISTS").arg("go")).await.unwrap_or(true) {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[test]
fn the_program_of_the_readme_is_this_one() {
    let between = |text: &'static str, begin: &str, end: &str| -> &'static str {
        let (_, rest) = text.split_once(begin).unwrap_or_else(|| panic!("no {begin:?}"));
        rest.split_once(end).unwrap_or_else(|| panic!("no {end:?}")).0
    };
    let here = between(HERE, "// The program begins.\n", "// The program ends.\n");
    let here = here.replace("async fn work(url: &str)", "#[tokio::main]\nasync fn main()");
    let shown = here.replace("open(url)", "open(\"redis://127.0.0.1/\")");
    assert!(README.contains(&shown), "README.md has not:\n{shown}");
}

/// The worker's process; in the tests' own it does nothing.
#[tokio::test(flavor = "multi_thread")]
async fn worker() {
    if let Ok(url) = std::env::var(URL) {
        work(&url).await.unwrap();
    }
}

struct Worker(Child);

impl Worker {
    fn of(server: &Server) -> Worker {
        let mut program = Command::new(std::env::current_exe().expect("this program"));
        program.args(["--exact", "shutdown::worker"]).env(URL, format!("redis://127.0.0.1:{}/", server.port()));
        Worker(program.spawn().expect("it starts"))
    }

    fn terminate(&self) {
        assert!(Command::new("kill").arg(self.0.id().to_string()).status().expect("there is kill").success());
    }

    fn has_ended(&mut self) -> bool {
        self.0.try_wait().expect("a child").is_some_and(|status| {
            assert!(status.success(), "{status}");
            true
        })
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        // An error means that it has ended.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[tokio::test]
async fn sigterm_while_it_waits_leaves_the_queue_and_ends_it() {
    let server = Server::start();
    let _holder = client_of(server.port()).mutex("worker").lease(LONG).acquire().await.unwrap();
    let mut worker = Worker::of(&server);
    eventually("it waits", || server.waiters("worker").len() == 1).await;
    worker.terminate();
    eventually("it ends", || worker.has_ended()).await;
    assert!(server.waiters("worker").is_empty());
    assert_eq!(server.info("lock").number("lock_kept_places"), 0, "not even a reserved position");
}

#[tokio::test]
async fn sigterm_during_a_step_ends_it_after_the_step_and_the_lock_is_free() {
    let server = Server::start();
    let mut worker = Worker::of(&server);
    eventually("it works", || server.holds("worker") == 1).await;
    worker.terminate();
    let asked = server.calls("lock.exec");
    eventually("it works on", || server.calls("lock.exec") > asked + 10).await;
    assert!(!worker.has_ended());
    server.client().run("SET go 1");
    eventually("it ends", || worker.has_ended()).await;
    assert!(server.is_free("worker"));
    assert_eq!(server.calls("lock.release"), 1, "it takes no lock after the signal");
}

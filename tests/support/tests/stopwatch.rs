//! The stopwatch counts only the time that a server actually has.

use std::process::Command;
use std::thread;
use std::time::Duration;

use support::{Reply, Server};

const LIMIT: Duration = Duration::from_millis(200);

#[test]
fn a_server_that_keeps_sleeping_or_working_is_late() {
    for line in [&["BLPOP", "nothing", "0"][..], &["EVAL", "while true do end", "0"]] {
        let server = Server::builder().no_module().start();
        let mut client = server.client();
        client.send(line);
        assert_eq!(client.read_soon(LIMIT), None, "{line:?}");
    }
}

#[cfg(target_os = "linux")]
#[test]
fn a_paused_server_is_not_late() {
    let server = Server::builder().no_module().start();
    let pid = server.pid();
    let signal = move |name: &str| {
        let kill = Command::new("kill").args([name, &pid.to_string()]).status().expect("there is a kill");
        assert!(kill.success(), "{name}");
    };
    let mut client = server.client();
    signal("-STOP");
    client.send_line("PING");
    let continues = thread::spawn(move || {
        thread::sleep(3 * LIMIT);
        signal("-CONT");
    });
    assert_eq!(client.read_soon(LIMIT), Some(Reply::Status("PONG".into())));
    continues.join().expect("it continues");
}

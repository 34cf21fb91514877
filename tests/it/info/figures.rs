//! Percentiles, maxima and the longest engine pass.

use super::field;
use crate::support::waiting::*;
use crate::support::Server;
use std::time::{Duration, Instant};

#[test]
fn waits_are_measured_from_queueing_to_hand_off() {
    let began = Instant::now();
    let server = Server::start();
    let mut client = server.client();
    hold(&mut client, "k", "a");
    let mut b = Waiter::park(&server, "LOCK.ACQUIRE k b BLOCK 0");
    let_time_pass(Duration::from_millis(60));
    client.run("LOCK.RELEASE k a");
    b.granted("b");
    for name in ["wait_ms_p50", "wait_ms_p99", "wait_ms_p999", "wait_ms_max"] {
        let ms = field(&server, name);
        assert!((60..30_000).contains(&ms), "{name}: {ms}");
    }
    let longest_turn_us = field(&server, "longest_turn_us");
    assert!((1..=began.elapsed().as_micros() as i64).contains(&longest_turn_us), "{longest_turn_us}");
}

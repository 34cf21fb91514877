//! A server that reads on multiple threads, and enough clients to keep all of them busy.

use std::time::{Duration, Instant};

use super::{Builder, Client, Pipeline, Server};

/// A server with I/O threads, and with an append-only file that takes part in every write.
pub fn with_io_threads() -> Builder {
    let builder = Server::builder().appendonly().config("appendfsync no").config("io-threads 4");
    let is_valkey = Server::start().info("server").version().starts_with("Valkey");
    if is_valkey {
        // Use the threads however little there is to do.
        builder.config("events-per-io-thread 0")
    } else {
        builder
    }
}

/// For a second, fifty clients repeatedly send their pipelines concurrently: no client gets an error, and the server
/// stays up.
#[track_caller]
pub fn assert_serves_many(server: &mut Server, pipeline_of: impl Fn(usize) -> Pipeline) {
    let mut clients: Vec<(Client, Pipeline)> = (0..50).map(|number| (server.client(), pipeline_of(number))).collect();
    let start = Instant::now();
    while start.elapsed() < Duration::from_secs(1) {
        for (client, pipeline) in &mut clients {
            client.send_raw(&pipeline.bytes);
        }
        for (client, pipeline) in &mut clients {
            for _ in 0..pipeline.commands {
                let reply = client.read();
                assert!(!reply.is_error(), "{reply:?}");
            }
        }
    }
    assert!(server.is_alive());
}

//! Leader election: a process leads for as long as it lives. Its lock is bound to a connection, and needs no renewal.

use std::time::Duration;

use redis_lock_client::{Client, Result};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<()> {
    let client = Client::open("redis://127.0.0.1/")?;
    let leader = client.mutex("leader").lease(Duration::from_secs(10)).session().acquire().await?;
    println!("leading, fence {}", leader.fence());
    tokio::select! {
        () = leader.lost() => println!("no leader any more"),
        () = tokio::time::sleep(Duration::from_secs(1)) => leader.release().await?,
    }
    Ok(())
}

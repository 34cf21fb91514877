//! Leader election: a process leads as long as it lives. Its lock has a session and needs no renewal.

use std::time::Duration;

use redis_lock_client::{Client, Guard, Lock, Result};

const PAUSE: Duration = Duration::from_secs(1);

/// Returns when this process leads. A refusal, such as a LOCK.CANCEL or too many waiters, must not end it for good.
async fn lead(lock: &Lock) -> Guard {
    loop {
        match lock.acquire().await {
            Ok(leader) => return leader,
            Err(refusal) => eprintln!("not leading, queueing again in a second: {refusal}"),
        }
        tokio::time::sleep(PAUSE).await;
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<()> {
    let client = Client::open("redis://127.0.0.1/")?;
    let leader = lead(&client.mutex("leader").lease(Duration::from_secs(10)).session()).await;
    println!("leading, fence {}", leader.fence());
    tokio::select! {
        () = leader.lost() => println!("no leader any more"),
        () = tokio::time::sleep(PAUSE) => leader.release().await?,
    }
    Ok(())
}

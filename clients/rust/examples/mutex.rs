//! One of several processes at a time writes the report, and the storage refuses an older fence.

use std::time::Duration;

use redis_lock_client::{Client, Result};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<()> {
    let client = Client::open("redis://127.0.0.1/")?;
    let lock = client.mutex("report").lease(Duration::from_secs(30)).auto_renew();
    let Some(guard) = lock.acquire_within(Duration::from_secs(5)).await? else {
        println!("somebody else is at it");
        return Ok(());
    };
    tokio::select! {
        () = write_report(guard.fence()) => guard.release().await,
        () = guard.lost() => {
            println!("lost: the report is somebody else's now");
            Ok(())
        }
    }
}

async fn write_report(fence: u64) {
    println!("held, fence {fence}");
    tokio::time::sleep(Duration::from_secs(1)).await;
}

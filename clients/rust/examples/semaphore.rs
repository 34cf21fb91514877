//! At most three concurrent downloads over all processes.

use redis_lock_client::{Client, Result};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<()> {
    let downloads = Client::open("redis://127.0.0.1/")?.semaphore("downloads", 3);
    let mut tasks = Vec::new();
    for number in 0..10 {
        let downloads = downloads.clone();
        tasks.push(tokio::spawn(async move {
            let permit = downloads.acquire().await?;
            println!("download {number}, fence {}", permit.fence());
            permit.release().await
        }));
    }
    for task in tasks {
        task.await.expect("no task panics")?;
    }
    Ok(())
}

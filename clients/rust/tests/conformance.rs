use std::time::Duration;

use redis_lock_client::Client;
use support::Server;

#[tokio::test]
async fn acquire() {
    let server = Server::start();
    for protocol in ["resp2", "resp3"] {
        let client = Client::open(format!("redis://127.0.0.1:{}/?protocol={protocol}", server.port())).unwrap();
        let guard = client.mutex("k").lease(Duration::from_secs(10)).acquire().await.unwrap();
        assert!(guard.fence() > 0);
        assert!(client.mutex("k").try_acquire().await.unwrap().is_none());
        let c2 = client.clone();
        let waiting = tokio::spawn(async move { c2.mutex("k").acquire().await });
        guard.release().await.unwrap();
        let next = waiting.await.unwrap().unwrap();
        next.release().await.unwrap();
        let r = client.reentrant("r").session();
        let one = r.acquire().await.unwrap();
        let two = r.acquire().await.unwrap();
        assert_eq!((one.holds(), one.fence()), (2, two.fence()));
        two.release().await.unwrap();
        one.release().await.unwrap();
    }
}

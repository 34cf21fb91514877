//! Why nothing was granted: the error at the end of a wait says it, and a refused user ends an acquire immediately.

use std::time::{Duration, Instant};

use redis::cmd;
use redis_lock_client::{Client, Error, Result};
use support::{free_port, until, Info, Reply, Server};

use crate::cluster::Cluster;
use crate::observing::Log;
use crate::servers::{client_of, eventually, LONG};

/// Every way to acquire a lock, for at most this time.
async fn acquires(client: &Client, key: &str, within: Duration) -> Vec<(&'static str, Error)> {
    fn failed<T>(way: &'static str, asked: Result<T>) -> (&'static str, Error) {
        (way, asked.err().unwrap_or_else(|| panic!("{way}: no error")))
    }
    let lock = |way: &str| client.mutex(format!("{key}:{way}"));
    let ping = cmd("PING");
    let (second, never) = (Duration::from_secs(1), || async { Ok::<Option<i32>, Error>(None) });
    let (acquire, session, replicas, token, mixed) = (
        lock("acquire"),
        lock("s").session(),
        lock("r").replicas(1, second),
        lock("t").token("me"),
        lock("m").mixed(second / 10),
    );
    let (reentrant, coalesced, once, run) = (client.reentrant(key), lock("c"), lock("o"), lock("run"));
    let asked = tokio::join!(
        acquire.acquire_within(within),
        session.acquire_within(within),
        replicas.acquire_within(within),
        token.acquire_within(within),
        mixed.acquire_within(within),
        reentrant.acquire_within(within),
        coalesced.acquire_coalesced(within),
        once.once(within, never, |_guard| async { Ok::<i32, Error>(1) }),
        run.run_within::<()>(&ping, within),
        acquire.try_acquire(),
        run.try_run::<()>(&ping),
    );
    vec![
        failed("acquire_within", asked.0),
        failed("session", asked.1),
        failed("replicas", asked.2),
        failed("token", asked.3),
        failed("mixed", asked.4),
        failed("reentrant", asked.5),
        failed("coalesced", asked.6),
        failed("once", asked.7),
        failed("run_within", asked.8),
        failed("try_acquire", asked.9),
        failed("try_run", asked.10),
    ]
}

#[tokio::test]
async fn a_wait_ends_with_its_cause() {
    let ending = tokio::net::TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let ends = ending.local_addr().unwrap().port();
    tokio::spawn(async move { while ending.accept().await.is_ok() {} });
    let primary = Server::start();
    let replica = Server::builder().replica_of(&primary).start();
    until("the replica", || {
        let info = replica.client().run("INFO replication");
        Info::parse(info.text()).text("master_link_status") == "up"
    });
    let closed = Client::open(("127.0.0.1", free_port())).unwrap();
    // A name with an empty label is refused without asking a name server, which might not answer.
    let unknown = Client::open(("no..such.host", 6379)).unwrap();
    let servers: [(&str, Client, &[&str]); 4] = [
        ("closed", closed, &["refused"]),
        ("ending", client_of(ends), &["reset", "terminated", "end of file", "roken pipe", "dropped"]),
        ("replica", client_of(replica.port()), &["READONLY", "ReadOnly"]),
        ("unknown", unknown, &["lookup", "resolve", "not known", "no connection to no..such.host"]),
    ];
    for (server, client, causes) in servers {
        for (way, error) in acquires(&client, server, Duration::from_millis(1500)).await {
            let words = error.to_string();
            assert!(causes.iter().any(|cause| words.contains(cause)), "{server}, {way}: {words}");
        }
    }
}

#[tokio::test]
async fn a_wait_without_a_limit_warns_once_of_its_cause() {
    let log = Log::global();
    let client = client_of(free_port());
    let waiting = tokio::spawn(async move { client.mutex("without a limit").acquire().await });
    let warnings =
        || log.about("without a limit").into_iter().filter(|line| line.starts_with("WARN")).collect::<Vec<_>>();
    eventually("a warning", || !warnings().is_empty()).await;
    // Time for further retries.
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert!(matches!(&warnings()[..], [line] if line.contains("refused")), "{:?}", warnings());
    waiting.abort();
}

#[tokio::test]
async fn a_single_server_client_reports_a_cluster_immediately() {
    let cluster = Cluster::start();
    let (_, _, other) = cluster.of_key("{k}");
    let client = client_of(other.port());
    let began = Instant::now();
    for (way, error) in acquires(&client, "{k}", LONG).await {
        assert!(error.to_string().contains("Client::cluster"), "{way}: {error}");
    }
    assert!(began.elapsed() < LONG / 2, "{:?}", began.elapsed());
}

#[tokio::test]
async fn a_refused_user_ends_an_acquire_immediately() {
    let cluster = Cluster::start();
    let primary = Server::start();
    let sentinel = Server::builder().sentinel().start();
    let monitor = format!("SENTINEL MONITOR main 127.0.0.1 {} 1", primary.port());
    assert_eq!(sentinel.client().run(&monitor), Reply::ok());
    let url = |port: u16| format!("redis://worker:right@127.0.0.1:{port}");
    let [first, second] = &cluster.nodes;
    let ways = [
        ("single", Client::open(url(primary.port())).unwrap(), vec![&primary]),
        ("cluster", Client::cluster([url(first.port())]).unwrap(), vec![first, second]),
        (
            "sentinel",
            Client::sentinel([("127.0.0.1", sentinel.port())], "main", url(primary.port())).unwrap(),
            vec![&primary],
        ),
    ];
    for (way, client, servers) in ways {
        let change = |rules: &str| {
            for server in &servers {
                assert_eq!(server.client().run(&format!("ACL SETUSER worker {rules}")), Reply::ok());
            }
        };
        change("reset on >right ~* &* +@all");
        client.mutex("{k}warm").acquire().await.unwrap().release().await.unwrap();
        for (code, rules) in [("NOPERM", "-lock.acquire -rlock.acquire"), ("WRONGPASS", "+@all resetpass >changed")] {
            change(rules);
            if code == "WRONGPASS" {
                servers.iter().for_each(|server| drop(server.client().run("CLIENT KILL USER worker")));
                // What is on its way when the connection ends may have run.
                client.mutex("{k}first").acquire().await.unwrap_err();
            }
            let began = Instant::now();
            for (name, error) in acquires(&client, "{k}", LONG).await {
                let words = error.to_string();
                let says = if code == "NOPERM" { ["NoPerm", "NOPERM"] } else { ["AuthenticationFailed", "WRONGPASS"] };
                assert!(says.iter().any(|word| words.contains(word)), "{way}, {name}: {words}");
            }
            assert!(began.elapsed() < Duration::from_secs(20), "{way}: {:?}", began.elapsed());
        }
    }
}

#[tokio::test]
async fn a_missing_password_ends_an_acquire_immediately() {
    let server = Server::start();
    let mut admin = server.client();
    assert_eq!(admin.run("ACL SETUSER default resetpass >secret"), Reply::ok());
    for (name, error) in acquires(&client_of(server.port()), "k", LONG).await {
        assert!(error.to_string().contains("NOAUTH"), "{name}: {error}");
    }
    // So do Sentinels, which know the primary.
    let sentinel = Server::builder().sentinel().start();
    assert_eq!(sentinel.client().run("ACL SETUSER default resetpass >secret"), Reply::ok());
    let client = Client::sentinel([("127.0.0.1", sentinel.port())], "main", ("127.0.0.1", server.port())).unwrap();
    for (name, error) in acquires(&client, "k", LONG).await {
        assert!(error.to_string().contains("NOAUTH"), "{name}: {error}");
    }
}

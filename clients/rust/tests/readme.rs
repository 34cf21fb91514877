//! The program of docs/start.md: its text is that of `report` here, which runs on a server of the test.

use support::{until, Server};

const PAGE: &str = include_str!("../../../docs/start.md");
const HERE: &str = include_str!("readme.rs");

// The program begins.
async fn report(url: &str) -> redis_lock_client::Result<()> {
    let report = redis_lock_client::Client::open(url)?.mutex("report").auto_renew();
    let guard = report.acquire().await?;
    println!("making the report under fence {}", guard.fence());
    guard.release().await
}
// The program ends.

#[test]
fn the_program_of_the_page_is_this_one() {
    let between = |text: &'static str, begin: &str, end: &str| -> &'static str {
        let (_, rest) = text.split_once(begin).unwrap_or_else(|| panic!("no {begin:?}"));
        rest.split_once(end).unwrap_or_else(|| panic!("no {end:?}")).0
    };
    let written = between(PAGE, "\n```rust\n", "```\n");
    let here = between(HERE, "// The program begins.\n", "// The program ends.\n");
    let here = here.replace("async fn report(url: &str)", "#[tokio::main]\nasync fn main()");
    assert_eq!(written, here.replace("open(url)", "open(\"redis://127.0.0.1/\")"));
}

#[tokio::test(flavor = "multi_thread")]
async fn it_waits_for_its_turn_holds_the_lock_and_releases_it() {
    let server = Server::start();
    let mut client = server.client();
    client.run("LOCK.ACQUIRE report somebody PX 60000").fence();
    let url = format!("redis://127.0.0.1:{}/", server.port());
    let running = tokio::spawn(async move { report(&url).await });
    until("it waits", || client.run("LOCK.INFO report").get("waiters").int() == 1);
    assert!(!running.is_finished(), "it does not run before the grant");
    let before = client.run("INFO lock").text().to_string();
    assert!(before.contains("lock_grants_after_wait:0"), "{before}");
    assert_eq!(client.run("LOCK.RELEASE report somebody").int(), 1);
    running.await.expect("it ends").expect("it held the lock to its end");
    let after = client.run("INFO lock").text().to_string();
    assert!(after.contains("lock_grants_after_wait:1"), "{after}");
    assert_eq!(client.run("EXISTS report").int(), 0, "it is released");
}

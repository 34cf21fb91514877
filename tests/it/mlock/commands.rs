//! How many keys a command takes, and how they are declared.

use super::*;

#[test]
fn it_takes_1_to_128_keys() {
    each_protocol(|client| {
        let keys: Vec<String> = (0..129).map(|n| format!("k{n}")).collect();
        let most = keys[..128].join(" ");
        let fence = client.run(&format!("MLOCK.ACQUIRE 128 {most} a")).fence();
        assert_eq!(client.run("DBSIZE"), Reply::Int(128));
        assert_eq!(held(client, "k127", "a").map(|held| held.0), Some(fence));
        assert_eq!(client.run(&format!("MLOCK.RENEW 128 {most} a")), Reply::Int(1));
        assert_eq!(client.run(&format!("MLOCK.RELEASE 128 {most} a")), Reply::Int(128));
        assert!(client.run(&format!("MLOCK.ACQUIRE 129 {} a", keys.join(" "))).is_error());
        assert_eq!(client.run("DBSIZE"), Reply::Int(0));
    });
}

#[test]
fn its_keys_are_declared() {
    let server = Server::start();
    let mut client = server.client();
    for line in
        ["MLOCK.ACQUIRE 2 x y a PX 5000 BLOCK 0 NOTIFY ch", "MLOCK.RELEASE 2 x y a", "MLOCK.RENEW 2 x y a PX 5000"]
    {
        let keys = client.run(&format!("COMMAND GETKEYS {line}"));
        assert_eq!(keys, Reply::Array(vec![Reply::bulk("x"), Reply::bulk("y")]), "{line}");
    }
    client.run("ACL SETUSER limited on nopass +@all ~x ~y*");
    client.run("AUTH limited any");
    assert!(client.run("MLOCK.ACQUIRE 2 x y1 a").fence() > 0);
    assert!(client.run("MLOCK.ACQUIRE 3 x y1 z a").error().starts_with("NOPERM "));
}

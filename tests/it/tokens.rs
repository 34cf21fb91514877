//! Tokens: the allowed bytes, and the token that the server generates for `*`.

use crate::support::Server;

#[test]
fn a_star_generates_a_new_random_uuid() {
    let server = Server::start();
    let mut client = server.client();
    let first = client.run("LOCK.ACQUIRE k1 *");
    let second = client.run("LOCK.ACQUIRE k2 *");
    let token = first.items()[0].text();
    assert_ne!(token, second.items()[0].text());
    assert_eq!(token.len(), 36);
    for (at, character) in token.char_indices() {
        match at {
            8 | 13 | 18 | 23 => assert_eq!(character, '-', "{token}"),
            14 => assert_eq!(character, '4', "version 4: {token}"),
            19 => assert!("89ab".contains(character), "the variant of RFC 9562: {token}"),
            _ => assert!(matches!(character, '0'..='9' | 'a'..='f'), "{token}"),
        }
    }
    assert!(client.run("LOCK.ACQUIRE k1 *").is_nil(), "it is a new owner each time");
    assert_eq!(client.run("LOCK.RELEASE k1 *").int(), 0, "it is no wildcard");
    assert_eq!(client.cmd(&["LOCK.RELEASE", "k1", token]).int(), 1);
}

#[test]
fn a_token_is_any_1_to_1024_bytes() {
    let server = Server::start();
    let mut client = server.client();
    let every_byte: Vec<u8> = (0..=255).collect();
    for token in [&b"t"[..], b"\0", b"\r\n", b"\xff\xfe", b"**", b" ", &every_byte, &[b'x'; 1024]] {
        let granted = client.cmd(&[b"LOCK.ACQUIRE", &b"k"[..], token]);
        granted.fence();
        assert_eq!(granted.items()[0].bytes(), token);
        assert!(!client.cmd(&[b"LOCK.HELD", &b"k"[..], token]).is_nil());
        assert_eq!(client.run("LOCK.INFO k").get("holders").items()[0].get("owner").bytes(), token);
        assert_eq!(client.cmd(&[b"LOCK.RENEW", &b"k"[..], token]).int(), 1);
        assert_eq!(client.cmd(&[b"LOCK.RELEASE", &b"k"[..], token]).int(), 1);
    }
    for token in [&b""[..], &[b'x'; 1025]] {
        assert!(client.cmd(&[b"LOCK.ACQUIRE", &b"k"[..], token]).error().starts_with("ERR "));
        assert_eq!(client.run("EXISTS k").int(), 0);
    }
}

#[test]
fn tokens_are_compared_byte_by_byte() {
    let server = Server::start();
    let mut client = server.client();
    client.cmd(&[&b"LOCK.ACQUIRE"[..], b"k", b"a\0b"]).fence();
    for other in [&b"a"[..], b"a\0", b"a\0c", b"a\0b\0", b"A\0b"] {
        assert!(client.cmd(&[&b"LOCK.ACQUIRE"[..], b"k", other]).is_nil());
        assert_eq!(client.cmd(&[&b"LOCK.RELEASE"[..], b"k", other]).int(), 0);
    }
    assert_eq!(client.cmd(&[&b"LOCK.RELEASE"[..], b"k", b"a\0b"]).int(), 1);
}

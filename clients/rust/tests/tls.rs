//! TLS: a server that accepts nothing else, with a certificate of an authority created for the test.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use redis::{IntoConnectionInfo, TlsCertificates};
use redis_lock_client::Client;
use support::{skip, Server};

use crate::servers::LONG;

/// Creates an authority and its certificate for 127.0.0.1; false without openssl.
fn make_certificates(dir: &Path) -> bool {
    let run = |args: &str| {
        let mut openssl = Command::new("openssl");
        openssl.args(args.split(' ')).current_dir(dir).stdout(Stdio::null()).stderr(Stdio::null());
        openssl.status().is_ok_and(|status| status.success())
    };
    fs::write(dir.join("san"), "subjectAltName=IP:127.0.0.1,DNS:localhost").expect("it is written");
    let key = "-newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2";
    run(&format!("req -x509 {key} -keyout ca.key -out ca.crt -subj /CN=authority"))
        && run(&format!("req {key} -keyout server.key -out server.csr -subj /CN=127.0.0.1"))
        && run("x509 -req -in server.csr -CA ca.crt -CAkey ca.key -CAcreateserial -days 2 -extfile san -out server.crt")
}

#[tokio::test]
async fn a_lock_over_tls() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    if !make_certificates(dir.path()) {
        return skip("no openssl that makes certificates");
    }
    let file = |name: &str| dir.path().join(name).display().to_string();
    let tls_port = support::free_port();
    let server = Server::builder()
        .config(format!("tls-port {tls_port}"))
        .config(format!("tls-cert-file {}", file("server.crt")))
        .config(format!("tls-key-file {}", file("server.key")))
        .config(format!("tls-ca-cert-file {}", file("ca.crt")))
        .config("tls-auth-clients no")
        .try_start();
    let server = match server {
        Ok(server) => server,
        Err(log) if log.contains("tls-port") || log.contains("Failed finding TLS support") => {
            return skip("this server was built without TLS")
        }
        Err(log) => panic!("{log}"),
    };
    let url = format!("rediss://127.0.0.1:{tls_port}");
    let certificates =
        TlsCertificates { client_tls: None, root_cert: Some(fs::read(file("ca.crt")).expect("it was made")) };
    let trusted = redis::Client::build_with_tls(url.as_str(), certificates).unwrap().get_connection_info().clone();
    let insecure = format!("{url}/#insecure").into_connection_info().unwrap();
    for info in [trusted, insecure] {
        let client = Client::open(info).unwrap();
        let lock = client.mutex("k").lease(LONG).session();
        let guard = lock.acquire().await.unwrap();
        let waiting = tokio::spawn(async move { lock.acquire().await });
        guard.release().await.unwrap();
        waiting.await.unwrap().unwrap().release().await.unwrap();
    }
    let began = std::time::Instant::now();
    // That authority is not trusted here, and waiting does not change that.
    let error = Client::open(url).unwrap().mutex("k").acquire_within(LONG).await.unwrap_err();
    assert!(began.elapsed() < LONG);
    assert!(error.to_string().contains("certificate"), "{error}");
    drop(server);
}

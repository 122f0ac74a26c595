//! Whom TLS trusts comes from the environment, which a process reads once: these tests start
//! themselves anew.

use crate::{
    COOLDOWN, ask_as, assert_failed,
    listener::{Listener, vector},
    server::Server,
    trigger,
};
use elasti_core::verdict::{Opinion, Verdict};
use elasti_operator::prometheus::{Prometheus, Settings};
use serde_json::json;
use std::{env, ffi::OsStr, process::Command, time::Duration};
use tokio::{
    net::TcpStream,
    time::{Instant, sleep},
};

const SERVER: &str = "ELASTI_TEST_SERVER";

async fn asked(url: &str) -> Opinion {
    let asker = Prometheus::new(Settings::default()).unwrap();
    let unchecked = trigger(url, "vector(0)", json!({"healthCheck": false}));
    ask_as(&asker, &unchecked, COOLDOWN).await
}

async fn listens(port: u16) {
    let deadline = Instant::now() + Duration::from_secs(30);
    while TcpStream::connect(("localhost", port)).await.is_err() {
        assert!(Instant::now() < deadline, "nobody listens on {port}");
        sleep(Duration::from_millis(100)).await;
    }
}

fn assert_passes(test: &str, server: &str, authorities: impl AsRef<OsStr>) {
    let run = Command::new(env::current_exe().unwrap())
        .args(["--exact", test])
        .env(SERVER, server)
        .env("SSL_CERT_FILE", authorities)
        .env_remove("SSL_CERT_DIR")
        .output();
    let said = String::from_utf8(run.unwrap().stdout).unwrap();
    assert!(said.contains("1 passed"), "{said}");
}

#[tokio::test]
#[ignore = "needs prometheus: make e2e"]
async fn https_with_a_password_is_asked_where_the_authority_is_trusted() {
    let server = Server::secured();
    let host = format!("localhost:{}", server.port);
    listens(server.port).await;
    let unknown = asked(&format!("https://{host}")).await;
    assert_failed(&unknown, "invalid peer certificate");
    let url = format!("https://me:p%40ss@{host}");
    assert_passes("trust::known_authority", &url, server.certificate());
}

#[test]
fn image_without_authorities_still_asks_in_plain_text() {
    assert_passes("trust::no_authorities", "", "/dev/null");
}

#[tokio::test]
async fn known_authority() {
    let Ok(url) = env::var(SERVER) else { return };
    let opinion = asked(&url).await;
    assert_eq!(opinion.verdict, Verdict::Idle, "{opinion:?}");
}

#[tokio::test]
async fn no_authorities() {
    let Ok(_) = env::var(SERVER) else { return };
    let listener = Listener::new(|_| vector(&["0"])).await;
    let plain = asked(&listener.url()).await;
    assert_eq!(plain.verdict, Verdict::Idle, "{plain:?}");
    let secure = asked("https://localhost").await;
    assert_failed(&secure, "No CA certificates");
}

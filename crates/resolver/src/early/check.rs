//! One probe, asked as the kubelet asks it.

mod grpc;
mod http;
mod tls;

use elasti_api::ReadinessCheck;
use std::{
    net::{IpAddr, SocketAddr},
    pin::pin,
    time::Duration,
};
use tokio::{net::TcpStream, time::timeout};

/// What came of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Answer {
    Passed,
    Failed,
    /// There is nobody.
    Refused,
}

type Fault = Box<dyn std::error::Error + Send + Sync>;

const USER_AGENT: &str = concat!("kube-probe/elasti-", env!("CARGO_PKG_VERSION"));
/// What is read of an answer.
const MOST: usize = 10 * 1_024;

pub(super) async fn connects(socket: SocketAddr, patience: Duration) -> bool {
    matches!(
        timeout(patience, TcpStream::connect(socket)).await,
        Ok(Ok(_))
    )
}

pub(super) async fn ask(address: IpAddr, check: &ReadinessCheck) -> Answer {
    let Ok(port) = check.port.try_into() else {
        return Answer::Failed;
    };
    let socket = SocketAddr::new(address, port);
    let asked = async {
        let Ok(stream) = TcpStream::connect(socket).await else {
            return Answer::Refused;
        };
        let passes = match (&check.http_get, &check.grpc) {
            (Some(action), _) => http::passes(stream, socket, action).await,
            (None, Some(action)) => grpc::passes(stream, socket, &action.service).await,
            (None, None) => Ok(true),
        };
        match passes {
            Ok(true) => Answer::Passed,
            Ok(false) | Err(_) => Answer::Failed,
        }
    };
    let seconds = check.timeout_seconds.try_into().unwrap_or(1);
    let asked = timeout(Duration::from_secs(seconds), asked);
    asked.await.unwrap_or(Answer::Failed)
}

/// What is asked over a connection, which may end with the answer.
async fn carried<T>(asked: impl Future<Output = T>, connection: impl Future) -> T {
    let mut asked = pin!(asked);
    tokio::select! {
        answer = &mut asked => answer,
        _ = connection => asked.await,
    }
}

#[cfg(test)]
mod tests {
    use super::{super::tests::check, *};
    use tokio::net::TcpListener;

    #[tokio::test(start_paused = true)]
    async fn whoever_does_not_answer_in_time_fails_and_nobody_is_nobody() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let socket = listener.local_addr().unwrap();
        let slow = ReadinessCheck {
            timeout_seconds: 7,
            http_get: Some(http::tests::action(&[])),
            ..check(socket.port())
        };
        let begun = tokio::time::Instant::now();
        assert_eq!(ask(socket.ip(), &slow).await, Answer::Failed);
        assert_eq!(begun.elapsed(), Duration::from_secs(7));
        let plain = check(socket.port());
        assert_eq!(ask(socket.ip(), &plain).await, Answer::Passed);
        drop(listener);
        assert_eq!(ask(socket.ip(), &plain).await, Answer::Refused);
    }
}

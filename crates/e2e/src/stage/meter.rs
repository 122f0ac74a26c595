use super::PATIENCE;
use anyhow::{Context, Result};
use http_body_util::Full;
use hyper::{Response, body::Bytes, server::conn::http1, service::service_fn};
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use std::convert::Infallible;
use tokio::{
    net::TcpListener,
    sync::watch,
    task::{AbortHandle, JoinSet},
    time,
};

/// A Prometheus that answers every query with the same figure, until the test says otherwise.
pub struct Meter {
    port: u16,
    figure: watch::Sender<u32>,
    asked: watch::Receiver<u64>,
    serving: AbortHandle,
}

// === impl Meter ===

impl Meter {
    /// It says that nothing happens.
    pub async fn idle() -> Result<Self> {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
        let (figure, reading) = watch::channel(0);
        let (asking, asked) = watch::channel(0);
        Ok(Self {
            port: listener.local_addr()?.port(),
            serving: tokio::spawn(serve(listener, reading, asking)).abort_handle(),
            figure,
            asked,
        })
    }

    pub fn reads(&self, figure: u32) {
        self.figure.send_replace(figure);
    }

    /// Waits until whoever asks must have heard the present figure: they ask again.
    pub async fn is_heard(&self) -> Result<()> {
        let mut asked = self.asked.clone();
        let before = *asked.borrow_and_update();
        let again = asked.wait_for(|count| *count >= before + 2);
        time::timeout(PATIENCE, again)
            .await
            .context("waiting for two questions")??;
        Ok(())
    }

    /// Idle below 1.
    pub fn triggers(&self) -> Value {
        json!([{"type": "prometheus", "metadata": {
            "serverAddress": format!("http://127.0.0.1:{}", self.port),
            "query": "requests",
            "threshold": 1,
            "healthCheck": false,
        }}])
    }
}

/// From then on nobody listens there.
impl Drop for Meter {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

async fn serve(listener: TcpListener, figure: watch::Receiver<u32>, asked: watch::Sender<u64>) {
    let mut connections = JoinSet::new();
    while let Ok((stream, _)) = listener.accept().await {
        let (figure, asked) = (figure.clone(), asked.clone());
        connections.spawn(async move {
            let answer = service_fn(|_| async {
                asked.send_modify(|count| *count += 1);
                answer(*figure.borrow())
            });
            http1::Builder::new()
                .serve_connection(TokioIo::new(stream), answer)
                .await
        });
    }
}

fn answer(figure: u32) -> Result<Response<Full<Bytes>>, Infallible> {
    let sample = json!({"metric": {}, "value": [0, figure.to_string()]});
    let body = json!({"status": "success", "data": {"resultType": "vector", "result": [sample]}});
    Ok(Response::new(Full::from(body.to_string())))
}

use super::{PATIENCE, free_port, metric};
use crate::{Place, Running, fetch, own_address};
use anyhow::{Context, Result};
use http_body_util::Full;
use hyper::{Response, body::Bytes, server::conn::http1, service::service_fn};
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use std::{convert::Infallible, fs, net::SocketAddr, time::Duration};
use tokio::{
    net::TcpListener,
    sync::watch,
    task::{AbortHandle, JoinSet},
    time,
};

/// A Prometheus that scrapes one figure, which the test sets.
pub struct Meter {
    /// Pods reach it there, too.
    address: SocketAddr,
    figure: watch::Sender<u32>,
    exporter: AbortHandle,
    _prometheus: Running,
}

/// Prometheus has no event for what it has scraped.
const LOOK: Duration = Duration::from_millis(50);

// === impl Meter ===

impl Meter {
    /// It says that nothing happens.
    pub async fn idle(place: &Place) -> Result<Self> {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
        let exporter = listener.local_addr()?;
        let (figure, reading) = watch::channel(0);
        let port = free_port();
        let folder = place.folder().join(format!("prometheus-{port}"));
        fs::create_dir_all(&folder)?;
        let config = json!({
            "global": {"scrape_interval": "200ms", "scrape_timeout": "200ms"},
            "scrape_configs": [{"job_name": "web", "static_configs": [{"targets": [exporter.to_string()]}]}],
        });
        let path = folder.join("prometheus.yml");
        fs::write(&path, config.to_string())?;
        let mut command = place.cluster.command("prometheus")?;
        command
            .arg(format!("--config.file={}", path.display()))
            .arg(format!(
                "--storage.tsdb.path={}",
                folder.join("data").display()
            ))
            .arg(format!("--web.listen-address=0.0.0.0:{port}"))
            .arg("--log.level=error");
        let meter = Self {
            address: SocketAddr::new(own_address()?, port),
            figure,
            exporter: tokio::spawn(export(listener, reading)).abort_handle(),
            _prometheus: Running::start(&mut command)?,
        };
        meter.knows(0).await?;
        Ok(meter)
    }

    /// Sets the figure and waits until Prometheus has it.
    pub async fn reads(&self, figure: u32) -> Result<()> {
        self.figure.send_replace(figure);
        self.knows(figure).await
    }

    async fn knows(&self, figure: u32) -> Result<()> {
        let url = format!("http://{}/api/v1/query?query=requests", self.address);
        let wanted = format!("\"{figure}\"]");
        let scraped = async {
            while !fetch(&url)
                .await
                .is_ok_and(|answer| answer.contains(&wanted))
            {
                time::sleep(LOOK).await;
            }
        };
        time::timeout(PATIENCE, scraped)
            .await
            .context("waiting for Prometheus to scrape")
    }

    /// Waits until whoever asks must have heard the present figure: they ask again.
    pub async fn is_heard(&self) -> Result<()> {
        let before = self.asked().await?;
        let again = async {
            while self.asked().await? < before + 2.0 {
                time::sleep(LOOK).await;
            }
            Ok(())
        };
        time::timeout(PATIENCE, again)
            .await
            .context("waiting for two questions")?
    }

    /// How many questions it has answered.
    async fn asked(&self) -> Result<f64> {
        let own = fetch(&format!("http://{}/metrics", self.address)).await?;
        let handler = [("handler", "/api/v1/query")];
        Ok(metric(&own, "prometheus_http_requests_total", &handler).unwrap_or_default())
    }

    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Idle below 1.
    pub fn triggers(&self) -> Value {
        json!([{"type": "prometheus", "metadata": {
            "serverAddress": self.url(),
            // A busy machine may miss a scrape, after which there would be no figure until the next.
            "query": "last_over_time(requests[10s])",
            "threshold": 1,
            "healthCheck": false,
        }}])
    }
}

/// From then on nobody answers there.
impl Drop for Meter {
    fn drop(&mut self) {
        self.exporter.abort();
    }
}

async fn export(listener: TcpListener, figure: watch::Receiver<u32>) {
    let mut connections = JoinSet::new();
    while let Ok((stream, _)) = listener.accept().await {
        let figure = figure.clone();
        connections.spawn(async move {
            let answer = service_fn(|_| {
                let text = format!("# TYPE requests gauge\nrequests {}\n", *figure.borrow());
                async { Ok::<_, Infallible>(Response::new(Full::<Bytes>::from(text))) }
            });
            http1::Builder::new()
                .serve_connection(TokioIo::new(stream), answer)
                .await
        });
    }
}

//! A client of the API server whose words leave at once: kube's own waits for the acknowledgement of
//! what it sent before, 40 ms on each new connection.

use http::{Request, Response};
use hyper::body::Incoming;
use hyper_timeout::TimeoutConnector;
use hyper_util::{
    client::legacy::{Client as HttpClient, connect::HttpConnector},
    rt::TokioExecutor,
};
use kube::{
    Config,
    client::{Body, ClientBuilder, ConfigExt},
};
use std::time::Duration;
use tower::{BoxError, ServiceBuilder, util::BoxService};

/// A watch that something in between has forgotten is silent, as one is with nothing to tell.
const KEEP_ALIVE: Duration = Duration::from_secs(15);
const AGAIN: Duration = Duration::from_secs(5);
const TIMES: u32 = 3;

type Service = BoxService<Request<Body>, Response<Incoming>, BoxError>;

/// To be given layers, or built as it is.
pub fn builder(config: Config) -> kube::Result<ClientBuilder<Service>> {
    // It knows no way through a proxy, and says so better than we could.
    if config.proxy_url.is_some() {
        ClientBuilder::try_from(config.clone())?;
    }
    let mut connector = HttpConnector::new();
    connector.enforce_http(false);
    connector.set_nodelay(true);
    connector.set_keepalive(Some(KEEP_ALIVE));
    connector.set_keepalive_interval(Some(AGAIN));
    connector.set_keepalive_retries(Some(TIMES));
    let connector = config.rustls_https_connector_with_connector(connector)?;
    let mut connector = TimeoutConnector::new(connector);
    connector.set_connect_timeout(config.connect_timeout);
    connector.set_read_timeout(config.read_timeout);
    connector.set_write_timeout(config.write_timeout);
    let client: HttpClient<_, Body> = HttpClient::builder(TokioExecutor::new()).build(connector);
    let service = ServiceBuilder::new()
        .layer(config.base_uri_layer())
        .option_layer(config.auth_layer()?)
        .layer(config.extra_headers_layer()?)
        .map_err(BoxError::from)
        .service(client);
    Ok(ClientBuilder::new(
        BoxService::new(service),
        config.default_namespace,
    ))
}

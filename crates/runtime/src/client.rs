//! A client of the API server whose words leave at once: kube's own waits for the acknowledgement of
//! what it sent before, 40 ms on each new connection. And which does not wait for ever.

use http::{Request, Response, Uri};
use http_body_util::{BodyExt, Either, Full};
use hyper::body::{Bytes, Incoming};
use hyper_timeout::TimeoutConnector;
use hyper_util::{
    client::legacy::{
        Client as HttpClient,
        connect::{Connect, HttpConnector},
    },
    rt::TokioExecutor,
};
use kube::{
    Config,
    client::{Body, ClientBuilder, ConfigExt},
};
use std::time::Duration;
use tokio::time::{Instant, error::Elapsed, timeout_at};
use tower::{BoxError, ServiceBuilder, service_fn, util::BoxService};

/// A watch that something in between has forgotten is silent, as one is with nothing to tell.
const KEEP_ALIVE: Duration = Duration::from_secs(15);
const AGAIN: Duration = Duration::from_secs(5);
const TIMES: u32 = 3;

/// For a whole answer, or for the head of one that goes on for as long as it is watched.
const PATIENCE: Duration = Duration::from_secs(30);

type Answer = Response<Either<Full<Bytes>, Incoming>>;
type Service = BoxService<Request<Body>, Answer, BoxError>;

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
        .service(service_fn(move |request| ask(client.clone(), request)));
    Ok(ClientBuilder::new(
        BoxService::new(service),
        config.default_namespace,
    ))
}

async fn ask<C>(client: HttpClient<C, Body>, request: Request<Body>) -> Result<Answer, BoxError>
where
    C: Connect + Clone + Send + Sync + 'static,
{
    let deadline = Instant::now() + PATIENCE;
    let watches = is_watch(request.uri());
    let answer = timeout_at(deadline, client.request(request));
    let (head, body) = answer.await.map_err(silence)??.into_parts();
    let body = if watches {
        Either::Right(body)
    } else {
        let whole = timeout_at(deadline, body.collect());
        Either::Left(Full::new(whole.await.map_err(silence)??.to_bytes()))
    };
    Ok(Response::from_parts(head, body))
}

fn is_watch(uri: &Uri) -> bool {
    let mut query = uri.query().unwrap_or_default().split('&');
    query.any(|pair| pair == "watch=true")
}

fn silence(_: Elapsed) -> BoxError {
    let seconds = PATIENCE.as_secs();
    format!("the API server has not answered for {seconds} s").into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use kube::Client;
    use tokio::{
        io::{AsyncReadExt, AsyncWriteExt},
        net::TcpListener,
        time::sleep,
    };

    const HEAD: &str = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n";
    const REST: &str = "5\r\nhello\r\n0\r\n\r\n";

    /// Of a server that says so much at once, and the rest after twice our patience.
    async fn asked(path: &str, at_once: &'static str) -> kube::Result<Bytes> {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let server = async {
            let (mut stream, _) = listener.accept().await.unwrap();
            stream.read_u8().await.unwrap();
            stream.write_all(at_once.as_bytes()).await.unwrap();
            sleep(PATIENCE * 2).await;
            stream.write_all(REST.as_bytes()).await.unwrap();
            std::future::pending().await
        };
        let mut config = Config::new(format!("http://{address}").parse().unwrap());
        config.connect_timeout = None;
        config.write_timeout = None;
        let client: Client = builder(config).unwrap().build();
        let answer = async {
            let request = Request::get(path).body(Body::empty()).unwrap();
            client
                .send(request)
                .await?
                .into_body()
                .collect_bytes()
                .await
        };
        tokio::select! {
            answer = answer => answer,
            () = server => unreachable!(),
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_silent_api_server_is_not_waited_for() {
        let started = Instant::now();
        let error = asked("/api/v1/pods?limit=500", "").await.unwrap_err();
        assert!(format!("{error:?}").contains("not answered"), "{error:?}");
        assert_eq!(started.elapsed().as_secs(), PATIENCE.as_secs());
    }

    #[tokio::test(start_paused = true)]
    async fn nor_is_one_that_falls_silent() {
        assert!(asked("/api/v1/pods", HEAD).await.is_err());
        assert!(asked("/api/v1/pods?watch=true", "").await.is_err());
    }

    #[tokio::test(start_paused = true)]
    async fn a_watch_may_have_nothing_to_tell() {
        let path = "/api/v1/pods?&watch=true&timeoutSeconds=290";
        assert_eq!(asked(path, HEAD).await.unwrap(), "hello");
    }
}

use crate::http::{self, Answers};
use anyhow::{Context, Result};
use std::{env, sync::Arc};
use tokio::net::TcpStream;
use tokio_rustls::{
    TlsAcceptor,
    rustls::{
        ServerConfig,
        crypto::ring,
        pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject},
    },
};

/// With the certificate and the key of the environment.
pub(crate) fn acceptor() -> Result<TlsAcceptor> {
    let given = |name| env::var(name).with_context(|| format!("TLS needs {name}"));
    let certificate = CertificateDer::from_pem_slice(given("ECHO_CERTIFICATE")?.as_bytes())?;
    let key = PrivateKeyDer::from_pem_slice(given("ECHO_KEY")?.as_bytes())?;
    let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()?
        .with_no_client_auth()
        .with_single_cert(vec![certificate], key)?;
    Ok(TlsAcceptor::from(Arc::new(config)))
}

pub(crate) async fn serve(
    acceptor: TlsAcceptor,
    stream: TcpStream,
    answers: Answers,
) -> Result<()> {
    http::serve_http1(acceptor.accept(stream).await?, answers).await
}

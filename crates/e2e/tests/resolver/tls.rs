use crate::{
    client::{get, http1_on, text},
    sleeping,
};
use anyhow::{Result, ensure};
use elasti_e2e::stage::Whole;
use rcgen::{CertifiedKey, generate_simple_self_signed};
use serde_json::json;
use std::sync::Arc;
use tokio::net::TcpStream;
use tokio_rustls::{
    TlsConnector,
    rustls::{ClientConfig, RootCertStore, crypto::ring, pki_types::ServerName},
};

#[test]
#[ignore = "needs a cluster: make e2e"]
fn tls_goes_through_to_the_target_that_has_the_certificate() -> Result<()> {
    elasti_e2e::test(async |place| {
        let whole = Whole::set(place).await?;
        let CertifiedKey { cert, signing_key } =
            generate_simple_self_signed(["web.shop".to_owned()])?;
        let ports = json!([{"port": 443, "targetPort": 8443}]);
        let make = |container: &mut serde_json::Value| {
            container["args"] = json!(["tls=8443"]);
            container["env"] = json!([
                {"name": "ECHO_CERTIFICATE", "value": cert.pem()},
                {"name": "ECHO_KEY", "value": signing_key.serialize_pem()},
            ]);
        };
        sleeping(&whole.stage, ports, make).await?;
        let address = whole.stage.reach("web", 443).await?;
        let mut roots = RootCertStore::empty();
        roots.add(cert.der().clone())?;
        let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()?
            .with_root_certificates(roots)
            .with_no_client_auth();
        let stream = TlsConnector::from(Arc::new(config))
            .connect(
                ServerName::try_from("web.shop")?,
                TcpStream::connect(address).await?,
            )
            .await?;
        let mut client = http1_on(stream).await?;
        let answer = text(client.send_request(get("/secret")?).await?).await?;
        ensure!(answer == "GET /secret\n", "{answer}");
        Ok(())
    })
}

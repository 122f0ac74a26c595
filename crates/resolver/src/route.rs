//! Which service a connection or a request is for.

use crate::room::{Room, Visit};
use elasti_core::{
    host::{self, ServiceName},
    probe::ProbeRules,
};
use http::{HeaderMap, HeaderName, Uri, header};
use std::{collections::HashMap, sync::Arc};

/// All ways, as they are at one moment.
#[derive(Debug, Default)]
pub struct Table {
    /// By the port on which a connection came.
    pub by_port: HashMap<u16, Arc<Way>>,
    /// By the name that a request gives, with the numbers of the service's ports.
    pub by_name: HashMap<ServiceName, Vec<(u16, Arc<Way>)>>,
}

/// The way to one port of one service.
#[derive(Debug)]
pub struct Way {
    pub room: Arc<Room>,
    /// Of the service's port.
    pub number: u16,
    /// Name of the service's port when this was made, empty if it had none.
    pub port: Arc<str>,
    pub speaks: Speaks,
    pub rules: Arc<ProbeRules>,
}

/// What the port is declared to speak.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Speaks {
    /// Whatever the client speaks.
    #[default]
    Anything,
    Http1,
    Http2,
    /// Nothing that we should look into; the server may speak first.
    Opaque,
}

/// Where names are looked for, and how they end.
#[derive(Clone, Debug)]
pub struct Naming {
    /// Headers that come before Host, such as Envoy's decorator.
    pub headers: Vec<HeaderName>,
    /// Of the cluster.
    pub domain: String,
}

// === impl Table ===

impl Table {
    /// By the first of the headers that names a service which is known here.
    pub fn named(&self, naming: &Naming, uri: &Uri, headers: &HeaderMap) -> Option<Arc<Way>> {
        let values = naming
            .headers
            .iter()
            .filter_map(|name| headers.get(name)?.to_str().ok());
        let authority = uri.authority().map(http::uri::Authority::as_str);
        let host = headers
            .get(header::HOST)
            .and_then(|value| value.to_str().ok());
        values
            .chain(authority)
            .chain(host)
            .find_map(|text| self.find(text, &naming.domain))
    }

    fn find(&self, text: &str, domain: &str) -> Option<Arc<Way>> {
        let ports = self.by_name.get(&host::service(text, domain)?)?;
        let port = host::port(text);
        let by_number = ports.iter().find(|(number, _)| Some(*number) == port);
        by_number
            .or_else(|| ports.first())
            .map(|(_, way)| way.clone())
    }
}

// === impl Way ===

impl Way {
    pub fn visit(&self) -> Visit {
        self.room.visit().at(self.number)
    }
}

// === impl Speaks ===

impl From<&str> for Speaks {
    /// By the appProtocol of a port.
    fn from(protocol: &str) -> Self {
        match protocol.to_ascii_lowercase().as_str() {
            "http" | "ws" | "kubernetes.io/ws" => Self::Http1,
            "kubernetes.io/h2c" | "h2c" | "grpc" => Self::Http2,
            // To some in clear, to others with TLS: the first bytes tell.
            "" | "http2" | "grpc-web" => Self::Anything,
            _ => Self::Opaque,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::room::{House, Limits};
    use http::HeaderValue;
    use std::time::Duration;
    use tokio::sync::mpsc;

    fn table() -> Table {
        let house = House::new(1, mpsc::channel(1).0);
        let limits = Limits {
            patience: Duration::ZERO,
            seats: 1,
        };
        let room = Room::new(&house, "shop", "web", limits);
        let way = |number, port: &str| {
            Arc::new(Way {
                room: room.clone(),
                number,
                port: port.into(),
                speaks: Speaks::Anything,
                rules: Arc::default(),
            })
        };
        let name = ServiceName {
            namespace: "shop".into(),
            name: "web".into(),
        };
        Table {
            by_port: HashMap::new(),
            by_name: HashMap::from([(
                name,
                vec![(80, way(80, "http")), (9090, way(9090, "admin"))],
            )]),
        }
    }

    fn named(headers: &[(&'static str, &'static str)]) -> Option<Arc<str>> {
        let naming = Naming {
            headers: vec![HeaderName::from_static("x-envoy-decorator-operation")],
            domain: "cluster.local".into(),
        };
        let headers = headers
            .iter()
            .map(|(name, value)| {
                (
                    HeaderName::from_static(name),
                    HeaderValue::from_static(value),
                )
            })
            .collect();
        let way = table().named(&naming, &Uri::from_static("/"), &headers)?;
        Some(way.port.clone())
    }

    #[test]
    fn a_service_is_found_by_host_and_port() {
        assert_eq!(named(&[("host", "web.shop")]).as_deref(), Some("http"));
        let with_port = named(&[("host", "web.shop.svc.cluster.local:9090")]);
        assert_eq!(with_port.as_deref(), Some("admin"));
        assert_eq!(named(&[("host", "api.shop")]), None);
    }

    #[test]
    fn a_header_that_names_no_service_of_ours_does_not_hide_the_host() {
        let found = named(&[
            ("x-envoy-decorator-operation", "checkout.example.com:443/*"),
            ("host", "web.shop"),
        ]);
        assert_eq!(found.as_deref(), Some("http"));
        let envoy = named(&[
            (
                "x-envoy-decorator-operation",
                "web.shop.svc.cluster.local:9090/*",
            ),
            ("host", "www.example.com"),
        ]);
        assert_eq!(envoy.as_deref(), Some("admin"));
    }
}

//! What the resolver needs of the objects that it watches, and no more.

use crate::route::Speaks;
use elasti_api::{
    ElastiService, ElastiServiceSpec, ElastiServiceStatus, Mode, ProbeRule, ReadinessCheck,
    Release, RoutedPort, names::PRIVATE_LABEL,
};
use elasti_core::probe::ProbeRules;
use jiff::Timestamp;
use k8s_openapi::api::{
    core::v1::Service,
    discovery::v1::{Endpoint, EndpointSlice},
};
use kube::{ResourceExt, api::DynamicObject};
use serde::Deserialize;
use std::{net::IpAddr, sync::Arc, time::Duration};

/// An ElastiService.
#[derive(Clone, Debug, PartialEq)]
pub struct Declared {
    pub created: Option<Timestamp>,
    pub service: String,
    pub mode: Option<Mode>,
    pub routed: Vec<RoutedPort>,
    pub patience: Option<Duration>,
    pub seats: Option<usize>,
    pub probe_rules: Vec<ProbeRule>,
    pub release: Option<Release>,
    /// When a pod is ready, if somebody else than Kubernetes can ask.
    pub checks: Option<Arc<[ReadinessCheck]>>,
    /// For whoever asks for the directory.
    pub object: Arc<ElastiService>,
}

/// Ports of a service, from its private copy.
#[derive(Clone, Debug, PartialEq)]
pub struct Ports {
    /// The public one.
    pub service: Arc<str>,
    pub ports: Vec<Port>,
    /// Of the private copy.
    pub cluster_ips: Vec<IpAddr>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Port {
    pub name: Arc<str>,
    pub number: u16,
    pub speaks: Speaks,
}

/// What is behind a service, as one slice of its private copy says.
#[derive(Clone, Debug, PartialEq)]
pub struct Ready {
    /// The public one.
    pub service: Arc<str>,
    pub ports: Vec<(Arc<str>, u16)>,
    /// Those that are ready, and those that may be.
    pub pods: Vec<Listed>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Listed {
    pub address: IpAddr,
    pub uid: Arc<str>,
    pub ready: bool,
}

// === impl Declared ===

impl Declared {
    /// `None` if it cannot be understood: its condition tells its owner, and nobody else is harmed.
    pub fn read(mut object: DynamicObject) -> Option<Self> {
        object.metadata.managed_fields = None;
        object.metadata.annotations = None;
        let mut spec = ElastiServiceSpec::deserialize(&object.data["spec"]).ok()?;
        // They may hold credentials, and everybody may ask for the directory.
        spec.triggers.clear();
        let mut status = ElastiServiceStatus::deserialize(&object.data["status"]).ok();
        // So may the headers of probes.
        let readiness = status.as_mut().and_then(|status| status.readiness.take());
        let hold = spec.hold.as_ref();
        let timeout = hold.and_then(|hold| hold.timeout.as_ref());
        let seats = hold.and_then(|hold| hold.max_pending);
        Some(Self {
            created: object
                .metadata
                .creation_timestamp
                .as_ref()
                .map(|time| time.0),
            service: spec.service.clone(),
            mode: status.as_ref().and_then(|status| status.mode),
            routed: status
                .iter()
                .flat_map(|status| status.ports.clone())
                .collect(),
            patience: timeout.and_then(|timeout| timeout.get().ok()),
            seats: seats.and_then(|seats| seats.try_into().ok()),
            probe_rules: spec.probe_response.clone(),
            release: hold.and_then(|hold| hold.release),
            checks: readiness.map(|readiness| readiness.checks.into()),
            object: Arc::new(ElastiService {
                metadata: object.metadata,
                spec,
                status,
            }),
        })
    }

    pub(super) fn compiled(&self) -> Arc<ProbeRules> {
        let (rules, errors) = ProbeRules::compile(&self.probe_rules);
        for error in errors {
            tracing::warn!(elasti_service = self.object.name_any(), %error, "A rule was left out");
        }
        Arc::new(rules)
    }
}

// === impl Ports ===

impl From<Service> for Ports {
    fn from(service: Service) -> Self {
        let label = service.labels().get(PRIVATE_LABEL);
        let public = label.map(String::as_str).unwrap_or_default().into();
        let spec = service.spec.unwrap_or_default();
        let ips = spec.cluster_ips.unwrap_or_default();
        let ports = spec.ports.unwrap_or_default();
        let tcp = ports
            .into_iter()
            .filter(|port| is_tcp(port.protocol.as_deref()));
        let port = |port: k8s_openapi::api::core::v1::ServicePort| {
            Some(Port {
                number: port.port.try_into().ok()?,
                speaks: Speaks::from(port.app_protocol.as_deref().unwrap_or_default()),
                name: port.name.unwrap_or_default().into(),
            })
        };
        Self {
            service: public,
            ports: tcp.filter_map(port).collect(),
            cluster_ips: ips.iter().filter_map(|ip| ip.parse().ok()).collect(),
        }
    }
}

// === impl Ready ===

impl From<EndpointSlice> for Ready {
    fn from(slice: EndpointSlice) -> Self {
        let label = slice.labels().get(PRIVATE_LABEL);
        let ports = slice.ports.iter().flatten();
        let tcp = ports.filter(|port| is_tcp(port.protocol.as_deref()));
        let ports = tcp.filter_map(|port| {
            let name = port.name.clone().unwrap_or_default();
            Some((name.into(), port.port?.try_into().ok()?))
        });
        Self {
            service: label.map(String::as_str).unwrap_or_default().into(),
            ports: ports.collect(),
            pods: slice.endpoints.iter().flat_map(listed).collect(),
        }
    }
}

/// At all of its addresses, unless it is about to end.
fn listed(endpoint: &Endpoint) -> impl Iterator<Item = Listed> {
    let conditions = endpoint.conditions.as_ref();
    let ready = conditions.and_then(|is| is.ready).unwrap_or(true);
    let ends = conditions.and_then(|is| is.terminating).unwrap_or(false);
    let target = endpoint.target_ref.as_ref();
    let uid = target.and_then(|target| target.uid.as_deref());
    let uid: Arc<str> = uid.unwrap_or_default().into();
    let addresses = endpoint.addresses.iter().filter(move |_| ready || !ends);
    addresses.filter_map(move |text| {
        Some(Listed {
            address: text.parse().ok()?,
            uid: uid.clone(),
            ready,
        })
    })
}

fn is_tcp(protocol: Option<&str>) -> bool {
    protocol.is_none_or(|protocol| protocol == "TCP")
}

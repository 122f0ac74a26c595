//! The objects that an ElastiService should have: a private service, and slices that point the
//! public one at the resolvers.

use crate::{
    facts::{MANAGED_BY, MANAGED_BY_LABEL, SERVICE_NAME_LABEL, ServiceFacts, SliceFacts},
    index::{Index, Routes},
    settings::Settings,
};
use elasti_api::{
    ElastiService,
    names::{self, PRIVATE_LABEL},
};
use elasti_core::plan::Absence;
use elasti_runtime::watch::Key;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::Resource;
use serde_json::{Value, json};
use std::{
    collections::{BTreeMap, BTreeSet},
    hash::{DefaultHasher, Hash, Hasher},
    net::{IpAddr, SocketAddr},
    sync::Arc,
};

/// One slice that should be published.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Slice {
    pub(crate) name: String,
    family: Arc<str>,
    addresses: Vec<String>,
    ports: Vec<(Option<String>, Option<i32>)>,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Desired {
    slices: Vec<Slice>,
    service: String,
    /// The ElastiService's.
    uid: Option<String>,
    /// Our slices that should not be there.
    stray: Vec<String>,
    /// Where nobody has seen a resolver accept connections yet.
    pub(crate) unproven: Vec<SocketAddr>,
    /// Why not every family of the service has somebody who holds its traffic.
    pub(crate) absence: Option<Absence>,
    pub(crate) addressing: Addressing,
}

/// A service gets a cluster address, or none, when it is created, and keeps to that.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Addressing {
    #[default]
    Headless,
    Addressed,
    /// It is headless and should not be.
    Anew,
}

/// All resolvers are listed up to this many, so that each is in every slice; beyond, a service has
/// a subset of its own, so that the coming and going of one rewrites a share of the slices.
const HANDFUL: usize = 8;

// === impl Desired ===

impl Desired {
    pub(crate) fn new(
        index: &Index,
        key: &Key,
        object: &ElastiService,
        routes: &Routes,
        settings: &Settings,
    ) -> Self {
        let service = key.beside(&object.spec.service);
        let Some(facts) = index.service(&service) else {
            return Self::default();
        };
        let mut desired = Self {
            service: object.spec.service.clone(),
            uid: object.metadata.uid.clone(),
            addressing: Addressing::new(index, key, object, settings.private_addresses),
            ..Self::default()
        };
        let ports = ports(facts, routes, settings.proxy_port);
        // A number that only this process knows could be forgotten, and name two.
        let status = object.status.as_ref();
        let lasting = status.map(|status| &status.ports) == Some(&routes.ports);
        let resolvers = index.resolvers();
        for family in &facts.families {
            let ready = resolvers.get(&**family);
            let chosen = ready.map_or_else(Vec::new, |ready| subset(&service, ready));
            if chosen.is_empty() {
                desired.absence = desired.absence.or(Some(Absence::OtherFamily));
                continue;
            }
            let mut slice = Slice {
                name: slice_name(&object.spec.service, family),
                family: family.clone(),
                addresses: Vec::new(),
                ports: ports.clone(),
            };
            for address in chosen {
                let unproven = slice.unproven(index, address);
                if slice.is_listed(index, &service, address) || lasting && unproven.is_empty() {
                    slice.addresses.push(address.to_owned());
                } else if lasting {
                    desired.unproven.extend(unproven);
                }
            }
            if slice.addresses.is_empty() {
                desired.absence = Some(Absence::NoneAccepts);
            } else {
                desired.slices.push(slice);
            }
        }
        let ours = index.slices_of(&service).filter(|(_, slice)| slice.ours);
        let is_stray = |name: &str| !desired.slices.iter().any(|slice| slice.name == name);
        let stray = ours.map(|(key, _)| key.name.to_string());
        desired.stray = stray.filter(|name| is_stray(name)).collect();
        desired
    }

    pub(crate) fn stray(&self) -> &[String] {
        &self.stray
    }

    pub(crate) fn slices(&self) -> &[Slice] {
        &self.slices
    }

    pub(crate) fn is_published_as(&self, published: &[(&Key, &SliceFacts)]) -> bool {
        published.len() == self.slices.len()
            && self.slices.iter().all(|slice| {
                published.iter().any(|(key, facts)| {
                    *key.name == *slice.name
                        && slice.is(facts)
                        && facts.owner.as_deref() == self.uid.as_deref()
                })
            })
    }

    pub(crate) fn slice_object(&self, slice: &Slice, owner: &ElastiService) -> Value {
        let endpoints: Vec<Value> = slice
            .addresses
            .iter()
            .map(|address| json!({"addresses": [address], "conditions": {"ready": true, "serving": true, "terminating": false}}))
            .collect();
        let ports: Vec<Value> = slice
            .ports
            .iter()
            .map(|(name, port)| json!({"name": name.clone().unwrap_or_default(), "port": port, "protocol": "TCP"}))
            .collect();
        json!({
            "apiVersion": "discovery.k8s.io/v1",
            "kind": "EndpointSlice",
            "metadata": {
                "name": slice.name,
                "labels": {SERVICE_NAME_LABEL: self.service, MANAGED_BY_LABEL: MANAGED_BY},
                "ownerReferences": owner_reference(owner),
            },
            "addressType": *slice.family,
            "endpoints": endpoints,
            "ports": ports,
        })
    }
}

// === impl Addressing ===

impl Addressing {
    fn new(index: &Index, key: &Key, object: &ElastiService, wanted: bool) -> Self {
        let private = key.beside(&names::private_service(&object.spec.service));
        match index.service(&private).map(|private| private.headless) {
            Some(true) if wanted => Self::Anew,
            Some(true) => Self::Headless,
            Some(false) => Self::Addressed,
            None if wanted => Self::Addressed,
            None => Self::Headless,
        }
    }
}

// === impl Slice ===

impl Slice {
    /// What is published was proven, by whoever published it.
    fn is_listed(&self, index: &Index, service: &Key, address: &str) -> bool {
        let lists = |slice: &SliceFacts| {
            slice.ours
                && slice.ports_as_desired() == self.ports
                && slice.ready.iter().any(|ready| ready == address)
        };
        index.slices_of(service).any(|(_, slice)| lists(slice))
    }

    /// Ports on which nobody has seen a resolver accept connections.
    fn unproven(&self, index: &Index, address: &str) -> Vec<SocketAddr> {
        let Ok(ip) = address.parse::<IpAddr>() else {
            return Vec::new();
        };
        let ports = self
            .ports
            .iter()
            .filter_map(|(_, port)| (*port)?.try_into().ok());
        let distinct: BTreeSet<u16> = ports.collect();
        distinct
            .into_iter()
            .map(|port| SocketAddr::new(ip, port))
            .filter(|address| !index.accepts(*address))
            .collect()
    }

    fn is(&self, facts: &SliceFacts) -> bool {
        let mut ready = facts.ready.clone();
        ready.sort();
        ready == self.addresses
            && facts.ports_as_desired() == self.ports
            && facts.family == self.family
    }
}

fn ports(
    service: &ServiceFacts,
    routes: &Routes,
    proxy_port: u16,
) -> Vec<(Option<String>, Option<i32>)> {
    let number = |port: i32| {
        let routed = routes.ports.iter().find(|routed| routed.port == port);
        routed.map_or(proxy_port.into(), |routed| routed.resolver_port)
    };
    let ports = service.tcp_ports();
    ports
        .map(|port| (port.name.clone(), Some(number(port.port))))
        .collect()
}

/// By rendezvous: each service ranks the resolvers in an order of its own. Sorted by address.
fn subset<'a>(service: &Key, ready: &BTreeSet<&'a str>) -> Vec<&'a str> {
    let rank = |address: &str| {
        let mut hasher = DefaultHasher::new();
        (service, address).hash(&mut hasher);
        hasher.finish()
    };
    let mut chosen: Vec<&str> = ready.iter().copied().collect();
    if chosen.len() > HANDFUL {
        chosen.sort_by_cached_key(|address| rank(address));
        chosen.truncate(HANDFUL);
        chosen.sort_unstable();
    }
    chosen
}

/// KubeElasti's name for the first family, so that a slice that it left is taken over.
pub(crate) fn slice_name(service: &str, family: &str) -> String {
    let name = names::resolver_slice(service);
    if family == "IPv6" {
        format!("{name}-ipv6")
    } else {
        name
    }
}

/// Whether a private service says what the public one does. Annotations are copied and not compared:
/// controllers write theirs on every service.
pub(crate) fn follows(
    private: &ServiceFacts,
    public: &ServiceFacts,
    owner: &ElastiService,
) -> bool {
    &*private.kind == "ClusterIP"
        && private.owner.as_deref() == owner.metadata.uid.as_deref()
        && private.selector == public.selector
        && private.ports == public.ports
        && private.families == public.families
        && private.publish_not_ready == public.publish_not_ready
        && has_labels_of(private, public)
}

fn has_labels_of(private: &ServiceFacts, public: &ServiceFacts) -> bool {
    let wanted = |(name, value)| name == PRIVATE_LABEL || public.labels.get(name) == Some(value);
    public.labels.is_part_of(&private.labels)
        && private.labels.get(PRIVATE_LABEL).is_some()
        && private.labels.iter().all(wanted)
}

pub(crate) fn private_service(
    object: &ElastiService,
    public: &ServiceFacts,
    addressing: Addressing,
) -> Value {
    let mut labels: BTreeMap<&str, &str> = public.labels.iter().collect();
    labels.insert(PRIVATE_LABEL, &object.spec.service);
    let families: Vec<&str> = public.families.iter().map(|family| &**family).collect();
    json!({
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {
            "name": names::private_service(&object.spec.service),
            "labels": labels,
            "annotations": public.annotations,
            "ownerReferences": owner_reference(object),
        },
        "spec": {
            "type": "ClusterIP",
            "selector": public.selector,
            "ports": public.ports,
            "ipFamilies": families,
            "ipFamilyPolicy": public.family_policy.as_deref(),
            "publishNotReadyAddresses": public.publish_not_ready,
            "clusterIP": (addressing == Addressing::Headless).then_some("None"),
        },
    })
}

fn owner_reference(owner: &ElastiService) -> Vec<OwnerReference> {
    owner.controller_owner_ref(&()).into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::api::core::v1::Service;

    /// As the API server gives back what we have applied, with a label of somebody else.
    fn stored(public: &ServiceFacts, owner: &ElastiService) -> ServiceFacts {
        let mut object = private_service(owner, public, Addressing::Headless);
        let ours: serde_json::Map<String, Value> = object["metadata"]["labels"]
            .as_object()
            .unwrap()
            .keys()
            .map(|name| (format!("f:{name}"), json!({})))
            .collect();
        object["metadata"]["labels"]["team"] = json!("blue");
        object["metadata"]["managedFields"] = json!([
            {"manager": "elasti-operator", "fieldsV1": {"f:metadata": {"f:labels": ours}}},
            {"manager": "kubectl-label", "fieldsV1": {"f:metadata": {"f:labels": {"f:team": {}}}}},
        ]);
        serde_json::from_value::<Service>(object).unwrap().into()
    }

    #[test]
    fn a_private_service_has_the_labels_of_the_public_one_and_keeps_those_of_others() {
        let owner: ElastiService = serde_json::from_value(json!({
            "metadata": {"name": "web", "namespace": "shop", "uid": "1"},
            "spec": {
                "service": "web",
                "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},
            },
        }))
        .unwrap();
        let public = |labels: Value| -> ServiceFacts {
            let service = json!({"metadata": {"name": "web", "labels": labels}});
            serde_json::from_value::<Service>(service).unwrap().into()
        };
        let before = public(json!({"app": "web", "tier": "front"}));
        let private = stored(&before, &owner);
        assert!(follows(&private, &before, &owner));
        for other in [json!({"app": "web"}), json!({"app": "web", "tier": "back"})] {
            let after = public(other.clone());
            assert!(!follows(&private, &after, &owner), "{other}");
        }
    }

    #[test]
    fn few_resolvers_are_all_listed() {
        let ready = BTreeSet::from(["10.0.0.2", "10.0.0.1"]);
        let chosen = subset(&Key::new("shop", "web"), &ready);
        assert_eq!(chosen, ["10.0.0.1", "10.0.0.2"]);
    }

    #[test]
    fn one_more_resolver_changes_a_share_of_many_services() {
        let names: Vec<String> = (1..=41).map(|n| format!("10.0.0.{n}")).collect();
        let after: BTreeSet<&str> = names.iter().map(String::as_str).collect();
        let mut before = after.clone();
        before.remove("10.0.0.7");
        let services = (0..1_000).map(|n| Key::new("shop", &format!("web-{n}")));
        let changed = services
            .filter(|service| subset(service, &before) != subset(service, &after))
            .count();
        let share = 1_000 * HANDFUL / 41;
        assert!(
            changed.abs_diff(share) < share / 2,
            "{changed} of 1000 instead of about {share}"
        );
    }
}

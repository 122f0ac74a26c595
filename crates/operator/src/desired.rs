//! The objects that an ElastiService should have: a private service, and slices that point the
//! public one at the resolvers.

use crate::{
    facts::{MANAGED_BY, MANAGED_BY_LABEL, SERVICE_NAME_LABEL, ServiceFacts, SliceFacts},
    index::Index,
};
use elasti_api::{ElastiService, names};
use elasti_runtime::watch::Key;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::Resource;
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// Marks private services, so that their slices can be watched alone.
const PRIVATE_LABEL: &str = "elasti.truefoundry.com/private-service-of";

/// One slice that should be published.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Slice {
    pub(crate) name: String,
    family: String,
    addresses: Vec<String>,
    ports: Vec<(Option<String>, Option<i32>)>,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Desired {
    slices: Vec<Slice>,
    service: String,
}

// === impl Desired ===

impl Desired {
    pub(crate) fn new(index: &Index, key: &Key, object: &ElastiService, proxy_port: i32) -> Self {
        let service = &object.spec.service;
        let Some(facts) = index.service(&key.beside(service)) else {
            return Self::default();
        };
        let ports: Vec<_> = facts
            .ports
            .iter()
            .filter(|port| port.protocol.as_deref() == Some("TCP"))
            .map(|port| (port.name.clone(), Some(proxy_port)))
            .collect();
        let slices = index
            .resolvers()
            .into_iter()
            .filter(|(family, addresses)| {
                !addresses.is_empty() && facts.families.iter().any(|f| f == family)
            })
            .map(|(family, addresses)| Slice {
                name: slice_name(service, family),
                family: family.into(),
                addresses: addresses.into_iter().map(str::to_owned).collect(),
                ports: ports.clone(),
            })
            .collect();
        Self {
            slices,
            service: service.clone(),
        }
    }

    pub(crate) fn slices(&self) -> &[Slice] {
        &self.slices
    }

    pub(crate) fn is_published_as(&self, published: &[(&Key, &SliceFacts)]) -> bool {
        published.len() == self.slices.len()
            && self.slices.iter().all(|slice| {
                published
                    .iter()
                    .any(|(key, facts)| *key.name == *slice.name && slice.is(facts))
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
            "addressType": slice.family,
            "endpoints": endpoints,
            "ports": ports,
        })
    }
}

// === impl Slice ===

impl Slice {
    fn is(&self, facts: &SliceFacts) -> bool {
        let mut ready = facts.ready.clone();
        ready.sort();
        let mut ports = facts.ports.clone();
        ports
            .iter_mut()
            .for_each(|(name, _)| *name = name.take().filter(|name| !name.is_empty()));
        ready == self.addresses && ports == self.ports && facts.family == self.family
    }
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

/// Whether a private service says what the public one does.
pub(crate) fn follows(private: &ServiceFacts, public: &ServiceFacts) -> bool {
    private.kind == "ClusterIP"
        && private.selector == public.selector
        && private.ports == public.ports
        && private.families == public.families
        && private.publish_not_ready == public.publish_not_ready
        && contains(&private.labels, &public.labels)
        && private.labels.contains_key(PRIVATE_LABEL)
        && contains(&private.annotations, &public.annotations)
}

fn contains(all: &BTreeMap<String, String>, some: &BTreeMap<String, String>) -> bool {
    some.iter().all(|(key, value)| all.get(key) == Some(value))
}

pub(crate) fn private_service(object: &ElastiService, public: &ServiceFacts) -> Value {
    let mut labels = public.labels.clone();
    labels.insert(PRIVATE_LABEL.into(), object.spec.service.clone());
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
            "ipFamilies": public.families,
            "ipFamilyPolicy": public.family_policy,
            "publishNotReadyAddresses": public.publish_not_ready,
        },
    })
}

fn owner_reference(owner: &ElastiService) -> Vec<OwnerReference> {
    owner.controller_owner_ref(&()).into_iter().collect()
}

//! What decisions need of the objects around an ElastiService, and no more.

use crate::{apply::FIELD_MANAGER, few::Texts, readiness::Unaskable};
use elasti_api::{
    ElastiService, ElastiServiceSpec, ElastiServiceStatus, FINALIZER, Readiness, names,
};
use elasti_core::plan::Autoscaler;
use elasti_runtime::pool::{Pool, shared};
use jiff::Timestamp;
use k8s_openapi::{
    api::{
        core::v1::{Service, ServicePort},
        discovery::v1::{Endpoint, EndpointPort, EndpointSlice},
    },
    apimachinery::pkg::{
        apis::meta::v1::{Condition, ManagedFieldsEntry, ObjectMeta, Time},
        util::intstr::IntOrString,
    },
};
use kube::{ResourceExt, api::DynamicObject};
use parking_lot::Mutex;
use serde::Deserialize;
use serde_json::Value;
use std::{
    mem,
    ops::Deref,
    sync::{Arc, LazyLock},
};

/// An ElastiService, or why it cannot be understood.
#[derive(Clone, Debug)]
pub(crate) enum Declared {
    Understood(Understood),
    Malformed(Box<Malformed>),
}

/// Its conditions are long, and those of thousands say the same: they are kept apart.
#[derive(Clone, Debug)]
pub(crate) struct Understood {
    object: Arc<ElastiService>,
    said: Arc<[(Arc<Said>, Timestamp)]>,
}

/// A condition without its time.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Said {
    kind: String,
    status: String,
    reason: String,
    message: String,
    generation: Option<i64>,
}

static SAID: LazyLock<Mutex<Pool<Said>>> = LazyLock::new(Mutex::default);

#[derive(Clone, Debug)]
pub(crate) struct Malformed {
    pub(crate) error: Arc<str>,
    /// Its finalizers without ours, and its version, if it is to be deleted and ours hinders that.
    pub(crate) leaving: Option<(Vec<String>, Option<String>)>,
    /// Whether its status says so already.
    pub(crate) reported: bool,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ServiceFacts {
    pub(crate) kind: Arc<str>,
    /// Of one that belongs to an ElastiService, those that we wrote.
    pub(crate) labels: Texts,
    pub(crate) annotations: Texts,
    pub(crate) selector: Texts,
    pub(crate) ports: Vec<ServicePort>,
    pub(crate) families: Box<[Arc<str>]>,
    pub(crate) family_policy: Option<Arc<str>>,
    pub(crate) publish_not_ready: bool,
    pub(crate) headless: bool,
    /// Which of its managed fields are those with which we created it.
    pub(crate) created: Option<u8>,
    /// The ElastiService that it belongs to.
    pub(crate) owner: Option<Box<str>>,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct SliceFacts {
    pub(crate) service: Arc<str>,
    /// One of ours, which points at resolvers.
    pub(crate) ours: bool,
    /// The ElastiService that it belongs to.
    pub(crate) owner: Option<Box<str>>,
    pub(crate) family: Arc<str>,
    pub(crate) ready: Vec<String>,
    /// Whether it lists pods that were told to end and still serve.
    pub(crate) ending: bool,
    pub(crate) ports: Vec<(Option<String>, Option<i32>)>,
    /// Since when it says this, as far as we know.
    pub(crate) since: Option<Timestamp>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TargetFacts {
    pub(crate) uid: Option<Box<str>>,
    /// Unknown where nobody may read which field counts them.
    pub(crate) replicas: Option<i32>,
    /// Ready replicas, where its status tells.
    pub(crate) ready: Option<i32>,
    /// Whether its status is of an earlier generation.
    pub(crate) lagging: bool,
    /// When its pods are ready.
    pub(crate) readiness: Result<Arc<Readiness>, Unaskable>,
}

/// A KEDA ScaledObject.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ScaledObjectFacts {
    /// Whether it has annotations at all.
    pub(crate) annotated: bool,
    pub(crate) paused: Option<Arc<str>>,
    pub(crate) paused_replicas: Option<Arc<str>>,
}

/// KEDA takes its orders from annotations. What KubeElasti writes, and so do we, is `true` and `0`.
pub(crate) const PAUSED: &str = "autoscaling.keda.sh/paused";
pub(crate) const PAUSED_REPLICAS: &str = "autoscaling.keda.sh/paused-replicas";

pub(crate) const MANAGED_BY: &str = "elasti-operator";
pub(crate) const MANAGED_BY_LABEL: &str = "endpointslice.kubernetes.io/managed-by";
pub(crate) const SERVICE_NAME_LABEL: &str = "kubernetes.io/service-name";
/// Where users' tools keep a second copy of the whole object.
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

// === impl Declared ===

impl From<DynamicObject> for Declared {
    fn from(mut object: DynamicObject) -> Self {
        object.metadata.managed_fields = None;
        object.metadata.annotations = None;
        object.metadata.labels = None;
        match ElastiServiceSpec::deserialize(&object.data["spec"]) {
            Ok(spec) => Self::Understood(Understood::from(ElastiService {
                // What another version wrote there and we do not understand counts as nothing.
                status: ElastiServiceStatus::deserialize(&object.data["status"]).ok(),
                metadata: object.metadata,
                spec,
            })),
            Err(error) => {
                let malformed = Malformed::new(&object, &format!("spec: {error}"));
                Self::Malformed(malformed.into())
            }
        }
    }
}

// === impl Understood ===

impl From<ElastiService> for Understood {
    fn from(mut object: ElastiService) -> Self {
        let status = object.status.as_mut();
        let conditions = status.map(|status| mem::take(&mut status.conditions));
        Self {
            said: conditions.into_iter().flatten().map(said).collect(),
            object: Arc::new(object),
        }
    }
}

/// Without its conditions.
impl Deref for Understood {
    type Target = ElastiService;

    fn deref(&self) -> &ElastiService {
        &self.object
    }
}

impl Understood {
    /// With its conditions.
    pub(crate) fn whole(&self) -> Arc<ElastiService> {
        let mut object = self.object.clone();
        if let Some(status) = &mut Arc::make_mut(&mut object).status {
            status.conditions = self.said.iter().map(condition).collect();
        }
        object
    }
}

fn said(condition: Condition) -> (Arc<Said>, Timestamp) {
    let said = Said {
        kind: condition.type_,
        status: condition.status,
        reason: condition.reason,
        message: condition.message,
        generation: condition.observed_generation,
    };
    (SAID.lock().share(said), condition.last_transition_time.0)
}

fn condition((said, since): &(Arc<Said>, Timestamp)) -> Condition {
    Condition {
        type_: said.kind.clone(),
        status: said.status.clone(),
        reason: said.reason.clone(),
        message: said.message.clone(),
        last_transition_time: Time(*since),
        observed_generation: said.generation,
    }
}

// === impl Malformed ===

impl Malformed {
    fn new(object: &DynamicObject, error: &str) -> Self {
        let metadata = &object.metadata;
        let conditions = object.data["status"]["conditions"].as_array();
        let finalizers = metadata.finalizers.clone().unwrap_or_default();
        let others = finalizers.iter().filter(|name| *name != FINALIZER);
        let others: Vec<String> = others.cloned().collect();
        let leaving = metadata.deletion_timestamp.is_some() && others.len() < finalizers.len();
        Self {
            error: error.into(),
            leaving: leaving.then(|| (others, metadata.resource_version.clone())),
            reported: conditions
                .into_iter()
                .flatten()
                .any(|condition| condition["message"] == error),
        }
    }
}

fn owner(metadata: &ObjectMeta) -> Option<Box<str>> {
    let mut owners = metadata.owner_references.iter().flatten();
    let ours = owners.find(|owner| owner.kind == "ElastiService")?;
    Some(ours.uid.as_str().into())
}

// === impl ServiceFacts ===

impl From<Service> for ServiceFacts {
    fn from(mut service: Service) -> Self {
        service.annotations_mut().remove(LAST_APPLIED);
        let owner = owner(&service.metadata);
        let created = creation(&service.metadata);
        if owner.is_some() {
            keep_our_labels(&mut service.metadata);
        }
        let spec = service.spec.unwrap_or_default();
        Self {
            kind: shared(spec.type_.as_deref().unwrap_or("ClusterIP")),
            labels: service.metadata.labels.into(),
            annotations: service.metadata.annotations.into(),
            selector: spec.selector.into(),
            ports: spec
                .ports
                .unwrap_or_default()
                .into_iter()
                .map(without_node_port)
                .collect(),
            families: spec
                .ip_families
                .iter()
                .flatten()
                .map(|family| shared(family))
                .collect(),
            family_policy: spec.ip_family_policy.as_deref().map(shared),
            publish_not_ready: spec.publish_not_ready_addresses.unwrap_or_default(),
            headless: spec.cluster_ip.as_deref() == Some("None"),
            created,
            owner,
        }
    }
}

fn creation(metadata: &ObjectMeta) -> Option<u8> {
    let is_creation = |fields: &ManagedFieldsEntry| {
        fields.manager.as_deref() == Some(FIELD_MANAGER)
            && fields.operation.as_deref() == Some("Update")
    };
    let at = metadata
        .managed_fields
        .as_ref()?
        .iter()
        .position(is_creation)?;
    at.try_into().ok()
}

/// Those that we wrote: what others add is theirs, and what we no longer want we have to know.
fn keep_our_labels(metadata: &mut ObjectMeta) {
    let managed = metadata.managed_fields.iter().flatten();
    let ours = managed
        .filter(|fields| fields.manager.as_deref() == Some(FIELD_MANAGER))
        .filter_map(|fields| fields.fields_v1.as_ref());
    let ours: Vec<&Value> = ours
        .map(|fields| &fields.0["f:metadata"]["f:labels"])
        .collect();
    if let Some(labels) = &mut metadata.labels {
        labels.retain(|name, _| ours.iter().any(|ours| !ours[format!("f:{name}")].is_null()));
    }
}

impl ServiceFacts {
    pub(crate) fn tcp_ports(&self) -> impl Iterator<Item = &ServicePort> {
        let is_tcp = |port: &&ServicePort| port.protocol.as_deref() == Some("TCP");
        self.ports.iter().filter(is_tcp)
    }
}

/// As the API server writes it out: a target port that is left out is the port itself.
fn without_node_port(port: ServicePort) -> ServicePort {
    ServicePort {
        node_port: None,
        target_port: Some(port.target_port.unwrap_or(IntOrString::Int(port.port))),
        protocol: Some(port.protocol.unwrap_or_else(|| "TCP".into())),
        ..port
    }
}

// === impl SliceFacts ===

impl From<EndpointSlice> for SliceFacts {
    fn from(slice: EndpointSlice) -> Self {
        let label = |name: &str| slice.labels().get(name).map(String::as_str);
        let is_ready = |ready: Option<bool>| ready.unwrap_or(true);
        let ending = slice.endpoints.iter().any(is_ending);
        Self {
            service: shared(label(SERVICE_NAME_LABEL).unwrap_or_default()),
            ours: label(MANAGED_BY_LABEL) == Some(MANAGED_BY) || is_left_by_kubeelasti(&slice),
            since: slice
                .metadata
                .creation_timestamp
                .as_ref()
                .map(|time| time.0),
            owner: owner(&slice.metadata),
            family: shared(&slice.address_type),
            ending,
            ready: slice
                .endpoints
                .into_iter()
                .filter(|endpoint| is_ready(endpoint.conditions.as_ref().and_then(|c| c.ready)))
                .flat_map(|endpoint| endpoint.addresses)
                .collect(),
            ports: slice
                .ports
                .unwrap_or_default()
                .into_iter()
                .map(|port: EndpointPort| (port.name, port.port))
                .collect(),
        }
    }
}

fn is_ending(endpoint: &Endpoint) -> bool {
    let conditions = endpoint.conditions.as_ref();
    conditions.is_some_and(|is| is.terminating == Some(true) && is.serving != Some(false))
}

/// It names its slices as we do, and labels them as nobody's.
fn is_left_by_kubeelasti(slice: &EndpointSlice) -> bool {
    let name = slice.metadata.name.as_deref().unwrap_or_default();
    let service = slice.labels().get(SERVICE_NAME_LABEL);
    name.starts_with("elasti-")
        && service.is_some_and(|service| name == names::resolver_slice(service))
}

impl SliceFacts {
    /// A port without a name is read back with an empty one.
    pub(crate) fn ports_as_desired(&self) -> Vec<(Option<String>, Option<i32>)> {
        let named = |name: &Option<String>| name.clone().filter(|name| !name.is_empty());
        let ports = self.ports.iter();
        ports.map(|(name, port)| (named(name), *port)).collect()
    }
}

// === impl ScaledObjectFacts ===

impl From<DynamicObject> for ScaledObjectFacts {
    fn from(object: DynamicObject) -> Self {
        let annotation = |name: &str| object.annotations().get(name).map(|text| shared(text));
        Self {
            annotated: object.metadata.annotations.is_some(),
            paused: annotation(PAUSED),
            paused_replicas: annotation(PAUSED_REPLICAS),
        }
    }
}

impl ScaledObjectFacts {
    /// As KEDA reads them: a number comes first, and whatever is not plainly false is true.
    pub(crate) fn autoscaler(&self) -> Autoscaler {
        match (self.paused.as_deref(), self.paused_replicas.as_deref()) {
            (Some("true"), Some("0")) => Autoscaler::Paused,
            (_, Some(_)) => Autoscaler::Pinning,
            (None | Some("0" | "f" | "F" | "false" | "False" | "FALSE"), None) => {
                Autoscaler::Running
            }
            (Some(_), None) => Autoscaler::Resting,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_pod_ends_for_as_long_as_data_planes_may_lead_to_it() {
        let lists = |conditions: Value| {
            let slice = json!({
                "addressType": "IPv4",
                "endpoints": [{"addresses": ["10.0.0.1"], "conditions": conditions}],
            });
            SliceFacts::from(serde_json::from_value::<EndpointSlice>(slice).unwrap()).ending
        };
        assert!(lists(
            json!({"ready": false, "serving": true, "terminating": true})
        ));
        assert!(lists(json!({"ready": false, "terminating": true})));
        assert!(!lists(
            json!({"ready": false, "serving": false, "terminating": true})
        ));
        assert!(!lists(
            json!({"ready": true, "serving": true, "terminating": false})
        ));
        assert!(!lists(json!({})));
    }

    #[test]
    fn what_we_created_is_told_from_what_we_applied_and_what_others_wrote() {
        let by =
            |manager: &str, operation: &str| json!({"manager": manager, "operation": operation});
        let service = |managed: Value| -> ServiceFacts {
            let service = json!({"metadata": {"managedFields": managed}});
            serde_json::from_value::<Service>(service).unwrap().into()
        };
        let (label, ours) = (by("kubectl-label", "Update"), "elasti-operator");
        let created = service(json!([label, by(ours, "Update")]));
        assert_eq!(created.created, Some(1), "where it says so");
        let applied = service(json!([by(ours, "Apply"), label]));
        assert_eq!(applied.created, None);
    }
}

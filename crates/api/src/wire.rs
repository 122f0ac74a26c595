//! What resolver and operator say to each other, in KubeElasti's words.

use crate::{ElastiServiceSpec, ElastiServiceStatus};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// `POST` here tells the operator that requests wait for a service.
pub const INCOMING_REQUEST_PATH: &str = "/informer/incoming-request";
/// `GET` here answers with the [`Directory`].
pub const DIRECTORY_PATH: &str = "/crd-cache";

/// A knock: requests wait for this service.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct IncomingRequest {
    #[serde(default)]
    pub count: u32,
    pub svc: String,
    pub namespace: String,
}

/// The operator's answer to a knock.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Received {
    pub message: String,
}

/// Every service with an ElastiService, by `namespace/service`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Directory {
    pub services: BTreeMap<String, DirectoryEntry>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DirectoryEntry {
    pub name: String,
    pub spec: ElastiServiceSpec,
    #[serde(default)]
    pub status: ElastiServiceStatus,
}

// === impl Received ===

impl Default for Received {
    fn default() -> Self {
        Self {
            message: "Request received successfully!".into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn knock_and_answer_have_kubeelastis_shape() {
        let knock = IncomingRequest {
            count: 1,
            svc: "web".into(),
            namespace: "shop".into(),
        };
        assert_eq!(
            serde_json::to_value(&knock).unwrap(),
            json!({"count": 1, "svc": "web", "namespace": "shop"})
        );
        assert_eq!(
            serde_json::to_value(Received::default()).unwrap(),
            json!({"message": "Request received successfully!"})
        );
    }
}

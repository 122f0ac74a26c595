//! Answers given in a sleeping target's name. The matching itself is a pure decision elsewhere;
//! these are the rules as users write them.

use kube::KubeSchema;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, de};
use std::borrow::Cow;

/// One kind of request and its answer. All parts that are given must match.
#[derive(KubeSchema, Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ProbeRule {
    /// Path of the request. Left out: every path.
    #[serde(default)]
    pub path: PathMatch,

    /// Headers that the request must carry.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16))]
    pub headers: Vec<HeaderMatch>,

    /// Query parameters that the request must carry.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16))]
    pub query_params: Vec<QueryParamMatch>,

    /// Method of the request, such as `GET`, in any case. Left out: every method.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 32))]
    pub method: Option<String>,

    /// The answer.
    pub response: ProbeAnswer,
}

#[derive(KubeSchema, Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PathMatch {
    /// `Exact`; `PathPrefix`, by whole segments; or `RegularExpression`, found anywhere in the path.
    #[serde(rename = "type", default)]
    pub kind: PathMatchKind,

    /// What to compare with.
    #[serde(default = "default_path")]
    #[schemars(length(max = 1024))]
    pub value: String,
}

#[derive(JsonSchema, Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum PathMatchKind {
    Exact,
    #[default]
    PathPrefix,
    RegularExpression,
}

#[derive(KubeSchema, Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HeaderMatch {
    /// Name of the header, in any case.
    #[schemars(length(min = 1, max = 256))]
    pub name: String,

    /// `Exact`, or `RegularExpression`, found anywhere in the value.
    #[serde(rename = "type", default)]
    pub kind: MatchKind,

    /// What one of the header's values must match.
    #[schemars(length(max = 4096))]
    pub value: String,
}

#[derive(KubeSchema, Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct QueryParamMatch {
    /// Name of the parameter.
    #[schemars(length(min = 1, max = 256))]
    pub name: String,

    /// `Exact`, or `RegularExpression`, found anywhere in the value.
    #[serde(rename = "type", default)]
    pub kind: MatchKind,

    /// What the parameter's value must match.
    #[schemars(length(max = 1024))]
    pub value: String,
}

#[derive(JsonSchema, Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum MatchKind {
    #[default]
    Exact,
    RegularExpression,
}

#[derive(KubeSchema, Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProbeAnswer {
    /// Status code of the answer.
    pub status: ProbeStatus,

    /// Body of the answer. One that is JSON is sent as `application/json`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 65_536))]
    pub body: Option<String>,
}

/// A status code that a probe answer may carry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct ProbeStatus(u16);

// === impl PathMatch ===

impl Default for PathMatch {
    fn default() -> Self {
        Self {
            kind: PathMatchKind::default(),
            value: default_path(),
        }
    }
}

fn default_path() -> String {
    "/".into()
}

// === impl ProbeStatus ===

impl ProbeStatus {
    pub const ALLOWED: [u16; 10] = [200, 204, 400, 401, 403, 404, 500, 502, 503, 504];

    pub fn get(self) -> u16 {
        self.0
    }
}

impl<'de> Deserialize<'de> for ProbeStatus {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let status = u16::deserialize(deserializer)?;
        if !Self::ALLOWED.contains(&status) {
            return Err(de::Error::custom(format!(
                "response.status {status} is not one of {:?}",
                Self::ALLOWED
            )));
        }
        Ok(Self(status))
    }
}

impl JsonSchema for ProbeStatus {
    fn schema_name() -> Cow<'static, str> {
        "ProbeStatus".into()
    }

    fn inline_schema() -> bool {
        true
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({"type": "integer", "enum": Self::ALLOWED})
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn an_answer_alone_matches_every_path() {
        let rule: ProbeRule = serde_json::from_value(json!({"response": {"status": 200}})).unwrap();
        assert_eq!(rule.path.kind, PathMatchKind::PathPrefix);
        assert_eq!(rule.path.value, "/");
        assert_eq!(rule.response.status.get(), 200);
    }

    #[test]
    fn a_status_out_of_the_list_is_named_with_the_list() {
        let error = serde_json::from_value::<ProbeAnswer>(json!({"status": 302})).unwrap_err();
        assert!(
            error.to_string().contains("302") && error.to_string().contains("204"),
            "{error}"
        );
    }
}

use kube::KubeSchema;
use serde::{Deserialize, Serialize};

/// The workload that is scaled: anything with a `/scale` subresource.
#[derive(KubeSchema, Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ScaleTargetRef {
    /// Group and version of the target's kind, such as `apps/v1` or `argoproj.io/v1alpha1`.
    #[schemars(length(max = 253))]
    #[x_kube(validation = Rule::new(r"self.matches('^([a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?v[0-9][a-z0-9]*$')")
        .message("must be a group and version, such as 'apps/v1'"))]
    pub api_version: String,

    /// Kind of the target, such as `Deployment`, `StatefulSet`, `Rollout`, or any other kind with a
    /// `/scale` subresource. The plurals `deployments` and `rollouts` are accepted too.
    #[schemars(length(max = 63))]
    #[x_kube(validation = Rule::new("self.matches('^[A-Z][A-Za-z0-9]*$') || self in ['deployments', 'rollouts']")
        .message("must be a kind with a /scale subresource, such as 'Deployment', 'StatefulSet' or 'Rollout'"))]
    pub kind: String,

    /// Name of the target, in the same namespace.
    #[schemars(length(max = 253))]
    #[x_kube(validation = Rule::new("self.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*$')")
        .message("must be the name of an object in this namespace, such as 'my-deployment'"))]
    pub name: String,
}

// === impl ScaleTargetRef ===

impl ScaleTargetRef {
    /// The kind as the API server spells it: KubeElasti's plurals mean the kinds they count.
    pub fn kind(&self) -> &str {
        match self.kind.as_str() {
            "deployments" => "Deployment",
            "rollouts" => "Rollout",
            kind => kind,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn target(api_version: &str, kind: &str) -> ScaleTargetRef {
        ScaleTargetRef {
            api_version: api_version.into(),
            kind: kind.into(),
            name: "web".into(),
        }
    }

    #[test]
    fn legacy_plurals_mean_their_kinds() {
        assert_eq!(target("apps/v1", "deployments").kind(), "Deployment");
        assert_eq!(target("argoproj.io/v1alpha1", "rollouts").kind(), "Rollout");
        assert_eq!(target("apps/v1", "StatefulSet").kind(), "StatefulSet");
    }
}

//! The operator on a real cluster, with everything that it needs around it. Pods stand in for
//! resolvers: what matters here is who is listed where, and when.

mod gate;
mod meter;
mod objects;
mod operator;
mod said;
mod target;
mod until;
mod whole;
mod witness;

pub use self::{
    gate::{Gate, Rule},
    meter::Meter,
    objects::{ROUTED_PORTS, courteous, scaled_object, service, workload},
    operator::{Operator, Setting, free_port, metric},
    target::{Target, gated},
    whole::{Cast, Whole},
};

use crate::{Place, built, establish};
use anyhow::{Context, Result, ensure};
use elasti_api::{ElastiService, ElastiServiceStatus, Mode, Phase};
use k8s_openapi::{
    api::{apps::v1::Deployment, discovery::v1::EndpointSlice},
    apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
};
use kube::{
    Api, Resource, ResourceExt,
    api::{DeleteParams, ListParams, Patch, PatchParams},
    core::NamespaceResourceScope,
};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use std::{fmt::Debug, net::SocketAddr, time::Duration};

const CRD: &str = include_str!("../../../config/crd/elastiservices.yaml");

/// How long anything may take before a test gives up on it.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// A namespace with the API and stand-ins for resolvers, ready for an operator.
pub struct Stage<'a> {
    pub place: &'a Place,
    /// What workloads run.
    pub image: String,
}

/// An object that lives in a namespace and whose type is known here.
pub trait Known:
    Resource<DynamicType = (), Scope = NamespaceResourceScope>
    + Clone
    + Debug
    + DeserializeOwned
    + Send
    + 'static
{
}

impl<K> Known for K where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope>
        + Clone
        + Debug
        + DeserializeOwned
        + Send
        + 'static
{
}

// === impl Stage ===

impl<'a> Stage<'a> {
    /// With a resolver that is ready: an operator that sees none for 10 s wakes whatever sleeps.
    pub async fn set(place: &'a Place) -> Result<Self> {
        let stage = Self::empty(place).await?;
        stage.resolvers(1).await?;
        stage.has_ready("elasti-resolver-service", 1).await?;
        Ok(stage)
    }

    /// Without resolvers.
    pub async fn empty(place: &'a Place) -> Result<Self> {
        let image = place.echo_image(&built("elasti-echo")?)?;
        let stage = Self { place, image };
        stage.install(CRD).await?;
        Ok(stage)
    }

    /// The same in another namespace, without resolvers there.
    pub fn at<'b>(&self, place: &'b Place) -> Stage<'b> {
        Stage {
            place,
            image: self.image.clone(),
        }
    }

    /// So many stand-ins, which need not be ready yet.
    pub async fn resolvers(&self, replicas: i32) -> Result<()> {
        for object in objects::resolvers(&self.image, replicas) {
            self.place.put(object).await?;
        }
        Ok(())
    }

    /// A kind for all tests: applied by each that needs it, and left there.
    pub async fn install(&self, crd: &str) -> Result<()> {
        let crd: CustomResourceDefinition = serde_saphyr::from_str(crd)?;
        establish(self.place.cluster, &self.place.client, &crd).await
    }

    /// With the usual settings, and ready.
    pub async fn operator(&self) -> Result<Operator> {
        self.operator_with(Setting::default()).await
    }

    pub async fn operator_with(&self, setting: Setting) -> Result<Operator> {
        let mut operator = Operator::start(self.place, setting)?;
        operator.ready().await?;
        Ok(operator)
    }

    /// `web`, a workload behind a service of the same name.
    pub async fn deploy(&self, kind: &str, replicas: i32) -> Result<()> {
        self.deploy_as("web", kind, replicas).await
    }

    pub async fn deploy_as(&self, name: &str, kind: &str, replicas: i32) -> Result<()> {
        self.serve(name, workload(name, kind, replicas, &self.image))
            .await
    }

    /// A workload of this name behind a service of the same name.
    pub async fn serve(&self, name: &str, workload: Value) -> Result<()> {
        self.place.put(workload).await?;
        let ports = json!([{"port": 80, "targetPort": 8080}]);
        self.place.put(service(name, name, &ports)).await?;
        Ok(())
    }

    /// `web`, asleep, with traffic going to resolvers.
    pub async fn sleeping(&self) -> Result<()> {
        self.deploy("Deployment", 0).await?;
        self.declare(json!({})).await?;
        self.reaches(Phase::Asleep, Mode::Proxy).await
    }

    /// A workload of this name, asleep, and where clients reach it.
    pub async fn asleep_as(&self, name: &str, workload: Value, spec: Value) -> Result<SocketAddr> {
        self.serve(name, workload).await?;
        self.declare_as(name, spec).await?;
        self.reaches_as(name, Phase::Asleep, Mode::Proxy).await?;
        self.reach(name, 80).await
    }

    /// An ElastiService for `web`, with these parts of its spec set otherwise than usual.
    pub async fn declare(&self, spec: Value) -> Result<()> {
        self.declare_as("web", spec).await
    }

    pub async fn declare_as(&self, name: &str, spec: Value) -> Result<()> {
        self.place.put(objects::elasti_service(name, spec)).await?;
        Ok(())
    }

    pub async fn amend(&self, name: &str, spec: Value) -> Result<()> {
        self.amend_object::<ElastiService>(name, json!({"spec": spec}))
            .await
    }

    pub async fn amend_object<K: Known>(&self, name: &str, patch: Value) -> Result<()> {
        self.api::<K>()
            .patch(name, &PatchParams::default(), &Patch::Merge(patch))
            .await?;
        Ok(())
    }

    /// What wakes from now on stays awake for longer than a test.
    pub async fn sleep_no_more(&self) -> Result<()> {
        self.amend("web", json!({"cooldownPeriod": 900})).await
    }

    /// By somebody else, that is.
    pub async fn scale(&self, name: &str, replicas: i32) -> Result<()> {
        self.amend_object::<Deployment>(name, json!({"spec": {"replicas": replicas}}))
            .await
    }

    pub async fn replicas(&self, name: &str) -> Result<i32> {
        let deployment = self.api::<Deployment>().get(name).await?;
        let spec = deployment.spec.context("a deployment has a spec")?;
        Ok(spec.replicas.unwrap_or(1))
    }

    /// It counts the writes to a deployment's spec, and so every scaling.
    pub async fn generation(&self, name: &str) -> Result<i64> {
        let deployment = self.api::<Deployment>().get(name).await?;
        deployment
            .metadata
            .generation
            .context("it has a generation")
    }

    pub fn api<K: Known>(&self) -> Api<K> {
        Api::namespaced(self.place.client.clone(), self.place.namespace.name())
    }

    pub async fn status(&self, name: &str) -> Result<ElastiServiceStatus> {
        let object = self.api::<ElastiService>().get_status(name).await?;
        object.status.context("it has a status")
    }

    /// Deletes it and waits until it is gone.
    pub async fn delete<K: Known>(&self, name: &str) -> Result<()> {
        let uid = self.uid::<K>(name).await?;
        self.api::<K>()
            .delete(name, &DeleteParams::default())
            .await?;
        self.gone::<K>(name, &uid).await
    }

    pub async fn uid<K: Known>(&self, name: &str) -> Result<String> {
        let object = self.api::<K>().get(name).await?;
        object.uid().context("what is stored has a uid")
    }

    pub async fn resolver_slices(&self, service: &str) -> Result<Vec<EndpointSlice>> {
        let ours = format!(
            "kubernetes.io/service-name={service},endpointslice.kubernetes.io/managed-by=elasti-operator"
        );
        let listed = self
            .api::<EndpointSlice>()
            .list(&ListParams::default().labels(&ours))
            .await?;
        Ok(listed.items)
    }

    pub async fn has_no_resolver_slice(&self, service: &str) -> Result<()> {
        let slices = self.resolver_slices(service).await?;
        ensure!(slices.is_empty(), "{service} still has {slices:?}");
        Ok(())
    }
}

//! Writing what was decided. Nothing is decided here.

mod autoscaler;
mod children;
mod release;
mod request;
mod resting;
mod scale;
mod status;

pub(crate) use self::{
    autoscaler::scaled_objects,
    resting::{Resting, read as read_resting},
    scale::Scaled,
    status::{write as write_status, write_knock},
};

use crate::{
    desired::Desired,
    facts::{ScaledObjectFacts, ServiceFacts},
    index::scaled_object_key,
};
use elasti_api::{Attached, ElastiService, FINALIZER};
use elasti_core::plan::Step;
use elasti_runtime::watch::Key;
use kube::{
    Api, Client, ResourceExt,
    api::{ApiResource, DynamicObject},
};
use request::Write;
use serde_json::json;

pub(crate) const FIELD_MANAGER: &str = "elasti-operator";

/// What the steps of one plan write about.
pub(crate) struct Subject<'a> {
    pub(crate) key: &'a Key,
    pub(crate) object: &'a ElastiService,
    pub(crate) desired: &'a Desired,
    pub(crate) public_service: Option<&'a ServiceFacts>,
    pub(crate) private_service: Option<&'a ServiceFacts>,
    pub(crate) target_resource: &'a ApiResource,
    pub(crate) scaled_object: Option<&'a ScaledObjectFacts>,
    /// Numbers that are no longer needed.
    pub(crate) surplus_ports: &'a [u16],
}

/// What a step did, where somebody should hear of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Done {
    Quietly,
    Scaled(Scaled),
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    #[error("{}", in_words(.0))]
    Kube(#[from] kube::Error),
    #[error("somebody else has changed it meanwhile")]
    Meanwhile,
    #[error("the API server does not answer")]
    Timeout,
}

pub(crate) async fn step(
    client: &Client,
    subject: &Subject<'_>,
    resting: &Resting,
    step: &Step,
) -> Result<Done, Error> {
    match step {
        Step::ReleaseService => release::service(client, subject).await?,
        Step::ReleaseTarget => return release::target(client, subject).await,
        Step::ReleaseAutoscaler => release::autoscaler(client, subject).await?,
        Step::AddFinalizer => finalizer(client, subject, true).await?,
        Step::RemoveFinalizer => finalizer(client, subject, false).await?,
        Step::ApplyPrivateService => children::apply_private_service(client, subject).await?,
        Step::RemovePrivateService => children::remove_private_service(client, subject).await?,
        Step::PublishSlices => children::publish_slices(client, subject).await?,
        Step::RemoveSlices => children::remove_slices(client, subject).await?,
        Step::PauseAutoscaler => pause(client, subject).await?,
        Step::ResumeAutoscaler => resume(client, subject.key, subject.object).await?,
        Step::RestPorts => resting.write(client, subject.surplus_ports).await?,
        Step::ScaleUp { replicas } => {
            let scaled = scale::up(&subject.target(client), *replicas).await;
            return gone_is_quiet(scaled);
        }
        Step::ScaleToZero { from } => return scale::to_zero(&subject.target(client), *from).await,
        Step::AskResolvers | Step::StepBack => {}
    }
    Ok(Done::Quietly)
}

/// What a step works on.
pub(crate) fn about(object: &ElastiService, step: &Step) -> Attached {
    let former = match step {
        Step::ReleaseService | Step::ReleaseTarget | Step::ReleaseAutoscaler => {
            object.status.as_ref()
        }
        _ => None,
    };
    former
        .and_then(|status| status.attached.clone())
        .unwrap_or_else(|| Attached::from(&object.spec))
}

/// What became of an attempt to wake a target.
pub(crate) struct Woken {
    pub(crate) resumed: Result<(), Error>,
    pub(crate) scaled: Result<Done, Error>,
}

/// The wake path: no more than it takes, in this order.
pub(crate) async fn wake(
    client: &Client,
    key: &Key,
    object: &ElastiService,
    resource: &ApiResource,
    paused: bool,
) -> Woken {
    let resumed = match paused {
        true => resume(client, key, object).await,
        false => Ok(()),
    };
    let name = &object.spec.scale_target_ref.name;
    let target = scale::Target::new(client, resource, key, name);
    // A target that its autoscaler may put down again is better than one that stays down.
    let scaled = scale::from_zero(&target, object.spec.min_target_replicas).await;
    Woken { resumed, scaled }
}

async fn pause(client: &Client, subject: &Subject<'_>) -> Result<(), Error> {
    let key = scaled_object_key(subject.key, subject.object);
    match key.zip(subject.scaled_object) {
        Some((key, seen)) => autoscaler::pause(client, &key, seen).await,
        None => Ok(()),
    }
}

async fn resume(client: &Client, key: &Key, object: &ElastiService) -> Result<(), Error> {
    match scaled_object_key(key, object) {
        Some(scaled_object) => autoscaler::resume(client, &scaled_object).await,
        None => Ok(()),
    }
}

/// Other finalizers stay; a conflict means that somebody wrote in between, and is tried again.
async fn finalizer(client: &Client, subject: &Subject<'_>, wanted: bool) -> Result<(), Error> {
    let mut finalizers = subject.object.finalizers().to_vec();
    finalizers.retain(|finalizer| finalizer != FINALIZER);
    if wanted {
        finalizers.push(FINALIZER.into());
    }
    let version = subject.object.resource_version();
    set_finalizers(client, subject.key, &finalizers, version.as_deref()).await
}

pub(crate) async fn set_finalizers(
    client: &Client,
    key: &Key,
    finalizers: &[String],
    version: Option<&str>,
) -> Result<(), Error> {
    let mut patch = json!({"metadata": {"finalizers": finalizers}});
    // A version that is null would be removed, and an object without one is refused.
    if let Some(version) = version {
        patch["metadata"]["resourceVersion"] = version.into();
    }
    let path = request::path(&as_stored(client, key), &key.name);
    gone_is_fine(request::write(client, &path, Write::Merge, &patch).await)
}

/// ElastiServices, not by their type: what is stored, and answered, may not fit into it.
fn as_stored(client: &Client, key: &Key) -> Api<DynamicObject> {
    let resource = ApiResource::erase::<ElastiService>(&());
    Api::namespaced_with(client.clone(), &key.namespace, &resource)
}

/// What is not there needs no removal.
pub(crate) fn gone_is_fine(outcome: Result<(), impl Into<Error>>) -> Result<(), Error> {
    match outcome.map_err(Into::into) {
        Err(error) if error.category() == "not_found" => Ok(()),
        outcome => outcome,
    }
}

fn gone_is_quiet(outcome: Result<Done, Error>) -> Result<Done, Error> {
    match outcome {
        Err(error) if error.category() == "not_found" => Ok(Done::Quietly),
        outcome => outcome,
    }
}

// === impl Subject ===

impl Subject<'_> {
    fn target(&self, client: &Client) -> scale::Target<'_> {
        let name = &self.object.spec.scale_target_ref.name;
        scale::Target::new(client, self.target_resource, self.key, name)
    }
}

// === impl Error ===

/// An answer of the API server says in words what was wrong, and the rest of it is for programs.
fn in_words(error: &kube::Error) -> String {
    match error {
        kube::Error::Api(status) if !status.message.is_empty() => status.message.clone(),
        other => other.to_string(),
    }
}

impl Error {
    /// Whether somebody has decided so: to ask again is of use only if they change their mind.
    pub(crate) fn is_refusal(&self) -> bool {
        !matches!(self.category(), "conflict") && !self.is_away()
    }

    /// Whether the API server was not there for us.
    pub(crate) fn is_away(&self) -> bool {
        matches!(self.category(), "unreachable" | "unavailable")
    }

    /// Whether it, or what is behind it, could not: it may be able to any moment.
    pub(crate) fn is_outage(&self) -> bool {
        self.is_away() || self.category() == "server"
    }

    /// For labels and logs: few, whatever the API server says.
    pub(crate) fn category(&self) -> &'static str {
        match self {
            Self::Kube(kube::Error::Api(status)) => match status.code {
                403 => "forbidden",
                404 => "not_found",
                409 => "conflict",
                422 => "invalid",
                408 | 429 | 502..=504 => "unavailable",
                500.. => "server",
                _ => "refused",
            },
            Self::Meanwhile => "conflict",
            Self::Kube(_) | Self::Timeout => "unreachable",
        }
    }
}

//! Events, on the ElastiService and on its target.

use crate::{
    apply::{Done, Error},
    operator::Operator,
};
use elasti_api::ElastiService;
use k8s_openapi::api::core::v1::ObjectReference;
use kube::{
    Resource,
    runtime::events::{Event, EventType},
};

pub(crate) async fn scaled(
    operator: &Operator,
    object: &ElastiService,
    done: &Result<Done, Error>,
) {
    let (type_, reason, note) = match done {
        Ok(Done::Scaled(scaled)) => (
            EventType::Normal,
            "SuccessToScale",
            format!("Scaled from {} to {}", scaled.from, scaled.to),
        ),
        Err(error) => (
            EventType::Warning,
            "FailedToScale",
            format!("Could not scale: {error}"),
        ),
        Ok(Done::Quietly) => return,
    };
    let event = Event {
        type_,
        reason: reason.into(),
        note: Some(note),
        action: "Scale".into(),
        secondary: None,
    };
    for about in [object.object_ref(&()), target(object)] {
        if let Err(error) = operator.recorder.publish(&event, &about).await {
            tracing::debug!(about = about.name, %error, "Could not publish an event");
        }
    }
}

fn target(object: &ElastiService) -> ObjectReference {
    let target = &object.spec.scale_target_ref;
    ObjectReference {
        api_version: Some(target.api_version.clone()),
        kind: Some(target.kind().into()),
        name: Some(target.name.clone()),
        namespace: object.metadata.namespace.clone(),
        ..ObjectReference::default()
    }
}

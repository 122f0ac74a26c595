//! Events, on the ElastiService and on its target.

use crate::{
    apply::{Done, Error},
    operator::Operator,
};
use elasti_api::{ElastiService, ElastiServiceStatus};
use k8s_openapi::{api::core::v1::ObjectReference, apimachinery::pkg::apis::meta::v1::Condition};
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
    publish(operator, object, type_, reason, note).await;
}

/// Says once what would be done now, were this not a dry run.
pub(crate) async fn dry_run(
    operator: &Operator,
    object: &ElastiService,
    after: &ElastiServiceStatus,
) {
    let before = object.status.as_ref();
    let said = before.and_then(dry_run_condition);
    let Some(now) = dry_run_condition(after) else {
        return;
    };
    if said.is_none_or(|said| said.message != now.message) {
        let note = now.message.clone();
        publish(operator, object, EventType::Normal, "DryRun", note).await;
    }
}

fn dry_run_condition(status: &ElastiServiceStatus) -> Option<&Condition> {
    let is_dry_run = |condition: &&Condition| {
        condition.type_ == "MaySleep" && condition.reason.starts_with("DryRun")
    };
    status.conditions.iter().find(is_dry_run)
}

async fn publish(
    operator: &Operator,
    object: &ElastiService,
    type_: EventType,
    reason: &str,
    note: String,
) {
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

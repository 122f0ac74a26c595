//! Events, on the ElastiService and on its target.

use crate::{
    apply::{Done, Error},
    index::Kind,
    operator::Operator,
};
use elasti_api::{ElastiService, ElastiServiceStatus};
use elasti_runtime::watch::Key;
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
    let event = match done {
        Ok(Done::Scaled(scaled)) => Event {
            type_: EventType::Normal,
            reason: "SuccessToScale".into(),
            note: Some(format!("Scaled from {} to {}", scaled.from, scaled.to)),
            // Events that differ in nothing else are counted as one.
            action: format!("ScaleTo{}", scaled.to),
            secondary: None,
        },
        Err(error) => Event {
            type_: EventType::Warning,
            reason: "FailedToScale".into(),
            note: Some(format!("Could not scale: {error}")),
            action: "Scale".into(),
            secondary: None,
        },
        Ok(Done::Quietly) => return,
    };
    publish(operator, object, &event).await;
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
        let event = Event {
            type_: EventType::Normal,
            reason: "DryRun".into(),
            note: Some(now.message.clone()),
            action: now.reason.clone(),
            secondary: None,
        };
        publish(operator, object, &event).await;
    }
}

fn dry_run_condition(status: &ElastiServiceStatus) -> Option<&Condition> {
    let is_dry_run = |condition: &&Condition| {
        condition.type_ == "MaySleep" && condition.reason.starts_with("DryRun")
    };
    status.conditions.iter().find(is_dry_run)
}

/// Of an object whose status cannot even say so.
pub(crate) async fn malformed(operator: &Operator, key: &Key, error: &str) {
    let event = Event {
        type_: EventType::Warning,
        reason: "Malformed".into(),
        note: Some(error.into()),
        action: "Read".into(),
        secondary: None,
    };
    let about = ObjectReference {
        api_version: Some(ElastiService::api_version(&()).into()),
        kind: Some(ElastiService::kind(&()).into()),
        name: Some(key.name.to_string()),
        namespace: Some(key.namespace.to_string()),
        ..ObjectReference::default()
    };
    if let Err(error) = operator.recorder.publish(&event, &about).await {
        tracing::warn!(elasti_service = %key, %error, "Could not tell that it is malformed");
    }
}

async fn publish(operator: &Operator, object: &ElastiService, event: &Event) {
    for about in [object.object_ref(&()), target(operator, object)] {
        if let Err(error) = operator.recorder.publish(event, &about).await {
            tracing::debug!(about = about.name, %error, "Could not publish an event");
        }
    }
}

fn target(operator: &Operator, object: &ElastiService) -> ObjectReference {
    let target = &object.spec.scale_target_ref;
    let key = Key::of(object).beside(&target.name);
    ObjectReference {
        api_version: Some(target.api_version.clone()),
        kind: Some(target.kind().into()),
        name: Some(target.name.clone()),
        namespace: object.metadata.namespace.clone(),
        uid: operator.read(|index| index.target_uid(&Kind::from(target), &key)),
        ..ObjectReference::default()
    }
}

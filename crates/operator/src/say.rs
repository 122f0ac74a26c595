//! Events, on the ElastiService and on its target.

use crate::{
    apply::{self, Done, Error},
    index::Kind,
    operator::Operator,
};
use elasti_api::{Attached, AttachedTarget, ElastiService, ElastiServiceStatus};
use elasti_core::plan::Step;
use elasti_runtime::watch::Key;
use k8s_openapi::{api::core::v1::ObjectReference, apimachinery::pkg::apis::meta::v1::Condition};
use kube::{
    Resource,
    runtime::events::{Event, EventType},
};
use std::{sync::Arc, time::Duration};
use tokio::{sync::Semaphore, time::timeout};
use tokio_util::task::TaskTracker;

/// So few events are written at a time, and each gives way for a while to those who wait to be woken.
const CRIERS: usize = 2;
/// Waiting, at a time: while none can be written there may be ever more.
const MOST: usize = 4_096;
/// Bytes of a note: the API server takes no longer one.
const LONGEST: usize = 1_024;
const GIVING_WAY: Duration = Duration::from_secs(1);
const PATIENCE: Duration = Duration::from_secs(10);

/// Those who write events, while everybody else goes on.
pub(crate) struct Criers {
    under_way: TaskTracker,
    turns: Arc<Semaphore>,
}

pub(crate) fn scaled(
    operator: &Operator,
    object: &ElastiService,
    target: &AttachedTarget,
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
        // Somebody wrote at the same time, and the next look settles it.
        Err(error) if error.category() == "conflict" => return,
        Err(error) => Event {
            type_: EventType::Warning,
            reason: "FailedToScale".into(),
            note: Some(format!("Could not scale: {error}")),
            action: "Scale".into(),
            secondary: None,
        },
        Ok(Done::Quietly) => return,
    };
    publish(operator, object, target, event);
}

/// Of something that could not be given back, and is not tried again.
pub(crate) fn left(operator: &Operator, object: &ElastiService, step: &Step, error: &Error) {
    let what = match step {
        Step::ScaleUp { .. } | Step::ReleaseTarget => "The target could not be scaled up",
        Step::ResumeAutoscaler | Step::ReleaseAutoscaler => "The ScaledObject could not be resumed",
        Step::RemoveSlices | Step::RemovePrivateService | Step::ReleaseService => {
            "What was made for the service could not be removed"
        }
        _ => "Something could not be given back",
    };
    let event = Event {
        type_: EventType::Warning,
        reason: "FailedToRestore".into(),
        note: Some(format!("{what}, and is left as it is: {error}")),
        action: "Restore".into(),
        secondary: None,
    };
    publish(operator, object, &apply::about(object, step).target, event);
}

/// Says once what would be done now, were this not a dry run.
pub(crate) fn dry_run(operator: &Operator, object: &ElastiService, after: &ElastiServiceStatus) {
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
        let target = Attached::from(&object.spec).target;
        publish(operator, object, &target, event);
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

fn publish(operator: &Operator, object: &ElastiService, target: &AttachedTarget, mut event: Event) {
    if let Some(note) = &mut event.note {
        note.truncate(note.floor_char_boundary(LONGEST));
    }
    if operator.criers.under_way.len() >= MOST {
        tracing::debug!(
            reason = event.reason,
            "Too many events wait to be published"
        );
        return;
    }
    let both = [object.object_ref(&()), reference(operator, object, target)];
    let recorder = operator.recorder.clone();
    let (turns, wakes) = (operator.criers.turns.clone(), operator.wakes.clone());
    operator.criers.under_way.spawn(async move {
        let _turn = turns.acquire().await;
        for about in both {
            let _ = timeout(GIVING_WAY, wakes.catches_up()).await;
            match timeout(PATIENCE, recorder.publish(&event, &about)).await {
                Ok(Ok(())) => {}
                Ok(Err(error)) => {
                    tracing::debug!(about = about.name, %error, "Could not publish an event");
                }
                Err(_) => tracing::debug!(about = about.name, "Gave up on an event"),
            }
        }
    });
}

// === impl Criers ===

impl Default for Criers {
    fn default() -> Self {
        Self {
            under_way: TaskTracker::new(),
            turns: Arc::new(Semaphore::new(CRIERS)),
        }
    }
}

impl Criers {
    /// Resolves when all is said.
    pub(crate) async fn finish(&self) {
        self.under_way.close();
        self.under_way.wait().await;
    }
}

fn reference(
    operator: &Operator,
    object: &ElastiService,
    target: &AttachedTarget,
) -> ObjectReference {
    let key = Key::of(object).beside(&target.name);
    ObjectReference {
        api_version: Some(target.api_version.clone()),
        kind: Some(target.kind.clone()),
        name: Some(target.name.clone()),
        namespace: object.metadata.namespace.clone(),
        uid: operator.read(|index| index.target_uid(&Kind::from(target), &key)),
        ..ObjectReference::default()
    }
}

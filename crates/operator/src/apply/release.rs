//! Letting go of what an ElastiService no longer names.

use super::{Done, Error, Subject, autoscaler as keda, children, gone_is_quiet, scale};
use crate::index::Kind;
use elasti_api::Attached;
use kube::{Client, discovery};

pub(super) async fn service(client: &Client, subject: &Subject<'_>) -> Result<(), Error> {
    match attached(subject) {
        Some(before) => children::remove_former(client, subject, &before.service).await,
        None => Ok(()),
    }
}

/// One that sleeps is brought back up; a kind that is gone needs nothing.
pub(super) async fn target(client: &Client, subject: &Subject<'_>) -> Result<Done, Error> {
    let Some(before) = attached(subject) else {
        return Ok(Done::Quietly);
    };
    let kind = Kind::from(&before.target).gvk();
    let resource = match discovery::pinned_kind(client, &kind).await {
        Ok((resource, _)) => resource,
        Err(kube::Error::Discovery(_)) => return Ok(Done::Quietly),
        Err(error) => return gone_is_quiet(Err(error.into())),
    };
    let target = scale::Target::new(client, &resource, subject.key, &before.target.name);
    let replicas = subject.object.spec.min_target_replicas;
    gone_is_quiet(scale::from_zero(&target, replicas).await)
}

pub(super) async fn autoscaler(client: &Client, subject: &Subject<'_>) -> Result<(), Error> {
    match attached(subject).and_then(|before| before.scaled_object.as_ref()) {
        Some(name) => keda::resume(client, &subject.key.beside(name)).await,
        None => Ok(()),
    }
}

fn attached<'a>(subject: &Subject<'a>) -> Option<&'a Attached> {
    subject.object.status.as_ref()?.attached.as_ref()
}

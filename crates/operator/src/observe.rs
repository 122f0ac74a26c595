//! The index as one ElastiService sees it.

use crate::{
    desired::{self, Desired},
    facts::{ServiceFacts, SliceFacts},
    index::{Index, Kind, scaled_object_key},
};
use elasti_api::{ElastiService, FINALIZER, names};
use elasti_core::{
    plan::{Autoscaler, Copy, Observed, Resolvers, Service, Slices},
    verdict::Opinion,
};
use elasti_runtime::watch::Key;
use jiff::{SignedDuration, Timestamp};
use kube::ResourceExt;

/// KubeElasti reads a cooldown of 0 as its default.
const DEFAULT_COOLDOWN: i32 = 900;

pub(crate) fn observe(
    index: &Index,
    key: &Key,
    object: &ElastiService,
    desired: &Desired,
) -> Observed {
    let spec = &object.spec;
    let service_key = key.beside(&spec.service);
    let service = index.service(&service_key);
    let memory = index.memory(key);
    let status = object.status.clone().unwrap_or_default();
    Observed {
        created: object
            .metadata
            .creation_timestamp
            .as_ref()
            .map_or(Timestamp::MIN, |time| time.0),
        deleting_since: object
            .metadata
            .deletion_timestamp
            .as_ref()
            .map(|time| time.0),
        finalizer: object
            .finalizers()
            .iter()
            .any(|finalizer| finalizer == FINALIZER),
        paused: spec.paused,
        dry_run: spec.dry_run,
        min_replicas: spec.min_target_replicas,
        cooldown: cooldown(spec.cooldown_period),
        rival: index.rival_of(key, object).map(ToString::to_string),
        service: usability(service),
        private_service: private_service(index, key, object, service),
        target: index.target(
            &Kind::from(&spec.scale_target_ref),
            &key.beside(&spec.scale_target_ref.name),
        ),
        ready_endpoints: index
            .slices_of(&service_key)
            .filter(|(_, slice)| !slice.ours)
            .map(|(_, slice)| slice.ready.len())
            .sum(),
        slices: slices(index, &service_key, desired),
        resolvers: index
            .no_resolver_since()
            .map_or(Resolvers::Ready, Resolvers::GoneSince),
        autoscaler: autoscaler(index, key, object),
        opinion: memory.opinion.unwrap_or_else(|| {
            Opinion::unknown("NotAskedYet", "The triggers have not been asked yet")
        }),
        may_sleep: memory.may_sleep.unwrap_or(true),
        last_active: status
            .last_scaled_up_time
            .map(|time| time.0)
            .max(memory.last_active),
        asleep_since: memory.asleep_since,
        last_knock: memory.last_knock,
    }
}

pub(crate) fn cooldown(seconds: i32) -> SignedDuration {
    let seconds = if seconds == 0 {
        DEFAULT_COOLDOWN
    } else {
        seconds
    };
    SignedDuration::from_secs(seconds.into())
}

fn usability(service: Option<&ServiceFacts>) -> Service {
    match service {
        None => Service::Missing,
        Some(service) if service.kind == "ExternalName" => {
            Service::Unusable("it is of type ExternalName and has no endpoints")
        }
        Some(service) if service.selector.is_empty() => {
            Service::Unusable("it has no selector, so no pods of its own")
        }
        Some(_) => Service::Usable,
    }
}

fn private_service(
    index: &Index,
    key: &Key,
    object: &ElastiService,
    public: Option<&ServiceFacts>,
) -> Copy {
    let private = index.service(&key.beside(&names::private_service(&object.spec.service)));
    match (private, public) {
        (None, _) => Copy::Absent,
        (Some(private), Some(public)) if desired::follows(private, public) => Copy::Current,
        (Some(_), _) => Copy::Stale,
    }
}

fn slices(index: &Index, service: &Key, desired: &Desired) -> Slices {
    let published: Vec<(&Key, &SliceFacts)> = index
        .slices_of(service)
        .filter(|(_, slice)| slice.ours)
        .collect();
    let Some(since) = published
        .iter()
        .filter_map(|(_, slice)| slice.created)
        .max()
    else {
        return Slices::Absent;
    };
    if desired.is_published_as(&published) {
        Slices::Current { since }
    } else {
        Slices::Stale { since }
    }
}

fn autoscaler(index: &Index, key: &Key, object: &ElastiService) -> Autoscaler {
    let Some(scaled_object) = scaled_object_key(key, object) else {
        return Autoscaler::None;
    };
    match index.scaled_object(&scaled_object) {
        None => Autoscaler::Missing,
        Some(facts) if facts.paused => Autoscaler::Paused,
        Some(_) => Autoscaler::Running,
    }
}

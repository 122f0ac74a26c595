//! The index as one ElastiService sees it.

use crate::{
    desired::{self, Addressing, Desired},
    facts::{ServiceFacts, SliceFacts},
    index::{Index, Kind, Memory, Routes, scaled_object_key},
    prometheus,
};
use elasti_api::{Attached, AttachedTarget, ElastiService, FINALIZER, names};
use elasti_core::{
    plan::{Absence, Autoscaler, Following, Former, Observed, Resolvers, Service, Slices},
    verdict::Opinion,
};
use elasti_runtime::watch::Key;
use jiff::{SignedDuration, Timestamp};
use kube::ResourceExt;

/// KubeElasti reads a cooldown of 0 as its default.
const DEFAULT_COOLDOWN: i32 = 900;

/// Why nothing is known of the triggers of an ElastiService that was just seen.
pub(crate) const NOT_ASKED: &str = "NotAskedYet";

pub(crate) fn observe(
    index: &Index,
    key: &Key,
    object: &ElastiService,
    desired: &Desired,
    routes: &Routes,
    moment: Moment,
) -> Observed {
    let spec = &object.spec;
    let service_key = key.beside(&spec.service);
    let service = index.service(&service_key);
    let memory = index.memory(key);
    let status = object.status.clone().unwrap_or_default();
    let kind = Kind::from(&spec.scale_target_ref);
    let target = key.beside(&spec.scale_target_ref.name);
    let rival = index.rival_of(key, object);
    let former = former(index, key, object, rival.is_some());
    let leaving_since = memory.leaving_since.unwrap_or(moment.now);
    Observed {
        created: object
            .metadata
            .creation_timestamp
            .as_ref()
            .map_or(Timestamp::MIN, |time| time.0),
        deleting_since: moment.leaves.then_some(leaving_since),
        finalizer: object
            .finalizers()
            .iter()
            .any(|finalizer| finalizer == FINALIZER),
        paused: spec.paused,
        dry_run: spec.dry_run,
        min_replicas: spec.min_target_replicas,
        cooldown: cooldown(spec.cooldown_period),
        releasing_since: (!former.is_empty()).then_some(leaving_since),
        former,
        attached: status.attached.as_ref() == Some(&Attached::from(spec)),
        rival: rival.map(ToString::to_string),
        service: usability(service),
        private_service: private_service(index, key, object, service, desired.addressing),
        ready_endpoints: if index.is_unready(&kind, &target) {
            0
        } else {
            index.ready_pods(&service_key).count()
        },
        target: index.target_of(key, object, moment.now),
        slices: slices(index, &service_key, desired),
        resolvers: resolvers(index, desired),
        unproven_resolvers: !desired.unproven.is_empty(),
        surplus_ports: !routes.surplus.is_empty(),
        autoscaler: autoscaler(index, key, object),
        opinion: if spec.triggers.is_empty() {
            prometheus::combine([])
        } else {
            opinion(&memory, moment)
        },
        may_sleep: spec.enabled_period.is_none() || memory.may_sleep.unwrap_or(true),
        last_active: status
            .last_scaled_up_time
            .map(|time| time.0)
            .max(memory.last_active),
        unready_since: memory.unready_since.unwrap_or(moment.now),
        regained: memory.regained.or(memory.unready_since.map(|_| moment.now)),
        asleep_since: memory.asleep_since.or(memory.zeroed),
        last_knock: memory
            .last_knock
            .max(status.last_knock_time.map(|time| end_of_second(time.0))),
        stepped_back: memory
            .stepped_back
            .filter(|stepped| memory.last_active == Some(*stepped)),
        woken: memory.woken,
        lagging: index.is_lagging(&kind, &target),
        misread: !memory.doomed.is_empty()
            || index.lists_unevenly(&service_key)
            || index.lists_ending(&service_key),
        unpublished: memory.unpublished,
        blind: index.trouble(key).is_some(),
        target_unseen: !index.sees_target(&kind, &target),
        recovered: index.recovered(key),
    }
}

/// When it is, for how long what the triggers said counts, and whether the end has come.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Moment {
    pub(crate) now: Timestamp,
    pub(crate) trust: SignedDuration,
    pub(crate) leaves: bool,
}

fn opinion(memory: &Memory, moment: Moment) -> Opinion {
    match &memory.opinion {
        Some(opinion) if memory.has_fresh_opinion(moment.now, moment.trust) => opinion.clone(),
        Some(_) => Opinion::unknown("Outdated", "The triggers have not answered for a while"),
        None => Opinion::unknown(NOT_ASKED, "The triggers have not been asked yet"),
    }
}

/// A status keeps whole seconds: what it tells of may have been at their end.
fn end_of_second(moment: Timestamp) -> Timestamp {
    moment
        .checked_add(SignedDuration::from_millis(999))
        .unwrap_or(moment)
}

/// What the status still names and the spec does not. What another ElastiService works on by now is
/// that one's to care for.
fn former(index: &Index, key: &Key, object: &ElastiService, ousted: bool) -> Former {
    let Some(before) = object
        .status
        .as_ref()
        .and_then(|status| status.attached.clone())
    else {
        return Former::default();
    };
    let now = (!ousted).then(|| Attached::from(&object.spec));
    let now = now.as_ref();
    let owner = index.owner_of_service(&key.beside(&before.service));
    let kind = Kind::from(&before.target);
    Former {
        service: now.is_none_or(|now| now.service != before.service)
            && owner.is_none_or(|owner| owner == key),
        target: now.is_none_or(|now| !is_same(&now.target, &before.target))
            && index.is_alone_with_target(key, &kind, &before.target.name),
        autoscaler: before.scaled_object.as_ref().is_some_and(|name| {
            now.is_none_or(|now| now.scaled_object.as_ref() != Some(name))
                && index.is_alone_with_scaled_object(key, name)
        }),
    }
}

fn is_same(now: &AttachedTarget, before: &AttachedTarget) -> bool {
    now.name == before.name && Kind::from(now).is_same(&before.into())
}

fn resolvers(index: &Index, desired: &Desired) -> Resolvers {
    let gone = |since, why| Resolvers::Gone { since, why };
    match (index.no_resolver_since(), desired.absence) {
        (Some(since), _) => gone(since, Absence::NoneReady),
        (None, None) => Resolvers::Ready,
        (None, Some(Absence::OtherFamily)) => {
            let since = index.families_since();
            match desired.slices() {
                [] => gone(since, Absence::OtherFamily),
                _ => Resolvers::Partly { since },
            }
        }
        // Those that are being asked get the time that it takes.
        (None, Some(why)) => {
            let since = index.refuse_since(&desired.unproven);
            gone(since.unwrap_or(Timestamp::MAX), why)
        }
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
        Some(service) if &*service.kind == "ExternalName" => {
            Service::Unusable("it is of type ExternalName and has no endpoints")
        }
        Some(service) if service.selector.is_empty() => {
            Service::Unusable("it has no selector, so no pods of its own")
        }
        Some(service) if service.tcp_ports().next().is_none() => {
            Service::Unusable("it has no TCP port, and nothing else can wake it")
        }
        Some(_) => Service::Usable,
    }
}

fn private_service(
    index: &Index,
    key: &Key,
    object: &ElastiService,
    public: Option<&ServiceFacts>,
    addressing: Addressing,
) -> Following {
    let private = index.service(&key.beside(&names::private_service(&object.spec.service)));
    match (private, public) {
        (None, _) => Following::Absent,
        (Some(private), Some(public))
            if desired::follows(private, public, object) && addressing != Addressing::Anew =>
        {
            Following::Current
        }
        (Some(_), _) => Following::Stale,
    }
}

fn slices(index: &Index, service: &Key, desired: &Desired) -> Slices {
    let published: Vec<(&Key, &SliceFacts)> = index
        .slices_of(service)
        .filter(|(_, slice)| slice.ours)
        .collect();
    let Some(since) = published.iter().filter_map(|(_, slice)| slice.since).max() else {
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
    index.scaled_object(&scaled_object)
}

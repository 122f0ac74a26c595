//! The vocabulary that operator, resolver and command line share: the `ElastiService` resource,
//! the names of the objects generated for it, and the messages of the wake protocol.

mod autoscaler;
mod duration;
mod elastiservice;
mod hold;
pub mod names;
mod period;
pub mod probe;
mod readiness;
mod status;
mod target;
mod trigger;
pub mod wire;

pub use self::{
    autoscaler::{Autoscaler, AutoscalerKind},
    duration::{GoDuration, InvalidDuration},
    elastiservice::{ElastiService, ElastiServiceSpec, FINALIZER},
    hold::Hold,
    period::EnabledPeriod,
    probe::ProbeRule,
    readiness::{GrpcCheck, HttpCheck, HttpCheckHeader, Readiness, ReadinessCheck, Release},
    status::{Attached, AttachedTarget, ElastiServiceStatus, LastWake, Mode, Phase, RoutedPort},
    target::ScaleTargetRef,
    trigger::{InvalidTrigger, PrometheusTrigger, Threshold, Trigger},
};

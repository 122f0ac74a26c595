//! What to do with one ElastiService, given what is known of it now. The order of the steps is the
//! product: at no instant may the public service be without somebody who answers or holds.

mod asleep;
mod awake;
mod leaving;
#[cfg(test)]
mod tests;

use crate::verdict::Opinion;
use elasti_api::{Mode, Phase};
use jiff::{SignedDuration, Timestamp};

/// All that is known of one ElastiService and the objects around it.
#[derive(Clone, Debug, PartialEq)]
pub struct Observed {
    pub created: Timestamp,
    /// Since when it is seen to be deleted.
    pub deleting_since: Option<Timestamp>,
    pub finalizer: bool,
    pub paused: bool,
    pub dry_run: bool,
    pub min_replicas: i32,
    pub cooldown: SignedDuration,
    /// An older ElastiService that names the same service or target.
    pub rival: Option<String>,
    /// What it still works on though it should not.
    pub former: Former,
    /// Since when it tries to give that back.
    pub releasing_since: Option<Timestamp>,
    /// Whether its status names what it works on, so that nobody can forget it.
    pub attached: bool,
    pub service: Service,
    pub private_service: Following,
    pub target: Target,
    /// Ready endpoints of the public service that are not ours.
    pub ready_endpoints: usize,
    pub slices: Slices,
    pub resolvers: Resolvers,
    /// Ready resolvers that nobody has seen accept its connections yet.
    pub unproven_resolvers: bool,
    /// Resolver ports that it has and no longer needs.
    pub surplus_ports: bool,
    pub autoscaler: Autoscaler,
    pub opinion: Opinion,
    /// Whether the enabled period lets the target sleep now.
    pub may_sleep: bool,
    /// When the target was last scaled up or seen in use.
    pub last_active: Option<Timestamp>,
    /// Since when it is seen without a ready endpoint though the target is up, and every knock was heard: now, if it is not.
    pub unready_since: Timestamp,
    /// When it got ready, if it was held for before without having slept, until its slices are gone.
    pub regained: Option<Timestamp>,
    /// Since when the target is seen at zero.
    pub asleep_since: Option<Timestamp>,
    /// When a resolver last told of requests for it.
    pub last_knock: Option<Timestamp>,
    /// When it was woken, until it was seen to serve: what is ready so soon may be what just ends.
    pub woken: Option<Timestamp>,
    /// Whether what counts its pods has not looked at its last change yet.
    pub lagging: bool,
    /// Whether its pods are not listed as they are: some from before it was woken, or that were told to end, still are, or none
    /// of an address family is yet. Or it stays so: they were spared, end slowly, or have one family.
    pub misread: bool,
    /// When requests last came while it was falling asleep.
    pub stepped_back: Option<Timestamp>,
    /// When our slices were last removed, as far as is known.
    pub unpublished: Option<Timestamp>,
    /// A watch of services, slices or resolvers fails: what is known of them may be old.
    pub blind: bool,
    /// The watch of its target's kind fails.
    pub target_unseen: bool,
    /// When the last watch that had failed saw again.
    pub recovered: Option<Timestamp>,
}

/// Objects of others that an ElastiService has worked on and no longer names.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Former {
    pub service: bool,
    pub target: bool,
    pub autoscaler: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Service {
    Usable,
    Missing,
    /// No selector, or of a type that has no endpoints.
    Unusable(&'static str),
}

/// An object of ours that follows another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Following {
    Absent,
    Stale,
    Current,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    Found {
        replicas: i32,
    },
    Missing,
    /// Its kind cannot be watched, for the reason given.
    Unknown(String),
}

/// The resolver slices of the public service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Slices {
    Absent,
    /// Published, but not with the resolvers and ports of now.
    Stale {
        since: Timestamp,
    },
    Current {
        since: Timestamp,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Resolvers {
    Ready,
    /// Traffic of some of its address families can be held, and that of others cannot.
    Partly {
        since: Timestamp,
    },
    /// Nobody can hold traffic.
    Gone {
        since: Timestamp,
        why: Absence,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Absence {
    NoneReady,
    /// None of those that are ready accepts connections on the ports of this service.
    NoneAccepts,
    /// None has an address of a family that the service has.
    OtherFamily,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Autoscaler {
    /// None is named, or it needs no pause.
    None,
    Missing,
    Running,
    /// By us.
    Paused,
    /// Paused by somebody else: it does nothing, and is left as it is.
    Resting,
    /// Paused by somebody else at a number of replicas, at which it keeps the target.
    Pinning,
    /// It cannot be watched.
    Unknown,
}

/// How long the world is given to follow.
#[derive(Clone, Copy, Debug)]
pub struct Patience {
    /// For a published slice to reach every data plane.
    pub settle: SignedDuration,
    /// For the controllers of Kubernetes to see what becomes of pods: one that lost its API server asks again within this.
    pub controllers: SignedDuration,
    /// For one who is held to knock again: resolvers do within seconds, however long they wait.
    pub knocks: SignedDuration,
    /// For resolvers to come back before what sleeps is woken.
    pub resolvers: SignedDuration,
    /// For a target to get ready before a deleted ElastiService lets go of its traffic, and for
    /// whatever hinders that it is given back.
    pub leave: SignedDuration,
}

/// What to do, in this order, and how things stand.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    pub steps: Vec<Step>,
    pub phase: Option<Phase>,
    pub mode: Option<Mode>,
    /// When to look again though nothing has changed.
    pub look_again: Option<Timestamp>,
    /// Why the target is not put to sleep although it is idle, or was stepped back from.
    pub note: Option<Note>,
    /// Whether what cannot be given back now is left as it is: it was tried for long enough.
    pub last_try: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Removes what was made for the service that it no longer names.
    ReleaseService,
    /// Brings the target that it no longer names back up.
    ReleaseTarget,
    ReleaseAutoscaler,
    AddFinalizer,
    ApplyPrivateService,
    /// Finds out which resolvers accept its connections.
    AskResolvers,
    PublishSlices,
    ResumeAutoscaler,
    ScaleUp {
        replicas: i32,
    },
    PauseAutoscaler,
    /// Unless it has another number of replicas by now.
    ScaleToZero {
        from: i32,
    },
    /// Counts as use: the next attempt to sleep waits for the cooldown.
    StepBack,
    RemoveSlices,
    RemovePrivateService,
    /// Lets go of resolver ports, which rest from then on.
    RestPorts,
    RemoveFinalizer,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Note {
    AutoscalerPinning,
    AutoscalerUnknown,
    Blind,
    Conflict,
    CoolingDown,
    DryRunWouldSleep,
    DryRunWouldWake,
    NoResolver,
    OutsidePeriod,
    Paused,
    Recovering,
    TrafficWhileFallingAsleep,
}

pub fn plan(observed: &Observed, now: Timestamp, patience: Patience) -> Plan {
    let mut plan = present(observed, now, patience);
    let mut steps = observed.former.steps();
    steps.append(&mut plan.steps);
    let letting_go = observed.deleting_since.or(observed.releasing_since);
    Plan {
        steps,
        last_try: letting_go.is_some_and(|since| now >= later(since, patience.leave)),
        ..plan
    }
}

/// For what the spec names now.
fn present(observed: &Observed, now: Timestamp, patience: Patience) -> Plan {
    if let Some(since) = observed.deleting_since {
        return leaving::plan(observed, since, now, patience);
    }
    let mut plan = if observed.rival.is_some() {
        Plan::noting(Note::Conflict)
    } else if observed.service != Service::Usable {
        leaving::without_service(observed)
    } else {
        with_service(observed, now, patience)
    };
    if observed.surplus_ports {
        plan.steps.push(Step::RestPorts);
    }
    plan
}

fn with_service(observed: &Observed, now: Timestamp, patience: Patience) -> Plan {
    let mut plan = match observed.target {
        Target::Missing | Target::Unknown(_) => asleep::unseen(observed, now, patience),
        Target::Found { replicas: 0 } => asleep::plan(observed, now, patience),
        Target::Found { .. } if observed.ready_endpoints == 0 => {
            asleep::waking(observed, now, patience)
        }
        Target::Found { .. } if observed.is_unsettled(now, patience) => {
            asleep::settling(observed, now, patience)
        }
        Target::Found { .. } => awake::plan(observed, now, patience),
    };
    let mut first = Vec::new();
    if !observed.finalizer {
        first.push(Step::AddFinalizer);
    }
    if observed.private_service != Following::Current {
        first.push(Step::ApplyPrivateService);
    }
    first.append(&mut plan.steps);
    plan.steps = first;
    plan
}

// === impl Observed ===

impl Observed {
    /// The end of the time in which the target has to stay up. Before it is ready, who waits for it has no other way to say so
    /// than to knock.
    fn rested_at(&self, patience: Patience) -> Timestamp {
        let used = self
            .last_active
            .map_or(self.created, |active| active.max(self.created));
        if self.ready_endpoints > 0 {
            return later(used, self.cooldown);
        }
        let heard = self.last_knock.max(self.woken);
        let since = used.max(self.unready_since).max(heard.unwrap_or(used));
        later(since, self.cooldown.max(patience.knocks))
    }

    /// A pod of before may still be listed as ready, and end the next moment.
    fn is_unsettled(&self, now: Timestamp, patience: Patience) -> bool {
        let settled = |moment| now >= moment && !self.lagging;
        let moment = self.settled_at(patience);
        self.slices != Slices::Absent && moment.is_some_and(|moment| !settled(moment))
    }

    /// When those who are ready are taken for those who stay.
    fn settled_at(&self, patience: Patience) -> Option<Timestamp> {
        let time = if self.misread {
            patience.settle.max(patience.controllers)
        } else {
            patience.settle
        };
        let regained = self.regained.filter(|_| self.misread);
        let regained = regained.map(|at| later(at, patience.controllers));
        self.woken.map(|woken| later(woken, time)).max(regained)
    }

    /// When those whom the slices name are taken for dead, if nobody takes their place.
    fn forsaken_at(&self, patience: Patience) -> Option<Timestamp> {
        let gone = matches!(self.resolvers, Resolvers::Gone { .. });
        let named = gone && !self.blind && self.slices != Slices::Absent;
        self.unheld_at(patience).filter(|_| named)
    }

    /// When it is no longer waited for those who could hold all of its traffic.
    fn unheld_at(&self, patience: Patience) -> Option<Timestamp> {
        match self.resolvers {
            Resolvers::Gone { since, .. } | Resolvers::Partly { since } => {
                Some(later(since, patience.resolvers))
            }
            Resolvers::Ready => None,
        }
    }

    fn is_unheld(&self, now: Timestamp, patience: Patience) -> bool {
        let at = self.unheld_at(patience);
        at.is_some_and(|at| now >= at)
    }

    fn is_forsaken(&self, now: Timestamp, patience: Patience) -> bool {
        let at = self.forsaken_at(patience);
        at.is_some_and(|at| now >= at)
    }

    fn knocked_since(&self, moment: Timestamp) -> bool {
        self.last_knock.is_some_and(|knock| knock >= moment)
    }
}

// === impl Former ===

impl Former {
    pub fn is_empty(self) -> bool {
        self == Self::default()
    }

    fn steps(self) -> Vec<Step> {
        [
            (self.service, Step::ReleaseService),
            (self.autoscaler, Step::ReleaseAutoscaler),
            (self.target, Step::ReleaseTarget),
        ]
        .into_iter()
        .filter_map(|(holds, step)| holds.then_some(step))
        .collect()
    }
}

// === impl Step ===

impl Step {
    /// Whether another has to wait when this one is not done.
    pub fn hinders(&self, next: &Self) -> bool {
        match self {
            // What it no longer names is no concern of what it names now, but for ports in use.
            Self::ReleaseService => matches!(next, Self::RestPorts | Self::RemoveFinalizer),
            Self::ReleaseTarget | Self::ReleaseAutoscaler => *next == Self::RemoveFinalizer,
            _ => !next.is_rescue(),
        }
    }

    /// What keeps requests from being lost waits for nothing.
    fn is_rescue(&self) -> bool {
        matches!(
            self,
            Self::AskResolvers
                | Self::PublishSlices
                | Self::ResumeAutoscaler
                | Self::ScaleUp { .. }
        )
    }

    /// Whether it leaves something as it would be without us.
    pub fn gives_back(&self) -> bool {
        matches!(
            self,
            Self::ReleaseService
                | Self::ReleaseTarget
                | Self::ReleaseAutoscaler
                | Self::ResumeAutoscaler
                | Self::ScaleUp { .. }
                | Self::RemoveSlices
                | Self::RemovePrivateService
                | Self::RestPorts
        )
    }
}

// === impl Slices ===

impl Slices {
    fn published_since(self) -> Option<Timestamp> {
        match self {
            Self::Absent => None,
            Self::Stale { since } | Self::Current { since } => Some(since),
        }
    }
}

// === impl Patience ===

impl Default for Patience {
    fn default() -> Self {
        Self {
            settle: SignedDuration::from_secs(3),
            controllers: SignedDuration::from_secs(30),
            knocks: SignedDuration::from_secs(60),
            resolvers: SignedDuration::from_secs(10),
            leave: SignedDuration::from_secs(30),
        }
    }
}

// === impl Plan ===

impl Plan {
    fn idle() -> Self {
        Self {
            steps: Vec::new(),
            phase: None,
            mode: None,
            look_again: None,
            note: None,
            last_try: false,
        }
    }

    fn noting(note: Note) -> Self {
        Self {
            note: Some(note),
            ..Self::idle()
        }
    }
}

fn earlier(moment: Timestamp, by: SignedDuration) -> Timestamp {
    moment.checked_sub(by).unwrap_or(Timestamp::MIN)
}

fn later(moment: Timestamp, by: SignedDuration) -> Timestamp {
    moment.checked_add(by).unwrap_or(Timestamp::MAX)
}

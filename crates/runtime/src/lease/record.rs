//! What the lease says, and what we write into it. Pure: both clocks are handed in.

use super::Terms;
use jiff::Timestamp;
use k8s_openapi::{
    api::coordination::v1::{Lease, LeaseSpec},
    apimachinery::pkg::apis::meta::v1::MicroTime,
};
use std::time::Duration;
use tokio::time::Instant;

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Standing {
    Free,
    Ours,
    Held { until: Instant },
}

/// The record as it was last seen, and since when. The times inside it are by another's clock and
/// decide nothing: a lease has expired when it has not changed for its duration by ours.
#[derive(Debug, Default)]
pub(super) struct Observed(Option<(LeaseSpec, Instant)>);

// === impl Observed ===

impl Observed {
    /// `now` is after the record was read: it may have been written the moment before.
    pub(super) fn standing(
        &mut self,
        lease: &Lease,
        identity: &str,
        terms: &Terms,
        now: Instant,
    ) -> Standing {
        let until = self.since(lease, now) + duration(lease).unwrap_or(terms.lease());
        match holder(lease) {
            "" => Standing::Free,
            holder if holder == identity => Standing::Ours,
            _ if until <= now => Standing::Free,
            _ => Standing::Held { until },
        }
    }

    fn since(&mut self, lease: &Lease, now: Instant) -> Instant {
        let spec = lease.spec.clone().unwrap_or_default();
        match &self.0 {
            Some((seen, since)) if *seen == spec => *since,
            _ => {
                self.0 = Some((spec, now));
                now
            }
        }
    }
}

pub(super) fn holder(lease: &Lease) -> &str {
    let spec = lease.spec.as_ref();
    spec.and_then(|spec| spec.holder_identity.as_deref())
        .unwrap_or_default()
}

fn duration(lease: &Lease) -> Option<Duration> {
    let seconds = lease.spec.as_ref()?.lease_duration_seconds?;
    Some(Duration::from_secs(seconds.try_into().ok()?))
}

/// The lease with our name in it, taken or renewed. All else stays as it was.
pub(super) fn claimed(mut lease: Lease, identity: &str, terms: &Terms, at: Timestamp) -> Lease {
    let renewed = holder(&lease) == identity;
    let spec = lease.spec.get_or_insert_default();
    if !renewed {
        spec.holder_identity = Some(identity.to_owned());
        spec.acquire_time = Some(MicroTime(at));
        spec.lease_transitions = Some(spec.lease_transitions.map_or(0, |n| n.saturating_add(1)));
    }
    spec.renew_time = Some(MicroTime(at));
    spec.lease_duration_seconds = Some(terms.lease_seconds());
    lease
}

/// The lease with nobody's name in it.
pub(super) fn vacated(mut lease: Lease) -> Lease {
    lease.spec.get_or_insert_default().holder_identity = Some(String::new());
    lease
}

#[cfg(test)]
mod tests;

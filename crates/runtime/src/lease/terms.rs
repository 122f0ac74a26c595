use std::time::Duration;

/// How much of a period is added to it at random, so that replicas do not march in step.
const JITTER: f64 = 0.2;

/// The times that candidates for one lease agree on.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Terms {
    lease: Duration,
    renew: Duration,
    retry: Duration,
}

#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error(
    "the lease duration ({lease:?}) must be longer than the renew deadline ({renew:?}), which must \
     be longer than the retry period ({retry:?}) and a fifth of it; 15s, 10s and 2s are usual"
)]
pub struct WrongTerms {
    lease: Duration,
    renew: Duration,
    retry: Duration,
}

// === impl Terms ===

impl Default for Terms {
    fn default() -> Self {
        Self {
            lease: Duration::from_secs(15),
            renew: Duration::from_secs(10),
            retry: Duration::from_secs(2),
        }
    }
}

impl Terms {
    /// `lease` is how long others wait for a silent leader, `renew` how long a leader that cannot
    /// renew still leads, `retry` how often it renews.
    pub fn new(lease: Duration, renew: Duration, retry: Duration) -> Result<Self, WrongTerms> {
        let in_order = lease > renew && renew > retry.mul_f64(1.0 + JITTER) && !retry.is_zero();
        in_order
            .then_some(Self {
                lease,
                renew,
                retry,
            })
            .ok_or(WrongTerms {
                lease,
                renew,
                retry,
            })
    }

    pub(super) fn lease(&self) -> Duration {
        self.lease
    }

    pub(super) fn renew(&self) -> Duration {
        self.renew
    }

    /// What the record can say: whole seconds, and never fewer than are meant.
    pub(super) fn lease_seconds(&self) -> i32 {
        let whole = self.lease.as_secs() + u64::from(self.lease.subsec_nanos() > 0);
        i32::try_from(whole).unwrap_or(i32::MAX)
    }

    /// For one request, so that one that hangs leaves time for another before the deadline.
    pub(super) fn patience(&self) -> Duration {
        self.renew / 2
    }

    /// Until the next look. It does not grow with failures: an API server that comes back finds nobody who leads.
    pub(super) fn pause(&self) -> Duration {
        self.retry.mul_f64(1.0 + JITTER * fastrand::f64())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seconds(lease: u64, renew: u64, retry: u64) -> Result<Terms, WrongTerms> {
        Terms::new(
            Duration::from_secs(lease),
            Duration::from_secs(renew),
            Duration::from_secs(retry),
        )
    }

    #[test]
    fn terms_out_of_order_are_refused() {
        assert_eq!(seconds(15, 10, 2).unwrap(), Terms::default());
        for (lease, renew, retry) in [(10, 10, 2), (15, 2, 2), (15, 10, 10), (15, 10, 0)] {
            let error = seconds(lease, renew, retry).unwrap_err().to_string();
            assert!(
                error.contains(&format!("({renew}s)")),
                "says what was given: {error}"
            );
        }
    }

    #[test]
    fn pauses_are_spread() {
        let terms = Terms::default();
        let pauses: Vec<_> = (0..100).map(|_| terms.pause().as_secs_f64()).collect();
        assert!(pauses.iter().all(|pause| (2.0..=2.4).contains(pause)));
        assert!(
            pauses.windows(2).any(|two| two[0] != two[1]),
            "replicas must not march in step"
        );
    }

    #[test]
    fn the_record_never_says_fewer_seconds_than_are_meant() {
        let terms = Terms {
            lease: Duration::from_millis(2100),
            ..Terms::default()
        };
        assert_eq!(terms.lease_seconds(), 3);
        assert_eq!(Terms::default().lease_seconds(), 15);
    }
}

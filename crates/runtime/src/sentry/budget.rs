//! How much may be said: an error in a loop must not become a flood.

use std::time::Duration;
use tokio::time::Instant;

pub(super) const PER_MINUTE: u32 = 20;
const MINUTE: Duration = Duration::from_secs(60);

pub(super) struct Budget {
    since: Instant,
    spent: u32,
}

// === impl Budget ===

impl Budget {
    pub(super) fn new(now: Instant) -> Self {
        Self {
            since: now,
            spent: 0,
        }
    }

    /// Whether there was something left.
    pub(super) fn spend(&mut self, now: Instant) -> bool {
        if now.duration_since(self.since) >= MINUTE {
            *self = Self::new(now);
        }
        let left = self.spent < PER_MINUTE;
        self.spent += u32::from(left);
        left
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_loop_may_speak_so_often_a_minute_and_no_more() {
        let start = Instant::now();
        let mut budget = Budget::new(start);
        let mut said = |second| {
            let now = start + Duration::from_secs(second);
            (0..1000).filter(|_| budget.spend(now)).count()
        };
        let all = usize::try_from(PER_MINUTE).unwrap();
        assert_eq!(said(0), all);
        assert_eq!(said(59), 0);
        assert_eq!(said(60), all);
    }
}

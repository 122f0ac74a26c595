use std::cell::Cell;
use tokio::time::Instant;

/// Prints moments as they come: how long after its beginning, and how long after the one before.
pub(crate) struct Clock {
    beginning: Instant,
    last: Cell<Instant>,
}

// === impl Clock ===

impl Clock {
    pub(crate) fn start() -> Self {
        let beginning = Instant::now();
        Self {
            beginning,
            last: Cell::new(beginning),
        }
    }

    pub(crate) fn say(&self, text: &str) {
        println!("{}", self.line(Instant::now(), text));
    }

    fn line(&self, now: Instant, text: &str) -> String {
        let since = (now - self.beginning).as_secs_f64();
        let step = (now - self.last.replace(now)).as_secs_f64();
        format!("  {since:>6.2} s  {step:>+7.2} s  {text}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn each_line_tells_the_time_and_what_the_step_took() {
        let clock = Clock::start();
        let (asleep, awake) = (Duration::from_millis(10_250), Duration::from_millis(11_750));
        let line = clock.line(clock.beginning + asleep, "asleep");
        assert_eq!(line, "   10.25 s   +10.25 s  asleep");
        let line = clock.line(clock.beginning + awake, "awake");
        assert_eq!(line, "   11.75 s    +1.50 s  awake");
    }
}

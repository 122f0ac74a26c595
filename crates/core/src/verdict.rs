/// What the triggers of one ElastiService say now, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Opinion {
    pub verdict: Verdict,
    /// One word in CamelCase, for the reason of a condition.
    pub reason: &'static str,
    /// A sentence for people.
    pub message: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Nobody uses the target: it may sleep.
    Idle,
    /// The target is in use: it must be awake.
    Active,
    /// Nobody knows: it stays as it is.
    Unknown,
}

// === impl Opinion ===

impl Opinion {
    pub fn idle(reason: &'static str, message: impl Into<String>) -> Self {
        Self::new(Verdict::Idle, reason, message)
    }

    pub fn active(reason: &'static str, message: impl Into<String>) -> Self {
        Self::new(Verdict::Active, reason, message)
    }

    pub fn unknown(reason: &'static str, message: impl Into<String>) -> Self {
        Self::new(Verdict::Unknown, reason, message)
    }

    fn new(verdict: Verdict, reason: &'static str, message: impl Into<String>) -> Self {
        Self {
            verdict,
            reason,
            message: message.into(),
        }
    }
}

use crate::GoDuration;
use kube::KubeSchema;
use serde::{Deserialize, Serialize};

/// When the target may sleep: from each time that the schedule names, for the duration.
#[derive(KubeSchema, Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct EnabledPeriod {
    /// When the period begins, as a cron line of five fields: minute, hour, day of month, month,
    /// day of week.
    #[serde(default = "default_schedule")]
    #[schemars(length(max = 256))]
    #[x_kube(validation = Rule::new(r"self.matches('^\\s*[^\\s@]\\S*(\\s+\\S+){4}\\s*$')")
        .message("must be a cron line of five fields (minute, hour, day of month, month, day of week), such as '0 18 * * 1-5'; a time zone goes into timezone"))]
    pub schedule: String,

    /// How long the period lasts, such as `12h`.
    #[serde(default = "default_duration")]
    pub duration: GoDuration,

    /// Time zone of the schedule, such as `Europe/Vienna`. Left out: UTC.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64))]
    #[x_kube(validation = Rule::new("self.matches('^[A-Za-z][A-Za-z0-9_+-]*(/[A-Za-z0-9_+-]+)*$')")
        .message("must be the name of a time zone, such as 'Europe/Vienna' or 'UTC'"))]
    pub timezone: Option<String>,
}

fn default_schedule() -> String {
    "0 0 * * *".into()
}

fn default_duration() -> GoDuration {
    GoDuration::from_hours(24)
}

// === impl EnabledPeriod ===

impl Default for EnabledPeriod {
    fn default() -> Self {
        Self {
            schedule: default_schedule(),
            duration: default_duration(),
            timezone: None,
        }
    }
}

use anyhow::{Context, Result, ensure};
use std::fs;

/// What the kernel says of a process.
#[derive(Clone, Copy, Debug)]
pub struct Usage(u32);

/// In MiB.
#[derive(Clone, Copy, Debug)]
pub struct Memory {
    pub resident: f64,
    pub peak: f64,
}

/// Of `/proc/*/stat`, on every Linux.
const TICKS_PER_SECOND: f64 = 100.0;
const MIB: f64 = 1_024.0;

// === impl Usage ===

impl Usage {
    pub fn of(pid: u32) -> Self {
        Self(pid)
    }

    pub fn memory(self) -> Result<Memory> {
        let status = self.proc("status")?;
        for line in status.lines().filter(|line| line.starts_with("Rss")) {
            eprintln!("  {line}");
        }
        let mib = |field: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(field));
            let kib = line.and_then(|line| line.split_whitespace().nth(1));
            let kib: f64 = kib.with_context(|| format!("no {field}"))?.parse()?;
            anyhow::Ok(kib / MIB)
        };
        Ok(Memory {
            resident: mib("VmRSS")?,
            peak: mib("VmHWM")?,
        })
    }

    /// Seconds of a core that it has used so far.
    pub fn cpu(self) -> Result<f64> {
        let stat = self.proc("stat")?;
        let fields = stat.rsplit_once(") ").map(|(_, rest)| rest);
        // Counted from the state, which follows the name: user time is the 12th, system time the 13th.
        let ticks = fields.into_iter().flat_map(str::split_whitespace);
        let ticks: Vec<f64> = ticks.skip(11).take(2).flat_map(str::parse).collect();
        ensure!(ticks.len() == 2, "unexpected /proc/*/stat: {stat}");
        Ok(ticks.iter().sum::<f64>() / TICKS_PER_SECOND)
    }

    fn proc(self, entry: &str) -> Result<String> {
        fs::read_to_string(format!("/proc/{}/{entry}", self.0)).context("the process has ended")
    }
}

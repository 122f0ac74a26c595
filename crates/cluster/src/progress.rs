use std::io::{IsTerminal, Write, stderr};

/// One line that moves on a terminal, and a line now and then elsewhere.
pub(crate) struct Progress {
    label: String,
    total: Option<usize>,
    shown: usize,
    live: bool,
}

impl Progress {
    pub(crate) fn counting(label: &str) -> Self {
        Self::new(label, None)
    }

    pub(crate) fn towards(label: &str, total: usize) -> Self {
        Self::new(label, Some(total))
    }

    fn new(label: &str, total: Option<usize>) -> Self {
        Self {
            label: label.into(),
            total,
            shown: 0,
            live: stderr().is_terminal(),
        }
    }

    pub(crate) fn step(&mut self, done: usize) {
        let every = if self.live { 10 } else { 500 };
        if done >= self.shown + every {
            self.shown = done;
            self.show(done);
        }
    }

    fn show(&self, done: usize) {
        let of = self
            .total
            .map(|total| format!(" of about {total}"))
            .unwrap_or_default();
        if self.live {
            eprint!("\r  {}: {done}{of} ", self.label);
            let _ = stderr().flush();
        } else {
            eprintln!("  {}: {done}{of}", self.label);
        }
    }

    pub(crate) fn finish(&self) {
        if self.live && self.shown > 0 {
            eprintln!();
        }
    }
}

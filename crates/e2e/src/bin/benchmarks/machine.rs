//! What was measured on, and with.

use anyhow::Result;
use std::{fs, process::Command};

/// Each as a name and what it is.
pub(crate) fn describe() -> Result<Vec<(&'static str, String)>> {
    let cpuinfo = fs::read_to_string("/proc/cpuinfo")?;
    let model = field(&cpuinfo, "model name").unwrap_or("unknown");
    let cores = std::thread::available_parallelism()?;
    let memory = fs::read_to_string("/proc/meminfo")?;
    let kib = field(&memory, "MemTotal").and_then(|kib| kib.split(' ').next()?.parse::<u64>().ok());
    Ok(vec![
        ("processor", format!("{cores} cores of {model}")),
        (
            "memory",
            format!("{} GiB", kib.unwrap_or_default().div_ceil(1 << 20)),
        ),
        (
            "kernel",
            fs::read_to_string("/proc/sys/kernel/osrelease")?
                .trim()
                .into(),
        ),
        ("Kubernetes", elasti_cluster::version().into()),
        ("haproxy", version("/usr/sbin/haproxy", "-v")),
        ("nginx", version("/usr/sbin/nginx", "-v")),
        ("h2load", version("h2load", "--version")),
        ("compiler", version("rustc", "--version")),
    ])
}

fn field<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    let mut lines = text.lines().filter_map(|line| line.split_once(':'));
    let found = lines.find(|(key, _)| key.trim() == name);
    found.map(|(_, value)| value.trim())
}

/// The first line that it says of itself, which some say as an error.
fn version(program: &str, flag: &str) -> String {
    let said = Command::new(program).arg(flag).output().ok();
    let said = said.map(|output| [output.stdout, output.stderr].concat());
    let said = said.unwrap_or_default();
    let said = String::from_utf8_lossy(&said);
    said.lines().next().unwrap_or("not found").trim().into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_field_is_found_by_its_name() {
        let text = "processor\t: 0\nmodel name\t: Some CPU @ 2 GHz\n";
        assert_eq!(field(text, "model name"), Some("Some CPU @ 2 GHz"));
        assert_eq!(field(text, "flags"), None);
    }
}

//! What the head of a Linux executable says of it.

use anyhow::{Result, bail, ensure};
use std::path::Path;

/// Where the head names the machine, in two bytes.
const MACHINE: usize = 18;

pub(crate) fn is_elf(bytes: &[u8]) -> bool {
    bytes.starts_with(b"\x7fELF")
}

/// A dynamic binary would fail in the container with a riddle: "no such file".
pub(super) fn check_static(path: &Path, binary: &[u8]) -> Result<()> {
    ensure!(is_elf(binary), "{} is no Linux executable", path.display());
    let head = &binary[..binary.len().min(4096)];
    ensure!(
        !head.windows(4).any(|bytes| bytes == b"/ld-"),
        "{} needs shared libraries, which its image does not have: link it statically (Rust: -C target-feature=+crt-static, Go: CGO_ENABLED=0)",
        path.display()
    );
    Ok(())
}

/// Which machines run it, as images name them.
pub(super) fn architecture(path: &Path, binary: &[u8]) -> Result<&'static str> {
    match binary.get(MACHINE..MACHINE + 2) {
        Some([0x3e, 0]) => Ok("amd64"),
        Some([0xb7, 0]) => Ok("arm64"),
        _ => bail!("{} is neither for amd64 nor for arm64", path.display()),
    }
}

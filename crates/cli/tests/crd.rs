//! The committed CRD is the one that the code prints.

use std::process::Command;

#[test]
fn the_committed_crd_is_current() {
    let printed = Command::new(env!("CARGO_BIN_EXE_kubectl-elasti"))
        .arg("crd")
        .output()
        .unwrap();
    let committed = include_str!("../../../config/crd/elastiservices.yaml");
    assert!(
        String::from_utf8(printed.stdout).unwrap() == committed,
        "config/crd/elastiservices.yaml is stale: run `make crd`"
    );
}

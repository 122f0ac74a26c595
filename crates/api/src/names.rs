//! Names of the objects generated for a service, by KubeElasti's algorithm: objects that it left
//! behind are found and taken over.

use sha2::{Digest, Sha256};
use std::fmt::Write;

/// Marks private services, and through them their slices, with the name of the public one.
pub const PRIVATE_LABEL: &str = "elasti.truefoundry.com/private-service-of";

const MAX_SERVICE_NAME: usize = 63;
const MAX_SLICE_NAME: usize = 253;
const HASH_LEN: usize = 10;

/// Our copy of a service, through which the target's pods stay addressable.
pub fn private_service(service: &str) -> String {
    generated(service, "-pvt-", MAX_SERVICE_NAME)
}

/// The endpoint slice that points a service at the resolvers.
pub fn resolver_slice(service: &str) -> String {
    generated(service, "-endpointslice-to-resolver-", MAX_SLICE_NAME)
}

fn generated(service: &str, infix: &str, max: usize) -> String {
    const PREFIX: &str = "elasti-";
    let room = max - PREFIX.len() - infix.len() - HASH_LEN;
    let kept = match service
        .char_indices()
        .map(|(at, c)| at + c.len_utf8())
        .take_while(|end| *end <= room)
        .last()
    {
        Some(end) if end < service.len() => service[..end].trim_end_matches('-'),
        _ => service,
    };
    format!("{PREFIX}{kept}{infix}{}", hash(service))
}

fn hash(service: &str) -> String {
    let digest = Sha256::digest(service);
    digest
        .iter()
        .take(HASH_LEN / 2)
        .fold(String::new(), |mut hex, byte| {
            let _ = write!(hex, "{byte:02x}");
            hex
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_that_kubeelasti_gives() {
        assert_eq!(
            private_service("target-deployment"),
            "elasti-target-deployment-pvt-9696239e87"
        );
        assert_eq!(private_service("httpbin"), "elasti-httpbin-pvt-abbea20e59");
        assert_eq!(
            resolver_slice("httpbin"),
            "elasti-httpbin-endpointslice-to-resolver-abbea20e59"
        );
    }

    #[test]
    fn long_names_are_cut_without_a_dash_at_the_cut() {
        let service = format!("{}-{}", "a".repeat(40), "b".repeat(22));
        let name = private_service(&service);
        assert!(name.len() <= 63, "{name} is too long for a Service");
        assert!(!name.contains("--"), "{name} has a dash left at the cut");
        assert_ne!(
            name,
            private_service(&format!("{}-{}", "a".repeat(40), "c".repeat(22)))
        );
    }

    #[test]
    fn the_longest_service_name_fits() {
        let service = "s".repeat(63);
        assert_eq!(private_service(&service).len(), 63);
        assert!(resolver_slice(&service).len() <= 253);
    }
}

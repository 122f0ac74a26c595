//! Addresses of a cluster. Every cluster has a network namespace of its own, so all use the same.

pub(crate) const NODE: &str = "10.89.0.2";
pub(crate) const NODE_V6: &str = "fd00:89::2";
pub(crate) const GATEWAY: &str = "10.89.0.1";
pub(crate) const GATEWAY_V6: &str = "fd00:89::1";
pub(crate) const PODS: &str = "10.244.0.0/24";
pub(crate) const PODS_V6: &str = "fd00:10:244::/64";
pub(crate) const SERVICES: &str = "10.96.0.0/16";
pub(crate) const SERVICES_V6: &str = "fd00:10:96::/112";
pub(crate) const API_SERVICE: &str = "10.96.0.1";
pub(crate) const DNS_SERVICE: &str = "10.96.0.10";
pub(crate) const API_PORT: u16 = 6443;
pub(crate) const DOMAIN: &str = "cluster.local";

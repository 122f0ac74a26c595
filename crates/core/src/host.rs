use std::fmt;

/// A service as its users address it, in lower case. Prints as the directory's key.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ServiceName {
    pub namespace: String,
    pub name: String,
}

/// The longest label of a domain name.
const MAX_LABEL: usize = 63;

/// The service that a Host, an `:authority` or a header such as Envoy's decorator names, where
/// `domain` is the cluster's. Whether that service exists is for the caller to find out: every host
/// of two labels reads as one.
pub fn service(host: &str, domain: &str) -> Option<ServiceName> {
    let host = without_port(authority(host))?;
    let mut labels = host.strip_suffix('.').unwrap_or(host).splitn(4, '.');
    let (name, namespace) = (labels.next()?, labels.next()?);
    let is_service = match (labels.next(), labels.next()) {
        (None, _) => true,
        (Some(svc), suffix) => svc.eq_ignore_ascii_case("svc") && is_domain(suffix, domain),
    };
    (is_service && is_label(name) && is_label(namespace)).then(|| ServiceName::new(namespace, name))
}

/// The port that it names, whatever else it says.
pub fn port(host: &str) -> Option<u16> {
    let (_, port) = authority(host).rsplit_once(':')?;
    port.parse().ok()
}

/// What stands between scheme and path.
fn authority(host: &str) -> &str {
    let rest = match host.split_once("://") {
        Some((scheme, rest)) if !scheme.contains(['/', '?', '#']) => rest,
        _ => host,
    };
    rest.split(['/', '?', '#']).next().unwrap_or(rest)
}

/// `None` if a colon is followed by anything but a port, as in an IPv6 address.
fn without_port(authority: &str) -> Option<&str> {
    let Some((host, port)) = authority.split_once(':') else {
        return Some(authority);
    };
    port.bytes()
        .all(|digit| digit.is_ascii_digit())
        .then_some(host)
}

fn is_domain(suffix: Option<&str>, domain: &str) -> bool {
    suffix.is_none_or(|suffix| suffix.eq_ignore_ascii_case(domain.trim_matches('.')))
}

fn is_label(label: &str) -> bool {
    let inner = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
    (1..=MAX_LABEL).contains(&label.len())
        && label.bytes().all(inner)
        && !label.starts_with('-')
        && !label.ends_with('-')
}

// === impl ServiceName ===

impl ServiceName {
    fn new(namespace: &str, name: &str) -> Self {
        Self {
            namespace: namespace.to_ascii_lowercase(),
            name: name.to_ascii_lowercase(),
        }
    }
}

impl fmt::Display for ServiceName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

    fn named(host: &str) -> Option<String> {
        service(host, "cluster.local").map(|service| service.to_string())
    }

    #[test]
    fn every_form_of_address_names_the_service() {
        for host in [
            "web.shop",
            "web.shop:8080",
            "web.shop:",
            "web.shop.",
            "web.shop.:80",
            "web.shop.svc",
            "web.shop.svc:80",
            "web.shop.svc.cluster.local",
            "web.shop.svc.cluster.local.",
            "web.shop.svc.cluster.local:80",
            "web.shop.svc.cluster.local.:80",
            "web.shop.svc.cluster.local:80/*",
            "Web.SHOP.Svc.Cluster.Local",
            "http://web.shop",
            "HTTPS://web.shop.svc:443/cart?back=http://other.place",
            "http://web.shop.svc.cluster.local:80/*",
            "web.shop/*?next=http://other.place",
            "web.shop?next=1",
        ] {
            assert_eq!(named(host).as_deref(), Some("shop/web"), "{host}");
        }
    }

    #[test]
    fn other_hosts_name_no_service() {
        for host in [
            "",
            ".",
            "..",
            "web",
            "localhost:8012",
            "web.",
            ".shop",
            "web..svc",
            "web.shop..",
            "web.shop.example.com",
            "web.shop.svc.example.com",
            "web.shop.svc.cluster",
            "web.shop.svc.cluster.local.com",
            "pod.web.shop.svc.cluster.local",
            "-web.shop",
            "web.shop-",
            "we_b.shop",
            "wéb.shop",
            "user@web.shop",
            "web.shop:http",
            "web.shop:80:80",
            "http://",
            "http:///web.shop",
            "*",
            "10.0.0.1",
            "10.0.0.1:80",
            "[::1]:80",
            "::ffff:10.0.0.1",
        ] {
            assert_eq!(named(host), None, "{host}");
        }
    }

    #[test]
    fn the_clusters_own_domain_is_the_one_that_counts() {
        for domain in ["corp.internal", ".corp.internal.", "Corp.Internal"] {
            assert!(service("web.shop.svc.corp.internal", domain).is_some());
            assert!(service("web.shop.svc.cluster.local", domain).is_none());
            assert!(service("web.shop.svc", domain).is_some());
        }
    }

    #[test]
    fn a_label_is_no_longer_than_dns_allows() {
        assert!(named(&format!("{}.shop", "a".repeat(63))).is_some());
        assert!(named(&format!("{}.shop", "a".repeat(64))).is_none());
    }

    proptest! {
        #[test]
        fn garbage_never_panics(host: String, domain: String) {
            let _ = service(&host, &domain);
        }

        #[test]
        fn near_misses_never_panic(host in "(http:/?/?)?[a-b.:/*@\\[\\]0é-]{0,24}(svc)?[.:/]{0,3}") {
            if let Some(found) = service(&host, "cluster.local") {
                prop_assert!(is_label(&found.name) && is_label(&found.namespace));
            }
        }

        #[test]
        fn a_service_is_found_however_it_is_written(
            name in "[a-z]([a-z0-9-]{0,8}[a-z0-9])?",
            namespace in "[a-z0-9]([a-z0-9-]{0,8}[a-z0-9])?",
            scheme in "(https?://)?",
            suffix in "(\\.svc(\\.cluster\\.local)?)?\\.?",
            tail in "(:[0-9]{1,5})?(/[a-z:/.*]{0,8})?",
        ) {
            let host = format!("{scheme}{name}.{namespace}{suffix}{tail}");
            let expected = ServiceName { namespace, name };
            prop_assert_eq!(service(&host, "cluster.local"), Some(expected.clone()));
            prop_assert_eq!(service(&host.to_uppercase(), "cluster.local"), Some(expected));
        }

        #[test]
        fn addresses_are_no_services(v4: u32, v6: u128, port: u16) {
            let v4 = Ipv4Addr::from(v4);
            let v6 = Ipv6Addr::from(v6);
            for ip in [IpAddr::from(v4), v6.into(), v4.to_ipv6_mapped().into()] {
                prop_assert_eq!(named(&ip.to_string()), None);
                prop_assert_eq!(named(&SocketAddr::new(ip, port).to_string()), None);
            }
        }
    }
}

//! Where a server is.

use http::{HeaderValue, Uri, uri::Scheme};
use k8s_openapi::ByteString;
use std::str::FromStr;

/// `http://user:password@host:9090/prefix/`, taken apart.
#[derive(Debug)]
pub(super) struct Address {
    /// `http://host:9090/prefix`.
    pub(super) base: String,
    /// `host:9090`.
    pub(super) host: String,
    /// The `Authorization` that user and password ask for.
    pub(super) basic: Option<HeaderValue>,
}

/// Without the address, which may hold a password.
#[derive(Debug, PartialEq, thiserror::Error)]
#[error("is no address such as http://prometheus.monitoring:9090")]
pub(super) struct InvalidAddress;

// === impl Address ===

impl FromStr for Address {
    type Err = InvalidAddress;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let uri: Uri = text.trim().parse().map_err(|_| InvalidAddress)?;
        let known = |scheme: &&Scheme| [Scheme::HTTP, Scheme::HTTPS].contains(scheme);
        let scheme = uri.scheme().filter(known).ok_or(InvalidAddress)?;
        let authority = uri.authority().ok_or(InvalidAddress)?.as_str();
        if uri.query().is_some() {
            return Err(InvalidAddress);
        }
        let (user, host) = match authority.rsplit_once('@') {
            Some((user, host)) => (Some(user), host),
            None => (None, authority),
        };
        Ok(Self {
            base: format!("{scheme}://{host}{}", uri.path().trim_end_matches('/')),
            host: host.into(),
            basic: user.map(basic).transpose()?,
        })
    }
}

fn basic(user: &str) -> Result<HeaderValue, InvalidAddress> {
    let mut credentials = decoded(user);
    if !user.contains(':') {
        credentials.push(b':');
    }
    // Kubernetes writes its byte strings in the very alphabet that the header wants.
    let base64 = serde_json::to_value(ByteString(credentials));
    let base64 = base64.map_err(|_| InvalidAddress)?;
    let value = format!("Basic {}", base64.as_str().unwrap_or_default());
    super::server::secret(&value).map_err(|_| InvalidAddress)
}

fn decoded(text: &str) -> Vec<u8> {
    let mut pieces = text.split('%');
    let mut bytes = pieces.next().unwrap_or_default().as_bytes().to_vec();
    for piece in pieces {
        match piece.get(..2).map(|hex| u8::from_str_radix(hex, 16)) {
            Some(Ok(byte)) => {
                bytes.push(byte);
                bytes.extend(&piece.as_bytes()[2..]);
            }
            _ => {
                bytes.push(b'%');
                bytes.extend(piece.as_bytes());
            }
        }
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    fn base(text: &str) -> Result<String, InvalidAddress> {
        text.parse().map(|address: Address| address.base)
    }

    #[test]
    fn address_may_end_with_a_slash_or_carry_a_prefix() {
        for (written, meant) in [
            ("http://prometheus:9090", "http://prometheus:9090"),
            ("http://prometheus:9090/", "http://prometheus:9090"),
            (" https://thanos.example ", "https://thanos.example"),
            ("http://mimir/prometheus", "http://mimir/prometheus"),
            (
                "http://vm/select/0/prometheus//",
                "http://vm/select/0/prometheus",
            ),
            ("http://[::1]:9090/", "http://[::1]:9090"),
        ] {
            assert_eq!(base(written).as_deref(), Ok(meant));
        }
    }

    #[test]
    fn what_is_no_address_of_a_server_is_refused() {
        for written in [
            "",
            "prometheus:9090",
            "/prometheus",
            "ftp://prometheus",
            "http://",
            "http://prometheus/?tenant=1",
            "http://two words",
        ] {
            assert_eq!(base(written), Err(InvalidAddress), "{written}");
        }
    }

    #[test]
    fn user_and_password_become_a_header_and_leave_the_address() {
        let address: Address = "https://me:p%40ss@host:1/x".parse().unwrap();
        assert_eq!(address.base, "https://host:1/x");
        assert_eq!(address.host, "host:1");
        let basic = address.basic.unwrap();
        assert_eq!(basic, "Basic bWU6cEBzcw==");
        assert!(basic.is_sensitive());
        let nameless: Address = "http://me@host".parse().unwrap();
        assert_eq!(nameless.basic.unwrap(), "Basic bWU6");
    }
}

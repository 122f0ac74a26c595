//! The server that a trigger means, and how it wants to be asked.

use super::{
    address::Address,
    client::Request,
    failure::{Failure, short},
};
use elasti_api::PrometheusTrigger;
use elasti_core::verdict::Opinion;
use http::{
    HeaderMap, HeaderName, HeaderValue,
    header::{self, InvalidHeaderValue},
};
use http_body_util::Empty;
use jiff::Timestamp;
use std::{collections::BTreeMap, fmt::Write};

/// Those that say where a message ends: on a shared connection they would cut into the next one.
const FRAMING: [HeaderName; 7] = [
    header::CONNECTION,
    header::CONTENT_LENGTH,
    header::EXPECT,
    header::TE,
    header::TRAILER,
    header::TRANSFER_ENCODING,
    header::UPGRADE,
];

pub(super) struct Server {
    address: Address,
    headers: HeaderMap,
}

/// A header value that no log and no message shows.
pub(super) fn secret(value: &str) -> Result<HeaderValue, InvalidHeaderValue> {
    let mut value = HeaderValue::from_bytes(value.trim().as_bytes())?;
    value.set_sensitive(true);
    Ok(value)
}

/// As it is written, where one is.
pub(super) fn own_address(trigger: &PrometheusTrigger) -> Option<&str> {
    let own = trigger.server_address.as_deref().map(str::trim);
    own.filter(|own| !own.is_empty())
}

fn address(trigger: &PrometheusTrigger, default: Option<&str>) -> Result<Address, Failure> {
    const DEFAULT: &str = "PROMETHEUS_TRIGGER_SERVER_ADDRESS";
    let (name, text) = match (own_address(trigger), default) {
        (Some(own), _) => ("serverAddress", own),
        (None, Some(default)) => (DEFAULT, default),
        (None, None) => {
            let missing = format!("neither serverAddress nor the operator's {DEFAULT} is set");
            return Err(Failure::InvalidTrigger(missing));
        }
    };
    text.parse()
        .map_err(|error| Failure::InvalidTrigger(format!("{name} {error}")))
}

fn parsed(own: &BTreeMap<String, String>) -> Result<HeaderMap, Failure> {
    own.iter()
        .map(|(name, value)| {
            let invalid = |what| Failure::InvalidTrigger(format!("header {name:?} {what}"));
            let key: HeaderName = name
                .trim()
                .parse()
                .map_err(|_| invalid("is no name of one"))?;
            if FRAMING.contains(&key) {
                return Err(invalid("cannot be set"));
            }
            let value = secret(value).map_err(|_| invalid("has a value that HTTP forbids"))?;
            Ok((key, value))
        })
        .collect()
}

fn encoded(text: &str) -> String {
    text.bytes().fold(String::new(), |mut url, byte| {
        match byte {
            b'-' | b'.' | b'_' | b'~' => url.push(byte.into()),
            _ if byte.is_ascii_alphanumeric() => url.push(byte.into()),
            _ => {
                let _ = write!(url, "%{byte:02X}");
            }
        }
        url
    })
}

// === impl Server ===

impl Server {
    pub(super) fn of(
        trigger: &PrometheusTrigger,
        default_address: Option<&str>,
        default_authorization: &Option<HeaderValue>,
    ) -> Result<Self, Failure> {
        let address = address(trigger, default_address)?;
        let mut headers = parsed(&trigger.headers)?;
        let fallback = default_authorization.as_ref().or(address.basic.as_ref());
        if let (Some(fallback), None) = (fallback, headers.get(header::AUTHORIZATION)) {
            headers.insert(header::AUTHORIZATION, fallback.clone());
        }
        Ok(Self { address, headers })
    }

    pub(super) fn request(&self, query: &str, now: Timestamp) -> Result<Request, Failure> {
        let query = encoded(query);
        let url = format!(
            "{}/api/v1/query?query={query}&time={now:.0}",
            self.address.base
        );
        let mut request = Request::new(Empty::new());
        *request.uri_mut() = url
            .parse()
            .map_err(|_| Failure::InvalidTrigger("the query is too long".into()))?;
        *request.headers_mut() = self.headers.clone();
        Ok(request)
    }

    /// A server may quote what it was sent.
    pub(super) fn blame(&self, failure: &Failure) -> Opinion {
        let text = self.secrets().fold(failure.to_string(), |text, secret| {
            text.replace(secret, "…")
        });
        let message = format!("{}: {}", self.address.host, short(&text));
        Opinion::unknown(failure.reason(), message)
    }

    /// Words of fewer letters would tear ordinary text apart.
    fn secrets(&self) -> impl Iterator<Item = &str> {
        let values = self
            .headers
            .values()
            .filter_map(|value| value.to_str().ok());
        values
            .flat_map(str::split_whitespace)
            .filter(|word| word.len() > 3)
    }
}

#[cfg(test)]
mod tests;

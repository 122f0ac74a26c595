//! What a proxy has to change in the head of a message, and no more.

use http::{HeaderMap, HeaderName, HeaderValue, Uri, header};
use std::{net::IpAddr, time::Duration};

/// What somebody before us has told, found by going through all names once, as in [`end_hop`].
#[derive(Default)]
struct Known {
    client: bool,
    host: bool,
    protocol: bool,
    trace: bool,
}

const FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
const FORWARDED_HOST: HeaderName = HeaderName::from_static("x-forwarded-host");
const FORWARDED_PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");
const TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");
const SERVER_TIMING: HeaderName = HeaderName::from_static("server-timing");
const HELD: HeaderName = HeaderName::from_static("x-elasti-held");
const KEEP_ALIVE: HeaderName = HeaderName::from_static("keep-alive");
const PROXY_CONNECTION: HeaderName = HeaderName::from_static("proxy-connection");

/// The most that is added to the head of a request.
const ADDED: usize = 5;

static HOP_BY_HOP: [HeaderName; 6] = [
    header::CONNECTION,
    KEEP_ALIVE,
    PROXY_CONNECTION,
    header::TE,
    header::TRANSFER_ENCODING,
    header::UPGRADE,
];

/// Hop-by-hop headers end here, those that `Connection` names among them. `true` if the message
/// asks for, or grants, a WebSocket: then these two stay.
pub fn end_hop(headers: &mut HeaderMap) -> bool {
    // Most messages have one of them or none: to go through all names takes less than to look for each.
    let is_hop = |name: &&HeaderName| HOP_BY_HOP.contains(name);
    let hop: Vec<HeaderName> = headers.keys().filter(is_hop).cloned().collect();
    if hop.is_empty() {
        return false;
    }
    let upgrade = headers.get(header::UPGRADE).cloned();
    let websocket = upgrade.is_some() && is_websocket(headers);
    let te = headers.get(header::TE);
    let wants_trailers = te.is_some_and(|value| contains(value, "trailers"));
    let connection = headers.get_all(header::CONNECTION).iter();
    let named: Vec<HeaderName> = connection
        .filter(|value| !is_usual(value.as_bytes()))
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .filter_map(|name| name.trim().parse().ok())
        .collect();
    for name in hop.into_iter().chain(named) {
        headers.remove(name);
    }
    if wants_trailers {
        headers.insert(header::TE, HeaderValue::from_static("trailers"));
    }
    if websocket {
        headers.insert(header::CONNECTION, HeaderValue::from_static("Upgrade"));
        headers.extend(upgrade.map(|upgrade| (header::UPGRADE, upgrade)));
    }
    websocket
}

/// Of `Connection`: names no field that would not end here anyway.
pub fn is_usual(value: &[u8]) -> bool {
    ["keep-alive", "close", "upgrade"]
        .iter()
        .any(|usual| value.eq_ignore_ascii_case(usual.as_bytes()))
}

/// No other upgrade is passed on: an offer of h2c is a way past whoever checks requests.
pub(super) fn is_websocket(headers: &HeaderMap) -> bool {
    let upgrade = headers.get(header::UPGRADE);
    upgrade.is_some_and(|upgrade| upgrade.as_bytes().eq_ignore_ascii_case(b"websocket"))
        && headers
            .get_all(header::CONNECTION)
            .iter()
            .any(|value| contains(value, "upgrade"))
}

fn contains(value: &HeaderValue, token: &str) -> bool {
    let text = value.to_str().unwrap_or_default();
    text.split(',')
        .any(|part| part.trim().eq_ignore_ascii_case(token))
}

/// Who asked, for whom, and by what; and a trace, if there is none.
pub fn forwarded(headers: &mut HeaderMap, uri: &Uri, client: &HeaderValue) {
    headers.reserve(ADDED);
    // What the first line names is what is asked for, whatever Host says.
    if let Some(authority) = uri.authority()
        && let Ok(host) = HeaderValue::from_str(without_user(authority.as_str()))
    {
        headers.insert(header::HOST, host);
    }
    let known = Known::of(headers);
    let chain = known.client.then(|| chained(headers, client)).flatten();
    headers.insert(FORWARDED_FOR, chain.unwrap_or_else(|| client.clone()));
    if !known.host
        && let Some(host) = headers.get(header::HOST).cloned()
    {
        headers.insert(FORWARDED_HOST, host);
    }
    if !known.protocol {
        headers.insert(FORWARDED_PROTO, HeaderValue::from_static("http"));
    }
    if !known.trace
        && let Ok(mut trace) = HeaderValue::from_bytes(&new_trace())
    {
        // HTTP/2 would remember each, and none comes twice.
        trace.set_sensitive(true);
        headers.insert(TRACEPARENT, trace);
    }
}

/// Who asked, in the words of a header.
pub fn client(address: IpAddr) -> HeaderValue {
    HeaderValue::try_from(address.to_canonical().to_string())
        .unwrap_or(HeaderValue::from_static("unknown"))
}

/// Behind those whom it already went through.
fn chained(headers: &HeaderMap, client: &HeaderValue) -> Option<HeaderValue> {
    let known = headers.get_all(&FORWARDED_FOR).iter();
    let chain: Vec<&str> = known
        .chain([client])
        .filter_map(|value| value.to_str().ok())
        .collect();
    HeaderValue::try_from(chain.join(", ")).ok()
}

/// HTTP/2 may give each cookie a field of its own, HTTP/1 may not.
pub fn join_cookies(headers: &mut HeaderMap) {
    let mut cookies = headers.get_all(header::COOKIE).iter();
    let (Some(first), Some(second)) = (cookies.next(), cookies.next()) else {
        return;
    };
    let all = [first, second].into_iter().chain(cookies);
    let joined: Vec<&[u8]> = all.map(HeaderValue::as_bytes).collect();
    if let Ok(joined) = HeaderValue::from_bytes(&joined.join(&b"; "[..])) {
        headers.insert(header::COOKIE, joined);
    }
}

fn without_user(authority: &str) -> &str {
    authority
        .rsplit_once('@')
        .map_or(authority, |(_, host)| host)
}

pub fn has_two_hosts(headers: &HeaderMap) -> bool {
    headers.get_all(header::HOST).iter().nth(1).is_some()
}

/// Lengths that are equal are said once, as hyper does between sides that speak HTTP/1.
pub fn join_lengths(headers: &mut HeaderMap) {
    let mut lengths = headers.get_all(header::CONTENT_LENGTH).iter();
    if let (Some(first), Some(_)) = (lengths.next(), lengths.next()) {
        let first = first.clone();
        headers.insert(header::CONTENT_LENGTH, first);
    }
}

/// Whether the length of a target's answer can be read in one way only.
pub fn is_framed_once(headers: &HeaderMap) -> bool {
    let mut codings = headers.get_all(header::TRANSFER_ENCODING).iter();
    match codings.next() {
        None => true,
        Some(coding) => {
            coding.as_bytes().eq_ignore_ascii_case(b"chunked")
                && codings.next().is_none()
                && !headers.contains_key(header::CONTENT_LENGTH)
        }
    }
}

/// Version, trace, span, and that nobody has decided to record it. The names must only differ.
pub fn new_trace() -> [u8; 55] {
    let mut trace = *b"00-................................-................-00";
    for at in [3, 19, 36] {
        // Nobody is called 0.
        let mut random = fastrand::u64(1..);
        for digit in &mut trace[at..at + 16] {
            *digit = b"0123456789abcdef"[(random & 15) as usize];
            random >>= 4;
        }
    }
    trace
}

/// Marks the answer to a request that had to wait.
pub fn held(waited: Duration, early: bool) -> [(HeaderName, String); 2] {
    let milliseconds = waited.as_secs_f64() * 1e3;
    let what = if early {
        "held until its probes passed"
    } else {
        "held"
    };
    let timing = format!("elasti;dur={milliseconds:.1};desc=\"{what}\"");
    [
        (SERVER_TIMING, timing),
        (HELD, format!("{milliseconds:.0}ms")),
    ]
}

// === impl Known ===

impl Known {
    fn of(headers: &HeaderMap) -> Self {
        let mut known = Self::default();
        for name in headers.keys() {
            match name.as_str() {
                "x-forwarded-for" => known.client = true,
                "x-forwarded-host" => known.host = true,
                "x-forwarded-proto" => known.protocol = true,
                "traceparent" => known.trace = true,
                _ => {}
            }
        }
        known
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(pairs: &[(&'static str, &'static str)]) -> HeaderMap {
        pairs
            .iter()
            .map(|(name, value)| {
                (
                    HeaderName::from_static(name),
                    HeaderValue::from_static(value),
                )
            })
            .collect()
    }

    #[test]
    fn hop_by_hop_headers_end_here() {
        let mut all = headers(&[
            ("connection", "close, TE, X-Secret"),
            ("x-secret", "1"),
            ("keep-alive", "timeout=5"),
            ("transfer-encoding", "chunked"),
            ("te", "gzip, trailers"),
            ("accept", "*/*"),
        ]);
        assert!(!end_hop(&mut all));
        assert_eq!(all, headers(&[("accept", "*/*"), ("te", "trailers")]));
    }

    #[test]
    fn a_websocket_is_asked_for_and_h2c_is_not() {
        let mut websocket = headers(&[
            ("connection", "keep-alive, Upgrade"),
            ("upgrade", "websocket"),
        ]);
        assert!(end_hop(&mut websocket));
        assert_eq!(websocket["upgrade"], "websocket");
        assert_eq!(websocket["connection"], "Upgrade");
        let mut h2c = headers(&[
            ("connection", "Upgrade, HTTP2-Settings"),
            ("upgrade", "h2c"),
            ("http2-settings", "AAMAAABkAAQCAAAAAAIAAAAA"),
        ]);
        assert!(!end_hop(&mut h2c));
        assert!(h2c.is_empty(), "{h2c:?}");
    }

    #[test]
    fn forwarding_is_told_and_nothing_is_taken_away() {
        let mut all = headers(&[
            ("host", "web.shop"),
            ("x-forwarded-for", "10.0.0.1"),
            ("x-forwarded-proto", "https"),
        ]);
        forwarded(
            &mut all,
            &Uri::from_static("/"),
            &client("::ffff:10.0.0.2".parse().unwrap()),
        );
        assert_eq!(all["x-forwarded-for"], "10.0.0.1, 10.0.0.2");
        assert_eq!(all["x-forwarded-host"], "web.shop");
        assert_eq!(all["x-forwarded-proto"], "https");
        assert_eq!(all["traceparent"].len(), 55);
        let trace = all["traceparent"].clone();
        forwarded(
            &mut all,
            &Uri::from_static("/"),
            &client("10.0.0.3".parse().unwrap()),
        );
        assert_eq!(all["traceparent"], trace);
    }
}

//! Heads of messages, from bytes to bytes: what a proxy has to change, and no more.

use super::body::Body;
use crate::proxy::{
    framing::{Framing, length},
    headers,
};
use http::{Method, StatusCode};
use httparse::{Header, ParserConfig, Request, Response, Status};
use std::mem::MaybeUninit;

/// What a request asks for, beside what is passed on.
#[derive(Debug, PartialEq, Eq)]
pub struct Asked {
    pub method: Method,
    /// The client wants no more than this.
    pub close: bool,
}

/// How a target begins to answer.
#[derive(Debug)]
pub enum Seen {
    /// There is more to come.
    Part,
    /// Nothing that could be passed on.
    Nonsense,
    Whole(Begun),
}

#[derive(Debug)]
pub struct Begun {
    pub status: StatusCode,
    /// Of the head, and of all that came before it and is not passed on.
    pub length: usize,
    pub body: Body,
    /// Whether the target takes another request on this connection.
    pub keep: bool,
}

/// hyper's own limit.
const MOST_FIELDS: usize = 100;

/// Writes the head that the target gets. `None` for whatever is not one whole request, without a body and without
/// anything that somebody has to think about.
pub fn request(head: &[u8], client: &[u8], out: &mut Vec<u8>) -> Option<Asked> {
    let mut framing = Framing::default();
    framing.follow(head).ok()?;
    let mut fields = [const { MaybeUninit::uninit() }; MOST_FIELDS];
    let mut request = Request::new(&mut []);
    let parsed = request.parse_with_uninit_headers(head, &mut fields);
    if parsed != Ok(Status::Complete(head.len())) || request.version != Some(1) {
        return None;
    }
    let method = match request.method? {
        "GET" => Method::GET,
        "HEAD" => Method::HEAD,
        "OPTIONS" => Method::OPTIONS,
        "DELETE" => Method::DELETE,
        _ => return None,
    };
    let path = request.path.filter(|path| is_plain(path))?;
    out.clear();
    for part in [method.as_str(), " ", path, " HTTP/1.1\r\n"] {
        out.extend_from_slice(part.as_bytes());
    }
    let (mut host, mut close) = (None, false);
    let (mut chain, mut has_host, mut has_protocol, mut has_trace) = (None, false, false, false);
    for field in &*request.headers {
        let is = |name: &str| field.name.eq_ignore_ascii_case(name);
        match field.name.len() {
            2 if is("te") => return None,
            4 if is("host") => host = Some(field.value),
            6 if is("expect") => return None,
            7 if is("upgrade") || is("trailer") => return None,
            10 if is("keep-alive") => continue,
            10 if is("connection") => {
                match field.value {
                    value if value.eq_ignore_ascii_case(b"keep-alive") => {}
                    value if value.eq_ignore_ascii_case(b"close") => close = true,
                    _ => return None,
                }
                continue;
            }
            11 if is("traceparent") => has_trace = true,
            14 if is("content-length") => return None,
            15 if is("x-forwarded-for") => {
                if chain.replace(field.value).is_some() || !field.value.is_ascii() {
                    return None;
                }
                continue;
            }
            16 if is("x-forwarded-host") => has_host = true,
            16 if is("proxy-connection") => return None,
            17 if is("transfer-encoding") => return None,
            17 if is("x-forwarded-proto") => has_protocol = true,
            _ => {}
        }
        write_field(out, field.name, &[field.value]);
    }
    let host = host?;
    match chain {
        Some(chain) => write_field(out, "x-forwarded-for", &[chain, b", ", client]),
        None => write_field(out, "x-forwarded-for", &[client]),
    }
    if !has_host {
        write_field(out, "x-forwarded-host", &[host]);
    }
    if !has_protocol {
        write_field(out, "x-forwarded-proto", &[b"http"]);
    }
    if !has_trace {
        write_field(out, "traceparent", &[&headers::new_trace()]);
    }
    out.extend_from_slice(b"\r\n");
    Some(Asked { method, close })
}

/// Writes the head that the client gets. `more` adds to it, and is told whether it says when it was given.
pub fn answer(
    bytes: &[u8],
    method: &Method,
    out: &mut Vec<u8>,
    more: impl FnOnce(&mut Vec<u8>, bool),
) -> Seen {
    let mut before = 0;
    loop {
        let mut fields = [const { MaybeUninit::uninit() }; MOST_FIELDS];
        let mut response = Response::new(&mut []);
        let parser = ParserConfig::default();
        let rest = &bytes[before..];
        let parsed = parser.parse_response_with_uninit_headers(&mut response, rest, &mut fields);
        let head = match parsed {
            Ok(Status::Complete(head)) => head,
            Ok(Status::Partial) => return Seen::Part,
            Err(_) => return Seen::Nonsense,
        };
        before += head;
        // The real answer follows.
        if matches!(response.code, Some(100 | 102..200)) {
            continue;
        }
        let Some(begun) = begun(&response, method, before) else {
            return Seen::Nonsense;
        };
        out.clear();
        let is_dated = write_answer(&response, &begun, out);
        more(out, is_dated);
        out.extend_from_slice(b"\r\n");
        return Seen::Whole(begun);
    }
}

/// `None` if the length of the answer can be read in more than one way, or if it grants what nobody asked for.
fn begun(response: &Response<'_, '_>, method: &Method, head: usize) -> Option<Begun> {
    let status = StatusCode::from_u16(response.code?).ok()?;
    if status == StatusCode::SWITCHING_PROTOCOLS {
        return None;
    }
    let is_new = response.version == Some(1);
    let (mut chunked, mut size, mut keep, mut close) = (false, None, is_new, false);
    for field in &*response.headers {
        let is = |name: &str| field.name.eq_ignore_ascii_case(name);
        match field.name.len() {
            10 if is("connection") => {
                for token in tokens(field.value) {
                    close |= token.eq_ignore_ascii_case(b"close");
                    keep |= token.eq_ignore_ascii_case(b"keep-alive");
                }
            }
            14 if is("content-length") => {
                let said = length(field.value)?;
                if size.replace(said).is_some_and(|known| known != said) {
                    return None;
                }
            }
            17 if is("transfer-encoding") => {
                if chunked || !is_new || !field.value.eq_ignore_ascii_case(b"chunked") {
                    return None;
                }
                chunked = true;
            }
            _ => {}
        }
    }
    let bodiless = *method == Method::HEAD || matches!(status.as_u16(), 204 | 304);
    let body = match (chunked, size) {
        (true, Some(_)) => return None,
        _ if bodiless => Body::Length(0),
        (true, None) => Body::chunked(),
        (false, Some(size)) => Body::Length(size),
        (false, None) => Body::UntilClosed,
    };
    Some(Begun {
        status,
        length: head,
        keep: keep && !close && !body.is_cut_anew(),
        body,
    })
}

/// Whether it says when it was given.
fn write_answer(response: &Response<'_, '_>, begun: &Begun, out: &mut Vec<u8>) -> bool {
    let reason = response.reason.unwrap_or_default();
    for part in ["HTTP/1.1 ", begun.status.as_str(), " ", reason, "\r\n"] {
        out.extend_from_slice(part.as_bytes());
    }
    let fields = response.headers.iter();
    let named: Vec<&[u8]> = fields
        .filter(|field| field.name.eq_ignore_ascii_case("connection"))
        .flat_map(|field| tokens(field.value))
        .filter(|token| !headers::is_usual(token) && !is_framing(token))
        .collect();
    let (mut has_length, mut is_dated) = (false, false);
    for field in &*response.headers {
        let is = |name: &str| field.name.eq_ignore_ascii_case(name);
        let ends_here = match field.name.len() {
            2 => is("te"),
            7 => is("upgrade"),
            10 => is("connection") || is("keep-alive"),
            // Two that are equal are said once.
            14 if is("content-length") => {
                begun.status == StatusCode::NO_CONTENT || std::mem::replace(&mut has_length, true)
            }
            16 => is("proxy-connection"),
            17 => is("transfer-encoding") && !matches!(begun.body, Body::Chunked(_)),
            _ => false,
        };
        if !ends_here && !is_named(field, &named) {
            is_dated |= is("date");
            write_field(out, field.name, &[field.value]);
        }
    }
    if begun.body.is_cut_anew() {
        write_field(out, "transfer-encoding", &[b"chunked"]);
    }
    is_dated
}

/// No word of a target takes the length of an answer from it.
fn is_framing(name: &[u8]) -> bool {
    name.eq_ignore_ascii_case(b"content-length") || name.eq_ignore_ascii_case(b"transfer-encoding")
}

fn is_named(field: &Header<'_>, named: &[&[u8]]) -> bool {
    named
        .iter()
        .any(|name| name.eq_ignore_ascii_case(field.name.as_bytes()))
}

fn tokens(value: &[u8]) -> impl Iterator<Item = &[u8]> {
    value.split(|byte| *byte == b',').map(<[u8]>::trim_ascii)
}

/// Nothing that any parser could take for something else.
fn is_plain(path: &str) -> bool {
    let is_odd = |byte: u8| {
        !byte.is_ascii_graphic()
            || matches!(
                byte,
                b'#' | b'"' | b'<' | b'>' | b'\\' | b'^' | b'`' | b'{' | b'|' | b'}'
            )
    };
    path.starts_with('/') && !path.bytes().any(is_odd)
}

pub fn write_field(out: &mut Vec<u8>, name: &str, value: &[&[u8]]) {
    out.extend_from_slice(name.as_bytes());
    out.extend_from_slice(b": ");
    for part in value {
        out.extend_from_slice(part);
    }
    out.extend_from_slice(b"\r\n");
}

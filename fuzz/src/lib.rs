//! What holds for whatever a stranger sends. `cargo fuzz run TARGET` in this directory looks for exceptions;
//! `cargo test -p elasti-resolver --test fuzz` tries the corpus and some thousand mutations of it.

use elasti_api::ProbeRule;
use elasti_core::{
    host::{self, ServiceName},
    probe::{self, ProbeRules},
};
use elasti_resolver::proxy::{
    framing::Framing,
    peek::{Spoken, spoken},
    plain::head::{self, Seen},
};
use http::{Method, Response, Version, header, uri::Authority};
use http_body_util::{BodyExt, Full};
use hyper::{body::Bytes, server::conn::http1, service::service_fn};
use hyper_util::rt::TokioIo;
use std::{cell::RefCell, convert::Infallible};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

const DOMAIN: &str = "cluster.local";
/// Longer ones show nothing new.
const LONGEST: usize = 8 * 1024;

/// Whatever a Host says, it names a pair of DNS labels or nothing, and always the same.
pub fn host(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let Some(found) = host::service(&text, DOMAIN) else {
        return;
    };
    for label in [&found.name, &found.namespace] {
        let inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
        assert!((1..=63).contains(&label.len()), "{label:?}");
        assert!(label.bytes().all(inner), "{label:?}");
        assert!(
            !label.starts_with('-') && !label.ends_with('-'),
            "{label:?}"
        );
    }
    let ServiceName { namespace, name } = &found;
    let whole = format!("http://{name}.{namespace}.svc.{DOMAIN}:80/");
    assert_eq!(host::service(&whole, DOMAIN).as_ref(), Some(&found));
    if let Ok(authority) = text.parse::<Authority>() {
        let by_host = host::service(authority.host(), DOMAIN);
        assert_eq!(
            by_host.as_ref(),
            Some(&found),
            "as other parsers read {text:?}"
        );
    }
}

/// What is told by the first bytes stays true of the rest, and whatever the parser takes was told to be HTTP.
pub fn peek(data: &[u8]) {
    let mut told = None;
    for end in 1..=data.len().min(64) {
        let now = spoken(&data[..end]);
        assert!(told.is_none() || told == now, "{told:?}, then {now:?}");
        told = now;
    }
    let (requests, _) = parsed(data);
    if requests.is_empty() || data.starts_with(b"\r") || data.starts_with(b"\n") {
        return;
    }
    let method = requests[0].method.as_str().as_bytes();
    let target = data.get(method.len() + 1).copied().unwrap_or_default();
    let plain = method.len() < 24 && method.iter().all(u8::is_ascii_uppercase);
    if plain && matches!(target, b'/' | b'*') {
        assert_eq!(told, Some(Spoken::Http1), "{}", data.escape_ascii());
    }
}

/// The parser never sees a message that the check has not seen, and none that can be read in two ways.
pub fn framing(data: &[u8]) {
    let data = &data[..data.len().min(LONGEST)];
    let mut framing = Framing::default();
    let followed = framing.follow(data);
    let mut passed = data.to_vec();
    if let Err(ambiguous) = followed {
        assert!(ambiguous.after < data.len());
        passed.truncate(ambiguous.after);
        if ambiguous.in_head {
            passed.extend(b"\0\n\n");
        }
    }
    let (requests, answers) = parsed(&passed);
    assert!(requests.len() <= framing.heads(), "{requests:?}");
    assert!(requests.iter().all(|request| request.hosts <= 1));
    let ends = |request: &Parsed| request.is_last || !request.is_whole;
    let goes_on = !requests.iter().any(ends);
    let refused =
        answers.contains(" 400 ") || answers.contains(" 431 ") || answers.contains(" 414 ");
    if goes_on && !refused && followed.is_ok() {
        assert_eq!(requests.len(), framing.heads(), "{answers}");
    }
    if let Err(ambiguous) = followed
        && ambiguous.in_head
        && goes_on
        && requests.len() == framing.heads()
    {
        assert!(
            refused,
            "{:?} was taken: {answers}",
            data.escape_ascii().to_string()
        );
    }
    let mut pieces = Framing::default();
    let by_bytes = data.iter().try_for_each(|byte| pieces.follow(&[*byte]));
    assert_eq!(by_bytes.is_ok(), followed.is_ok(), "in pieces as in one");
    assert_eq!(pieces.heads(), framing.heads());
}

/// What passes as bytes is one request without a body, and that is what becomes of it; and an answer stays what it is.
pub fn plain(data: &[u8]) {
    let data = &data[..data.len().min(LONGEST)];
    let mut passed = Vec::new();
    if let Some(asked) = head::request(data, b"10.0.0.1", &mut passed) {
        for bytes in [data, &passed] {
            let shown = bytes.escape_ascii();
            let (requests, answers) = parsed(bytes);
            assert_eq!(requests.len(), 1, "{shown}: {answers}");
            assert_eq!(requests[0].method, asked.method, "{shown}");
            assert!(requests[0].is_whole && requests[0].hosts == 1, "{shown}");
            let mut framing = Framing::default();
            assert_eq!(framing.follow(bytes), Ok(()), "{shown}");
            assert!(framing.is_between() && framing.heads() == 1, "{shown}");
        }
    }
    let answered =
        |bytes: &[u8], out: &mut Vec<u8>| match head::answer(bytes, &Method::GET, out, |_, _| {}) {
            Seen::Whole(begun) => Some((begun.status, begun.length, format!("{:?}", begun.body))),
            Seen::Part | Seen::Nonsense => None,
        };
    let Some((status, length, body)) = answered(data, &mut passed) else {
        return;
    };
    assert!(length <= data.len());
    let mut again = Vec::new();
    let shown = passed.escape_ascii();
    let Some((same, all, still)) = answered(&passed, &mut again) else {
        panic!("no answer: {shown}");
    };
    assert_eq!((same, all), (status, passed.len()), "{shown}");
    let cut_anew = body == "UntilClosed" && still.starts_with("Chunked");
    assert!(still == body || cut_anew, "{body} became {still}: {shown}");
    assert_eq!(passed, again);
}

/// Rules in JSON, an empty line, and a request. The first rule that alone would answer is the one that does.
pub fn probe(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let (rules, request) = text.split_once("\n\n").unwrap_or((&text, "GET /"));
    let Ok(rules) = serde_json::from_str::<Vec<ProbeRule>>(rules) else {
        return;
    };
    let mut lines = request.lines();
    let (method, target) = lines
        .next()
        .and_then(|line| line.split_once(' '))
        .unwrap_or(("GET", "/"));
    let (path, query) = match target.split_once('?') {
        Some((path, query)) => (path, Some(query)),
        None => (target, None),
    };
    let headers: Vec<_> = lines.filter_map(|line| line.split_once(": ")).collect();
    let any_header = |name: &str, test: &probe::ValueTest<'_>| {
        let mut given = headers.iter();
        given.any(|(other, value)| other.eq_ignore_ascii_case(name) && test(value.as_bytes()))
    };
    let request = probe::Request {
        method,
        path,
        query,
        any_header: &any_header,
    };
    let answer = |rules: &[ProbeRule]| {
        let (rules, errors) = ProbeRules::compile(rules);
        assert!(errors.iter().all(|error| !error.to_string().contains('\n')));
        rules.answer(&request).cloned()
    };
    let alone = rules
        .iter()
        .find_map(|rule| answer(std::slice::from_ref(rule)));
    assert_eq!(answer(&rules), alone);
}

#[derive(Debug)]
struct Parsed {
    method: Method,
    hosts: usize,
    /// The parser takes no other after it.
    is_last: bool,
    /// Its body came to its end.
    is_whole: bool,
}

/// What the resolver's parser makes of it, and what it says.
fn parsed(data: &[u8]) -> (Vec<Parsed>, String) {
    let seen = RefCell::new(Vec::new());
    let service = service_fn(|request: hyper::Request<hyper::body::Incoming>| {
        let headers = request.headers();
        let parsed = Parsed {
            method: request.method().clone(),
            hosts: headers.get_all(header::HOST).iter().count(),
            is_last: headers.contains_key(header::CONNECTION)
                || request.version() == Version::HTTP_10
                || request.method() == Method::CONNECT,
            is_whole: false,
        };
        seen.borrow_mut().push(parsed);
        let seen = &seen;
        async move {
            let whole = request.into_body().collect().await.is_ok();
            if let Some(last) = seen.borrow_mut().last_mut() {
                last.is_whole = whole;
            }
            Ok::<_, Infallible>(Response::new(Full::<Bytes>::default()))
        }
    });
    let mut answers = Vec::new();
    let conversation = async {
        let (mut client, server) = tokio::io::duplex(1 << 20);
        let connection = http1::Builder::new()
            .half_close(true)
            .max_headers(128)
            .max_buf_size(64 * 1024)
            .serve_connection(TokioIo::new(server), service);
        let talk = async {
            let _ = client.write_all(data).await;
            let _ = client.shutdown().await;
            let _ = client.read_to_end(&mut answers).await;
        };
        let _ = tokio::join!(async { drop(connection.await) }, talk);
    };
    match tokio::runtime::Builder::new_current_thread().build() {
        Ok(runtime) => runtime.block_on(conversation),
        Err(error) => panic!("{error}"),
    }
    let answers = String::from_utf8_lossy(&answers).into_owned();
    (seen.into_inner(), answers)
}

//! Requests: held until the target can take them, then forwarded as they are.

use super::{
    Arrival, Leave, Proxy,
    answer::{self, Answer, Asked, Carrier, Refusal, Refused},
    coming::Coming,
    headers,
    line::Line,
    upload::{Sent, Upload},
    upstream::How,
};
use crate::{
    room::{Busy, Turned, Visit},
    route::{Speaks, Way},
};
use elasti_api::probe::ProbeAnswer;
use elasti_core::probe;
use http::{
    HeaderValue, Method, Request, Response, StatusCode, Uri, Version,
    header::{self, Entry},
    request::Parts,
};
use http_body_util::{Either, Empty};
use hyper::body::{Body, Incoming};
use hyper::upgrade::OnUpgrade;
use std::{io, sync::Arc};

/// Why a request gets no answer at all.
#[derive(Debug, thiserror::Error)]
pub enum Unanswered {
    #[error("the client has left")]
    Left,
    /// For a client that may send it again itself: we no longer can.
    #[error("the target refused the stream")]
    Refused(#[source] h2::Error),
}

/// What came of a request that was not answered by the target.
enum Failed {
    Refused(Refusal),
    Unanswered(Unanswered),
}

/// Answers one request. Whoever drops this frees the seat.
pub(super) async fn answer(
    proxy: &Proxy,
    way: Option<&Arc<Way>>,
    arrival: Option<Arrival>,
    client: &HeaderValue,
    line: Option<&Line>,
    request: Request<Incoming>,
) -> Result<Response<Answer>, Unanswered> {
    // Of HTTP/1 the check before the parser has refused such.
    if request.version() == Version::HTTP_2 && headers::has_two_hosts(request.headers()) {
        return Ok(proxy.refuse(way, Refusal::Malformed, None, &request));
    }
    let named;
    let way = match way {
        Some(way) => way,
        None => {
            let table = proxy.table();
            let found = table.named(&proxy.settings.naming, request.uri(), request.headers());
            let room = found.as_ref().map(|way| &*way.room);
            proxy.metrics.found(false, room);
            match found {
                Some(way) => {
                    named = way;
                    &named
                }
                None => return Ok(proxy.refuse(None, Refusal::Unknown, None, &request)),
            }
        }
    };
    let probed = probed(way, &request);
    if let Some(answer) = probed
        && !way.room.is_awake()
    {
        let answer = answer::probe(answer, request.method());
        let (method, status) = (request.method(), answer.status());
        proxy.metrics.probed(&way.room, method, status);
        return Ok(answer);
    }
    let (visit, refusal) = match arrival {
        Some(arrival) => (arrival.visit, arrival.refusal),
        None => (way.visit(), None),
    };
    let mut visit = match probed {
        Some(_) => visit.without_count(),
        None => visit,
    };
    if let Some(refusal) = refusal {
        return Ok(proxy.refuse(Some(way), refusal, Some(&visit), &request));
    }
    if request.method() == Method::CONNECT {
        let refusal = Refusal::Unsupported;
        return Ok(proxy.refuse(Some(way), refusal, Some(&visit), &request));
    }
    let (version, method) = (request.version(), request.method().clone());
    let asked = Asked::of(request.headers());
    let leave = request.extensions().get().cloned();
    let (mut parts, body) = request.into_parts();
    let upgrade = prepare(&mut parts, way, client);
    match forward(proxy, way, &mut visit, line, parts, body).await {
        Ok((mut response, mut carrier)) => {
            let websocket = headers::end_hop(response.headers_mut());
            if version == Version::HTTP_2 {
                headers::join_lengths(response.headers_mut());
            }
            if response.status() == StatusCode::SWITCHING_PROTOCOLS {
                let Some(upgrade) = upgrade.filter(|_| websocket) else {
                    let (room, refusal) = (Some(&*way.room), Refusal::Broken);
                    proxy.metrics.refused(room, &method, refusal, visit.age());
                    return Ok(refused(Some(way), refusal, Some(&visit), asked));
                };
                let status = response.status();
                proxy.metrics.held(&way.room, visit.waited());
                proxy
                    .metrics
                    .answered(&way.room, &method, status, visit.age());
                if let Some(single) = carrier.single.take() {
                    proxy.upstreams.let_go_of(single);
                }
                proxy.connect_upgrades(upgrade, hyper::upgrade::on(&mut response), carrier);
                let carrier = None;
                return Ok(response.map(|body| Answer::Target { body, carrier }));
            }
            finish(proxy, way, &visit, version, leave, &mut response);
            let status = response.status();
            proxy
                .metrics
                .answered(&way.room, &method, status, visit.age());
            Ok(response.map(|body| Answer::Target {
                body,
                carrier: Some(carrier),
            }))
        }
        Err(Failed::Unanswered(why)) => {
            if matches!(why, Unanswered::Refused(_)) {
                let (room, refusal) = (Some(&*way.room), Refusal::Broken);
                proxy.metrics.refused(room, &method, refusal, visit.age());
            }
            Err(why)
        }
        Err(Failed::Refused(refusal)) => {
            let room = Some(&*way.room);
            proxy.metrics.refused(room, &method, refusal, visit.age());
            Ok(refused(Some(way), refusal, Some(&visit), asked))
        }
    }
}

/// What a rule answers in the target's name while it sleeps, without waking it.
fn probed<'a>(way: &'a Way, request: &Request<Incoming>) -> Option<&'a ProbeAnswer> {
    if way.rules.is_empty() {
        return None;
    }
    let headers = request.headers();
    let any_header = |name: &str, test: &probe::ValueTest<'_>| {
        headers
            .get_all(name)
            .iter()
            .any(|value| test(value.as_bytes()))
    };
    let asked = probe::Request {
        method: request.method().as_str(),
        path: request.uri().path(),
        query: request.uri().query(),
        any_header: &any_header,
    };
    way.rules.answer(&asked)
}

/// Makes the head one of our own. An upgrade is for later.
fn prepare(parts: &mut Parts, way: &Way, client: &HeaderValue) -> Option<OnUpgrade> {
    let websocket = headers::end_hop(&mut parts.headers);
    headers::forwarded(&mut parts.headers, &parts.uri, client);
    if parts.version == Version::HTTP_2 {
        headers::join_cookies(&mut parts.headers);
        headers::join_lengths(&mut parts.headers);
    }
    // HTTP/1.0 needs none, and what we send to the target does.
    if let Entry::Vacant(vacant) = parts.headers.entry(header::HOST)
        && let Ok(host) = format!("{}.{}", way.room.service, way.room.namespace).try_into()
    {
        vacant.insert(host);
    }
    // The body is asked for when the target is there to take it; over HTTP/1 hyper says 100 then.
    parts.headers.remove(header::EXPECT);
    let upgrade = parts.extensions.remove::<OnUpgrade>();
    upgrade.filter(|_| websocket)
}

async fn forward(
    proxy: &Proxy,
    way: &Way,
    visit: &mut Visit,
    line: Option<&Line>,
    parts: Parts,
    body: Incoming,
) -> Result<(Response<Coming>, Carrier), Failed> {
    let http2 = match way.speaks {
        Speaks::Http1 => false,
        Speaks::Http2 => true,
        Speaks::Anything | Speaks::Opaque => parts.version == Version::HTTP_2,
    };
    let multiplexed = parts.version == Version::HTTP_2;
    let has_body = !body.is_end_stream();
    let replayable = parts.method.is_idempotent() && !has_body;
    let copy = (replayable || (http2 && !has_body)).then(|| parts.clone());
    let body = if has_body {
        Either::Left(Upload::new(body, multiplexed))
    } else {
        Either::Right(Empty::new())
    };
    let mut request = addressed(Request::from_parts(parts, body), http2);
    let mut given_back = 0;
    loop {
        // What it takes to wait is large, and boxed: most need not.
        let mut busy = match visit.endpoint_now(&way.port) {
            Some(busy) => busy,
            None => Box::pin(found(way, visit, line)).await?,
        };
        let connected = if http2 {
            proxy.upstreams.http2(&busy, visit.deadline()).await
        } else {
            // What cannot be sent twice goes where no old connection can break.
            let upstreams = &proxy.upstreams;
            let fresh = !replayable || visit.has_fallen() || given_back > 0;
            upstreams.http1(&busy, !fresh, visit.deadline()).await
        };
        let mut connection = match connected {
            Ok(connection) => connection,
            Err(error) if error.kind() == io::ErrorKind::InvalidData => {
                tracing::debug!(%error, "A target does not speak HTTP/2");
                return Err(Refusal::Broken.into());
            }
            Err(_) => {
                visit.failed(&busy)?;
                continue;
            }
        };
        // Boxed, as above: whoever waits should not carry the room for it.
        let failed = match Box::pin(connection.send(request)).await {
            Ok(response) if !headers::is_framed_once(response.headers()) => {
                return Err(Refusal::Broken.into());
            }
            Ok(response) => {
                busy.keep(connection.lease());
                let upstreams = proxy.upstreams.clone();
                let mut single = connection.single();
                // The rest of a body goes on its way, also while the client does not take the answer.
                if has_body && let Some(single) = single.take() {
                    upstreams.let_go_of(single);
                }
                let carrier = Carrier {
                    busy,
                    single,
                    upstreams,
                };
                return Ok((response, carrier));
            }
            Err(failed) => failed,
        };
        let again = || {
            let request = Request::from_parts(copy.clone()?, Either::Right(Empty::new()));
            Some(addressed(request, http2))
        };
        let untouched = matches!(failed.how, How::Untouched);
        let may_fall = visit.may_fall_again();
        let next = match failed.how {
            How::Unsent(request) => {
                // A connection that was kept may have ended meanwhile. Another says that none will do for now.
                if given_back > 0 {
                    busy.shun_for(given_back - 1);
                }
                given_back += 1;
                request.map(|request| *request).or_else(again)
            }
            How::Untouched if may_fall => {
                visit.fell();
                again()
            }
            How::Died if may_fall && replayable => {
                visit.fell();
                again()
            }
            How::GivenUp if multiplexed => return Err(Unanswered::Left.into()),
            How::GivenUp => return Err(Refusal::Malformed.into()),
            How::Untouched | How::Died | How::Broken => None,
        };
        let Some(next) = next else {
            if multiplexed && untouched {
                let refused = h2::Reason::REFUSED_STREAM.into();
                return Err(Unanswered::Refused(refused).into());
            }
            tracing::debug!(error = %failed.error, "A target broke the connection");
            return Err(Refusal::Broken.into());
        };
        visit.failed(&busy)?;
        request = next;
    }
}

async fn found(way: &Way, visit: &mut Visit, line: Option<&Line>) -> Result<Busy, Failed> {
    let wait = visit.endpoint(&way.port);
    let found = match line {
        Some(line) => line.unless_left(wait).await.ok_or(Unanswered::Left)?,
        None => wait.await,
    };
    Ok(found?)
}

/// The form in which the target's protocol gives the address.
fn addressed(mut request: Request<Sent>, http2: bool) -> Request<Sent> {
    let path = request.uri().path_and_query().cloned();
    let mut uri = http::uri::Parts::default();
    if http2 {
        // It knows no upgrades.
        request.headers_mut().remove(header::CONNECTION);
        request.headers_mut().remove(header::UPGRADE);
        let host = request.headers_mut().remove(header::HOST);
        let known = request.uri().authority().cloned();
        let named = host.and_then(|host| host.as_bytes().try_into().ok());
        uri.scheme = Some(http::uri::Scheme::HTTP);
        uri.authority = known
            .or(named)
            .or_else(|| Some(http::uri::Authority::from_static("target")));
        *request.version_mut() = Version::HTTP_2;
    } else {
        *request.version_mut() = Version::HTTP_11;
        if has_unknown_length(&request) {
            let chunked = HeaderValue::from_static("chunked");
            request
                .headers_mut()
                .insert(header::TRANSFER_ENCODING, chunked);
        }
    }
    uri.path_and_query = path.or_else(|| Some(http::uri::PathAndQuery::from_static("/")));
    if let Ok(uri) = Uri::from_parts(uri) {
        *request.uri_mut() = uri;
    }
    request
}

/// Hyper takes a GET without a word about its length for one without a body.
fn has_unknown_length(request: &Request<Sent>) -> bool {
    !request.body().is_end_stream() && !request.headers().contains_key(header::CONTENT_LENGTH)
}

fn finish(
    proxy: &Proxy,
    way: &Way,
    visit: &Visit,
    version: Version,
    leave: Option<Leave>,
    response: &mut Response<Coming>,
) {
    let waited = visit.waited();
    proxy.metrics.held(&way.room, waited);
    if let Some(waited) = waited.filter(|_| proxy.settings.mark_held) {
        for (name, value) in headers::held(waited, visit.was_early()) {
            if let Ok(value) = value.try_into() {
                response.headers_mut().append(name, value);
            }
        }
    }
    if !way.room.is_serving() {
        return;
    }
    if version < Version::HTTP_2 {
        let close = HeaderValue::from_static("close");
        response.headers_mut().insert(header::CONNECTION, close);
    } else if let Some(Leave(leave)) = leave {
        leave.cancel();
    }
}

impl From<Refusal> for Failed {
    fn from(refusal: Refusal) -> Self {
        Self::Refused(refusal)
    }
}

impl From<Turned> for Failed {
    fn from(turned: Turned) -> Self {
        Self::Refused(turned.into())
    }
}

impl From<Unanswered> for Failed {
    fn from(why: Unanswered) -> Self {
        Self::Unanswered(why)
    }
}

impl From<Turned> for Refusal {
    fn from(turned: Turned) -> Self {
        match turned {
            Turned::Full => Self::Full,
            Turned::Late => Self::Late,
            Turned::Gone => Self::Gone,
        }
    }
}

impl Proxy {
    fn refuse(
        &self,
        way: Option<&Arc<Way>>,
        refusal: Refusal,
        visit: Option<&Visit>,
        request: &Request<Incoming>,
    ) -> Response<Answer> {
        let waited = visit.map(Visit::age).unwrap_or_default();
        let room = way.map(|way| &*way.room);
        self.metrics
            .refused(room, request.method(), refusal, waited);
        refused(way, refusal, visit, Asked::of(request.headers()))
    }
}

fn refused(
    way: Option<&Arc<Way>>,
    refusal: Refusal,
    visit: Option<&Visit>,
    asked: Asked,
) -> Response<Answer> {
    Refused {
        refusal,
        service: way.map(|way| format!("{}/{}", way.room.namespace, way.room.service)),
        waited: visit.map(Visit::age).unwrap_or_default(),
        asked,
    }
    .into_response()
}

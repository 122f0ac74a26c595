//! As much of gRPC as a call needs.

use anyhow::Result;
use hyper::{Request, body::Bytes};

pub fn call<B>(body: B) -> Result<Request<B>> {
    let request = Request::post("http://web/echo.Echo/Call")
        .header("content-type", "application/grpc")
        .header("te", "trailers");
    Ok(request.body(body)?)
}

/// Not compressed, and its length before it.
pub fn message(word: &str) -> Bytes {
    let length = u32::try_from(word.len()).unwrap_or_default();
    let head = [0].into_iter().chain(length.to_be_bytes());
    head.chain(word.bytes()).collect()
}

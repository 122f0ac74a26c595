//! What is asked of each.

use super::{h2load, rivals::Rival};
use crate::{
    helper::{Helper, Moved, Passed, Role, Way},
    process::Core,
    stage::Stage,
};
use anyhow::Result;
use serde::de::DeserializeOwned;

pub(super) struct Case {
    pub(super) name: &'static str,
    pub(super) unit: &'static str,
    protocol: Protocol,
    what: What,
}

#[derive(Clone, Copy)]
enum Protocol {
    Http1,
    Http2,
    Tcp,
}

#[derive(Clone, Copy)]
enum What {
    Small,
    /// On a new connection each time.
    Fresh,
    /// MiB in one answer.
    Large(u64),
}

/// What went through, and in what time.
pub(super) struct Went {
    pub(super) per_second: f64,
    pub(super) seconds: f64,
}

const MILLISECONDS: u64 = 400;
const SECONDS: f64 = MILLISECONDS as f64 / 1e3;
const CONNECTIONS: usize = 64;
const REQUESTS: &str = "requests/s";
const MIB: &str = "MiB/s";

pub(super) const CASES: [&Case; 8] = [
    &case("HTTP/1, kept alive", REQUESTS, Protocol::Http1, What::Small),
    &case(
        "HTTP/1, new connections",
        REQUESTS,
        Protocol::Http1,
        What::Fresh,
    ),
    &case("HTTP/1, 256 MiB", MIB, Protocol::Http1, What::Large(256)),
    &case("h2c, small", REQUESTS, Protocol::Http2, What::Small),
    &case("h2c, 256 MiB", MIB, Protocol::Http2, What::Large(256)),
    &case("TCP, messages", REQUESTS, Protocol::Tcp, What::Small),
    &case("TCP, new connections", REQUESTS, Protocol::Tcp, What::Fresh),
    &case("TCP, 1 GiB", MIB, Protocol::Tcp, What::Large(1_024)),
];

const fn case(name: &'static str, unit: &'static str, protocol: Protocol, what: What) -> Case {
    Case {
        name,
        unit,
        protocol,
        what,
    }
}

// === impl Case ===

impl Case {
    pub(super) async fn ask(&self, stage: &Stage<'_>, rival: &Rival) -> Result<Went> {
        let address = match self.protocol {
            Protocol::Http1 => rival.http,
            Protocol::Http2 => return self.ask_http2(stage, rival).await,
            Protocol::Tcp => rival.opaque,
        };
        match self.what {
            What::Large(mib) => {
                let (way, bytes) = (Way::Down, mib << 20);
                let role = Role::Body {
                    address,
                    way,
                    bytes,
                };
                let moved: Moved = helped(stage, role).await?;
                Ok(Went::moved(mib, moved.seconds))
            }
            What::Small | What::Fresh => {
                let role = Role::Load {
                    address,
                    connections: CONNECTIONS,
                    fresh: matches!(self.what, What::Fresh),
                    milliseconds: MILLISECONDS,
                };
                let passed: Passed = helped(stage, role).await?;
                Ok(Went {
                    per_second: passed.per_second,
                    seconds: SECONDS,
                })
            }
        }
    }

    async fn ask_http2(&self, stage: &Stage<'_>, rival: &Rival) -> Result<Went> {
        match self.what {
            What::Large(mib) => {
                let seconds = h2load::one(stage, rival.http2, mib << 20).await?;
                Ok(Went::moved(mib, seconds))
            }
            What::Small | What::Fresh => Ok(Went {
                per_second: h2load::many(stage, rival.http2, MILLISECONDS).await?,
                seconds: SECONDS,
            }),
        }
    }
}

async fn helped<T: DeserializeOwned>(stage: &Stage<'_>, role: Role) -> Result<T> {
    Helper::start(stage, Core::Helping, role)?.says().await
}

// === impl Went ===

impl Went {
    fn moved(mib: u64, seconds: f64) -> Self {
        Self {
            per_second: mib as f64 / seconds,
            seconds,
        }
    }
}

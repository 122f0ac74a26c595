//! What passes while the target is awake: on one core, against haproxy on that very core, in turns.

use super::{Measurement, here, median};
use crate::{
    haproxy::{self, Haproxy},
    helper::{Helper, Moved, Passed, Role, Way},
    process::Core,
    resolver::Resolver,
    stage::{self, Stage},
};
use anyhow::Result;
use elasti_e2e::{Usage, report::Goal};
use std::net::SocketAddr;

/// Many and short: a neighbour who disturbs one of them does not move the median.
const ROUNDS: usize = 11;
const SECONDS: u64 = 2;
const CONNECTIONS: usize = 64;
const BULK: u64 = 1 << 30;

/// One who passes on, and where.
#[derive(Clone, Copy)]
struct Proxy {
    usage: Usage,
    http: SocketAddr,
    opaque: SocketAddr,
}

/// What one round showed.
struct Round {
    per_second: f64,
    /// For each second of the proxy's core.
    per_cpu: f64,
}

/// Both of them awake, with a target.
struct Rivals {
    ours: Proxy,
    theirs: Proxy,
    _target: Helper,
    _resolver: Resolver,
    _haproxy: Haproxy,
}

// === impl Rivals ===

impl Rivals {
    async fn start(stage: &Stage<'_>) -> Result<Self> {
        let target = Helper::target(stage, Core::Helping).await?;
        stage.wake().await?;
        let resolver = Resolver::start(stage, Core::Measured).await?;
        let haproxy = Haproxy::start(stage, Core::Measured).await?;
        Ok(Self {
            ours: Proxy {
                usage: resolver.usage(),
                http: here(stage::HTTP),
                opaque: here(stage::OPAQUE),
            },
            theirs: Proxy {
                usage: haproxy.usage(),
                http: here(haproxy::HTTP),
                opaque: here(haproxy::OPAQUE),
            },
            _target: target,
            _resolver: resolver,
            _haproxy: haproxy,
        })
    }
}

// === impl Measurement ===

impl Measurement<'_> {
    pub(super) async fn http(&mut self) -> Result<()> {
        let rivals = Rivals::start(self.stage).await?;
        self.small("HTTP/1 requests", &rivals, |proxy| proxy.http)
            .await?;
        self.stage.put_to_sleep().await
    }

    pub(super) async fn tcp(&mut self) -> Result<()> {
        let rivals = Rivals::start(self.stage).await?;
        self.small("TCP messages", &rivals, |proxy| proxy.opaque)
            .await?;
        self.bulk(&rivals).await?;
        self.stage.put_to_sleep().await
    }

    async fn small(
        &mut self,
        what: &str,
        rivals: &Rivals,
        address: impl Fn(&Proxy) -> SocketAddr,
    ) -> Result<()> {
        let mut rounds = Vec::new();
        for round in 0..ROUNDS {
            let Rivals { ours, theirs, .. } = rivals;
            let us = || self.round(ours, address(ours));
            let them = || self.round(theirs, address(theirs));
            rounds.push(in_turns(round, us, them).await?);
        }
        self.compare(what, &rounds);
        Ok(())
    }

    async fn round(&self, proxy: &Proxy, address: SocketAddr) -> Result<Round> {
        let role = Role::Load {
            address,
            connections: CONNECTIONS,
            seconds: SECONDS,
        };
        let before = proxy.usage.cpu()?;
        let passed: Passed = self.helped(role).await?;
        let cpu = proxy.usage.cpu()? - before;
        Ok(Round {
            per_second: passed.per_second,
            per_cpu: passed.per_second * SECONDS as f64 / cpu,
        })
    }

    async fn bulk(&mut self, rivals: &Rivals) -> Result<()> {
        let mut rounds = Vec::new();
        for round in 0..ROUNDS {
            let Rivals { ours, theirs, .. } = rivals;
            rounds.push(in_turns(round, || self.pull(ours), || self.pull(theirs)).await?);
        }
        self.compare("TCP, 1 GiB", &rounds);
        Ok(())
    }

    async fn pull(&self, proxy: &Proxy) -> Result<Round> {
        let role = Role::Body {
            address: proxy.opaque,
            way: Way::Down,
            bytes: BULK,
        };
        let before = proxy.usage.cpu()?;
        let moved: Moved = self.helped(role).await?;
        let cpu = proxy.usage.cpu()? - before;
        Ok(Round {
            per_second: 1.0 / moved.seconds,
            per_cpu: 1.0 / cpu,
        })
    }

    /// The second ratio tells of the proxies alone, also where the other core is the slower one.
    fn compare(&mut self, what: &str, rounds: &[(Round, Round)]) {
        let all = |value: fn(&(Round, Round)) -> f64| median(rounds.iter().map(value).collect());
        let rows: [(&str, f64, Goal); 4] = [
            (
                "ours to haproxy's",
                all(|(ours, theirs)| ours.per_second / theirs.per_second),
                Goal::AtLeast(0.9),
            ),
            (
                "the same for each second of CPU",
                all(|(ours, theirs)| ours.per_cpu / theirs.per_cpu),
                Goal::None,
            ),
            (
                "ours a second",
                all(|(ours, _)| ours.per_second),
                Goal::None,
            ),
            (
                "haproxy's a second",
                all(|(_, theirs)| theirs.per_second),
                Goal::None,
            ),
        ];
        for (name, value, goal) in rows {
            let unit = if name.contains("a second") {
                ""
            } else {
                "ratio"
            };
            self.report
                .add(format!("{what} on one core: {name}"), value, unit, goal);
        }
    }

    async fn helped<T: serde::de::DeserializeOwned>(&self, role: Role) -> Result<T> {
        Helper::start(self.stage, Core::Helping, role)?.says().await
    }
}

/// Each of them is the first every other time.
async fn in_turns<F, G>(
    round: usize,
    ours: impl FnOnce() -> F,
    theirs: impl FnOnce() -> G,
) -> Result<(Round, Round)>
where
    F: Future<Output = Result<Round>>,
    G: Future<Output = Result<Round>>,
{
    if round.is_multiple_of(2) {
        let theirs = theirs().await?;
        Ok((ours().await?, theirs))
    } else {
        let ours = ours().await?;
        Ok((ours, theirs().await?))
    }
}

//! Bodies that are far larger than the memory they may take.

use super::{Measurement, here};
use crate::{
    helper::{Helper, Moved, Role, Way},
    process::Core,
    resolver::Resolver,
    stage::HTTP,
};
use anyhow::Result;
use elasti_e2e::report::Goal;

const LARGE: u64 = 1 << 30;

impl Measurement<'_> {
    pub(super) async fn large(&mut self) -> Result<()> {
        self.report.part(
            "Bodies of 1 GiB; the resolver on core 0, client and target on core 1",
            "elasti-resolver-figures --only large",
        );
        let stage = self.stage;
        let _target = Helper::target(stage, Core::Helping).await?;
        stage.wake().await?;
        for (way, what) in [(Way::Down, "to"), (Way::Up, "from")] {
            let resolver = Resolver::start(stage, Core::Measured).await?;
            let before = resolver.memory()?.resident;
            let role = Role::Body {
                address: here(HTTP),
                way,
                bytes: LARGE,
            };
            let moved: Moved = Helper::start(stage, Core::Helping, role)?.says().await?;
            let more = resolver.memory()?.peak - before;
            let figure = format!("1 GiB {what} a client: memory that it took, at most");
            self.report.add(figure, more, "MiB", Goal::Below(8.0));
            let figure = format!("1 GiB {what} a client");
            self.report
                .add(figure, 1_024.0 / moved.seconds, "MiB/s", Goal::None);
        }
        stage.put_to_sleep().await
    }
}

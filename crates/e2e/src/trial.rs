//! Services that fall asleep and wake again and again while they are used: whether anything is lost.

mod canary;
mod disaster;
mod ledger;

use self::{canary::Canary, disaster::Disasters, ledger::Ledger};

use crate::{
    Identity, LONGEST, Manner, Visitor,
    stage::{PATIENCE, Stage},
    visitor::HTTP,
};
use anyhow::{Context, Result};
use elasti_api::{Mode, Phase};
use fastrand::Rng;
use futures::{StreamExt, future::join_all, stream};
use k8s_openapi::api::{apps::v1::Deployment, core::v1::Pod};
use kube::{ResourceExt, api::ListParams};
use serde_json::{Value, json};
use std::{
    cell::{Cell, RefCell},
    env,
    time::Duration,
};
use tokio::time::{Instant, interval, sleep, timeout};

const BY_TRIGGER: &str = "by-trigger";
const BY_SOMEBODY: &str = "by-somebody";
const BY_CHANCE: &str = "by-chance";
/// Between requests of those who come steadily: 50 in a second.
const BEAT: Duration = Duration::from_millis(20);
/// Those who come alone leave less than this between them.
const LONELY: Duration = Duration::from_secs(10);
/// Whoever finds it asleep may come as late as this.
const LATE: Duration = Duration::from_secs(1);
/// What is to be tried again, after an API server that was away.
const AGAIN: Duration = Duration::from_millis(200);

pub struct Trial<'a> {
    pub ledger: Ledger,
    stage: &'a Stage<'a>,
    identity: Identity,
    /// What says that nobody uses a service.
    triggers: Value,
    /// How long the application takes connections after it was told to end, in seconds.
    farewell: u32,
    random: RefCell<Rng>,
    /// Nobody else comes; who is under way is waited for.
    over: Cell<bool>,
    disasters: Disasters,
}

// === impl Trial ===

impl<'a> Trial<'a> {
    pub fn new(stage: &'a Stage<'a>, triggers: Value, farewell: u32) -> Result<Self> {
        let seed = seed()?;
        println!("The seed is {seed}: ELASTI_SEED={seed} does the same again");
        Ok(Self {
            ledger: Ledger::default(),
            stage,
            identity: Identity::make()?,
            triggers,
            farewell,
            random: RefCell::new(Rng::with_seed(seed)),
            over: Cell::new(false),
            disasters: Disasters::default(),
        })
    }

    /// Of three services, one falls asleep so many times, and the others as often as they can meanwhile.
    pub async fn run(&self, cycles: usize) -> Result<()> {
        let services = self.deploy_all().await?;
        self.cycle(&services, cycles).await
    }

    /// The same while parts of the system are killed.
    pub async fn run_through_disasters(&self, cycles: usize) -> Result<()> {
        let services = self.deploy_all().await?;
        let canary = Canary::new(self.stage).await?;
        let random = Rng::with_seed(self.random.borrow_mut().u64(..));
        tokio::select! {
            done = self.cycle(&services, cycles) => done,
            () = self.disasters.happen(&canary, self.stage, random) => Ok(()),
        }
    }

    async fn deploy_all(&self) -> Result<[Visitor; 3]> {
        let (trigger, somebody, chance) = tokio::try_join!(
            self.deploy(BY_TRIGGER, self.triggers.clone()),
            self.deploy(BY_SOMEBODY, json!([])),
            self.deploy(BY_CHANCE, self.triggers.clone()),
        )?;
        Ok([trigger, somebody, chance])
    }

    async fn cycle(&self, [trigger, somebody, chance]: &[Visitor; 3], cycles: usize) -> Result<()> {
        let by_trigger = async {
            self.by_trigger(trigger, cycles).await?;
            self.over.set(true);
            Ok(())
        };
        tokio::try_join!(
            by_trigger,
            self.by_somebody(somebody),
            self.by_chance(chance)
        )?;
        Ok(())
    }

    /// Its trigger puts it to sleep; then all come at once, in every manner.
    async fn by_trigger(&self, visitor: &Visitor, cycles: usize) -> Result<()> {
        let mut writes = 0;
        for _ in 0..cycles {
            writes = self.asleep(BY_TRIGGER, writes).await?;
            // Whom a data plane still leads to the pod that ends wakes nobody.
            while self.writes(BY_TRIGGER).await? == writes {
                self.pause(LATE).await;
                join_all(Manner::ALL.map(|manner| self.visit(visitor, manner))).await;
            }
        }
        Ok(())
    }

    /// To its target.
    async fn writes(&self, name: &str) -> Result<i64> {
        self.stubbornly(async || self.stage.generation(name).await)
            .await
    }

    /// Somebody else scales it to zero, while it is used without a pause. Where nobody can be told of that, because
    /// the API server is away, its last pods have to do: they must not be those of an earlier time.
    async fn by_somebody(&self, visitor: &Visitor) -> Result<()> {
        let (name, stage) = (BY_SOMEBODY, self.stage);
        let cycles = async {
            loop {
                let serves = async || stage.reaches_as(name, Phase::Awake, Mode::Serve).await;
                self.stubbornly(serves).await?;
                self.stubbornly(async || self.none_ends(name).await).await?;
                self.stubbornly(async || stage.scale(name, 0).await).await?;
                self.ledger.fell_asleep(name);
                let woken = async || stage.until(name, "awake", is_up).await;
                self.stubbornly(woken).await?;
            }
        };
        tokio::select! {
            failed = cycles => failed,
            () = self.visit_steadily(visitor) => Ok(()),
        }
    }

    async fn none_ends(&self, name: &str) -> Result<()> {
        let its_own = ListParams::default().labels(&format!("of={name}"));
        let pods = self.stage.api::<Pod>().list(&its_own).await?;
        let ending = |pod: &&Pod| pod.metadata.deletion_timestamp.is_some();
        for pod in pods.iter().filter(ending) {
            let uid = pod.uid().unwrap_or_default();
            self.stage.gone::<Pod>(&pod.name_any(), &uid).await?;
        }
        Ok(())
    }

    /// Its trigger would have it sleep, and somebody comes now and then, at whatever moment of it.
    async fn by_chance(&self, visitor: &Visitor) -> Result<()> {
        let sleeps = async {
            let mut writes = 0;
            loop {
                writes = self.asleep(BY_CHANCE, writes).await?;
            }
        };
        let visits = async {
            while !self.over.get() {
                self.pause(LONELY).await;
                self.visit(visitor, self.any_manner()).await;
            }
        };
        tokio::select! {
            failed = sleeps => failed,
            () = visits => Ok(()),
        }
    }

    async fn deploy(&self, name: &str, triggers: Value) -> Result<Visitor> {
        let stage = self.stage;
        let application = self.identity.application(name, &stage.image, self.farewell);
        for object in application {
            self.stubbornly(async || stage.place.put(object.clone()).await)
                .await?;
        }
        let spec = json!({"triggers": triggers, "pollingInterval": "1s"});
        self.stubbornly(async || stage.declare_as(name, spec.clone()).await)
            .await?;
        let address = self
            .stubbornly(async || stage.reach(name, HTTP).await)
            .await?;
        self.identity.visitor(address.ip())
    }

    /// Waits until it sleeps, after so many writes to its target; gives how many there are then.
    async fn asleep(&self, name: &str, writes: i64) -> Result<i64> {
        let sleeps = |deployment: &Deployment| {
            let replicas = deployment.spec.as_ref().and_then(|spec| spec.replicas);
            replicas == Some(0) && deployment.metadata.generation > Some(writes)
        };
        let slept = async || self.stage.until(name, "asleep", sleeps).await;
        let deployment = self.stubbornly(slept).await?;
        self.ledger.fell_asleep(name);
        deployment
            .metadata
            .generation
            .context("it has a generation")
    }

    async fn visit_steadily(&self, visitor: &Visitor) {
        let beats = stream::unfold(interval(BEAT), async |mut beat| {
            beat.tick().await;
            (!self.over.get()).then_some(((), beat))
        });
        let manners = stream::iter(Manner::ALL.into_iter().cycle());
        let visits = beats.zip(manners);
        visits
            .for_each_concurrent(None, |((), manner)| self.visit(visitor, manner))
            .await;
    }

    async fn visit(&self, visitor: &Visitor, manner: Manner) {
        self.ledger.asks();
        let began = Instant::now();
        loop {
            let Ok(answer) = timeout(LONGEST, visitor.ask(manner)).await else {
                return self.ledger.lost(format!("{manner:?}: no answer"));
            };
            match answer {
                Ok(()) => {
                    return self
                        .ledger
                        .answered(&format!("{manner:?}"), began.elapsed());
                }
                Err(_) if self.disasters.explain(began) => {
                    self.ledger.asks_again();
                    sleep(AGAIN).await;
                }
                Err(error) => {
                    let waited = began.elapsed();
                    return self.ledger.lost(format!("{error:#} after {waited:.1?}"));
                }
            }
        }
    }

    fn any_manner(&self) -> Manner {
        let which = self.random.borrow_mut().usize(..Manner::ALL.len());
        Manner::ALL[which]
    }

    async fn pause(&self, longest: Duration) {
        let part = self.random.borrow_mut().f64();
        sleep(longest.mul_f64(part)).await;
    }

    /// Tries again where an API server may have been away.
    async fn stubbornly<T>(&self, work: impl AsyncFn() -> Result<T>) -> Result<T> {
        let end = Instant::now() + 3 * PATIENCE;
        loop {
            match work().await {
                Err(_) if self.disasters.happened() && Instant::now() < end => sleep(AGAIN).await,
                done => return done,
            }
        }
    }
}

/// With the pods that it has now, not with those that are ending.
fn is_up(deployment: &Deployment) -> bool {
    let wanted = deployment.spec.as_ref().and_then(|spec| spec.replicas);
    deployment.status.as_ref().is_some_and(|status| {
        status.observed_generation == deployment.metadata.generation
            && wanted > Some(0)
            && status.ready_replicas == wanted
    })
}

fn seed() -> Result<u64> {
    match env::var("ELASTI_SEED") {
        Ok(seed) => seed
            .parse()
            .with_context(|| format!("ELASTI_SEED is a number, not {seed:?}")),
        Err(_) => Ok(fastrand::u64(..)),
    }
}

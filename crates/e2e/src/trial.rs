//! Services that fall asleep and wake again and again while they are used: whether anything is lost.

mod canary;
mod disaster;
mod ledger;
mod loss;
mod slices;

use self::{
    canary::Canary,
    disaster::Disasters,
    ledger::{Ledger, now},
    loss::{Failure, Loss},
    slices::Slices,
};

use crate::{
    Identity, LONGEST, Manner, Visitor,
    stage::{PATIENCE, Stage},
    visitor::HTTP,
};
use anyhow::{Context, Result, ensure};
use elasti_api::{Mode, Phase};
use fastrand::Rng;
use futures::{StreamExt, future::join_all, stream};
use k8s_openapi::api::{apps::v1::Deployment, core::v1::Pod};
use kube::{ResourceExt, api::ListParams};
use serde_json::{Value, json};
use std::{env, fmt, time::Duration};
use tokio::{
    sync::Notify,
    time::{Instant, MissedTickBehavior, interval, sleep, timeout},
};

/// Between requests of those who come steadily: 50 in a second.
const BEAT: Duration = Duration::from_millis(20);
/// Those who come alone leave less than this between them.
const LONELY: Duration = Duration::from_secs(10);
/// Whoever finds it asleep may come as late as this.
const LATE: Duration = Duration::from_secs(1);
/// The same of those who come alone.
const LATER: Duration = Duration::from_secs(3);
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
    seed: u64,
    disasters: Disasters,
    slices: Slices,
}

/// Nobody else comes when all of this has been; who is under way is waited for.
#[derive(Clone, Copy)]
struct Goal {
    /// How often each has to sleep that does not sleep by chance.
    cycles: usize,
    /// How often the other has to.
    chances: usize,
    /// Of disasters.
    rounds: usize,
}

/// One that is visited.
struct Service {
    name: &'static str,
    visitor: Visitor,
}

/// What chance there is for each who depends on it, so that nobody's haste changes another's.
struct Chances {
    trigger: Rng,
    chance: Rng,
    disasters: Rng,
}

// === impl Trial ===

impl<'a> Trial<'a> {
    pub const BY_TRIGGER: &'static str = "by-trigger";
    pub const BY_SOMEBODY: &'static str = "by-somebody";
    pub const BY_CHANCE: &'static str = "by-chance";

    pub fn new(stage: &'a Stage<'a>, triggers: Value, farewell: u32) -> Result<Self> {
        let seed = seed()?;
        println!("The seed is {seed}: ELASTI_SEED={seed} does the same again");
        Ok(Self {
            ledger: Ledger::default(),
            stage,
            identity: Identity::make()?,
            triggers,
            farewell,
            seed,
            disasters: Disasters::default(),
            slices: Slices::default(),
        })
    }

    /// Each of three services falls asleep at least so many times.
    pub async fn run(&self, cycles: usize) -> Result<()> {
        self.run_with(cycles, cycles).await
    }

    /// The same, where the one with lone requests need not as often: it takes the longest.
    pub async fn run_with(&self, cycles: usize, chances: usize) -> Result<()> {
        let services = self.deploy_all().await?;
        let goal = Goal {
            cycles,
            chances,
            rounds: 0,
        };
        self.cycle(&services, goal, Chances::of(self.seed)).await
    }

    /// The same while parts of the system are killed, each of them at least so many times; one of the services may fall
    /// asleep less often.
    pub async fn run_through_disasters(&self, cycles: usize, rounds: usize) -> Result<()> {
        let services = self.deploy_all().await?;
        let canary = Canary::new(self.stage).await?;
        let goal = Goal {
            cycles,
            chances: 1,
            rounds,
        };
        let chances = Chances::of(self.seed);
        let random = chances.disasters.clone();
        tokio::select! {
            done = self.cycle(&services, goal, chances) => done,
            () = self.disasters.happen(&canary, self.stage, random) => Ok(()),
        }
    }

    /// Tells what came of it, whether it came to its end or not.
    pub fn conclude(&self, done: Result<()>) -> Result<()> {
        println!("{self}");
        let losses = self.ledger.losses();
        done.with_context(|| format!("{self}{losses}"))?;
        ensure!(self.ledger.is_clean(), "{self}{losses}");
        Ok(())
    }

    /// Of disasters.
    pub fn rounds(&self) -> usize {
        self.disasters.rounds()
    }

    async fn deploy_all(&self) -> Result<[Service; 3]> {
        let (trigger, somebody, chance) = tokio::try_join!(
            self.deploy(Self::BY_TRIGGER, self.triggers.clone()),
            self.deploy(Self::BY_SOMEBODY, json!([])),
            self.deploy(Self::BY_CHANCE, self.triggers.clone()),
        )?;
        Ok([trigger, somebody, chance])
    }

    async fn cycle(
        &self,
        [trigger, somebody, chance]: &[Service; 3],
        goal: Goal,
        chances: Chances,
    ) -> Result<()> {
        let cycles = async {
            tokio::try_join!(
                self.by_trigger(trigger, goal, chances.trigger),
                self.by_somebody(somebody, goal),
                self.by_chance(chance, goal, chances.chance)
            )
        };
        // Boxed: all of them together are larger than a stack.
        tokio::select! {
            done = Box::pin(cycles) => done.map(drop),
            failed = Box::pin(self.slices.follow(self.stage)) => Err(failed),
        }
    }

    fn is_over(&self, goal: Goal) -> bool {
        self.ledger.slept(Self::BY_TRIGGER) >= goal.cycles
            && self.ledger.slept(Self::BY_SOMEBODY) >= goal.cycles
            && self.ledger.slept(Self::BY_CHANCE) >= goal.chances
            && self.disasters.rounds() >= goal.rounds
    }

    /// Its trigger puts it to sleep; then all come at once, in every manner.
    async fn by_trigger(&self, service: &Service, goal: Goal, mut random: Rng) -> Result<()> {
        let mut writes = 0;
        while !self.is_over(goal) {
            writes = self.asleep(service.name, writes).await?;
            // Whom a data plane still leads to the pod that ends wakes nobody.
            while self.writes(service.name).await? == writes {
                sleep(LATE.mul_f64(random.f64())).await;
                join_all(Manner::ALL.map(|manner| self.visit(service, manner))).await;
            }
        }
        Ok(())
    }

    /// To its target.
    async fn writes(&self, name: &str) -> Result<i64> {
        self.stubbornly(async || self.stage.generation(name).await)
            .await
    }

    /// Somebody else scales it to zero, while it is used without a pause.
    async fn by_somebody(&self, service: &Service, goal: Goal) -> Result<()> {
        let (name, stage) = (service.name, self.stage);
        let cycles = async {
            loop {
                let serves = async || stage.reaches_as(name, Phase::Awake, Mode::Serve).await;
                self.stubbornly(serves).await?;
                if goal.rounds > 0 {
                    // Where nobody can be told, because the API server is away, its last pods have to do: they must not
                    // be those of an earlier time.
                    self.stubbornly(async || self.none_ends(name).await).await?;
                }
                self.stubbornly(async || stage.scale(name, 0).await).await?;
                let woken = async || stage.until(name, "awake", is_up).await;
                self.stubbornly(woken).await?;
                self.ledger.fell_asleep(name);
            }
        };
        tokio::select! {
            failed = cycles => failed,
            () = self.visit_steadily(service, goal) => Ok(()),
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
    async fn by_chance(&self, service: &Service, goal: Goal, mut random: Rng) -> Result<()> {
        let asleep = Notify::new();
        let sleeps = async {
            let mut writes = 0;
            loop {
                writes = self.asleep(service.name, writes).await?;
                asleep.notify_one();
            }
        };
        let visits = async {
            while !self.is_over(goal) {
                let (alone, late) = (random.f64(), random.f64());
                tokio::select! {
                    () = sleep(LONELY.mul_f64(alone)) => {}
                    () = asleep.notified() => sleep(LATER.mul_f64(late)).await,
                }
                let manner = Manner::ALL[random.usize(..Manner::ALL.len())];
                self.visit(service, manner).await;
            }
        };
        tokio::select! {
            failed = sleeps => failed,
            () = visits => Ok(()),
        }
    }

    async fn deploy(&self, name: &'static str, triggers: Value) -> Result<Service> {
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
        let visitor = self.identity.visitor(address.ip())?;
        Ok(Service { name, visitor })
    }

    /// Waits until it sleeps, after so many writes to its target; gives how many there are then.
    async fn asleep(&self, name: &'static str, writes: i64) -> Result<i64> {
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

    async fn visit_steadily(&self, service: &Service, goal: Goal) {
        let mut beat = interval(BEAT);
        // A machine that stands still for a while has nobody come in a crowd afterwards.
        beat.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let beats = stream::unfold(beat, async |mut beat| {
            beat.tick().await;
            (!self.is_over(goal)).then_some(((), beat))
        });
        let manners = stream::iter(Manner::ALL.into_iter().cycle());
        let visits = beats.zip(manners);
        visits
            .for_each_concurrent(None, |((), manner)| self.visit(service, manner))
            .await;
    }

    async fn visit(&self, service: &Service, manner: Manner) {
        self.ledger.asks(service.name);
        let (began, since) = (now(), Instant::now());
        loop {
            let attempt = Instant::now();
            let (failure, why) = match timeout(LONGEST, service.visitor.ask(manner)).await {
                Ok(Ok(())) => {
                    let what = format!("{} {manner:?}", service.name);
                    return self.ledger.answered(&what, since.elapsed());
                }
                Ok(Err(error)) => (Failure::of(&error), format!("{error:#}")),
                Err(_) => (Failure::Silence, "no answer".into()),
            };
            if !self.disasters.explain(failure, attempt) {
                return self.ledger.lost(Loss {
                    service: service.name,
                    manner,
                    failure,
                    why,
                    waited: since.elapsed(),
                    began,
                    ended: now(),
                    slices: self.slices.of(service.name, began),
                });
            }
            self.ledger.asks_again(failure);
            sleep(AGAIN).await;
        }
    }

    /// Tries again: an API server may have been away, and is not what is tried here.
    async fn stubbornly<T>(&self, work: impl AsyncFn() -> Result<T>) -> Result<T> {
        let end = Instant::now() + 3 * PATIENCE;
        loop {
            match work().await {
                Err(_) if Instant::now() < end => sleep(AGAIN).await,
                done => return done,
            }
        }
    }
}

impl fmt::Display for Trial<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.ledger)?;
        if self.disasters.happened() {
            write!(f, "; {} rounds of disasters", self.disasters.rounds())?;
        }
        write!(f, "; the seed was {}", self.seed)
    }
}

// === impl Chances ===

impl Chances {
    fn of(seed: u64) -> Self {
        let mut random = Rng::with_seed(seed);
        Self {
            trigger: random.fork(),
            chance: random.fork(),
            disasters: random.fork(),
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

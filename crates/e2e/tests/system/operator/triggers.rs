//! What the answers of a real Prometheus come to.

use anyhow::{Result, ensure};
use elasti_api::{Mode, Phase};
use elasti_e2e::stage::{Meter, Stage};
use serde_json::{Value, json};

/// Queries for each of which one word is right, and no answer scales anything.
const DOES_NOTHING: [(&str, &str); 4] = [
    ("absent(vector(1))", "EmptyResult"),
    (
        "vector(0) or label_replace(vector(0), \"a\", \"b\", \"\", \"\")",
        "SeveralResults",
    ),
    ("vector(1) / 0", "InfiniteValue"),
    ("this is no query", "QueryFailed"),
];

#[test]
#[ignore = "needs a cluster: make e2e"]
fn an_answer_that_says_nothing_changes_nothing() -> Result<()> {
    elasti_e2e::test(async |place| {
        let stage = Stage::set(place).await?;
        let _operator = stage.operator().await?;
        let meter = Meter::idle(place).await?;
        for (name, replicas) in [("up", 1), ("down", 0)] {
            stage.deploy_as(name, "Deployment", replicas).await?;
            let query = trigger(&meter, DOES_NOTHING[0].0, json!(1));
            stage.declare_as(name, json!({"triggers": [query]})).await?;
        }
        for (query, reason) in DOES_NOTHING {
            for name in ["up", "down"] {
                let query = trigger(&meter, query, json!(1));
                stage.amend(name, json!({"triggers": [query]})).await?;
                stage.condition(name, "Idle", "Unknown", reason).await?;
                let unhealthy = stage.condition(name, "TriggersHealthy", "False", reason);
                unhealthy.await?;
            }
            meter.is_heard().await?;
            ensure!(stage.replicas("up").await? == 1, "{reason} put it to sleep");
            ensure!(stage.replicas("down").await? == 0, "{reason} woke it");
        }
        Ok(())
    })
}

#[test]
#[ignore = "needs a cluster: make e2e"]
fn what_is_no_number_wakes_and_so_does_the_threshold_itself() -> Result<()> {
    elasti_e2e::test(async |place| {
        let stage = Stage::set(place).await?;
        let _operator = stage.operator().await?;
        let meter = Meter::idle(place).await?;
        stage.deploy("Deployment", 1).await?;
        let idle = trigger(&meter, "vector(0.99)", json!("1"));
        let busy = ["vector(0) / 0", "vector(1)"];
        let triggers = |query: Value| json!({"triggers": [query]});
        stage.declare(triggers(idle.clone())).await?;
        for query in busy {
            stage.amend("web", triggers(idle.clone())).await?;
            stage.reaches(Phase::Asleep, Mode::Proxy).await?;
            let query = trigger(&meter, query, json!("1"));
            stage.amend("web", triggers(query)).await?;
            stage.reaches(Phase::Awake, Mode::Serve).await?;
            let active = stage.condition("web", "Idle", "False", "AboveThreshold");
            active.await?;
        }
        Ok(())
    })
}

#[test]
#[ignore = "needs a cluster: make e2e"]
fn all_triggers_have_to_agree_on_sleep_and_any_wakes() -> Result<()> {
    elasti_e2e::test(async |place| {
        let stage = Stage::set(place).await?;
        let _operator = stage.operator().await?;
        let meter = Meter::idle(place).await?;
        stage.deploy("Deployment", 1).await?;
        let both = |second: &str| {
            let first = trigger(&meter, "last_over_time(requests[10s])", json!(1));
            json!({"triggers": [first, trigger(&meter, second, json!(1))]})
        };
        stage.declare(both("vector(5)")).await?;
        let active = stage.condition("web", "Idle", "False", "AboveThreshold");
        active.await?;
        stage.amend("web", both("absent(vector(1))")).await?;
        let unknown = stage.condition("web", "Idle", "Unknown", "EmptyResult");
        unknown.await?;
        ensure!(stage.replicas("web").await? == 1, "one of two says nothing");
        stage.amend("web", both("vector(0)")).await?;
        stage.reaches(Phase::Asleep, Mode::Proxy).await?;
        meter.reads(5).await?;
        stage.reaches(Phase::Awake, Mode::Serve).await
    })
}

fn trigger(meter: &Meter, query: &str, threshold: Value) -> Value {
    json!({"type": "prometheus", "metadata": {
        "serverAddress": meter.url(),
        "query": query,
        "threshold": threshold,
        "healthCheck": false,
    }})
}

use anyhow::{Context, Result, ensure};
use elasti_api::{ElastiServiceStatus, Mode, Phase};
use elasti_e2e::stage::{Gate, Meter, Rule, Setting, Stage, metric, service, workload};
use elasti_e2e::{establish, scalable};
use futures::future::try_join_all;
use serde_json::json;

#[test]
#[ignore = "needs a cluster: make e2e"]
fn two_hundred_knocks_at_once_make_one_scale_call() -> Result<()> {
    elasti_e2e::test(async |place| {
        let stage = Stage::set(place).await?;
        let operator = stage.operator().await?;
        stage.deploy("Deployment", 0).await?;
        stage.declare(json!({})).await?;
        stage.reaches(Phase::Asleep, Mode::Proxy).await?;
        let generation = stage.generation("web").await?;

        try_join_all((0..200).map(|_| operator.knock("web")))
            .await
            .context("every one is answered")?;
        stage.reaches(Phase::Awake, Mode::Serve).await?;
        ensure!(
            stage.generation("web").await? == generation + 1,
            "the target was written to once"
        );
        let labels = [
            ("service_name", "web"),
            ("target", "Deployment-web"),
            ("error", "success"),
        ];
        let calls = metric(
            &operator.metrics().await?,
            "elasti_operator_scale_counter",
            &labels,
        );
        ensure!(calls == Some(1.0), "{calls:?} scale calls were counted");
        Ok(())
    })
}

#[test]
#[ignore = "needs a cluster: make e2e"]
fn a_knock_the_moment_it_fell_asleep_leaves_no_gap() -> Result<()> {
    elasti_e2e::test(async |place| {
        let stage = Stage::set(place).await?;
        let operator = stage.operator().await?;
        let meter = Meter::idle(place).await?;
        stage.deploy("Deployment", 1).await?;
        let play = async {
            stage.declare(json!({"triggers": meter.triggers()})).await?;
            for _ in 0..3 {
                // The old pod ends while the new one starts.
                stage.scaled_to("web", 0).await?;
                operator.knock("web").await?;
                stage.scaled_to("web", 1).await?;
                stage.reaches(Phase::Awake, Mode::Serve).await?;
            }
            Ok(())
        };
        stage.witnessed(play).await
    })
}

#[test]
#[ignore = "needs a cluster: make e2e"]
fn a_knock_before_the_sleep_is_told_in_an_event_is_not_forgotten() -> Result<()> {
    elasti_e2e::test(async |place| {
        let stage = Stage::set(place).await?;
        let gate = Gate::open(place)?;
        let meter = Meter::idle(place).await?;
        let operator = stage
            .operator_with(Setting::default().through(&gate))
            .await?;
        stage.deploy("Deployment", 1).await?;
        let telling = gate.hold(Rule::new("POST", "/events").saying("Scaled from 1 to 0"));
        stage.declare(json!({"triggers": meter.triggers()})).await?;
        telling.await?;
        operator.knock("web").await?;
        stage.scaled_to("web", 1).await?;
        gate.release();
        stage.reaches(Phase::Awake, Mode::Serve).await
    })
}

#[test]
#[ignore = "needs a cluster: make e2e"]
fn a_wake_is_told_in_status_and_events() -> Result<()> {
    elasti_e2e::test(async |place| {
        let stage = Stage::set(place).await?;
        let operator = stage.operator().await?;
        stage.deploy("Deployment", 0).await?;
        stage.declare(json!({})).await?;
        stage.reaches(Phase::Asleep, Mode::Proxy).await?;
        ensure!(stage.status("web").await?.last_wake.is_none());
        operator.knock("web").await?;

        let is_told = |status: &ElastiServiceStatus| {
            let wake = status.last_wake.as_ref();
            wake.is_some_and(|wake| wake.duration.is_some()) && status.last_scaled_up_time.is_some()
        };
        let status = stage.until_status("web", "lastWake", is_told).await?;
        stage.reaches(Phase::Awake, Mode::Serve).await?;
        let duration = status.last_wake.and_then(|wake| wake.duration);
        let duration = duration.context("it was awaited")?;
        let seconds: f64 = duration
            .strip_suffix('s')
            .and_then(|number| number.parse().ok())
            .with_context(|| format!("{duration} is no number of seconds"))?;
        ensure!(seconds > 0.1 && seconds < 60.0, "a pod takes {seconds} s");
        for kind in ["ElastiService", "Deployment"] {
            let event = stage.said("SuccessToScale", kind).await?;
            let reporter = event.source.and_then(|source| source.component);
            let reporter = reporter.or(event.reporting_component);
            ensure!(
                reporter.as_deref() == Some("elasti-operator"),
                "reported by {reporter:?}"
            );
        }
        Ok(())
    })
}

#[test]
#[ignore = "needs a cluster: make e2e"]
fn a_refused_wake_is_told_and_tried_again() -> Result<()> {
    elasti_e2e::test(async |place| {
        let stage = Stage::set(place).await?;
        let gate = Gate::open(place)?;
        let operator = stage
            .operator_with(Setting::default().through(&gate))
            .await?;
        stage.deploy("Deployment", 0).await?;
        stage.declare(json!({})).await?;
        stage.reaches(Phase::Asleep, Mode::Proxy).await?;
        let refused = gate.refuse(Rule::new("PATCH", "/deployments/web/scale"));
        operator.knock("web").await?;
        refused.await?;
        for kind in ["ElastiService", "Deployment"] {
            stage.said("FailedToScale", kind).await?;
        }
        let labels = [("error", "forbidden")];
        let failures = metric(
            &operator.metrics().await?,
            "elasti_operator_scale_counter",
            &labels,
        );
        ensure!(failures >= Some(1.0), "{failures:?} failures were counted");
        gate.let_pass();
        stage
            .reaches(Phase::Awake, Mode::Serve)
            .await
            .context("nobody knocked again")
    })
}

#[test]
#[ignore = "needs a cluster: make e2e"]
fn a_wake_that_a_rule_forbids_is_told_and_tried_again() -> Result<()> {
    elasti_e2e::test(async |place| {
        let stage = Stage::set(place).await?;
        let operator = stage.operator().await?;
        let mut kind = json!(scalable("e2e.elasti.local", "Dwarf", "dwarfs")?);
        let few = json!({"type": "integer", "maximum": 1});
        let properties =
            &mut kind["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"];
        properties["spec"]["properties"] = json!({"replicas": few});
        establish(place.cluster, &place.client, &serde_json::from_value(kind)?).await?;
        let (api, kind) = ("e2e.elasti.local/v1", "Dwarf");
        let dwarf = json!({
            "apiVersion": api, "kind": kind, "metadata": {"name": "web"}, "spec": {"replicas": 0},
        });
        stage.serve("web", dwarf).await?;
        let target = json!({"apiVersion": api, "kind": kind, "name": "web"});
        let spec = json!({"scaleTargetRef": target, "minTargetReplicas": 2});
        stage.declare(spec).await?;
        stage.reaches(Phase::Asleep, Mode::Proxy).await?;
        operator.knock("web").await?;
        for kind in ["ElastiService", "Dwarf"] {
            stage.said("FailedToScale", kind).await?;
        }
        let labels = [("error", "invalid")];
        let scaled = "elasti_operator_scale_counter";
        let counted = metric(&operator.metrics().await?, scaled, &labels);
        ensure!(counted >= Some(1.0), "{counted:?} failures were counted");
        stage.amend("web", json!({"minTargetReplicas": 1})).await?;
        stage.reaches(Phase::Waking, Mode::Proxy).await
    })
}

#[test]
#[ignore = "needs a cluster: make e2e"]
fn those_that_wake_with_it_wake_at_once_even_in_a_circle() -> Result<()> {
    elasti_e2e::test(async |place| {
        let stage = Stage::set(place).await?;
        let operator = stage.operator().await?;
        // Its pod never starts: nobody may wait for it.
        let mut stuck = workload("one", "Deployment", 0, &stage.image);
        stuck["spec"]["template"]["spec"]["nodeSelector"] = json!({"e2e.elasti.local/no": "where"});
        place.put(stuck).await?;
        let ports = json!([{"port": 80, "targetPort": 8080}]);
        place.put(service("one", "one", &ports)).await?;
        stage.deploy_as("two", "Deployment", 0).await?;
        stage.deploy_as("three", "Deployment", 0).await?;
        for (name, next) in [("one", "two"), ("two", "three"), ("three", "one")] {
            stage.declare_as(name, json!({"wakeWith": [next]})).await?;
            stage.reaches_as(name, Phase::Asleep, Mode::Proxy).await?;
        }
        operator.knock("one").await?;
        stage.reaches_as("one", Phase::Waking, Mode::Proxy).await?;
        stage.reaches_as("two", Phase::Awake, Mode::Serve).await?;
        stage.reaches_as("three", Phase::Awake, Mode::Serve).await
    })
}

#[test]
#[ignore = "needs a cluster: make e2e"]
fn what_is_in_use_is_woken_without_a_knock() -> Result<()> {
    elasti_e2e::test(async |place| {
        let stage = Stage::set(place).await?;
        let _operator = stage.operator().await?;
        let meter = Meter::idle(place).await?;
        stage.deploy("Deployment", 0).await?;
        stage.declare(json!({"triggers": meter.triggers()})).await?;
        stage.reaches(Phase::Asleep, Mode::Proxy).await?;
        meter.reads(5).await?;
        stage.reaches(Phase::Awake, Mode::Serve).await?;
        stage
            .condition("web", "Idle", "False", "AboveThreshold")
            .await?;
        Ok(())
    })
}

#[test]
#[ignore = "needs a cluster: make e2e"]
fn a_paused_one_is_left_as_it_is_except_for_a_knock() -> Result<()> {
    elasti_e2e::test(async |place| {
        let stage = Stage::set(place).await?;
        let operator = stage.operator().await?;
        let meter = Meter::idle(place).await?;
        stage.deploy("Deployment", 1).await?;
        stage
            .declare(json!({"paused": true, "triggers": meter.triggers()}))
            .await?;
        stage
            .condition("web", "MaySleep", "False", "Paused")
            .await?;
        stage
            .condition("web", "Idle", "True", "BelowThreshold")
            .await?;
        ensure!(stage.replicas("web").await? == 1, "it stays up");

        stage.scale("web", 0).await?;
        stage.reaches(Phase::Asleep, Mode::Proxy).await?;
        meter.reads(5).await?;
        stage
            .condition("web", "Idle", "False", "AboveThreshold")
            .await?;
        ensure!(stage.replicas("web").await? == 0, "and it stays down");

        operator.knock("web").await?;
        stage.scaled_to("web", 1).await?;
        stage.reaches(Phase::Awake, Mode::Serve).await
    })
}

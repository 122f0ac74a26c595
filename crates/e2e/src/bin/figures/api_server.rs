//! What the API server itself says of who writes and who watches.

use anyhow::{Context, Result};
use k8s_openapi::api::core::v1::Event;
use kube::{Api, Client, api::ListParams};
use std::{collections::BTreeMap, fmt, time::Duration};
use tokio::time;

const PATIENCE: Duration = Duration::from_secs(300);
const CALM: Duration = Duration::from_secs(3);
const WRITES: [&str; 5] = ["POST", "PUT", "PATCH", "APPLY", "DELETE"];
/// Heartbeats: of kubelets, and of whoever leads something. And events: controllers tell of what they find, again and again.
const OF_OTHERS: [&str; 3] = ["leases", "nodes", "events"];
/// By what the operator's own are told from theirs.
const ITS_EVENTS: &str = "reportingComponent=elasti-operator";

/// Requests by what they are about, such as `PATCH elastiservices/status`.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Requests(BTreeMap<String, f64>);

pub(crate) struct ApiServer<'a>(pub(crate) &'a Client);

// === impl ApiServer ===

impl ApiServer<'_> {
    /// That run now.
    pub(crate) async fn watches(&self) -> Result<Requests> {
        let is_watch = |labels: &BTreeMap<&str, &str>| labels.get("verb") == Some(&"WATCH");
        self.requests("apiserver_longrunning_requests", is_watch)
            .await
    }

    /// Since the API server started.
    pub(crate) async fn writes(&self) -> Result<Requests> {
        let is_write = |labels: &BTreeMap<&str, &str>| {
            WRITES.contains(labels.get("verb").unwrap_or(&""))
                && !OF_OTHERS.contains(labels.get("resource").unwrap_or(&""))
        };
        let mut requests = self.requests("apiserver_request_total", is_write).await?;
        let told = self.told_by_operator().await?;
        requests.0.insert("events of the operator".into(), told);
        Ok(requests)
    }

    /// Of every kind. Of all accounts, only the operator's is not one of Kubernetes' own.
    pub(crate) async fn calls_with_token(&self) -> Result<f64> {
        let is_its =
            |labels: &BTreeMap<&str, &str>| labels.get("flow_schema") == Some(&"service-accounts");
        let metric = "apiserver_flowcontrol_dispatched_requests_total";
        Ok(self.requests(metric, is_its).await?.total())
    }

    /// What was told of again is one event, with a number.
    async fn told_by_operator(&self) -> Result<f64> {
        let events: Api<Event> = Api::all(self.0.clone());
        let its = ListParams::default().fields(ITS_EVENTS);
        let times = |event: &Event| {
            let series = event.series.as_ref().and_then(|series| series.count);
            f64::from(series.unwrap_or(1))
        };
        Ok(events.list(&its).await?.iter().map(times).sum())
    }

    async fn requests(
        &self,
        metric: &str,
        counts: impl Fn(&BTreeMap<&str, &str>) -> bool,
    ) -> Result<Requests> {
        let request = http::Request::get("/metrics").body(Vec::new())?;
        let text = self.0.request_text(request).await?;
        let mut requests = Requests::default();
        for line in text.lines() {
            let Some((labels, value)) = parse(metric, line) else {
                continue;
            };
            if counts(&labels) {
                let label = |name| labels.get(name).copied().unwrap_or_default();
                let what = [label("resource"), label("subresource")].join("/");
                let what = format!(
                    "{} {} ({})",
                    label("verb"),
                    what.trim_end_matches('/'),
                    label("scope")
                );
                *requests.0.entry(what).or_default() += value;
            }
        }
        Ok(requests)
    }

    /// Until nobody has written for a while.
    pub(crate) async fn quiet(&self) -> Result<()> {
        self.without_more(Requests::total).await
    }

    /// Until the operator has not, whatever others do.
    pub(crate) async fn operator_quiet(&self) -> Result<()> {
        self.without_more(Requests::by_operator).await
    }

    async fn without_more(&self, count: impl Fn(&Requests) -> f64) -> Result<()> {
        let quiet = async {
            let mut before = count(&self.writes().await?);
            loop {
                time::sleep(CALM).await;
                let now = count(&self.writes().await?);
                if now <= before {
                    return Ok(());
                }
                before = now;
            }
        };
        time::timeout(PATIENCE, quiet)
            .await
            .context("waiting until nobody writes")?
    }
}

// === impl Requests ===

impl Requests {
    /// What there is more of than there was; what there is less of is no concern of ours.
    pub(crate) fn beyond(&self, before: &Self) -> Self {
        let more = |(what, count): (&String, &f64)| {
            let more = count - before.0.get(what).unwrap_or(&0.0);
            (more > 0.0).then(|| (what.clone(), more))
        };
        Self(self.0.iter().filter_map(more).collect())
    }

    /// Controllers of Kubernetes do not patch, and make no services.
    pub(crate) fn patches_and_services(&self) -> f64 {
        let is_its = |what: &str| {
            ["PATCH ", "APPLY ", "POST services "]
                .iter()
                .any(|its| what.starts_with(its))
        };
        let its = self.0.iter().filter(|(what, _)| is_its(what));
        its.map(|(_, count)| count).sum()
    }

    /// Controllers list the endpoints of services, 20 in a second, for as long as it takes; and the API server looks
    /// after their addresses.
    pub(crate) fn by_operator(&self) -> f64 {
        let by_controllers = |what: &str| {
            let rest = what.strip_prefix("POST ").or(what.strip_prefix("PUT "));
            rest.is_some_and(|what| what.starts_with("endpoint")) || what.contains(" ipaddresses ")
        };
        let others = self.0.iter().filter(|(what, _)| !by_controllers(what));
        others.fold(0.0, |sum, (_, count)| sum + count)
    }

    /// Of one kind of objects.
    pub(crate) fn applied(&self, resource: &str) -> f64 {
        let is_it = |what: &str| {
            what.strip_prefix("APPLY ")
                .is_some_and(|what| what.split([' ', '/']).next() == Some(resource))
        };
        let its = self.0.iter().filter(|(what, _)| is_it(what));
        its.fold(0.0, |sum, (_, count)| sum + count)
    }

    pub(crate) fn total(&self) -> f64 {
        self.0.values().fold(0.0, |sum, count| sum + count)
    }
}

impl fmt::Display for Requests {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let all: Vec<String> = self
            .0
            .iter()
            .map(|(what, count)| format!("{count} {what}"))
            .collect();
        f.write_str(&all.join(", "))
    }
}

/// Labels and value of a line of that metric.
fn parse<'a>(metric: &str, line: &'a str) -> Option<(BTreeMap<&'a str, &'a str>, f64)> {
    let (labels, value) = line
        .strip_prefix(metric)?
        .strip_prefix('{')?
        .rsplit_once("} ")?;
    let labels = labels
        .split("\",")
        .filter_map(|label| label.trim_end_matches('"').split_once("=\""))
        .collect();
    Some((labels, value.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_metric_is_told_from_others_and_a_resource_from_its_subresource() {
        let line = r#"apiserver_request_total{code="200",resource="gadgets",subresource="scale",verb="PATCH"} 12"#;
        let (labels, value) = parse("apiserver_request_total", line).unwrap();
        assert_eq!(
            (labels["resource"], labels["subresource"]),
            ("gadgets", "scale")
        );
        assert_eq!(value, 12.0);
        assert!(parse("apiserver_request", line).is_none());
    }

    #[test]
    fn only_what_there_is_more_of_counts() {
        let requests = |list: &[(&str, f64)]| {
            let all = list
                .iter()
                .map(|(what, count)| ((*what).to_owned(), *count));
            Requests(all.collect())
        };
        let before = requests(&[("PATCH a", 2.0), ("POST b", 5.0)]);
        let after = requests(&[("PATCH a", 3.0), ("POST b", 4.0), ("PUT c", 1.0)]);
        assert_eq!(
            after.beyond(&before),
            requests(&[("PATCH a", 1.0), ("PUT c", 1.0)])
        );
    }
}

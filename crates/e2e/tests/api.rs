//! The ElastiService API as a real API server sees it.

use anyhow::{Context, Result, ensure};
use elasti_api::ElastiService;
use elasti_e2e::{Place, establish};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::{Api, Resource, api::PostParams};
use serde_json::Value;
use std::{
    fs,
    path::{Path, PathBuf},
};

const CRD: &str = include_str!("../../../config/crd/elastiservices.yaml");
const TABLE: &str = include_str!("elastiservices.yaml");

#[test]
#[ignore = "needs a cluster: make e2e"]
fn good_and_bad_objects_are_sorted_by_the_api_server() -> Result<()> {
    elasti_e2e::test(async |place| {
        install_crd(place).await?;
        let objects = documents(TABLE)?;
        let mut wrong = Vec::new();
        let (mut accepted, mut refused) = (0, 0);
        for object in &objects {
            match annotation(object, "refused-with") {
                Some(_) => refused += 1,
                None => accepted += 1,
            }
            if let Err(error) = sorted(place, object).await {
                wrong.push(format!("{}: {error:#}", name(object)));
            }
        }
        ensure!(
            wrong.is_empty(),
            "{} of {} objects:\n{}",
            wrong.len(),
            objects.len(),
            wrong.join("\n")
        );
        ensure!(
            accepted >= 20 && refused >= 20,
            "{accepted} accepted and {refused} refused are no table"
        );
        println!("{accepted} accepted, {refused} refused");
        Ok(())
    })
}

#[test]
#[ignore = "needs a cluster: make e2e"]
fn every_manifest_in_the_docs_is_accepted() -> Result<()> {
    elasti_e2e::test(async |place| {
        install_crd(place).await?;
        let mut samples = 0;
        for path in pages(&workspace())? {
            for fence in yaml_fences(&fs::read_to_string(&path)?) {
                for object in documents(&fence)? {
                    if object["kind"] == "ElastiService" {
                        samples += 1;
                        let outcome = create(place, &object).await;
                        outcome
                            .with_context(|| format!("{} in {}", name(&object), path.display()))?;
                    }
                }
            }
        }
        ensure!(samples > 0, "the docs show no ElastiService");
        Ok(())
    })
}

#[test]
#[ignore = "needs a cluster: make e2e"]
fn users_can_list_and_explain_elastiservices() -> Result<()> {
    elasti_e2e::test(async |place| {
        install_crd(place).await?;
        let api: Api<ElastiService> = Api::namespaced(place.client.clone(), place.namespace.name());
        let object = serde_json::from_value(documents(TABLE)?.swap_remove(0))?;
        api.create(&PostParams::default(), &object).await?;

        let list = place.kubectl_text(&["get", "es"])?;
        let columns: Vec<&str> = list
            .lines()
            .next()
            .unwrap_or_default()
            .split_whitespace()
            .collect();
        assert_eq!(
            columns,
            ["NAME", "MODE", "PHASE", "TARGET", "REPLICAS", "IDLE", "AGE"]
        );
        assert!(
            list.contains(object.metadata.name.as_deref().unwrap_or_default()),
            "{list}"
        );

        let explained = place.kubectl_text(&["explain", "es.spec"])?;
        for field in ["cooldownPeriod", "wakeWith", "Replicas to wake to"] {
            assert!(
                explained.contains(field),
                "`kubectl explain es.spec` does not say {field}:\n{explained}"
            );
        }
        Ok(())
    })
}

async fn install_crd(place: &Place) -> Result<()> {
    let crd: CustomResourceDefinition = serde_saphyr::from_str(CRD)?;
    establish(place.cluster, &place.client, &crd).await
}

async fn sorted(place: &Place, object: &Value) -> Result<()> {
    let outcome = create(place, object).await;
    match (annotation(object, "refused-with"), outcome) {
        (None, outcome) => {
            let created = outcome.context("is refused")?;
            let _: ElastiService = serde_json::from_value(created.clone())
                .context("is accepted, but not understood")?;
            for default in annotation(object, "defaults-to")
                .iter()
                .flat_map(|list| list.split(" | "))
            {
                let (path, value) = default
                    .split_once('=')
                    .context("defaults-to is no path=value")?;
                let found = created.pointer(&format!("/{}", path.replace('.', "/")));
                let wanted: Value = serde_json::from_str(value)?;
                ensure!(found == Some(&wanted), "{path} is {found:?}, not {wanted}");
            }
            Ok(())
        }
        (Some(_), Ok(_)) => anyhow::bail!("is accepted"),
        (Some(parts), Err(error)) => {
            let message = format!("{error:#}");
            for part in parts.split(" | ") {
                ensure!(
                    message.contains(part),
                    "is refused without saying '{part}': {message}"
                );
            }
            Ok(())
        }
    }
}

/// The object as the API server would store it; nothing is stored.
async fn create(place: &Place, object: &Value) -> Result<Value> {
    let path = ElastiService::url_path(&(), Some(place.namespace.name()));
    let url = format!("{path}?dryRun=All&fieldValidation=Strict");
    let request = http::Request::post(url)
        .header("content-type", "application/json")
        .body(serde_json::to_vec(object)?)?;
    Ok(place.client.request(request).await?)
}

fn documents(yaml: &str) -> Result<Vec<Value>> {
    Ok(serde_saphyr::from_multiple(yaml)?)
}

fn name(object: &Value) -> &str {
    object["metadata"]["name"].as_str().unwrap_or_default()
}

fn annotation(object: &Value, key: &str) -> Option<String> {
    object["metadata"]["annotations"][key]
        .as_str()
        .map(str::to_owned)
}

fn workspace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn pages(root: &Path) -> Result<Vec<PathBuf>> {
    let mut pages = vec![root.join("README.md")];
    let mut folders = vec![root.join("docs")];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder)? {
            let path = entry?.path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "md") {
                pages.push(path);
            }
        }
    }
    Ok(pages)
}

fn yaml_fences(page: &str) -> Vec<String> {
    page.split("```yaml\n")
        .skip(1)
        .filter_map(|rest| rest.split("```").next())
        .map(str::to_owned)
        .collect()
}

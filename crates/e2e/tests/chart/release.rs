use crate::{CHART, helm, succeeded};
use anyhow::{Result, ensure};
use elasti_e2e::{Place, install::image};
use std::{fs, process::Stdio};
use tokio::process;

const CRD: &str =
    "customresourcedefinition.apiextensions.k8s.io/elastiservices.elasti.truefoundry.com";

/// Of a chart, in the namespace `elasti`, which lets in only what is `restricted`.
pub struct Release<'a> {
    place: &'a Place,
}

// === impl Release ===

impl<'a> Release<'a> {
    pub async fn install(place: &'a Place, values: &[&str]) -> Result<Self> {
        place.kubectl_text(&["create", "namespace", "elasti"])?;
        let restricted = "pod-security.kubernetes.io/enforce=restricted";
        place.kubectl_text(&["label", "namespace", "elasti", restricted])?;
        let (_, operator) = image(place.cluster, "operator")?;
        let (_, resolver) = image(place.cluster, "resolver")?;
        let release = Self { place };
        let images = [
            format!("--set-string=elastiController.manager.image.tag={operator}"),
            format!("--set-string=elastiResolver.proxy.image.tag={resolver}"),
        ];
        let images: Vec<&str> = images.iter().map(String::as_str).collect();
        release
            .run("install", &[&[CHART], &images[..], values].concat())
            .await?;
        Ok(release)
    }

    pub async fn run(&self, verb: &str, args: &[&str]) -> Result<()> {
        self.helm(&[&[verb, "elasti"], args, &["--wait", "--timeout=2m"]].concat())
            .await?;
        Ok(())
    }

    async fn helm(&self, args: &[&str]) -> Result<String> {
        let program = helm().display().to_string();
        let mut helm = process::Command::from(self.place.cluster.command(&program)?);
        helm.args(["--namespace", "elasti"]).args(args);
        succeeded(&helm.output().await?)
    }

    /// But the CRD, with which all ElastiServices would go.
    pub async fn leaves_nothing(self) -> Result<()> {
        let manifest = self.place.folder().join("manifest.yaml");
        fs::write(&manifest, self.helm(&["get", "manifest", "elasti"]).await?)?;
        self.run("uninstall", &["--cascade=foreground"]).await?;
        let mut kubectl = self.place.cluster.command("kubectl")?;
        kubectl.args(["get", "--ignore-not-found", "--output=name", "--filename"]);
        let left = succeeded(&kubectl.arg(manifest).stdin(Stdio::null()).output()?)?;
        ensure!(left.trim() == CRD, "{left} is left");
        Ok(())
    }
}

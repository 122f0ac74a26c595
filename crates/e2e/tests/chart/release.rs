use crate::{CHART, helm, succeeded};
use anyhow::{Result, ensure};
use elasti_e2e::{Place, install::image};
use std::{fs, process::Stdio};
use tokio::process;

pub const CRD: &str =
    "customresourcedefinition.apiextensions.k8s.io/elastiservices.elasti.truefoundry.com";

/// Of a chart, in the namespace `elasti`, which lets in only what is `restricted`.
pub struct Release<'a> {
    place: &'a Place,
    name: &'static str,
    /// Values that name what was built.
    images: [String; 2],
}

// === impl Release ===

impl<'a> Release<'a> {
    pub async fn install(place: &'a Place, values: &[&str]) -> Result<Self> {
        let release = Self::named(place, "elasti")?;
        release.ours("install", values).await?;
        Ok(release)
    }

    /// Another one in the same namespace.
    pub async fn beside(&self, name: &'static str, values: &[&str]) -> Result<Self> {
        let release = Self {
            name,
            place: self.place,
            images: self.images.clone(),
        };
        release.ours("install", values).await?;
        Ok(release)
    }

    fn named(place: &'a Place, name: &'static str) -> Result<Self> {
        place.kubectl_text(&["create", "namespace", "elasti"])?;
        let restricted = "pod-security.kubernetes.io/enforce=restricted";
        place.kubectl_text(&["label", "namespace", "elasti", restricted])?;
        let (_, operator) = image(place.cluster, "operator")?;
        let (_, resolver) = image(place.cluster, "resolver")?;
        let images = [
            format!("--set-string=elastiController.manager.image.tag={operator}"),
            format!("--set-string=elastiResolver.proxy.image.tag={resolver}"),
        ];
        Ok(Self {
            place,
            name,
            images,
        })
    }

    /// With these values and no others.
    pub async fn upgrade(&self, values: &[&str]) -> Result<()> {
        self.ours("upgrade", values).await
    }

    async fn ours(&self, verb: &str, values: &[&str]) -> Result<()> {
        let images: Vec<&str> = self.images.iter().map(String::as_str).collect();
        self.run(verb, &[&[CHART], &images[..], values].concat())
            .await
    }

    pub async fn run(&self, verb: &str, args: &[&str]) -> Result<()> {
        self.helm(&[&[verb, self.name], args, &["--wait", "--timeout=3m"]].concat())
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
        let left = self.uninstall().await?;
        ensure!(left == CRD, "{left} is left");
        Ok(())
    }

    /// What is left of it, by name.
    pub async fn uninstall(self) -> Result<String> {
        let manifest = self.place.folder().join("manifest.yaml");
        fs::write(&manifest, self.helm(&["get", "manifest", self.name]).await?)?;
        self.run("uninstall", &["--cascade=foreground"]).await?;
        let mut kubectl = self.place.cluster.command("kubectl")?;
        kubectl.args(["get", "--ignore-not-found", "--output=name", "--filename"]);
        let left = succeeded(&kubectl.arg(manifest).stdin(Stdio::null()).output()?)?;
        Ok(left.trim().into())
    }
}

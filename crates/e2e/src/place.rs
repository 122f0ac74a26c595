use crate::Namespace;
use anyhow::{Context, Result, ensure};
use elasti_api::ElastiService;
use elasti_cluster::Cluster;
use kube::{
    Api, Client, ResourceExt,
    api::{DynamicObject, ListParams, Patch, PatchParams},
    core::TypeMeta,
    discovery::{self, Scope},
};
use parking_lot::Mutex;
use serde_json::{Value, json};
use std::{
    collections::BTreeSet,
    env, fs,
    io::Write,
    path::{Path, PathBuf},
    process::{Output, Stdio},
};

const ECHO_IMAGE: &str = "elasti.local/echo:test";
/// Of what kubectl or a log tells, in a failure.
const LINES: usize = 150;

/// Where a test runs: a namespace of its own on the cluster.
pub struct Place {
    pub cluster: &'static Cluster,
    pub client: Client,
    pub namespace: Namespace,
}

// === impl Place ===

impl Place {
    pub(crate) async fn find(cluster: &'static Cluster, name: &str) -> Result<Self> {
        let client = cluster.client().await?;
        let place = Self {
            cluster,
            namespace: Namespace::create(&client, name).await?,
            client,
        };
        fs::create_dir_all(place.folder())?;
        Ok(place)
    }

    /// Another namespace on the same cluster; to be left, too.
    pub async fn beside(&self, name: &str) -> Result<Self> {
        Self::find(self.cluster, name).await
    }

    /// Nobody is left to do what finalizers wait for.
    pub async fn leave(&self) -> Result<()> {
        fs::remove_dir_all(self.folder())?;
        let api: Api<ElastiService> = Api::namespaced(self.client.clone(), self.namespace.name());
        let left = api.list_metadata(&ListParams::default()).await;
        for object in left.iter().flatten() {
            let patch = Patch::Merge(json!({"metadata": {"finalizers": null}}));
            // It may have gone meanwhile.
            let _ = api
                .patch_metadata(&object.name_any(), &PatchParams::default(), &patch)
                .await;
        }
        self.namespace.delete(&self.client).await
    }

    /// For what belongs to this test on this machine; `*.log` in it is printed when the test fails.
    pub fn folder(&self) -> PathBuf {
        env::temp_dir()
            .join("elasti-e2e")
            .join(self.namespace.name())
    }

    /// The cluster's own kubectl, as a user would call it.
    pub fn kubectl(&self, args: &[&str]) -> Result<Output> {
        Ok(self
            .cluster
            .command("kubectl")?
            .args(["--namespace", self.namespace.name()])
            .args(args)
            .output()?)
    }

    /// What kubectl prints, or what it complains about.
    pub fn kubectl_text(&self, args: &[&str]) -> Result<String> {
        let output = self.kubectl(args)?;
        ensure!(
            output.status.success(),
            "kubectl {}: {}",
            args.join(" "),
            String::from_utf8_lossy(&output.stderr).trim()
        );
        Ok(String::from_utf8(output.stdout)?)
    }

    /// The image of the application that tests deploy: made of the binary and loaded, or, on a
    /// cluster that is not ours, the one that its user has put there.
    pub fn echo_image(&self, binary: &Path) -> Result<String> {
        if !self.cluster.is_local() {
            return env::var("ELASTI_ECHO_IMAGE").context(
                "set ELASTI_ECHO_IMAGE to the name under which the cluster of KUBECONFIG knows the image of `make images`",
            );
        }
        self.load_image(binary, ECHO_IMAGE)?;
        Ok(ECHO_IMAGE.into())
    }

    /// Makes an image of a binary, once for all tests of this process.
    pub fn load_image(&self, binary: &Path, name: &'static str) -> Result<()> {
        type Loaded = BTreeSet<(Option<PathBuf>, &'static str)>;
        static LOADED: Mutex<Loaded> = Mutex::new(BTreeSet::new());
        let mut loaded = LOADED.lock();
        let image = (self.cluster.kubeconfig(), name);
        if !loaded.contains(&image) {
            self.cluster.load_image(binary, Some(name))?;
            loaded.insert(image);
        }
        Ok(())
    }

    /// `kubectl apply` of manifests into this namespace, on the server's side: tests that run side by
    /// side may apply the same.
    pub fn apply(&self, manifests: &str) -> Result<()> {
        let mut kubectl = self
            .cluster
            .command("kubectl")?
            .args([
                "--namespace",
                self.namespace.name(),
                "apply",
                "--server-side",
                "--force-conflicts",
                "--filename=-",
            ])
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .spawn()?;
        kubectl
            .stdin
            .take()
            .context("kubectl takes input")?
            .write_all(manifests.as_bytes())?;
        let status = kubectl.wait()?;
        ensure!(status.success(), "kubectl apply: {status}");
        Ok(())
    }

    /// The same for one object, without the price of a kubectl.
    pub async fn put(&self, object: Value) -> Result<DynamicObject> {
        let (api, name) = self.api_of(&object).await?;
        let apply = PatchParams::apply("elasti-e2e").force();
        api.patch(&name, &apply, &Patch::Apply(&object))
            .await
            .with_context(|| format!("applying {object}"))
    }

    async fn api_of(&self, object: &Value) -> Result<(Api<DynamicObject>, String)> {
        let types: TypeMeta = serde_json::from_value(object.clone())?;
        let (resource, capabilities) =
            discovery::pinned_kind(&self.client, &(&types).try_into()?).await?;
        let client = self.client.clone();
        let api = match capabilities.scope {
            Scope::Cluster => Api::all_with(client, &resource),
            Scope::Namespaced => Api::namespaced_with(client, self.namespace.name(), &resource),
        };
        let name = object["metadata"]["name"].as_str();
        Ok((api, name.context("an object has a name")?.to_owned()))
    }

    pub(crate) fn dump(&self) {
        for args in [
            ["get", "all,endpointslices", "--output=wide"].as_slice(),
            &["get", "events", "--sort-by=.metadata.creationTimestamp"],
            &["get", "elastiservices", "--output=yaml"],
            &["logs", "--selector=of=resolver", "--tail=100", "--prefix"],
            // Where it was installed from its manifests.
            &[
                "logs",
                "--namespace=elasti",
                "--selector=app.kubernetes.io/name=elasti",
                "--tail=100",
                "--prefix",
            ],
        ] {
            match self.kubectl_text(args) {
                Ok(text) if text.is_empty() => {}
                Ok(text) => eprintln!(
                    "--- kubectl {} ({})\n{}",
                    args.join(" "),
                    self.namespace.name(),
                    last_lines(&text)
                ),
                Err(error) => eprintln!("--- {error}"),
            }
        }
        for file in fs::read_dir(self.folder()).into_iter().flatten().flatten() {
            if file
                .path()
                .extension()
                .is_some_and(|ending| ending == "log")
            {
                let text = fs::read_to_string(file.path()).unwrap_or_default();
                eprintln!("--- {}\n{}", file.path().display(), last_lines(&text));
            }
        }
    }
}

/// Of a service that slept for the fiftieth time nobody reads all events, nor all that was logged.
fn last_lines(text: &str) -> &str {
    let before = text.rmatch_indices('\n').nth(LINES);
    before.map_or(text, |(at, _)| &text[at + 1..])
}

use crate::digest::sha256;
use anyhow::{Context, Result, bail, ensure};
use std::{
    env, fs,
    path::{Path, PathBuf},
};

/// Where everything of one cluster lies. All of it is below the user's cache directory.
#[derive(Clone, Debug)]
pub(crate) struct Layout {
    cache: PathBuf,
    name: String,
}

impl Layout {
    pub(crate) fn of_user(name: &str) -> Result<Self> {
        ensure!(
            !name.is_empty()
                && name.len() <= 32
                && name
                    .bytes()
                    .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-'),
            "cluster name '{name}' must be 1 to 32 lower-case letters, digits or '-'"
        );
        let home = env::var_os("XDG_CACHE_HOME")
            .map(PathBuf::from)
            .filter(|path| path.is_absolute())
            .or_else(|| env::var_os("HOME").map(|home| Path::new(&home).join(".cache")))
            .context(
                "neither XDG_CACHE_HOME nor HOME is set: there is no place for the cluster's files",
            )?;
        let cache = home.join("elasti");
        fs::create_dir_all(&cache).with_context(|| format!("creating {}", cache.display()))?;
        Ok(Self {
            // Mounts cover paths, and a link would lead around them.
            cache: cache.canonicalize()?,
            name: name.into(),
        })
    }

    /// Of a cluster whose root is known.
    pub(crate) fn of_root(root: &Path) -> Result<Self> {
        let name = root.file_name().and_then(|name| name.to_str());
        let cache = root.ancestors().nth(2);
        match (name, cache) {
            (Some(name), Some(cache)) => Ok(Self {
                cache: cache.into(),
                name: name.into(),
            }),
            _ => bail!("{} is not the folder of a cluster", root.display()),
        }
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    pub(crate) fn cache(&self) -> &Path {
        &self.cache
    }

    pub(crate) fn root(&self) -> PathBuf {
        self.cache.join("clusters").join(&self.name)
    }

    pub(crate) fn lock(&self) -> PathBuf {
        self.cache
            .join("clusters")
            .join(format!("{}.lock", self.name))
    }

    pub(crate) fn kubeconfig(&self) -> PathBuf {
        self.kubeconfig_of("admin")
    }

    pub(crate) fn kubeconfig_of(&self, user: &str) -> PathBuf {
        self.root().join(format!("{user}.kubeconfig"))
    }

    pub(crate) fn pki(&self) -> PathBuf {
        self.root().join("pki")
    }

    pub(crate) fn config(&self) -> PathBuf {
        self.root().join("config")
    }

    pub(crate) fn data(&self, component: &str) -> PathBuf {
        self.root().join("data").join(component)
    }

    pub(crate) fn logs(&self) -> PathBuf {
        self.root().join("logs")
    }

    pub(crate) fn log(&self, component: &str) -> PathBuf {
        self.logs().join(format!("{component}.log"))
    }

    /// Cgroup of the whole node, below the root of every hierarchy. Clusters of the same name in
    /// other caches have others.
    pub(crate) fn cgroup(&self) -> String {
        let digest = sha256([self.root().as_os_str().as_encoded_bytes()]);
        format!("elasti-cluster-{}-{}", self.name, &digest[..6])
    }
}

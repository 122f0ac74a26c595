//! Images made without an engine: one static binary in one layer. The archive carries the OCI layout
//! and, beside it, the index that `docker load` reads.

mod elf;

pub(crate) use self::elf::is_elf;
use crate::digest::sha256;
use anyhow::{Context, Result};
use k8s_openapi::jiff::Timestamp;
use serde_json::{Value, json};
use std::{
    collections::BTreeMap,
    fs,
    io::Write,
    path::{Path, PathBuf},
};
use tar::{Builder, EntryType, Header};

/// What to put into an image.
pub struct Image {
    /// Name and tag, such as `elasti.local/echo:1`.
    pub name: String,
    /// A statically linked executable.
    pub binary: PathBuf,
    /// Where it stands in the image, and what a container runs.
    pub entrypoint: String,
    /// Another path that leads to it, such as one that manifests name.
    pub link: Option<String>,
    /// Authorities to trust, where programs look for them.
    pub certificates: Option<PathBuf>,
    /// What it says of itself, such as its version.
    pub labels: BTreeMap<String, String>,
    /// When its source was written: the time of a build would make each one another image.
    pub created: Timestamp,
}

const CERTIFICATES: &str = "etc/ssl/certs/ca-certificates.crt";

struct Blob {
    digest: String,
    bytes: Vec<u8>,
}

// === impl Image ===

impl Image {
    /// Named and placed after the binary: `name` runs `/<file name>`.
    pub fn of_binary(name: &str, binary: &Path) -> Result<Self> {
        check_name(name)?;
        let file = binary
            .file_name()
            .with_context(|| format!("{} has no file name", binary.display()))?;
        Ok(Self {
            name: name.into(),
            binary: binary.into(),
            entrypoint: format!("/{}", file.to_string_lossy()),
            link: None,
            certificates: None,
            labels: BTreeMap::new(),
            created: Timestamp::UNIX_EPOCH,
        })
    }

    /// Writes the archive in one go: a failure leaves what was there before.
    pub fn save(&self, archive: &Path) -> Result<()> {
        let mut bytes = Vec::new();
        self.write(&mut bytes)?;
        let partial = PathBuf::from(format!("{}.partial", archive.display()));
        fs::write(&partial, bytes).with_context(|| format!("writing {}", partial.display()))?;
        Ok(fs::rename(partial, archive)?)
    }

    /// The same input makes the same bytes.
    pub fn write(&self, out: impl Write) -> Result<()> {
        let binary =
            fs::read(&self.binary).with_context(|| format!("reading {}", self.binary.display()))?;
        elf::check_static(&self.binary, &binary)?;
        let layer = Blob::new(self.layer(&binary)?);
        let config = Blob::json(&json!({
            "created": self.created.to_string(),
            "architecture": elf::architecture(&self.binary, &binary)?,
            "os": "linux",
            "config": {
                "Entrypoint": [self.entrypoint],
                "User": "65532:65532",
                "WorkingDir": "/",
                "Labels": self.labels,
            },
            "rootfs": {"type": "layers", "diff_ids": [layer.id()]},
        }))?;
        let manifest = Blob::json(&json!({
            "schemaVersion": 2,
            "mediaType": "application/vnd.oci.image.manifest.v1+json",
            "config": config.descriptor("application/vnd.oci.image.config.v1+json"),
            "layers": [layer.descriptor("application/vnd.oci.image.layer.v1.tar")],
        }))?;
        let mut reference = manifest.descriptor("application/vnd.oci.image.manifest.v1+json");
        reference["annotations"] = json!({"io.containerd.image.name": self.name});
        let index = json!({
            "schemaVersion": 2,
            "mediaType": "application/vnd.oci.image.index.v1+json",
            "manifests": [reference],
        });
        let docker = json!([{
            "Config": config.path(),
            "RepoTags": [self.name],
            "Layers": [layer.path()],
        }]);

        let mut archive = Builder::new(out);
        append(
            &mut archive,
            "oci-layout",
            br#"{"imageLayoutVersion":"1.0.0"}"#,
            0o644,
        )?;
        append(
            &mut archive,
            "index.json",
            &serde_json::to_vec(&index)?,
            0o644,
        )?;
        append(
            &mut archive,
            "manifest.json",
            &serde_json::to_vec(&docker)?,
            0o644,
        )?;
        for blob in [&layer, &config, &manifest] {
            append(&mut archive, &blob.path(), &blob.bytes, 0o644)?;
        }
        archive.into_inner()?.flush()?;
        Ok(())
    }

    fn layer(&self, binary: &[u8]) -> Result<Vec<u8>> {
        let mut layer = Builder::new(Vec::new());
        append(
            &mut layer,
            self.entrypoint.trim_start_matches('/'),
            binary,
            0o755,
        )?;
        if let Some(link) = &self.link {
            let mut header = header(EntryType::Symlink, 0, 0o777);
            let path = link.trim_start_matches('/');
            layer.append_link(&mut header, path, &self.entrypoint)?;
        }
        if let Some(certificates) = &self.certificates {
            let bytes = fs::read(certificates)
                .with_context(|| format!("reading {}", certificates.display()))?;
            append(&mut layer, CERTIFICATES, &bytes, 0o644)?;
        }
        Ok(layer.into_inner()?)
    }
}

/// A short name would be looked for on Docker Hub.
fn check_name(name: &str) -> Result<()> {
    let is_plain = |part: &str| {
        !part.is_empty()
            && part
                .bytes()
                .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b"._-/".contains(&b))
    };
    let full = name.split_once('/').and_then(|(host, rest)| {
        let (path, tag) = rest.rsplit_once(':')?;
        let is_tag = !tag.is_empty()
            && tag
                .bytes()
                .all(|b| b.is_ascii_alphanumeric() || b"._-".contains(&b));
        (host.contains('.') && is_plain(host) && is_plain(path) && is_tag).then_some(())
    });
    full.with_context(|| {
        format!(
            "image name '{name}' must have a host, a path and a tag, such as elasti.local/app:1"
        )
    })
}

fn append(archive: &mut Builder<impl Write>, path: &str, bytes: &[u8], mode: u32) -> Result<()> {
    let mut header = header(EntryType::Regular, bytes.len(), mode);
    archive.append_data(&mut header, path, bytes)?;
    Ok(())
}

/// Without a time, or no two images would be the same.
fn header(kind: EntryType, size: usize, mode: u32) -> Header {
    let mut header = Header::new_gnu();
    header.set_entry_type(kind);
    header.set_size(size as u64);
    header.set_mode(mode);
    header.set_mtime(0);
    header
}

// === impl Blob ===

impl Blob {
    fn new(bytes: Vec<u8>) -> Self {
        let digest = sha256([&bytes]);
        Self { digest, bytes }
    }

    fn json(value: &Value) -> Result<Self> {
        Ok(Self::new(serde_json::to_vec(value)?))
    }

    fn id(&self) -> String {
        format!("sha256:{}", self.digest)
    }

    fn path(&self) -> String {
        format!("blobs/sha256/{}", self.digest)
    }

    fn descriptor(&self, media_type: &str) -> Value {
        json!({"mediaType": media_type, "digest": self.id(), "size": self.bytes.len()})
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const AMD64: u8 = 0x3e;
    const ARM64: u8 = 0xb7;

    fn executable(machine: u8, rest: &[u8]) -> Vec<u8> {
        let mut bytes = b"\x7fELF".to_vec();
        bytes.resize(18, 0);
        bytes.extend([machine, 0]);
        bytes.extend(rest);
        bytes
    }

    fn image(dir: &Path, bytes: &[u8]) -> Image {
        let binary = dir.join("app");
        fs::write(&binary, bytes).unwrap();
        Image::of_binary("elasti.local/app:1", &binary).unwrap()
    }

    fn archive(image: &Image) -> Vec<u8> {
        let mut bytes = Vec::new();
        image.write(&mut bytes).unwrap();
        bytes
    }

    fn files(archive: &[u8]) -> BTreeMap<String, Vec<u8>> {
        let mut archive = tar::Archive::new(archive);
        let entries = archive.entries().unwrap().map(|entry| {
            let mut entry = entry.unwrap();
            let mut content = Vec::new();
            std::io::Read::read_to_end(&mut entry, &mut content).unwrap();
            (entry.path().unwrap().display().to_string(), content)
        });
        entries.collect()
    }

    fn config(image: &Image) -> Value {
        let files = files(&archive(image));
        let index: Value = serde_json::from_slice(&files["manifest.json"]).unwrap();
        serde_json::from_slice(&files[index[0]["Config"].as_str().unwrap()]).unwrap()
    }

    #[test]
    fn the_same_binary_makes_the_same_image_wherever_and_whenever() {
        let (here, there) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let labelled = |dir: &Path| Image {
            labels: ["version", "title"]
                .map(|key| (key.into(), "1".into()))
                .into(),
            created: Timestamp::from_second(1_700_000_000).unwrap(),
            ..image(dir, &executable(AMD64, b"static"))
        };
        let first = labelled(here.path());
        let second = labelled(there.path());
        let earlier = fs::File::open(&second.binary).unwrap();
        earlier.set_modified(std::time::UNIX_EPOCH).unwrap();
        assert_eq!(archive(&first), archive(&second));
    }

    #[test]
    fn an_image_says_what_it_is_of_when_and_for_which_machines() {
        let dir = tempfile::tempdir().unwrap();
        let image = Image {
            labels: [("org.opencontainers.image.version".into(), "1.2.3".into())].into(),
            created: Timestamp::from_second(1_700_000_000).unwrap(),
            ..image(dir.path(), &executable(ARM64, b"static"))
        };
        let config = config(&image);
        assert_eq!(config["architecture"], "arm64");
        assert_eq!(config["created"], "2023-11-14T22:13:20Z");
        let label = &config["config"]["Labels"]["org.opencontainers.image.version"];
        assert_eq!(label, "1.2.3");
    }

    #[test]
    fn a_binary_for_other_machines_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let image = image(dir.path(), &executable(0xf3, b"static"));
        let error = image.write(Vec::new()).unwrap_err().to_string();
        assert!(error.contains("neither for amd64 nor for arm64"), "{error}");
    }

    #[test]
    fn an_image_has_the_other_path_and_the_authorities_that_it_is_given() {
        let dir = tempfile::tempdir().unwrap();
        let authorities = dir.path().join("bundle.pem");
        fs::write(&authorities, "PEM").unwrap();
        let image = Image {
            link: Some("/manager".into()),
            certificates: Some(authorities),
            ..image(dir.path(), &executable(AMD64, b"static"))
        };
        let layer = image.layer(b"static").unwrap();
        let mut archive = tar::Archive::new(layer.as_slice());
        let entries = archive.entries().unwrap().map(|entry| {
            let entry = entry.unwrap();
            let link = entry.link_name().unwrap();
            let link = link.map(|link| link.display().to_string());
            (entry.path().unwrap().display().to_string(), link)
        });
        let wanted = [
            ("app", None),
            ("manager", Some("/app")),
            ("etc/ssl/certs/ca-certificates.crt", None),
        ];
        let wanted = wanted.map(|(path, link)| (path.to_owned(), link.map(str::to_owned)));
        assert_eq!(entries.collect::<Vec<_>>(), wanted);
    }

    #[test]
    fn a_binary_with_shared_libraries_is_refused_with_the_remedy() {
        let dir = tempfile::tempdir().unwrap();
        let image = image(
            dir.path(),
            &executable(AMD64, b"/lib64/ld-linux-x86-64.so.2"),
        );
        let error = image.write(Vec::new()).unwrap_err().to_string();
        assert!(error.contains("crt-static"), "{error}");
    }

    #[test]
    fn a_name_that_kubelet_would_read_differently_is_refused() {
        for name in [
            "app",
            "app:1",
            "library/app:1",
            "elasti.local/app",
            "elasti.local/App:1",
            "BAD NAME",
        ] {
            let error = Image::of_binary(name, Path::new("app"))
                .err()
                .unwrap()
                .to_string();
            assert!(error.contains("elasti.local/app:1"), "{name}: {error}");
        }
    }

    #[test]
    fn every_blob_is_what_its_digest_says() {
        let dir = tempfile::tempdir().unwrap();
        let image = image(dir.path(), &executable(AMD64, b"static"));
        let mut blobs = 0;
        for (path, content) in files(&archive(&image)) {
            if path.starts_with("blobs/") {
                assert_eq!(Blob::new(content).path(), path);
                blobs += 1;
            }
        }
        assert_eq!(blobs, 3, "layer, config and manifest");
    }
}

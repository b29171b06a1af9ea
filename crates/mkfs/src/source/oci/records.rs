//! What the JSON of images says, as far as it is needed. Other fields are passed over.

use serde::Deserialize;

use super::platform::Platform;

/// A layout's `index.json`, and an index in it.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Index {
    pub(super) media_type: Option<String>,
    pub(super) manifests: Vec<Descriptor>,
}

/// What names a piece of content.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Descriptor {
    #[serde(default)]
    pub(super) media_type: String,
    pub(super) digest: String,
    pub(super) size: u64,
    pub(super) platform: Option<PlatformRecord>,
    pub(super) annotations: Option<Annotations>,
}

#[derive(Clone, Debug, Deserialize)]
pub(super) struct PlatformRecord {
    pub(super) os: String,
    pub(super) architecture: String,
    pub(super) variant: Option<String>,
}

impl PlatformRecord {
    pub(super) fn platform(&self) -> Platform {
        Platform::of(&self.os, &self.architecture, self.variant.as_deref())
    }
}

/// Annotations of a descriptor.
#[derive(Clone, Debug, Default, Deserialize)]
pub(super) struct Annotations {
    #[serde(rename = "org.opencontainers.image.ref.name")]
    pub(super) ref_name: Option<String>,
    /// containerd's, with the whole name.
    #[serde(rename = "io.containerd.image.name")]
    pub(super) image_name: Option<String>,
    /// BuildKit's, of what is said about another image.
    #[serde(rename = "vnd.docker.reference.type")]
    pub(super) reference_type: Option<String>,
}

/// One image of a layout.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Manifest {
    pub(super) media_type: Option<String>,
    pub(super) config: Descriptor,
    pub(super) layers: Vec<Descriptor>,
}

/// The configuration of an image.
#[derive(Debug, Deserialize)]
pub(super) struct Config {
    pub(super) os: Option<String>,
    pub(super) architecture: Option<String>,
    pub(super) variant: Option<String>,
    pub(super) rootfs: RootFs,
}

impl Config {
    pub(super) fn platform(&self) -> Option<Platform> {
        let (os, architecture) = (self.os.as_deref()?, self.architecture.as_deref()?);
        Some(Platform::of(os, architecture, self.variant.as_deref()))
    }
}

#[derive(Debug, Deserialize)]
pub(super) struct RootFs {
    pub(super) diff_ids: Option<Vec<String>>,
}

impl RootFs {
    pub(super) fn digests(&self) -> &[String] {
        self.diff_ids.as_deref().unwrap_or_default()
    }
}

/// One image in what `docker save` writes.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct Saved {
    pub(super) config: String,
    pub(super) repo_tags: Option<Vec<String>>,
    pub(super) layers: Option<Vec<String>>,
}

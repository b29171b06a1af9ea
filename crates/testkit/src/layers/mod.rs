//! Container images by hand: OCI layouts, what `docker save` writes, and stacks of layers.
//!
//! | module | owns |
//! |---|---|
//! | `tar` | archives, member by member |
//! | [`stacks`] | stacks of layers, each for one thing that layers do to each other |

pub mod stacks;
mod tar;

pub use tar::Tar;

use std::fs;
use std::path::{Path, PathBuf};

use crate::tool::tool;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

/// The media type of an index.
pub const INDEX: &str = "application/vnd.oci.image.index.v1+json";
/// The media type of a manifest.
pub const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
const CONFIG: &str = "application/vnd.oci.image.config.v1+json";
/// The media type of a layer that is not compressed.
pub const LAYER: &str = "application/vnd.oci.image.layer.v1.tar";

/// Returns the digest of content.
pub fn digest(bytes: &[u8]) -> String {
    let hash = Sha256::digest(bytes);
    let hex: String = hash.iter().map(|byte| format!("{byte:02x}")).collect();
    format!("sha256:{hex}")
}

/// An OCI layout in a directory.
#[derive(Debug)]
pub struct Layout(pub PathBuf);

impl Layout {
    /// Makes a layout of no image.
    ///
    /// # Panics
    ///
    /// When the system refuses.
    pub fn new(dir: PathBuf) -> Self {
        fs::create_dir_all(dir.join("blobs/sha256")).unwrap();
        fs::write(
            dir.join("oci-layout"),
            json!({"imageLayoutVersion": "1.0.0"}).to_string(),
        )
        .unwrap();
        Self(dir)
    }

    /// Returns where content with a digest lies.
    pub fn path_of(&self, digest: &str) -> PathBuf {
        self.0.join("blobs").join(digest.replace(':', "/"))
    }

    /// Adds content, and returns what names it.
    ///
    /// # Panics
    ///
    /// When the system refuses.
    pub fn add(&self, media_type: &str, bytes: &[u8]) -> Value {
        let digest = digest(bytes);
        fs::write(self.path_of(&digest), bytes).unwrap();
        json!({"mediaType": media_type, "digest": digest, "size": bytes.len()})
    }

    /// Adds an image of these layers for a platform; every fourth layer is compressed.
    ///
    /// # Panics
    ///
    /// When the system refuses.
    pub fn image(&self, layers: &[Vec<u8>], architecture: &str) -> Value {
        let descriptors: Vec<Value> = layers
            .iter()
            .enumerate()
            .map(|(index, tar)| match index % 4 {
                1 => {
                    let packed = tool("gzip").arg("-nc").input(tar.clone()).ok().stdout;
                    self.add(&format!("{LAYER}+gzip"), &packed)
                }
                _ => self.add(LAYER, tar),
            })
            .collect();
        self.image_of(&descriptors, layers, architecture)
    }

    /// Adds an image of layers that were added.
    ///
    /// # Panics
    ///
    /// When the system refuses.
    pub fn image_of(&self, descriptors: &[Value], layers: &[Vec<u8>], architecture: &str) -> Value {
        let diff_ids: Vec<String> = layers.iter().map(|tar| digest(tar)).collect();
        let config = json!({
            "os": "linux",
            "architecture": architecture,
            "config": {"Entrypoint": ["/init"], "Env": ["A=b"]},
            "rootfs": {"type": "layers", "diff_ids": diff_ids},
            "history": [],
        });
        let config = self.add(CONFIG, config.to_string().as_bytes());
        let manifest = json!({
            "schemaVersion": 2,
            "mediaType": MANIFEST,
            "config": config,
            "layers": descriptors,
        });
        self.add(MANIFEST, manifest.to_string().as_bytes())
    }

    /// Writes the index of all images.
    ///
    /// # Panics
    ///
    /// When the system refuses.
    pub fn index(&self, manifests: &[Value]) {
        let index = json!({"schemaVersion": 2, "manifests": manifests});
        fs::write(self.0.join("index.json"), index.to_string()).unwrap();
    }

    /// Makes a layout of one image with the tag `t`.
    ///
    /// # Panics
    ///
    /// When the system refuses.
    pub fn of(dir: PathBuf, layers: &[Vec<u8>]) -> Self {
        let layout = Self::new(dir);
        let image = layout.image(layers, "amd64");
        layout.index(&[tagged(image, "t")]);
        layout
    }

    /// Writes the layout as an archive.
    ///
    /// # Panics
    ///
    /// When the system refuses.
    pub fn archive(&self, to: &Path) {
        tool("tar")
            .args(["-C", self.0.to_str().unwrap(), "-cf", to.to_str().unwrap()])
            .args(["oci-layout", "index.json", "blobs"])
            .ok();
    }
}

/// Gives what names an image a tag.
pub fn tagged(mut descriptor: Value, tag: &str) -> Value {
    descriptor["annotations"] = json!({"org.opencontainers.image.ref.name": tag});
    descriptor
}

/// Makes what `docker save` wrote for long: layers as they are, named in `manifest.json`.
pub fn docker_archive(layers: &[Vec<u8>], tag: &str) -> Vec<u8> {
    let diff_ids: Vec<String> = layers.iter().map(|tar| digest(tar)).collect();
    let config = json!({
        "os": "linux",
        "architecture": "amd64",
        "rootfs": {"type": "layers", "diff_ids": diff_ids},
    })
    .to_string();
    let config_name = format!("{}.json", &digest(config.as_bytes())[7..]);
    let mut tar = Tar::new().file(&config_name, config.as_bytes());
    let mut names = Vec::new();
    for (index, layer) in layers.iter().enumerate() {
        let name = format!("{:064x}/layer.tar", index + 1);
        // A layer that is there already is a link to it.
        match layers[..index].iter().position(|before| before == layer) {
            Some(before) => {
                let target = format!("../{:064x}/layer.tar", before + 1);
                tar = tar.member(&name, b'2', &target, b"");
            }
            None => tar = tar.file(&name, layer),
        }
        names.push(name);
    }
    let manifest = json!([{"Config": config_name, "RepoTags": [tag], "Layers": names}]);
    tar.file("manifest.json", manifest.to_string().as_bytes())
        .end()
}

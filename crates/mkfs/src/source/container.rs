//! Sources that hold a container image instead of the files in it.

use super::error::{SourceError, SourceResult};
use super::model::{FileType, NodeId, Tree};
use std::path::Path;

/// Hexadecimal digits of a SHA-256.
const DIGEST: usize = 64;

/// Refuses a tree whose root is an OCI layout, or what `docker save` writes.
pub(super) fn check(tree: &Tree, source: &Path) -> SourceResult<()> {
    let has = |name: &str, kind| {
        tree.child(NodeId::ROOT, name.as_bytes())
            .is_some_and(|id| tree.node(id).kind() == kind)
    };
    let oci = has("oci-layout", FileType::Regular) && has("blobs", FileType::Directory);
    let docker = has("manifest.json", FileType::Regular)
        && tree
            .children(NodeId::ROOT)
            .any(|(name, id)| is_layer(tree, name, id));
    if !oci && !docker {
        return Ok(());
    }
    let (what, mark) = if oci {
        ("an OCI layout", "oci-layout")
    } else {
        ("what docker save writes", "manifest.json")
    };
    Err(SourceError::NotASource {
        path: source.to_owned(),
        what: format!(
            "is a container image ({what}): it holds layers and not the files of the container"
        ),
        advice: format!(
            "flatten it first, such as with docker load, docker create and docker export, or umoci unpack; \
             --exclude {mark} takes its files as they are"
        ),
    })
}

/// A layer: `DIGEST/layer.tar`, or `DIGEST.tar`.
fn is_layer(tree: &Tree, name: &[u8], id: NodeId) -> bool {
    let digest = name.strip_suffix(b".tar").unwrap_or(name);
    let is_digest = digest.len() == DIGEST && digest.iter().all(u8::is_ascii_hexdigit);
    is_digest && (digest.len() < name.len() || tree.child(id, b"layer.tar").is_some())
}

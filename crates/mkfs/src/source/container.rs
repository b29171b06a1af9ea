//! Sources that hold a container image, or a layer of one, instead of the files in it.

use super::error::{SourceError, SourceResult};
use super::model::{FileType, NodeId, Tree};
use std::path::Path;

/// Hexadecimal digits of a SHA-256.
const DIGEST: usize = 64;

/// What to do with something that is no tree yet.
const FLATTEN: &str =
    "flatten it first, such as with docker load, docker create and docker export, or umoci unpack";

/// Refuses a tree whose root is an OCI layout, or what container tools save an image as, and one
/// that is a single layer.
pub(super) fn check(tree: &Tree, source: &Path) -> SourceResult<()> {
    let refuse = |what: String, exclude: &str| {
        Err(SourceError::NotASource {
            path: source.to_owned(),
            what,
            advice: format!("{FLATTEN}; {exclude}"),
        })
    };
    if let Some((what, mark)) = kind(tree) {
        return refuse(
            format!(
                "is a container image ({what}): it holds layers and not the files of the container"
            ),
            &format!("--exclude {mark} takes its files as they are"),
        );
    }
    // Those of an archive were refused where they lie in it.
    if let Some(whiteout) = whiteout(tree) {
        return refuse(
            format!(
                "is one layer of a container image: the whiteout {} says what the layers below lose",
                tree.path(whiteout).display()
            ),
            "--exclude '.wh.*' leaves such names out",
        );
    }
    Ok(())
}

/// The kind of container image, and the file that says so.
fn kind(tree: &Tree) -> Option<(&'static str, &'static str)> {
    let root = |name: &str, kind| {
        tree.child(NodeId::ROOT, name.as_bytes())
            .filter(|id| tree.node(*id).kind() == kind)
    };
    let file = |name| root(name, FileType::Regular).is_some();
    let blobs = root("blobs", FileType::Directory);
    // Where layers lie by their digests.
    let has_blobs = blobs
        .and_then(|blobs| tree.child(blobs, b"sha256"))
        .is_some_and(|dir| tree.children(dir).any(|(name, _)| is_digest(name)));
    let has_layers = || {
        tree.children(NodeId::ROOT)
            .any(|(name, id)| is_layer(tree, name, id, file("version")))
    };
    if file("oci-layout") && blobs.is_some() {
        return Some(("an OCI layout", "oci-layout"));
    }
    if file("manifest.json") && (has_blobs || has_layers()) {
        return Some(("what docker save writes", "manifest.json"));
    }
    if file("index.json") && has_blobs {
        return Some(("an OCI layout", "index.json"));
    }
    (file("repositories") && has_layers()).then_some(("what docker save writes", "repositories"))
}

/// A layer: `DIGEST/layer.tar`, `DIGEST.tar`, also compressed, or, beside a file `version`
/// (`has_version`), a file that is called by its digest alone.
fn is_layer(tree: &Tree, name: &[u8], id: NodeId, has_version: bool) -> bool {
    let suffixes: [&[u8]; 4] = [b".tar", b".tar.gz", b".tar.zst", b".tgz"];
    let stem = suffixes
        .iter()
        .find_map(|suffix| name.strip_suffix(*suffix));
    let is_file = tree.node(id).kind() == FileType::Regular && (stem.is_some() || has_version);
    is_digest(stem.unwrap_or(name)) && (is_file || tree.child(id, b"layer.tar").is_some())
}

fn is_digest(name: &[u8]) -> bool {
    let digits = name.strip_prefix(b"sha256:").unwrap_or(name);
    digits.len() == DIGEST && digits.iter().all(u8::is_ascii_hexdigit)
}

/// A file that stands for the removal of one in the layers below.
fn whiteout(tree: &Tree) -> Option<NodeId> {
    tree.ids()
        .filter(|id| tree.node(*id).is_dir())
        .flat_map(|dir| tree.entries(dir))
        .find(|entry| tree.name(entry).starts_with(b".wh."))
        .map(|entry| entry.node)
}

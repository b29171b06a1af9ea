//! Sources that hold a container image, or a layer of one, instead of the files in it.

use super::error::{SourceError, SourceResult};
use super::model::{FileType, NodeId, Tree};
use super::whiteout::PREFIX;
use std::path::Path;

/// Hexadecimal digits of a SHA-256.
const DIGEST: usize = 64;

/// The kinds of container images.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// An OCI layout.
    Oci,
    /// What `docker save` writes.
    Docker,
}

/// Refuses a tree that is a single layer.
pub(super) fn refuse_layer(tree: &Tree, source: &Path) -> SourceResult<()> {
    // Those of an archive were refused where they lie in it.
    let Some(whiteout) = whiteout(tree) else {
        return Ok(());
    };
    Err(SourceError::NotASource {
        path: source.to_owned(),
        what: format!(
            "is one layer of a container image: the whiteout {} says what the layers below lose",
            tree.path(whiteout).display()
        ),
        advice: "give the layers below as sources before it, or the whole image; --whiteouts \
                 overlay keeps whiteouts as overlayfs has them, and --exclude '.wh.*' leaves such \
                 names out"
            .to_owned(),
    })
}

/// The kind of container image that a tree is.
pub(super) fn kind(tree: &Tree) -> Option<Kind> {
    let root = |name: &str, kind| {
        tree.child(NodeId::ROOT, name.as_bytes())
            .filter(|id| tree.node(*id).kind() == kind)
    };
    let file = |name| root(name, FileType::Regular).is_some();
    let blobs = root("blobs", FileType::Directory);
    let has_blobs = has_blobs(tree);
    let has_layers = || has_layers(tree);
    // Docker writes both lists, and has the content of its own only where it keeps images in the
    // OCI's form, too.
    if file("manifest.json") && (has_blobs || has_layers()) {
        return Some(Kind::Docker);
    }
    if (file("oci-layout") && blobs.is_some()) || (file("index.json") && has_blobs) {
        return Some(Kind::Oci);
    }
    (file("repositories") && has_layers()).then_some(Kind::Docker)
}

/// Whether a tree has what an image consists of.
pub(super) fn has_content(tree: &Tree) -> bool {
    has_blobs(tree) || has_layers(tree)
}

/// Whether layers lie there by their digests.
fn has_blobs(tree: &Tree) -> bool {
    tree.lookup("blobs/sha256")
        .is_some_and(|dir| tree.children(dir).any(|(name, _)| is_digest(name)))
}

fn has_layers(tree: &Tree) -> bool {
    let has_version = tree
        .child(NodeId::ROOT, b"version")
        .is_some_and(|id| tree.node(id).kind() == FileType::Regular);
    tree.children(NodeId::ROOT)
        .any(|(name, id)| is_layer(tree, name, id, has_version))
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
        .find(|entry| tree.name(entry).starts_with(PREFIX))
        .map(|entry| entry.node)
}

//! Container images: which layers they have, and whether these are what they should be.
//!
//! | module | owns |
//! |---|---|
//! | `store` | the files of an image, in a directory or an archive |
//! | `digest` | names of content by its hash |
//! | `records` | what the JSON says, as far as it is needed |
//! | `platform` | systems and processors |
//! | `layout` | OCI layouts: from the index to a manifest |
//! | `docker` | what `docker save` writes |
//!
//! Read as the OCI image specification 1.1 has it, and Docker's image specification 1.2. All of it
//! is hostile input: names are no paths outside, JSON has at most `JSON_MAX` bytes, indexes in
//! indexes end, and what has a digest is compared with it before it is used; layers that are read
//! where they are, at the latest before an image of them is complete.

use std::collections::HashSet;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use super::container::Kind;
use super::error::{SourceError, SourceResult};
use super::packed::Packing;
use super::tar::{Allowance, Bytes, TarOptions, settle_layer};
use digest::{Digest, Hasher};

mod digest;
mod docker;
mod layout;
mod platform;
mod records;
mod store;

pub use platform::Platform;
pub(super) use store::Store;

/// Most bytes of one piece of JSON; registries take no manifest of more than 4 MiB.
const JSON_MAX: u64 = 8 << 20;

/// Most layers of an image. Docker takes 127.
const LAYERS_MAX: usize = 500;

/// An image that was found, with nothing read of its layers.
pub(super) struct Image {
    /// From the lowest.
    pub(super) layers: Vec<LayerBlob>,
    /// The configuration, as it stands.
    pub(super) config: Vec<u8>,
}

/// A layer as it is stored.
pub(super) struct LayerBlob {
    /// What it is called in errors.
    pub(super) name: PathBuf,
    bytes: Bytes,
    /// How it is said to be compressed.
    declared: Option<Packing>,
    /// Of the bytes as they are stored.
    digest: Option<Digest>,
    /// Of the archive when it is not compressed.
    diff_id: Digest,
}

/// A layer that is read where it is, and still to be compared with its digests.
#[derive(Debug)]
pub(crate) struct Unproven {
    name: PathBuf,
    bytes: Bytes,
    /// Of the bytes as they are stored, if it is another than the next.
    digest: Option<Digest>,
    diff_id: Digest,
}

/// Finds the image in a store.
///
/// # Errors
///
/// [`SourceError::Refused`] for what is damaged, missing, or not one image.
pub(super) fn find(
    store: &Store<'_>,
    kind: Kind,
    tag: Option<&str>,
    platform: Option<&Platform>,
) -> SourceResult<Image> {
    match kind {
        Kind::Oci => layout::find(store, tag, platform),
        Kind::Docker => docker::find(store, tag, platform),
    }
}

impl Image {
    /// What all its layers together may become. One that is listed several times counts once.
    pub(super) fn allowance(&self) -> Allowance {
        let mut seen = HashSet::new();
        let packed = self.layers.iter().filter_map(|layer| {
            let bytes = &layer.bytes;
            let file = bytes.file.metadata().ok()?;
            let is_new = seen.insert((file.dev(), file.ino(), bytes.base));
            is_new.then_some(bytes.len)
        });
        Allowance::of(packed.fold(0, u64::saturating_add))
    }
}

impl LayerBlob {
    /// Gives the layer as an archive that is not compressed. One that is compressed is compared
    /// with its digests on the way, and any other is to be compared with them later. `allowed` is
    /// what all layers of the image may still become.
    ///
    /// # Errors
    ///
    /// [`SourceError::Refused`] if it is not what its digests say, or not compressed as its type
    /// says; those of reading and of spooling.
    pub(super) fn open(
        &self,
        options: &TarOptions,
        allowed: &Allowance,
    ) -> SourceResult<(Bytes, Option<Unproven>)> {
        let packing = Packing::of(&head_of(&self.bytes, &self.name)?);
        if let Some(declared) = self.declared
            && declared != packing
        {
            let how = |packing: Packing| match packing {
                Packing::Plain => "not compressed".to_owned(),
                other => format!("compressed with {}", other.name()),
            };
            let (declared, packing) = (how(declared), how(packing));
            return Err(self.refused(format!(
                "its type says that it is {declared}, and it is {packing}"
            )));
        }
        if packing == Packing::Plain {
            let unproven = Unproven {
                name: self.name.clone(),
                bytes: self.bytes.clone(),
                digest: self.digest.clone(),
                diff_id: self.diff_id.clone(),
            };
            let bytes = Bytes {
                is_whole: true,
                ..self.bytes.clone()
            };
            return Ok((bytes, Some(unproven)));
        }
        if let Some(digest) = &self.digest {
            compare(&self.bytes, &self.name, digest, stored_otherwise)?;
        }
        let mut hasher = Hasher::new(&self.diff_id);
        let bytes = settle_layer(&self.bytes, &self.name, options, allowed, |bytes| {
            hasher.update(bytes);
        })?;
        hasher
            .compare(&self.diff_id)
            .map_err(|found| self.refused(configured_otherwise(&found, &self.diff_id)))?;
        let bytes = Bytes {
            is_whole: true,
            ..bytes
        };
        Ok((bytes, None))
    }

    fn refused(&self, problem: String) -> SourceError {
        SourceError::Refused {
            path: self.name.clone(),
            problem,
        }
    }
}

impl Unproven {
    /// Compares the layer with its digests.
    ///
    /// # Errors
    ///
    /// [`SourceError::Refused`] if it is not what they say; those of reading.
    pub(crate) fn prove(&self) -> SourceResult<()> {
        // Mostly there is one, and it is read once.
        if let Some(digest) = self.digest.as_ref().filter(|one| **one != self.diff_id) {
            compare(&self.bytes, &self.name, digest, stored_otherwise)?;
        }
        compare(&self.bytes, &self.name, &self.diff_id, configured_otherwise)
    }
}

/// Compares bytes with their digest; `problem` is what is wrong if they have another.
fn compare(
    bytes: &Bytes,
    name: &Path,
    digest: &Digest,
    problem: fn(&Digest, &Digest) -> String,
) -> SourceResult<()> {
    let mut hasher = Hasher::new(digest);
    bytes.each(name, |bytes| hasher.update(bytes))?;
    hasher
        .compare(digest)
        .map_err(|found| SourceError::Refused {
            path: name.to_owned(),
            problem: problem(&found, digest),
        })
}

fn stored_otherwise(found: &Digest, expected: &Digest) -> String {
    format!("its digest is {found}, and should be {expected}")
}

fn configured_otherwise(found: &Digest, expected: &Digest) -> String {
    format!(
        "the digest of the archive in it is {found}, and the image's configuration says {expected}"
    )
}

/// The first bytes, by which compressed data is known.
fn head_of(bytes: &Bytes, name: &Path) -> SourceResult<Vec<u8>> {
    let head = Bytes {
        len: bytes.len.min(16),
        ..bytes.clone()
    };
    let mut found = Vec::new();
    head.each(name, |bytes| found.extend_from_slice(bytes))?;
    Ok(found)
}

/// Refuses more layers than are read, before any is opened.
fn check_count(store: &Store<'_>, count: usize) -> SourceResult<()> {
    if count <= LAYERS_MAX {
        return Ok(());
    }
    Err(store.refused(format!(
        "{count} layers, and at most {LAYERS_MAX} are read: join some"
    )))
}

/// Names layers, and brings them together with the digests of the image's configuration.
fn layers(
    store: &Store<'_>,
    blobs: Vec<(Bytes, Option<Packing>, Option<Digest>)>,
    diff_ids: &[String],
) -> SourceResult<Vec<LayerBlob>> {
    let count = blobs.len();
    if count != diff_ids.len() {
        return Err(store.refused(format!(
            "{count} layers, and its configuration has digests of {}",
            diff_ids.len()
        )));
    }
    let layers = blobs.into_iter().zip(diff_ids).enumerate();
    layers
        .map(|(index, ((bytes, declared, digest), diff_id))| {
            let diff_id = Digest::parse(diff_id).map_err(|e| store.refused(e))?;
            let number = index + 1;
            let what = digest.as_ref().unwrap_or(&diff_id);
            Ok(LayerBlob {
                name: PathBuf::from(format!(
                    "{}: layer {number} of {count} ({})",
                    store.name().display(),
                    what.short()
                )),
                bytes,
                declared,
                digest,
                diff_id,
            })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;
    use std::sync::Arc;

    #[test]
    fn a_layer_that_is_listed_again_may_become_no_more() {
        let dir = tempfile::tempdir().unwrap();
        let place = dir.path().join("layer");
        std::fs::write(&place, [0; 300]).unwrap();
        let layer = |base, len| LayerBlob {
            name: place.clone(),
            // Each time it is listed the file is opened.
            bytes: Bytes {
                file: Arc::new(File::open(&place).unwrap()),
                base,
                len,
                stamp: None,
                is_whole: false,
            },
            declared: None,
            digest: None,
            diff_id: Digest::parse(&format!("sha256:{}", "0".repeat(64))).unwrap(),
        };
        let all = |layers| {
            let config = Vec::new();
            Image { layers, config }.allowance().all()
        };
        let free = all(Vec::new());
        assert_eq!(free, 16 << 30);
        assert_eq!(all(vec![layer(0, 100)]), free + 110_000);
        let again = (0..500).map(|_| layer(0, 100)).collect();
        assert_eq!(all(again), free + 110_000);
        let others = vec![layer(0, 100), layer(100, 200), layer(0, 100)];
        assert_eq!(all(others), free + 330_000);
    }
}

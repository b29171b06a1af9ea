//! OCI layouts: from the index to the manifest of one image, and from there to its layers.

use std::collections::HashSet;

use super::super::error::SourceResult;
use super::super::packed::Packing;
use super::digest::Digest;
use super::platform::{self, Platform};
use super::records::{Config, Descriptor, Index, Manifest};
use super::store::Store;
use super::{Image, check_count, layers};

/// How deep indexes may lie in indexes.
const DEPTH_MAX: u32 = 4;
/// Most manifests and indexes that are looked at.
const MANIFESTS_MAX: usize = 1000;

const INDEX_TYPES: [&str; 2] = [
    "application/vnd.oci.image.index.v1+json",
    "application/vnd.docker.distribution.manifest.list.v2+json",
];
const MANIFEST_TYPES: [&str; 2] = [
    "application/vnd.oci.image.manifest.v1+json",
    "application/vnd.docker.distribution.manifest.v2+json",
];
const CONFIG_TYPES: [&str; 2] = [
    "application/vnd.oci.image.config.v1+json",
    "application/vnd.docker.container.image.v1+json",
];

/// Types of layers without what says how they are compressed.
const LAYER_TYPES: [&str; 4] = [
    "application/vnd.oci.image.layer.v1.tar",
    "application/vnd.oci.image.layer.nondistributable.v1.tar",
    "application/vnd.docker.image.rootfs.diff.tar",
    "application/vnd.docker.image.rootfs.foreign.diff.tar",
];

/// An image of a layout that may be meant.
struct Candidate {
    descriptor: Descriptor,
    digest: Digest,
    /// The name that the layout has for it.
    name: Option<String>,
}

/// Finds the image with this tag for this platform, or the only one.
pub(super) fn find(
    store: &Store<'_>,
    tag: Option<&str>,
    platform: Option<&Platform>,
) -> SourceResult<Image> {
    let what = "index.json";
    let index: Index = store.parse(&store.read_file(what)?, what)?;
    let named = tagged(store, index.manifests, tag)?;
    let mut candidates = candidates(store, named)?;
    if let Some(asked) = platform {
        candidates = platform::only(store, candidates, asked, |one| platform_of(store, one))?;
    }
    match &candidates[..] {
        [one] => open(store, one),
        [] => Err(store.refused("it holds no image that has files")),
        several => {
            let names: Vec<String> = several.iter().map(|one| told(store, one)).collect();
            Err(store.refused(format!(
                "it holds several images: {}; say which, by its tag (oci:DIR:TAG) or with \
                 --platform",
                names.join(", ")
            )))
        }
    }
}

/// The entries of an index that have this name.
fn tagged(
    store: &Store<'_>,
    entries: Vec<Descriptor>,
    tag: Option<&str>,
) -> SourceResult<Vec<Descriptor>> {
    let Some(tag) = tag else {
        return Ok(entries);
    };
    let names = |entry: &Descriptor| -> Vec<String> {
        let annotations = entry.annotations.clone().unwrap_or_default();
        [annotations.ref_name, annotations.image_name]
            .into_iter()
            .flatten()
            .collect()
    };
    let behind_colon = format!(":{tag}");
    let is_it = |name: &String| name == tag || name.ends_with(&behind_colon);
    let found: Vec<Descriptor> = entries
        .iter()
        .filter(|entry| names(entry).iter().any(is_it))
        .cloned()
        .collect();
    if found.is_empty() {
        let all: Vec<String> = entries.iter().flat_map(names).take(20).collect();
        let all = match all.len() {
            0 => "its images have no tags".to_owned(),
            _ => format!("there are {}", all.join(", ")),
        };
        return Err(store.refused(format!("no image has the tag {tag}; {all}")));
    }
    Ok(found)
}

/// All images that entries lead to, through further indexes.
fn candidates(store: &Store<'_>, entries: Vec<Descriptor>) -> SourceResult<Vec<Candidate>> {
    let mut waiting: Vec<(Descriptor, Option<String>, u32)> = Vec::new();
    let push = |waiting: &mut Vec<_>, entries: Vec<Descriptor>, name: Option<String>, depth| {
        for entry in entries.into_iter().rev() {
            let own = entry.annotations.as_ref();
            let own = own.and_then(|own| own.ref_name.clone().or(own.image_name.clone()));
            waiting.push((entry, own.or(name.clone()), depth));
        }
    };
    push(&mut waiting, entries, None, 0);
    let mut seen = HashSet::new();
    let mut found = Vec::new();
    while let Some((descriptor, name, depth)) = waiting.pop() {
        if is_about_another(&descriptor) {
            continue;
        }
        let digest = Digest::parse(&descriptor.digest).map_err(|e| store.refused(e))?;
        if !seen.insert(digest.clone()) {
            continue;
        }
        if seen.len() > MANIFESTS_MAX {
            return Err(store.refused(format!(
                "its indexes name more than {MANIFESTS_MAX} images: say which, by its tag"
            )));
        }
        let media_type = descriptor.media_type.as_str();
        if INDEX_TYPES.contains(&media_type) {
            if depth >= DEPTH_MAX {
                return Err(
                    store.refused(format!("indexes lie in indexes more than {DEPTH_MAX} deep"))
                );
            }
            let what = "the index";
            let json = store.read_blob(&digest, descriptor.size, what)?;
            let index: Index = store.parse(&json, what)?;
            same_type(store, media_type, index.media_type.as_deref())?;
            push(&mut waiting, index.manifests, name, depth + 1);
        } else if MANIFEST_TYPES.contains(&media_type) {
            found.push(Candidate {
                descriptor,
                digest,
                name,
            });
        }
    }
    Ok(found)
}

/// Whether an entry is said about another image, such as how it was built.
fn is_about_another(entry: &Descriptor) -> bool {
    let annotations = entry.annotations.as_ref();
    let reference = annotations.and_then(|all| all.reference_type.as_deref());
    let platform = entry.platform.as_ref();
    reference == Some("attestation-manifest") || platform.is_some_and(|of| of.os == "unknown")
}

/// What content says that it is must be what it is said to be: nothing is read in two ways.
fn same_type(store: &Store<'_>, said: &str, own: Option<&str>) -> SourceResult<()> {
    match own {
        Some(own) if own != said => {
            Err(store.refused(format!("what is called {said} says that it is {own}")))
        }
        _ => Ok(()),
    }
}

/// What an image runs on: as the index says, or else its own configuration.
fn platform_of(store: &Store<'_>, candidate: &Candidate) -> SourceResult<Option<Platform>> {
    if let Some(platform) = &candidate.descriptor.platform {
        return Ok(Some(platform.platform()));
    }
    let manifest = manifest_of(store, candidate)?;
    let json = config_of(store, &manifest)?;
    let config: Config = store.parse(&json, "the configuration")?;
    Ok(config.platform())
}

/// An image as a person would know it among others.
fn told(store: &Store<'_>, candidate: &Candidate) -> String {
    let name = candidate.name.clone();
    let name = name.unwrap_or_else(|| candidate.digest.short());
    match platform_of(store, candidate) {
        Ok(Some(platform)) => format!("{name} for {platform}"),
        _ => name,
    }
}

fn manifest_of(store: &Store<'_>, candidate: &Candidate) -> SourceResult<Manifest> {
    let what = "the manifest";
    let descriptor = &candidate.descriptor;
    let json = store.read_blob(&candidate.digest, descriptor.size, what)?;
    let manifest: Manifest = store.parse(&json, what)?;
    same_type(
        store,
        &descriptor.media_type,
        manifest.media_type.as_deref(),
    )?;
    Ok(manifest)
}

fn config_of(store: &Store<'_>, manifest: &Manifest) -> SourceResult<Vec<u8>> {
    let descriptor = &manifest.config;
    if !CONFIG_TYPES.contains(&descriptor.media_type.as_str()) {
        return Err(store.refused(format!(
            "its configuration is of the type {:?}: it is no image with files",
            descriptor.media_type
        )));
    }
    let digest = Digest::parse(&descriptor.digest).map_err(|e| store.refused(e))?;
    store.read_blob(&digest, descriptor.size, "the configuration")
}

fn open(store: &Store<'_>, candidate: &Candidate) -> SourceResult<Image> {
    let manifest = manifest_of(store, candidate)?;
    check_count(store, manifest.layers.len())?;
    let json = config_of(store, &manifest)?;
    let config: Config = store.parse(&json, "the configuration")?;
    let blobs = manifest
        .layers
        .iter()
        .map(|layer| {
            let declared = packing_of(&layer.media_type).ok_or_else(|| {
                store.refused(format!(
                    "a layer is of the type {:?}, which is none of files (encrypted ones are \
                     decrypted first)",
                    layer.media_type
                ))
            })?;
            let digest = Digest::parse(&layer.digest).map_err(|e| store.refused(e))?;
            let bytes = store.blob(&digest, layer.size, "the layer")?;
            Ok((bytes, Some(declared), Some(digest)))
        })
        .collect::<SourceResult<Vec<_>>>()?;
    Ok(Image {
        layers: layers(store, blobs, config.rootfs.digests())?,
        config: json,
    })
}

/// How a layer of this type is compressed; `None` if it is no layer of files.
fn packing_of(media_type: &str) -> Option<Packing> {
    let suffix = LAYER_TYPES
        .iter()
        .find_map(|plain| media_type.strip_prefix(plain))?;
    match suffix {
        "" => Some(Packing::Plain),
        "+gzip" | ".gzip" => Some(Packing::Gzip),
        "+zstd" | ".zstd" => Some(Packing::Zstd),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_say_how_layers_are_compressed() {
        for (media_type, packing) in [
            (
                "application/vnd.oci.image.layer.v1.tar",
                Some(Packing::Plain),
            ),
            (
                "application/vnd.oci.image.layer.v1.tar+gzip",
                Some(Packing::Gzip),
            ),
            (
                "application/vnd.oci.image.layer.v1.tar+zstd",
                Some(Packing::Zstd),
            ),
            (
                "application/vnd.docker.image.rootfs.diff.tar.gzip",
                Some(Packing::Gzip),
            ),
            (
                "application/vnd.oci.image.layer.nondistributable.v1.tar+gzip",
                Some(Packing::Gzip),
            ),
            (
                "application/vnd.oci.image.layer.v1.tar+gzip+encrypted",
                None,
            ),
            ("application/vnd.in-toto+json", None),
            ("", None),
        ] {
            assert_eq!(packing_of(media_type), packing, "{media_type}");
        }
    }
}

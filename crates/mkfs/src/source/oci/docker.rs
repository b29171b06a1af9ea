//! What `docker save` writes: `manifest.json` with a list of images, their configurations and
//! layers.

use super::super::error::SourceResult;
use super::digest::Digest;
use super::platform::{self, Platform};
use super::records::{Config, Saved};
use super::store::Store;
use super::{Image, check_count, layers};

/// Finds the image with this tag for this platform, or the only one.
pub(super) fn find(
    store: &Store<'_>,
    tag: Option<&str>,
    platform: Option<&Platform>,
) -> SourceResult<Image> {
    let what = "manifest.json";
    let Some(bytes) = store.open(what)? else {
        return Err(store.refused(
            "manifest.json is missing: docker load takes what old versions of Docker saved, and \
             docker save writes it anew; an OCI layout is named oci:DIR or oci-archive:FILE",
        ));
    };
    let mut images: Vec<Saved> = store.parse(&store.read(&bytes, what)?, what)?;
    if let Some(tag) = tag {
        let all: Vec<String> = images.iter().flat_map(tags).take(20).cloned().collect();
        images.retain(|image| tags(image).any(|name| is_tag(name, tag)));
        if images.is_empty() {
            let all = match all.len() {
                0 => "its images have no tags".to_owned(),
                _ => format!("there are {}", all.join(", ")),
            };
            return Err(store.refused(format!("no image has the tag {tag}; {all}")));
        }
    }
    if let Some(asked) = platform {
        images = platform::only(store, images, asked, |image| {
            Ok(config_of(store, image)?.1.platform())
        })?;
    }
    match &images[..] {
        [one] => open(store, one),
        [] => Err(store.refused("manifest.json names no image")),
        several => {
            let names: Vec<&str> = several
                .iter()
                .map(|image| tags(image).next().map_or(&*image.config, String::as_str))
                .take(20)
                .collect();
            Err(store.refused(format!(
                "it holds several images: {}; say which, by its tag (docker-archive:FILE:TAG)",
                names.join(", ")
            )))
        }
    }
}

fn tags(image: &Saved) -> impl Iterator<Item = &String> {
    image.repo_tags.iter().flatten()
}

/// Whether a full name is what a tag asks for: all of it, without the registry that Docker takes
/// when none is said, or only what stands behind the last colon.
fn is_tag(name: &str, asked: &str) -> bool {
    let short = |name: &str| {
        let name = name.strip_prefix("docker.io/").unwrap_or(name);
        name.strip_prefix("library/").unwrap_or(name).to_owned()
    };
    short(name) == short(asked)
        || name
            .strip_suffix(asked)
            .is_some_and(|before| before.ends_with(':'))
}

/// The configuration, compared with the digest that it is called by.
fn config_of(store: &Store<'_>, image: &Saved) -> SourceResult<(Vec<u8>, Config)> {
    let what = "the configuration";
    let json = store.read_file(&image.config)?;
    let name = image.config.rsplit('/').next().unwrap_or(&image.config);
    if let Some(digest) = Digest::of_name(name) {
        store.check(&json, &digest, what)?;
    }
    let config = store.parse(&json, what)?;
    Ok((json, config))
}

fn open(store: &Store<'_>, image: &Saved) -> SourceResult<Image> {
    let (json, config) = config_of(store, image)?;
    let names = image.layers.as_deref().unwrap_or_default();
    check_count(store, names.len())?;
    let blobs = names
        .iter()
        .map(|name| {
            let bytes = store.open(name)?.ok_or_else(|| {
                store.refused(format!("the layer {name} is missing: it is not complete"))
            })?;
            let digest = name.strip_prefix("blobs/sha256/").and_then(Digest::of_name);
            Ok((bytes, None, digest))
        })
        .collect::<SourceResult<Vec<_>>>()?;
    Ok(Image {
        layers: layers(store, blobs, config.rootfs.digests())?,
        config: json,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tags_are_whole_names_or_what_is_behind_the_colon() {
        let name = "docker.io/library/alpine:3.20";
        for asked in [name, "library/alpine:3.20", "alpine:3.20", "3.20"] {
            assert!(is_tag(name, asked), "{asked}");
        }
        for asked in ["alpine", "20", "busybox:3.20", "pine:3.20"] {
            assert!(!is_tag(name, asked), "{asked}");
        }
        assert!(is_tag("host:5000/a/b:1", "1"));
    }
}

//! Images made in a format: which one is asked for.

use crate::failure::{Failure, Outcome};
use crate::object;
use crate::time::seconds_now;
use extant::Escaped;
use extant::container::Container;
pub(crate) use extant::container::{Names, second_file, spool};
use extant_formats::Format;
use extant_mkfs::output::{Output, OutputError};
use std::fs;
use std::os::unix::fs::FileTypeExt;
use std::path::Path;

/// The format that an image is made in: what `--format` says, or else the extension of its name.
pub(crate) fn format_of(image: &Path, asked: Option<&str>) -> Outcome<Format> {
    let made = || Format::MADE.into_iter().chain([Format::Caibx]);
    let words = || made().map(Format::word).collect::<Vec<_>>().join(", ");
    let format = match asked {
        Some(word) => made()
            .find(|format| format.word() == word)
            .ok_or_else(|| Failure::usage(format!("--format {word}: use one of {}", words())))?,
        None => Format::from_extension(image).unwrap_or(Format::Raw),
    };
    let place = Escaped::path(image);
    if !made().any(|made| made == format) {
        return Err(Failure::usage(format!(
            "{place}: compressed images are not made here; write {} and compress it, or say \
             --format raw",
            Escaped::path(&image.with_extension(""))
        )));
    }
    if format != Format::Raw && object::url_of(image).is_some() {
        return Err(Failure::usage(format!(
            "{place} is an object of a store, where raw images are made: write a file in the \
             format and upload it, or say --format raw"
        )));
    }
    let is_device = fs::metadata(image).is_ok_and(|found| found.file_type().is_block_device());
    if is_device && format != Format::Raw {
        return Err(Failure::usage(format!(
            "{place} is a block device, and {} goes into a file",
            format.name()
        )));
    }
    Ok(format)
}

/// An image that is made.
pub(crate) fn container(image: &Path, names: Names, format: Format) -> Container<'_> {
    Container {
        path: image,
        format,
        names,
        time: seconds_now(),
    }
}

/// Makes the place for a disk of `size` bytes, which is an object of a store if the image is one.
pub(crate) fn output(
    container: &Container<'_>,
    size: u64,
    uuid: Option<[u8; 16]>,
) -> Result<Output, OutputError> {
    match object::url_of(container.path) {
        Some(url) => object::output(&url, size),
        None => container.output(size, uuid),
    }
}

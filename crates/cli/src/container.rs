//! Images made in a format: which one is asked for, and the files that it takes.

use crate::failure::{Failure, Outcome};
use crate::object;
use crate::time::seconds_now;
use extant::Escaped;
use extant_blockdev::{BlockDevice, FileOptions, SharedDevice};
use extant_formats::{CreateHow, Format, FormatError, create, describe_flat, flat_extent_of};
use extant_mkfs::output::{Output, OutputError, Replaces};
use std::fs;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Sizes of disks are multiples of this, which every format has.
const SECTOR: u64 = 512;

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

/// The file with the bytes of the disk, where the format has two files.
pub(crate) fn second_file(image: &Path, format: Format) -> Option<PathBuf> {
    (format == Format::Vmdk).then(|| flat_extent_of(image))
}

/// Which files an image may take the names of: its own, and that of its bytes where the format has
/// two files.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Names {
    pub(crate) image: Replaces,
    pub(crate) second: Replaces,
}

/// Makes the place for a disk of `size` bytes. An Android sparse image and one in chunks have none:
/// they are written when all of the disk is there, by [`write_simg`] and [`crate::chunks::write`].
pub(crate) fn output(
    image: &Path,
    names: Names,
    format: Format,
    size: u64,
    uuid: Option<[u8; 16]>,
) -> Result<Output, OutputError> {
    match format {
        Format::Raw => match object::url_of(image) {
            Some(url) => object::output(&url, size),
            None => Output::create_over(image, size, names.image),
        },
        Format::Vmdk => {
            // What cannot be described is said before anything is made or replaced.
            description(image, size)?;
            let size = size.next_multiple_of(SECTOR);
            Output::create_over(&flat_extent_of(image), size, names.second)
        }
        _ => Output::create_in_format(image, names.image, |file| {
            let mut how = CreateHow::default();
            how.uuid = uuid;
            how.time = seconds_now();
            let size = size.next_multiple_of(SECTOR);
            create(file, format, size, &how).map_err(wrapped)
        }),
    }
}

/// An error of a format as one of outputs.
pub(crate) fn wrapped(error: FormatError) -> OutputError {
    match error {
        FormatError::Device(error) => OutputError::Device(error),
        other => OutputError::Format(Box::new(other)),
    }
}

/// A file of `size` bytes without a name, beside the image.
pub(crate) fn spool(image: &Path, size: u64) -> Result<SharedDevice, OutputError> {
    let folder = match image.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    let file = tempfile::tempfile_in(folder).map_err(|source| {
        OutputError::Device(extant_blockdev::DeviceError::Open {
            op: "make a file in",
            path: folder.to_owned(),
            source,
        })
    })?;
    let device = FileOptions::create(size).adopt(file, image)?;
    Ok(Arc::new(device))
}

/// The description of a disk of `size` bytes, which are in a file beside it.
fn description(image: &Path, size: u64) -> Result<String, OutputError> {
    let id = seconds_now() as u32;
    let size = size.next_multiple_of(SECTOR);
    describe_flat(size, &flat_extent_of(image), id).map_err(wrapped)
}

/// Writes the description of a disk whose bytes are in a file beside it.
pub(crate) fn describe(image: &Path, names: Names, size: u64) -> Result<(), OutputError> {
    let text = description(image, size)?;
    let output = Output::create_over(image, text.len() as u64, names.image)?;
    output.device().write_at(0, text.as_bytes())?;
    output.commit()
}

/// Writes an Android sparse image of a disk.
pub(crate) fn write_simg(
    image: &Path,
    names: Names,
    disk: &dyn BlockDevice,
    how: &extant_formats::simg::WriteHow,
    progress: &dyn extant_formats::CopyProgress,
) -> Result<(), OutputError> {
    let output = Output::create_in_format(image, names.image, Ok)?;
    extant_formats::simg::write(disk, output.device(), how, progress).map_err(wrapped)?;
    output.commit()
}

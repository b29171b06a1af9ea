//! Disks that a slip would replace: a file goes where an image is, since `:/` behind its name was
//! forgotten, or two names were exchanged.

use crate::failure::{Failure, Outcome};
use extant::Escaped;
use extant_blockdev::{Content, FileOptions};
use std::fs::Metadata;
use std::os::unix::fs::FileTypeExt;
use std::path::Path;

/// What disk or file system a regular file or a block device holds, if it holds one and can be
/// read.
pub(crate) fn disk_in(path: &Path) -> Option<Content> {
    let kind = path.metadata().ok()?.file_type();
    if !kind.is_file() && !kind.is_block_device() {
        return None;
    }
    let device = FileOptions::read_only().open(path).ok()?;
    Content::on(&device).ok().filter(|found| found.is_disk())
}

/// What clears the way, said at the end of a sentence.
pub(crate) fn way_out(path: &Path) -> &'static str {
    let is_device = |found: Metadata| found.file_type().is_block_device();
    if path.metadata().is_ok_and(is_device) {
        "erase what it holds (`wipefs -a`) first"
    } else {
        "remove it first"
    }
}

/// Refuses to write `what`, words such as "an archive", where there is a disk.
pub(crate) fn refuse_over_disk(path: &Path, what: &str) -> Outcome {
    let Some(found) = disk_in(path) else {
        return Ok(());
    };
    Err(Failure::new(format!(
        "{} is {}, and {what} would take its place: name another file, or {}",
        Escaped::path(path),
        found.name(),
        way_out(path)
    )))
}

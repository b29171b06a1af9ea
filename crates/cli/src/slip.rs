//! Disks that a slip would replace: a file goes where an image is, since `:/` behind its name was
//! forgotten, or two names were exchanged.

use crate::failure::{Failure, Outcome};
use extant::Escaped;
use extant_blockdev::{Content, FileOptions};
use std::path::Path;

/// What disk or file system a regular file holds, if it holds one and can be read.
pub(crate) fn disk_in(path: &Path) -> Option<Content> {
    if !path.metadata().ok()?.is_file() {
        return None;
    }
    let device = FileOptions::read_only().open(path).ok()?;
    Content::on(&device).ok().filter(|found| found.is_disk())
}

/// Refuses to write `what`, words such as "an archive", where there is a disk.
pub(crate) fn refuse_over_disk(path: &Path, what: &str) -> Outcome {
    let Some(found) = disk_in(path) else {
        return Ok(());
    };
    let path = Escaped::path(path);
    Err(Failure::new(format!(
        "{path} is {}, and {what} would take its place: name another file, or remove it first",
        found.name()
    )))
}

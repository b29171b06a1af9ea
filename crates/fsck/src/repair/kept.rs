//! Undo files as files: made before anything is written, and durable by then.

use super::plan::Plan;
use super::undo::write_undo;
use crate::error::{Error, Result};
use std::fs::{File, OpenOptions};
use std::io::{self, BufWriter, Write};
use std::path::Path;

/// Writes the undo file of a plan, which must not be there yet, and makes it and its name durable.
/// One that cannot be written in whole is removed again.
///
/// # Errors
/// [`Error::Undo`], and of the device.
pub fn keep(path: &Path, plan: &Plan) -> Result<()> {
    let file = create_undo(path).map_err(Error::Undo)?;
    let kept = fill(path, &file, plan);
    if kept.is_err() {
        // Nothing is lost if this fails too: the name stays, and the next attempt says so.
        let _ = std::fs::remove_file(path);
    }
    kept
}

/// Makes an undo file that is not there yet: what an image holds is for its owner.
///
/// # Errors
/// When the system refuses it.
pub fn create_undo(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options.open(path)
}

fn fill(path: &Path, file: &File, plan: &Plan) -> Result<()> {
    let mut out = BufWriter::new(file);
    write_undo(&plan.changes, &mut out)?;
    out.flush()
        .and_then(|()| file.sync_all())
        .map_err(Error::Undo)?;
    sync_name(path)
}

/// Makes the name of an undo file durable.
///
/// # Errors
/// [`Error::Undo`].
pub fn sync_name(path: &Path) -> Result<()> {
    // Elsewhere a directory is not opened, and names last once they are there.
    if cfg!(not(unix)) {
        return Ok(());
    }
    let parent = path.parent().filter(|dir| !dir.as_os_str().is_empty());
    File::open(parent.unwrap_or(Path::new(".")))
        .and_then(|dir| dir.sync_all())
        .map_err(Error::Undo)
}

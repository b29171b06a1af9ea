//! Files that are about to be replaced by others of the same name.

use super::{check_kind, lock, open_failed};
use crate::DeviceResult;
use std::fs::{File, OpenOptions};
use std::io;
use std::path::Path;

/// A regular file that nothing uses, locked so that nothing begins to.
#[derive(Debug)]
pub struct HeldFile {
    /// The lock ends when it is closed.
    file: File,
}

impl HeldFile {
    /// Returns the numbers of its device and inode, which tell it apart whatever it is called;
    /// zeroes on a system that has no such numbers.
    #[must_use]
    pub fn id(&self) -> (u64, u64) {
        #[cfg(unix)]
        if let Ok(found) = self.file.metadata() {
            use std::os::unix::fs::MetadataExt;
            return (found.dev(), found.ino());
        }
        let _ = &self.file;
        (0, 0)
    }
}

/// Holds the regular file at `path`, which is going to be replaced; `None` if there is none.
///
/// # Errors
/// - `InUse` when another program has locked it;
/// - `NotADevice` for what is no regular file; `Open` when the system refuses.
pub fn hold_for_replacing(path: &Path) -> DeviceResult<Option<HeldFile>> {
    let open = |write| OpenOptions::new().read(true).write(write).open(path);
    match std::fs::metadata(path) {
        Ok(found) => check_kind(path, found.file_type())?,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(source) => return Err(open_failed("open", path, source)),
    }
    let file = match open(true).or_else(|_| open(false)) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(source) => return Err(open_failed("open", path, source)),
    };
    lock(path, &file, true)?;
    Ok(Some(HeldFile { file }))
}

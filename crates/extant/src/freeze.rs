//! Keeping a file system from being changed: freezing it, and making it read-only.

use crate::{Error, Filesystem, Result};
use extant_core::mount::Frozen as EngineFrozen;
use std::path::PathBuf;

/// A file system on which nothing changes until this is dropped. Its image is complete and clean
/// meanwhile, and may be copied.
#[derive(Debug)]
#[must_use = "the file system thaws when this is dropped"]
pub struct Frozen {
    frozen: EngineFrozen,
    // After that: it is not closed while it is frozen.
    fs: Filesystem,
}

impl Frozen {
    /// Lets changes go on, which is also what dropping does.
    ///
    /// # Errors
    /// When the device fails; changes are refused then.
    pub fn thaw(self) -> Result<()> {
        let Self { frozen, fs } = self;
        let thawed = frozen.thaw().map_err(whole);
        drop(fs);
        thawed
    }
}

impl Filesystem {
    /// Waits for the changes that are being made, makes everything durable and the image clean, and
    /// lets nobody change anything until the result is dropped: changes wait. Reading goes on.
    ///
    /// ```no_run
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let fs = extant::Filesystem::open_writable("disk.img")?;
    /// let frozen = fs.freeze()?;
    /// std::fs::copy("disk.img", "backup.img")?;
    /// frozen.thaw()?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// When the file system is open for reading only or frozen already, or the device fails.
    pub fn freeze(&self) -> Result<Frozen> {
        let frozen = self.fs().freeze().map_err(whole)?;
        Ok(Frozen {
            frozen,
            fs: self.clone(),
        })
    }

    /// Makes a file system that was opened for writing read-only, with its image complete and
    /// clean, or writable again. For all clones.
    ///
    /// # Errors
    /// When files are open for writing, or open without having a name; when the file system is
    /// frozen, or was opened for reading only; when the device fails.
    pub fn remount(&self, read_only: bool) -> Result<()> {
        self.fs().remount(read_only).map_err(whole)
    }
}

/// An error of the file system as a whole.
fn whole(error: extant_core::Error) -> Error {
    Error::engine(PathBuf::new(), error)
}

//! Copying a file inside a file system.

use crate::{Error, Filesystem, OpenOptions, Result};
use extant_core::Error as EngineError;
use std::path::Path;

impl Filesystem {
    /// Copies the content and the permissions of the file at `from` to the one at `to`, which is
    /// made, or replaced in place. Symbolic links are followed. Holes stay holes. Returns the
    /// length of the file.
    ///
    /// ```
    /// # use extant::Filesystem;
    /// # fn main() -> extant::Result<()> {
    /// # let fs = Filesystem::format_device(extant::MemoryDevice::new(16 << 20))?;
    /// # fs.create_dir("/etc")?;
    /// fs.write("/etc/issue", "welcome\n")?;
    /// assert_eq!(fs.copy("/etc/issue", "/etc/issue.old")?, 8);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// When there is no such file, one of the two is no regular file, both are one, or no space is
    /// left: `to` then holds a part.
    pub fn copy(&self, from: impl AsRef<Path>, to: impl AsRef<Path>) -> Result<u64> {
        let (from, to) = (from.as_ref(), to.as_ref());
        let source = self.open_file(from)?;
        let found = source.metadata();
        let permissions = found.mode().permissions();
        // Not truncated before it is known to be another file.
        let copy = OpenOptions::new()
            .write(true)
            .create(true)
            .mode(permissions)
            .open(self, to)?;
        if copy.metadata().ino() == found.ino() {
            let reason = "a file cannot be copied onto itself";
            return Err(Error::engine(to, EngineError::InvalidInput(reason)));
        }
        copy.set_len(0)?;
        let copied = source.copy_range(0, &copy, 0, found.len())?;
        // A hole at the end is not written.
        copy.set_len(copied)?;
        copy.set_permissions(permissions)?;
        Ok(copied)
    }
}

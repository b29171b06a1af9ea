//! Checking file systems, and repairing them (feature `check`).
//!
//! The checker shares the format with the engine and nothing else: what it says of an image does
//! not depend on what wrote it.
//!
//! ```
//! use extant::Filesystem;
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let dir = tempfile::tempdir()?;
//! # let image = dir.path().join("disk.img");
//! # Filesystem::format(&image, 16 << 20)?.close()?;
//! let report = Filesystem::check(&image)?;
//! for finding in &report.findings {
//!     println!("{finding}");
//! }
//! assert!(report.is_clean());
//! # Ok(())
//! # }
//! ```
//!
//! [`repair`] puts right what was found: it plans first, and what it would lose is known before
//! anything is written.

use crate::device::IntoDevice;
use crate::{Cause, Error, Filesystem, Result};
use extant_blockdev::DeviceError;
pub use extant_fsck::{
    Code, Error as CheckError, Evidence, Finding, Options as CheckOptions, Pass, Place, Progress,
    Report, Severity, Totals, check_with_journal, repair,
};
use extant_image::{How, ImageLocation};
use std::path::{Path, PathBuf};
use std::sync::Arc;

impl Filesystem {
    /// Checks the file system in the image or block device at `path`, which is read as by
    /// [`Filesystem::open`]. Nothing is written, and the file system should not be open for
    /// writing meanwhile.
    ///
    /// # Errors
    /// When no verdict can be given: the file cannot be opened or read, holds no ext2, ext3 or ext4
    /// file system, or one with features that are not known here. What is wrong with a file system
    /// is no error, but in the report.
    pub fn check(path: impl AsRef<Path>) -> Result<Report> {
        let location = ImageLocation::parse(path.as_ref())
            .map_err(|e| Error::engine(PathBuf::new(), DeviceError::from(e).into()))?;
        // Errors of devices name the device themselves.
        let device = location
            .open(&How::reading())
            .map_err(|e| Error::engine(PathBuf::new(), e.into()))?;
        check_on(device, Path::new(&location.name()), CheckOptions::default())
    }

    /// Checks the file system on a device.
    ///
    /// ```
    /// use extant::check::CheckOptions;
    /// use extant::Filesystem;
    ///
    /// let noise: Vec<u8> = vec![0; 1 << 20];
    /// assert!(Filesystem::check_device(noise, CheckOptions::default()).is_err());
    /// ```
    ///
    /// # Errors
    /// As for [`Filesystem::check`].
    pub fn check_device(device: impl IntoDevice, options: CheckOptions) -> Result<Report> {
        check_on(device, Path::new(""), options)
    }
}

fn check_on(device: impl IntoDevice, name: &Path, options: CheckOptions) -> Result<Report> {
    extant_fsck::check(device.into_device(), options, &())
        .map_err(|e| Error::new(name, Cause::NotChecked(Arc::new(e))))
}

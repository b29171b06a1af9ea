//! Making file systems (feature `mkfs`).

use crate::device::IntoDevice;
use crate::{Cause, Error, Filesystem, MountOptions, Result};
use extant_blockdev::SharedDevice;
use extant_mkfs::output::{Output, Replaces};
use extant_mkfs::{BuildOptions, FormatOptions, Silent, Size, build, build_into};
use std::fs;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

impl Filesystem {
    /// Makes an image at `path` that holds an empty file system of `size` bytes, as
    /// `mke2fs -t ext4` does, and opens it for writing. The image appears when it is complete.
    ///
    /// ```
    /// use extant::Filesystem;
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let dir = tempfile::tempdir()?;
    /// # let image = dir.path().join("disk.img");
    /// let fs = Filesystem::format(&image, 64 << 20)?;
    /// fs.write("/hello", "world\n")?;
    /// fs.close()?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// When something is at `path` already, the size is too small for a file system, or the image
    /// cannot be written.
    pub fn format(path: impl AsRef<Path>, size: u64) -> Result<Self> {
        Self::format_with(path, &FormatOptions::new(size, now()))
    }

    /// Makes an image at `path` as [`Filesystem::format`] does, of the size and in the way that the
    /// options say.
    ///
    /// # Errors
    /// As for [`Filesystem::format`]; when options contradict each other.
    pub fn format_with(path: impl AsRef<Path>, options: &FormatOptions) -> Result<Self> {
        let path = path.as_ref();
        if fs::symlink_metadata(path).is_ok() {
            return Err(Error::host("make", path, io::ErrorKind::AlreadyExists));
        }
        let mut build_options = BuildOptions::new(options.clone(), Size::Bytes(options.size));
        build_options.replaces = Some(Replaces::Nothing);
        build(None, path, None, &build_options, &Silent)
            .map_err(|e| Error::new(path, Cause::NotMade(Arc::new(e))))?;
        Self::open_writable(path)
    }

    /// Makes an empty file system on all of a device, and opens it for writing. What was on the
    /// device is lost.
    ///
    /// ```
    /// use extant::{Filesystem, MemoryDevice, MountOptions, device};
    /// use std::sync::Arc;
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let memory = Arc::new(MemoryDevice::new(16 << 20));
    /// let fs = Filesystem::format_device(Arc::clone(&memory))?;
    /// fs.write("/hello", "world\n")?;
    /// fs.close()?;
    ///
    /// // The bytes of the image: a file system again, wherever they go.
    /// let image: Vec<u8> = device::to_vec(&*memory)?;
    /// let fs = Filesystem::open_device(image, MountOptions::read_only())?;
    /// assert_eq!(fs.read_to_string("/hello")?, "world\n");
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// When the device is too small or fails.
    pub fn format_device(device: impl IntoDevice) -> Result<Self> {
        Self::format_device_with(device, &FormatOptions::new(0, now()))
    }

    /// Makes an empty file system on all of a device, in the way that the options say but for the
    /// size, which is that of the device.
    ///
    /// # Errors
    /// As for [`Filesystem::format_device`]; when options contradict each other.
    pub fn format_device_with(device: impl IntoDevice, options: &FormatOptions) -> Result<Self> {
        let device: SharedDevice = device.into_device();
        let mut format = options.clone();
        format.size = device.size();
        format.sector_size = format.sector_size.max(device.logical_sector());
        let build_options = BuildOptions::new(format, Size::Bytes(device.size()));
        let output = |size| Ok(Output::in_place_of(&device, size, false)?);
        build_into(None, output, &build_options, &Silent)
            .map_err(|e| Error::new("", Cause::NotMade(Arc::new(e))))?;
        Self::open_device(device, MountOptions::read_write())
    }
}

/// Seconds since 1970.
fn now() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| since.as_secs())
}

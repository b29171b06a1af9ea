//! One place that turns what a user says about an image into a device.

use crate::{
    Backend, DeviceError, DeviceResult, FileDevice, FileOptions, SharedDevice, WindowDevice,
    open_partition,
};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Where a file system is, and how to open it: a path, perhaps an offset or a partition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OpenSpec {
    path: PathBuf,
    writable: bool,
    guarded: bool,
    direct: bool,
    offset: Option<u64>,
    length: Option<u64>,
    partition: Option<u32>,
    backend: Backend,
}

impl OpenSpec {
    /// Names the whole of the file at `path`, for reading.
    pub fn read_only(path: impl AsRef<Path>) -> Self {
        Self {
            path: path.as_ref().to_owned(),
            writable: false,
            guarded: false,
            direct: false,
            offset: None,
            length: None,
            partition: None,
            backend: Backend::Auto,
        }
    }

    /// Names the whole of the file at `path`, for reading and writing.
    pub fn read_write(path: impl AsRef<Path>) -> Self {
        Self {
            writable: true,
            ..Self::read_only(path)
        }
    }

    /// Takes only what lies from byte `offset` on. `None` takes it back.
    #[must_use]
    pub fn offset(mut self, offset: impl Into<Option<u64>>) -> Self {
        self.offset = offset.into();
        self
    }

    /// Takes only `length` bytes, from the offset or the partition's start on. `None` takes it
    /// back.
    #[must_use]
    pub fn length(mut self, length: impl Into<Option<u64>>) -> Self {
        self.length = length.into();
        self
    }

    /// Takes only partition `number` of a whole-disk image. `None` takes it back.
    #[must_use]
    pub fn partition(mut self, number: impl Into<Option<u32>>) -> Self {
        self.partition = number.into();
        self
    }

    /// Sets whether nobody may write the file as long as it is open for reading: see
    /// [`FileOptions::guarded`].
    #[must_use]
    pub fn guarded(mut self, guarded: bool) -> Self {
        self.guarded = guarded;
        self
    }

    /// Sets whether to go past the page cache.
    #[must_use]
    pub fn direct(mut self, direct: bool) -> Self {
        self.direct = direct;
        self
    }

    /// Sets how transfers reach the kernel. Unless said, as fits.
    #[must_use]
    pub fn backend(mut self, backend: Backend) -> Self {
        self.backend = backend;
        self
    }

    /// Returns the path of the file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Opens the device.
    ///
    /// # Errors
    /// `TwoPlaces` when both an offset and a partition are given; those of
    /// [`FileOptions::open`] and [`open_partition`]; `BadWindow` when the range does not lie on
    /// the device.
    pub fn open(&self) -> DeviceResult<SharedDevice> {
        let options = if self.writable {
            FileOptions::read_write()
        } else {
            FileOptions::read_only()
        };
        let options = options
            .direct(self.direct)
            .backend(self.backend)
            .guarded(self.guarded);
        let file: FileDevice = options.open(&self.path)?;
        self.part_of(Arc::new(file))
    }

    /// Returns the part of an open device that is asked for: for callers that open a whole file at
    /// one time, and look into it at another.
    ///
    /// # Errors
    /// As for [`OpenSpec::open`].
    pub fn part_of(&self, mut device: SharedDevice) -> DeviceResult<SharedDevice> {
        if let (Some(offset), Some(partition)) = (self.offset, self.partition) {
            return Err(DeviceError::TwoPlaces { partition, offset });
        }
        if let Some(number) = self.partition {
            device = Arc::new(open_partition(device, number)?);
        }
        if let Some(offset) = self.offset {
            device = Arc::new(WindowDevice::from_offset(device, offset)?);
        }
        if let Some(length) = self.length {
            device = Arc::new(WindowDevice::new(device, 0, length)?);
        }
        Ok(device)
    }
}

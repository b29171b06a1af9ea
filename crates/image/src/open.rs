//! From a location to a device.

use crate::location::{Carrier, ImageLocation};
use crate::{PartitionName, descriptor};
use extant_blockdev::{
    Backend, DeviceError, DeviceResult, FileOptions, SharedDevice, WindowDevice,
};
use std::sync::Arc;

/// How to open what is at a location: for reading or for writing, and which part of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct How {
    writable: bool,
    guarded: bool,
    direct: bool,
    backend: Backend,
    offset: Option<u64>,
    length: Option<u64>,
    partition: Option<PartitionName>,
}

impl How {
    /// Opens for reading.
    #[must_use]
    pub fn reading() -> Self {
        Self {
            writable: false,
            guarded: false,
            direct: false,
            backend: Backend::Auto,
            offset: None,
            length: None,
            partition: None,
        }
    }

    /// Opens for reading and writing. Files of the host are locked against other writers.
    #[must_use]
    pub fn writing() -> Self {
        Self {
            writable: true,
            ..Self::reading()
        }
    }

    /// Sets whether nobody may write a file of the host as long as it is open for reading: see
    /// [`FileOptions::guarded`]. Means nothing to what is elsewhere.
    #[must_use]
    pub fn guarded(mut self, guarded: bool) -> Self {
        self.guarded = guarded;
        self
    }

    /// Sets whether files of the host are read and written past the page cache.
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

    /// Takes only what lies from byte `offset` on, where the location names no partition. `None`
    /// takes it back.
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

    /// Takes only this partition of a disk, where the location names none. `None` takes it back.
    #[must_use]
    pub fn partition(mut self, partition: impl Into<Option<PartitionName>>) -> Self {
        self.partition = partition.into();
        self
    }

    /// Returns whether it is opened for writing as well.
    #[must_use]
    pub fn is_writable(&self) -> bool {
        self.writable
    }

    pub(crate) fn file_options(&self) -> FileOptions {
        let options = if self.writable {
            FileOptions::read_write()
        } else {
            FileOptions::read_only()
        };
        options
            .direct(self.direct)
            .backend(self.backend)
            .guarded(self.guarded)
    }
}

impl ImageLocation {
    /// Opens the device: the whole of what is at the location, or the part that the location or
    /// `how` asks for.
    ///
    /// # Errors
    /// Those of [`ImageLocation::open_whole`] and [`ImageLocation::part_of`].
    pub fn open(&self, how: &How) -> DeviceResult<SharedDevice> {
        self.part_of(self.open_whole(how)?, how)
    }

    /// Opens the whole of what is at the location, whatever part of it is asked for.
    ///
    /// # Errors
    /// - those of [`FileOptions::open`] for a path and for the number of an open file;
    /// - `Refused` for what cannot be opened, or not in this way.
    pub fn open_whole(&self, how: &How) -> DeviceResult<SharedDevice> {
        match self.carrier() {
            Carrier::File(path) => Ok(Arc::new(how.file_options().open(path)?)),
            Carrier::Descriptor(number) => Ok(Arc::new(descriptor::open(*number, how)?)),
            Carrier::Nbd(_) => Err(self.refused(
                "NBD exports cannot be opened by this build: attach it with nbd-client, and name \
                 the device it makes",
            )),
            Carrier::Http(url) | Carrier::Object(url) => self.open_remote(url, how),
        }
    }

    #[cfg(feature = "remote")]
    fn open_remote(&self, url: &str, how: &How) -> DeviceResult<SharedDevice> {
        if how.is_writable() {
            return Err(self.refused(
                "what is behind HTTP and in object stores is changed nowhere in place: fetch it, \
                 change it, and send it back",
            ));
        }
        extant_remote::open(url, extant_remote::RemoteOptions::from_env())
    }

    #[cfg(not(feature = "remote"))]
    fn open_remote(&self, _url: &str, _how: &How) -> DeviceResult<SharedDevice> {
        Err(self.refused(
            "this build has no part for HTTP and object stores (the feature `remote`): fetch it \
             first, such as with curl or rclone copyto, and name that file",
        ))
    }

    /// Returns the part of an open device that the location, or else `how`, asks for: for callers
    /// that open the whole at one time, and look into it at another.
    ///
    /// # Errors
    /// `TwoPlaces` when `how` has both an offset and a partition; those of [`PartitionName::open`];
    /// `BadWindow` when the range does not lie on the device.
    pub fn part_of(&self, mut device: SharedDevice, how: &How) -> DeviceResult<SharedDevice> {
        let (partition, offset) = match self.partition() {
            Some(own) => (Some(own), None),
            None => (how.partition.as_ref(), how.offset),
        };
        if let (Some(offset), Some(partition)) = (offset, partition) {
            return Err(match partition {
                PartitionName::Number(partition) => DeviceError::TwoPlaces {
                    partition: *partition,
                    offset,
                },
                PartitionName::Label(label) => self.refused(&format!(
                    "both the partition {label:?} and the offset {offset} were given: only one can \
                     say where the file system starts"
                )),
            });
        }
        if let Some(partition) = partition {
            device = partition.open(device)?;
        }
        if let Some(offset) = offset {
            device = Arc::new(WindowDevice::from_offset(device, offset)?);
        }
        if let Some(length) = how.length {
            device = Arc::new(WindowDevice::new(device, 0, length)?);
        }
        Ok(device)
    }

    fn refused(&self, reason: &str) -> DeviceError {
        DeviceError::Refused {
            place: self.whole().to_string(),
            reason: reason.to_owned(),
        }
    }
}

//! From a location to a device.

use crate::location::{Carrier, ImageLocation};
use crate::{ImageFormat, PartitionName, os};
use extant_blockdev::{
    Backend, DeviceError, DeviceResult, FileOptions, NbdDevice, NbdOptions, SharedDevice,
    WindowDevice,
};
use std::fmt;
use std::sync::Arc;

/// What is called with what a person should know while something takes long.
type Tell = Arc<dyn Fn(&str) + Send + Sync>;

/// How to open what is at a location: for reading or for writing, and which part of it.
#[derive(Clone)]
pub struct How {
    writable: bool,
    guarded: bool,
    verified: bool,
    outside: bool,
    own: bool,
    direct: bool,
    backend: Backend,
    format: Option<ImageFormat>,
    offset: Option<u64>,
    length: Option<u64>,
    partition: Option<PartitionName>,
    tell: Option<Tell>,
}

/// What a location leads to.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Opened {
    /// The disk, whatever it lies in.
    pub device: SharedDevice,
    /// What it lies in; `None` where all bytes are those of the disk.
    pub container: Option<Container>,
    /// Whether all bytes of a regular file of the host are those of the disk.
    pub is_file: bool,
}

/// A format of disk images that a disk lies in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Container {
    /// The word for programs, such as `qcow2`.
    pub word: &'static str,
    /// What it is, as words that go after "is".
    pub name: &'static str,
    /// Bytes of the container itself.
    pub size: u64,
}

impl How {
    /// Opens for reading.
    #[must_use]
    pub fn reading() -> Self {
        Self {
            writable: false,
            guarded: false,
            verified: false,
            outside: false,
            own: false,
            direct: false,
            backend: Backend::Auto,
            format: None,
            offset: None,
            length: None,
            partition: None,
            tell: None,
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

    /// Sets whether nobody may write a file of the host as long as it is open for reading, nor
    /// files that it names: see [`FileOptions::guarded`]. Means nothing to what is elsewhere.
    #[must_use]
    pub fn guarded(mut self, guarded: bool) -> Self {
        self.guarded = guarded;
        self
    }

    /// Sets whether checksums of a whole disk, which Android sparse images have, are compared when
    /// it is opened. All of the image is read then.
    #[must_use]
    pub fn verified(mut self, verified: bool) -> Self {
        self.verified = verified;
        self
    }

    /// Sets whether other files that an image names (backing files, extents) are opened wherever
    /// they lie, and not only beside it. Only for images that are trusted with all files of the
    /// caller.
    #[must_use]
    pub fn outside(mut self, outside: bool) -> Self {
        self.outside = outside;
        self
    }

    /// Sets whether the number of an open file means any that this process has open. Otherwise it
    /// means one that the process was started with: those that a process opens by itself are closed
    /// when another program takes its place (`FD_CLOEXEC`), and their numbers come about by chance.
    /// For callers that get the number from the code that opened the file.
    #[must_use]
    pub fn own_descriptors(mut self, own: bool) -> Self {
        self.own = own;
        self
    }

    /// Says what the image is, wherever it lies, so that its content is not asked: what uses a disk
    /// may have written the mark of a format to it. An image that has no mark of the format is
    /// refused. `None` takes it back: the format is seen.
    #[must_use]
    pub fn format(mut self, format: impl Into<Option<ImageFormat>>) -> Self {
        self.format = format.into();
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

    /// Sets what is called with what a person should know while opening takes long.
    #[must_use]
    pub fn tell(mut self, tell: impl Fn(&str) + Send + Sync + 'static) -> Self {
        self.tell = Some(Arc::new(tell));
        self
    }

    /// Returns whether it is opened for writing as well.
    #[must_use]
    pub fn is_writable(&self) -> bool {
        self.writable
    }

    /// Opens the disk on a device of the caller's: what lies in a format of images is seen from its
    /// content, unless it was said, and the part that was asked for is taken. Files that an image
    /// names are not looked for, since nothing lies beside the device.
    ///
    /// # Errors
    /// As for [`ImageLocation::open_disk`] and [`ImageLocation::part_of`].
    pub fn open_device(&self, device: SharedDevice) -> DeviceResult<SharedDevice> {
        let location = ImageLocation::opened(device.name());
        let (disk, _) = location.look_into(device, self)?;
        location.part_of(disk, self)
    }

    /// Whether it is kept from being written to as long as it is open for reading.
    pub(crate) fn is_guarded(&self) -> bool {
        self.guarded
    }

    /// Whether open files of this process are meant as well.
    pub(crate) fn takes_own(&self) -> bool {
        self.own
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

impl fmt::Debug for How {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("How")
            .field("writable", &self.writable)
            .field("format", &self.format)
            .field("offset", &self.offset)
            .field("length", &self.length)
            .field("partition", &self.partition)
            .finish_non_exhaustive()
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

    /// Opens the whole of the disk at the location, whatever part of it is asked for.
    ///
    /// # Errors
    /// As for [`ImageLocation::open_disk`].
    pub fn open_whole(&self, how: &How) -> DeviceResult<SharedDevice> {
        Ok(self.open_disk(how)?.device)
    }

    /// Opens the whole of the disk at the location, and says what it lies in. A container is known
    /// by its content, unless `how` says what it is.
    ///
    /// # Errors
    /// - those of [`FileOptions::open`] for a path and for the number of an open file;
    /// - what the server says, for what is elsewhere;
    /// - `Refused` for what cannot be opened, or not in this way; for what is not as was said; and
    ///   where two formats can be seen in it.
    pub fn open_disk(&self, how: &How) -> DeviceResult<Opened> {
        let device = self.open_carrier(how)?;
        let is_file = self.is_regular_file(how);
        let (device, container) = self.look_into(device, how)?;
        Ok(Opened {
            device,
            is_file: is_file && container.is_none(),
            container,
        })
    }

    /// Returns whether it is a regular file of the host, which exists.
    fn is_regular_file(&self, how: &How) -> bool {
        match self.carrier() {
            Carrier::File(path) => path.is_file(),
            Carrier::Descriptor(number) => os::is_regular_file(*number, how),
            _ => false,
        }
    }

    /// The disk in what is open, and what it lies in.
    #[cfg(feature = "formats")]
    fn look_into(
        &self,
        device: SharedDevice,
        how: &How,
    ) -> DeviceResult<(SharedDevice, Option<Container>)> {
        use extant_formats::{Format, FormatError, OpenHow, recognise};
        let name = device.name();
        let named = |e: FormatError| match e {
            FormatError::Device(e) => e,
            e => {
                let text = e.to_string();
                let about = text.strip_prefix(&name).map(|rest| format!("it{rest}"));
                self.refused(&about.unwrap_or(text))
            }
        };
        let found = match how.format {
            Some(said) => Some(said.known().on(&*device).map_err(named)?),
            None => recognise(&*device)?,
        };
        let Some(format) = found.filter(|format| *format != Format::Raw) else {
            return Ok((device, None));
        };
        let container = Container {
            word: format.word(),
            name: format.name(),
            size: device.size(),
        };
        if format == Format::Caibx {
            return Ok((self.in_chunks(&device, how)?, Some(container)));
        }
        let into = if how.writable {
            OpenHow::read_write()
        } else {
            OpenHow::read_only()
        };
        let into = into
            .guarded(how.guarded)
            .verify(how.verified)
            .outside(how.outside);
        let into = match self.path() {
            Some(path) => into.beside(path),
            None => into,
        };
        let into = match how.tell.clone() {
            Some(tell) => into.tell(move |notice| tell(&notice.to_string())),
            None => into,
        };
        let disk = extant_formats::open(device, format, &into).map_err(named)?;
        Ok((disk, Some(container)))
    }

    #[cfg(not(feature = "formats"))]
    fn look_into(
        &self,
        device: SharedDevice,
        _how: &How,
    ) -> DeviceResult<(SharedDevice, Option<Container>)> {
        Ok((device, None))
    }

    /// Opens the image whose index is on a device: the chunks are in the store that the environment
    /// names, or beside the index.
    #[cfg(all(feature = "formats", feature = "remote"))]
    fn in_chunks(&self, index: &SharedDevice, how: &How) -> DeviceResult<SharedDevice> {
        use extant_remote::{RemoteOptions, chunk_store_beside, open_chunks};
        if how.writable {
            return Err(self.refused(
                "it is an image in chunks, which is only read: convert it first: extant convert \
                 OLD NEW",
            ));
        }
        let named = std::env::var_os("EXTANT_CHUNK_STORE").filter(|store| !store.is_empty());
        let store = match (named, self.carrier()) {
            (Some(store), _) => store,
            (None, Carrier::File(path)) => {
                // From the root on it looks like no URL.
                let path = std::path::absolute(path).unwrap_or_else(|_| path.clone());
                chunk_store_beside(path.as_os_str())
            }
            (None, Carrier::Http(url) | Carrier::Object(url)) => chunk_store_beside(url.as_ref()),
            (None, Carrier::Descriptor(_) | Carrier::Nbd(_)) => {
                return Err(self.refused(
                    "it is an image in chunks, and nothing lies beside it: name the directory or \
                     URL of the chunks in the environment variable EXTANT_CHUNK_STORE",
                ));
            }
        };
        open_chunks(&**index, &store, RemoteOptions::from_env())
    }

    #[cfg(all(feature = "formats", not(feature = "remote")))]
    fn in_chunks(&self, _index: &SharedDevice, _how: &How) -> DeviceResult<SharedDevice> {
        Err(self.refused(
            "it is an image in chunks, and this build has no part for their stores (the feature \
             `remote`): take it out first, such as with casync extract",
        ))
    }

    /// Opens what carries the image, whatever its bytes are: those of a format stay as they are.
    ///
    /// # Errors
    /// As for [`ImageLocation::open_disk`].
    pub fn open_carrier(&self, how: &How) -> DeviceResult<SharedDevice> {
        match self.carrier() {
            Carrier::File(path) => Ok(Arc::new(how.file_options().open(path)?)),
            Carrier::Descriptor(number) => Ok(Arc::new(os::open(*number, how)?)),
            Carrier::Nbd(address) => {
                let options = if how.writable {
                    NbdOptions::read_write()
                } else {
                    NbdOptions::read_only()
                };
                let device = NbdDevice::connect(address, options.keeps_ends(true))?;
                Ok(Arc::new(device))
            }
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

//! From a device that holds an image to the virtual disk in it.

use crate::{Format, FormatError, simg, vhd, vmdk};
use extant_blockdev::SharedDevice;
use std::ffi::OsString;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Something that a person should know, and that takes long: told while it is done.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Notice {
    /// A compressed image is decompressed as a whole before anything of it is read; so many bytes
    /// of it, zeros left out, are on the disk or in memory already.
    Decompressing {
        /// Name of the device.
        device: String,
        /// Bytes kept so far.
        bytes: u64,
        /// The folder that holds them.
        folder: PathBuf,
    },
}

impl fmt::Display for Notice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Decompressing {
                device,
                bytes,
                folder,
            } => write!(
                f,
                "{device} is decompressed as a whole into {}, {} MiB so far: decompress it once \
                 where it is used often",
                folder.display(),
                bytes >> 20
            ),
        }
    }
}

/// What is called with notices.
type Tell = Arc<dyn Fn(&Notice) + Send + Sync>;

/// How to open an image. Made with [`OpenHow::read_only`] or [`OpenHow::read_write`], changed by
/// its methods.
#[derive(Clone)]
pub struct OpenHow {
    pub(crate) writable: bool,
    pub(crate) folder: Option<PathBuf>,
    /// The file name of the image.
    pub(crate) file_name: Option<OsString>,
    pub(crate) outside: bool,
    pub(crate) guarded: bool,
    pub(crate) verify: bool,
    pub(crate) limit: u64,
    pub(crate) spool: Option<PathBuf>,
    pub(crate) tell: Option<Tell>,
}

/// Bytes of a decompressed image, unless said otherwise.
const LIMIT: u64 = 1 << 40;

impl OpenHow {
    /// Opens for reading. Other files that the image names are not followed, since it is not known
    /// where it lies: see [`OpenHow::beside`].
    #[must_use]
    pub fn read_only() -> Self {
        Self {
            writable: false,
            folder: None,
            file_name: None,
            outside: false,
            guarded: false,
            verify: false,
            limit: LIMIT,
            spool: None,
            tell: None,
        }
    }

    /// Opens for reading and writing, as far as the format can be written.
    #[must_use]
    pub fn read_write() -> Self {
        Self {
            writable: true,
            ..Self::read_only()
        }
    }

    /// Says where the file of the image is. Backing files and extents that it names are opened if
    /// they lie in the folder of the image or below. For writing they lie in the folder itself, and
    /// their names begin with that of the image without its extension. From an image in the folder
    /// `/`, below which all files are, nothing is followed.
    #[must_use]
    pub fn beside(mut self, image: &Path) -> Self {
        let folder = match image.parent() {
            Some(parent) if !parent.as_os_str().is_empty() => parent,
            _ => Path::new("."),
        };
        // Through a symbolic link, names are those that the image itself lies beside.
        let real = image.canonicalize().ok();
        self.file_name = real.as_deref().unwrap_or(image).file_name().map(Into::into);
        let real = real.as_deref().and_then(Path::parent);
        self.folder = Some(real.unwrap_or(folder).to_owned());
        self
    }

    /// Sets whether other files that the image names are opened wherever they lie. Only for images
    /// that are trusted with all files of the caller.
    #[must_use]
    pub fn outside(mut self, outside: bool) -> Self {
        self.outside = outside;
        self
    }

    /// Sets whether other files that the image names are locked against writers as long as the disk
    /// is open for reading, as the image itself may be by its opener
    /// ([`FileOptions::guarded`](extant_blockdev::FileOptions::guarded)). Of an image that is open
    /// for writing they always are: those that are written to against everything that locks them.
    #[must_use]
    pub fn guarded(mut self, guarded: bool) -> Self {
        self.guarded = guarded;
        self
    }

    /// Sets whether checksums of a whole disk, which only Android sparse images have, are compared
    /// when the image is opened. All of it is read then.
    #[must_use]
    pub fn verify(mut self, verify: bool) -> Self {
        self.verify = verify;
        self
    }

    /// Sets how many bytes a compressed image may have when it is decompressed. Unless said, 1 TiB.
    #[must_use]
    pub fn limit(mut self, bytes: u64) -> Self {
        self.limit = bytes;
        self
    }

    /// Sets the folder for what is decompressed, in a file without a name. Unless said, the
    /// system's for temporary files (`TMPDIR`).
    #[must_use]
    pub fn spool(mut self, folder: Option<PathBuf>) -> Self {
        self.spool = folder;
        self
    }

    /// Sets what is called with notices.
    #[must_use]
    pub fn tell(mut self, tell: impl Fn(&Notice) + Send + Sync + 'static) -> Self {
        self.tell = Some(Arc::new(tell));
        self
    }
}

impl fmt::Debug for OpenHow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OpenHow")
            .field("writable", &self.writable)
            .field("folder", &self.folder)
            .field("outside", &self.outside)
            .finish_non_exhaustive()
    }
}

/// What a new image is, besides its format and size.
#[derive(Debug, Clone, Copy, Default)]
#[non_exhaustive]
pub struct CreateHow {
    /// The identity of a VHD; a random one if `None`.
    pub uuid: Option<[u8; 16]>,
    /// When a VHD was made, in seconds since 1970. A VHD knows times from 2000 to 2136.
    pub time: u64,
}

/// Opens the virtual disk in `device`, which is of the given format;
/// [`recognise`](crate::recognise) says which. Nothing but the disk's own content is written, and
/// what is on `device` is locked as its opener has locked it.
///
/// Compressed images are decompressed as a whole, into memory if they are small, and otherwise into
/// a file without a name.
///
/// # Errors
/// `Damaged`, `Unsupported`, `NotFollowed` and `TooLarge` say what is wrong with the image;
/// `ReadOnly` is for formats that are not written in place; `Device` and `File` for what the system
/// refuses.
pub fn open(
    device: SharedDevice,
    format: Format,
    how: &OpenHow,
) -> Result<SharedDevice, FormatError> {
    if how.writable && !format.is_writable() && format != Format::VmdkSparse {
        return Err(FormatError::ReadOnly {
            device: device.name(),
            what: format.name(),
            advice: "convert it first: extant convert OLD NEW",
        });
    }
    match format {
        Format::Raw => Ok(device),
        Format::Vhd | Format::VhdFixed => vhd::open(device, how),
        Format::Simg => {
            if how.verify {
                simg::verify(Arc::clone(&device))?;
            }
            simg::open(device)
        }
        Format::Vmdk => vmdk::open(&device, how),
        Format::VmdkSparse => Err(FormatError::Unsupported {
            device: device.name(),
            what: format.name().to_owned(),
            advice: "convert it first (qemu-img convert -O qcow2 OLD NEW), or serve it with \
                     qemu-nbd"
                .to_owned(),
        }),
        Format::Caibx => Err(FormatError::Unsupported {
            device: device.name(),
            what: format.name().to_owned(),
            advice: "this part of the program does not reach the store of its chunks".to_owned(),
        }),
        Format::Qcow2 => open_qcow2(device, how),
        Format::Gzip | Format::Zstd | Format::Xz => open_compressed(&device, format, how),
    }
}

/// Makes an empty image on `device`, all of whose disk of `size` bytes reads as zeros, and opens it
/// for writing. `device` is a new file without a byte, which grows, or has room enough and holds
/// zeros. A flush at the end makes the image complete.
///
/// Android sparse images are written in one go ([`simg::write`]), and a VMDK is described with
/// [`flat_extent_of`](crate::flat_extent_of) in mind: its content goes to another file, and this
/// function makes neither.
///
/// # Errors
/// `BadSize` for a size that the format does not have, `Unsupported` for formats that are not
/// created so, `Device` when the device fails.
pub fn create(
    device: SharedDevice,
    format: Format,
    size: u64,
    how: &CreateHow,
) -> Result<SharedDevice, FormatError> {
    match format {
        Format::Raw => {
            device.grow(size)?;
            Ok(device)
        }
        Format::Vhd => vhd::create_dynamic(device, size, how),
        Format::VhdFixed => vhd::create_fixed(device, size, how),
        Format::Qcow2 => create_qcow2(device, size),
        _ => Err(FormatError::Unsupported {
            device: device.name(),
            what: format.name().to_owned(),
            advice: "this format is not written in place".to_owned(),
        }),
    }
}

#[cfg(feature = "qcow2")]
use crate::qcow2::{create as create_qcow2, open as open_qcow2};

#[cfg(not(feature = "qcow2"))]
fn open_qcow2(device: SharedDevice, _: &OpenHow) -> Result<SharedDevice, FormatError> {
    Err(not_built(&device, Format::Qcow2))
}

#[cfg(not(feature = "qcow2"))]
fn create_qcow2(device: SharedDevice, _: u64) -> Result<SharedDevice, FormatError> {
    Err(not_built(&device, Format::Qcow2))
}

#[cfg(any(feature = "gzip", feature = "zstd", feature = "xz"))]
use crate::compressed::open as open_compressed;

#[cfg(not(any(feature = "gzip", feature = "zstd", feature = "xz")))]
fn open_compressed(
    device: &SharedDevice,
    format: Format,
    _: &OpenHow,
) -> Result<SharedDevice, FormatError> {
    Err(not_built(device, format))
}

/// The format is known, and this program was built without it.
pub(crate) fn not_built(device: &SharedDevice, format: Format) -> FormatError {
    FormatError::Unsupported {
        device: device.name(),
        what: format.name().to_owned(),
        advice: format!(
            "this program was built without the feature {}",
            format.word()
        ),
    }
}

//! Where the bytes of disks lie, so that two that lie over each other are found by whatever names.
//!
//! A loop device lies in its file, a partition in its disk. What a device mapper or a server makes
//! of other disks is not known here.

use crate::images::FileId;
use extant_blockdev::{Content, NbdTransport, OpenSpec, list_partitions};
use extant_image::{Carrier, ImageLocation, PartitionName};
use std::fs::{self, Metadata};
use std::mem::discriminant;
use std::ops::Range;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::str::FromStr;

/// Loop devices over each other that are followed.
const DEPTH_MAX: u32 = 8;
/// What sysfs counts in.
const SECTOR: u64 = 512;

/// The place of a disk, or of a part of one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Ground {
    base: Base,
    bytes: Range<u64>,
    /// The partition that is meant, where its bytes are not known.
    partition: Option<PartitionName>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Base {
    File(FileId),
    /// A disk, by its folder of sysfs.
    Disk(PathBuf),
    Elsewhere(Carrier),
}

impl Ground {
    /// The place of an image; `None` of what is no file and no disk, or is not there.
    pub(crate) fn of(image: &ImageLocation) -> Option<Self> {
        let path = match image.carrier() {
            Carrier::File(path) => path.clone(),
            Carrier::Descriptor(number) => PathBuf::from(format!("/proc/self/fd/{number}")),
            other => {
                return Some(Self {
                    partition: image.partition().cloned(),
                    ..Self::whole(Base::Elsewhere(plain(other)))
                });
            }
        };
        let whole = Self::of_found(&path.metadata().ok()?, 0)?;
        let bytes = image.partition().and_then(|name| bytes_of(name, &path));
        Some(match bytes {
            Some(bytes) => whole.part(&bytes),
            None => whole,
        })
    }

    fn whole(base: Base) -> Self {
        Self {
            base,
            bytes: 0..u64::MAX,
            partition: None,
        }
    }

    fn of_found(found: &Metadata, depth: u32) -> Option<Self> {
        if found.is_file() {
            return Some(Self::whole(Base::File((found.dev(), found.ino()))));
        }
        let is_device = found.file_type().is_block_device();
        is_device.then(|| Self::of_device(found.rdev(), depth))
    }

    fn of_device(number: u64, depth: u32) -> Self {
        let (major, minor) = (rustix::fs::major(number), rustix::fs::minor(number));
        let link = PathBuf::from(format!("/sys/dev/block/{major}:{minor}"));
        let Ok(folder) = link.canonicalize() else {
            return Self::whole(Base::Disk(link));
        };
        // The folder of a partition lies in that of its disk.
        if let (true, Some(disk)) = (folder.join("partition").exists(), folder.parent()) {
            let whole = Self::of_disk(disk, depth);
            let sectors = |name| said::<u64>(&folder.join(name));
            return match (sectors("start"), sectors("size")) {
                (Some(start), Some(size)) => {
                    let start = start.saturating_mul(SECTOR);
                    let end = start.saturating_add(size.saturating_mul(SECTOR));
                    whole.part(&(start..end))
                }
                _ => whole,
            };
        }
        Self::of_disk(&folder, depth)
    }

    fn of_disk(folder: &Path, depth: u32) -> Self {
        let behind = || {
            let file: PathBuf = said(&folder.join("loop/backing_file"))?;
            let found = file.metadata().ok().filter(|_| depth < DEPTH_MAX)?;
            let whole = Self::of_found(&found, depth + 1)?;
            let start = said(&folder.join("loop/offset")).unwrap_or(0);
            let len = said(&folder.join("loop/sizelimit")).filter(|len| *len > 0);
            let end = len.map_or(u64::MAX, |len: u64| len.saturating_add(start));
            Some(whole.part(&(start..end)))
        };
        behind().unwrap_or_else(|| Self::whole(Base::Disk(folder.to_owned())))
    }

    /// A part of it, in bytes from where it begins.
    pub(crate) fn part(self, bytes: &Range<u64>) -> Self {
        let at = |offset: u64| self.bytes.start.saturating_add(offset).min(self.bytes.end);
        Self {
            bytes: at(bytes.start)..at(bytes.end),
            ..self
        }
    }

    /// Whether both lie in the same file, on the same disk, or at the same address.
    pub(crate) fn is_beside(&self, other: &Self) -> bool {
        self.base == other.base
    }

    /// Whether a byte of one is one of the other, as far as that is known.
    pub(crate) fn meets(&self, other: &Self) -> bool {
        let are_apart = match (&self.partition, &other.partition) {
            (Some(one), Some(two)) => discriminant(one) == discriminant(two) && one != two,
            _ => false,
        };
        self.is_beside(other)
            && !are_apart
            && self.bytes.start < other.bytes.end
            && other.bytes.start < self.bytes.end
    }
}

/// What a file of sysfs says.
fn said<T: FromStr>(path: &Path) -> Option<T> {
    let text = fs::read_to_string(path).ok()?;
    text.trim_end_matches('\n').parse().ok()
}

/// The bytes of a partition of a disk that is no image in a format.
fn bytes_of(name: &PartitionName, path: &Path) -> Option<Range<u64>> {
    let device = OpenSpec::read_only(path).open().ok()?;
    let marks = Content::on(&*device).ok()?;
    if !matches!(marks, Content::Gpt | Content::Mbr) {
        return None;
    }
    let number = name.number_on(&device).ok()?;
    let table = list_partitions(&*device).ok()?;
    let found = table.partitions.iter().find(|part| part.number == number)?;
    Some(found.start..found.start.saturating_add(found.len))
}

/// An address without what may be written in several ways.
fn plain(carrier: &Carrier) -> Carrier {
    let mut carrier = carrier.clone();
    if let Carrier::Nbd(address) = &mut carrier {
        address.tls = false;
        match &mut address.transport {
            NbdTransport::Unix(socket) => {
                if let Ok(full) = socket.canonicalize() {
                    *socket = full;
                }
            }
            NbdTransport::Tcp(host, _) => host.make_ascii_lowercase(),
        }
    }
    carrier
}

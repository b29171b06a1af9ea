//! What is behind the handles, and the structures that C knows as well.

use extant::{DirEntry, Metadata, ReadDir, StatFs, Timestamp};
use std::ffi::c_char;
use std::os::unix::ffi::OsStrExt;

/// An open file system: `extant_fs`. With a transaction, its changes are those of that. And what
/// was mended of it.
#[derive(Debug)]
pub struct Fs(
    pub(crate) extant::Filesystem,
    pub(crate) Option<extant::Transaction>,
    pub(crate) Mended,
);

/// An open file: `extant_file`.
#[derive(Debug)]
pub struct File(pub(crate) extant::File);

/// A directory that is being listed: `extant_dir`.
#[derive(Debug)]
pub struct Dir(pub(crate) ReadDir);

/// How to open a file system: `struct extant_options`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// `sizeof` this structure as the caller knows it.
    pub size: usize,
    /// `EXTANT_WRITABLE`, `EXTANT_TRANSACTION`, `EXTANT_MEND`.
    pub flags: u32,
    /// The partition, from 1; 0 for none.
    pub partition: u32,
    /// Byte at which the file system begins; 0 for the beginning or that of the partition.
    pub offset: u64,
    /// Bytes of memory for file data; 0 for a share of the machine's.
    pub cache_bytes: u64,
    /// The word of the format that the image has; NULL to have it seen.
    pub format: *const c_char,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            size: 0,
            flags: 0,
            partition: 0,
            offset: 0,
            cache_bytes: 0,
            format: std::ptr::null(),
        }
    }
}

/// A time: `struct extant_time`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Time {
    /// Seconds since 1970.
    pub seconds: i64,
    /// And nanoseconds; `EXTANT_OMIT` to leave a time as it is.
    pub nanoseconds: u32,
    /// 0.
    pub reserved: u32,
}

/// What is known about a file: `struct extant_stat`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Stat {
    /// Inode number.
    pub ino: u64,
    /// Length in bytes.
    pub size: u64,
    /// Space in units of 512 bytes.
    pub blocks: u64,
    /// Type and permissions, as `st_mode`.
    pub mode: u32,
    /// Names.
    pub nlink: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Number of a device node, first part.
    pub rdev_major: u32,
    /// Second part.
    pub rdev_minor: u32,
    /// Block size in bytes.
    pub block_size: u32,
    /// File flags, as `FS_IOC_GETFLAGS`.
    pub flags: u32,
    /// Tells files apart that had the same inode number one after the other.
    pub generation: u32,
    /// 0.
    pub reserved: u32,
    /// Last access.
    pub atime: Time,
    /// Last change of the content.
    pub mtime: Time,
    /// Last change.
    pub ctime: Time,
    /// Creation; zeros when the image does not say.
    pub btime: Time,
}

/// Space of a file system: `struct extant_space`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Space {
    /// Blocks that files could use.
    pub blocks: u64,
    /// Free ones.
    pub free: u64,
    /// Those that unprivileged users may take.
    pub available: u64,
    /// Inodes.
    pub inodes: u64,
    /// Free ones.
    pub free_inodes: u64,
    /// Block size in bytes.
    pub block_size: u32,
    /// Longest name in bytes.
    pub name_max: u32,
    /// The UUID.
    pub uuid: [u8; 16],
}

/// What was mended of a file system: `struct extant_mended`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Mended {
    /// Things that were put right.
    pub fixes: u64,
    /// Bytes by which the image is shorter than its file system.
    pub missing: u64,
    /// Pieces of at most 4 KiB that could not be read, of what was looked at.
    pub unreadable: u64,
    /// 1 if something is left as it was, since mending it would lose files.
    pub partial: u32,
    /// 1 if what waits in the journal is left out.
    pub without_journal: u32,
}

/// A name in a directory: `struct extant_entry`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Entry {
    /// Inode number.
    pub ino: u64,
    /// Type, as the type bits of `st_mode`; 0 when it is not known.
    pub r#type: u32,
    /// Bytes of the name.
    pub length: u32,
    /// The name, with a zero byte behind it.
    pub name: [c_char; 256],
}

impl From<Timestamp> for Time {
    fn from(time: Timestamp) -> Self {
        Self {
            seconds: time.secs,
            nanoseconds: time.nanos,
            reserved: 0,
        }
    }
}

impl From<&Metadata> for Stat {
    fn from(metadata: &Metadata) -> Self {
        let device = metadata.rdev();
        Self {
            ino: metadata.ino().into(),
            size: metadata.len(),
            blocks: metadata.blocks(),
            mode: metadata.mode().bits().into(),
            nlink: metadata.nlink(),
            uid: metadata.uid(),
            gid: metadata.gid(),
            rdev_major: device.map_or(0, |device| device.major),
            rdev_minor: device.map_or(0, |device| device.minor),
            block_size: metadata.blksize(),
            flags: metadata.flags(),
            generation: metadata.generation(),
            reserved: 0,
            atime: metadata.atime().into(),
            mtime: metadata.mtime().into(),
            ctime: metadata.ctime().into(),
            btime: metadata.crtime().map(Time::from).unwrap_or_default(),
        }
    }
}

impl From<StatFs> for Space {
    fn from(space: StatFs) -> Self {
        Self {
            blocks: space.blocks,
            free: space.free,
            available: space.available,
            inodes: space.inodes,
            free_inodes: space.free_inodes,
            block_size: space.block_size.bytes(),
            name_max: space.name_len,
            uuid: space.uuid,
        }
    }
}

#[cfg(feature = "mend")]
impl From<&extant::mend::Mended> for Mended {
    fn from(mended: &extant::mend::Mended) -> Self {
        Self {
            fixes: mended.fixes_count,
            missing: mended.missing,
            unreadable: mended.unreadable,
            partial: mended.is_partial.into(),
            without_journal: mended.without_journal.into(),
        }
    }
}

impl From<&DirEntry> for Entry {
    fn from(entry: &DirEntry) -> Self {
        let bytes = entry.file_name().as_bytes();
        let mut name = [0; 256];
        // Names have at most 255 bytes: the last one stays zero.
        for (to, from) in name[..255].iter_mut().zip(bytes) {
            *to = *from as c_char;
        }
        Self {
            ino: entry.ino().into(),
            // That it cannot be told is no reason not to list the name.
            r#type: entry.file_type().map_or(0, |kind| kind.mode_bits().into()),
            length: bytes.len().min(255) as u32,
            name,
        }
    }
}

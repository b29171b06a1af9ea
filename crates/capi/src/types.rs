//! What is behind the handles, and the structures that C knows as well.

use crate::call::Failure;
use crate::constants::{EXTENT_UNWRITTEN, NOWHERE};
use crate::device::Device;
use crate::watch::Token;
use extant::{DirEntry, Limits, Metadata, ReadDir, StatFs, Timestamp};
use std::ffi::{CString, c_char, c_int, c_void};
use std::fmt;
use std::os::unix::ffi::{OsStrExt, OsStringExt};

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

/// A walk: `extant_walk`.
pub struct Walk {
    walk: extant::Walk,
    /// What was given out last, and the path in it.
    entry: WalkEntry,
    path: CString,
}

impl fmt::Debug for Walk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Walk").field(&self.walk).finish()
    }
}

impl Walk {
    pub(crate) fn new(walk: extant::Walk) -> Self {
        let path = CString::default();
        let entry = WalkEntry {
            path: path.as_ptr(),
            length: 0,
            depth: 0,
            stat: Stat::default(),
        };
        Self { walk, entry, path }
    }

    /// The next file, which stays until the next call.
    pub(crate) fn next(&mut self) -> Result<Option<&WalkEntry>, Failure> {
        let Some(found) = self.walk.next() else {
            return Ok(None);
        };
        let found = found?;
        let mut bytes = found.path_bytes().to_vec();
        let length = bytes.len();
        // A damaged directory has names with anything in them: what C sees ends there.
        bytes.push(0);
        self.path = CString::from_vec_with_nul(bytes).unwrap_or_else(|e| cut(e.into_bytes()));
        self.entry = WalkEntry {
            path: self.path.as_ptr(),
            length: length.min(self.path.as_bytes().len()),
            depth: found.depth() as u64,
            stat: (&found.metadata()).into(),
        };
        Ok(Some(&self.entry))
    }

    pub(crate) fn skip(&mut self) {
        self.walk.skip_children();
    }
}

/// A search by a pattern: `extant_glob`.
pub struct Glob {
    glob: extant::Glob,
    /// What was given out last.
    path: CString,
}

impl fmt::Debug for Glob {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Glob").field(&self.path).finish()
    }
}

impl Glob {
    pub(crate) fn new(glob: extant::Glob) -> Self {
        let path = CString::default();
        Self { glob, path }
    }

    /// The next path, which stays until the next call.
    pub(crate) fn next(&mut self) -> Result<Option<*const c_char>, Failure> {
        let Some(found) = self.glob.next() else {
            return Ok(None);
        };
        let mut bytes = found?.into_os_string().into_vec();
        bytes.push(0);
        self.path = CString::from_vec_with_nul(bytes).unwrap_or_else(|e| cut(e.into_bytes()));
        Ok(Some(self.path.as_ptr()))
    }
}

/// What comes before the first zero byte.
fn cut(mut bytes: Vec<u8>) -> CString {
    let end = bytes.iter().position(|&byte| byte == 0);
    bytes.truncate(end.unwrap_or(0));
    CString::new(bytes).unwrap_or_default()
}

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
    /// The device that the journal is on; NULL for none of its own.
    pub journal: *const Device,
}

/// How far long work is, and what ends it: `struct extant_watch`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Watch {
    /// `sizeof` this structure as the caller knows it.
    pub size: usize,
    /// What is told how far the work is.
    pub progress: Option<
        unsafe extern "C" fn(
            user: *mut c_void,
            what: *const c_char,
            done: u64,
            total: u64,
        ) -> c_int,
    >,
    /// What that is called with.
    pub user: *mut c_void,
    /// What ends the work; NULL for nothing.
    pub token: *const Token,
}

/// How to be told about all files: `struct extant_bulkstat`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Bulkstat {
    /// `sizeof` this structure as the caller knows it.
    pub size: usize,
    /// What is told about files, many at a time.
    pub files:
        Option<unsafe extern "C" fn(user: *mut c_void, files: *const Stat, count: usize) -> c_int>,
    /// What is told why something cannot be read.
    pub failed: Option<unsafe extern "C" fn(user: *mut c_void, message: *const c_char) -> c_int>,
    /// What these are called with.
    pub user: *mut c_void,
    /// Threads; 0 for as many as there are processors.
    pub threads: u32,
    /// `EXTANT_BULKSTAT_CACHE`.
    pub flags: u32,
}

/// Functions that a device is made of: `struct extant_device_ops`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct DeviceOps {
    /// `sizeof` this structure as the caller knows it.
    pub size: usize,
    /// Fills a buffer.
    pub read: Option<
        unsafe extern "C" fn(
            user: *mut c_void,
            buffer: *mut c_void,
            length: usize,
            offset: u64,
        ) -> c_int,
    >,
    /// Writes a buffer; none for reading only.
    pub write: Option<
        unsafe extern "C" fn(
            user: *mut c_void,
            buffer: *const c_void,
            length: usize,
            offset: u64,
        ) -> c_int,
    >,
    /// Makes what was written durable.
    pub flush: Option<unsafe extern "C" fn(user: *mut c_void) -> c_int>,
    /// Says that a range is no longer needed.
    pub discard: Option<unsafe extern "C" fn(user: *mut c_void, offset: u64, length: u64) -> c_int>,
    /// Makes a range read as zeros.
    pub zero: Option<unsafe extern "C" fn(user: *mut c_void, offset: u64, length: u64) -> c_int>,
    /// Stores the size in bytes.
    pub capacity: Option<unsafe extern "C" fn(user: *mut c_void, bytes: *mut u64) -> c_int>,
    /// Is called when nothing uses the device any more.
    pub release: Option<unsafe extern "C" fn(user: *mut c_void)>,
    /// Bytes that are written as a unit; 0 for 512.
    pub sector: u32,
    /// 0.
    pub reserved: u32,
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

/// A file of a walk: `struct extant_walk_entry`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct WalkEntry {
    /// The path.
    pub path: *const c_char,
    /// Bytes of it.
    pub length: usize,
    /// Directories between the start and this.
    pub depth: u64,
    /// What is known about the file.
    pub stat: Stat,
}

/// A piece of a file: `struct extant_extent`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Extent {
    /// First byte in the file.
    pub offset: u64,
    /// Length in bytes.
    pub length: u64,
    /// First byte on the device; `EXTANT_NOWHERE` for content in the inode.
    pub device_offset: u64,
    /// `EXTANT_EXTENT_UNWRITTEN`.
    pub flags: u32,
    /// 0.
    pub reserved: u32,
}

/// An entry of an access control list: `struct extant_acl_entry`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct AclEntry {
    /// `EXTANT_ACL_...`.
    pub tag: u32,
    /// The user or group that is named.
    pub id: u32,
    /// Read 4, write 2, execute 1.
    pub permissions: u32,
}

/// What a user, group or project uses and may use: `struct extant_quota`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Quota {
    /// Bytes in use.
    pub space: u64,
    /// Soft limit in bytes; 0 for none.
    pub space_soft: u64,
    /// Hard limit in bytes; 0 for none.
    pub space_hard: u64,
    /// When the time of grace ends; 0 while the soft limit is kept.
    pub space_grace_ends: u64,
    /// Inodes in use.
    pub inodes: u64,
    /// Soft limit; 0 for none.
    pub inode_soft: u64,
    /// Hard limit; 0 for none.
    pub inode_hard: u64,
    /// When the time of grace ends; 0 while the soft limit is kept.
    pub inode_grace_ends: u64,
    /// The user, group or project.
    pub id: u32,
    /// 0.
    pub reserved: u32,
}

/// What was found: `struct extant_finding`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Finding {
    /// The code.
    pub code: *const c_char,
    /// A line for people.
    pub text: *const c_char,
    /// `EXTANT_WARNING`, `EXTANT_ERROR`, `EXTANT_FATAL`.
    pub severity: u32,
    /// The group of blocks.
    pub group: u32,
    /// The inode.
    pub inode: u64,
    /// The block of the inode.
    pub inode_block: u64,
    /// The block of the file system.
    pub block: u64,
}

/// What a check or a repair came to: `struct extant_summary`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Summary {
    /// Findings worth knowing.
    pub warnings: u64,
    /// Inconsistencies.
    pub errors: u64,
    /// Those that kept parts from being checked.
    pub fatal: u64,
    /// Inodes in use.
    pub inodes: u64,
    /// Directories among them.
    pub directories: u64,
    /// Blocks in use.
    pub blocks: u64,
    /// Things that were mended.
    pub fixes: u64,
    /// Files that are lost.
    pub losses: u64,
    /// Blocks that the repair changes.
    pub changed_blocks: u64,
    /// 1 if nothing is worse than a warning.
    pub clean: u32,
    /// 1 if the changes were written.
    pub written: u32,
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

impl From<&extant::Extent> for Extent {
    fn from(extent: &extant::Extent) -> Self {
        Self {
            offset: extent.offset,
            length: extent.len,
            device_offset: extent.device_offset.unwrap_or(NOWHERE),
            flags: if extent.unwritten {
                EXTENT_UNWRITTEN
            } else {
                0
            },
            reserved: 0,
        }
    }
}

impl From<&extant::Quota> for Quota {
    fn from(quota: &extant::Quota) -> Self {
        let of = |limits: &Limits| {
            let all = [limits.soft, limits.hard, limits.grace_ends];
            all.map(|number| number.unwrap_or(0))
        };
        let [space_soft, space_hard, space_grace_ends] = of(&quota.space_limits);
        let [inode_soft, inode_hard, inode_grace_ends] = of(&quota.inode_limits);
        Self {
            space: quota.space,
            space_soft,
            space_hard,
            space_grace_ends,
            inodes: quota.inodes,
            inode_soft,
            inode_hard,
            inode_grace_ends,
            id: quota.id,
            reserved: 0,
        }
    }
}

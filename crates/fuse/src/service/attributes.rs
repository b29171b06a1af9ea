//! The record, flags and extended attributes.

use super::whole::is_about_whole;
use super::{Answer, Attributes, Credentials, Errno, METRICS, Node, Service};
use extant_core::inode::{Held, Timestamp};
use extant_core::ops::{self, Caller, SetXattr};
use extant_format::inode::{FileType, InodeFlags};

/// Flags of `setxattr`.
const XATTR_CREATE: i32 = 1;
const XATTR_REPLACE: i32 = 2;

/// What the names of both access control lists begin with.
const LISTS: &[u8] = b"system.posix_acl_";

/// `FS_IOC_GETFLAGS` and `FS_IOC_SETFLAGS`. The kernel translates the numbers of 32-bit programs,
/// and checks nothing when somebody else uses those.
const GET_FLAGS: u32 = 0x8008_6601;
pub(crate) const SET_FLAGS: u32 = 0x4008_6602;

/// `FS_IOC_FSGETXATTR` and `FS_IOC_FSSETXATTR`, whose record of 28 bytes begins with flags of its
/// own and has the project at byte 12.
const GET_XFLAGS: u32 = 0x801c_581f;
const SET_XFLAGS: u32 = 0x401c_5820;
const EXTENDED: usize = 28;

/// Those flags, and ours of the same meaning.
const XFLAGS: [(u32, InodeFlags); 7] = [
    (0x8, InodeFlags::IMMUTABLE),
    (0x10, InodeFlags::APPEND),
    (0x20, InodeFlags::SYNC),
    (0x40, InodeFlags::NO_ATIME),
    (0x80, InodeFlags::NO_DUMP),
    (0x200, InodeFlags::PROJECT_INHERIT),
    (0x8000, InodeFlags::DAX),
];

fn extended(flags: InodeFlags, project: u32) -> Vec<u8> {
    let bits = XFLAGS
        .iter()
        .filter(|(_, flag)| flags.contains(*flag))
        .fold(0, |bits, (bit, _)| bits | bit);
    let mut record = Vec::with_capacity(EXTENDED);
    record.extend(u32::to_ne_bytes(bits));
    record.extend([0; 8]);
    record.extend(project.to_ne_bytes());
    record.resize(EXTENDED, 0);
    record
}

/// Returns the flags with those changed that the record has.
fn with_extended(mut flags: InodeFlags, bits: u32) -> InodeFlags {
    for (bit, flag) in XFLAGS {
        flags.set(flag, bits & bit != 0);
    }
    flags
}

/// Flags that `FS_IOC_GETFLAGS` shows.
const VISIBLE: InodeFlags = InodeFlags::from_bits_retain(0x725b_dfff);

/// Of these, what `FS_IOC_SETFLAGS` changes, as Linux has it: others stay as they are, whatever is
/// asked.
const MODIFIABLE: InodeFlags = ops::CHANGEABLE
    .difference(InodeFlags::NO_COMPRESS)
    .union(InodeFlags::JOURNAL_DATA);

/// Tells whether an `ioctl` makes a file immutable, if it is not.
pub(crate) fn makes_immutable(command: u32, input: &[u8]) -> bool {
    let Some(word) = input.first_chunk::<4>() else {
        return false;
    };
    let word = u32::from_ne_bytes(*word);
    let flags = match command {
        SET_FLAGS => InodeFlags::from_bits_retain(word),
        SET_XFLAGS => with_extended(InodeFlags::empty(), word),
        _ => return false,
    };
    flags.contains(InodeFlags::IMMUTABLE)
}

/// Tells whether an `ioctl` may change the record.
pub(crate) fn changes_record(command: u32) -> bool {
    matches!(command, SET_FLAGS | SET_XFLAGS)
}

impl Service {
    /// Tells whether an inode is a file that can be written to now, and not any more when it is
    /// immutable.
    pub(crate) fn can_be_sealed(&self, node: Node) -> Answer<bool> {
        let held = self.hold(node)?;
        let view = held.view();
        let is_file = view.file_type() == FileType::Regular;
        Ok(is_file && !view.flags().contains(InodeFlags::IMMUTABLE))
    }
}

/// A time to be set.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Stamp {
    Now,
    At(Timestamp),
}

impl Stamp {
    fn resolve(self, now: Timestamp) -> Timestamp {
        match self {
            Self::Now => now,
            Self::At(time) => time,
        }
    }
}

/// What is to change about a record.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Changes {
    pub(crate) mode: Option<u32>,
    pub(crate) uid: Option<u32>,
    pub(crate) gid: Option<u32>,
    pub(crate) size: Option<u64>,
    pub(crate) atime: Option<Stamp>,
    pub(crate) mtime: Option<Stamp>,
    /// When the kernel took the change, which it says where it gathers writes.
    pub(crate) ctime: Option<Timestamp>,
}

/// Both times become now, which takes no more than the right to write: `utimensat` without times.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Touch {
    Now,
    /// When the kernel took the call.
    At(Timestamp),
}

impl Changes {
    fn touch(&self) -> Option<Touch> {
        match (self.atime?, self.mtime?, self.ctime) {
            (Stamp::Now, Stamp::Now, None) => Some(Touch::Now),
            (Stamp::Now, Stamp::Now, Some(time)) => Some(Touch::At(time)),
            // Where it gathers writes it does not say of this time that it is now. A program that
            // asks for another one, to the nanosecond the same, is not told apart.
            (Stamp::Now, Stamp::At(mtime), Some(time)) if mtime == time => Some(Touch::At(time)),
            _ => None,
        }
    }
}

/// Tells whether the kernel only says when it took a change, which it does of its own accord where
/// it gathers writes, and nothing comes of it: of what was appended to a file, writing it has set
/// the times, and nothing else may; and a file that has lost its last name takes them with it.
/// Until then the kernel knows them.
fn is_write_behind(held: &Held, changes: &Changes) -> bool {
    let tells_times_only = changes.ctime.is_some() && changes.atime.is_none();
    if !tells_times_only {
        return false;
    }
    let flags = held.snapshot().flags();
    flags.contains(InodeFlags::APPEND)
        || (held.is_nameless_for_good() && !flags.contains(InodeFlags::IMMUTABLE))
}

/// Owner and group.
type Owners = (Option<u32>, Option<u32>);

impl Service {
    /// Finds what is to be stored of owners and permissions that are asked for, if any are.
    fn asked(&self, held: &Held, changes: &Changes) -> Answer<(Option<Owners>, Option<u16>)> {
        let view = held.view();
        let stored = view.disk();
        let owners = (changes.uid, changes.gid);
        let is_given = changes.uid.or(changes.gid).is_some();
        let owners = is_given.then(|| self.view.owners_asked(owners, (stored.uid, stored.gid)));
        let permissions = changes.mode.map(|mode| {
            let asked = u16::try_from(mode & 0o7777).unwrap_or(0);
            let now = stored.mode.permissions();
            self.view.permissions_asked(view.file_type(), asked, now)
        });
        Ok((owners.transpose()?, permissions.transpose()?))
    }

    /// Tells whether an attribute is an access control list that nobody sees here.
    fn is_hidden(&self, name: &[u8]) -> bool {
        self.view.hides_lists() && name.starts_with(LISTS)
    }

    pub(crate) fn setattr(
        &self,
        caller: Credentials,
        node: Node,
        changes: Changes,
    ) -> Answer<Attributes> {
        let held = self.hold(node)?;
        // What cannot be is found before anything is changed.
        let (owners, permissions) = self.asked(&held, &changes)?;
        if let Some(size) = changes.size {
            self.truncate(caller, &held, size)?;
        }
        // First the owner, which takes the set-ID bits away, then the mode, which may set them.
        if let Some((uid, gid)) = owners {
            ops::chown(&self.fs, &held, uid, gid)?;
        }
        if let Some(permissions) = permissions {
            ops::chmod(&self.fs, &held, permissions)?;
        }
        if let Some(touch) = changes.touch() {
            match touch {
                Touch::Now => ops::touch(&self.fs, &held)?,
                Touch::At(time) => ops::touch_dated(&self.fs, &held, time)?,
            }
        } else if !is_write_behind(&held, &changes) {
            let now = ops::now();
            let atime = changes.atime.map(|time| time.resolve(now));
            let mtime = changes.mtime.map(|time| time.resolve(now));
            match changes.ctime {
                None => ops::utimens(&self.fs, &held, atime, mtime)?,
                Some(ctime) => ops::utimens_dated(&self.fs, &held, atime, mtime, ctime)?,
            }
        }
        self.sync_inode(&held)?;
        Ok(self.describe(&held.view()))
    }

    pub(crate) fn getxattr(&self, node: Node, name: &[u8]) -> Answer<Vec<u8>> {
        if node == Node::ROOT && name == METRICS.as_bytes() {
            return Ok(self.metrics().into_bytes());
        }
        if self.is_hidden(name) {
            return Err(Errno::NO_DATA);
        }
        let value = ops::getxattr_live(&self.fs, &self.hold(node)?, name);
        value.map_err(|e| self.met(e))
    }

    /// Lists the names of all attributes, a zero byte behind each.
    pub(crate) fn listxattr(&self, caller: Credentials, node: Node) -> Answer<Vec<u8>> {
        let caller = Caller::new(caller.uid, caller.gid);
        let names = ops::listxattr_live(self.fs.acting_for(&caller), &self.hold(node)?);
        Ok(names
            .map_err(|e| self.met(e))?
            .into_iter()
            .filter(|name| !self.is_hidden(name))
            .flat_map(|name| name.into_iter().chain([0]))
            .collect())
    }

    pub(crate) fn setxattr(&self, node: Node, name: &[u8], value: &[u8], flags: i32) -> Answer {
        let how = match flags {
            0 => SetXattr::Any,
            XATTR_CREATE => SetXattr::Create,
            XATTR_REPLACE => SetXattr::Replace,
            _ => return Err(Errno::INVALID),
        };
        if self.is_hidden(name) {
            return Err(Errno::NOT_SUPPORTED);
        }
        let held = self.hold(node)?;
        ops::setxattr(&self.fs, &held, name, value, how)?;
        self.sync_inode(&held)
    }

    /// Sets the access control list for a user outside the file's group, with another right to set
    /// it.
    pub(crate) fn set_access_list_from_outside(&self, node: Node, value: &[u8]) -> Answer {
        let held = self.hold(node)?;
        ops::set_access_list_from_outside(&self.fs, &held, value)?;
        self.sync_inode(&held)
    }

    pub(crate) fn removexattr(&self, node: Node, name: &[u8]) -> Answer {
        if self.is_hidden(name) {
            return Err(Errno::NOT_SUPPORTED);
        }
        let held = self.hold(node)?;
        ops::removexattr(&self.fs, &held, name)?;
        self.sync_inode(&held)
    }

    /// Carries out an `ioctl` about flags, or about the file system as a whole, and returns what it
    /// gives back.
    pub(crate) fn ioctl(
        &self,
        caller: Credentials,
        node: Node,
        command: u32,
        input: &[u8],
    ) -> Answer<Vec<u8>> {
        let held = self.hold(node)?;
        if is_about_whole(command) {
            return self.whole_ioctl(caller, command, input);
        }
        let image = held.snapshot();
        let now = image.flags() & VISIBLE;
        let word = || {
            let bytes = input.first_chunk::<4>().ok_or(Errno::INVALID)?;
            Ok::<_, Errno>(u32::from_ne_bytes(*bytes))
        };
        let had = image.disk().project.unwrap_or(0);
        let mut project = had;
        let wanted = match command {
            GET_FLAGS => return Ok(now.bits().to_ne_bytes().to_vec()),
            GET_XFLAGS => return Ok(extended(now, had)),
            SET_FLAGS => {
                let flags = InodeFlags::from_bits_retain(word()?);
                let possible = ops::changeable(image.file_type()) | InodeFlags::JOURNAL_DATA;
                if !VISIBLE.contains(flags) || !possible.contains(flags & MODIFIABLE) {
                    return Err(Errno::NOT_SUPPORTED);
                }
                (flags & MODIFIABLE) | (now & !MODIFIABLE)
            }
            SET_XFLAGS => {
                let bytes = input.get(12..).and_then(<[u8]>::first_chunk::<4>);
                project = u32::from_ne_bytes(*bytes.ok_or(Errno::INVALID)?);
                with_extended(now, word()?)
            }
            _ => return Err(Errno::NOT_A_TTY),
        };
        // The kernel has checked what it asks of somebody whom it does not name.
        let caller = if caller.is_known() {
            Caller::new(caller.uid, caller.gid)
        } else {
            Caller::new(0, 0)
        };
        let by = self.fs.acting_for(&caller);
        let (set, clear) = (wanted & !now, now & !wanted);
        let gives = || ops::set_project(by, &held, project);
        if set.contains(InodeFlags::IMMUTABLE) {
            gives().and_then(|()| ops::chattr(by, &held, set, clear))?
        } else {
            ops::chattr(by, &held, set, clear).and_then(|()| gives())?
        }
        self.sync_inode(&held)?;
        Ok(Vec::new())
    }
}

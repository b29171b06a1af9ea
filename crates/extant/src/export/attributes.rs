//! Giving a file what it had besides content.
//!
//! The order matters. The owner comes first, as a change of it clears set-ID bits and capabilities.
//! Extended attributes come before the mode, which may forbid its own maker to set them. The mode
//! comes after the access control list, whose mask it shows. The times come last. Whatever cannot
//! be set is noted, and the rest is set all the same.

use super::create::Maker;
use super::missing::{Attribute, Missing};
use crate::{Error, FileType};
use extant_core::fs::Fs;
use extant_core::inode::{Inode, Timestamp};
use extant_core::ops::{self, AclKind};
use extant_format::acl::AclWho;
use rustix::fd::{AsRawFd, BorrowedFd};
use rustix::fs::{AtFlags, Mode, Timespec, Timestamps};
use rustix::io::Errno;
use std::ffi::OsString;
use std::ops::ControlFlow;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;

/// The name of the attribute that is an access control list.
const ACCESS_LIST: &[u8] = b"system.posix_acl_access";

/// A file of the host.
#[derive(Clone, Copy)]
pub(super) enum Host<'a> {
    /// An open file or directory.
    Open(BorrowedFd<'a>),
    /// A name in a directory, never followed.
    Named(BorrowedFd<'a>, &'a [u8]),
}

impl Host<'_> {
    fn chown(self, uid: Option<u32>, gid: Option<u32>) -> Result<(), Errno> {
        match self {
            Self::Open(file) => extant_host::fchown(file, uid, gid),
            Self::Named(dir, name) => extant_host::chownat(dir, name, uid, gid),
        }
    }

    fn chmod(self, mode: Mode) -> Result<(), Errno> {
        match self {
            Self::Open(file) => extant_host::fchmod(file, mode),
            Self::Named(dir, name) => extant_host::chmodat(dir, name, mode),
        }
    }

    fn set_times(self, times: &Timestamps) -> Result<(), Errno> {
        match self {
            Self::Open(file) => rustix::fs::futimens(file, times),
            Self::Named(dir, name) => {
                rustix::fs::utimensat(dir, name, times, AtFlags::SYMLINK_NOFOLLOW)
            }
        }
    }

    fn set_xattr(self, name: &[u8], value: &[u8]) -> Result<(), Errno> {
        match self {
            Self::Open(file) => extant_host::fsetxattr(file, name, value),
            Self::Named(dir, file) => {
                // Through the directory's link in /proc; the last name is not followed.
                let mut path = format!("/proc/self/fd/{}/", dir.as_raw_fd()).into_bytes();
                path.extend_from_slice(file);
                extant_host::lsetxattr(&path, name, value)
            }
        }
    }
}

impl Maker<'_> {
    /// Gives a file owner, extended attributes, mode and times, as far as they are kept, and notes
    /// what it could not be given. A `new` file gets the mode that the system would have given it,
    /// if its own is not kept.
    pub(super) fn attributes(
        &mut self,
        host: Host<'_>,
        inode: &Inode,
        new: bool,
        missing: &mut Vec<Missing>,
    ) {
        let was_private = new && (inode.is_dir() || self.preserve.xattrs);
        self.attributes_of_new(host, inode, was_private, missing);
    }

    /// As [`attributes`](Self::attributes), of something that `was_private` so far or not.
    pub(super) fn attributes_of_new(
        &mut self,
        host: Host<'_>,
        inode: &Inode,
        was_private: bool,
        missing: &mut Vec<Missing>,
    ) {
        let has_owner = !self.preserve.owner || self.owner(host, inode, missing);
        let has_list = self.preserve.xattrs && self.xattrs(host, inode, missing);
        if inode.file_type() != FileType::Symlink
            && let Some(mode) = self.mode(inode, was_private, has_owner, has_list)
            && let Err(errno) = host.chmod(mode)
        {
            let mode = mode.bits() as u16;
            missing.push(Missing::new(Attribute::Mode(mode), errno));
        }
        if self.preserve.times
            && let Err(errno) = host.set_times(&times(inode))
        {
            missing.push(Missing::new(Attribute::Times, errno));
        }
    }

    /// Gives a file its owner and group, or the one of them that can be given. Whether it has both.
    fn owner(&mut self, host: Host<'_>, inode: &Inode, missing: &mut Vec<Missing>) -> bool {
        let (uid, gid) = (inode.disk().uid, inode.disk().gid);
        if host.chown(Some(uid), Some(gid)).is_ok() {
            return true;
        }
        let group = host.chown(None, Some(gid));
        let owner = host.chown(Some(uid), None);
        // Nobody but root can, and nobody else expects to.
        let expected = |errno| !self.is_root && matches!(errno, Errno::PERM | Errno::INVAL);
        let mut all_expected = true;
        for (failed, what) in [
            (owner, Attribute::Owner(uid)),
            (group, Attribute::Group(gid)),
        ] {
            let Err(errno) = failed else { continue };
            if !expected(errno) {
                all_expected = false;
                missing.push(Missing::new(what, errno));
            }
        }
        let has_both = owner.is_ok() && group.is_ok();
        self.report.owners_not_kept += u64::from(all_expected && !has_both);
        has_both
    }

    /// Gives a file its extended attributes. Whether it has the access control list that it should
    /// have.
    fn xattrs(&mut self, host: Host<'_>, inode: &Inode, missing: &mut Vec<Missing>) -> bool {
        if has_no_xattrs(inode) {
            return true;
        }
        let mut denied = 0;
        let mut has_list = true;
        let is_root = self.is_root;
        let read = ops::for_each_xattr(self.fs, inode, |name, value| {
            if let Err(errno) = host.set_xattr(name, value) {
                has_list &= name != ACCESS_LIST;
                let is_privileged = name.starts_with(b"trusted.") || name.starts_with(b"security.");
                if errno == Errno::PERM && !is_root && is_privileged {
                    denied += 1;
                } else {
                    let name = OsString::from_vec(name.to_vec());
                    missing.push(Missing::new(Attribute::Xattr(name), errno));
                }
            }
            ControlFlow::<()>::Continue(())
        });
        self.report.xattrs_not_kept += denied;
        if let Err(e) = read {
            let e = Error::engine(PathBuf::new(), e);
            missing.push(Missing::new(Attribute::Xattrs, e));
            return false;
        }
        has_list
    }

    /// The mode to set, if one is to be set. A file that did not get its owner is not given the
    /// owner's powers, and one that did not get its access control list gives its group no more
    /// than that list did.
    fn mode(
        &self,
        inode: &Inode,
        was_private: bool,
        has_owner: bool,
        has_list: bool,
    ) -> Option<Mode> {
        let bits = inode.disk().mode.permissions();
        if self.preserve.mode {
            let mut kept = if has_owner { bits } else { bits & 0o1777 };
            if !has_list {
                kept &= !0o070 | group_bits(self.fs, inode);
            }
            return Some(Mode::from_raw_mode(kept.into()));
        }
        was_private.then(|| permissions(inode) & !umask())
    }
}

fn has_no_xattrs(inode: &Inode) -> bool {
    inode.xattr_region().is_empty() && inode.disk().file_acl.get() == 0
}

/// What a file's group may do, in the place of the mode's bits for it: of a file with an access
/// control list these show the most that anybody in the list may do.
fn group_bits(fs: &Fs, inode: &Inode) -> u16 {
    if has_no_xattrs(inode) {
        return 0o070;
    }
    match ops::acl(fs, inode, AclKind::Access) {
        Ok(None) => 0o070,
        Ok(Some(list)) => {
            let group = list.entries().iter().find(|e| e.who == AclWho::Group);
            group.map_or(0, |entry| u16::from(entry.permissions & 7) << 3)
        }
        // A list that cannot be read: the group is in any case among all others.
        Err(_) => (inode.disk().mode.permissions() & 0o007) << 3,
    }
}

/// Permissions without set-id and sticky bits.
pub(super) fn permissions(inode: &Inode) -> Mode {
    Mode::from_raw_mode((inode.disk().mode.permissions() & 0o777).into())
}

fn times(inode: &Inode) -> Timestamps {
    let spec = |time: Timestamp| Timespec {
        tv_sec: time.secs,
        tv_nsec: time.nanos.into(),
    };
    Timestamps {
        last_access: spec(inode.disk().atime),
        last_modification: spec(inode.disk().mtime),
    }
}

/// The process's umask, which can only be read by setting it, except from /proc.
fn umask() -> Mode {
    static UMASK: std::sync::OnceLock<u32> = std::sync::OnceLock::new();
    let bits = *UMASK.get_or_init(|| {
        let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
        status
            .lines()
            .find_map(|line| line.strip_prefix("Umask:"))
            .and_then(|octal| u32::from_str_radix(octal.trim(), 8).ok())
            .unwrap_or(0o077)
    });
    Mode::from_raw_mode(bits)
}

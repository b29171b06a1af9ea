//! What a file of the host had besides content, for the one that takes its place.

use super::missing::{Attribute, Missing};
use extant_host::{chownat, fchmod, fsetxattr, lgetxattr, llistxattr, statx};
use rustix::fd::{AsRawFd, BorrowedFd};
use rustix::fs::{FileType as HostType, Mode};
use rustix::io::Errno;
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;

/// What made a program of the older content powerful, which any change of content takes away.
const CAPABILITIES: &[u8] = b"security.capability";
const ACCESS_LIST: &[u8] = b"system.posix_acl_access";
/// The most that Linux returns of names, or of a value.
const MOST_BYTES: usize = 64 << 10;

/// A regular file that is to be replaced.
pub(super) struct Older {
    uid: u32,
    gid: u32,
    mode: u16,
    /// Its attributes, as far as they can be read.
    xattrs: Vec<(Vec<u8>, Vec<u8>)>,
}

impl Older {
    /// The regular file of this name, if it is one.
    pub(super) fn find(dir: BorrowedFd<'_>, name: &[u8]) -> Option<Self> {
        let found = statx(dir, name).ok()?;
        if HostType::from_raw_mode(found.stx_mode.into()) != HostType::RegularFile {
            return None;
        }
        Some(Self {
            uid: found.stx_uid,
            gid: found.stx_gid,
            mode: found.stx_mode & 0o7777,
            xattrs: xattrs(&path_of(dir, name)),
        })
    }

    /// Gives the file `new`, which is open and nobody else's so far, what this one had.
    pub(super) fn give(
        &self,
        dir: BorrowedFd<'_>,
        new: &[u8],
        file: BorrowedFd<'_>,
        missing: &mut Vec<Missing>,
    ) {
        let mut mode = self.mode;
        if extant_host::euid() != 0 {
            // As Linux does when anybody else writes to the file.
            mode &= 0o1777;
        }
        if let Ok(found) = statx(dir, new) {
            for (is_other, what, ids) in [
                (
                    found.stx_uid != self.uid,
                    Attribute::Owner(self.uid),
                    (Some(self.uid), None),
                ),
                (
                    found.stx_gid != self.gid,
                    Attribute::Group(self.gid),
                    (None, Some(self.gid)),
                ),
            ] {
                if !is_other {
                    continue;
                }
                if let Err(errno) = chownat(dir, new, ids.0, ids.1) {
                    // The owner's powers are not for the owner that it has instead.
                    mode &= 0o1777;
                    if what == Attribute::Group(self.gid) {
                        // The group that it has instead was among all others.
                        mode &= !0o070 | (mode & 0o007) << 3;
                    }
                    missing.push(Missing::new(what, errno));
                }
            }
        }
        self.give_xattrs(&path_of(dir, new), file, missing);
        if let Err(errno) = fchmod(file, Mode::from_raw_mode(mode.into())) {
            missing.push(Missing::new(Attribute::Mode(mode), errno));
        }
    }

    fn give_xattrs(&self, path: &[u8], file: BorrowedFd<'_>, missing: &mut Vec<Missing>) {
        let has = xattrs(path);
        if !self.xattrs.iter().any(|(name, _)| name == ACCESS_LIST) {
            // Its directory may have handed one down. Where there are none, none is removed.
            let _ = rustix::fs::fremovexattr(file, ACCESS_LIST);
        }
        for attribute in &self.xattrs {
            let (name, value) = attribute;
            if name == CAPABILITIES || has.contains(attribute) {
                continue;
            }
            if let Err(errno) = fsetxattr(file, name, value) {
                let name = OsString::from_vec(name.clone());
                missing.push(Missing::new(Attribute::Xattr(name), errno));
            }
        }
    }
}

/// A path of a name in an open directory; the last name is not followed.
fn path_of(dir: BorrowedFd<'_>, name: &[u8]) -> Vec<u8> {
    let mut path = format!("/proc/self/fd/{}/", dir.as_raw_fd()).into_bytes();
    path.extend_from_slice(name);
    path
}

/// The attributes of a file of the host that can be read.
fn xattrs(path: &[u8]) -> Vec<(Vec<u8>, Vec<u8>)> {
    let mut buffer = vec![0; MOST_BYTES];
    let Ok(len) = llistxattr(path, &mut buffer) else {
        return Vec::new();
    };
    let names = buffer.get(..len).unwrap_or_default().to_vec();
    let names = names
        .split(|byte| *byte == 0)
        .filter(|name| !name.is_empty());
    let value = |name: &[u8]| -> Result<_, Errno> {
        let len = lgetxattr(path, name, &mut buffer)?;
        Ok((
            name.to_vec(),
            buffer.get(..len).unwrap_or_default().to_vec(),
        ))
    };
    names.map(value).filter_map(Result::ok).collect()
}

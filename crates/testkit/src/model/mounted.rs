//! Operations done by the kernel on a mounted file system.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

use rustix::fs::{
    AtFlags, CWD, FallocateFlags, FileType, IFlags, Mode, OFlags, RenameFlags, Timespec,
    Timestamps, XattrFlags,
};
use rustix::io::Errno;

use super::{DEFAULT_ACL, Lane, Node, Op, Tag, default_acl, tagged, xattr_value};

/// Does `op` below the mount point `root`, as its lane's [`Lane::run`] wants it; `prefix` is put in
/// front of every path.
///
/// # Errors
///
/// What the kernel returned.
pub fn perform_mounted(root: &Path, prefix: &str, op: &Op, tag: Tag) -> Result<u64, Errno> {
    let at = |path: &str| root.join(format!("{prefix}{path}").trim_end_matches('/'));
    let open = |path: &str, flags: OFlags| {
        let flags = flags | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        rustix::fs::open(at(path), flags, Mode::empty()).map(File::from)
    };
    let mode = |mode: u16| Mode::from_raw_mode(u32::from(mode));
    let nofollow = AtFlags::SYMLINK_NOFOLLOW;
    match op {
        Op::Create { path, mode: bits } => {
            let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::CLOEXEC;
            let file = rustix::fs::open(at(path), flags, mode(*bits))?;
            if !inherits(&at(path)) {
                rustix::fs::fchmod(file, mode(*bits))?;
            }
        }
        Op::Mkdir { path, mode: bits } => {
            rustix::fs::mkdir(at(path), mode(*bits))?;
            if !inherits(&at(path)) {
                rustix::fs::chmod(at(path), mode(*bits))?;
            }
        }
        Op::Mknod {
            path,
            mode: bits,
            node,
        } => {
            let (kind, device) = match *node {
                Node::Socket => (FileType::Socket, 0),
                Node::Char(major, minor) => {
                    (FileType::CharacterDevice, rustix::fs::makedev(major, minor))
                }
                Node::Block(major, minor) => {
                    (FileType::BlockDevice, rustix::fs::makedev(major, minor))
                }
            };
            rustix::fs::mknodat(CWD, at(path), kind, mode(*bits), device)?;
            if !inherits(&at(path)) {
                rustix::fs::chmod(at(path), mode(*bits))?;
            }
        }
        Op::Symlink { path, target } => rustix::fs::symlink(target.as_str(), at(path))?,
        Op::Link { from, to } => {
            rustix::fs::linkat(CWD, at(from), CWD, at(to), AtFlags::empty())?;
        }
        Op::Unlink { path } => rustix::fs::unlink(at(path))?,
        Op::Rmdir { path } => rustix::fs::rmdir(at(path))?,
        Op::Rename { from, to } => {
            rustix::fs::renameat_with(CWD, at(from), CWD, at(to), RenameFlags::empty())?;
        }
        Op::RenameNew { from, to } => {
            rustix::fs::renameat_with(CWD, at(from), CWD, at(to), RenameFlags::NOREPLACE)?;
        }
        Op::Whiteout { from, to } => {
            rustix::fs::renameat_with(CWD, at(from), CWD, at(to), RenameFlags::WHITEOUT)?;
        }
        Op::Exchange { from, to } => {
            rustix::fs::renameat_with(CWD, at(from), CWD, at(to), RenameFlags::EXCHANGE)?;
        }
        Op::Temporary { path, mode: bits } => {
            let place = at(path);
            let dir = place.parent().unwrap_or(root);
            let flags = OFlags::TMPFILE | OFlags::WRONLY | OFlags::CLOEXEC;
            let file = rustix::fs::open(dir, flags, mode(*bits))?;
            if !inherits(&place) {
                rustix::fs::fchmod(&file, mode(*bits))?;
            }
            rustix::fs::linkat(&file, "", CWD, place, AtFlags::EMPTY_PATH)?;
        }
        Op::Write { path, offset, len } => {
            let file = open(path, OFlags::WRONLY)?;
            let written = file.write_at(&tagged(tag, *offset, *len), *offset);
            let errno = |e: std::io::Error| Errno::from_io_error(&e).unwrap_or(Errno::IO);
            return written.map(|n| n as u64).map_err(errno);
        }
        Op::Allocate {
            path,
            offset,
            len,
            keep,
        } => {
            let flags = match keep {
                true => FallocateFlags::KEEP_SIZE,
                false => FallocateFlags::empty(),
            };
            rustix::fs::fallocate(open(path, OFlags::WRONLY)?, flags, *offset, *len)?;
            return Ok(*len);
        }
        Op::Zero {
            path,
            offset,
            len,
            keeps_space,
        } => {
            let flags = match keeps_space {
                true => FallocateFlags::ZERO_RANGE,
                false => FallocateFlags::PUNCH_HOLE,
            };
            let flags = flags | FallocateFlags::KEEP_SIZE;
            rustix::fs::fallocate(open(path, OFlags::WRONLY)?, flags, *offset, *len)?;
        }
        Op::Shift {
            path,
            offset,
            len,
            insert,
        } => {
            let flags = match insert {
                true => FallocateFlags::INSERT_RANGE,
                false => FallocateFlags::COLLAPSE_RANGE,
            };
            rustix::fs::fallocate(open(path, OFlags::WRONLY)?, flags, *offset, *len)?;
        }
        Op::Truncate { path, size } => rustix::fs::ftruncate(open(path, OFlags::WRONLY)?, *size)?,
        Op::Chmod { path, mode: bits } => {
            // The system call of old always follows; symlinks have no mode to set.
            let stat = rustix::fs::statat(CWD, at(path), nofollow)?;
            if FileType::from_raw_mode(stat.st_mode) == FileType::Symlink {
                return Err(Errno::OPNOTSUPP);
            }
            rustix::fs::chmod(at(path), mode(*bits))?;
        }
        Op::Chown { path, uid, gid } => {
            let owner = Some(rustix::fs::Uid::from_raw(*uid));
            let group = Some(rustix::fs::Gid::from_raw(*gid));
            rustix::fs::chownat(CWD, at(path), owner, group, nofollow)?;
        }
        Op::Utimens { path, mtime } => {
            let time = Timespec {
                tv_sec: mtime.sec,
                tv_nsec: mtime.nsec.into(),
            };
            let times = Timestamps {
                last_access: time,
                last_modification: time,
            };
            rustix::fs::utimensat(CWD, at(path), &times, nofollow)?;
        }
        Op::SetXattr { path, name, len } => {
            let value = xattr_value(name, *len);
            rustix::fs::lsetxattr(at(path), name.as_str(), &value, XattrFlags::empty())?;
        }
        Op::RemoveXattr { path, name } => rustix::fs::lremovexattr(at(path), name.as_str())?,
        Op::NoDump { path, on } => {
            let file = open(path, OFlags::RDONLY)?;
            let mut flags = rustix::fs::ioctl_getflags(&file)?;
            flags.set(IFlags::NODUMP, *on);
            rustix::fs::ioctl_setflags(&file, flags)?;
        }
        Op::Inherit { path, on } => match on {
            true => {
                let list = default_acl();
                rustix::fs::lsetxattr(at(path), DEFAULT_ACL, &list, XattrFlags::empty())?;
            }
            false => rustix::fs::lremovexattr(at(path), DEFAULT_ACL)?,
        },
        Op::Fsync { path } => rustix::fs::fsync(open(path, OFlags::RDONLY)?)?,
        Op::Fdatasync { path } => rustix::fs::fdatasync(open(path, OFlags::RDONLY)?)?,
        Op::Syncfs => {
            let root = rustix::fs::open(root, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
            rustix::fs::syncfs(root)?;
        }
    }
    Ok(0)
}

/// Whether what is made at `place` gets its mode from a list that the directory hands down, without
/// the umask.
fn inherits(place: &Path) -> bool {
    let dir = place.parent().unwrap_or(place);
    rustix::fs::lgetxattr(dir, DEFAULT_ACL, &mut [0_u8; 0][..]).is_ok()
}

impl Lane {
    /// Runs `op` on a mounted file system, without crash device.
    ///
    /// # Errors
    ///
    /// As for [`Lane::run`].
    pub fn run_mounted(&mut self, root: &Path, op: Op) -> Result<super::Outcome, String> {
        let prefix = self.path("x");
        let prefix = prefix.strip_suffix('x').unwrap_or("").to_owned();
        self.run(None, op, |op, tag| perform_mounted(root, &prefix, op, tag))
    }
}

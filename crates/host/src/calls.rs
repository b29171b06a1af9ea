//! The calls, each as safe as the descriptor and the name it is given.

use crate::is_pretended;
use rustix::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use rustix::fs::{CWD, FileType, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;
use std::ffi::{CStr, CString};
use std::mem::MaybeUninit;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

type Result<T> = std::result::Result<T, Errno>;

/// What a call is told where there is nothing to say: an owner or group that stays.
const UNCHANGED: u32 = u32::MAX;

fn c_string(bytes: &[u8]) -> Result<CString> {
    CString::new(bytes).map_err(|_| Errno::INVAL)
}

/// Bytes of a name that the stack has room for, with a zero byte.
const SHORT: usize = 256;

/// Calls with a name that ends in a zero byte, which takes no memory if it is short: names are.
fn with_c_string<T>(bytes: &[u8], call: impl FnOnce(&CStr) -> Result<T>) -> Result<T> {
    let mut short = [0; SHORT];
    let Some(room) = short.get_mut(..=bytes.len()) else {
        return call(&c_string(bytes)?);
    };
    if let Some(room) = room.get_mut(..bytes.len()) {
        room.copy_from_slice(bytes);
    }
    call(CStr::from_bytes_with_nul(room).map_err(|_| Errno::INVAL)?)
}

fn last_error() -> Errno {
    let code = std::io::Error::last_os_error().raw_os_error();
    code.map_or(Errno::IO, Errno::from_raw_os_error)
}

/// The outcome of a call that gives 0.
fn done(result: libc::c_int) -> Result<()> {
    match result {
        0 => Ok(()),
        _ => Err(last_error()),
    }
}

/// The outcome of a call that gives a number of bytes.
fn length(result: libc::ssize_t) -> Result<usize> {
    usize::try_from(result).map_err(|_| last_error())
}

/// Opens a path as the process sees it.
///
/// # Errors
/// What the system says; `EINVAL` for a path with a zero byte, here and below.
pub fn open(path: &Path, flags: OFlags, mode: Mode) -> Result<OwnedFd> {
    openat(CWD, path.as_os_str().as_bytes(), flags, mode)
}

/// Opens a name in a directory.
///
/// # Errors
/// What the system says.
pub fn openat(dir: impl AsFd, name: &[u8], flags: OFlags, mode: Mode) -> Result<OwnedFd> {
    let name = c_string(name)?;
    let flags = flags.bits().cast_signed();
    // SAFETY: the name ends in a zero byte and lives until the call is over.
    let fd = unsafe { libc::openat(raw(dir.as_fd()), name.as_ptr(), flags, mode.bits()) };
    match fd {
        -1 => Err(last_error()),
        // SAFETY: the call has just made this descriptor, and nobody else knows of it.
        fd => Ok(unsafe { OwnedFd::from_raw_fd(fd) }),
    }
}

/// Opens a path of several names below a directory, resolved as `resolve` says. Where a pretending
/// program would not see the call, it is refused as by a system that does not know it.
///
/// # Errors
/// What the system says; `ENOSYS` where the call is not to be had.
pub fn openat2(
    dir: impl AsFd,
    path: &[u8],
    flags: OFlags,
    resolve: ResolveFlags,
) -> Result<OwnedFd> {
    if is_pretended() {
        return Err(Errno::NOSYS);
    }
    rustix::fs::openat2(dir, path, flags, Mode::empty(), resolve)
}

/// Makes a directory.
///
/// # Errors
/// What the system says.
pub fn mkdirat(dir: impl AsFd, name: &[u8], mode: Mode) -> Result<()> {
    let name = c_string(name)?;
    // SAFETY: the name ends in a zero byte and lives until the call is over.
    done(unsafe { libc::mkdirat(raw(dir.as_fd()), name.as_ptr(), mode.bits()) })
}

/// Makes a device node, pipe or socket.
///
/// # Errors
/// What the system says.
pub fn mknodat(dir: impl AsFd, name: &[u8], kind: FileType, mode: Mode, number: u64) -> Result<()> {
    let name = c_string(name)?;
    let mode = kind.as_raw_mode() | mode.bits();
    // SAFETY: the name ends in a zero byte and lives until the call is over.
    done(unsafe { libc::mknodat(raw(dir.as_fd()), name.as_ptr(), mode, number) })
}

/// Makes a symbolic link.
///
/// # Errors
/// What the system says.
pub fn symlinkat(target: &[u8], dir: impl AsFd, name: &[u8]) -> Result<()> {
    let (target, name) = (c_string(target)?, c_string(name)?);
    // SAFETY: both end in a zero byte and live until the call is over.
    done(unsafe { libc::symlinkat(target.as_ptr(), raw(dir.as_fd()), name.as_ptr()) })
}

/// Gives a file one more name; a symbolic link is not followed.
///
/// # Errors
/// What the system says.
pub fn linkat(from: impl AsFd, old: &[u8], to: impl AsFd, new: &[u8]) -> Result<()> {
    let (old, new) = (c_string(old)?, c_string(new)?);
    let (from, to) = (raw(from.as_fd()), raw(to.as_fd()));
    // SAFETY: both names end in a zero byte and live until the call is over.
    done(unsafe { libc::linkat(from, old.as_ptr(), to, new.as_ptr(), 0) })
}

/// Takes a name away from what is no directory.
///
/// # Errors
/// What the system says.
pub fn unlinkat(dir: impl AsFd, name: &[u8]) -> Result<()> {
    let name = c_string(name)?;
    // SAFETY: the name ends in a zero byte and lives until the call is over.
    done(unsafe { libc::unlinkat(raw(dir.as_fd()), name.as_ptr(), 0) })
}

/// Gives a file of a directory another name there, in the place of what has that name.
///
/// # Errors
/// What the system says.
pub fn renameat(dir: impl AsFd, old: &[u8], new: &[u8]) -> Result<()> {
    let (old, new) = (c_string(old)?, c_string(new)?);
    let dir = raw(dir.as_fd());
    // SAFETY: both names end in a zero byte and live until the call is over.
    done(unsafe { libc::renameat(dir, old.as_ptr(), dir, new.as_ptr()) })
}

/// Gives a file of one directory a name in another, in the place of what has that name.
///
/// # Errors
/// What the system says.
pub fn rename(from: impl AsFd, old: &[u8], to: impl AsFd, new: &[u8]) -> Result<()> {
    let (old, new) = (c_string(old)?, c_string(new)?);
    let (from, to) = (raw(from.as_fd()), raw(to.as_fd()));
    // SAFETY: both names end in a zero byte and live until the call is over.
    done(unsafe { libc::renameat(from, old.as_ptr(), to, new.as_ptr()) })
}

/// Removes an empty directory.
///
/// # Errors
/// What the system says.
pub fn rmdirat(dir: impl AsFd, name: &[u8]) -> Result<()> {
    let name = c_string(name)?;
    let flags = libc::AT_REMOVEDIR;
    // SAFETY: the name ends in a zero byte and lives until the call is over.
    done(unsafe { libc::unlinkat(raw(dir.as_fd()), name.as_ptr(), flags) })
}

/// Sets the mode of an open file.
///
/// # Errors
/// What the system says.
pub fn fchmod(file: impl AsFd, mode: Mode) -> Result<()> {
    // SAFETY: the call takes a descriptor that is open and a number.
    done(unsafe { libc::fchmod(raw(file.as_fd()), mode.bits()) })
}

/// Sets the mode of a name in a directory; a symbolic link is not followed.
///
/// # Errors
/// What the system says: for a symbolic link that it has no mode.
pub fn chmodat(dir: impl AsFd, name: &[u8], mode: Mode) -> Result<()> {
    let name = c_string(name)?;
    let flags = libc::AT_SYMLINK_NOFOLLOW;
    // SAFETY: the name ends in a zero byte and lives until the call is over.
    done(unsafe { libc::fchmodat(raw(dir.as_fd()), name.as_ptr(), mode.bits(), flags) })
}

/// Gives an open file to an owner and a group; `None` for what stays.
///
/// # Errors
/// What the system says.
pub fn fchown(file: impl AsFd, uid: Option<u32>, gid: Option<u32>) -> Result<()> {
    let (uid, gid) = (uid.unwrap_or(UNCHANGED), gid.unwrap_or(UNCHANGED));
    // SAFETY: the call takes a descriptor that is open and numbers.
    done(unsafe { libc::fchown(raw(file.as_fd()), uid, gid) })
}

/// Gives a name in a directory to an owner and a group; a symbolic link itself, not what it leads
/// to.
///
/// # Errors
/// What the system says.
pub fn chownat(dir: impl AsFd, name: &[u8], uid: Option<u32>, gid: Option<u32>) -> Result<()> {
    let name = c_string(name)?;
    let (uid, gid) = (uid.unwrap_or(UNCHANGED), gid.unwrap_or(UNCHANGED));
    let flags = libc::AT_SYMLINK_NOFOLLOW;
    // SAFETY: the name ends in a zero byte and lives until the call is over.
    done(unsafe { libc::fchownat(raw(dir.as_fd()), name.as_ptr(), uid, gid, flags) })
}

/// Describes a name in a directory: type, mode, owner, numbers, times and, where it is known, the
/// time it was made. A symbolic link is not followed, and nothing is mounted for the question.
///
/// # Errors
/// What the system says.
pub fn statx(dir: impl AsFd, name: &[u8]) -> Result<libc::statx> {
    let flags = libc::AT_SYMLINK_NOFOLLOW | libc::AT_NO_AUTOMOUNT;
    let mask = libc::STATX_BASIC_STATS | libc::STATX_BTIME;
    let mut found = MaybeUninit::<libc::statx>::zeroed();
    let dir = raw(dir.as_fd());
    with_c_string(name, |name| {
        // SAFETY: the name ends in a zero byte, and the record is one that the call may fill; both
        // live until it is over.
        done(unsafe { libc::statx(dir, name.as_ptr(), flags, mask, found.as_mut_ptr()) })
    })?;
    // SAFETY: it consists of integers, for which zeros are values, and the call has filled it.
    Ok(unsafe { found.assume_init() })
}

/// Returns whether something is mounted where a file was looked at, which Linux tells since 5.8.
#[must_use]
pub fn is_mount_point(found: &libc::statx) -> bool {
    const MOUNTED: u64 = libc::STATX_ATTR_MOUNT_ROOT.cast_unsigned() as u64;
    found.stx_attributes & MOUNTED != 0
}

/// Returns whether a name in a directory has no extended attributes that can be listed. A symbolic
/// link is not followed. It is the cheapest way to ask, and not to be had before Linux 6.13.
///
/// # Errors
/// What the system says; `ENOSYS` where the call is not to be had, and where a pretending program
/// would not see it.
pub fn has_no_xattrs(dir: impl AsFd, name: &[u8]) -> Result<bool> {
    static KNOWN: AtomicBool = AtomicBool::new(true);
    let Some(call) = LISTXATTRAT else {
        return Err(Errno::NOSYS);
    };
    if is_pretended() || !KNOWN.load(Ordering::Relaxed) {
        return Err(Errno::NOSYS);
    }
    let dir = raw(dir.as_fd());
    let found = with_c_string(name, |name| {
        let (name, flags) = (name.as_ptr(), libc::AT_SYMLINK_NOFOLLOW);
        let (none, len) = (std::ptr::null_mut::<libc::c_char>(), 0_usize);
        // SAFETY: the name ends in a zero byte and lives until the call is over, which is given no
        // room to write to.
        let found = unsafe { libc::syscall(call, dir, name, flags, none, len) };
        usize::try_from(found).map_err(|_| last_error())
    });
    match found {
        Ok(len) => Ok(len == 0),
        Err(Errno::NOTSUP) => Ok(true),
        // An older kernel, or a filter that does not know the call.
        Err(Errno::NOSYS | Errno::PERM) => {
            KNOWN.store(false, Ordering::Relaxed);
            Err(Errno::NOSYS)
        }
        Err(errno) => Err(errno),
    }
}

/// The number of `listxattrat`, where it is the one that Linux gives new calls everywhere.
const LISTXATTRAT: Option<libc::c_long> = if cfg!(any(
    target_arch = "x86_64",
    target_arch = "aarch64",
    target_arch = "riscv64",
    target_arch = "powerpc64",
    target_arch = "s390x",
)) && cfg!(target_pointer_width = "64")
{
    Some(465)
} else {
    None
};

/// Sets an extended attribute of an open file.
///
/// # Errors
/// What the system says.
pub fn fsetxattr(file: impl AsFd, name: &[u8], value: &[u8]) -> Result<()> {
    let name = c_string(name)?;
    let file = raw(file.as_fd());
    // SAFETY: the name ends in a zero byte, the value is as long as is said; both live until the
    // call is over.
    done(unsafe { libc::fsetxattr(file, name.as_ptr(), value.as_ptr().cast(), value.len(), 0) })
}

/// Sets an extended attribute of a path; a symbolic link at its end is not followed.
///
/// # Errors
/// What the system says.
pub fn lsetxattr(path: &[u8], name: &[u8], value: &[u8]) -> Result<()> {
    let (path, name) = (c_string(path)?, c_string(name)?);
    let (start, len) = (value.as_ptr().cast(), value.len());
    // SAFETY: path and name end in a zero byte, the value is as long as is said; all live until the
    // call is over.
    done(unsafe { libc::lsetxattr(path.as_ptr(), name.as_ptr(), start, len, 0) })
}

/// Takes an extended attribute away from an open file.
///
/// # Errors
/// What the system says.
pub fn fremovexattr(file: impl AsFd, name: &[u8]) -> Result<()> {
    let name = c_string(name)?;
    // SAFETY: the name ends in a zero byte and lives until the call is over.
    done(unsafe { libc::fremovexattr(raw(file.as_fd()), name.as_ptr()) })
}

/// Takes an extended attribute away from a path; a symbolic link at its end is not followed.
///
/// # Errors
/// What the system says.
pub fn lremovexattr(path: &[u8], name: &[u8]) -> Result<()> {
    let (path, name) = (c_string(path)?, c_string(name)?);
    // SAFETY: path and name end in a zero byte and live until the call is over.
    done(unsafe { libc::lremovexattr(path.as_ptr(), name.as_ptr()) })
}

/// Fills a buffer with the names of the extended attributes of a path, each with a zero byte behind
/// it, and gives their length. A symbolic link at its end is not followed.
///
/// # Errors
/// What the system says: `ERANGE` if the buffer is too small.
pub fn llistxattr(path: &[u8], buffer: &mut [u8]) -> Result<usize> {
    let path = c_string(path)?;
    let (start, len) = (buffer.as_mut_ptr().cast(), buffer.len());
    // SAFETY: the path ends in a zero byte, and the buffer may be filled up to the length said.
    length(unsafe { libc::llistxattr(path.as_ptr(), start, len) })
}

/// Fills a buffer with the value of an extended attribute of a path and gives its length. A
/// symbolic link at its end is not followed.
///
/// # Errors
/// What the system says: `ERANGE` if the buffer is too small.
pub fn lgetxattr(path: &[u8], name: &[u8], buffer: &mut [u8]) -> Result<usize> {
    let (path, name) = (c_string(path)?, c_string(name)?);
    let (start, len) = (buffer.as_mut_ptr().cast(), buffer.len());
    // SAFETY: path and name end in a zero byte, and the buffer may be filled up to the length said.
    length(unsafe { libc::lgetxattr(path.as_ptr(), name.as_ptr(), start, len) })
}

/// Returns the user that this process acts for.
#[must_use]
pub fn euid() -> u32 {
    // SAFETY: the call takes nothing and always succeeds.
    unsafe { libc::geteuid() }
}

fn raw(fd: rustix::fd::BorrowedFd<'_>) -> libc::c_int {
    fd.as_raw_fd()
}

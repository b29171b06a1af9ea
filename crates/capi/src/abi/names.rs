//! Files by their names, and extended attributes.
#![allow(unsafe_code)]
#![expect(
    clippy::missing_safety_doc,
    reason = "the header has the contract of each"
)]
#![expect(missing_docs, reason = "the header documents each")]

use super::arguments::{answer, known, no_mode, permissions, time, unknown};
use crate::call::{Failure, counted, done};
use crate::constants::{
    RENAME_EXCHANGE, RENAME_NO_REPLACE, RENAME_WHITEOUT, XATTR_CREATE, XATTR_REPLACE,
};
use crate::pointers::{bytes, name, object, optional, path, put};
use crate::types::{Fs, Stat, Time};
use extant::{DeviceNumber, FileFlags, FileType, Mode, RenameFlags, SetXattr};
use std::ffi::{c_char, c_int, c_void};
use std::os::unix::ffi::OsStrExt;

#[unsafe(no_mangle)]
pub unsafe extern "C" fn extant_stat(fs: *const Fs, file: *const c_char, stat: *mut Stat) -> c_int {
    // SAFETY: as the header asks of callers.
    done(|| unsafe { put(stat, (&object(fs)?.0.metadata(path(file)?)?).into()) })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn extant_lstat(
    fs: *const Fs,
    file: *const c_char,
    stat: *mut Stat,
) -> c_int {
    // SAFETY: as the header asks of callers.
    done(|| unsafe { put(stat, (&object(fs)?.0.symlink_metadata(path(file)?)?).into()) })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn extant_mkdir(fs: *const Fs, dir: *const c_char, mode: u32) -> c_int {
    // SAFETY: as the header asks of callers.
    done(|| unsafe {
        Ok(object(fs)?
            .0
            .create_dir_with(path(dir)?, permissions(mode)?)?)
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn extant_rmdir(fs: *const Fs, dir: *const c_char) -> c_int {
    // SAFETY: as the header asks of callers.
    done(|| unsafe { Ok(object(fs)?.0.remove_dir(path(dir)?)?) })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn extant_unlink(fs: *const Fs, file: *const c_char) -> c_int {
    // SAFETY: as the header asks of callers.
    done(|| unsafe { Ok(object(fs)?.0.remove_file(path(file)?)?) })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn extant_rename(
    fs: *const Fs,
    from: *const c_char,
    to: *const c_char,
    flags: u32,
) -> c_int {
    // SAFETY: as the header asks of callers.
    let (fs, from, to) = unsafe { (object(fs), path(from), path(to)) };
    done(|| {
        let (fs, from, to) = (&fs?.0, from?, to?);
        let all = RENAME_NO_REPLACE | RENAME_EXCHANGE | RENAME_WHITEOUT;
        known("the flags of a rename", flags, all)?;
        match flags {
            0 => fs.rename(from, to)?,
            RENAME_EXCHANGE => fs.exchange(from, to)?,
            _ if flags & RENAME_EXCHANGE != 0 => {
                let message = "the flags of a rename: EXTANT_RENAME_EXCHANGE goes with no other";
                return Err(Failure::invalid(message));
            }
            _ => {
                let flags = RenameFlags {
                    no_replace: flags & RENAME_NO_REPLACE != 0,
                    whiteout: flags & RENAME_WHITEOUT != 0,
                };
                fs.rename_with(from, to, flags)?;
            }
        }
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn extant_link(
    fs: *const Fs,
    file: *const c_char,
    link: *const c_char,
) -> c_int {
    // SAFETY: as the header asks of callers.
    done(|| unsafe { Ok(object(fs)?.0.hard_link(path(file)?, path(link)?)?) })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn extant_symlink(
    fs: *const Fs,
    target: *const c_char,
    link: *const c_char,
) -> c_int {
    // SAFETY: as the header asks of callers.
    done(|| unsafe { Ok(object(fs)?.0.symlink(path(target)?, path(link)?)?) })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn extant_readlink(
    fs: *const Fs,
    link: *const c_char,
    target: *mut c_void,
    size: usize,
) -> i64 {
    // SAFETY: as the header asks of callers.
    counted(|| unsafe {
        let found = object(fs)?.0.read_link(path(link)?)?;
        answer(found.as_os_str().as_bytes(), target, size)
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn extant_mknod(
    fs: *const Fs,
    file: *const c_char,
    mode: u32,
    major: u32,
    minor: u32,
) -> c_int {
    // SAFETY: as the header asks of callers.
    let (fs, file) = unsafe { (object(fs), path(file)) };
    done(|| {
        // Without a type it is a regular file, as for the system call.
        let bits = u16::try_from(mode).map_err(|_| no_mode(mode))?;
        let file_type = match bits & 0o170_000 {
            0 => FileType::Regular,
            _ => Mode::from_bits(bits)
                .file_type()
                .ok_or_else(|| no_mode(mode))?,
        };
        let device = DeviceNumber { major, minor };
        Ok(fs?
            .0
            .create_special(file?, file_type, device, bits & 0o7777)?)
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn extant_chmod(fs: *const Fs, file: *const c_char, mode: u32) -> c_int {
    // SAFETY: as the header asks of callers.
    done(|| unsafe {
        Ok(object(fs)?
            .0
            .set_permissions(path(file)?, permissions(mode)?)?)
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn extant_lchown(
    fs: *const Fs,
    file: *const c_char,
    uid: u32,
    gid: u32,
) -> c_int {
    let id = |id: u32| (id != u32::MAX).then_some(id);
    // SAFETY: as the header asks of callers.
    done(|| unsafe { Ok(object(fs)?.0.set_owner(path(file)?, id(uid), id(gid))?) })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn extant_lutimens(
    fs: *const Fs,
    file: *const c_char,
    times: *const Time,
) -> c_int {
    // SAFETY: as the header asks of callers.
    let (fs, file, times) = unsafe { (object(fs), path(file), optional(times, 2)) };
    done(|| {
        let Some([accessed, modified]) = times else {
            return Err(Failure::null("two times"));
        };
        Ok(fs?.0.set_times(file?, time(accessed)?, time(modified)?)?)
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn extant_truncate(fs: *const Fs, file: *const c_char, size: u64) -> c_int {
    // SAFETY: as the header asks of callers.
    done(|| unsafe { Ok(object(fs)?.0.set_len(path(file)?, size)?) })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn extant_set_project(
    fs: *const Fs,
    file: *const c_char,
    project: u32,
) -> c_int {
    // SAFETY: as the header asks of callers.
    done(|| unsafe { Ok(object(fs)?.0.set_project(path(file)?, project)?) })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn extant_set_flags(
    fs: *const Fs,
    file: *const c_char,
    set: u32,
    clear: u32,
) -> c_int {
    let flags = FileFlags::from_bits_retain;
    // SAFETY: as the header asks of callers.
    done(|| unsafe {
        Ok(object(fs)?
            .0
            .set_flags(path(file)?, flags(set), flags(clear))?)
    })
}

// Extended attributes.

#[unsafe(no_mangle)]
pub unsafe extern "C" fn extant_lgetxattr(
    fs: *const Fs,
    file: *const c_char,
    attribute: *const c_char,
    value: *mut c_void,
    size: usize,
) -> i64 {
    // SAFETY: as the header asks of callers.
    counted(|| unsafe {
        let found = object(fs)?.0.get_xattr(path(file)?, name(attribute)?)?;
        answer(&found.ok_or_else(Failure::no_attribute)?, value, size)
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn extant_lsetxattr(
    fs: *const Fs,
    file: *const c_char,
    attribute: *const c_char,
    value: *const c_void,
    size: usize,
    flags: u32,
) -> c_int {
    // SAFETY: as the header asks of callers.
    done(|| unsafe {
        let condition = match flags {
            0 => SetXattr::Any,
            XATTR_CREATE => SetXattr::Create,
            XATTR_REPLACE => SetXattr::Replace,
            _ => return Err(unknown("the flags of an attribute", flags)),
        };
        let (file, attribute, value) = (path(file)?, name(attribute)?, bytes(value, size)?);
        Ok(object(fs)?
            .0
            .set_xattr_if(file, attribute, value, condition)?)
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn extant_lremovexattr(
    fs: *const Fs,
    file: *const c_char,
    attribute: *const c_char,
) -> c_int {
    // SAFETY: as the header asks of callers.
    done(|| unsafe { Ok(object(fs)?.0.remove_xattr(path(file)?, name(attribute)?)?) })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn extant_llistxattr(
    fs: *const Fs,
    file: *const c_char,
    names: *mut c_void,
    size: usize,
) -> i64 {
    // SAFETY: as the header asks of callers.
    counted(|| unsafe {
        let mut all = Vec::new();
        for attribute in object(fs)?.0.list_xattrs(path(file)?)? {
            all.extend_from_slice(attribute.as_bytes());
            all.push(0);
        }
        answer(&all, names, size)
    })
}

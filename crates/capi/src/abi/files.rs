//! Open files and directories, and walks.
#![allow(unsafe_code)]
#![expect(
    clippy::missing_safety_doc,
    reason = "the header has the contract of each"
)]
#![expect(missing_docs, reason = "the header documents each")]

use super::arguments::{known, permissions, unknown};
use crate::call::{Failure, counted, done};
use crate::constants::{
    ALLOCATE_COLLAPSE, ALLOCATE_INSERT, ALLOCATE_KEEP_SIZE, ALLOCATE_PUNCH_HOLE, ALLOCATE_ZERO,
    O_APPEND, O_CREATE, O_DIRECT, O_EXCLUSIVE, O_READ, O_TRUNCATE, O_WRITE,
};
use crate::pointers::{self, bytes, bytes_mut, give, object, object_mut, put, put_some, taken};
use crate::types::{Dir, Entry, Extent, File, Fs, Glob, Stat, Walk, WalkEntry};
use extant::OpenOptions;
use std::ffi::{c_char, c_int, c_void};

#[unsafe(no_mangle)]
pub unsafe extern "C" fn extant_file_open(
    fs: *const Fs,
    path: *const c_char,
    flags: u32,
    mode: u32,
    file: *mut *mut File,
) -> c_int {
    // SAFETY: as the header asks of callers.
    done(|| unsafe {
        give(file, || {
            let (fs, name) = (object(fs)?, pointers::path(path)?);
            let all = O_READ | O_WRITE | O_APPEND | O_CREATE | O_EXCLUSIVE | O_TRUNCATE | O_DIRECT;
            known("the flags of a file", flags, all)?;
            let has = |bit| flags & bit != 0;
            let mut options = OpenOptions::new();
            if has(O_CREATE) {
                options.mode(permissions(mode)?);
            }
            let opened = options
                .read(has(O_READ))
                .write(has(O_WRITE))
                .append(has(O_APPEND))
                .create(has(O_CREATE))
                .create_new(has(O_CREATE) && has(O_EXCLUSIVE))
                .truncate(has(O_TRUNCATE))
                .direct(has(O_DIRECT))
                .open(&fs.0, name)?;
            Ok(File(opened))
        })
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn extant_file_close(file: *mut File) {
    done(|| {
        // SAFETY: as the header asks of callers.
        drop(unsafe { taken(file) });
        Ok(())
    });
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn extant_file_read(
    file: *const File,
    buffer: *mut c_void,
    size: usize,
    offset: u64,
) -> i64 {
    // SAFETY: as the header asks of callers.
    counted(|| unsafe {
        let file = &object(file)?.0;
        // Bytes are cleared before they are read into: not those that the file does not have.
        let left = file.metadata().len().saturating_sub(offset);
        let size = size.min(usize::try_from(left).unwrap_or(usize::MAX));
        Ok(file.read_at(bytes_mut(buffer, size)?, offset)? as u64)
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn extant_file_write(
    file: *const File,
    buffer: *const c_void,
    size: usize,
    offset: u64,
) -> i64 {
    // SAFETY: as the header asks of callers.
    counted(|| unsafe { Ok(object(file)?.0.write_at(bytes(buffer, size)?, offset)? as u64) })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn extant_file_append(
    file: *const File,
    buffer: *const c_void,
    size: usize,
    offset: *mut u64,
) -> i64 {
    // SAFETY: as the header asks of callers.
    counted(|| unsafe {
        let (at, written) = object(file)?.0.append(bytes(buffer, size)?)?;
        if !offset.is_null() {
            put(offset, at)?;
        }
        Ok(written as u64)
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn extant_file_truncate(file: *const File, size: u64) -> c_int {
    // SAFETY: as the header asks of callers.
    done(|| Ok(unsafe { object(file)? }.0.set_len(size)?))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn extant_file_allocate(
    file: *const File,
    mode: u32,
    offset: u64,
    length: u64,
) -> c_int {
    const PUNCH: u32 = ALLOCATE_PUNCH_HOLE | ALLOCATE_KEEP_SIZE;
    const ZERO_KEEP: u32 = ALLOCATE_ZERO | ALLOCATE_KEEP_SIZE;
    // SAFETY: as the header asks of callers.
    let file = unsafe { object(file) };
    done(|| {
        let file = &file?.0;
        match mode {
            0 => file.allocate(offset, length)?,
            ALLOCATE_KEEP_SIZE => file.allocate_keep_size(offset, length)?,
            PUNCH => file.punch_hole(offset, length)?,
            ALLOCATE_ZERO => file.zero_range(offset, length)?,
            ZERO_KEEP => file.zero_range_keep_size(offset, length)?,
            ALLOCATE_COLLAPSE => file.collapse_range(offset, length)?,
            ALLOCATE_INSERT => file.insert_range(offset, length)?,
            _ => return Err(unknown("the mode of an allocation", mode)),
        }
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn extant_file_copy_range(
    from: *const File,
    from_offset: u64,
    to: *const File,
    to_offset: u64,
    length: u64,
) -> i64 {
    // SAFETY: as the header asks of callers.
    let (from, to) = unsafe { (object(from), object(to)) };
    counted(|| Ok(from?.0.copy_range(from_offset, &to?.0, to_offset, length)?))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn extant_file_seek_data(file: *const File, offset: u64) -> i64 {
    // SAFETY: as the header asks of callers.
    counted(|| unsafe {
        object(file)?
            .0
            .seek_data(offset)?
            .ok_or_else(Failure::past_end)
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn extant_file_seek_hole(file: *const File, offset: u64) -> i64 {
    // SAFETY: as the header asks of callers.
    counted(|| unsafe {
        object(file)?
            .0
            .seek_hole(offset)?
            .ok_or_else(Failure::past_end)
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn extant_file_sync(file: *const File) -> c_int {
    // SAFETY: as the header asks of callers.
    done(|| Ok(unsafe { object(file)? }.0.sync_all()?))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn extant_file_sync_data(file: *const File) -> c_int {
    // SAFETY: as the header asks of callers.
    done(|| Ok(unsafe { object(file)? }.0.sync_data()?))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn extant_file_stat(file: *const File, stat: *mut Stat) -> c_int {
    // SAFETY: as the header asks of callers.
    done(|| unsafe { put(stat, (&object(file)?.0.metadata()).into()) })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn extant_file_extents(
    file: *const File,
    extents: *mut Extent,
    count: usize,
) -> i64 {
    // SAFETY: as the header asks of callers.
    counted(|| unsafe {
        let found = object(file)?.0.extents()?;
        put_some(extents, count, found.iter().map(Extent::from))
    })
}

// Directories.

#[unsafe(no_mangle)]
pub unsafe extern "C" fn extant_dir_open(
    fs: *const Fs,
    path: *const c_char,
    dir: *mut *mut Dir,
) -> c_int {
    // SAFETY: as the header asks of callers.
    done(|| unsafe {
        give(dir, || {
            Ok(Dir(object(fs)?.0.read_dir(pointers::path(path)?)?))
        })
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn extant_dir_next(dir: *mut Dir, entry: *mut Entry) -> c_int {
    // SAFETY: as the header asks of callers.
    let (dir, is_null) = unsafe { (object_mut(dir), entry.is_null()) };
    let next = counted(|| {
        if is_null {
            return Err(Failure::null("a place for the result"));
        }
        match dir?.0.next() {
            // SAFETY: as the header asks of callers.
            Some(found) => unsafe { put(entry, (&found?).into()).map(|()| 1) },
            None => Ok(0),
        }
    });
    // 1, 0 or an error number.
    next as c_int
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn extant_dir_close(dir: *mut Dir) {
    done(|| {
        // SAFETY: as the header asks of callers.
        drop(unsafe { taken(dir) });
        Ok(())
    });
}

// Walks.

#[unsafe(no_mangle)]
pub unsafe extern "C" fn extant_walk_open(
    fs: *const Fs,
    path: *const c_char,
    walk: *mut *mut Walk,
) -> c_int {
    // SAFETY: as the header asks of callers.
    done(|| unsafe {
        give(walk, || {
            Ok(Walk::new(object(fs)?.0.walk(pointers::path(path)?)?))
        })
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn extant_walk_next(walk: *mut Walk, entry: *mut *const WalkEntry) -> c_int {
    // SAFETY: as the header asks of callers.
    let (walk, is_null) = unsafe { (object_mut(walk), entry.is_null()) };
    let next = counted(|| {
        if is_null {
            return Err(Failure::null("a place for the result"));
        }
        match walk?.next()? {
            // SAFETY: as the header asks of callers.
            Some(found) => unsafe { put(entry, std::ptr::from_ref(found)).map(|()| 1) },
            None => Ok(0),
        }
    });
    // 1, 0 or an error number.
    next as c_int
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn extant_walk_skip(walk: *mut Walk) -> c_int {
    done(|| {
        // SAFETY: as the header asks of callers.
        unsafe { object_mut(walk)? }.skip();
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn extant_walk_close(walk: *mut Walk) {
    done(|| {
        // SAFETY: as the header asks of callers.
        drop(unsafe { taken(walk) });
        Ok(())
    });
}

// Patterns.

#[unsafe(no_mangle)]
pub unsafe extern "C" fn extant_glob_open(
    fs: *const Fs,
    pattern: *const c_char,
    glob: *mut *mut Glob,
) -> c_int {
    // SAFETY: as the header asks of callers.
    done(|| unsafe {
        give(glob, || {
            Ok(Glob::new(object(fs)?.0.glob(pointers::path(pattern)?)?))
        })
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn extant_glob_next(glob: *mut Glob, path: *mut *const c_char) -> c_int {
    // SAFETY: as the header asks of callers.
    let (glob, is_null) = unsafe { (object_mut(glob), path.is_null()) };
    let next = counted(|| {
        if is_null {
            return Err(Failure::null("a place for the result"));
        }
        match glob?.next()? {
            // SAFETY: as the header asks of callers.
            Some(found) => unsafe { put(path, found).map(|()| 1) },
            None => Ok(0),
        }
    });
    // 1, 0 or an error number.
    next as c_int
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn extant_glob_close(glob: *mut Glob) {
    done(|| {
        // SAFETY: as the header asks of callers.
        drop(unsafe { taken(glob) });
        Ok(())
    });
}

//! The functions that C calls. `include/extant.h` says what each does.
#![allow(unsafe_code)]
#![expect(
    clippy::missing_safety_doc,
    reason = "the header has the contract of each"
)]
#![expect(missing_docs, reason = "the header documents each")]

use crate::call::{Failure, counted, done, message};
use crate::pointers::{
    bytes, bytes_mut, give, name, object, object_mut, optional, options, path, put, taken, word,
};
use crate::types::{Dir, Entry, File, Fs, Mended, Options, Space, Stat, Time};
use extant::image::{How, ImageFormat, ImageLocation, PartitionName};
use extant::{
    DeviceNumber, FileFlags, FileType, Filesystem, Mode, MountOptions, OpenOptions, RenameFlags,
    SetXattr, Timestamp, Transaction,
};
use std::ffi::{c_char, c_int, c_void};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

const WRITABLE: u32 = 1;
const TRANSACTION: u32 = 2;
const MEND: u32 = 4;

const O_READ: u32 = 1;
const O_WRITE: u32 = 2;
const O_APPEND: u32 = 4;
const O_CREATE: u32 = 8;
const O_EXCLUSIVE: u32 = 16;
const O_TRUNCATE: u32 = 32;
const O_DIRECT: u32 = 64;

const RENAME_NO_REPLACE: u32 = 1;
const RENAME_EXCHANGE: u32 = 2;
const RENAME_WHITEOUT: u32 = 4;

const XATTR_CREATE: u32 = 1;
const XATTR_REPLACE: u32 = 2;

const ALLOCATE_KEEP_SIZE: u32 = 1;
const ALLOCATE_PUNCH_HOLE: u32 = 2;
const ALLOCATE_COLLAPSE: u32 = 8;
const ALLOCATE_ZERO: u32 = 16;
const ALLOCATE_INSERT: u32 = 32;

/// A time that is left as it is.
const OMIT: u32 = 0xffff_ffff;

// The whole library.

#[unsafe(no_mangle)]
pub extern "C" fn extant_version() -> *const c_char {
    concat!(env!("CARGO_PKG_VERSION"), "\0").as_ptr().cast()
}

#[unsafe(no_mangle)]
pub extern "C" fn extant_message() -> *const c_char {
    message()
}

// File systems.

#[unsafe(no_mangle)]
pub unsafe extern "C" fn extant_open(
    image: *const c_char,
    options: *const Options,
    fs: *mut *mut Fs,
) -> c_int {
    // SAFETY: as the header asks of callers.
    done(|| unsafe {
        give(fs, || {
            let options = self::options(options)?;
            open(path(image)?, options, word(options.format)?)
        })
    })
}

fn open(image: &Path, options: Options, format: Option<&str>) -> Result<Fs, Failure> {
    known(
        "extant_options.flags",
        options.flags,
        WRITABLE | TRANSACTION | MEND,
    )?;
    let mends = options.flags & MEND != 0;
    if mends && options.flags != MEND {
        let text = "EXTANT_MEND goes with no other flag: what it opens is only read";
        return Err(Failure::invalid(text));
    }
    let as_a_whole = options.flags & TRANSACTION != 0;
    let location = ImageLocation::parse(image)?;
    let (how, mut mount) = if as_a_whole || options.flags & WRITABLE != 0 {
        (How::writing(), MountOptions::read_write())
    } else {
        (How::reading(), MountOptions::read_only())
    };
    let partition = (options.partition != 0).then_some(options.partition);
    let format: Option<ImageFormat> = match format {
        Some(word) => Some(word.parse()?),
        None => None,
    };
    let how = how
        .format(format)
        .offset((options.offset != 0).then_some(options.offset))
        .partition(partition.map(PartitionName::Number));
    if options.cache_bytes != 0 {
        mount.cache_bytes = Some(usize::try_from(options.cache_bytes).unwrap_or(usize::MAX));
    }
    if as_a_whole {
        let transaction = Transaction::open_location(&location, &how, mount)?;
        let fs = transaction.filesystem().clone();
        return Ok(Fs(fs, Some(transaction), Mended::default()));
    }
    if mends {
        return mended(&location, &how, mount);
    }
    let fs = Filesystem::open_location(&location, &how, mount)?;
    Ok(Fs(fs, None, Mended::default()))
}

#[cfg(feature = "mend")]
fn mended(location: &ImageLocation, how: &How, options: MountOptions) -> Result<Fs, Failure> {
    let (fs, mended) = Filesystem::open_location_mended(location, how, options)?;
    Ok(Fs(fs, None, (&mended).into()))
}

#[cfg(not(feature = "mend"))]
fn mended(_: &ImageLocation, _: &How, _: MountOptions) -> Result<Fs, Failure> {
    let text = "EXTANT_MEND: this library was built without the feature mend";
    Err(Failure::unsupported(text))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn extant_close(fs: *mut Fs) -> c_int {
    // SAFETY: as the header asks of callers.
    done(|| match unsafe { taken(fs) }.map(|fs| *fs) {
        // What is not committed is forgotten.
        Some(Fs(_, Some(_), _)) | None => Ok(()),
        Some(fs) => Ok(fs.0.close()?),
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn extant_commit(fs: *mut Fs) -> c_int {
    // SAFETY: as the header asks of callers.
    done(|| match unsafe { taken(fs) }.map(|fs| *fs) {
        Some(Fs(fs, Some(transaction), _)) => {
            drop(fs);
            transaction.commit()?;
            Ok(())
        }
        Some(Fs(fs, None, _)) => Ok(fs.close()?),
        None => Ok(()),
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn extant_sync(fs: *const Fs) -> c_int {
    // SAFETY: as the header asks of callers.
    done(|| Ok(unsafe { object(fs)? }.0.sync()?))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn extant_statfs(fs: *const Fs, space: *mut Space) -> c_int {
    // SAFETY: as the header asks of callers.
    done(|| unsafe { put(space, object(fs)?.0.statfs()?.into()) })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn extant_mended(fs: *const Fs, mended: *mut Mended) -> c_int {
    // SAFETY: as the header asks of callers.
    done(|| unsafe { put(mended, object(fs)?.2) })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn extant_is_in_doubt(fs: *const Fs, file: *const c_char) -> c_int {
    let found = counted(|| {
        // SAFETY: as the header asks of callers.
        let (fs, path) = unsafe { (&object(fs)?.0, path(file)?) };
        Ok(is_in_doubt(fs, fs.metadata(path)?.ino()).into())
    });
    // 1, 0 or an error number.
    found as c_int
}

#[cfg(feature = "mend")]
fn is_in_doubt(fs: &Filesystem, ino: u32) -> bool {
    fs.is_in_doubt(ino)
}

#[cfg(not(feature = "mend"))]
fn is_in_doubt(_: &Filesystem, _: u32) -> bool {
    false
}

// Names.

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
        match flags {
            0 => fs.rename(from, to)?,
            RENAME_EXCHANGE => fs.exchange(from, to)?,
            _ => {
                known(
                    "the flags of a rename",
                    flags,
                    RENAME_NO_REPLACE | RENAME_WHITEOUT,
                )?;
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

// Open files.

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
            let (fs, name) = (object(fs)?, self::path(path)?);
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
            Ok(Dir(object(fs)?.0.read_dir(self::path(path)?)?))
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

// Arguments and results.

/// Copies `found` to where the caller wants it, unless he only asks for its length. Returns that.
///
/// # Safety
/// As for [`bytes_mut`].
unsafe fn answer(found: &[u8], into: *mut c_void, size: usize) -> Result<u64, Failure> {
    if size != 0 {
        if found.len() > size {
            return Err(Failure::too_small(found.len()));
        }
        // SAFETY: as the caller promises.
        unsafe { bytes_mut(into, found.len())? }.copy_from_slice(found);
    }
    Ok(found.len() as u64)
}

/// The permissions of a mode, which may have a type as well, as `st_mode` has.
fn permissions(mode: u32) -> Result<u16, Failure> {
    let bits = u16::try_from(mode).map_err(|_| no_mode(mode))?;
    Ok(Mode::from_bits(bits).permissions())
}

fn no_mode(mode: u32) -> Failure {
    Failure::invalid(format!("{mode:#o} is no mode that this call takes"))
}

fn time(time: &Time) -> Result<Option<Timestamp>, Failure> {
    match time.nanoseconds {
        OMIT => Ok(None),
        nanos @ 0..1_000_000_000 => Ok(Some(Timestamp {
            secs: time.seconds,
            nanos,
        })),
        _ => Err(Failure::invalid("nanoseconds are below a thousand million")),
    }
}

/// Refuses bits beyond `all`.
fn known(what: &str, flags: u32, all: u32) -> Result<(), Failure> {
    match flags & !all {
        0 => Ok(()),
        beyond => Err(unknown(what, beyond)),
    }
}

fn unknown(what: &str, flags: u32) -> Failure {
    Failure::invalid(format!("{what}: {flags:#x} is not known"))
}

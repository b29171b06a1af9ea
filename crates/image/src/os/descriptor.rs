//! Files that are open already, by their number: `fd:3`.
//!
//! The open file is shared with the process that opened it. So its lock is shared too: one that is
//! there is left as it is, also at the end. The position of the file afterwards is anything.
//!
//! Only `/proc` tells of such a lock. Without it no lock is taken, since that could turn the
//! opener's into another, and what needs one is refused.

#![expect(
    unsafe_code,
    reason = "descriptors that a process was started with are known by number only"
)]

use crate::How;
use extant_blockdev::{DeviceError, DeviceResult, FileDevice};
use rustix::fs::{OFlags, fcntl_getfl};
use rustix::io::{FdFlags, fcntl_getfd};
use std::fs::File;
use std::io;
use std::os::fd::{BorrowedFd, RawFd};
use std::os::unix::fs::FileTypeExt;
use std::path::Path;

/// What the system tells of the open files of this process.
const ABOUT_FILES: &str = "/proc/self/fdinfo";

/// How an open file is locked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Lock {
    Shared,
    Exclusive,
}

/// Opens the device that the descriptor is.
pub(crate) fn open(number: RawFd, how: &How) -> DeviceResult<FileDevice> {
    let place = format!("fd:{number}");
    let refused = |reason: String| DeviceError::Refused {
        place: place.clone(),
        reason,
    };
    // What commands print would go into the image.
    if how.is_writable() && matches!(number, 1 | 2) {
        return Err(refused(
            "what commands print goes there, and would end up in the image: use another number, \
             in a shell with 3<>FILE and fd:3"
                .to_owned(),
        ));
    }
    let system = |source| DeviceError::Open {
        op: "open",
        path: place.clone().into(),
        source,
    };
    let file = match shared(number, how) {
        Ok(Some(file)) => file,
        Ok(None) => {
            return Err(refused(format!(
                "no file is open there: have it opened, in a shell with {number}<>FILE"
            )));
        }
        Err(e) => return Err(system(e)),
    };
    let flags = fcntl_getfl(&file).map_err(|e| system(e.into()))?;
    let access = flags & OFlags::ACCMODE;
    if flags.contains(OFlags::PATH) || access == OFlags::WRONLY {
        return Err(refused(format!(
            "it is not open for reading: open it for both, in a shell with {number}<>FILE"
        )));
    }
    let found = file.metadata().map_err(system)?;
    if how.is_writable() {
        if access != OFlags::RDWR {
            return Err(refused(format!(
                "it is open for reading only: open it for both, in a shell with {number}<>FILE"
            )));
        }
        if flags.contains(OFlags::APPEND) {
            return Err(refused(format!(
                "it is open for appending, so that nothing can be written in its place: open it \
                 without that, in a shell with {number}<>FILE"
            )));
        }
        if found.file_type().is_block_device() {
            return Err(refused(
                "it is a block device, of which a descriptor does not say whether it is mounted: \
                 name it by its path to change it"
                    .to_owned(),
            ));
        }
    }
    let options = how.file_options();
    let needs_lock = how.is_writable() || how.is_guarded();
    let lock = lock_of(number, Path::new(ABOUT_FILES));
    let options = match (lock, how.is_writable()) {
        (Ok(None), _) => options,
        (Err(_), _) if !needs_lock => options,
        (Err(e), _) => {
            return Err(refused(format!(
                "whether it is locked (flock) by the program that opened it is not known, since \
                 {ABOUT_FILES} cannot be read ({e}): name the file by its path, or have /proc there"
            )));
        }
        (Ok(Some(Lock::Exclusive)), _) | (Ok(Some(Lock::Shared)), false) => {
            options.locked_by_caller(true)
        }
        (Ok(Some(Lock::Shared)), true) => {
            return Err(refused(
                "it is locked for reading (flock) by the program that opened it: lock it for \
                 writing there, or not at all"
                    .to_owned(),
            ));
        }
    };
    options.adopt(file, place)
}

/// The open file, once more. One that this process opened by itself is what is meant only where
/// that is said; `None` if it is not, or nothing is open.
fn shared(number: RawFd, how: &How) -> io::Result<Option<File>> {
    if number < 0 {
        return Ok(None);
    }
    // SAFETY: the number is not -1, and nothing that is asked of it closes it or touches memory. A
    // number that is not open is an error of the first call.
    let borrowed = unsafe { BorrowedFd::borrow_raw(number) };
    match fcntl_getfd(borrowed) {
        Err(_) if !how.takes_own() => Ok(None),
        Ok(flags) if flags.contains(FdFlags::CLOEXEC) && !how.takes_own() => Ok(None),
        Err(e) => Err(e.into()),
        Ok(_) => borrowed.try_clone_to_owned().map(File::from).map(Some),
    }
}

/// Whether the descriptor is a regular file that is open.
pub(crate) fn is_regular_file(number: RawFd, how: &How) -> bool {
    shared(number, how)
        .ok()
        .flatten()
        .and_then(|file| file.metadata().ok())
        .is_some_and(|found| found.is_file())
}

/// The lock (`flock`) that the open file holds, as the system tells in the folder `about`.
fn lock_of(number: RawFd, about: &Path) -> std::io::Result<Option<Lock>> {
    let about = std::fs::read_to_string(about.join(number.to_string()))?;
    let locks = about.lines().filter_map(|line| line.strip_prefix("lock:"));
    let mut flocks = locks.filter(|lock| lock.split_whitespace().any(|word| word == "FLOCK"));
    Ok(flocks.next().map(|lock| {
        if lock.split_whitespace().any(|word| word == "WRITE") {
            Lock::Exclusive
        } else {
            Lock::Shared
        }
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::{FlockOperation, flock};
    use std::os::fd::AsRawFd;

    #[test]
    fn what_the_system_does_not_tell_is_not_taken_for_no_lock() {
        let file = tempfile::tempfile().expect("a file");
        let told = || lock_of(file.as_raw_fd(), Path::new(ABOUT_FILES)).expect("it tells");
        assert_eq!(told(), None);
        flock(&file, FlockOperation::LockShared).expect("a lock");
        assert_eq!(told(), Some(Lock::Shared));
        flock(&file, FlockOperation::LockExclusive).expect("a lock");
        assert_eq!(told(), Some(Lock::Exclusive));
        let empty = tempfile::tempdir().expect("a directory");
        lock_of(file.as_raw_fd(), empty.path()).expect_err("nothing is told");
    }
}

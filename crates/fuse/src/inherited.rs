//! Descriptors that this process was started with and knows nothing of.

use rustix::io::{FdFlags, fcntl_getfd, fcntl_setfd};
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd, RawFd};

/// First one behind standard input, output and error.
const FIRST: RawFd = 3;

/// Keeps what is open here from the programs that are started from now on, standard input, output
/// and error excepted, and the descriptors of the numbers `but`: what the process that started this
/// one left open (a lock, a pipe, a connection) is nothing that a mount should keep open for as
/// long as it lasts, nor anything for the process that reads the image.
///
/// Call it before there are threads that open anything.
///
/// # Errors
/// When the system does not say what is open (`/proc` is missing).
pub fn keep_descriptors(but: &[RawFd]) -> io::Result<()> {
    // First all of them: reading the directory takes one, which is gone then.
    let open: Vec<RawFd> = std::fs::read_dir("/proc/self/fd")?
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .filter(|number| *number >= FIRST && !but.contains(number))
        .collect();
    for number in open {
        // SAFETY: setting this flag touches no memory and closes nothing; the number is not -1. A
        // number that is open no more is an error.
        let descriptor = unsafe { BorrowedFd::borrow_raw(number) };
        let _ = fcntl_setfd(descriptor, FdFlags::CLOEXEC);
    }
    Ok(())
}

/// Opens what this process was started with under a number once more.
///
/// # Errors
/// `EBADF` when nothing is open there.
pub fn inherited_descriptor(number: RawFd) -> io::Result<OwnedFd> {
    if number < 0 {
        return Err(rustix::io::Errno::BADF.into());
    }
    // SAFETY: the number is not -1, and nothing that is asked of it closes it or touches memory. A
    // number that is not open is an error of the first call.
    let borrowed = unsafe { BorrowedFd::borrow_raw(number) };
    fcntl_getfd(borrowed)?;
    borrowed.try_clone_to_owned()
}

//! System calls that no safe function makes, to see them refused.

use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags, mmap};
use std::fs::File;
use std::ptr::{copy_nonoverlapping, null_mut};

/// Calls the system. Only for calls to which an address of 0, or of nothing at all, is an error and no more.
pub(crate) fn call(number: libc::c_long, arguments: [u64; 5]) -> Result<u64, Errno> {
    let [a, b, c, d, e] = arguments;
    // SAFETY: the arguments are numbers, null, or no address of this process; what the kernel would do with them if it
    // did not refuse the call is to report an error, or touches no memory.
    let result = unsafe { libc::syscall(number, a, b, c, d, e, 0_u64) };
    match u64::try_from(result) {
        Ok(result) => Ok(result),
        Err(_) => Err(Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO)),
    }
}

/// Writes `data` from the beginning of a file that is as long, through memory that it is mapped to until this process ends. Not
/// for a process that answers for the file itself: the kernel may hold its memory while it waits for an answer.
pub(crate) fn write_mapped(file: &File, data: &[u8]) {
    file.set_len(data.len() as u64).unwrap();
    let (len, how) = (data.len(), ProtFlags::READ | ProtFlags::WRITE);
    // SAFETY: the memory is new, and of a file that nobody makes shorter; nothing else here knows of it, and it is as long as
    // what is copied to it.
    unsafe {
        let memory = mmap(null_mut(), len, how, MapFlags::SHARED, file, 0).unwrap();
        copy_nonoverlapping(data.as_ptr(), memory.cast(), len);
    }
}

/// Lets this thread use files as somebody else does, whoever it is otherwise.
pub(crate) fn act_for(user: u32) {
    // SAFETY: the call changes an attribute of this thread and touches no memory.
    unsafe {
        libc::setfsuid(user);
        // It says what was before; so this says what is.
        assert_eq!(libc::setfsuid(user), user.cast_signed());
    }
}

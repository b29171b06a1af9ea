//! System calls that no safe function makes, to see them refused.

use rustix::io::Errno;

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

/// Lets this thread use files as somebody else does, whoever it is otherwise.
pub(crate) fn act_for(user: u32) {
    // SAFETY: the call changes an attribute of this thread and touches no memory.
    unsafe {
        libc::setfsuid(user);
        // It says what was before; so this says what is.
        assert_eq!(libc::setfsuid(user), user.cast_signed());
    }
}

//! System calls that no safe function makes.

use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags, mmap};
use std::ffi::CString;
use std::fs::File;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::ptr::{copy_nonoverlapping, null_mut};

/// Calls the system. Only for calls to which an address of 0, or of nothing at all, is an error and
/// no more.
pub(crate) fn call(number: libc::c_long, arguments: [u64; 5]) -> Result<u64, Errno> {
    let [a, b, c, d, e] = arguments;
    // SAFETY: the arguments are numbers, null, or no address of this process; what the kernel would
    // do with them if it did not refuse the call is to report an error, or touches no memory.
    let result = unsafe { libc::syscall(number, a, b, c, d, e, 0_u64) };
    match u64::try_from(result) {
        Ok(result) => Ok(result),
        Err(_) => Err(Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO)),
    }
}

/// Writes `data` from the beginning of a file that is as long, through memory that it is mapped to
/// until this process ends. Not for a process that answers for the file itself: the kernel may hold
/// its memory while it waits for an answer.
pub(crate) fn write_mapped(file: &File, data: &[u8]) {
    file.set_len(data.len() as u64).unwrap();
    let (len, how) = (data.len(), ProtFlags::READ | ProtFlags::WRITE);
    // SAFETY: the memory is new, and of a file that nobody makes shorter; nothing else here knows
    // of it, and it is as long as what is copied to it.
    unsafe {
        let memory = mmap(null_mut(), len, how, MapFlags::SHARED, file, 0).unwrap();
        copy_nonoverlapping(data.as_ptr(), memory.cast(), len);
    }
}

/// Lets this thread use files as another user does, whatever its own user is.
pub(crate) fn act_for(user: u32) {
    // SAFETY: the call changes an attribute of this thread and touches no memory.
    unsafe {
        libc::setfsuid(user);
        // It says what was before; so this says what is.
        assert_eq!(libc::setfsuid(user), user.cast_signed());
    }
}

/// What `mount_setattr` changes, in the form of `linux/mount.h`.
#[repr(C)]
struct MountAttributes {
    set: u64,
    clear: u64,
    propagation: u64,
    namespace: u64,
}

/// Has users in a mount that is not attached yet be mapped as a user namespace says.
pub(crate) fn map_users(tree: &OwnedFd, namespace: &File) -> Result<(), Errno> {
    const MAPS: u64 = 0x0010_0000;
    let attributes = MountAttributes {
        set: MAPS,
        clear: 0,
        propagation: 0,
        namespace: namespace.as_raw_fd() as u64,
    };
    let (number, len) = (libc::SYS_mount_setattr, size_of::<MountAttributes>());
    // SAFETY: the path is an empty name, and the record lives until the call has returned, and is
    // as long as it says.
    let done = unsafe {
        let (path, flags) = (c"".as_ptr(), libc::AT_EMPTY_PATH);
        libc::syscall(
            number,
            tree.as_raw_fd(),
            path,
            flags,
            &raw const attributes,
            len,
        )
    };
    match done {
        0 => Ok(()),
        _ => Err(Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO)),
    }
}

/// A request to the system's asynchronous I/O, in the form of `linux/aio_abi.h` on machines whose
/// lower bytes come first.
#[repr(C)]
struct Control {
    data: u64,
    key: u32,
    rw_flags: i32,
    opcode: u16,
    priority: i16,
    file: u32,
    buffer: u64,
    len: u64,
    offset: i64,
    reserved: u64,
    flags: u32,
    event_file: u32,
}

/// How a request ended.
#[repr(C)]
#[derive(Default)]
struct Event {
    data: u64,
    control: u64,
    result: i64,
    more: i64,
}

/// Writes by the system's asynchronous I/O, as programs do that go on meanwhile.
#[derive(Debug)]
pub(crate) struct Asynchronous(u64);

impl Asynchronous {
    pub(crate) fn new() -> Self {
        let mut context = 0_u64;
        // SAFETY: the call stores the number of a context in the variable.
        let made = unsafe { libc::syscall(libc::SYS_io_setup, 8, &raw mut context) };
        assert_eq!(made, 0, "{}", std::io::Error::last_os_error());
        Self(context)
    }

    /// Begins to write `data`, waits for the end, and tells how many bytes were written.
    pub(crate) fn write(&self, file: &File, offset: u64, data: &[u8]) -> std::io::Result<usize> {
        const WRITE: u16 = 1;
        let mut control = Control {
            data: 0,
            key: 0,
            rw_flags: 0,
            opcode: WRITE,
            priority: 0,
            file: file.as_raw_fd().cast_unsigned(),
            buffer: data.as_ptr().expose_provenance() as u64,
            len: data.len() as u64,
            offset: offset.cast_signed(),
            reserved: 0,
            flags: 0,
            event_file: 0,
        };
        let mut list = [&raw mut control];
        let mut event = Event::default();
        // SAFETY: what the kernel is told of lives until the second call has returned, which it
        // does when the request has ended.
        let (submitted, ended) = unsafe {
            let submitted = libc::syscall(libc::SYS_io_submit, self.0, 1, list.as_mut_ptr());
            let none = null_mut::<libc::timespec>();
            let ended = match submitted {
                1 => libc::syscall(libc::SYS_io_getevents, self.0, 1, 1, &raw mut event, none),
                _ => 0,
            };
            (submitted, ended)
        };
        if submitted != 1 {
            return Err(std::io::Error::last_os_error());
        }
        assert_eq!(ended, 1, "a request does not end");
        let failed = |_| std::io::Error::from_raw_os_error(-event.result as i32);
        usize::try_from(event.result).map_err(failed)
    }
}

impl Drop for Asynchronous {
    fn drop(&mut self) {
        // SAFETY: nothing is under way, and nobody uses the context any more.
        unsafe { libc::syscall(libc::SYS_io_destroy, self.0) };
    }
}

/// A file as a server of files remembers it.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct Handle {
    len: u32,
    kind: i32,
    bytes: [u8; 128],
}

impl Handle {
    pub(crate) fn of(path: &Path) -> std::io::Result<Self> {
        let mut handle = Self {
            len: 128,
            kind: 0,
            bytes: [0; 128],
        };
        let name = CString::new(path.as_os_str().as_bytes())?;
        let (at, to) = (libc::AT_FDCWD, &raw mut handle);
        let mut mount = 0;
        // SAFETY: the name ends with a zero byte, and the handle has room for as many bytes as it
        // says.
        let done =
            unsafe { libc::name_to_handle_at(at, name.as_ptr(), to.cast(), &raw mut mount, 0) };
        match done {
            0 => Ok(handle),
            _ => Err(std::io::Error::last_os_error()),
        }
    }

    /// Turns the handle into one of another inode: FUSE has the node in the first two words, the
    /// upper half first.
    pub(crate) fn of_node(mut self, node: u64) -> Self {
        let (upper, lower) = ((node >> 32) as u32, node as u32);
        self.bytes[..4].copy_from_slice(&upper.to_ne_bytes());
        self.bytes[4..8].copy_from_slice(&lower.to_ne_bytes());
        self
    }

    /// Opens the file, by its handle alone, in the file system of `mount`.
    pub(crate) fn open(mut self, mount: &File, flags: i32) -> std::io::Result<File> {
        let from = &raw mut self;
        // SAFETY: the handle has as many bytes as it says; the descriptor is new and nobody else's.
        unsafe {
            match libc::open_by_handle_at(mount.as_raw_fd(), from.cast(), flags) {
                -1 => Err(std::io::Error::last_os_error()),
                opened => Ok(File::from_raw_fd(opened)),
            }
        }
    }
}

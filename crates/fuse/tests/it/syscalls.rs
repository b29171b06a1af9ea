//! System calls that no safe function makes.

use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags, mmap};
use std::cell::Cell;
use std::ffi::CString;
use std::fs::File;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::ptr::{copy_nonoverlapping, null_mut};
use std::time::{Duration, Instant};

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

/// Transfers by the system's asynchronous I/O, as programs make that go on meanwhile.
#[derive(Debug)]
pub(crate) struct Asynchronous {
    context: u64,
    /// Transfers that are under way still, though they were waited for.
    is_stuck: Cell<bool>,
}

/// How many bytes a transfer has moved, and the memory.
type Transferred = std::io::Result<(usize, Vec<u8>)>;

const READ: u16 = 0;
const WRITE: u16 = 1;

impl Asynchronous {
    /// The most transfers at a time.
    pub(crate) const MOST: usize = 64;

    pub(crate) fn new() -> Self {
        let mut context = 0_u64;
        // SAFETY: the call stores the number of a context in the variable.
        let made = unsafe { libc::syscall(libc::SYS_io_setup, Self::MOST, &raw mut context) };
        assert_eq!(made, 0, "{}", std::io::Error::last_os_error());
        let is_stuck = Cell::new(false);
        Self { context, is_stuck }
    }

    /// Begins to write `data`, waits for the end, and tells how many bytes were written.
    pub(crate) fn write(&self, file: &File, offset: u64, data: &[u8]) -> std::io::Result<usize> {
        let mut written = self.transfer(WRITE, file, vec![(offset, data.to_vec())])?;
        written.remove(0).map(|(len, _)| len)
    }

    /// Begins to read as many bytes at each of the offsets, waits for the end of all, and returns
    /// what each has read.
    pub(crate) fn read(
        &self,
        file: &File,
        parts: impl IntoIterator<Item = (u64, usize)>,
    ) -> Vec<std::io::Result<Vec<u8>>> {
        let parts = parts.into_iter();
        let parts = parts.map(|(offset, len)| (offset, vec![0xa5; len]));
        let read = self.transfer(READ, file, parts.collect());
        let read = read.expect("all are begun").into_iter();
        let cut = |(len, mut buffer): (usize, Vec<u8>)| {
            buffer.truncate(len);
            buffer
        };
        read.map(|read| read.map(cut)).collect()
    }

    /// Begins a transfer between each of the offsets and its memory, and waits for the end of all.
    ///
    /// # Errors
    /// When not all can be begun. Those that were have ended.
    fn transfer(
        &self,
        opcode: u16,
        file: &File,
        mut parts: Vec<(u64, Vec<u8>)>,
    ) -> std::io::Result<Vec<Transferred>> {
        let numbered = (0..).zip(&mut parts);
        let mut controls: Vec<Control> = numbered
            .map(|(data, (offset, buffer))| Control {
                data,
                key: 0,
                rw_flags: 0,
                opcode,
                priority: 0,
                file: file.as_raw_fd().cast_unsigned(),
                buffer: buffer.as_mut_ptr().expose_provenance() as u64,
                len: buffer.len() as u64,
                offset: offset.cast_signed(),
                reserved: 0,
                flags: 0,
                event_file: 0,
            })
            .collect();
        let mut list: Vec<*mut Control> = controls.iter_mut().map(std::ptr::from_mut).collect();
        let (context, count) = (self.context, list.len());
        // SAFETY: the records live until the call has returned, and the memory that they name until
        // the transfers have ended, or for good where one does not.
        let begun =
            unsafe { libc::syscall(libc::SYS_io_submit, context, count, list.as_mut_ptr()) };
        let (begun, failed) = (begun.max(0), std::io::Error::last_os_error());
        let mut events: Vec<Event> = parts.iter().map(|_| Event::default()).collect();
        let end = Instant::now() + Duration::from_secs(60);
        let mut ended = 0;
        while ended < begun {
            let (rest, to) = (begun - ended, &mut events[ended as usize..]);
            let mut limit = libc::timespec {
                tv_sec: 1,
                tv_nsec: 0,
            };
            // SAFETY: there is room for as many events.
            let more = unsafe {
                let (to, limit) = (to.as_mut_ptr(), &raw mut limit);
                libc::syscall(libc::SYS_io_getevents, context, rest, rest, to, limit)
            };
            // It also returns early, with fewer or none, when the thread has other things to do.
            ended += more.max(0);
            if Instant::now() > end {
                self.is_stuck.set(true);
                std::mem::forget(parts);
                panic!("of {begun} transfers {ended} have ended in a minute");
            }
        }
        if begun < count as i64 {
            return Err(failed);
        }
        events.sort_by_key(|event| event.data);
        let buffers = parts.into_iter().map(|(_, buffer)| buffer);
        let outcome = |(event, buffer): (Event, Vec<u8>)| {
            let failed = |_| std::io::Error::from_raw_os_error(-event.result as i32);
            let len = usize::try_from(event.result).map_err(failed)?;
            Ok((len, buffer))
        };
        Ok(events.into_iter().zip(buffers).map(outcome).collect())
    }
}

impl Drop for Asynchronous {
    fn drop(&mut self) {
        // The call would wait for them.
        if !self.is_stuck.get() {
            // SAFETY: nothing is under way, and nobody uses the context any more.
            unsafe { libc::syscall(libc::SYS_io_destroy, self.context) };
        }
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

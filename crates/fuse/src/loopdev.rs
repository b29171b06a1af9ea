//! A block device for a mount: a loop device over the image.
//!
//! The kernel tells a mount that has a block device of `sync` and `syncfs`, and waits for its end
//! when it is unmounted. The device is there for that alone: the image is read and written through
//! the file, and nothing through the device. It goes away with the mount.

use rustix::io::Errno;
use rustix::ioctl::{Ioctl, IoctlOutput, Opcode, Setter};
use std::ffi::c_void;
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Numbers and layouts are those of `linux/loop.h`.
const GET_FREE: Opcode = 0x4c82;
const CONFIGURE: Opcode = 0x4c0a;
const CONTROL: &str = "/dev/loop-control";
/// Nothing is written through the device.
const READ_ONLY: u32 = 1;
/// The device is free when nobody has it open.
const AUTOCLEAR: u32 = 4;
/// How often somebody else may take the device that was free.
const RACES: u32 = 50;
const PAUSE: Duration = Duration::from_millis(2);

/// `struct loop_info64`.
#[repr(C)]
struct Info {
    device: u64,
    inode: u64,
    rdevice: u64,
    offset: u64,
    size_limit: u64,
    number: u32,
    encrypt_type: u32,
    encrypt_key_size: u32,
    flags: u32,
    file_name: [u8; 64],
    crypt_name: [u8; 64],
    encrypt_key: [u8; 32],
    init: [u64; 2],
}

/// `struct loop_config`.
#[repr(C)]
struct Config {
    fd: u32,
    block_size: u32,
    info: Info,
    reserved: [u64; 8],
}

const _: () = assert!(size_of::<Info>() == 232 && size_of::<Config>() == 304);

struct FreeNumber;

// SAFETY: the call takes no argument (a null pointer is passed), and nothing but the number that it
// returns is looked at.
unsafe impl Ioctl for FreeNumber {
    type Output = u32;
    const IS_MUTATING: bool = false;

    fn opcode(&self) -> Opcode {
        GET_FREE
    }

    fn as_ptr(&mut self) -> *mut c_void {
        std::ptr::null_mut()
    }

    unsafe fn output_from_ptr(out: IoctlOutput, _: *mut c_void) -> rustix::io::Result<u32> {
        u32::try_from(out).map_err(|_| Errno::RANGE)
    }
}

/// A loop device, which is free again when this is dropped and nobody else has it open.
#[derive(Debug)]
pub(crate) struct LoopDevice {
    pub(crate) path: PathBuf,
    _open: File,
}

impl LoopDevice {
    /// Makes a device over `image` from byte `offset` on, which cannot be written through if the
    /// mount is `read_only`.
    ///
    /// # Errors
    /// Where there are no loop devices, or this process may not use them.
    pub(crate) fn over(image: &Path, offset: u64, read_only: bool) -> io::Result<Self> {
        let open = |path: &Path| File::options().read(true).write(!read_only).open(path);
        let backing = open(image)?;
        let control = File::options().read(true).write(true).open(CONTROL)?;
        let flags = if read_only {
            AUTOCLEAR | READ_ONLY
        } else {
            AUTOCLEAR
        };
        let mut tries = 0;
        loop {
            // SAFETY: the request is one that this device knows.
            let number = unsafe { rustix::ioctl::ioctl(&control, FreeNumber)? };
            let path = PathBuf::from(format!("/dev/loop{number}"));
            let configured =
                open(&path).and_then(|device| configure(device, &backing, image, offset, flags));
            match configured {
                Ok(open) => return Ok(Self { path, _open: open }),
                // Somebody else was faster.
                Err(e) if tries < RACES && is_race(&e) => std::thread::sleep(PAUSE),
                Err(e) => return Err(e),
            }
            tries += 1;
        }
    }
}

fn is_race(e: &io::Error) -> bool {
    let races = [Errno::BUSY, Errno::NXIO, Errno::AGAIN];
    Errno::from_io_error(e).is_some_and(|e| races.contains(&e))
}

fn configure(
    device: File,
    backing: &File,
    image: &Path,
    offset: u64,
    flags: u32,
) -> io::Result<File> {
    // What losetup shows where it cannot see the path.
    let mut file_name = [0; 64];
    let name = image.as_os_str().as_bytes();
    file_name
        .iter_mut()
        .take(63)
        .zip(name)
        .for_each(|(to, from)| *to = *from);
    let config = Config {
        fd: backing.as_raw_fd().cast_unsigned(),
        block_size: 0,
        info: Info {
            device: 0,
            inode: 0,
            rdevice: 0,
            offset,
            size_limit: 0,
            number: 0,
            encrypt_type: 0,
            encrypt_key_size: 0,
            flags,
            file_name,
            crypt_name: [0; 64],
            encrypt_key: [0; 32],
            init: [0; 2],
        },
        reserved: [0; 8],
    };
    // SAFETY: the call reads one `struct loop_config`, which `Config` lays out (its size is
    // asserted above), and the descriptor that it names is open.
    unsafe { rustix::ioctl::ioctl(&device, Setter::<CONFIGURE, Config>::new(config))? };
    Ok(device)
}

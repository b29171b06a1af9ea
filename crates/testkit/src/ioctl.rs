//! The ioctls of loop devices and of ext4's emergency shutdown.
//!
//! The only file of this crate with `unsafe`: rustix leaves the truth of an opcode's argument to
//! its caller. Numbers and layouts are those of `linux/loop.h` and of the ext4 documentation.

use std::ffi::c_void;
use std::io;
use std::os::fd::{AsFd, AsRawFd};

use rustix::ioctl::{Ioctl, IoctlOutput, NoArg, Opcode, Setter};

const LOOP_CTL_GET_FREE: Opcode = 0x4c82;
const LOOP_CONFIGURE: Opcode = 0x4c0a;
const LOOP_CLR_FD: Opcode = 0x4c01;
/// `_IOR('X', 125, u32)`; the kernel reads the argument in spite of the R.
const EXT4_IOC_SHUTDOWN: Opcode = rustix::ioctl::opcode::read::<u32>(b'X', 125);

/// `lo_flags`: no writes reach the backing file.
pub(crate) const LO_FLAGS_READ_ONLY: u32 = 1;
/// `lo_flags`: the last close detaches the device.
pub(crate) const LO_FLAGS_AUTOCLEAR: u32 = 4;
/// `lo_flags`: the backing file is read and written past the page cache.
pub(crate) const LO_FLAGS_DIRECT_IO: u32 = 16;

/// `struct loop_info64`.
#[repr(C)]
struct LoopInfo64 {
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
struct LoopConfig {
    fd: u32,
    block_size: u32,
    info: LoopInfo64,
    reserved: [u64; 8],
}

const _: () = assert!(size_of::<LoopInfo64>() == 232 && size_of::<LoopConfig>() == 304);

/// An ioctl whose answer is its return value.
struct ReturnValue<const OPCODE: Opcode>;

// SAFETY: the opcode takes no argument (a null pointer is passed) and nothing but the integer it
// returns is looked at.
unsafe impl<const OPCODE: Opcode> Ioctl for ReturnValue<OPCODE> {
    type Output = u32;
    const IS_MUTATING: bool = false;

    fn opcode(&self) -> Opcode {
        OPCODE
    }

    fn as_ptr(&mut self) -> *mut c_void {
        std::ptr::null_mut()
    }

    unsafe fn output_from_ptr(out: IoctlOutput, _: *mut c_void) -> rustix::io::Result<u32> {
        u32::try_from(out).map_err(|_| rustix::io::Errno::RANGE)
    }
}

/// The number of a loop device that was free a moment ago; the kernel adds one when all are taken.
pub(crate) fn free_loop_number(control: impl AsFd) -> io::Result<u32> {
    // SAFETY: LOOP_CTL_GET_FREE takes no argument and returns the device number.
    Ok(unsafe { rustix::ioctl::ioctl(control, ReturnValue::<LOOP_CTL_GET_FREE>) }?)
}

/// Attaches `backing` to the loop device `device`.
pub(crate) fn configure_loop(
    device: impl AsFd,
    backing: &std::fs::File,
    offset: u64,
    flags: u32,
) -> io::Result<()> {
    let config = LoopConfig {
        fd: u32::try_from(backing.as_raw_fd()).map_err(io::Error::other)?,
        block_size: 0,
        info: LoopInfo64 {
            device: 0,
            inode: 0,
            rdevice: 0,
            offset,
            size_limit: 0,
            number: 0,
            encrypt_type: 0,
            encrypt_key_size: 0,
            flags,
            file_name: [0; 64],
            crypt_name: [0; 64],
            encrypt_key: [0; 32],
            init: [0; 2],
        },
        reserved: [0; 8],
    };
    // SAFETY: LOOP_CONFIGURE reads one `struct loop_config`, which `LoopConfig` lays out (size
    // asserted above); it lives until the call returns and names an open descriptor.
    let call = unsafe { Setter::<LOOP_CONFIGURE, _>::new(config) };
    // SAFETY: as above; `device` is an open loop device.
    unsafe { rustix::ioctl::ioctl(device, call) }?;
    Ok(())
}

/// Detaches whatever the loop device holds (at its last close, when it is in use).
pub(crate) fn clear_loop(device: impl AsFd) -> io::Result<()> {
    // SAFETY: LOOP_CLR_FD takes no argument.
    let call = unsafe { NoArg::<LOOP_CLR_FD>::new() };
    // SAFETY: as above.
    unsafe { rustix::ioctl::ioctl(device, call) }?;
    Ok(())
}

/// Shuts an ext4 file system down at once, as `flags` say.
pub(crate) fn shutdown_ext4(root: impl AsFd, flags: u32) -> io::Result<()> {
    // SAFETY: EXT4_IOC_SHUTDOWN reads one u32, which lives until the call returns.
    let call = unsafe { Setter::<EXT4_IOC_SHUTDOWN, u32>::new(flags) };
    // SAFETY: as above.
    unsafe { rustix::ioctl::ioctl(root, call) }?;
    Ok(())
}

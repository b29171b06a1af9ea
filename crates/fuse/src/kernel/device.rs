//! Descriptors by which the kernel is read and answered.
#![allow(unsafe_code)]

use rustix::io::Errno;
use rustix::ioctl::{Setter, opcode};
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

/// `FUSE_DEV_IOC_CLONE`: another channel of the same mount.
const CLONE: rustix::ioctl::Opcode = opcode::read::<u32>(229, 0);

/// A channel: a request that was read from it is answered through it.
#[derive(Debug)]
pub(crate) struct Device(File);

impl Device {
    /// So many channels of the mount that `first` belongs to, for a thread each. Where the kernel gives no channels, threads
    /// share one.
    ///
    /// # Errors
    /// When there are no descriptors left.
    pub(super) fn several(first: BorrowedFd<'_>, count: usize) -> io::Result<Vec<Self>> {
        let mut devices = vec![Self(first.try_clone_to_owned()?.into())];
        for _ in 1..count {
            let device = match Self::cloned(first) {
                Ok(device) => device,
                Err(e) if e.raw_os_error() == Some(libc::EMFILE) => return Err(e),
                Err(_) => Self(first.try_clone_to_owned()?.into()),
            };
            devices.push(device);
        }
        Ok(devices)
    }

    fn cloned(first: BorrowedFd<'_>) -> io::Result<Self> {
        let device = File::options().read(true).write(true).open("/dev/fuse")?;
        let number = first.as_raw_fd().cast_unsigned();
        // SAFETY: the call reads the number of a descriptor, which is open here.
        unsafe { rustix::ioctl::ioctl(&device, Setter::<CLONE, u32>::new(number))? };
        Ok(Self(device))
    }

    /// Waits for a request, and reads it. `None` when the mount is over.
    ///
    /// # Errors
    /// When the connection breaks off in another way.
    pub(super) fn receive(&self, buffer: &mut [u8]) -> io::Result<Option<usize>> {
        loop {
            match rustix::io::read(&self.0, &mut *buffer) {
                Ok(len) => return Ok(Some(len)),
                // Whoever asked has given up, before it was read.
                Err(Errno::NOENT | Errno::INTR | Errno::AGAIN) => {}
                Err(Errno::NODEV) => return Ok(None),
                Err(e) => return Err(e.into()),
            }
        }
    }

    /// Answers a request. Whoever asked may have given up: that is no error.
    pub(super) fn send(&self, answer: &[u8]) {
        if let Err(e) = rustix::io::write(&self.0, answer)
            && !matches!(e, Errno::NOENT | Errno::NODEV)
        {
            tracing::error!("an answer was not taken by the kernel: {e}");
        }
    }
}

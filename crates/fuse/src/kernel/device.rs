//! Descriptors by which the kernel is read and answered.
#![allow(unsafe_code)]

use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::OFlags;
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

/// How a device is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reading {
    /// A read waits for a request.
    Waits,
    /// A read returns what is there, and the thread waits otherwise.
    Looks,
}

/// What reading comes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Received {
    /// A request of so many bytes.
    Request(usize),
    /// There is none now.
    Nothing,
    /// The mount is over.
    Over,
}

impl Device {
    /// Opens `count` channels of the mount that `first` belongs to, for a thread each. Where the
    /// kernel gives no channels, threads share one.
    ///
    /// # Errors
    /// When there are no descriptors left.
    pub(super) fn several(
        first: BorrowedFd<'_>,
        count: usize,
        reading: Reading,
    ) -> io::Result<Vec<Self>> {
        let first = Self(first.try_clone_to_owned()?.into());
        first.set(reading)?;
        let mut devices = vec![first];
        for _ in 1..count {
            let [first, ..] = devices.as_slice() else {
                break;
            };
            let device = match Self::cloned(&first.0) {
                Ok(device) => {
                    device.set(reading)?;
                    device
                }
                Err(e) if e.raw_os_error() == Some(libc::EMFILE) => return Err(e),
                Err(_) => Self(first.0.try_clone()?),
            };
            devices.push(device);
        }
        Ok(devices)
    }

    fn set(&self, reading: Reading) -> io::Result<()> {
        if reading == Reading::Looks {
            let flags = rustix::fs::fcntl_getfl(&self.0)?;
            rustix::fs::fcntl_setfl(&self.0, flags | OFlags::NONBLOCK)?;
        }
        Ok(())
    }

    fn cloned(first: &File) -> io::Result<Self> {
        let device = File::options().read(true).write(true).open("/dev/fuse")?;
        let number = first.as_raw_fd().cast_unsigned();
        // SAFETY: the call reads the number of a descriptor, which is open here.
        unsafe { rustix::ioctl::ioctl(&device, Setter::<CLONE, u32>::new(number))? };
        Ok(Self(device))
    }

    /// Reads a request, after waiting for it if the device is one that waits.
    ///
    /// # Errors
    /// When the connection breaks off in another way.
    pub(super) fn receive(&self, buffer: &mut [u8]) -> io::Result<Received> {
        loop {
            match rustix::io::read(&self.0, &mut *buffer) {
                Ok(len) => return Ok(Received::Request(len)),
                // The program that asked has given up, before it was read.
                Err(Errno::NOENT | Errno::INTR) => {}
                Err(Errno::AGAIN) => return Ok(Received::Nothing),
                Err(Errno::NODEV) => return Ok(Received::Over),
                Err(e) => return Err(e.into()),
            }
        }
    }

    /// Waits until there may be something to read.
    ///
    /// # Errors
    /// When the system has no memory for it.
    pub(super) fn wait(&self) -> io::Result<()> {
        let mut only = [PollFd::new(&self.0, PollFlags::IN)];
        match poll(&mut only, None) {
            // That it is over is told by reading.
            Ok(_) | Err(Errno::INTR | Errno::AGAIN) => Ok(()),
            Err(e) => Err(e.into()),
        }
    }

    /// Answers a request. The program that asked may have given up: that is no error.
    pub(super) fn send(&self, answer: &[u8]) {
        if let Err(e) = rustix::io::write(&self.0, answer)
            && !matches!(e, Errno::NOENT | Errno::NODEV)
        {
            tracing::error!("an answer was not taken by the kernel: {e}");
        }
    }
}

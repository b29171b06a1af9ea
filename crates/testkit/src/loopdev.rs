//! Images attached to loop devices.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::ioctl;

/// Whether writes reach the image.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// The device refuses writes; the image stays byte for byte as it is.
    ReadOnly,
    /// Writes go to the image through the page cache.
    ReadWrite,
    /// Writes go to the image past the page cache (the backing file system must allow it).
    ReadWriteDirect,
}

/// An image attached to a loop device; detached when the last user, this guard or a mount, is gone.
#[derive(Debug)]
pub struct LoopDevice {
    path: PathBuf,
    // Open until drop: with autoclear, the last close detaches the image.
    device: Option<File>,
    image: PathBuf,
}

/// How often a device that was let go is looked at, every 5 ms.
const DETACHING_PATIENCE: u32 = 200;

/// How often another process may take the free device before us.
const RACES_TOLERATED: u32 = 200;

impl LoopDevice {
    /// Attaches `image` from its first byte.
    ///
    /// # Errors
    ///
    /// When there are no loop devices, we may not use them, or the image cannot be opened.
    pub fn attach(image: &Path, access: Access) -> io::Result<LoopDevice> {
        LoopDevice::attach_at(image, 0, access)
    }

    /// Attaches `image` from byte `offset`, as for a partition of a disk image.
    ///
    /// # Errors
    ///
    /// As for [`LoopDevice::attach`].
    pub fn attach_at(image: &Path, offset: u64, access: Access) -> io::Result<LoopDevice> {
        let write = access != Access::ReadOnly;
        let backing = OpenOptions::new().read(true).write(write).open(image)?;
        let control = OpenOptions::new()
            .read(true)
            .write(true)
            .open("/dev/loop-control")?;
        let flags = ioctl::LO_FLAGS_AUTOCLEAR
            | match access {
                Access::ReadOnly => ioctl::LO_FLAGS_READ_ONLY,
                Access::ReadWrite => 0,
                Access::ReadWriteDirect => ioctl::LO_FLAGS_DIRECT_IO,
            };
        let mut last = None;
        for attempt in 0..RACES_TOLERATED {
            let number = ioctl::free_loop_number(control.as_fd())?;
            let path = PathBuf::from(format!("/dev/loop{number}"));
            let configured = open_node(&path, number, write).and_then(|device| {
                ioctl::configure_loop(device.as_fd(), &backing, offset, flags).map(|()| device)
            });
            match configured {
                Ok(device) => {
                    return Ok(LoopDevice {
                        path,
                        device: Some(device),
                        image: std::fs::canonicalize(image)?,
                    });
                }
                // Somebody else was faster: ask for another one.
                Err(e) if is_race(&e) => last = Some(e),
                Err(e) => return Err(e),
            }
            std::thread::sleep(Duration::from_millis(u64::from(attempt.min(20))));
        }
        Err(last.unwrap_or_else(|| io::ErrorKind::ResourceBusy.into()))
    }

    /// Returns the device node.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the open device.
    pub fn file(&self) -> &File {
        self.device
            .as_ref()
            .expect("it is open until it is dropped")
    }

    /// Whether the image is still attached.
    fn is_attached(&self) -> bool {
        let name = self.path.file_name().unwrap_or_default();
        let attached = Path::new("/sys/block").join(name).join("loop/backing_file");
        let image = std::fs::read(attached).unwrap_or_default();
        image.trim_ascii_end() == self.image.as_os_str().as_bytes()
    }
}

impl Drop for LoopDevice {
    fn drop(&mut self) {
        // Autoclear does this at the last close; asking for it covers kernels that drop the flag.
        let _ = ioctl::clear_loop(self.file().as_fd());
        self.device = None;
        // A program that another thread is about to start holds the device open until it runs.
        // Meanwhile the image is in use.
        for _ in 0..DETACHING_PATIENCE {
            if !self.is_attached() {
                return;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

fn is_race(e: &io::Error) -> bool {
    let raced = [
        rustix::io::Errno::BUSY,
        rustix::io::Errno::NXIO,
        rustix::io::Errno::AGAIN,
    ];
    raced
        .iter()
        .any(|errno| e.raw_os_error() == Some(errno.raw_os_error()))
}

/// Opens the node of loop device `number`, making it where no devtmpfs has.
fn open_node(path: &Path, number: u32, write: bool) -> io::Result<File> {
    let open = || OpenOptions::new().read(true).write(write).open(path);
    match open() {
        Err(e) if e.kind() == io::ErrorKind::NotFound => {
            const LOOP_MAJOR: u32 = 7;
            let made = rustix::fs::mknodat(
                rustix::fs::CWD,
                path,
                rustix::fs::FileType::BlockDevice,
                rustix::fs::Mode::from_raw_mode(0o600),
                rustix::fs::makedev(LOOP_MAJOR, number),
            );
            match made {
                Ok(()) | Err(rustix::io::Errno::EXIST) => open(),
                Err(e) => Err(e.into()),
            }
        }
        other => other,
    }
}

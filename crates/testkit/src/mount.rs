//! Images mounted by the kernel.

use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::mount::{MountFlags, UnmountFlags};
use tempfile::TempDir;

use crate::ioctl;
use crate::loopdev::{Access, LoopDevice};

/// How the kernel mounts an image.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// Read only; a dirty journal is still replayed into the image, as the kernel does.
    ReadOnly,
    /// Read only from a read-only device: nothing reaches the image. A dirty journal then needs
    /// the option `noload`.
    Untouched,
    /// Read and write, access times off.
    ReadWrite,
}

/// How much reaches the journal when a file system is shut down (the ioctl's flag values).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shutdown {
    /// Freeze first: everything is on the device, the journal is clean.
    Sync = 0,
    /// Commit the journal, then stop: the log holds everything, little is in place.
    FlushLog = 1,
    /// Stop at once: the log holds what was committed before.
    Now = 2,
}

/// A mounted image. Unmounted and detached on drop, also while a test panics.
#[derive(Debug)]
pub struct KernelMount {
    // Field order is drop order: the device goes once nothing is mounted from it.
    mounted: bool,
    device: LoopDevice,
    point: TempDir,
}

impl KernelMount {
    /// Mounts the ext4 (or ext2, ext3) file system in `image`, with the mount `options` of ext4.
    ///
    /// # Panics
    ///
    /// When the kernel refuses; the message has the end of the kernel log when it can be read.
    pub fn mount(image: &Path, mode: Mode, options: &str) -> KernelMount {
        KernelMount::try_mount(image, mode, options).unwrap_or_else(|e| {
            panic!(
                "the kernel does not mount {}: {e}{}",
                image.display(),
                kernel_log_tail()
            )
        })
    }

    /// As [`KernelMount::mount`], for tests that expect a refusal.
    ///
    /// # Errors
    ///
    /// What attaching or mounting returned.
    pub fn try_mount(image: &Path, mode: Mode, options: &str) -> io::Result<KernelMount> {
        KernelMount::try_mount_as("ext4", image, mode, options)
    }

    /// As [`KernelMount::try_mount`], with another file system type (for peers in benchmarks).
    ///
    /// # Errors
    ///
    /// What attaching or mounting returned.
    pub fn try_mount_as(
        fstype: &str,
        image: &Path,
        mode: Mode,
        options: &str,
    ) -> io::Result<KernelMount> {
        let access = match mode {
            Mode::Untouched => Access::ReadOnly,
            Mode::ReadOnly | Mode::ReadWrite => Access::ReadWrite,
        };
        KernelMount::from_device(fstype, LoopDevice::attach(image, access)?, mode, options)
    }

    /// Mounts what is on an attached device.
    ///
    /// # Errors
    ///
    /// What mounting returned.
    pub fn from_device(
        fstype: &str,
        device: LoopDevice,
        mode: Mode,
        options: &str,
    ) -> io::Result<KernelMount> {
        let point = tempfile::Builder::new().prefix("extant-mount-").tempdir()?;
        let flags = match mode {
            Mode::ReadOnly | Mode::Untouched => MountFlags::RDONLY,
            Mode::ReadWrite => MountFlags::NOATIME,
        };
        let data = std::ffi::CString::new(options)?;
        rustix::mount::mount(device.path(), point.path(), fstype, flags, data.as_c_str())?;
        Ok(KernelMount {
            mounted: true,
            device,
            point,
        })
    }

    /// Returns the mount point.
    pub fn path(&self) -> &Path {
        self.point.path()
    }

    /// Returns a path inside the mounted file system.
    pub fn join(&self, relative: impl AsRef<Path>) -> PathBuf {
        self.path().join(relative)
    }

    /// Returns the loop device below.
    pub fn device(&self) -> &LoopDevice {
        &self.device
    }

    /// Writes back everything of this file system (`syncfs`).
    ///
    /// # Panics
    ///
    /// When the kernel reports an error.
    pub fn sync(&self) {
        let root = File::open(self.path()).expect("open the mount point");
        rustix::fs::syncfs(&root).expect("syncfs");
    }

    /// Stops the file system at once, as a crash would, and unmounts it.
    ///
    /// # Panics
    ///
    /// When the kernel refuses the shutdown or the unmount.
    pub fn shutdown(self, how: Shutdown) {
        self.stop(how);
        self.unmount();
    }

    /// Stops the file system at once and leaves it mounted, so that files that are open can be
    /// closed without effect.
    ///
    /// # Panics
    ///
    /// When the kernel refuses.
    pub fn stop(&self, how: Shutdown) {
        let root = File::open(self.path()).expect("open the mount point");
        ioctl::shutdown_ext4(root.as_fd(), how as u32).expect("EXT4_IOC_SHUTDOWN");
    }

    /// Unmounts, so that the image is complete on return.
    ///
    /// # Panics
    ///
    /// When the mount stays busy.
    pub fn unmount(mut self) {
        self.release()
            .unwrap_or_else(|e| panic!("unmount {}: {e}", self.path().display()));
    }

    fn release(&mut self) -> io::Result<()> {
        if !self.mounted {
            return Ok(());
        }
        let mut tries = 0;
        loop {
            match rustix::mount::unmount(self.point.path(), UnmountFlags::NOFOLLOW) {
                // Device scanners of the desktop kind hold a fresh mount for a moment.
                Err(rustix::io::Errno::BUSY) if tries < 50 => {
                    tries += 1;
                    std::thread::sleep(Duration::from_millis(20));
                }
                Err(e) => return Err(e.into()),
                Ok(()) => break,
            }
        }
        self.mounted = false;
        Ok(())
    }
}

impl Drop for KernelMount {
    fn drop(&mut self) {
        if self.release().is_err() {
            // Something still uses it: take it out of sight, the kernel ends it with its last user.
            let flags = UnmountFlags::DETACH | UnmountFlags::NOFOLLOW;
            let _ = rustix::mount::unmount(self.point.path(), flags);
        }
    }
}

/// The last lines of the kernel log, which say why a mount was refused; empty when unreadable.
fn kernel_log_tail() -> String {
    use std::io::Read;
    use std::os::unix::fs::OpenOptionsExt;
    let nonblocking = rustix::fs::OFlags::NONBLOCK.bits();
    let flags = i32::try_from(nonblocking).unwrap_or(0);
    let Ok(mut log) = File::options()
        .read(true)
        .custom_flags(flags)
        .open("/dev/kmsg")
    else {
        return String::new();
    };
    let mut lines = std::collections::VecDeque::new();
    let mut record = [0u8; 8192];
    while let Ok(n) = log.read(&mut record) {
        let line = String::from_utf8_lossy(&record[..n]);
        let text = line
            .split_once(';')
            .map_or("", |(_, t)| t.lines().next().unwrap_or(""));
        if text.contains("EXT4") || text.contains("JBD2") || text.contains("loop") {
            lines.push_back(text.to_owned());
        }
        if lines.len() > 5 {
            lines.pop_front();
        }
    }
    lines.iter().map(|l| format!("\n  kernel: {l}")).collect()
}

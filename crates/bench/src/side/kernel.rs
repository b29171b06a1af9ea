//! The kernel's ext4 on a loop device.

use super::{Counters, Mounted};
use crate::args::KernelForm;
use extant_testkit::loopdev::{Access, LoopDevice};
use extant_testkit::mount::{KernelMount, Mode};
use rustix::fs::{self, AtFlags, OFlags};
use rustix::io::Errno;
use std::ffi::CStr;
use std::os::fd::OwnedFd;
use std::path::Path;

/// A mounted image; unmounted on drop.
pub(crate) struct Kernel {
    // Drop order: nothing may be open when the mount goes.
    root: OwnedFd,
    mount: KernelMount,
}

impl Kernel {
    /// Attaches and mounts an image.
    ///
    /// # Errors
    /// Without root, loop devices or the kernel's ext4.
    pub(crate) fn mount(image: &Path, form: KernelForm) -> Result<Self, String> {
        let access = match form {
            KernelForm::DirectIo => Access::ReadWriteDirect,
            KernelForm::Plain | KernelForm::OrphanFile => Access::ReadWrite,
        };
        let mount = LoopDevice::attach(image, access)
            .and_then(|device| KernelMount::from_device("ext4", device, Mode::ReadWrite, ""))
            .map_err(|e| format!("the kernel does not mount {}: {e}", image.display()))?;
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let root = fs::open(mount.path(), flags, fs::Mode::empty()).map_err(|e| e.to_string())?;
        Ok(Self { root, mount })
    }

    fn loop_name(&self) -> &str {
        let name = self.mount.device().path().file_name();
        name.and_then(|n| n.to_str()).unwrap_or("")
    }
}

fn at(name: &CStr) -> impl Fn(Errno) -> String {
    move |e| format!("{}: {e}", name.to_string_lossy())
}

impl Mounted for Kernel {
    type Dir = OwnedFd;
    type File = OwnedFd;

    fn make_dir(&self, name: &CStr) -> Result<OwnedFd, String> {
        fs::mkdirat(&self.root, name, fs::Mode::from_raw_mode(0o755)).map_err(at(name))?;
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        fs::openat(&self.root, name, flags, fs::Mode::empty()).map_err(at(name))
    }

    fn create(&self, dir: &OwnedFd, name: &CStr) -> Result<OwnedFd, String> {
        let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::CLOEXEC;
        fs::openat(dir, name, flags, fs::Mode::from_raw_mode(0o644)).map_err(at(name))
    }

    fn stat(&self, dir: &OwnedFd, name: &CStr) -> Result<u64, String> {
        let found = fs::statat(dir, name, AtFlags::SYMLINK_NOFOLLOW).map_err(at(name))?;
        Ok(found.st_size.cast_unsigned())
    }

    fn unlink(&self, dir: &OwnedFd, name: &CStr) -> Result<(), String> {
        fs::unlinkat(dir, name, AtFlags::empty()).map_err(at(name))
    }

    fn write_at(&self, file: &OwnedFd, offset: u64, data: &[u8]) -> Result<(), String> {
        match rustix::io::pwrite(file, data, offset) {
            Ok(n) if n == data.len() => Ok(()),
            Ok(n) => Err(format!("only {n} of {} bytes written", data.len())),
            Err(e) => Err(format!("pwrite: {e}")),
        }
    }

    fn fsync(&self, file: &OwnedFd) -> Result<(), String> {
        fs::fsync(file).map_err(|e| format!("fsync: {e}"))
    }

    fn sync(&self) -> Result<(), String> {
        fs::syncfs(&self.root).map_err(|e| format!("syncfs: {e}"))
    }

    fn counters(&self) -> Counters {
        let name = self.loop_name();
        let info = read(&format!("/proc/fs/jbd2/{name}-8/info"));
        // "N transactions (M requested), each up to B blocks"
        let commits = info
            .lines()
            .next()
            .and_then(|l| l.split_whitespace().next()?.parse().ok());
        // "  N handles per transaction", an average over all of them
        let per_commit: Option<u64> = info
            .lines()
            .find(|l| l.contains("handles per transaction"))
            .and_then(|l| l.split_whitespace().next()?.parse().ok());
        let stat = read(&format!("/sys/block/{name}/stat"));
        // Documentation/block/stat.rst: the 16th number counts completed flushes.
        let flushes = stat.split_whitespace().nth(15).and_then(|n| n.parse().ok());
        Counters {
            commits,
            handles: commits.zip(per_commit).map(|(c, h)| c * h),
            flushes,
        }
    }

    fn unmount(self) -> Result<(), String> {
        let Self { root, mount } = self;
        drop(root);
        mount.unmount();
        Ok(())
    }
}

/// A file of the kernel's that may be absent.
fn read(path: &str) -> String {
    std::fs::read_to_string(path).unwrap_or_default()
}

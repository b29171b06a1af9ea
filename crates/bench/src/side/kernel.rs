//! What is mounted and reached by system calls: the kernel's ext4 on a loop device, `fuse2fs`, and
//! the engine through FUSE, in this process or by the command.

use super::command::CommandMount;
use super::fuse::FuseMount;
use super::fuse2fs::Fuse2fs;
use super::{Counters, MountChoice, Mounted, Visit};
use crate::args::KernelForm;
use crate::command::Extant;
use extant_testkit::loopdev::{Access, LoopDevice};
use extant_testkit::mount::{KernelMount, Mode};
use rustix::fs::{self, AtFlags, OFlags};
use rustix::io::Errno;
use std::ffi::CStr;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// A mounted image; unmounted on drop.
pub(crate) struct Kernel {
    // Drop order: nothing may be open when the mount goes.
    root: OwnedFd,
    mount: Mount,
    /// For files that are opened.
    flags: OFlags,
}

enum Mount {
    Ext4(KernelMount),
    Fuse2fs(Fuse2fs),
    Engine(FuseMount),
    Command(CommandMount),
}

impl Kernel {
    /// Attaches and mounts an image.
    ///
    /// # Errors
    /// Without root, loop devices or the kernel's ext4.
    pub(crate) fn mount(
        image: &Path,
        form: KernelForm,
        choice: MountChoice,
    ) -> Result<Self, String> {
        let access = match form {
            KernelForm::DirectIo => Access::ReadWriteDirect,
            KernelForm::Plain | KernelForm::OrphanFile => Access::ReadWrite,
        };
        let options = if choice.delalloc { "" } else { "nodelalloc" };
        let mount = LoopDevice::attach(image, access)
            .and_then(|device| KernelMount::from_device("ext4", device, Mode::ReadWrite, options))
            .map_err(|e| format!("the kernel does not mount {}: {e}", image.display()))?;
        Self::at(mount.path().to_owned(), Mount::Ext4(mount), choice)
    }

    /// Has `fuse2fs` mount an image with these options, which may be none.
    ///
    /// # Errors
    /// Without FUSE.
    pub(crate) fn fuse2fs(
        image: &Path,
        options: &str,
        choice: MountChoice,
    ) -> Result<Self, String> {
        let mount = Fuse2fs::mount(image, options)?;
        Self::at(mount.path().to_owned(), Mount::Fuse2fs(mount), choice)
    }

    /// Mounts an image with the engine, through FUSE.
    ///
    /// # Errors
    /// Without FUSE; those of the engine.
    pub(crate) fn engine(image: &Path, choice: MountChoice) -> Result<Self, String> {
        let mount = FuseMount::mount(image, choice)?;
        Self::at(mount.path().to_owned(), Mount::Engine(mount), choice)
    }

    /// Has the command mount an image with these options, which may be none.
    ///
    /// # Errors
    /// When it does not.
    pub(crate) fn command(extant: &Extant, image: &Path, options: &str) -> Result<Self, String> {
        let mount = CommandMount::mount(extant, image, options)?;
        let point = mount.path().to_owned();
        Self::at(point, Mount::Command(mount), MountChoice::default())
    }

    /// The mount point.
    pub(crate) fn path(&self) -> &Path {
        match &self.mount {
            Mount::Ext4(mount) => mount.path(),
            Mount::Fuse2fs(mount) => mount.path(),
            Mount::Engine(mount) => mount.path(),
            Mount::Command(mount) => mount.path(),
        }
    }

    fn at(point: PathBuf, mount: Mount, choice: MountChoice) -> Result<Self, String> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let root = fs::open(point, flags, fs::Mode::empty()).map_err(|e| e.to_string())?;
        let direct = if choice.direct {
            OFlags::DIRECT
        } else {
            OFlags::empty()
        };
        let flags = OFlags::RDWR | OFlags::CLOEXEC | direct;
        Ok(Self { root, mount, flags })
    }

    fn loop_name(&self) -> Option<&str> {
        match &self.mount {
            Mount::Ext4(mount) => mount.device().path().file_name()?.to_str(),
            Mount::Fuse2fs(_) | Mount::Engine(_) | Mount::Command(_) => None,
        }
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
        self.open_dir(name)
    }

    fn open(&self, dir: &OwnedFd, name: &CStr) -> Result<OwnedFd, String> {
        fs::openat(dir, name, self.flags, fs::Mode::empty()).map_err(at(name))
    }

    fn open_dir(&self, name: &CStr) -> Result<OwnedFd, String> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        fs::openat(&self.root, name, flags, fs::Mode::empty()).map_err(at(name))
    }

    fn root(&self) -> Result<OwnedFd, String> {
        self.root.try_clone().map_err(|e| e.to_string())
    }

    fn create(&self, dir: &OwnedFd, name: &CStr) -> Result<OwnedFd, String> {
        let flags = OFlags::CREATE | OFlags::EXCL | self.flags;
        fs::openat(dir, name, flags, fs::Mode::from_raw_mode(0o644)).map_err(at(name))
    }

    fn stat(&self, dir: &OwnedFd, name: &CStr) -> Result<u64, String> {
        let found = fs::statat(dir, name, AtFlags::SYMLINK_NOFOLLOW).map_err(at(name))?;
        Ok(found.st_size.cast_unsigned())
    }

    fn read(&self, dir: &OwnedFd, name: &CStr, buf: &mut [u8]) -> Result<usize, String> {
        let flags = OFlags::RDONLY | OFlags::CLOEXEC;
        let file = fs::openat(dir, name, flags, fs::Mode::empty()).map_err(at(name))?;
        rustix::io::pread(&file, buf, 0).map_err(at(name))
    }

    fn close(&self, file: OwnedFd) -> Result<(), String> {
        drop(file);
        Ok(())
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

    fn read_at(&self, file: &OwnedFd, offset: u64, buf: &mut [u8]) -> Result<(), String> {
        match rustix::io::pread(file, &mut *buf, offset) {
            Ok(n) if n == buf.len() => Ok(()),
            Ok(n) => Err(format!("only {n} of {} bytes read", buf.len())),
            Err(e) => Err(format!("pread: {e}")),
        }
    }

    fn fallocate(&self, file: &OwnedFd, offset: u64, len: u64) -> Result<(), String> {
        let flags = fs::FallocateFlags::empty();
        fs::fallocate(file, flags, offset, len).map_err(|e| format!("fallocate: {e}"))
    }

    fn truncate(&self, file: &OwnedFd, size: u64) -> Result<(), String> {
        fs::ftruncate(file, size).map_err(|e| format!("ftruncate: {e}"))
    }

    fn fsync(&self, file: &OwnedFd) -> Result<(), String> {
        fs::fsync(file).map_err(|e| format!("fsync: {e}"))
    }

    fn sync(&self) -> Result<(), String> {
        fs::syncfs(&self.root).map_err(|e| format!("syncfs: {e}"))?;
        match &self.mount {
            Mount::Engine(mount) => mount.sync(),
            Mount::Ext4(_) | Mount::Fuse2fs(_) | Mount::Command(_) => Ok(()),
        }
    }

    fn preallocations(&self, _: &OwnedFd) -> Option<u64> {
        None
    }

    fn visit_inodes(&self, _: Visit, workers: usize) -> Result<u64, String> {
        let failed = |e: Errno| format!("listing: {e}");
        let mut names = Vec::new();
        for entry in fs::Dir::read_from(&self.root).map_err(failed)? {
            let entry = entry.map_err(failed)?;
            if entry.file_name().to_bytes().starts_with(b"d") {
                names.push(entry.file_name().to_owned());
            }
        }
        let (next, visited) = (AtomicUsize::new(0), AtomicU64::new(0));
        let work = |_| {
            while let Some(name) = names.get(next.fetch_add(1, Ordering::Relaxed)) {
                let dir = self.open_dir(name)?;
                // The directory itself too.
                let mut seen = 1;
                fs::fstat(&dir).map_err(at(name))?;
                for entry in fs::Dir::read_from(&dir).map_err(at(name))? {
                    let entry = entry.map_err(at(name))?;
                    let file = entry.file_name();
                    if file.to_bytes().starts_with(b".") {
                        continue;
                    }
                    fs::statat(&dir, file, AtFlags::SYMLINK_NOFOLLOW).map_err(at(file))?;
                    seen += 1;
                }
                visited.fetch_add(seen, Ordering::Relaxed);
            }
            Ok(())
        };
        crate::crew::timed(workers, work, || Ok(()))?;
        Ok(visited.into_inner())
    }

    fn counters(&self) -> Counters {
        if let Mount::Command(mount) = &self.mount {
            return Counters {
                // One that does not say is found when its requests are looked at.
                done: mount.done().ok(),
                ..Counters::default()
            };
        }
        let Some(name) = self.loop_name() else {
            return Counters::default();
        };
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
            merged: None,
            drained: None,
            orphans: None,
            done: None,
        }
    }

    fn unmount(self) -> Result<(), String> {
        let Self { root, mount, .. } = self;
        drop(root);
        match mount {
            Mount::Ext4(mount) => mount.unmount(),
            Mount::Fuse2fs(mount) => mount.unmount()?,
            Mount::Engine(mount) => mount.unmount()?,
            Mount::Command(mount) => mount.unmount()?,
        }
        Ok(())
    }
}

/// A file of the kernel's that may be absent.
fn read(path: &str) -> String {
    std::fs::read_to_string(path).unwrap_or_default()
}

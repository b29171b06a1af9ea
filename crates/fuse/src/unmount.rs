//! Unmounting: by the system call where that is allowed, and by fusermount3 where it is not.
//!
//! fusermount3 is the system's helper for what users without privileges mount. No other program is run.

use crate::error::MountError;
use crate::mounts;
use extant_format::superblock::{SUPERBLOCK_LEN, SUPERBLOCK_OFFSET, Superblock};
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use rustix::mount::UnmountFlags;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

/// How often unmounting is tried while somebody uses the mount, and the time between.
const TRIES: u32 = 10;
const PAUSE: Duration = Duration::from_millis(100);

/// The helper.
pub(crate) const HELPER: &str = "fusermount3";

/// Unmounts what was mounted on `point` by `extant mount`, and waits until everything is in the image. With `lazy`
/// the directory is free at once, and the file system goes on until nobody uses it any more.
///
/// # Errors
/// [`MountError::NotMounted`]; [`MountError::InUse`], unless `lazy`; [`MountError::Stays`];
/// [`MountError::LeftDirty`] when a journal is left in the image, as far as it can be looked at: a file system behind an
/// offset is not.
pub fn unmount(point: &Path, lazy: bool) -> Result<(), MountError> {
    let failed = |source| MountError::Point {
        point: point.to_owned(),
        source,
    };
    // A mount whose daemon is gone cannot be looked at, but its path is what it was.
    let path = point
        .canonicalize()
        .or_else(|_| std::path::absolute(point))
        .map_err(failed)?;
    let mount = mounts::ours_at(&path)
        .map_err(failed)?
        .ok_or_else(|| MountError::NotMounted(point.to_owned()))?;
    detach_patiently(&mount.point, lazy)?;
    match (lazy, mount.read_only) {
        (true, _) => {}
        (false, true) => wait_for_reader(&mount.image),
        (false, false) => {
            if wait_for(&mount.image).is_some_and(|image| has_journal_left(&image)) {
                return Err(MountError::LeftDirty(mount.image));
            }
        }
    }
    Ok(())
}

/// Unmounts `point`; if somebody uses it, for those who come from now on, after what they wrote so far was
/// fetched.
pub fn leave(point: &Path) {
    if detach(point, false).is_ok() {
        return;
    }
    if let Ok(root) = File::open(point) {
        let _ = rustix::fs::syncfs(&root);
    }
    if let Err(e) = detach(point, true) {
        tracing::error!("{e}");
    }
}

/// Unmounts `point` if what answered for it is gone, so that nobody meets a dead mount.
pub fn clear(point: &Path) {
    if matches!(mounts::ours_at(point), Ok(Some(_))) {
        let _ = detach(point, true);
    }
}

/// The same as [`detach`], for some moments: what looks into new mounts on its own is soon done.
fn detach_patiently(point: &Path, lazy: bool) -> Result<(), MountError> {
    for _ in 0..TRIES {
        match detach(point, lazy) {
            Err(MountError::InUse(_)) => std::thread::sleep(PAUSE),
            tried => return tried,
        }
    }
    detach(point, lazy)
}

/// Takes a mount out of the tree of directories.
pub(crate) fn detach(point: &Path, lazy: bool) -> Result<(), MountError> {
    let flags = match lazy {
        true => UnmountFlags::DETACH,
        false => UnmountFlags::NOFOLLOW,
    };
    let stays = |source| MountError::Stays {
        point: point.to_owned(),
        source,
    };
    match rustix::mount::unmount(point, flags) {
        Ok(()) => Ok(()),
        Err(Errno::BUSY) => Err(MountError::InUse(point.to_owned())),
        Err(Errno::PERM) => match detach_by_helper(point, lazy) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => Err(MountError::NoHelper),
            Err(e) if e.kind() == io::ErrorKind::ResourceBusy => {
                Err(MountError::InUse(point.to_owned()))
            }
            tried => tried.map_err(stays),
        },
        Err(e) => Err(stays(e.into())),
    }
}

fn detach_by_helper(point: &Path, lazy: bool) -> io::Result<()> {
    let mut helper = Command::new(HELPER);
    helper.arg("-u").args(lazy.then_some("-z"));
    let output = helper.arg("--").arg(point).stdin(Stdio::null()).output()?;
    match output.status.success() {
        true => Ok(()),
        false => {
            let said = String::from_utf8_lossy(&output.stderr);
            // It says so in words only.
            let kind = match said.contains("busy") {
                true => io::ErrorKind::ResourceBusy,
                false => io::ErrorKind::Other,
            };
            Err(io::Error::new(kind, said.trim().to_owned()))
        }
    }
}

/// Waits for the daemon's end: until then it has the image locked against everybody. Who only reads it from then on is
/// no reason to wait.
fn wait_for(image: &Path) -> Option<File> {
    let file = File::open(image).ok()?;
    flock(&file, FlockOperation::LockShared).ok()?;
    Some(file)
}

/// Waits for the end of a daemon that only reads, though not for long: others may read the image as well.
fn wait_for_reader(image: &Path) {
    let Ok(file) = File::open(image) else {
        return;
    };
    for _ in 0..TRIES {
        if flock(&file, FlockOperation::NonBlockingLockExclusive).is_ok() {
            return;
        }
        std::thread::sleep(PAUSE);
    }
}

/// Whether an image's journal holds what is not in its place yet.
fn has_journal_left(image: &File) -> bool {
    let mut bytes = [0; SUPERBLOCK_LEN];
    let read = image.read_exact_at(&mut bytes, SUPERBLOCK_OFFSET);
    read.is_ok() && Superblock::parse(&bytes).is_ok_and(|superblock| superblock.needs_recovery())
}

/// Whether the helper is to be found.
pub(crate) fn has_helper() -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let usual = ["/usr/bin", "/bin", "/sbin"].map(Into::into);
    std::env::split_paths(&path)
        .chain(usual)
        .any(|folder| folder.join(HELPER).is_file())
}

#[cfg(test)]
mod tests {
    use super::*;
    use extant_testkit::oracle::{debugfs_write, mke2fs};

    #[test]
    fn an_image_that_was_not_closed_is_told_from_one_that_was() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("image");
        mke2fs(&path, 16 << 20, &["-t", "ext4"]);
        assert!(!has_journal_left(&File::open(&path).unwrap()));
        debugfs_write(&path, &["feature needs_recovery"]);
        assert!(has_journal_left(&File::open(&path).unwrap()));
        File::options()
            .write(true)
            .open(&path)
            .unwrap()
            .set_len(0)
            .unwrap();
        assert!(!has_journal_left(&File::open(&path).unwrap()));
    }
}

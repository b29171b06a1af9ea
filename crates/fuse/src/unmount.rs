//! Unmounting: by the system call where that is allowed, and by fusermount3 where it is not.
//!
//! A request by path unmounts what lies on that path. The processes of a mount clear up behind
//! themselves by its [identity](MountId) only: by then another mount may be on the path.
//! fusermount3 knows paths only, so between the look at what lies there and its end nobody else of
//! this program mounts there ([`PathLock`]).
//!
//! fusermount3 is the system's helper for what users without privileges mount. No other program is
//! run.

use crate::error::MountError;
use crate::mounts::{self, Elsewhere, Held, Mount, MountId};
use crate::presence::MountProcess;
use extant_format::superblock::{SUPERBLOCK_LEN, SUPERBLOCK_OFFSET, Superblock};
use rustix::fs::{FlockOperation, OFlags, flock};
use rustix::io::Errno;
use rustix::mount::UnmountFlags;
use std::fs::File;
use std::io;
use std::os::unix::fs::{FileExt, FileTypeExt, OpenOptionsExt};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

/// How often unmounting is tried while somebody uses the mount, and the time between.
const TRIES: u32 = 10;
const PAUSE: Duration = Duration::from_millis(100);
/// How long the end is simply waited for, before it is asked what keeps it.
const PATIENT: u32 = 10;

/// How long before it is said what is waited for.
const TELLING: u32 = 20;

/// The helper.
pub(crate) const HELPER: &str = "fusermount3";

/// Unmounts what was mounted on `point` by `extant mount`, and waits until everything is in the
/// image and the processes of the mount are gone. With `lazy` the directory is free at once, and
/// the file system goes on until nobody uses it any more.
///
/// Where that takes more than two seconds, `tell` is called once with what is waited for.
///
/// # Errors
/// [`MountError::NotMounted`]; [`MountError::InUse`], unless `lazy`; [`MountError::Stays`];
/// [`MountError::Elsewhere`] when it is mounted at another place as well, and goes on there;
/// [`MountError::Asleep`]; [`MountError::Stopped`]; [`MountError::Unfinished`] where the mount says
/// so itself; [`MountError::LeftDirty`] when a journal is left in the image, as far as it can be
/// looked at: a file system behind an offset is not.
pub fn unmount(point: &Path, lazy: bool, tell: &dyn Fn(&str)) -> Result<(), MountError> {
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
    let held = Held::at(&path).ok().flatten();
    let end = held.as_ref().map_or(End::OfImage, end_of);
    // The table may say something else since it was begun. Of one that died the image is free as
    // well.
    let reads_only = mount.read_only
        || end.is_of_process()
            && is_free(&mount.image).is_some()
            && !held.as_ref().is_some_and(Held::is_dead);
    // What is held cannot be unmounted.
    drop(held);
    // One on a block device is asked to end by the call that unmounts, which cannot be interrupted.
    if mount.is_on_device()
        && let End::OfProcess(process) = &end
        && let Some(process) = process.asleep()
    {
        return Err(MountError::Asleep {
            point: mount.point,
            process,
        });
    }
    detach_patiently(&mount.point, lazy)?;
    if lazy {
        return Ok(());
    }
    match end {
        End::OfProcess(process) => {
            wait_for_process(&mount, &process, tell)?;
            if process.has_failed() {
                return Err(MountError::Unfinished(mount.image));
            }
        }
        End::Nothing => wait_for_last_moments(&mount.image),
        End::OfImage if reads_only => wait_for_reader(&mount.image),
        End::OfImage => wait_for_writer(&mount, tell)?,
    }
    match is_free(&mount.image) {
        Some(image) if !reads_only && has_journal_left(&image) => {
            Err(MountError::LeftDirty(mount.image))
        }
        // Or somebody else has it by now.
        _ => Ok(()),
    }
}

/// What the end of a mount is known by.
#[derive(Debug)]
enum End {
    /// Its process is gone.
    OfProcess(MountProcess),
    /// It is over: nobody answers.
    Nothing,
    /// The image is not locked any more.
    OfImage,
}

impl End {
    fn is_of_process(&self) -> bool {
        matches!(self, Self::OfProcess(_))
    }
}

/// Finds what the end of a mount is known by: the process that keeps it, or the one that writes its
/// image. A process that has the image locked is of this mount as long as anybody answers for it:
/// once it has ended another one may have the image, and is not waited for.
fn end_of(held: &Held) -> End {
    let mount = &held.mount;
    let process = MountProcess::of(&held.id, mount.user);
    if let Some(process) = process {
        return End::OfProcess(process);
    }
    let writer = open_image(&mount.image).and_then(|image| MountProcess::that_writes(&image));
    match writer {
        _ if held.is_dead() => End::Nothing,
        Some(writer) => End::OfProcess(writer),
        None => End::OfImage,
    }
}

/// Unmounts this mount, and no other; if it is in use, for programs that come from now on, after
/// what was written so far was fetched.
///
/// It waits for the processes that answer, so call it in a thread of its own where these must not
/// wait for it.
pub fn sync_and_detach(id: &MountId) {
    let Ok(Some(held)) = Held::by_id(id) else {
        return;
    };
    if let Ok(root) = File::open(held.path()) {
        let _ = rustix::fs::syncfs(&root);
    }
    if let Err(e) = detach_held(&held) {
        tracing::error!("{e}");
    }
}

/// Unmounts this mount, and no other, after what answered for it is gone, so that nobody meets a
/// dead mount.
pub fn clear(id: &MountId) {
    if let Ok(Some(held)) = Held::by_id(id)
        && (held.is_certain() || held.is_dead())
    {
        let _ = detach_held(&held);
    }
}

/// Unmounts what lies uppermost on this directory if it is a mount of this program that nobody
/// answers for: one that failed before it was known by its identity.
pub(crate) fn clear_dead(point: &Path) {
    if let Ok(Some(held)) = Held::at(point)
        && held.is_dead()
    {
        let _ = detach_held(&held);
    }
}

/// Takes what lies on this directory out of the tree of directories, and tries again for a second
/// while it is in use: what looks into new mounts on its own is soon done.
fn detach_patiently(point: &Path, lazy: bool) -> Result<(), MountError> {
    for _ in 0..TRIES {
        match detach(point, lazy) {
            Err(MountError::InUse(_)) => std::thread::sleep(PAUSE),
            tried => return tried,
        }
    }
    detach(point, lazy)
}

/// Takes what lies on this directory out of the tree of directories.
fn detach(point: &Path, lazy: bool) -> Result<(), MountError> {
    let flags = if lazy {
        UnmountFlags::DETACH | UnmountFlags::NOFOLLOW
    } else {
        UnmountFlags::NOFOLLOW
    };
    match rustix::mount::unmount(point, flags) {
        Ok(()) => Ok(()),
        Err(Errno::BUSY) => Err(MountError::InUse(point.to_owned())),
        Err(Errno::PERM) => detach_by_helper(point, lazy),
        Err(e) => Err(MountError::Stays {
            point: point.to_owned(),
            source: e.into(),
        }),
    }
}

/// Takes a mount that is held out of the tree; it ends when nobody has anything open there, this
/// process included.
fn detach_held(held: &Held) -> Result<(), MountError> {
    let point = &held.mount.point;
    match rustix::mount::unmount(held.path(), UnmountFlags::DETACH) {
        Ok(()) => Ok(()),
        Err(Errno::PERM) => {
            let _others_wait = PathLock::of(point);
            match Held::at(point) {
                Ok(Some(on_top)) if on_top.id == held.id => detach_by_helper(point, true),
                _ => Ok(()),
            }
        }
        Err(e) => Err(MountError::Stays {
            point: point.to_owned(),
            source: e.into(),
        }),
    }
}

fn detach_by_helper(point: &Path, lazy: bool) -> Result<(), MountError> {
    let stays = |source| MountError::Stays {
        point: point.to_owned(),
        source,
    };
    let mut helper = Command::new(HELPER);
    helper.arg("-u").args(lazy.then_some("-z"));
    let ran = helper.arg("--").arg(point).stdin(Stdio::null()).output();
    let output = ran.map_err(|e| match e.kind() {
        io::ErrorKind::NotFound => MountError::NoHelper,
        _ => stays(e),
    })?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    // It says so in words only.
    Err(if said.contains("busy") {
        MountError::InUse(point.to_owned())
    } else {
        stays(io::Error::other(said.trim().to_owned()))
    })
}

/// Has others of this program wait that mount and unmount by path in the same directory.
#[derive(Debug)]
pub(crate) struct PathLock {
    _directory: Option<File>,
}

impl PathLock {
    /// Locks out other mounts on `point`, a path from the root. Where the directory above cannot be
    /// locked, or somebody does not let go of it, it goes without.
    pub(crate) fn of(point: &Path) -> Self {
        let above = point.parent().and_then(|above| File::open(above).ok());
        let locked = above.filter(|above| {
            (0..TRIES).any(|_| {
                let locked = flock(above, FlockOperation::NonBlockingLockExclusive);
                if locked.is_err() {
                    std::thread::sleep(PAUSE);
                }
                locked.is_ok()
            })
        });
        Self { _directory: locked }
    }
}

/// Waits until the process that keeps the mount is gone, and so those that it started.
fn wait_for_process(
    mount: &Mount,
    process: &MountProcess,
    tell: &dyn Fn(&str),
) -> Result<(), MountError> {
    let failed = |source| MountError::Point {
        point: mount.point.clone(),
        source,
    };
    for waited in 1_u32.. {
        if process.is_gone_within(PAUSE).map_err(failed)? {
            break;
        }
        if waited.is_multiple_of(PATIENT) {
            refuse_elsewhere(mount)?;
            if let Some(process) = process.stopped() {
                return Err(MountError::Stopped {
                    point: mount.point.clone(),
                    process,
                });
            }
        }
        if waited == TELLING {
            let number = process.number();
            let by = number.map_or_else(String::new, |number| format!(" (process {number})"));
            tell(&still_waits(mount, &by));
        }
    }
    Ok(())
}

/// Waits for the daemon's end by the image alone: until then it has it locked against everybody. A
/// program that only reads it from then on is no reason to wait, and another mount that writes it
/// says that this one is over.
fn wait_for_writer(mount: &Mount, tell: &dyn Fn(&str)) -> Result<(), MountError> {
    for waited in 1_u32.. {
        if is_free(&mount.image).is_some() || !mount.image.exists() || mounts::has_other(mount) {
            break;
        }
        std::thread::sleep(PAUSE / 10);
        if waited.is_multiple_of(10 * PATIENT) {
            refuse_elsewhere(mount)?;
        }
        if waited == 10 * TELLING {
            tell(&still_waits(mount, ""));
        }
    }
    Ok(())
}

/// Waits until a daemon that answers no more has let go of its image, though not for long: another
/// one may have it by then.
fn wait_for_last_moments(image: &Path) {
    for _ in 0..TRIES {
        if is_free(image).is_some() || !image.exists() {
            return;
        }
        std::thread::sleep(PAUSE);
    }
}

/// Waits for the end of a daemon that only reads, though not for long: others may read the image as
/// well.
fn wait_for_reader(image: &Path) {
    let Some(file) = open_image(image) else {
        return;
    };
    for _ in 0..TRIES {
        if flock(&file, FlockOperation::NonBlockingLockExclusive).is_ok() {
            return;
        }
        std::thread::sleep(PAUSE);
    }
}

/// What is said while the end is waited for.
fn still_waits(mount: &Mount, by: &str) -> String {
    let (point, image) = (mount.point.display(), mount.image.display());
    if mount.read_only {
        format!("{point} is unmounted; waiting until {image} is closed{by}")
    } else {
        format!("{point} is unmounted; waiting until all changes are in {image}{by}")
    }
}

fn refuse_elsewhere(mount: &Mount) -> Result<(), MountError> {
    let point = mount.point.clone();
    let place = match mounts::elsewhere(mount) {
        None => return Ok(()),
        Some(Elsewhere::At(other)) => format!("at {}", other.display()),
        Some(Elsewhere::Of(process, name)) => {
            format!("in another mount namespace, that of process {process} ({name})")
        }
    };
    Err(MountError::Elsewhere { point, place })
}

/// Opens what a mount calls its image: a name that the user of the mount has chosen, so that it may
/// be of anything.
fn open_image(image: &Path) -> Option<File> {
    let kind = image.metadata().ok()?.file_type();
    if !kind.is_file() && !kind.is_block_device() {
        return None;
    }
    let flags = OFlags::NONBLOCK | OFlags::NOCTTY;
    let flags = i32::try_from(flags.bits()).ok()?;
    File::options()
        .read(true)
        .custom_flags(flags)
        .open(image)
        .ok()
}

/// Opens the image if nobody writes to it, and locks it against writers; `None` otherwise.
fn is_free(image: &Path) -> Option<File> {
    let file = open_image(image)?;
    flock(&file, FlockOperation::NonBlockingLockShared).ok()?;
    Some(file)
}

/// Tells whether an image's journal holds what is not in its place yet.
fn has_journal_left(image: &File) -> bool {
    let mut bytes = [0; SUPERBLOCK_LEN];
    let read = image.read_exact_at(&mut bytes, SUPERBLOCK_OFFSET);
    read.is_ok() && Superblock::parse(&bytes).is_ok_and(|superblock| superblock.needs_recovery())
}

/// Tells whether the helper is to be found.
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

//! Mounting itself: by the system call where that is allowed, and by fusermount3 where it is not.
//!
//! What comes of it is the kernel's device for the mount, and the identity by which it is known
//! from then on. Nothing is unmounted here.

use crate::loopdev::LoopDevice;
use crate::mounts::{Held, MountId};
use crate::options::Options;
use crate::rights;
use crate::unmount::{HELPER, PathLock, clear_dead};
use nix::sys::socket::{ControlMessageOwned, MsgFlags, recvmsg};
use rustix::io::Errno;
use rustix::mount::MountFlags;
use std::ffi::CString;
use std::fs::{self, File};
use std::io::{self, IoSliceMut};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Command, Stdio};

pub(crate) const DEVICE: &str = "/dev/fuse";
/// By which the helper knows the number of the socket that it answers through.
const ANSWERS_TO: &str = "_FUSE_COMMFD";
/// Descriptors that it takes to see what was mounted, and to clear it away.
const LOOKING: usize = 3;
/// Of a mount with a block device: no device that Linux takes has larger sectors.
const BLOCK: u32 = 4096;

/// What is mounted, and waits to be answered for.
#[derive(Debug)]
pub(crate) struct Fresh {
    pub(crate) device: OwnedFd,
    pub(crate) id: MountId,
    /// Why there is no block device, though there was to be one.
    pub(crate) lacks: Option<MissingBlockDevice>,
}

/// Why root's mount has no block device. Displays as a sentence for people.
#[derive(Debug, thiserror::Error)]
#[error(
    "the mount has no block device ({0}): `sync` and `syncfs` do not commit there, and umount(8) does not wait until \
     everything is in the image; fsync commits, and `extant umount` waits (-o no_blkdev: it is not to have one)"
)]
pub struct MissingBlockDevice(io::Error);

/// Mounts on `point`, a path from the root. With `checks` the kernel checks permissions.
///
/// # Errors
/// When the system does not mount.
pub(crate) fn mount(
    image: &Path,
    point: &Path,
    options: &Options,
    checks: bool,
) -> io::Result<Fresh> {
    let is_root = rustix::process::geteuid().is_root();
    // Too few descriptors are noticed before anything is mounted.
    let room = (0..LOOKING).map(|_| File::open("/dev/null"));
    let room = room.collect::<io::Result<Vec<_>>>()?;
    let mut lacks = None;
    let by_root = is_root.then(|| by_call(image, point, options, checks, &mut lacks));
    let device = match by_root {
        Some(Ok(device)) => device,
        // In a container root may be none.
        Some(Err(e)) if Errno::from_io_error(&e) != Some(Errno::PERM) => return Err(e),
        refused => {
            let _others_wait = PathLock::of(point);
            by_helper(image, point, options, checks).map_err(|e| match refused {
                // There is no helper, so what root was told is the reason.
                Some(Err(why)) if e.kind() == io::ErrorKind::NotFound => why,
                _ => e,
            })?
        }
    };
    drop(room);
    match Held::at(point) {
        Ok(Some(found)) => Ok(Fresh {
            device,
            id: found.id,
            lacks,
        }),
        found => {
            // Nobody is going to answer for it.
            drop(device);
            clear_dead(point);
            Err(found.err().unwrap_or_else(|| {
                io::Error::other("something else was mounted there at the same moment: try again")
            }))
        }
    }
}

/// Mounts as root: with a block device if it can be had, and one is wanted.
fn by_call(
    image: &Path,
    point: &Path,
    options: &Options,
    checks: bool,
    lacks: &mut Option<MissingBlockDevice>,
) -> io::Result<OwnedFd> {
    let flags = [
        (!options.dev, MountFlags::NODEV),
        (!options.suid, MountFlags::NOSUID),
        (!options.exec, MountFlags::NOEXEC),
        (options.read_only, MountFlags::RDONLY),
        (options.sync, MountFlags::SYNCHRONOUS),
        (options.dirsync, MountFlags::DIRSYNC),
    ];
    let flags = flags.into_iter().filter(|(on, _)| *on).map(|(_, f)| f);
    let flags: MountFlags = flags.collect();
    let mount = |kind: &str, source: &Path, more: String| -> io::Result<OwnedFd> {
        let device = File::options().read(true).write(true).open(DEVICE)?;
        let mut data = format!(
            "fd={},rootmode={:o},user_id={},group_id={},subtype=extant{more}",
            device.as_raw_fd(),
            fs::metadata(point)?.mode(),
            rustix::process::getuid().as_raw(),
            rustix::process::getgid().as_raw(),
        );
        let words = [
            (checks, ",default_permissions"),
            (options.allow_other, ",allow_other"),
        ];
        for (_, word) in words.into_iter().filter(|(on, _)| *on) {
            data.push_str(word);
        }
        let data = CString::new(data)?;
        rustix::mount::mount(source, point, kind, flags, data.as_c_str())?;
        Ok(device.into())
    };
    // In another user namespace there are none for it, and nobody misses any.
    if options.blkdev && rights::is_first_namespace() {
        let offset = options.offset.unwrap_or(0);
        let mounted = LoopDevice::over(image, offset, options.read_only)
            .and_then(|block| mount("fuseblk", &block.path, format!(",blksize={BLOCK}")));
        match mounted {
            Ok(device) => return Ok(device),
            Err(e) => *lacks = Some(MissingBlockDevice(e)),
        }
    }
    mount("fuse", image, String::new())
}

/// Mounts as anybody.
fn by_helper(image: &Path, point: &Path, options: &Options, checks: bool) -> io::Result<OwnedFd> {
    // A comma or a backslash would end the option.
    let source = image.to_string_lossy();
    let source = source.replace('\\', "\\\\").replace(',', "\\,");
    let mut list = format!("fsname={source},subtype=extant");
    let words = [
        (checks, "default_permissions"),
        (options.allow_other, "allow_other"),
        (options.read_only, "ro"),
        (options.dev, "dev"),
        (options.suid, "suid"),
        (!options.exec, "noexec"),
        (options.dirsync, "dirsync"),
        (options.sync, "sync"),
    ];
    for (_, word) in words.into_iter().filter(|(on, _)| *on) {
        list.push(',');
        list.push_str(word);
    }
    let (own, its) = UnixStream::pair()?;
    let its = OwnedFd::from(its);
    let helper = Command::new(HELPER)
        .args(["-o", &list, "--"])
        .arg(point)
        // Its standard input, which needs no number of its own.
        .env(ANSWERS_TO, "0")
        .stdin(Stdio::from(its))
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()?;
    let device = received(own.as_fd());
    let ended = helper.wait_with_output()?;
    device?.ok_or_else(|| {
        let said = String::from_utf8_lossy(&ended.stderr);
        io::Error::other(said.trim().to_owned())
    })
}

/// Receives the descriptor that comes through a socket; `None` when it is closed before.
fn received(socket: BorrowedFd<'_>) -> io::Result<Option<OwnedFd>> {
    loop {
        let mut byte = [0];
        let mut parts = [IoSliceMut::new(&mut byte)];
        let mut room = nix::cmsg_space!(std::os::fd::RawFd);
        let flags = MsgFlags::MSG_CMSG_CLOEXEC;
        let message = match recvmsg::<()>(socket.as_raw_fd(), &mut parts, Some(&mut room), flags) {
            Err(nix::errno::Errno::EINTR) => continue,
            received => received?,
        };
        let number = message.cmsgs()?.find_map(|part| match part {
            ControlMessageOwned::ScmRights(numbers) => numbers.first().copied(),
            _ => None,
        });
        // SAFETY: the kernel has just made this descriptor for this process, and nobody else knows
        // its number.
        return Ok(number.map(|number| unsafe { OwnedFd::from_raw_fd(number) }));
    }
}

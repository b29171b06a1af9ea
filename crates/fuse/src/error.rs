//! Why something is not mounted or unmounted, and what to do about it.

use std::io;
use std::path::PathBuf;

/// Why something is not mounted or unmounted. Displays as a sentence that says what to do.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MountError {
    /// There is nothing to mount on.
    #[error("{}: there is no such directory: make it first", .0.display())]
    NoPoint(PathBuf),
    /// What is there cannot be mounted on.
    #[error("{} is not a directory: mount on an empty directory", .0.display())]
    NotADirectory(PathBuf),
    /// Something is mounted there.
    #[error(
        "{} is a mount point already: unmount it first (`extant umount {}`), or choose another directory",
        .0.display(), .0.display()
    )]
    Busy(PathBuf),
    /// The directory cannot be looked at.
    #[error("{}: {source}", point.display())]
    Point {
        /// The directory.
        point: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The kernel has no FUSE, or this container does not.
    #[error(
        "/dev/fuse is missing: load the kernel's module (modprobe fuse); in a container, start it with \
         --device /dev/fuse --cap-add SYS_ADMIN"
    )]
    NoDevice,
    /// The device may not be opened.
    #[error("/dev/fuse may not be opened: {0}. Mount as root, or ask for access to it")]
    Device(io::Error),
    /// The helper for mounts without privileges is missing.
    #[error(
        "only root may mount without fusermount3, which is not installed: install the package fuse3, or mount as \
         root"
    )]
    NoHelper,
    /// The system refused.
    #[error("{} cannot be mounted on: {source}", point.display())]
    Refused {
        /// The directory.
        point: PathBuf,
        /// What it said.
        source: io::Error,
    },
    /// The session with the kernel broke off.
    #[error("the mount ended: {0}")]
    Session(io::Error),
    /// The root directory cannot be read.
    #[error(
        "the root directory cannot be read ({0}), so there is nothing to mount: `extant check` tells what is wrong, and \
         `extant repair` mends it"
    )]
    Root(String),
    /// The process cannot be confined.
    #[error(
        "the process that reads the image cannot be confined: {0}. Mount images that you trust with --no-sandbox"
    )]
    Sandbox(io::Error),
    /// Nothing of ours is mounted there.
    #[error("{}: extant has mounted nothing there", .0.display())]
    NotMounted(PathBuf),
    /// It is in use.
    #[error(
        "{} is in use: close what is open there and leave it, or detach it now with --lazy",
        .0.display()
    )]
    InUse(PathBuf),
    /// It is not mounted there any more, but goes on at another place.
    #[error(
        "{} is unmounted, but the same file system is mounted {place} as well: it goes on there, and the image is \
         in use until it is unmounted there too",
        point.display()
    )]
    Elsewhere {
        /// The directory.
        point: PathBuf,
        /// The other place, in words.
        place: String,
    },
    /// A process of the mount cannot answer, and nothing was unmounted.
    #[error(
        "{} stays mounted: process {process} of the mount has been stopped and cannot answer: have it go on \
         (kill -CONT {process}), and unmount then",
        point.display()
    )]
    Asleep {
        /// The directory.
        point: PathBuf,
        /// The number of the process.
        process: u32,
    },
    /// The process that keeps the mount cannot end.
    #[error(
        "{} is unmounted, but process {process}, which kept the mount, has been stopped and cannot end: have it go on \
         (kill -CONT {process})",
        point.display()
    )]
    Stopped {
        /// The directory.
        point: PathBuf,
        /// The number of the process.
        process: u32,
    },
    /// The mount did not end as it should have.
    #[error(
        "{} is unmounted, but what was changed last may not be in it: what was synced is, and the next mount recovers \
         it (`extant check` tells what is there)",
        .0.display()
    )]
    LeftDirty(PathBuf),
    /// The mount ended without having its last changes made durable, as it said itself.
    #[error(
        "{}: the mount ended with an error, and what was changed last may be lost; what was synced \
         is there, and the next mount or `extant replay` recovers it",
        .0.display()
    )]
    Unfinished(PathBuf),
    /// The system does not unmount.
    #[error("{} cannot be unmounted: {source}", point.display())]
    Stays {
        /// The directory.
        point: PathBuf,
        /// What it said.
        source: io::Error,
    },
}

//! Files that are about to be replaced by others of the same name.
//!
//! A rename takes the name away from whatever uses the file: a mount goes on with a file that
//! nobody can reach any more, and what it writes is lost. So a program that replaces a file holds
//! it meanwhile, which fails where something uses it.

use super::mounted::loop_device_of;
use super::open::{check_kind, lock, open_failed};
use crate::{DeviceError, DeviceResult};
use rustix::fs::{FlockOperation, OFlags, fcntl_lock};
use rustix::io::Errno;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

/// A regular file that nothing uses, locked so that nothing begins to.
#[derive(Debug)]
pub struct HeldFile {
    /// The lock ends when it is closed.
    _file: File,
    id: (u64, u64),
}

impl HeldFile {
    /// Returns the numbers of its device and inode, which tell it apart whatever it is called.
    #[must_use]
    pub fn id(&self) -> (u64, u64) {
        self.id
    }
}

/// Holds the regular file at `path`, which is going to be replaced; `None` if there is none.
///
/// # Errors
/// - `InUse` when another program has locked it (a mount, a command that writes, a virtual
///   machine), or swaps to it;
/// - `Attached` when a loop device stands on it;
/// - `NotADevice` for what is no regular file; `Open` when the system refuses.
pub fn hold_for_replacing(path: &Path) -> DeviceResult<Option<HeldFile>> {
    let in_use = || DeviceError::InUse {
        path: path.to_owned(),
    };
    let open = |write| {
        // Opening a pipe would wait for its other end.
        let flags = OFlags::NONBLOCK.bits() as i32;
        OpenOptions::new()
            .read(true)
            .write(write)
            .custom_flags(flags)
            .open(path)
    };
    let file = match open(true).or_else(|error| match error.kind() {
        // A program that runs, or swap space.
        io::ErrorKind::ExecutableFileBusy => Err(error),
        io::ErrorKind::NotFound => Err(error),
        _ => open(false),
    }) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) if error.kind() == io::ErrorKind::ExecutableFileBusy => return Err(in_use()),
        Err(source) => return Err(open_failed("open", path, source)),
    };
    let found = file
        .metadata()
        .map_err(|source| open_failed("open", path, source))?;
    check_kind(path, found.file_type())?;
    lock(path, &file, FlockOperation::NonBlockingLockExclusive)?;
    // The other kind of lock, which virtual machines take on their disks. Not to be had for a file
    // open for reading.
    if let Err(Errno::AGAIN | Errno::ACCESS) =
        fcntl_lock(&file, FlockOperation::NonBlockingLockExclusive)
    {
        return Err(in_use());
    }
    if let Some(device) = loop_device_of(&found) {
        return Err(DeviceError::Attached {
            path: path.to_owned(),
            device,
        });
    }
    Ok(Some(HeldFile {
        _file: file,
        id: (found.dev(), found.ino()),
    }))
}

//! Image files that the kernel has mounted through a loop device.
//!
//! The kernel takes no lock on the file behind a loop device, so it is asked which devices there
//! are (`/sys/block/loop*/loop/backing_file`) and what is mounted of them. As good as it goes:
//! where the system does not say, a mount is not seen.

use rustix::fs::OFlags;
use rustix::io::Errno;
use std::fs::{self, Metadata, OpenOptions};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

/// Whether a file system on a loop device over this file, or on a partition of it, is mounted.
pub(super) fn is_loop_mounted(file: &Metadata) -> bool {
    let Ok(devices) = fs::read_dir("/sys/block") else {
        return false;
    };
    devices.flatten().any(|device| {
        let name = device.file_name();
        let is_loop = name.to_str().is_some_and(|name| name.starts_with("loop"));
        is_loop && is_backed_by(&device.path(), file) && is_mounted(&device.path())
    })
}

/// The loop device that stands on this file, mounted or not.
pub(super) fn loop_device_of(file: &Metadata) -> Option<String> {
    let devices = fs::read_dir("/sys/block").ok()?;
    devices.flatten().find_map(|device| {
        let name = device.file_name().into_string().ok()?;
        let found = name.starts_with("loop") && is_backed_by(&device.path(), file);
        found.then(|| format!("/dev/{name}"))
    })
}

fn is_backed_by(device: &Path, file: &Metadata) -> bool {
    // No such file: nothing is behind the device.
    let Ok(behind) = fs::read_to_string(device.join("loop/backing_file")) else {
        return false;
    };
    fs::metadata(behind.trim_end_matches('\n'))
        .is_ok_and(|behind| (behind.dev(), behind.ino()) == (file.dev(), file.ino()))
}

fn is_mounted(device: &Path) -> bool {
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    let partitions = fs::read_dir(device).into_iter().flatten().flatten();
    let with_itself = partitions
        .map(|entry| entry.path())
        .chain([device.to_owned()]);
    with_itself
        .filter_map(|of| Some((fs::read_to_string(of.join("dev")).ok()?, of)))
        .any(|(number, of)| is_number_mounted(&mounts, number.trim()) || is_claimed(&of))
}

/// Whether a device number is the third field of one of the mounts.
fn is_number_mounted(mounts: &str, number: &str) -> bool {
    mounts
        .lines()
        .any(|mount| mount.split(' ').nth(2) == Some(number))
}

/// Whether somebody claims the device for himself, in whatever mount namespace.
fn is_claimed(device: &Path) -> bool {
    let Some(name) = device.file_name() else {
        return false;
    };
    let opened = OpenOptions::new()
        .read(true)
        .custom_flags(OFlags::EXCL.bits() as i32)
        .open(Path::new("/dev").join(name));
    opened.is_err_and(|err| Errno::from_io_error(&err) == Some(Errno::BUSY))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mounts_are_told_by_the_number_of_their_device() {
        let mounts =
            "22 1 254:0 / / rw - ext4 /dev/vda rw\n36 22 7:1 / /mnt rw - ext4 /dev/loop1 rw\n";
        assert!(is_number_mounted(mounts, "7:1"));
        assert!(!is_number_mounted(mounts, "7:11"));
        assert!(!is_number_mounted(mounts, "36"));
    }
}

//! Image files that the kernel has mounted through a loop device.
//!
//! The kernel takes no lock on the file behind a loop device, so it is asked which devices there
//! are (`/proc/partitions`, `/sys/block/loop*/loop/backing_file`) and what is mounted of them. As
//! good as it goes: where the system does not say, a mount is not seen.

use rustix::fs::OFlags;
use rustix::io::Errno;
use std::ffi::OsStr;
use std::fs::{self, Metadata, OpenOptions};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// Where the system has a folder for each disk.
const BLOCKS: &str = "/sys/block";

/// Whether a file system on a loop device over this file, or on a partition of it, is mounted.
pub(super) fn is_loop_mounted(file: &Metadata) -> bool {
    let mut devices = loop_devices().into_iter();
    devices.any(|device| is_backed_by(&device, file) && is_mounted(&device))
}

/// The loop device that stands on this file, mounted or not.
pub(super) fn loop_device_of(file: &Metadata) -> Option<String> {
    let mut devices = loop_devices().into_iter();
    let found = devices.find(|device| is_backed_by(device, file))?;
    Some(format!("/dev/{}", found.file_name()?.to_str()?))
}

/// The folders of the loop devices that may stand on a file. Most systems have many that stand on
/// nothing, which have no size: a single file lists the others.
fn loop_devices() -> Vec<PathBuf> {
    let blocks = Path::new(BLOCKS);
    if let Ok(partitions) = fs::read_to_string("/proc/partitions") {
        let names = loops_in(&partitions);
        return names.map(|name| blocks.join(name)).collect();
    }
    let devices = fs::read_dir(blocks).into_iter().flatten().flatten();
    let is_loop = |name: &OsStr| name.as_encoded_bytes().starts_with(b"loop");
    let loops = devices.filter(|device| is_loop(&device.file_name()));
    loops.map(|device| device.path()).collect()
}

/// The loop devices among disks and their partitions.
fn loops_in(partitions: &str) -> impl Iterator<Item = &str> {
    let names = partitions.lines().filter_map(|line| {
        let mut fields = line.split_ascii_whitespace();
        fields.nth(3)
    });
    names.filter(|name| {
        let number = name.strip_prefix("loop");
        number.is_some_and(|number| number.bytes().all(|byte| byte.is_ascii_digit()))
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
    fn loop_devices_are_told_from_their_partitions_and_from_others() {
        let partitions = "major minor  #blocks  name\n\n   7        0       1024 loop0\n \
                          259        0        512 loop0p1\n   7       12       4096 loop12\n \
                          254        0  268435456 vda\n";
        let found: Vec<_> = loops_in(partitions).collect();
        assert_eq!(found, ["loop0", "loop12"]);
    }

    #[test]
    fn mounts_are_told_by_the_number_of_their_device() {
        let mounts =
            "22 1 254:0 / / rw - ext4 /dev/vda rw\n36 22 7:1 / /mnt rw - ext4 /dev/loop1 rw\n";
        assert!(is_number_mounted(mounts, "7:1"));
        assert!(!is_number_mounted(mounts, "7:11"));
        assert!(!is_number_mounted(mounts, "36"));
    }
}

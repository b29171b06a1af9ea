//! Loop devices and kernel mounts, and that guards clean up after them.

use std::fs;
use std::path::{Path, PathBuf};

use extant_testkit::loopdev::{Access, LoopDevice};
use extant_testkit::mount::{KernelMount, Mode, Shutdown};
use extant_testkit::{oracle, require};

fn image(dir: &Path, options: &[&str]) -> PathBuf {
    let path = dir.join("t.ext4");
    oracle::mke2fs(&path, 16 << 20, options);
    path
}

fn is_mounted(point: &Path) -> bool {
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
    mounts
        .lines()
        .any(|l| l.split(' ').nth(4) == point.to_str())
}

/// The file behind a loop device; `None` when nothing is attached.
fn backing(device: &Path) -> Option<PathBuf> {
    let name = device.file_name()?.to_str()?;
    let file = fs::read_to_string(format!("/sys/block/{name}/loop/backing_file")).ok()?;
    Some(PathBuf::from(file.trim_end()))
}

#[test]
fn a_panic_unmounts_and_detaches() {
    require!(KernelExt4);
    let dir = tempfile::tempdir().unwrap();
    let image = image(dir.path(), &["-t", "ext4"]);
    let (tell, told) = std::sync::mpsc::channel();
    let panicked = std::thread::spawn({
        let image = image.clone();
        move || {
            let mount = KernelMount::mount(&image, Mode::ReadWrite, "");
            fs::write(mount.join("file"), b"x").unwrap();
            tell.send((mount.path().to_owned(), mount.device().path().to_owned()))
                .unwrap();
            panic!("a test fails on purpose");
        }
    })
    .join();
    assert!(panicked.is_err());
    let (point, device) = told.recv().unwrap();
    assert!(!is_mounted(&point), "{} is still mounted", point.display());
    assert!(!point.exists(), "{} is still there", point.display());
    assert_ne!(
        backing(&device),
        Some(image.clone()),
        "{} is still attached",
        device.display()
    );
    oracle::assert_clean(&image);
}

#[test]
fn more_devices_than_nodes_can_be_attached() {
    require!(LoopDevices);
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("zeros");
    fs::write(&file, vec![0; 1 << 20]).unwrap();
    let devices: Vec<LoopDevice> = (0..12)
        .map(|_| LoopDevice::attach(&file, Access::ReadOnly).unwrap())
        .collect();
    let mut paths: Vec<&Path> = devices.iter().map(LoopDevice::path).collect();
    paths.sort();
    paths.dedup();
    assert_eq!(paths.len(), 12);
    assert!(
        paths
            .iter()
            .all(|p| backing(p).as_deref() == Some(file.as_path()))
    );
}

#[test]
fn a_shut_down_file_system_has_a_dirty_journal_that_the_kernel_replays() {
    require!(KernelExt4);
    let dir = tempfile::tempdir().unwrap();
    let image = image(dir.path(), &["-t", "ext4"]);
    let mount = KernelMount::mount(&image, Mode::ReadWrite, "");
    fs::write(mount.join("committed"), b"this was flushed").unwrap();
    fs::File::open(mount.join("committed"))
        .unwrap()
        .sync_all()
        .unwrap();
    mount.shutdown(Shutdown::Now);
    assert!(oracle::dumpe2fs_header(&image).has_feature("needs_recovery"));
    let before = fs::read(&image).unwrap();
    {
        let untouched = KernelMount::mount(&image, Mode::Untouched, "noload");
        assert!(untouched.path().is_dir());
    }
    assert!(
        fs::read(&image).unwrap() == before,
        "an untouched mount wrote to the image"
    );
    let mount = KernelMount::mount(&image, Mode::ReadOnly, "");
    assert_eq!(
        fs::read(mount.join("committed")).unwrap(),
        b"this was flushed"
    );
    mount.unmount();
    assert!(!oracle::dumpe2fs_header(&image).has_feature("needs_recovery"));
    oracle::assert_clean(&image);
}

#[test]
fn mounts_work_side_by_side() {
    require!(KernelExt4);
    std::thread::scope(|scope| {
        for n in 0..6 {
            scope.spawn(move || {
                let dir = tempfile::tempdir().unwrap();
                let image = image(dir.path(), &["-t", "ext4", "-O", "^has_journal"]);
                for round in 0..3 {
                    let mount = KernelMount::mount(&image, Mode::ReadWrite, "");
                    fs::write(mount.join(format!("{n}-{round}")), b"").unwrap();
                    mount.unmount();
                }
                let mount = KernelMount::mount(&image, Mode::ReadOnly, "");
                assert_eq!(fs::read_dir(mount.path()).unwrap().count(), 4);
            });
        }
    });
}

//! Files that an image names are locked as the image is.

use crate::support::run;
use extant_blockdev::{FileOptions, SharedDevice};
use extant_formats::{Format, FormatError, OpenHow, open};
use rustix::fs::{FlockOperation, flock};
use std::fs::File;
use std::path::Path;
use std::sync::Arc;

/// Whether another program could lock a file so.
fn can_lock(path: &Path, how: FlockOperation) -> bool {
    let file = File::open(path).expect("the file");
    flock(&file, how).is_ok()
}

fn for_reading(path: &Path) -> bool {
    can_lock(path, FlockOperation::NonBlockingLockShared)
}

fn for_writing(path: &Path) -> bool {
    can_lock(path, FlockOperation::NonBlockingLockExclusive)
}

/// Opens an image, or says that something it needs is in use.
fn opened(path: &Path, format: Format, how: OpenHow, writable: bool) -> Option<SharedDevice> {
    let options = if writable {
        FileOptions::read_write()
    } else {
        FileOptions::read_only()
    };
    let file = Arc::new(options.open(path).expect("the image"));
    match open(file, format, &how.beside(path)) {
        Ok(disk) => Some(disk),
        Err(FormatError::Device(e)) => {
            assert!(e.to_string().contains("is in use"), "{e}");
            None
        }
        Err(e) => panic!("{e}"),
    }
}

#[test]
fn backing_files_are_kept_from_writers() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = |name: &str| dir.path().join(name);
    let (base, middle, top) = (path("base"), path("middle"), path("top"));
    run("qemu-img create -f raw {} 4M", &[&base]);
    run("qemu-img create -f qcow2 -F raw -b base {}", &[&middle]);
    run("qemu-img create -f qcow2 -F qcow2 -b middle {}", &[&top]);
    let qcow2 = Format::Qcow2;
    for (how, writable) in [
        (OpenHow::read_write(), true),
        (OpenHow::read_only().guarded(true), false),
    ] {
        let disk = opened(&top, qcow2, how.clone(), writable).expect("free files");
        for below in [&base, &middle] {
            assert!(for_reading(below), "{writable}");
            assert!(!for_writing(below), "{writable}");
        }
        drop(disk);
        for below in [&base, &middle] {
            assert!(for_writing(below));
            let writer = FileOptions::read_write().open(below).expect("it is free");
            assert!(opened(&top, qcow2, how.clone(), writable).is_none());
            drop(writer);
        }
    }
    // One that only looks keeps nobody out.
    let disk = opened(&top, qcow2, OpenHow::read_only(), false).expect("free files");
    assert!(for_writing(&base) && for_writing(&middle));
    drop(disk);
    // Two images on one base are written to at the same time.
    let second = path("second");
    run("qemu-img create -f qcow2 -F raw -b base {}", &[&second]);
    let one = opened(&middle, qcow2, OpenHow::read_write(), true);
    let other = opened(&second, qcow2, OpenHow::read_write(), true);
    assert!(one.is_some() && other.is_some());
}

#[test]
fn extents_are_locked_as_their_disk_is() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = |name: &str| dir.path().join(name);
    let (disk, extent) = (path("disk.vmdk"), path("disk-flat.vmdk"));
    run(
        "qemu-img create -f vmdk -o subformat=monolithicFlat {} 4M",
        &[&disk],
    );
    let vmdk = Format::Vmdk;
    let writer = opened(&disk, vmdk, OpenHow::read_write(), true).expect("free files");
    assert!(!for_reading(&extent) && !for_writing(&extent));
    assert!(opened(&disk, vmdk, OpenHow::read_only().guarded(true), false).is_none());
    assert!(opened(&disk, vmdk, OpenHow::read_only(), false).is_some());
    drop(writer);
    let reader = opened(&disk, vmdk, OpenHow::read_only().guarded(true), false);
    assert!(reader.is_some() && for_reading(&extent) && !for_writing(&extent));
    assert!(opened(&disk, vmdk, OpenHow::read_write(), true).is_none());
    drop(reader);
    // One file of two extents is locked once, and by whatever names.
    let text = std::fs::read_to_string(&disk).expect("a description");
    let half = "RW 4096 FLAT";
    let text = text.replace(
        "RW 8192 FLAT \"disk-flat.vmdk\" 0",
        &format!("{half} \"disk-flat.vmdk\" 0\n{half} \"disk-2.vmdk\" 4096"),
    );
    assert_eq!(text.matches(half).count(), 2, "{text}");
    std::fs::write(&disk, text).expect("room");
    std::fs::hard_link(&extent, path("disk-2.vmdk")).expect("a name");
    let writer = opened(&disk, vmdk, OpenHow::read_write(), true).expect("free files");
    writer.write_at(2 << 20, b"second half").expect("room");
    assert!(!for_reading(&extent));
}

//! Whatever a public signature mentions can be named from this crate alone.

use extant::device::{
    AlignedBuf, Completion, DirectMemory, Done, OverlayDevice, PendingBatch, Request, WindowDevice,
    WriteBuf,
};
use extant::errno::{EEXIST, EIO, ENOENT};
use extant::{
    Acl, BlockDevice, BlockSize, Cause, Content, DataMode, DeviceError, DeviceResult, Error,
    ErrorRecord, ErrorsBehaviour, Expected, Filesystem, FormatError, FormatResult, Group,
    ImageError, Ino, Lblk, MemoryDevice, MountOptions, Pblk, Place, SharedDevice, Structure,
    SuperblockChoice, Tid,
};
use extant_testkit::oracle::mke2fs;
use std::io;
use std::sync::Arc;

/// A device of somebody else, which can be read up to a byte.
#[derive(Debug)]
struct Torn {
    inner: MemoryDevice,
    end: u64,
}

impl BlockDevice for Torn {
    fn size(&self) -> u64 {
        self.inner.size()
    }

    fn is_read_only(&self) -> bool {
        true
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> DeviceResult<()> {
        if offset + buf.len() as u64 <= self.end {
            return self.inner.read_at(offset, buf);
        }
        Err(DeviceError::Io {
            op: "read",
            device: self.name(),
            offset,
            len: buf.len() as u64,
            source: io::Error::from_raw_os_error(EIO),
        })
    }

    fn write_at(&self, _offset: u64, _buf: &[u8]) -> DeviceResult<()> {
        Err(DeviceError::ReadOnly {
            device: self.name(),
        })
    }

    fn flush(&self) -> DeviceResult<()> {
        Ok(())
    }

    fn name(&self) -> String {
        "the torn tape".to_owned()
    }
}

/// An image of 32 MiB in groups of 4096 blocks of 4 KiB: the second one has a backup superblock.
fn image() -> Vec<u8> {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("fs.img");
    mke2fs(&path, 32 << 20, &["-t", "ext4", "-b", "4096", "-g", "4096"]);
    std::fs::read(&path).unwrap()
}

fn image_error(error: &Error) -> &ImageError {
    match error.cause() {
        Cause::Image(e) => e,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_device_of_somebody_else_says_why_it_failed() {
    let device: SharedDevice = Arc::new(Torn {
        inner: MemoryDevice::from_image(&image()),
        end: 512,
    });
    let error = Filesystem::open_device(device, MountOptions::read_only()).unwrap_err();
    let e = image_error(&error);
    assert_eq!(e.errno(), EIO);
    assert!(!e.is_corruption());
    assert!(
        matches!(e.device(), Some(DeviceError::Io { device, .. }) if device == "the torn tape")
    );
    assert!(e.format().is_none() && e.place().is_none() && e.unsupported_features().is_none());
}

#[test]
fn a_backup_superblock_is_chosen_when_the_first_is_damaged() {
    let mut image = image();
    image[1024..2048].fill(0);
    let open = |options| {
        let device: SharedDevice = Arc::new(MemoryDevice::from_image(&image));
        Filesystem::open_device(device, options)
    };
    let error = open(MountOptions::read_only()).unwrap_err();
    let e = image_error(&error);
    assert!(e.is_corruption());
    assert_eq!(e.place(), Some(Place::Superblock));
    let FormatError {
        structure, field, ..
    } = e.format().unwrap();
    assert_eq!((*structure, *field), (Structure::Superblock, "magic"));

    let backup = SuperblockChoice::Backup {
        block: Pblk::new(4096),
        block_size: BlockSize::from_bytes(4096).unwrap(),
    };
    let fs = open(MountOptions::read_only().superblock(backup)).unwrap();
    assert!(fs.exists("/lost+found").unwrap());
}

#[test]
fn errors_of_paths_are_told_apart_by_number_and_kind() {
    let device: SharedDevice = Arc::new(MemoryDevice::from_image(&image()));
    let fs = Filesystem::open_device(device, MountOptions::read_write()).unwrap();
    let missing = fs.read("/none").unwrap_err();
    assert_eq!(missing.errno(), ENOENT);
    assert_eq!(image_error(&missing).kind(), io::ErrorKind::NotFound);
    assert_eq!(fs.create_dir("/lost+found").unwrap_err().errno(), EEXIST);
    let features = image_error(&missing).unsupported_features();
    assert_eq!(features, None);
}

#[test]
fn features_that_are_not_supported_are_named() {
    let mut image = image();
    // A bit of `s_feature_incompat` that no feature has.
    image[1024 + 0x63] |= 0x80;
    // Without a checksum of the superblock, which would be wrong.
    image[1024 + 0x65] &= !0x04;
    let device: SharedDevice = Arc::new(MemoryDevice::from_image(&image));
    let error = Filesystem::open_device(device, MountOptions::read_only()).unwrap_err();
    let features = image_error(&error).unsupported_features();
    assert!(features.is_some_and(|names| !names.is_empty()), "{error}");
}

fn named<T: ?Sized>() {}

/// The types that the tests above do not use: this compiles, or one of them has lost its name.
const _: fn() = || {
    named::<Acl>();
    named::<AlignedBuf>();
    named::<Completion>();
    named::<Content>();
    named::<DataMode>();
    named::<dyn DirectMemory>();
    named::<Done>();
    named::<ErrorRecord>();
    named::<ErrorsBehaviour>();
    named::<Expected>();
    named::<FormatResult<()>>();
    named::<Group>();
    named::<Ino>();
    named::<Lblk>();
    named::<OverlayDevice>();
    named::<dyn PendingBatch>();
    named::<Request>();
    named::<Tid>();
    named::<WindowDevice>();
    named::<WriteBuf>();
};

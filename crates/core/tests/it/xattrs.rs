//! Extended attributes and access control lists. What the kernel wrote is read back in `trees`.

use crate::support::Image;
use crate::walk::at_path;
use extant_blockdev::{BlockDevice, FileDevice};
use extant_core::xattr::{self, AclKind};
use extant_core::{Error, Place};
use extant_testkit::mount::{KernelMount, Mode};
use extant_testkit::plan::{Content, TreePlan};
use extant_testkit::require;

/// An image whose `/file` has attributes in the inode, in the block and in an inode of its own,
/// and an access control list.
fn image_with_attributes() -> Image {
    let image = Image::make(16, &["-t", "ext4", "-b", "4096", "-O", "ea_inode"], |_| ());
    let mount = KernelMount::mount(&image.path(), Mode::ReadWrite, "");
    let mut plan = TreePlan::new();
    plan.file("file", Content::empty())
        .xattr("user.small", "tiny")
        .xattr("user.medium", vec![b'm'; 1500])
        .xattr("trusted.large", vec![b'l'; 20_000])
        .access_acl(1234, 4321);
    plan.dir("dir").default_acl(99);
    plan.plant(mount.path());
    mount.unmount();
    image
}

fn overwrite(image: &Image, offset: u64, bytes: &[u8]) {
    let device = FileDevice::open(image.path()).unwrap();
    device.write_at(offset, bytes).unwrap();
    device.flush().unwrap();
}

#[test]
fn attributes_are_found_wherever_they_are_kept() {
    require!(LoopDevices, KernelExt4);
    let image = image_with_attributes();
    let fs = image.open();
    let file = at_path(&fs, "/file");
    let mut names = xattr::list(&fs, &file).unwrap();
    names.sort();
    assert_eq!(
        names,
        [
            &b"system.posix_acl_access"[..],
            b"trusted.large",
            b"user.medium",
            b"user.small"
        ]
    );
    let value = |name: &str| xattr::get(&fs, &file, name.as_bytes());
    assert_eq!(value("user.small").unwrap(), b"tiny");
    assert_eq!(value("user.medium").unwrap(), vec![b'm'; 1500]);
    assert_eq!(value("trusted.large").unwrap(), vec![b'l'; 20_000]);
    for absent in ["user.none", "system.data", "bogus", "", "user."] {
        assert!(matches!(value(absent), Err(Error::NoAttribute)), "{absent}");
    }
}

#[test]
fn access_control_lists_are_typed_and_in_the_form_of_the_system_calls() {
    require!(LoopDevices, KernelExt4);
    let image = image_with_attributes();
    let fs = image.open();
    let file = at_path(&fs, "/file");
    let acl = xattr::acl(&fs, &file, AclKind::Access).unwrap().unwrap();
    let text = acl.to_string();
    assert!(text.contains("user:1234:"), "{text}");
    assert!(text.contains("group:4321:"), "{text}");
    let raw = xattr::get(&fs, &file, b"system.posix_acl_access").unwrap();
    assert_eq!(raw, acl.encode_syscall());
    assert_eq!(acl.mode_bits(), file.disk().mode.permissions() & 0o777);
    assert_eq!(xattr::acl(&fs, &file, AclKind::Default).unwrap(), None);
    let dir = at_path(&fs, "/dir");
    let default = xattr::acl(&fs, &dir, AclKind::Default).unwrap().unwrap();
    assert!(default.to_string().contains("user:99:rwx"));
}

#[test]
fn a_damaged_attribute_block_is_named_and_the_inode_stays_readable() {
    require!(LoopDevices, KernelExt4);
    let image = image_with_attributes();
    let block = {
        let fs = image.open();
        at_path(&fs, "/file").disk().file_acl
    };
    overwrite(&image, block.get() * 4096 + 2000, b"damage");
    let fs = image.open();
    let file = at_path(&fs, "/file");
    match xattr::list(&fs, &file).unwrap_err() {
        Error::Corrupt { place, source } => {
            assert_eq!(place, Place::InodeBlock(file.ino(), block));
            assert!(source.is_checksum(), "{source}");
        }
        other => panic!("{other}"),
    }
}

#[test]
fn a_damaged_value_in_an_inode_of_its_own_is_named() {
    require!(LoopDevices, KernelExt4);
    let image = image_with_attributes();
    let bytes = std::fs::read(image.path()).unwrap();
    // The journal holds a copy of the value's blocks: damage all that are nothing but its letter.
    let blocks = bytes.chunks(4096).enumerate();
    for (block, _) in blocks.filter(|(_, block)| block.iter().all(|&b| b == b'l')) {
        overwrite(&image, block as u64 * 4096 + 5, b"x");
    }
    let fs = image.open();
    let file = at_path(&fs, "/file");
    let Err(error) = xattr::get(&fs, &file, b"trusted.large") else {
        panic!("a damaged value was returned");
    };
    assert!(
        matches!(&error, Error::Corrupt { source, .. } if source.is_checksum()),
        "{error}"
    );
    assert_eq!(xattr::get(&fs, &file, b"user.small").unwrap(), b"tiny");
}

#[test]
fn a_large_attribute_does_not_hide_a_short_link() {
    require!(LoopDevices, KernelExt4);
    let image = Image::make(16, &["-t", "ext4", "-b", "4096", "-O", "ea_inode"], |_| ());
    let mount = KernelMount::mount(&image.path(), Mode::ReadWrite, "");
    let mut plan = TreePlan::new();
    plan.symlink("link", "a short target")
        .xattr("trusted.large", vec![b'l'; 20_000]);
    plan.plant(mount.path());
    mount.unmount();
    let mount = KernelMount::mount(&image.path(), Mode::ReadOnly, "");
    let kernel = std::fs::read_link(mount.join("link"));
    mount.unmount();
    println!("the kernel says {kernel:?}");
    let fs = image.open();
    let link = at_path(&fs, "/link");
    assert_eq!(fs.read_link(&link).unwrap(), b"a short target");
    let value = xattr::get(&fs, &link, b"trusted.large").unwrap();
    assert_eq!(value, vec![b'l'; 20_000]);
}

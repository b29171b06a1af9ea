//! Extended attributes and access control lists. What the kernel wrote is read back in `trees`.

use crate::support::Image;
use crate::walk::at_path;
use extant_blockdev::{BlockDevice, FileDevice};
use extant_core::fs::Fs;
use extant_core::inode::{FileType, Held};
use extant_core::lifecycle::NewInode;
use extant_core::ops::{self, SetXattr};
use extant_core::xattr::{self, AclKind};
use extant_core::{Error, Place};
use extant_format::Ino;
use extant_format::acl::{Acl, AclEntry, AclWho};
use extant_testkit::mount::{KernelMount, Mode};
use extant_testkit::oracle::assert_clean;
use extant_testkit::plan::{Content, TreePlan};
use extant_testkit::require;
use extant_testkit::rng::{Rng, seed_from_env};
use std::collections::BTreeMap;
use std::ops::ControlFlow;

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

/// Attributes by name of one file.
type Attributes = BTreeMap<Vec<u8>, Vec<u8>>;

fn attributes_of(fs: &Fs, held: &Held) -> Attributes {
    let mut all = Attributes::new();
    ops::for_each_xattr_live(fs, held, |name, value| {
        all.insert(name.to_vec(), value.to_vec());
        ControlFlow::<()>::Continue(())
    })
    .unwrap();
    all
}

fn holds(fs: &Fs, count: usize) -> Vec<Held> {
    let root = fs.hold(Ino::ROOT).unwrap();
    (0..count)
        .map(|n| ops::lookup_held(fs, &root, format!("f{n}").as_bytes()).unwrap())
        .collect()
}

fn make_files(fs: &Fs, count: usize) -> Vec<Held> {
    let root = fs.hold(Ino::ROOT).unwrap();
    let new = NewInode::new(FileType::Regular, 0o644, ops::now());
    (0..count)
        .map(|n| ops::create(fs, &root, format!("f{n}").as_bytes(), &new).unwrap())
        .collect()
}

/// The attributes of `f0`, `f1`, ... as the kernel lists them.
fn kernel_attributes(image: &Image, count: usize) -> Vec<Attributes> {
    let mount = KernelMount::mount(&image.path(), Mode::ReadWrite, "");
    let of = |n: usize| {
        let path = mount.path().join(format!("f{n}"));
        let mut names = vec![0; 1 << 16];
        let len = rustix::fs::llistxattr(&path, &mut names[..]).unwrap();
        let names = names[..len].split(|byte| *byte == 0);
        names
            .filter(|name| !name.is_empty())
            .map(|name| {
                let mut value = vec![0; 1 << 16];
                let len = rustix::fs::lgetxattr(&path, name, &mut value[..]).unwrap();
                (name.to_vec(), value[..len].to_vec())
            })
            .collect()
    };
    let all = (0..count).map(of).collect();
    mount.unmount();
    all
}

/// Random changes of the attributes of a few files, which share blocks with each other.
fn change_at_random(options: &[&str], seed: u64) {
    const FILES: usize = 12;
    let mut rng = Rng::new(seed);
    let image = Image::make(16, options, |_| ());
    let mut fs = image.open_writable();
    let mut files = make_files(&fs, FILES);
    let mut wanted = vec![Attributes::new(); FILES];
    for step in 0..600 {
        let n = rng.below(FILES as u64) as usize;
        let name = [
            &b"user.a"[..],
            b"user.longer",
            b"trusted.x",
            b"security.label",
        ][rng.below(4) as usize]
            .to_vec();
        let file = &files[n];
        if rng.one_in(4) {
            let done = ops::removexattr(&fs, file, &name);
            match wanted[n].remove(&name) {
                Some(_) => done.unwrap(),
                None => assert!(matches!(done, Err(Error::NoAttribute)), "{done:?}"),
            }
        } else {
            // Few different values, so that blocks are equal often.
            let len = [0, 3, 40, 180, 500, 2000][rng.below(6) as usize];
            let value = vec![b'a' + rng.below(2) as u8; len];
            let how = match rng.below(5) {
                0 => SetXattr::Create,
                1 => SetXattr::Replace,
                _ => SetXattr::Any,
            };
            let known = wanted[n].contains_key(&name);
            match ops::setxattr(&fs, file, &name, &value, how) {
                Ok(()) => {
                    assert!(
                        how != if known {
                            SetXattr::Create
                        } else {
                            SetXattr::Replace
                        }
                    );
                    wanted[n].insert(name, value);
                }
                Err(Error::Exists) => assert!(known && how == SetXattr::Create),
                Err(Error::NoAttribute) => assert!(!known && how == SetXattr::Replace),
                // Beside 500 and twice 180 bytes there is no room for 40 in a block of 1 KiB.
                Err(e) => assert!(matches!(e, Error::NoSpace) && len >= 40, "{e}"),
            }
        }
        assert_eq!(attributes_of(&fs, &files[n]), wanted[n], "step {step}");
        if rng.one_in(150) {
            drop(files);
            fs.close().unwrap();
            assert_clean(&image.path());
            drop(fs);
            fs = image.open_writable();
            files = holds(&fs, FILES);
        }
    }
    for (file, wanted) in files.iter().zip(&wanted) {
        assert_eq!(attributes_of(&fs, file), *wanted);
    }
    drop(files);
    fs.close().unwrap();
    drop(fs);
    assert_clean(&image.path());
    assert_eq!(kernel_attributes(&image, FILES), wanted);
    // Deleting them frees the blocks they shared.
    let fs = image.open_writable();
    let root = fs.hold(Ino::ROOT).unwrap();
    for n in 0..FILES {
        ops::unlink(&fs, &root, format!("f{n}").as_bytes()).unwrap();
    }
    drop(root);
    fs.close().unwrap();
    assert_clean(&image.path());
}

#[test]
fn attributes_are_set_and_removed_in_inodes_and_shared_blocks() {
    require!(LoopDevices, KernelExt4);
    let seed = seed_from_env("attributes");
    change_at_random(&["-t", "ext4", "-b", "4096"], seed);
    change_at_random(
        &["-t", "ext4", "-b", "1024", "-O", "^metadata_csum"],
        seed + 1,
    );
    change_at_random(&["-t", "ext4", "-I", "128", "-O", "^extra_isize"], seed + 2);
}

#[test]
fn equal_attributes_share_one_block_until_one_changes() {
    require!(LoopDevices, KernelExt4);
    let image = Image::make(16, &["-t", "ext4", "-b", "4096"], |_| ());
    let fs = image.open_writable();
    let files = make_files(&fs, 3);
    let free = fs.statfs().unwrap().free;
    for file in &files {
        ops::setxattr(&fs, file, b"user.big", &[b'x'; 1000], SetXattr::Any).unwrap();
    }
    let block = |file: &Held| file.snapshot().disk().file_acl;
    assert_eq!(block(&files[0]), block(&files[1]));
    assert_eq!(fs.statfs().unwrap().free, free - 1);
    ops::setxattr(&fs, &files[1], b"user.big", &[b'y'; 1000], SetXattr::Any).unwrap();
    assert_ne!(block(&files[0]), block(&files[1]));
    ops::setxattr(&fs, &files[1], b"user.big", &[b'x'; 1000], SetXattr::Any).unwrap();
    assert_eq!(block(&files[0]), block(&files[1]));
    for file in &files {
        ops::removexattr(&fs, file, b"user.big").unwrap();
    }
    ops::syncfs(&fs).unwrap();
    assert_eq!(fs.statfs().unwrap().free, free);
    drop(files);
    fs.close().unwrap();
    assert_clean(&image.path());
}

#[test]
fn what_linux_refuses_is_refused_with_its_errors() {
    let image = Image::make(16, &["-t", "ext4"], |_| ());
    let fs = image.open_writable();
    let file = make_files(&fs, 1).remove(0);
    let root = fs.hold(Ino::ROOT).unwrap();
    let new = NewInode::new(FileType::Symlink, 0o777, ops::now());
    let link = ops::symlink(&fs, &root, b"link", b"f0", &new).unwrap();
    let set = |held: &Held, name: &[u8], value: &[u8]| {
        let done = ops::setxattr(&fs, held, name, value, SetXattr::Any);
        done.map_err(|e| e.errno()).err()
    };
    let long = [&b"user."[..], &[b'n'; 251]].concat();
    for (held, name, value, errno) in [
        (&file, &b""[..], &b""[..], 34),
        (&file, &long, b"", 34),
        (&file, b"user.", b"", 22),
        (&file, b"nothing.x", b"", 95),
        (&file, b"system.data", b"", 95),
        (&file, b"user.x", &[0; 65_537], 7),
        (&file, b"user.x", &[0; 5000], 28),
        (&link, b"user.x", b"", 1),
        (&link, b"system.posix_acl_access", b"", 95),
        (
            &file,
            b"system.posix_acl_default",
            &Acl::new(list(7, 7)).unwrap().encode_syscall(),
            13,
        ),
        (&file, b"system.posix_acl_access", b"nonsense", 22),
    ] {
        assert_eq!(
            set(held, name, value),
            Some(errno),
            "{}",
            name.escape_ascii()
        );
    }
    assert_eq!(set(&link, b"trusted.x", b"v"), None);
    let gone = ops::removexattr(&fs, &file, b"user.none").unwrap_err();
    assert_eq!(gone.errno(), 61);
    drop((file, link, root));
    fs.close().unwrap();
    assert_clean(&image.path());
}

/// Owner, user 99, group, mask and others.
fn list(user: u8, mask: u8) -> Vec<AclEntry> {
    let who = [
        AclWho::Owner,
        AclWho::User(99),
        AclWho::Group,
        AclWho::Mask,
        AclWho::Other,
    ];
    let permissions = [6, user, 4, mask, 0];
    who.into_iter()
        .zip(permissions)
        .map(|(who, permissions)| AclEntry { who, permissions })
        .collect()
}

#[test]
fn lists_and_modes_stay_in_step_and_are_inherited() {
    require!(LoopDevices, KernelExt4);
    let image = Image::make(16, &["-t", "ext4", "-b", "4096"], |_| ());
    let fs = image.open_writable();
    let file = make_files(&fs, 1).remove(0);
    let acl = Acl::new(list(7, 5)).unwrap();
    ops::setacl(&fs, &file, AclKind::Access, Some(&acl)).unwrap();
    assert_eq!(file.snapshot().disk().mode.permissions(), 0o650);
    ops::chmod(&fs, &file, 0o4631).unwrap();
    let now = ops::getacl(&fs, &file, AclKind::Access).unwrap().unwrap();
    let permissions: Vec<u8> = now.entries().iter().map(|e| e.permissions).collect();
    assert_eq!(permissions, [6, 7, 4, 3, 1]);
    assert_eq!(file.snapshot().disk().mode.permissions(), 0o4631);

    // A default list too large for inodes.
    let root = fs.hold(Ino::ROOT).unwrap();
    let new = NewInode::new(FileType::Directory, 0o755, ops::now());
    let dir = ops::mkdir(&fs, &root, b"dir", &new).unwrap();
    let mut entries = list(7, 7);
    entries.splice(
        1..2,
        (0..60).map(|n| AclEntry {
            who: AclWho::User(n),
            permissions: 5,
        }),
    );
    let large = Acl::new(entries).unwrap();
    ops::setacl(&fs, &dir, AclKind::Default, Some(&large)).unwrap();
    let sub = ops::mkdir(&fs, &dir, b"sub", &new).unwrap();
    let new = NewInode::new(FileType::Regular, 0o666, ops::now());
    let inner = ops::create(&fs, &sub, b"f", &new).unwrap();
    assert_eq!(
        ops::getacl(&fs, &sub, AclKind::Default).unwrap(),
        Some(large)
    );
    let got = ops::getacl(&fs, &inner, AclKind::Access).unwrap().unwrap();
    assert_eq!(got.entries().len(), 64);
    let minimal = Acl::new(
        list(0, 0)
            .into_iter()
            .filter(|e| !matches!(e.who, AclWho::User(_) | AclWho::Mask))
            .collect(),
    );
    ops::setacl(&fs, &file, AclKind::Access, Some(&minimal.unwrap())).unwrap();
    assert_eq!(ops::getacl(&fs, &file, AclKind::Access).unwrap(), None);
    assert_eq!(file.snapshot().disk().mode.permissions(), 0o4640);
    drop((file, root, dir, sub, inner));
    fs.close().unwrap();
    assert_clean(&image.path());
    let mount = KernelMount::mount(&image.path(), Mode::ReadWrite, "");
    let mut value = vec![0; 4096];
    let path = mount.path().join("dir/sub/f");
    let len = rustix::fs::getxattr(&path, "system.posix_acl_access", &mut value[..]).unwrap();
    assert_eq!(value[..len], got.encode_syscall());
    mount.unmount();
}

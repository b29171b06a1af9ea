//! What owners use while files come, go and change hands: e2fsck counts again.

use crate::quotas::agree;
use crate::support::{Image, pattern};
use extant_blockdev::{FileDevice, MemoryDevice};
use extant_core::data::FallocateMode;
use extant_core::fs::{Fs, MountOptions};
use extant_core::inode::{FileType, Held};
use extant_core::lifecycle::NewInode;
use extant_core::ops::{self, SetXattr};
use extant_core::quota::QuotaKind;
use extant_core::{Error, Result};
use extant_format::Ino;
use extant_format::features::{Incompat, RoCompat};
use extant_format::inode::{InodeFlags, Timestamp};
use extant_testkit::oracle::{assert_clean, debugfs, debugfs_write};
use extant_testkit::require;
use extant_testkit::rng::{Rng, seed_from_env};
use std::collections::BTreeMap;
use std::sync::Arc;

/// How file systems are made, and whether they count projects.
const FORMS: [(&[&str], bool); 8] = [
    (&["-t", "ext4", "-b", "1024", "-O", "quota,project"], true),
    (
        &[
            "-t",
            "ext4",
            "-b",
            "4096",
            "-O",
            "quota,project,orphan_file",
        ],
        true,
    ),
    (
        &[
            "-t",
            "ext4",
            "-b",
            "2048",
            "-O",
            "quota,^metadata_csum,^64bit",
            "-I",
            "128",
        ],
        false,
    ),
    (
        &[
            "-t",
            "ext4",
            "-b",
            "1024",
            "-O",
            "quota,project,bigalloc",
            "-C",
            "8192",
        ],
        true,
    ),
    (&["-t", "ext3", "-b", "1024", "-O", "quota"], false),
    (
        &[
            "-t",
            "ext4",
            "-b",
            "4096",
            "-O",
            "quota,project,inline_data,^has_journal",
        ],
        true,
    ),
    (
        &[
            "-t",
            "ext4",
            "-b",
            "1024",
            "-O",
            "quota,project,ea_inode,orphan_file",
        ],
        true,
    ),
    (
        &[
            "-t",
            "ext4",
            "-b",
            "1024",
            "-I",
            "256",
            "-O",
            "quota,project,ea_inode,inline_data,bigalloc",
            "-C",
            "4096",
        ],
        true,
    ),
];

pub(crate) fn new(file_type: FileType, uid: u32, gid: u32) -> NewInode {
    NewInode {
        uid,
        gid,
        ..NewInode::new(file_type, 0o755, Timestamp::default())
    }
}

/// Compares what the image says with what e2fsck counts, and with what we list.
pub(crate) fn check(image: &Image, has_projects: bool) {
    assert_clean(&image.path());
    let kinds = [QuotaKind::User, QuotaKind::Group, QuotaKind::Project];
    for kind in kinds.into_iter().take(2 + usize::from(has_projects)) {
        agree(image, kind);
    }
}

/// Ids that lie together, and ids that share no node with any other.
fn owner(rng: &mut Rng) -> u32 {
    match rng.below(3) {
        0 => rng.below(6) as u32,
        1 => 1000 + rng.below(40) as u32,
        _ => (rng.below(200) as u32) * 0x0142_0013,
    }
}

/// One operation by chance in one of the directories.
fn step(
    fs: &Fs,
    rng: &mut Rng,
    dirs: &[Held],
    files: &mut BTreeMap<(usize, u64), Held>,
    n: u64,
) -> Result<()> {
    let at = rng.below(dirs.len() as u64) as usize;
    let dir = &dirs[at];
    let name = |n: u64| format!("name {n}").into_bytes();
    let keys: Vec<(usize, u64)> = files.keys().copied().collect();
    let some = (!keys.is_empty()).then(|| *rng.pick(&keys));
    let (uid, gid) = (owner(rng), owner(rng));
    match (rng.below(13), some) {
        (0..4, _) | (_, None) => {
            let made = match rng.below(4) {
                0 => ops::symlink(
                    fs,
                    dir,
                    &name(n),
                    &vec![b'x'; rng.between(1, 900) as usize],
                    &new(FileType::Symlink, uid, gid),
                )?,
                1 => ops::create(fs, dir, &name(n), &new(FileType::Fifo, uid, gid))?,
                _ => ops::create(fs, dir, &name(n), &new(FileType::Regular, uid, gid))?,
            };
            files.insert((at, n), made);
        }
        (4, Some(key)) => {
            files.remove(&key);
            ops::unlink(fs, &dirs[key.0], &name(key.1))?;
        }
        (5, Some(key)) => ops::chown(fs, &files[&key], Some(uid), rng.one_in(2).then_some(gid))?,
        (12, Some(key)) if fs.superblock().has_ro_compat(RoCompat::PROJECT) => {
            ops::set_project(fs, &files[&key], uid)?
        }
        (6, Some(key)) => {
            // Large ones of few kinds, so that files have the same.
            let value = if fs.superblock().has_incompat(Incompat::EA_INODE) && rng.one_in(2) {
                vec![7; *rng.pick(&[1500, 4096, 4097, 20_000])]
            } else {
                pattern(n, rng.between(1, 800) as usize)
            };
            let name: &[u8] = if rng.one_in(2) {
                b"trusted.a"
            } else {
                b"trusted.b"
            };
            match ops::setxattr(fs, &files[&key], name, &value, SetXattr::Any) {
                Ok(()) | Err(Error::NoSpace) => {}
                Err(e) => return Err(e),
            }
        }
        (7, Some(_)) => {
            ops::mkdir(fs, dir, &name(n), &new(FileType::Directory, uid, gid)).map(drop)?
        }
        (8, Some(key)) => {
            let file = &files[&key];
            if file.snapshot().file_type() == FileType::Regular {
                ops::truncate(fs, file, rng.below(300_000))?;
            }
        }
        (9, Some(key)) => {
            let file = &files[&key];
            let has_extents = file.snapshot().flags().contains(InodeFlags::EXTENTS);
            if has_extents && file.snapshot().file_type() == FileType::Regular {
                ops::fallocate(
                    fs,
                    file,
                    rng.below(50_000),
                    rng.between(1, 100_000),
                    FallocateMode::default(),
                )?;
            }
        }
        (10, Some(_)) if rng.one_in(4) => fs.sync()?,
        (_, Some(key)) => {
            let file = &files[&key];
            if file.snapshot().file_type() == FileType::Regular {
                ops::pwrite(
                    fs,
                    file,
                    rng.below(200_000),
                    &pattern(n, rng.between(1, 60_000) as usize),
                )?;
            }
        }
    }
    Ok(())
}

#[test]
fn what_is_in_use_is_counted() {
    require!(Root);
    let seed = seed_from_env("what_is_in_use_is_counted");
    let mut rng = Rng::new(seed);
    for (form, has_projects) in FORMS {
        println!("{form:?}");
        let image = Image::make(48, &[form, &["-N", "2048"]].concat(), |tree| {
            for dir in ["plain", "group", "project"] {
                std::fs::create_dir(tree.join(dir)).unwrap();
            }
        });
        debugfs_write(
            &image.path(),
            &["sif group mode 042755", "sif group gid 77"],
        );
        if has_projects {
            debugfs_write(&image.path(), &["sif project projid 88"]);
        }
        let run = extant_testkit::oracle::e2fsck(&image.path(), &["-fy"]);
        assert!(run.code <= 1, "{run}");
        let (mut n, mut full) = (0, 0);
        for session in 0..3 {
            println!("session {session}");
            let fs = image.open_writable();
            let mut dirs = vec![fs.hold(Ino::ROOT).unwrap()];
            for name in ["plain", "group", "project"] {
                let ino = ops::lookup(&fs, &dirs[0].snapshot(), name.as_bytes()).unwrap();
                dirs.push(fs.hold(ino.ino()).unwrap());
            }
            if has_projects {
                let flag = InodeFlags::PROJECT_INHERIT;
                ops::chattr(&*fs, &dirs[3], flag, InodeFlags::empty()).unwrap();
            }
            let mut files = BTreeMap::new();
            for _ in 0..150 {
                n += 1;
                match step(&fs, &mut rng, &dirs, &mut files, n) {
                    Err(Error::NoSpace) => full += 1,
                    done => done.unwrap_or_else(|e| panic!("step {n}: {e}")),
                }
            }
            drop((files, dirs));
            fs.close().unwrap();
            drop(fs);
            check(&image, has_projects);
        }
        assert!(full < n / 3, "{full} of {n} steps found no space");
        if has_projects {
            let listed = debugfs(&image.path(), "list_quota project");
            assert!(
                listed
                    .lines()
                    .any(|line| line.trim_start().starts_with("88 ")),
                "{listed}"
            );
        }
    }
}

#[test]
fn threads_that_make_files_for_many_owners_are_all_counted() {
    let seed = seed_from_env("threads among owners");
    let image = Image::make(
        64,
        &[
            "-t",
            "ext4",
            "-b",
            "1024",
            "-O",
            "quota,project",
            "-J",
            "size=16",
            "-N",
            "8192",
        ],
        |_| {},
    );
    let device = FileDevice::open(image.path()).unwrap();
    let options = MountOptions::read_write().commit_interval(std::time::Duration::from_millis(3));
    let fs = Fs::open(Arc::new(device), options).unwrap();
    let root = fs.hold(Ino::ROOT).unwrap();
    std::thread::scope(|scope| {
        for thread in 0..4_u64 {
            let (fs, root) = (&fs, &root);
            scope.spawn(move || {
                let mut rng = Rng::new(seed + thread);
                for i in 0..250 {
                    let name = format!("{thread}-{i}").into_bytes();
                    let (uid, gid) = (owner(&mut rng), owner(&mut rng));
                    let file =
                        ops::create(fs, root, &name, &new(FileType::Regular, uid, gid)).unwrap();
                    ops::pwrite(fs, &file, 0, &pattern(i, rng.below(5000) as usize)).unwrap();
                    match rng.below(4) {
                        0 => ops::unlink(fs, root, &name).unwrap(),
                        1 => ops::chown(fs, &file, Some(owner(&mut rng)), None).unwrap(),
                        2 if rng.one_in(8) => {
                            let fs: &Fs = fs;
                            let listed = ops::quotas(fs, QuotaKind::User, |_| {
                                std::ops::ControlFlow::Continue(())
                            });
                            assert!(listed.unwrap());
                        }
                        _ => {}
                    }
                }
            });
        }
    });
    drop(root);
    fs.close().unwrap();
    drop(fs);
    check(&image, true);
}

#[test]
fn what_is_committed_is_what_is_told() {
    let image = Image::make(8, &["-t", "ext4", "-O", "quota"], |_| {});
    let fs = image.open_writable();
    let root = fs.hold(Ino::ROOT).unwrap();
    let file = ops::create(&*fs, &root, b"f", &new(FileType::Regular, 5, 6)).unwrap();
    ops::pwrite(&*fs, &file, 0, &[1; 10_000]).unwrap();
    let told = |kind, id| {
        let quota = ops::quota(&*fs, kind, id).unwrap().unwrap();
        (quota.space, quota.inodes)
    };
    fs.sync().unwrap();
    let space = file.snapshot().disk().sectors(fs.block_size()) * 512;
    assert!(space >= 10_000);
    assert_eq!(told(QuotaKind::User, 5), (space, 1));
    assert_eq!(told(QuotaKind::Group, 6), (space, 1));
    ops::chown(&*fs, &file, Some(7), None).unwrap();
    fs.sync().unwrap();
    assert_eq!(told(QuotaKind::User, 5), (0, 0));
    assert_eq!(told(QuotaKind::User, 7), (space, 1));
    ops::unlink(&*fs, &root, b"f").unwrap();
    fs.sync().unwrap();
    // It is open, so it is there.
    assert_eq!(told(QuotaKind::User, 7), (space, 1));
    ops::release(&fs, file).unwrap();
    fs.sync().unwrap();
    assert_eq!(told(QuotaKind::User, 7), (0, 0));
    drop(root);
    fs.close().unwrap();
    check(&image, false);
}

#[test]
fn a_directory_of_a_project_takes_nothing_of_another() {
    require!(Root);
    let image = Image::make(8, &["-t", "ext4", "-I", "256", "-O", "project"], |tree| {
        for dir in ["ours", "theirs"] {
            std::fs::create_dir(tree.join(dir)).unwrap();
        }
        std::fs::write(tree.join("free"), b"x").unwrap();
    });
    debugfs_write(
        &image.path(),
        &["sif ours projid 5", "sif ours flags 0x20080000"],
    );
    let fs = image.open_writable();
    let root = fs.hold(Ino::ROOT).unwrap();
    let hold = |name: &str| {
        fs.hold(
            ops::lookup(&fs, &root.snapshot(), name.as_bytes())
                .unwrap()
                .ino(),
        )
        .unwrap()
    };
    let (ours, theirs, free) = (hold("ours"), hold("theirs"), hold("free"));
    let own = ops::create(&*fs, &ours, b"own", &new(FileType::Regular, 0, 0)).unwrap();
    assert_eq!(own.snapshot().disk().project, Some(5));
    let sub = ops::mkdir(&*fs, &ours, b"sub", &new(FileType::Directory, 0, 0)).unwrap();
    assert!(sub.snapshot().flags().contains(InodeFlags::PROJECT_INHERIT));
    assert_eq!(sub.snapshot().disk().project, Some(5));
    let refused = |done: Result<()>| assert_eq!(done.unwrap_err().errno(), 18);
    refused(ops::link(&*fs, &free, &ours, b"free"));
    refused(ops::rename(&*fs, &root, b"free", &ours, b"free"));
    refused(ops::rename(&*fs, &root, b"free", &ours, b"own"));
    refused(ops::exchange(&*fs, (&root, b"free"), (&ours, b"own")));
    refused(ops::exchange(&*fs, (&ours, b"own"), (&root, b"free")));
    refused(ops::rename(&*fs, &root, b"theirs", &ours, b"theirs"));
    // Out of it, and within it, everything moves.
    ops::link(&*fs, &own, &sub, b"again").unwrap();
    ops::rename(&*fs, &ours, b"own", &theirs, b"own").unwrap();
    ops::rename(&*fs, &theirs, b"own", &ours, b"own").unwrap();
    drop((root, ours, theirs, free, own, sub));
    fs.close().unwrap();
    assert_clean(&image.path());
}

/// Changes a file system as others would; every error is fine.
fn exercise(bytes: &[u8]) -> bool {
    let device = Arc::new(MemoryDevice::from_image(bytes));
    let options = MountOptions::read_write().background(false).memory(1 << 20);
    let Ok(fs) = Fs::open(device, options) else {
        return false;
    };
    let Ok(root) = fs.hold(Ino::ROOT) else {
        return false;
    };
    let mut done = false;
    for i in 0..6 {
        let name = format!("new {i}").into_bytes();
        let by = [3, 0x0700_0000 * i, 1 << i];
        let Ok(file) = ops::create(&*fs, &root, &name, &new(FileType::Regular, by[0], by[1]))
        else {
            continue;
        };
        done |= ops::pwrite(&*fs, &file, 0, &[1; 3000]).is_ok();
        let _ = ops::chown(&*fs, &file, Some(by[2]), None);
        let _ = fs.sync();
        if i % 2 == 0 {
            let _ = ops::unlink(&*fs, &root, &name);
        }
    }
    drop(root);
    let _ = fs.close();
    done
}

#[test]
fn damaged_quota_files_stop_changes_and_nothing_else() {
    require!(Root);
    let seed = seed_from_env("damaged_quota_files_stop_changes");
    let mut rng = Rng::new(seed);
    let image = Image::make(
        4,
        &[
            "-t",
            "ext4",
            "-b",
            "1024",
            "-O",
            "quota,^metadata_csum",
            "-I",
            "256",
        ],
        |_| {},
    );
    {
        let fs = image.open_writable();
        let root = fs.hold(Ino::ROOT).unwrap();
        for i in 0..40 {
            let owner = if i < 30 { i } else { i << 20 };
            ops::create(
                &*fs,
                &root,
                format!("{i}").as_bytes(),
                &new(FileType::Regular, owner, 9),
            )
            .unwrap();
        }
        drop(root);
        fs.close().unwrap();
    }
    check(&image, false);
    let bytes = std::fs::read(image.path()).unwrap();
    let numbers = |what: &str| -> Vec<u64> {
        let text = debugfs(&image.path(), what);
        text.split_whitespace()
            .map(|n| n.parse().unwrap())
            .collect()
    };
    let mut blocks = numbers("blocks <3>");
    blocks.extend(numbers("blocks <4>"));
    let record = {
        let fs = image.open();
        let (block, offset) = fs.locate_inode(Ino::new(3)).unwrap();
        block.get() * 1024 + offset as u64
    };
    let (mut opened, mut refused) = (0, 0);
    for _ in 0..300 {
        let mut bytes = bytes.clone();
        for _ in 0..rng.between(1, 12) {
            let at = match rng.below(8) {
                // The records of both files.
                0 => record + rng.below(512),
                _ => *rng.pick(&blocks) * 1024 + rng.below(1024),
            };
            bytes[at as usize] = *rng.pick(&[0, 1, 2, 3, 0x7f, 0xff]);
        }
        if exercise(&bytes) {
            opened += 1
        } else {
            refused += 1
        }
    }
    println!("{opened} were changed, {refused} refused");
    assert!(opened > 20 && refused > 0, "{opened} {refused}");
    // A map that leads to the file system's own blocks is not written to.
    let mut bytes = bytes.clone();
    let at = record as usize + 40 + 12;
    assert_eq!(
        u64::from(u32::from_le_bytes(
            bytes[at + 8..at + 12].try_into().unwrap()
        )),
        blocks[0]
    );
    let table = (record / 1024) as u32;
    bytes[at + 8..at + 12].copy_from_slice(&table.to_le_bytes());
    let device = Arc::new(MemoryDevice::from_image(&bytes));
    let error = Fs::open(device, MountOptions::read_write()).unwrap_err();
    assert_eq!(error.errno(), 117, "{error}");
}

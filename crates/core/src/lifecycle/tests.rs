//! Inodes that come and go, on images that Linux looks at before and after.

mod groups;
mod interrupted;
mod many;

use super::NewInode;
use crate::fs::{Fs, MountOptions};
use crate::inode::{Bulkstat, BulkstatWay, FileType, Held, LiveInode};
use crate::{Error, data, dir, map, ops};
use extant_blockdev::{FileDevice, SharedDevice};
use extant_format::acl::{Acl, AclEntry, AclWho};
use extant_format::inode::Timestamp;
use extant_format::{Ino, Lblk};
use extant_testkit::mount::{KernelMount, Mode, Shutdown};
use extant_testkit::oracle::{assert_clean, debugfs_write, mke2fs};
use extant_testkit::rng::Rng;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tempfile::TempDir;

/// The list alone, and the file with the list behind it.
const KINDS: &[&[&str]] = &[
    &["-t", "ext4", "-b", "4096", "-O", "^orphan_file"],
    &["-t", "ext4", "-b", "1024", "-O", "orphan_file"],
    &[
        "-t",
        "ext4",
        "-b",
        "1024",
        "-O",
        "^orphan_file,^metadata_csum,uninit_bg",
    ],
];

struct Image {
    _dir: TempDir,
    path: PathBuf,
}

impl Image {
    fn new(options: &[&str]) -> Self {
        let dir = TempDir::new().unwrap();
        let path = dir.path().join("image");
        mke2fs(&path, 32 << 20, options);
        Self { _dir: dir, path }
    }

    fn open(&self) -> Arc<Fs> {
        self.open_with(MountOptions::read_write().background(false))
    }

    fn open_with(&self, options: MountOptions) -> Arc<Fs> {
        let device: SharedDevice = Arc::new(FileDevice::open(&self.path).unwrap());
        Fs::open(device, options).unwrap()
    }

    fn copy(&self) -> Self {
        let dir = TempDir::new().unwrap();
        let path = dir.path().join("image");
        fs::copy(&self.path, &path).unwrap();
        Self { _dir: dir, path }
    }
}

fn now() -> Timestamp {
    Timestamp::from_secs(1_800_000_000)
}

/// A file without a name, noted as an orphan.
fn orphan(fs: &Fs) -> Held {
    let parent = fs.inode(Ino::ROOT).unwrap();
    let handle = fs
        .start(fs.new_inode_credits() + fs.orphan_credits())
        .unwrap();
    let new = NewInode::new(FileType::Regular, 0o644, now());
    let held = fs.new_inode(&handle, &parent, &new).unwrap();
    held.live()
        .update(&handle, |inode| inode.disk_mut().links = 0)
        .unwrap();
    fs.orphan_add(&handle, held.live()).unwrap();
    held
}

fn commit(fs: &Fs) {
    fs.commit(fs.journal().unwrap().running()).unwrap();
}

fn free_inodes(fs: &Fs) -> u64 {
    fs.statfs().unwrap().free_inodes
}

#[test]
fn an_abandoned_inode_leaves_no_trace() {
    for kind in KINDS {
        let image = Image::new(kind);
        let fs = image.open();
        let parent = fs.inode(Ino::ROOT).unwrap();
        for file_type in [FileType::Regular, FileType::Directory, FileType::Fifo] {
            let handle = fs.start(fs.new_inode_credits() + 30).unwrap();
            let new = NewInode::new(file_type, 0o755, now());
            let held = fs.new_inode(&handle, &parent, &new).unwrap();
            let ino = held.ino();
            assert_eq!(fs.inode(ino).unwrap().file_type(), file_type);
            fs.abandon_inode(&handle, held);
            drop(handle);
            assert!(matches!(fs.inode(ino), Err(Error::Stale)));
            assert!(matches!(fs.hold(ino), Err(Error::Stale)));
            commit(&fs);
            assert!(matches!(fs.inode(ino), Err(Error::Stale)));
        }
        fs.close().unwrap();
        drop(fs);
        assert_clean(&image.path);
    }
}

#[test]
fn the_last_hold_deletes_an_inode_without_names() {
    for kind in KINDS {
        let image = Image::new(kind);
        let fs = image.open();
        let before = free_inodes(&fs);
        let held = orphan(&fs);
        let second = held.clone();
        commit(&fs);
        drop(held);
        fs.reap().unwrap();
        assert_eq!(second.snapshot().disk().links, 0);
        assert!(!second.is_leaving());
        let ino = second.ino();
        drop(second);
        fs.reap().unwrap();
        assert!(matches!(fs.hold(ino), Err(Error::Stale)));
        assert_eq!(free_inodes(&fs), before);
        fs.close().unwrap();
        drop(fs);
        assert_clean(&image.path);
    }
}

#[test]
fn orphans_that_a_crash_left_are_deleted_by_us_and_by_linux() {
    for kind in KINDS {
        let image = Image::new(kind);
        let fs = image.open();
        let before = free_inodes(&fs);
        let held: Vec<Held> = (0..20).map(|_| orphan(&fs)).collect();
        // Off again, from the middle, the front and the end.
        for at in [10, 19, 0] {
            let handle = fs.start(fs.orphan_credits() + 30).unwrap();
            let live: &Arc<LiveInode> = held[at].live();
            fs.orphan_erase(&handle, live).unwrap();
            fs.orphan_erase(&handle, live).unwrap();
            fs.orphan_add(&handle, live).unwrap();
            fs.orphan_add(&handle, live).unwrap();
        }
        commit(&fs);
        std::mem::forget(held);
        // Without closing: what was committed is in the log.
        drop(fs);

        let by_linux = image.copy();
        KernelMount::mount(&by_linux.path, Mode::ReadWrite, "").unmount();
        assert_clean(&by_linux.path);

        let fs = image.open();
        assert_eq!(free_inodes(&fs), before, "{kind:?}");
        // Found, and taken back, in the place where each was.
        let stats = fs.orphan_stats();
        assert_eq!(stats.list_added, stats.list_removed, "{kind:?}");
        assert_eq!(stats.file_added, stats.file_removed, "{kind:?}");
        assert_eq!(stats.list_added + stats.file_added, 20, "{kind:?}");
        fs.close().unwrap();
        drop(fs);
        assert_clean(&image.path);
        assert_eq!(
            image.open().statfs().unwrap(),
            by_linux.open().statfs().unwrap()
        );
    }
}

/// Leaves an image as a crash does, with files that have no names but an opener, and one that is
/// being truncated.
fn crash_with_orphans(path: &Path) {
    let mount = KernelMount::mount(path, Mode::ReadWrite, "");
    let mut open = Vec::new();
    for i in 0..40u32 {
        let name = mount.join(format!("file{i}"));
        let len = [0, 100, 5000, 300_000][i as usize % 4];
        fs::write(&name, vec![i as u8; len]).unwrap();
        if i % 3 != 0 {
            let file = File::open(&name).unwrap();
            fs::remove_file(&name).unwrap();
            open.push(file);
        }
    }
    let dir = mount.join("dir");
    fs::create_dir(&dir).unwrap();
    open.push(File::open(&dir).unwrap());
    fs::remove_dir(&dir).unwrap();
    std::os::unix::fs::symlink("x".repeat(200), mount.join("long")).unwrap();
    mount.sync();
    // The files close after the file system has stopped, so their deletion does not happen.
    mount.stop(Shutdown::Now);
    drop(open);
    mount.unmount();
}

#[test]
fn orphans_that_linux_left_are_deleted() {
    for kind in KINDS {
        let image = Image::new(kind);
        crash_with_orphans(&image.path);
        let by_linux = image.copy();
        KernelMount::mount(&by_linux.path, Mode::ReadWrite, "").unmount();
        assert_clean(&by_linux.path);

        let fs = image.open();
        assert_eq!(fs.orphans().unwrap().head(), None);
        fs.close().unwrap();
        drop(fs);
        assert_clean(&image.path);
        assert_eq!(
            image.open().statfs().unwrap(),
            by_linux.open().statfs().unwrap(),
            "{kind:?}"
        );
    }
}

#[test]
fn a_list_that_bites_its_tail_is_reported_and_ends() {
    let image = Image::new(KINDS[0]);
    let fs = image.open();
    let held: Vec<Held> = (0..3).map(|_| orphan(&fs)).collect();
    let inos: Vec<Ino> = held.iter().map(|held| held.ino()).collect();
    commit(&fs);
    fs.checkpoint().unwrap();
    std::mem::forget(held);
    drop(fs);
    // The last of the list names the first.
    let last = inos[0];
    let command = format!("set_inode_field <{last}> dtime @{}", inos[2].get());
    // The log holds nothing that is not in place.
    debugfs_write(&image.path, &["feature -needs_recovery", &command]);
    let fs = image.open();
    assert_eq!(fs.orphans().unwrap().head(), None);
    for ino in inos {
        assert!(matches!(fs.inode(ino), Err(Error::Stale)));
    }
    drop(fs);
}

#[test]
fn links_on_the_device_follow_the_list_in_any_order() {
    let seed = 0x5eed_0001;
    println!("seed {seed}");
    let mut rng = Rng::new(seed);
    let image = Image::new(KINDS[0]);
    let fs = image.open();
    let held: Vec<Held> = (0..12).map(|_| orphan(&fs)).collect();
    let mut order: Vec<usize> = (0..12).rev().collect();
    for round in 0..60 {
        for _ in 0..rng.below(4) + 1 {
            let at = rng.below(12) as usize;
            let handle = fs.start(fs.orphan_credits() + 2).unwrap();
            match order.iter().position(|&listed| listed == at) {
                Some(place) => {
                    fs.orphan_erase(&handle, held[at].live()).unwrap();
                    order.remove(place);
                }
                None => {
                    fs.orphan_add(&handle, held[at].live()).unwrap();
                    order.insert(0, at);
                }
            }
        }
        if round % 7 == 0 {
            commit(&fs);
        }
        let mut next = fs.orphans().unwrap().head();
        let mut found = Vec::new();
        while let Some(ino) = next {
            let at = held.iter().position(|held| held.ino() == ino).unwrap();
            found.push(at);
            next = held[at].capture(&extant_sync::pin()).disk().next_orphan();
        }
        assert_eq!(found, order);
    }
    drop(held);
    fs.reap().unwrap();
    fs.close().unwrap();
    drop(fs);
    assert_clean(&image.path);
}

#[test]
fn orphans_that_do_not_fit_the_file_go_on_the_list() {
    let options = [
        "-t",
        "ext4",
        "-b",
        "1024",
        "-O",
        "orphan_file",
        "-E",
        "orphan_file_size=4",
    ];
    let image = Image::new(&options);
    let fs = image.open();
    let before = free_inodes(&fs);
    let held: Vec<Held> = (0..1100).map(|_| orphan(&fs)).collect();
    assert!(fs.orphans().unwrap().head().is_some());
    assert!(!fs.orphans().unwrap().is_file_empty());
    commit(&fs);
    std::mem::forget(held);
    drop(fs);
    let by_linux = image.copy();
    KernelMount::mount(&by_linux.path, Mode::ReadWrite, "").unmount();
    assert_clean(&by_linux.path);
    let fs = image.open();
    assert_eq!(free_inodes(&fs), before);
    let held: Vec<Held> = (0..1100).map(|_| orphan(&fs)).collect();
    drop(held);
    fs.reap().unwrap();
    assert_eq!(fs.orphans().unwrap().head(), None);
    assert!(fs.orphans().unwrap().is_file_empty());
    fs.close().unwrap();
    drop(fs);
    assert_clean(&image.path);
}

#[test]
fn a_truncation_that_a_crash_interrupted_is_finished_as_linux_does() {
    let image = Image::new(KINDS[0]);
    let mount = KernelMount::mount(&image.path, Mode::ReadWrite, "");
    fs::write(mount.join("file"), vec![7; 100_000]).unwrap();
    mount.unmount();
    let fs = image.open();
    let root = fs.inode(Ino::ROOT).unwrap();
    let ino = dir::lookup(&fs, &root, b"file").unwrap().unwrap().ino;
    fs.close().unwrap();
    drop(fs);
    debugfs_write(
        &image.path,
        &[
            &format!("set_inode_field <{ino}> size 5000"),
            &format!("set_super_value last_orphan {ino}"),
        ],
    );
    let by_linux = image.copy();
    KernelMount::mount(&by_linux.path, Mode::ReadWrite, "").unmount();
    let fs = image.open();
    let inode = fs.inode(ino).unwrap();
    assert_eq!((inode.size(), inode.disk().blocks), (5000, 16));
    fs.close().unwrap();
    drop(fs);
    for image in [&image, &by_linux] {
        assert_clean(&image.path);
        let fs = image.open();
        let held = fs.hold(ino).unwrap();
        data::truncate(&fs, &held, 9000).unwrap();
        let mut bytes = vec![1; 9000];
        data::read_at(&fs, &held.snapshot(), 0, &mut bytes).unwrap();
        assert!(bytes[..5000].iter().all(|&byte| byte == 7));
        assert!(bytes[5000..].iter().all(|&byte| byte == 0));
        let mapped = map::lookup(&fs, &held.snapshot(), Lblk::new(2)).unwrap();
        assert_eq!(mapped.target, map::Target::Hole);
        fs.close().unwrap();
    }
}

#[test]
fn a_truncated_file_without_names_stays_an_orphan() {
    let image = Image::new(KINDS[1]);
    let fs = image.open();
    let held = orphan(&fs);
    data::write_at(&fs, &held, 0, &[3; 200_000]).unwrap();
    data::truncate(&fs, &held, 10).unwrap();
    assert_ne!(held.membership(), crate::inode::Membership::None);
    commit(&fs);
    std::mem::forget(held);
    drop(fs);
    let fs = image.open();
    fs.close().unwrap();
    drop(fs);
    assert_clean(&image.path);
}

#[test]
fn changed_inodes_stay_until_they_are_encoded_and_come_back_as_they_were() {
    let image = Image::new(KINDS[0]);
    let mount = KernelMount::mount(&image.path, Mode::ReadWrite, "");
    for i in 0..3000 {
        File::create(mount.join(format!("{i}"))).unwrap();
    }
    mount.unmount();
    let fs = image.open_with(
        MountOptions::read_write()
            .background(false)
            .memory(256 << 10),
    );
    let root = fs.inode(Ino::ROOT).unwrap();
    let first = dir::lookup(&fs, &root, b"0").unwrap().unwrap().ino.get();
    let all = || (first..first + 3000).map(Ino::new);
    let stamp = |ino: Ino, secs: i64| {
        let held = fs.hold(ino).unwrap();
        let handle = fs.start(2).unwrap();
        held.live()
            .update(&handle, |inode| {
                inode.disk_mut().mtime = Timestamp::from_secs(secs);
            })
            .unwrap();
    };
    for round in 1..4 {
        for ino in all().step_by(7) {
            stamp(ino, round * 10_000 + i64::from(ino.get()));
        }
        for _ in 0..2 {
            for ino in all() {
                let secs = fs.inode(ino).unwrap().disk().mtime.secs;
                let changed = (ino.get() - first).is_multiple_of(7);
                let expected = round * 10_000 + i64::from(ino.get());
                assert_eq!(secs == expected, changed);
            }
            commit(&fs);
        }
        // Clean ones make way.
        for ino in all() {
            fs.inode(ino).unwrap();
        }
        assert!(fs.inode_table().len() < 1500, "{}", fs.inode_table().len());
    }
    fs.close().unwrap();
    drop(fs);
    assert_clean(&image.path);
}

#[test]
fn inodes_come_and_go_from_many_threads_while_others_commit() {
    for kind in &KINDS[..2] {
        let image = Image::new(kind);
        let options = MountOptions::read_write()
            .background(false)
            .memory(256 << 10);
        let fs = image.open_with(options);
        let before = free_inodes(&fs);
        std::thread::scope(|scope| {
            for thread in 0..6u64 {
                let fs = &fs;
                scope.spawn(move || {
                    let mut rng = Rng::new(0xabc0 + thread);
                    let mut mine: Vec<Held> = Vec::new();
                    for _ in 0..400 {
                        if mine.len() < 20 && rng.below(2) == 0 {
                            mine.push(orphan(fs));
                        } else if !mine.is_empty() {
                            let at = rng.below(mine.len() as u64) as usize;
                            let held = mine.swap_remove(at);
                            let ino = held.ino();
                            // A thread that asks by number meanwhile finds it held, dead, or
                            // somebody else's.
                            drop(held);
                            let _ = fs.inode(ino);
                            let _ = fs.hold(ino);
                            fs.reap().unwrap();
                        }
                        if rng.below(40) == 0 {
                            commit(fs);
                        }
                    }
                });
            }
        });
        fs.reap().unwrap();
        commit(&fs);
        assert_eq!(free_inodes(&fs), before);
        fs.close().unwrap();
        drop(fs);
        assert_clean(&image.path);
    }
}

#[test]
fn inherited_access_lists_are_those_that_linux_makes() {
    let entry = |who, permissions| AclEntry { who, permissions };
    let default = Acl::new(vec![
        entry(AclWho::Owner, 7),
        entry(AclWho::User(1000), 6),
        entry(AclWho::Group, 5),
        entry(AclWho::Mask, 7),
        entry(AclWho::Other, 4),
    ])
    .unwrap();
    let image = Image::new(KINDS[0]);
    let mount = KernelMount::mount(&image.path, Mode::ReadWrite, "");
    let dir = mount.join("dir");
    fs::create_dir(&dir).unwrap();
    fs::set_permissions(&dir, std::os::unix::fs::PermissionsExt::from_mode(0o2755)).unwrap();
    std::os::unix::fs::chown(&dir, None, Some(77)).unwrap();
    rustix::fs::setxattr(
        &dir,
        "system.posix_acl_default",
        &default.encode_syscall(),
        rustix::fs::XattrFlags::empty(),
    )
    .unwrap();
    use std::os::unix::fs::OpenOptionsExt;
    let mut options = File::options();
    options.write(true).create_new(true).mode(0o640);
    options.open(dir.join("theirs")).unwrap();
    rustix::fs::mkdir(dir.join("their-dir"), 0o750.into()).unwrap();
    mount.unmount();

    let fs = image.open();
    let root = fs.inode(Ino::ROOT).unwrap();
    let parent = dir::lookup(&fs, &root, b"dir").unwrap().unwrap().ino;
    let parent = fs.hold(parent).unwrap();
    for (name, file_type, mode) in [
        (&b"ours"[..], FileType::Regular, 0o640),
        (b"our-dir", FileType::Directory, 0o750),
    ] {
        let image = parent.snapshot();
        let credits = fs.new_inode_credits() + dir::insert_credits(&fs, &image) + 10;
        let handle = fs.start(credits).unwrap();
        let new = NewInode::new(file_type, mode, now());
        let held = fs.new_inode(&handle, &image, &new).unwrap();
        if file_type == FileType::Directory {
            dir::init(&handle, &held, parent.ino()).unwrap();
            parent
                .live()
                .update(&handle, |inode| inode.disk_mut().links += 1)
                .unwrap();
        }
        dir::insert(&handle, &parent, name, held.ino(), file_type).unwrap();
    }
    drop(parent);
    fs.close().unwrap();
    drop(fs);
    assert_clean(&image.path);

    let mount = KernelMount::mount(&image.path, Mode::ReadOnly, "");
    for (ours, theirs) in [("ours", "theirs"), ("our-dir", "their-dir")] {
        let seen = [ours, theirs].map(|name| {
            let path = mount.join("dir").join(name);
            let lists = ["access", "default"].map(|which| {
                let mut value = vec![0; 1000];
                let name = format!("system.posix_acl_{which}");
                let len = rustix::fs::getxattr(&path, name.as_str(), &mut value[..]);
                len.map(|len| value[..len].to_vec())
            });
            use std::os::unix::fs::MetadataExt;
            let stat = fs::metadata(&path).unwrap();
            (lists, stat.mode(), stat.gid(), stat.nlink())
        });
        assert_eq!(seen[0], seen[1], "{ours}");
    }
}

fn named(fs: &Fs) -> Vec<(u32, i64)> {
    fs.inodes()
        .map(|(ino, inode)| (ino.get(), inode.unwrap().disk().mtime.secs))
        .collect()
}

/// What bulkstat finds: numbers and times.
fn bulkstat(fs: &Fs, way: BulkstatWay) -> Vec<(u32, i64)> {
    let found = std::sync::Mutex::new(Vec::new());
    let visited = fs.bulkstat(Bulkstat { way, threads: 3 }, |ino, inode| {
        let inode = inode.unwrap();
        assert_eq!(inode.ino, ino);
        found.lock().unwrap().push((ino.get(), inode.mtime.secs));
    });
    let mut found = found.into_inner().unwrap();
    assert_eq!(visited, found.len() as u64);
    found.sort_unstable();
    found
}

fn assert_all(fs: &Fs, expected: &[(u32, i64)]) {
    assert_eq!(named(fs), expected);
    // Around the cache, into it, and with what is in it.
    for way in [
        BulkstatWay::Tables,
        BulkstatWay::Cache,
        BulkstatWay::Tables,
        BulkstatWay::Cache,
    ] {
        assert_eq!(bulkstat(fs, way), expected, "{way:?}");
    }
}

#[test]
fn bulkstat_sees_every_inode_that_stays_while_others_come_and_go_and_memory_is_short() {
    let image = Image::new(KINDS[1]);
    let options = MountOptions::read_write().background(false);
    let fs = image.open_with(options.memory(256 << 10));
    let root = fs.hold(Ino::ROOT).unwrap();
    let new = |i: i64| {
        let new = NewInode::new(FileType::Regular, 0o600, Timestamp::from_secs(i));
        let name = format!("{i}");
        ops::create(&fs, &root, name.as_bytes(), &new)
            .unwrap()
            .ino()
    };
    let stays: Vec<u32> = (0..600).map(|i| new(i).get()).collect();
    ops::syncfs(&fs).unwrap();
    std::thread::scope(|scope| {
        let changes = scope.spawn(|| {
            for round in 0..40 {
                for i in 1000..1020 {
                    new(i);
                }
                for i in 1000..1020 {
                    ops::unlink(&fs, &root, format!("{i}").as_bytes()).unwrap();
                }
                // Changed ones that stay, so that some are forgotten with a newer record than was
                // read.
                let ino = stays[round * 7];
                let held = fs.hold(Ino::new(ino)).unwrap();
                ops::chmod(&fs, &held, 0o640).unwrap();
                drop(held);
                if round % 5 == 0 {
                    ops::syncfs(&fs).unwrap();
                }
            }
        });
        let mut rounds = 0;
        while !changes.is_finished() || rounds < 2 {
            for way in [BulkstatWay::Cache, BulkstatWay::Tables] {
                let found = bulkstat(&fs, way);
                let mut numbers: Vec<u32> = found.iter().map(|(ino, _)| *ino).collect();
                numbers.dedup();
                assert_eq!(numbers.len(), found.len(), "each is visited once");
                for ino in &stays {
                    assert!(numbers.binary_search(ino).is_ok(), "{ino} {way:?}");
                }
            }
            rounds += 1;
        }
    });
    // What was changed is what everybody finds, read anew or not.
    for (at, ino) in stays.iter().enumerate() {
        let changed = at % 7 == 0 && at / 7 < 40;
        let expected = if changed { 0o640 } else { 0o600 };
        let found = fs.inode(Ino::new(*ino)).unwrap().disk().mode.permissions();
        assert_eq!(found, expected, "{ino}");
    }
    drop(root);
    fs.close().unwrap();
    drop(fs);
    assert_clean(&image.path);
}

#[test]
fn a_walk_over_the_tables_sees_what_is_newer_in_memory() {
    for kind in KINDS {
        let image = Image::new(kind);
        let options = MountOptions::read_write().background(false);
        let fs = image.open_with(options.memory(256 << 10));
        let root = fs.hold(Ino::ROOT).unwrap();
        let mut expected = named(&fs);
        for i in 0..200 {
            let image = root.snapshot();
            let credits = fs.new_inode_credits() + dir::insert_credits(&fs, &image) + 1;
            let handle = fs.start(credits).unwrap();
            let new = NewInode::new(FileType::Regular, 0o600, Timestamp::from_secs(i));
            let held = fs.new_inode(&handle, &image, &new).unwrap();
            let name = format!("{i}");
            dir::insert(&handle, &root, name.as_bytes(), held.ino(), new.file_type).unwrap();
            expected.push((held.ino().get(), i));
            drop(handle);
            if i % 50 == 20 {
                commit(&fs);
            }
        }
        // Without names they are not listed.
        let lost = orphan(&fs);
        drop(orphan(&fs));
        expected.sort_unstable();
        assert_all(&fs, &expected);
        drop(lost);
        fs.reap().unwrap();
        assert_all(&fs, &expected);
        fs.checkpoint().unwrap();
        assert_all(&fs, &expected);
        drop(root);
        fs.close().unwrap();
        drop(fs);
        assert_clean(&image.path);
    }
}

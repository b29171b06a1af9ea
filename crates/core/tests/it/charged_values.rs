//! Attribute values in inodes of their own, which are charged to each file that has them: space in
//! whole clusters, and an inode. e2fsck counts again.

use crate::owners::{check, new};
use crate::support::{Image, pattern};
use extant_blockdev::FileDevice;
use extant_core::fs::{Fs, MountOptions};
use extant_core::inode::{Caller, FileType, Held};
use extant_core::lifecycle::NewInode;
use extant_core::ops::{self, SetXattr};
use extant_core::quota::{Enforced, QuotaChange, QuotaKind, SideChange};
use extant_core::{Error, Result};
use extant_format::Ino;
use extant_testkit::oracle::{debugfs_write, e2fsck};
use extant_testkit::rng::{Rng, seed_from_env};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

const USER: u32 = 1000;
/// Bytes of the values, none of which fits a block or shares one with another.
const LENS: [usize; 3] = [5000, 9000, 60_000];

fn image(features: &[&str]) -> Image {
    Image::make(
        48,
        &[&["-t", "ext4", "-N", "4096", "-I", "256"], features].concat(),
        |_| {},
    )
}

fn open(image: &Image, enforced: Enforced) -> Arc<Fs> {
    let device = FileDevice::open(image.path()).unwrap();
    let options = MountOptions::read_write()
        .background(false)
        .quotas(enforced);
    Fs::open(Arc::new(device), options).unwrap()
}

fn set(fs: &Fs, file: &Held, name: &str, value: &[u8]) -> Result<()> {
    ops::setxattr(fs, file, name.as_bytes(), value, SetXattr::Any)
}

/// What is in use, committed.
fn used(fs: &Fs, kind: QuotaKind, id: u32) -> (u64, u64) {
    fs.sync().unwrap();
    let quota = ops::quota(fs, kind, id).unwrap().unwrap();
    if let Some(now) = ops::quota_in_use(fs, kind, id) {
        assert_eq!(now, [quota.space, quota.inodes], "{kind:?} {id}");
    }
    (quota.space, quota.inodes)
}

fn close(fs: Arc<Fs>, image: &Image) {
    fs.close().unwrap();
    drop(fs);
    check(image, true);
}

#[test]
fn a_value_is_charged_to_each_file_that_has_it() {
    for (options, cluster) in [
        (&["-b", "4096", "-O", "quota,project,ea_inode"][..], 4096),
        (&["-b", "1024", "-O", "quota,project,ea_inode"], 1024),
        (
            &[
                "-b",
                "1024",
                "-O",
                "quota,project,ea_inode,bigalloc",
                "-C",
                "16384",
            ],
            16_384,
        ),
    ] {
        for enforced in [Enforced::default(), Enforced::ALL] {
            let image = image(options);
            let fs = open(&image, enforced);
            let root = fs.hold(Ino::ROOT).unwrap();
            let file = |name: &[u8], uid, gid| {
                ops::create(&*fs, &root, name, &new(FileType::Regular, uid, gid)).unwrap()
            };
            let (a, b) = (file(b"a", 5, 50), file(b"b", 6, 60));
            let (value, other) = (pattern(1, 10_000), pattern(2, 40_000));
            let [space, more] = [10_000_u64, 40_000].map(|len| len.next_multiple_of(cluster));
            let user = |id| used(&fs, QuotaKind::User, id);
            let group = |id| used(&fs, QuotaKind::Group, id);
            let root_project = used(&fs, QuotaKind::Project, 0);
            set(&fs, &a, "user.a", &value).unwrap();
            assert_eq!(user(5), (space, 2));
            set(&fs, &b, "user.b", &value).unwrap();
            // One inode has it, and both pay.
            assert_eq!((user(6), group(60)), ((space, 2), (space, 2)));
            let free = fs.statfs().unwrap().free_inodes;
            set(&fs, &a, "user.again", &value).unwrap();
            assert_eq!(fs.statfs().unwrap().free_inodes, free);
            assert_eq!(user(5), (2 * space, 3));
            set(&fs, &a, "user.again", &other).unwrap();
            assert_eq!(user(5), (space + more, 3));
            // It is small now, and lies in the inode.
            set(&fs, &a, "user.again", b"small").unwrap();
            assert_eq!((user(5), group(50)), ((space, 2), (space, 2)));
            ops::chown(&*fs, &a, Some(6), None).unwrap();
            assert_eq!((user(5), user(6)), ((0, 0), (2 * space, 4)));
            ops::chown(&*fs, &a, None, Some(60)).unwrap();
            assert_eq!((group(50), group(60)), ((0, 0), (2 * space, 4)));
            ops::set_project(&*fs, &a, 9).unwrap();
            assert_eq!(used(&fs, QuotaKind::Project, 9), (space, 2));
            let project = used(&fs, QuotaKind::Project, 0);
            assert_eq!(project, (root_project.0 + space, root_project.1));
            // Known anew from what is on the device.
            drop((a, b, root));
            close(fs, &image);
            let fs = open(&image, enforced);
            let root = fs.hold(Ino::ROOT).unwrap();
            let user = |id| used(&fs, QuotaKind::User, id);
            let find = |name: &[u8]| {
                let found = ops::lookup(&fs, &root.snapshot(), name).unwrap();
                fs.hold(found.ino()).unwrap()
            };
            let (a, b) = (find(b"a"), find(b"b"));
            ops::chown(&*fs, &a, Some(7), None).unwrap();
            assert_eq!((user(6), user(7)), ((space, 2), (space, 2)));
            ops::removexattr(&*fs, &b, b"user.b").unwrap();
            assert_eq!(user(6), (0, 1));
            ops::unlink(&*fs, &root, b"a").unwrap();
            // It is open, so it is there.
            assert_eq!(user(7), (space, 2));
            ops::release(&fs, a).unwrap();
            assert_eq!(user(7), (0, 0));
            drop((b, root));
            close(fs, &image);
        }
    }
}

#[test]
fn files_that_share_a_block_of_attributes_each_pay_for_its_values() {
    let image = Image::make(
        16,
        &[
            "-t",
            "ext4",
            "-b",
            "1024",
            "-I",
            "128",
            "-O",
            "quota,ea_inode",
        ],
        |_| {},
    );
    let fs = open(&image, Enforced::default());
    let root = fs.hold(Ino::ROOT).unwrap();
    let files: Vec<Held> = (0..4_u32)
        .map(|n| {
            let name = format!("{n}").into_bytes();
            ops::create(&*fs, &root, &name, &new(FileType::Regular, n, 70)).unwrap()
        })
        .collect();
    for file in &files {
        set(&fs, file, "user.a", &[1; 5000]).unwrap();
        set(&fs, file, "user.b", &[2; 3000]).unwrap();
    }
    let blocks: Vec<_> = (files.iter())
        .map(|file| file.snapshot().disk().file_acl)
        .collect();
    assert!(blocks.iter().all(|block| *block == blocks[0]), "{blocks:?}");
    let each = 1024 + 5 * 1024 + 3 * 1024;
    assert_eq!(used(&fs, QuotaKind::User, 2), (each, 3));
    assert_eq!(used(&fs, QuotaKind::Group, 70), (4 * each, 12));
    // One goes its own way, and one goes.
    set(&fs, &files[1], "user.b", &[3; 9000]).unwrap();
    ops::unlink(&*fs, &root, b"3").unwrap();
    assert_eq!(used(&fs, QuotaKind::User, 1), (each + 6 * 1024, 3));
    drop((files, root));
    fs.close().unwrap();
    drop(fs);
    check(&image, false);
}

#[test]
fn short_links_with_large_values_are_still_short_links() {
    let image = image(&["-b", "1024", "-O", "quota,project,ea_inode"]);
    let fs = open(&image, Enforced::default());
    let root = fs.hold(Ino::ROOT).unwrap();
    for target in [&b"t"[..], b"five5", &[b'x'; 59], &[b'y'; 60], &[b'z'; 900]] {
        let new = new(FileType::Symlink, target.len() as u32, 5);
        let name = format!("link {}", target.len()).into_bytes();
        let link = ops::symlink(&*fs, &root, &name, target, &new).unwrap();
        set(&fs, &link, "trusted.large", &pattern(1, 5000)).unwrap();
        set(&fs, &link, "trusted.small", b"small").unwrap();
        set(&fs, &link, "trusted.other", &pattern(2, 5000)).unwrap();
        ops::removexattr(&*fs, &link, b"trusted.large").unwrap();
        assert_eq!(used(&fs, QuotaKind::User, target.len() as u32).1, 2);
        assert_eq!(ops::readlink(&fs, &link.snapshot()).unwrap(), target);
    }
    drop(root);
    close(fs, &image);
}

#[test]
fn a_value_that_others_give_up_at_the_same_time_is_there_all_the_same() {
    let image = image(&["-b", "4096", "-O", "quota,project,ea_inode"]);
    let fs = open(&image, Enforced::default());
    let root = fs.hold(Ino::ROOT).unwrap();
    let free = || fs.statfs().unwrap().free_inodes;
    let before = free();
    std::thread::scope(|scope| {
        for thread in 0..4_u32 {
            let (fs, root) = (&fs, &root);
            scope.spawn(move || {
                let name = [thread as u8 + b'a'];
                let new = new(FileType::Regular, thread, 5);
                let file = ops::create(&**fs, root, &name, &new).unwrap();
                for n in 0..400_u32 {
                    // Numbers that others gave up are soon somebody else's.
                    let value = vec![(n / 16 % 2) as u8; 5000];
                    set(fs, &file, "user.a", &value).unwrap();
                    let found = ops::getxattr(fs, &file.snapshot(), b"user.a").unwrap();
                    assert!(found == value, "{thread}: {n}");
                    ops::removexattr(&**fs, &file, b"user.a").unwrap();
                }
                if thread % 2 == 0 {
                    set(fs, &file, "user.a", &[9; 6000]).unwrap();
                }
            });
        }
    });
    // Two of the files have one value.
    assert_eq!(free(), before - 5);
    assert_eq!(used(&fs, QuotaKind::Group, 5), (4 * 4096, 6));
    drop(root);
    close(fs, &image);
}

#[test]
fn values_that_debugfs_set_are_given_up_and_given_away() {
    let image = image(&["-b", "4096", "-O", "quota,project,ea_inode"]);
    let value = image.path().with_extension("value");
    std::fs::write(&value, pattern(3, 4096)).unwrap();
    let value = value.to_str().unwrap();
    let mut requests = Vec::new();
    for n in 0..4 {
        requests.push(format!("write /dev/null f{n}"));
        requests.push(format!("ea_set -f {value} f{n} user.large"));
        requests.push(format!("sif f{n} uid {}", 20 + n));
    }
    let requests: Vec<&str> = requests.iter().map(String::as_str).collect();
    debugfs_write(&image.path(), &requests);
    let run = e2fsck(&image.path(), &["-fy"]);
    assert!(run.code <= 1, "{run}");
    check(&image, true);
    let fs = open(&image, Enforced::ALL);
    let root = fs.hold(Ino::ROOT).unwrap();
    for n in 0..4_u32 {
        assert_eq!(used(&fs, QuotaKind::User, 20 + n), (4096, 2), "{n}");
        let name = format!("f{n}").into_bytes();
        let found = ops::lookup(&fs, &root.snapshot(), &name).unwrap();
        let file = fs.hold(found.ino()).unwrap();
        match n {
            0 => ops::removexattr(&*fs, &file, b"user.large").unwrap(),
            1 => ops::chown(&*fs, &file, Some(30), None).unwrap(),
            2 => ops::unlink(&*fs, &root, &name).unwrap(),
            _ => set(&fs, &file, "user.large", &pattern(4, 5000)).unwrap(),
        }
        ops::release(&fs, file).unwrap();
    }
    assert_eq!(used(&fs, QuotaKind::User, 20), (0, 1));
    assert_eq!(used(&fs, QuotaKind::User, 30), (4096, 2));
    assert_eq!(used(&fs, QuotaKind::User, 22), (0, 0));
    assert_eq!(used(&fs, QuotaKind::User, 23), (8192, 2));
    drop(root);
    close(fs, &image);
}

fn mine() -> NewInode {
    new(FileType::Regular, USER, USER)
}

/// Limits of the user: bytes, and inodes; 0 for none.
fn limit(fs: &Fs, space: u64, inodes: u64) {
    let hard = |most| SideChange {
        hard: Some(most),
        soft: None,
    };
    let change = QuotaChange {
        space: hard(space),
        inodes: hard(inodes),
    };
    ops::set_quota(fs, QuotaKind::User, USER, change).unwrap();
}

#[test]
fn values_are_held_to_limits_of_space_and_of_inodes() {
    let image = image(&["-b", "4096", "-O", "quota,project,ea_inode"]);
    let fs = open(&image, Enforced::ALL);
    let root = fs.hold(Ino::ROOT).unwrap();
    ops::chmod(&*fs, &root, 0o777).unwrap();
    let file = ops::create(&*fs, &root, b"f", &mine()).unwrap();
    let caller = Caller::new(USER, USER).groups(vec![USER + 1]);
    let by = fs.acting_for(&caller);
    let large = |name: &str, seed, len| {
        let value = pattern(seed, len);
        ops::setxattr(by, &file, name.as_bytes(), &value, SetXattr::Any)
    };
    let refused = |done: Result<()>| assert!(matches!(done, Err(Error::QuotaExceeded)), "{done:?}");
    let user = || used(&fs, QuotaKind::User, USER);
    // Two inodes: the file, and one value.
    limit(&fs, 0, 2);
    large("user.a", 1, 5000).unwrap();
    refused(large("user.b", 2, 5000));
    // The same value costs as much.
    refused(large("user.b", 1, 5000));
    assert_eq!(user(), (8192, 2));
    let found = ops::listxattr(&fs, &file.snapshot()).unwrap();
    assert_eq!(found, [b"user.a"]);
    // Another one in its place costs no inode, and a small one none at all.
    large("user.a", 3, 9000).unwrap();
    large("user.b", 4, 4).unwrap();
    assert_eq!(user(), (12_288, 2));
    refused(ops::create(by, &root, b"g", &mine()).map(drop));
    // Space to the last block.
    limit(&fs, 5 * 4096, 0);
    large("user.c", 5, 8192).unwrap();
    refused(large("user.d", 6, 5000));
    refused(large("user.a", 7, 12_289));
    refused(ops::pwrite(by, &file, 0, b"x").map(drop));
    assert_eq!(user(), (5 * 4096, 3));
    large("user.c", 8, 5001).unwrap();
    assert_eq!(user(), (5 * 4096, 3));
    // User 0 gives what he likes.
    set(&fs, &file, "user.d", &pattern(9, 5000)).unwrap();
    assert_eq!(user(), (7 * 4096, 4));
    // The new owner of the file needs room for all of it.
    let hard = |most| SideChange {
        hard: Some(most),
        soft: None,
    };
    let small = QuotaChange {
        space: hard(0),
        inodes: hard(3),
    };
    ops::set_quota(&*fs, QuotaKind::Group, USER + 1, small).unwrap();
    refused(ops::chown(by, &file, None, Some(USER + 1)));
    ops::removexattr(by, &file, b"user.d").unwrap();
    ops::chown(by, &file, None, Some(USER + 1)).unwrap();
    assert_eq!(used(&fs, QuotaKind::Group, USER + 1), (5 * 4096, 3));
    refused(large("user.d", 10, 5000));
    drop((file, root));
    close(fs, &image);
}

/// Which users have which values: name and length by attribute.
type Values = BTreeMap<(u64, &'static str), usize>;

const NAMES: [&str; 3] = ["user.one", "user.two", "user.three"];

/// What the files of one thread cost in inodes and in bytes of values.
fn cost(values: &Values, files: u64) -> (u64, u64) {
    let space = values.values().map(|len| len.next_multiple_of(4096) as u64);
    (space.sum(), files + values.len() as u64)
}

/// Changes attributes of files of its own at a limit, and gives files up; returns the values that
/// it was told there are.
fn work(fs: &Fs, root: &Held, seed: u64, thread: u64) -> (Values, u64) {
    let mut rng = Rng::new(seed);
    let caller = Caller::new(USER, USER);
    let by = fs.acting_for(&caller);
    let mut values = Values::new();
    let mut files: BTreeMap<u64, Held> = BTreeMap::new();
    for n in 0..250_u64 {
        let name_of = |n: u64| format!("{thread}-{n}").into_bytes();
        let some: Vec<u64> = files.keys().copied().collect();
        let done = match rng.below(8) {
            0 | 1 => ops::create(by, root, &name_of(n), &mine()).map(|file| {
                files.insert(n, file);
            }),
            2 if some.len() > 2 => {
                let gone = *rng.pick(&some);
                values.retain(|(of, _), _| *of != gone);
                let file = files.remove(&gone).unwrap();
                let done = ops::unlink(by, root, &name_of(gone));
                done.and_then(|()| ops::release(fs, file))
            }
            3 if rng.one_in(4) => fs.sync(),
            4 if !values.is_empty() => {
                let all: Vec<_> = values.keys().copied().collect();
                let key = *rng.pick(&all);
                values.remove(&key);
                ops::removexattr(by, &files[&key.0], key.1.as_bytes())
            }
            _ if !some.is_empty() => {
                let key = (*rng.pick(&some), *rng.pick(&NAMES));
                let len = *rng.pick(&LENS);
                // The threads have values in common.
                let value = vec![rng.below(2) as u8; len];
                let file = &files[&key.0];
                let done = ops::setxattr(by, file, key.1.as_bytes(), &value, SetXattr::Any);
                done.map(|()| {
                    values.insert(key, len);
                })
            }
            _ => Ok(()),
        };
        match done {
            Ok(()) | Err(Error::QuotaExceeded) => {}
            Err(e) => panic!("{thread}, {n}: {e}"),
        }
    }
    (values, files.len() as u64)
}

#[test]
fn threads_that_share_values_at_a_limit_are_charged_for_what_they_have() {
    let seed = seed_from_env("threads that share values at a limit");
    for (round, inodes) in [0, 40].into_iter().enumerate() {
        let image = image(&["-b", "4096", "-O", "quota,project,ea_inode"]);
        let device = FileDevice::open(image.path()).unwrap();
        let options = MountOptions::read_write()
            .commit_interval(Duration::from_millis(5))
            .quotas(Enforced::ALL);
        let fs = Fs::open(Arc::new(device), options).unwrap();
        let root = fs.hold(Ino::ROOT).unwrap();
        ops::chmod(&*fs, &root, 0o777).unwrap();
        let most = 400 * 4096;
        limit(&fs, most, inodes);
        let kept: Vec<_> = std::thread::scope(|scope| {
            let threads = (0..4_u64).map(|thread| {
                let (fs, root) = (&fs, &root);
                let seed = seed.wrapping_add(thread + 10 * round as u64);
                scope.spawn(move || work(fs, root, seed, thread))
            });
            let threads: Vec<_> = threads.collect();
            threads.into_iter().map(|t| t.join().unwrap()).collect()
        });
        let expected = kept.iter().fold((0, 0), |sum, (values, files)| {
            let (space, inodes) = cost(values, *files);
            (sum.0 + space, sum.1 + inodes)
        });
        let found = used(&fs, QuotaKind::User, USER);
        // Names of three attributes fit the inode beside each other: no file has a block of them.
        assert_eq!(found, expected);
        assert!(
            found.0 <= most && (inodes == 0 || found.1 <= inodes),
            "{found:?}"
        );
        drop(root);
        close(fs, &image);
    }
}

#[test]
fn a_broken_block_of_attributes_stops_what_would_be_charged_wrongly() {
    let image = Image::make(
        16,
        &[
            "-t",
            "ext4",
            "-b",
            "1024",
            "-I",
            "128",
            "-O",
            "quota,ea_inode",
        ],
        |_| {},
    );
    let block = {
        let fs = open(&image, Enforced::default());
        let root = fs.hold(Ino::ROOT).unwrap();
        let file = ops::create(&*fs, &root, b"f", &new(FileType::Regular, 5, 5)).unwrap();
        set(&fs, &file, "user.a", &[1; 5000]).unwrap();
        let block = file.snapshot().disk().file_acl.get();
        drop((file, root));
        fs.close().unwrap();
        block
    };
    check(&image, false);
    let mut bytes = std::fs::read(image.path()).unwrap();
    bytes[block as usize * 1024 + 40] ^= 0xff;
    std::fs::write(image.path(), bytes).unwrap();
    for enforced in [
        Enforced::default(),
        Enforced {
            users: true,
            groups: true,
            projects: false,
        },
    ] {
        let fs = open(&image, enforced);
        let root = fs.hold(Ino::ROOT).unwrap();
        let found = ops::lookup(&fs, &root.snapshot(), b"f").unwrap();
        let file = fs.hold(found.ino()).unwrap();
        let given = ops::chown(&*fs, &file, Some(9), None);
        assert!(given.as_ref().is_err_and(Error::is_corruption), "{given:?}");
        assert_eq!(file.snapshot().disk().uid, 5);
        drop((file, root));
        let _ = fs.close();
    }
}

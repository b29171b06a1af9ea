//! Owners held to limits: beside what files add up to, by many threads at once, and over times of
//! grace.

use crate::support::{Image, pattern};
use extant_blockdev::FileDevice;
use extant_core::data::FallocateMode;
use extant_core::fs::{DataMode, Fs, MountOptions};
use extant_core::inode::{Caller, FileType, Held};
use extant_core::lifecycle::NewInode;
use extant_core::ops::{self, SetXattr};
use extant_core::quota::{Enforced, Grace, QuotaChange, QuotaKind, SideChange};
use extant_core::{Error, Result};
use extant_format::Ino;
use extant_format::errno::EDQUOT;
use extant_format::inode::{InodeFlags, Timestamp};
use extant_testkit::oracle::assert_clean;
use extant_testkit::rng::{Rng, seed_from_env};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The user of these tests, whose groups are 1000 and 1001.
const USER: u32 = 1000;

fn limits(space: (u64, u64), inodes: (u64, u64)) -> QuotaChange {
    let side = |(soft, hard)| SideChange {
        soft: Some(soft),
        hard: Some(hard),
    };
    QuotaChange {
        space: side(space),
        inodes: side(inodes),
    }
}

fn open(image: &Image, mode: DataMode, enforced: Enforced) -> Arc<Fs> {
    let device = FileDevice::open(image.path()).unwrap();
    let options = MountOptions::read_write().data_mode(mode).quotas(enforced);
    Fs::open(Arc::new(device), options).unwrap()
}

fn make(mib: u64, features: &[&str]) -> Image {
    Image::make(
        mib,
        &[&["-t", "ext4", "-N", "2048"], features].concat(),
        |_| {},
    )
}

/// What an owner uses as the image says, and whether a time of grace runs.
fn used(fs: &Fs, kind: QuotaKind, id: u32) -> (u64, u64, [bool; 2]) {
    let quota = ops::quota(fs, kind, id).unwrap().unwrap();
    let runs = [quota.space_limits, quota.inode_limits].map(|limits| limits.grace_ends.is_some());
    (quota.space, quota.inodes, runs)
}

/// The ledger has what the files say, once nothing is under way.
fn balanced(fs: &Fs) {
    fs.sync().unwrap();
    for kind in QuotaKind::ALL {
        for id in [0, USER, USER + 1, 7] {
            let Some(now) = ops::quota_in_use(fs, kind, id) else {
                continue;
            };
            let (space, inodes, _) = used(fs, kind, id);
            assert_eq!(now, [space, inodes], "{kind:?} {id}");
        }
    }
}

/// A change that both sides make.
#[derive(Clone, Debug)]
enum Step {
    Create(u64),
    Mkdir(u64),
    Append(u64, usize),
    Truncate(u64, u64),
    Allocate(u64, u64),
    Remove(u64),
    Group(u64, u32),
    Project(u64, u32),
    Sync,
}

fn random_step(rng: &mut Rng, n: u64) -> Step {
    let some = rng.below(n.max(1));
    match rng.below(17) {
        0..5 => Step::Create(n),
        5 => Step::Mkdir(n),
        6..10 => Step::Append(some, rng.between(1, 9 * 4096) as usize),
        10 => Step::Truncate(some, rng.below(20_000)),
        11 => Step::Allocate(some, rng.between(1, 8 * 4096)),
        12 | 13 => Step::Remove(some),
        14 => Step::Group(some, 1000 + rng.below(2) as u32),
        15 => Step::Project(some, rng.below(2) as u32),
        _ => Step::Sync,
    }
}

/// Does it as a user, here. Returns the size of the file afterwards, or the number of the error.
fn ours(fs: &Fs, dir: &Held, step: &Step) -> std::result::Result<u64, i32> {
    let caller = Caller::new(USER, USER).groups(vec![USER + 1]);
    let by = fs.acting_for(&caller);
    let name = |n: &u64| format!("f{n}").into_bytes();
    let find = |n: &u64| -> Result<Held> {
        let found = ops::lookup(fs, &dir.snapshot(), &name(n))?;
        fs.hold(found.ino())
    };
    let new = |file_type| NewInode {
        uid: USER,
        gid: USER,
        ..NewInode::new(file_type, 0o755, Timestamp::default())
    };
    let done = || -> Result<u64> {
        match step {
            Step::Create(n) => ops::create(by, dir, &name(n), &new(FileType::Regular)).map(|_| 0),
            Step::Mkdir(n) => ops::mkdir(by, dir, &name(n), &new(FileType::Directory)).map(|_| 0),
            Step::Append(n, len) => {
                let file = find(n)?;
                if file.snapshot().is_dir() {
                    return Err(Error::IsADirectory);
                }
                let mut done = 0;
                while done < *len {
                    done += ops::append(by, &file, &vec![b'x'; len - done])?.1;
                }
                Ok(file.live_size())
            }
            Step::Truncate(n, size) => {
                let file = find(n)?;
                if file.snapshot().is_dir() {
                    return Err(Error::IsADirectory);
                }
                ops::truncate(by, &file, *size)?;
                Ok(file.live_size())
            }
            Step::Allocate(n, len) => {
                let file = find(n)?;
                if file.snapshot().is_dir() {
                    return Err(Error::IsADirectory);
                }
                ops::fallocate(by, &file, 0, *len, FallocateMode::default())?;
                Ok(file.live_size())
            }
            Step::Remove(n) => {
                let file = find(n)?;
                if file.snapshot().is_dir() {
                    ops::rmdir(by, dir, &name(n))?
                } else {
                    ops::unlink(by, dir, &name(n))?
                }
                ops::release(fs, file)?;
                Ok(0)
            }
            Step::Group(n, gid) => {
                let file = find(n)?;
                ops::chown(by, &file, None, Some(*gid))?;
                Ok(0)
            }
            Step::Project(n, project) => {
                ops::set_project(by, &find(n)?, *project)?;
                Ok(0)
            }
            Step::Sync => fs.sync().map(|()| 0),
        }
    };
    done().map_err(|e| e.errno())
}

/// What the owners use, added up over the files: of the user, of two groups, and of projects 0
/// and 1.
fn added_up(fs: &Fs, dir: &Held, most: u64, base: [[u64; 2]; 5]) -> [[u64; 2]; 5] {
    let mut sums = base;
    let mut add = |held: &Held| {
        let view = held.view();
        let space = view.disk().sectors(fs.block_size()) * 512;
        let group = 1 + (view.disk().gid - USER) as usize;
        let project = 3 + view.disk().project.unwrap() as usize;
        for sum in [0, group, project] {
            sums[sum][0] += space;
            sums[sum][1] += 1;
        }
    };
    add(dir);
    for n in 0..most {
        if let Ok(found) = ops::lookup(fs, &dir.snapshot(), format!("f{n}").as_bytes()) {
            add(&fs.hold(found.ino()).unwrap());
        }
    }
    sums
}

#[test]
fn nobody_gets_more_than_his_limits_and_nobody_less() {
    let seed = seed_from_env("nobody gets more than his limits");
    let mut rng = Rng::new(seed);
    let owners = [
        (QuotaKind::User, USER),
        (QuotaKind::Group, USER),
        (QuotaKind::Group, USER + 1),
        (QuotaKind::Project, 0),
        (QuotaKind::Project, 1),
    ];
    let (mut refused, mut over) = (0, 0);
    for round in 0..8 {
        let image = make(32, &["-b", "4096", "-O", "quota,project"]);
        let mode = *rng.pick(&[DataMode::Delayed, DataMode::Placed, DataMode::Through]);
        let fs = open(&image, mode, Enforced::ALL);
        let root = fs.hold(Ino::ROOT).unwrap();
        let in_use = |fs: &Fs| {
            owners.map(|(kind, id)| ops::quota_in_use(fs, kind, id).expect("it is held to limits"))
        };
        let base = in_use(&fs);
        let new = NewInode {
            uid: USER,
            gid: USER,
            ..NewInode::new(FileType::Directory, 0o755, Timestamp::default())
        };
        let dir = ops::mkdir(&*fs, &root, b"d", &new).unwrap();
        let mut random = |unit: u64, base: u64| match rng.below(4) {
            0 => (0, base + unit * rng.between(6, 20)),
            1 => (base + unit * rng.between(3, 20), 0),
            2 => (
                base + unit * rng.between(3, 8),
                base + unit * rng.between(6, 20),
            ),
            _ => (0, 0),
        };
        // Over at once, or never.
        let grace = Duration::from_secs([0, 100_000][round % 2]);
        for kind in QuotaKind::ALL {
            let grace = Grace {
                space: grace,
                inodes: grace,
            };
            assert!(ops::set_quota_grace(&*fs, kind, grace).unwrap());
        }
        let mut chosen = Vec::new();
        for ((kind, id), [space, inodes]) in owners.into_iter().zip(base) {
            let (space, inodes) = (random(4096, space), random(1, inodes));
            assert!(ops::set_quota(&*fs, kind, id, limits(space, inodes)).unwrap());
            chosen.push([space, inodes]);
        }
        for n in 0..150 {
            let step = random_step(&mut rng, n);
            let before = in_use(&fs);
            let done = ours(&fs, &dir, &step);
            let after = in_use(&fs);
            let context = format!("round {round}, {mode:?}, step {n}: {step:?}: {done:?}");
            assert_eq!(after, added_up(&fs, &dir, n + 1, base), "{context}");
            let mut reason = false;
            for (i, limits) in chosen.iter().enumerate() {
                for (side, unit) in [4096, 1].into_iter().enumerate() {
                    let (soft, hard) = limits[side];
                    let (had, has) = (before[i][side], after[i][side]);
                    // Writing back what was let in takes what it needs for the map.
                    let map = match (side, mode) {
                        (0, DataMode::Delayed | DataMode::Placed) => 8 * 4096,
                        _ => 0,
                    };
                    assert!(
                        hard == 0 || has <= had.max(hard + map),
                        "{context}: {i} {side}"
                    );
                    let late = grace.is_zero() && soft != 0;
                    // What is exceeded already is not exceeded by more once the grace is over.
                    assert!(
                        !late || had <= soft || has <= had + map,
                        "{context}: {i} {side}"
                    );
                    let more = match &step {
                        // A whole file changes its group or project.
                        Step::Group(..) | Step::Project(..) => [1 << 20, 1][side],
                        Step::Append(..) if map > 0 => unit,
                        // What is mapped at once needs room for that as well.
                        _ => 2 * unit - side as u64,
                    };
                    reason |= hard != 0 && has + more > hard;
                    reason |= late && has + more > soft;
                    over += u32::from(soft != 0 && has > soft);
                }
            }
            if done == Err(EDQUOT) {
                assert!(reason, "{context}: refused for nothing");
                refused += 1;
            }
        }
        balanced(&fs);
        drop((dir, root));
        fs.close().unwrap();
        drop(fs);
        assert_clean(&image.path());
    }
    assert!(refused > 20 && over > 20, "{refused} {over}");
}

#[test]
fn many_writers_at_a_limit_use_all_of_it_and_lose_nothing() {
    let seed = seed_from_env("many writers at a limit");
    for (round, mode) in [DataMode::Delayed, DataMode::Placed, DataMode::Through]
        .into_iter()
        .enumerate()
    {
        let image = make(64, &["-b", "4096", "-O", "quota,project"]);
        let (most, files) = (300 * 4096, 40);
        let fs = open(&image, mode, Enforced::ALL);
        let change = limits((0, most), (0, files));
        ops::set_quota(&*fs, QuotaKind::User, USER, change).unwrap();
        let root = fs.hold(Ino::ROOT).unwrap();
        ops::chmod(&*fs, &root, 0o777).unwrap();
        let kept: Vec<BTreeMap<Vec<u8>, Vec<u8>>> = std::thread::scope(|scope| {
            let threads = (0..4_u64).map(|thread| {
                let (fs, root) = (&fs, &root);
                scope.spawn(move || write_to_the_limit(fs, root, seed + thread, thread))
            });
            let threads: Vec<_> = threads.collect();
            threads.into_iter().map(|t| t.join().unwrap()).collect()
        });
        let [space, inodes] = ops::quota_in_use(&fs, QuotaKind::User, USER).unwrap();
        assert!(space <= most && inodes <= files, "{space} {inodes}");
        // What is left can be had to the last block, and nothing beyond.
        let caller = Caller::new(USER, USER);
        let by = fs.acting_for(&caller);
        let name = kept.iter().flat_map(BTreeMap::keys).next().unwrap().clone();
        let found = ops::lookup(&fs, &root.snapshot(), &name).unwrap();
        let file = fs.hold(found.ino()).unwrap();
        let far = 64 << 20;
        let mut at = far;
        let last = loop {
            match ops::pwrite(by, &file, at, &[7; 4096]) {
                Ok(4096) => at += 4096,
                other => break other,
            }
        };
        assert!(matches!(last, Err(Error::QuotaExceeded)), "{last:?}");
        let [space, _] = ops::quota_in_use(&fs, QuotaKind::User, USER).unwrap();
        // A block of the map may be what is missing.
        assert!(space <= most && space + 4096 >= most, "{space} of {most}");
        ops::truncate(by, &file, far.min(file.live_size().min(at))).unwrap();
        drop(file);
        balanced(&fs);
        drop(root);
        fs.close().unwrap();
        drop(fs);
        assert_clean(&image.path());
        let fs = image.open();
        let root = fs.hold(Ino::ROOT).unwrap();
        for (name, content) in kept.iter().flatten() {
            let found = ops::lookup(&fs, &root.snapshot(), name).unwrap();
            let mut read = vec![0; content.len()];
            let file = fs.hold(found.ino()).unwrap();
            let got = ops::pread(&fs, &file, 0, &mut read).unwrap();
            assert!(got == content.len() && read == *content, "round {round}");
        }
    }
}

/// Writes, cuts and removes files of its own at a limit; returns what it was told has been written.
fn write_to_the_limit(fs: &Fs, root: &Held, seed: u64, thread: u64) -> BTreeMap<Vec<u8>, Vec<u8>> {
    let mut rng = Rng::new(seed);
    let caller = Caller::new(USER, USER);
    let by = fs.acting_for(&caller);
    let mut kept: BTreeMap<Vec<u8>, (Held, Vec<u8>)> = BTreeMap::new();
    for n in 0..300_u64 {
        let some: Vec<Vec<u8>> = kept.keys().cloned().collect();
        let is_first = some.is_empty();
        match rng.below(8) {
            0 | 1 if kept.len() < 12 => {
                let name = format!("{thread}-{n}").into_bytes();
                let new = NewInode {
                    uid: USER,
                    gid: USER,
                    ..NewInode::new(FileType::Regular, 0o644, Timestamp::default())
                };
                match ops::create(by, root, &name, &new) {
                    Ok(file) => {
                        kept.insert(name, (file, Vec::new()));
                    }
                    Err(Error::QuotaExceeded) => {}
                    Err(e) => panic!("{e}"),
                }
            }
            2 if kept.len() > 2 => {
                let name = rng.pick(&some);
                ops::unlink(by, root, name).unwrap();
                let (file, _) = kept.remove(name).unwrap();
                ops::release(fs, file).unwrap();
            }
            3 if !is_first => {
                let (file, content) = kept.get_mut(rng.pick(&some)).unwrap();
                let size = rng.below(content.len() as u64 + 1);
                ops::truncate(by, file, size).unwrap();
                content.truncate(size as usize);
            }
            4 if rng.one_in(4) => fs.sync().unwrap(),
            _ if !is_first => {
                let (file, content) = kept.get_mut(rng.pick(&some)).unwrap();
                let data = pattern(n, rng.between(1, 60_000) as usize);
                match ops::append(by, file, &data) {
                    Ok((at, len)) => {
                        assert_eq!(at, content.len() as u64);
                        content.extend_from_slice(&data[..len]);
                    }
                    Err(Error::QuotaExceeded) => {}
                    Err(e) => panic!("{e}"),
                }
            }
            _ => {}
        }
    }
    let kept = kept.into_iter();
    kept.map(|(name, (_, content))| (name, content)).collect()
}

#[test]
fn who_gets_something_is_held_to_his_limits_and_user_0_is_not() {
    let image = make(16, &["-b", "4096", "-O", "quota,project"]);
    let fs = open(&image, DataMode::Delayed, Enforced::ALL);
    let root = fs.hold(Ino::ROOT).unwrap();
    let new = NewInode {
        uid: USER,
        gid: USER,
        ..NewInode::new(FileType::Regular, 0o644, Timestamp::default())
    };
    let file = ops::create(&*fs, &root, b"f", &new).unwrap();
    ops::pwrite(&*fs, &file, 0, &[1; 40_000]).unwrap();
    let small = limits((0, 8 * 4096), (0, 0));
    ops::set_quota(&*fs, QuotaKind::Group, USER + 1, small).unwrap();
    let caller = Caller::new(USER, USER).groups(vec![USER + 1]);
    let by = fs.acting_for(&caller);
    // Whether it has its place or not.
    for _ in 0..2 {
        let given = ops::chown(by, &file, None, Some(USER + 1));
        assert!(matches!(given, Err(Error::QuotaExceeded)), "{given:?}");
        assert_eq!(file.snapshot().disk().gid, USER);
        balanced(&fs);
    }
    ops::truncate(by, &file, 8 * 4096).unwrap();
    ops::chown(by, &file, None, Some(USER + 1)).unwrap();
    let more = ops::pwrite(by, &file, 8 * 4096, b"x");
    assert!(matches!(more, Err(Error::QuotaExceeded)), "{more:?}");
    // An attribute that takes a block, and a reservation.
    let value = vec![3; 3000];
    let set = ops::setxattr(by, &file, b"user.a", &value, SetXattr::Any);
    assert!(matches!(set, Err(Error::QuotaExceeded)), "{set:?}");
    let reserved = ops::fallocate(by, &file, 1 << 20, 4096, FallocateMode::default());
    assert!(
        matches!(reserved, Err(Error::QuotaExceeded)),
        "{reserved:?}"
    );
    ops::pwrite(&*fs, &file, 8 * 4096, b"x").unwrap();
    // What is refused half-way leaves neither a count nor a time.
    let new = NewInode {
        permissions: 0o755,
        ..new
    };
    let dir = ops::mkdir(&*fs, &root, b"theirs", &new).unwrap();
    let was = dir.snapshot();
    let caller = Caller::new(USER, USER + 1);
    let made = ops::mkdir(fs.acting_for(&caller), &dir, b"sub", &new);
    assert!(matches!(made, Err(Error::QuotaExceeded)), "{made:?}");
    assert_eq!(dir.snapshot().disk(), was.disk());
    balanced(&fs);
    assert_eq!(used(&fs, QuotaKind::Group, USER + 1).0, 9 * 4096);
    // Projects hold everybody but user 0, too.
    let one = limits((0, 0), (0, 1));
    ops::set_quota(&*fs, QuotaKind::Project, 7, one).unwrap();
    let dir = NewInode {
        file_type: FileType::Directory,
        ..new.clone()
    };
    let dir = ops::mkdir(&*fs, &root, b"d", &dir).unwrap();
    ops::chattr(&*fs, &dir, InodeFlags::PROJECT_INHERIT, InodeFlags::empty()).unwrap();
    drop((file, dir, root));
    fs.close().unwrap();
    drop(fs);
    assert_clean(&image.path());
}

#[test]
fn grace_begins_ends_and_is_over() {
    let image = make(16, &["-b", "4096", "-O", "quota"]);
    let enforced = Enforced {
        users: true,
        ..Enforced::default()
    };
    let fs = open(&image, DataMode::Delayed, enforced);
    let root = fs.hold(Ino::ROOT).unwrap();
    ops::chmod(&*fs, &root, 0o777).unwrap();
    let grace = Grace {
        space: Duration::from_secs(3600),
        inodes: Duration::from_secs(2),
    };
    ops::set_quota_grace(&*fs, QuotaKind::User, grace).unwrap();
    let change = limits((4 * 4096, 0), (2, 0));
    ops::set_quota(&*fs, QuotaKind::User, USER, change).unwrap();
    let caller = Caller::new(USER, USER);
    let by = fs.acting_for(&caller);
    let new = NewInode {
        uid: USER,
        gid: USER,
        ..NewInode::new(FileType::Regular, 0o644, Timestamp::default())
    };
    let file = ops::create(by, &root, b"a", &new).unwrap();
    ops::pwrite(by, &file, 0, &[1; 4 * 4096]).unwrap();
    balanced(&fs);
    assert_eq!(used(&fs, QuotaKind::User, USER).2, [false; 2]);
    ops::pwrite(by, &file, 4 * 4096, &[1]).unwrap();
    balanced(&fs);
    assert_eq!(used(&fs, QuotaKind::User, USER).2, [true, false]);
    let quota = ops::quota(&*fs, QuotaKind::User, USER).unwrap().unwrap();
    let ends = quota.space_limits.grace_ends.unwrap();
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    assert!(ends.abs_diff(now.as_secs() + 3600) < 60, "{ends}");
    // Writing on is allowed, and below the limit the time is forgotten.
    ops::pwrite(by, &file, 5 * 4096, &[1]).unwrap();
    ops::truncate(by, &file, 100).unwrap();
    balanced(&fs);
    assert_eq!(used(&fs, QuotaKind::User, USER).2, [false; 2]);
    ops::create(by, &root, b"b", &new).unwrap();
    ops::create(by, &root, b"c", &new).unwrap();
    std::thread::sleep(Duration::from_millis(3100));
    let late = ops::create(by, &root, b"d", &new);
    assert!(matches!(late, Err(Error::QuotaExceeded)), "{late:?}");
    // It is known after opening anew, too.
    drop((file, root));
    fs.close().unwrap();
    drop(fs);
    let fs = open(&image, DataMode::Delayed, enforced);
    let by = fs.acting_for(&caller);
    let root = fs.hold(Ino::ROOT).unwrap();
    let late = ops::create(by, &root, b"d", &new);
    assert!(matches!(late, Err(Error::QuotaExceeded)), "{late:?}");
    ops::unlink(by, &root, b"c").unwrap();
    fs.sync().unwrap();
    ops::unlink(by, &root, b"b").unwrap();
    ops::create(by, &root, b"d", &new).unwrap();
    balanced(&fs);
    drop(root);
    fs.close().unwrap();
    drop(fs);
    assert_clean(&image.path());
}

#[test]
fn limits_of_what_is_not_counted_are_refused() {
    let image = make(16, &["-O", "quota"]);
    let device = FileDevice::open(image.path()).unwrap();
    let options = MountOptions::read_write().quotas(Enforced::ALL);
    let e = Fs::open(Arc::new(device), options).unwrap_err();
    assert!(e.to_string().contains("project"), "{e}");
}

/// A user that has used up its space, and what it has by then.
fn at_the_limit(image: &Image) -> (Arc<Fs>, Held, u64) {
    let fs = open(image, DataMode::Delayed, Enforced::ALL);
    let root = fs.hold(Ino::ROOT).unwrap();
    ops::chmod(&*fs, &root, 0o777).unwrap();
    let most = 4 * 4096;
    let change = limits((0, most), (0, 0));
    ops::set_quota(&*fs, QuotaKind::User, USER, change).unwrap();
    let caller = Caller::new(USER, USER);
    let by = fs.acting_for(&caller);
    let full = ops::create(by, &root, b"full", &mine(FileType::Regular)).unwrap();
    ops::pwrite(by, &full, 0, &[1; 4 * 4096]).unwrap();
    let more = ops::pwrite(by, &full, most, b"x");
    assert!(matches!(more, Err(Error::QuotaExceeded)), "{more:?}");
    (fs, root, most)
}

fn mine(file_type: FileType) -> NewInode {
    NewInode {
        uid: USER,
        gid: USER,
        ..NewInode::new(file_type, 0o755, Timestamp::default())
    }
}

fn in_use(fs: &Fs) -> u64 {
    ops::quota_in_use(fs, QuotaKind::User, USER).unwrap()[0]
}

#[test]
fn what_leaves_its_inode_is_held_to_limits() {
    let image = make(
        16,
        &["-b", "4096", "-I", "256", "-O", "quota,project,inline_data"],
    );
    let (fs, root, most) = at_the_limit(&image);
    let caller = Caller::new(USER, USER);
    let by = fs.acting_for(&caller);
    for n in 0..4 {
        let name = format!("small{n}").into_bytes();
        let small = ops::create(by, &root, &name, &mine(FileType::Regular)).unwrap();
        ops::pwrite(by, &small, 0, &[2; 50]).unwrap();
        let grown = ops::pwrite(by, &small, 50, &[3; 4000]);
        assert!(
            matches!(grown, Err(Error::QuotaExceeded)),
            "{grown:?}, {}",
            in_use(&fs)
        );
        let mut read = [0; 100];
        assert_eq!(ops::pread(&fs, &small, 0, &mut read).unwrap(), 50);
        assert_eq!(in_use(&fs), most);
    }
    // A directory is made, and takes names while they fit.
    let dir = ops::mkdir(by, &root, b"dir", &mine(FileType::Directory)).unwrap();
    ops::mkdir(by, &dir, b"sub", &mine(FileType::Directory)).unwrap();
    let grown = ops::create(by, &dir, &[b'n'; 200], &mine(FileType::Regular));
    assert!(matches!(grown, Err(Error::QuotaExceeded)), "{grown:?}");
    assert_eq!(in_use(&fs), most);
    drop(dir);
    balanced(&fs);
    drop(root);
    fs.close().unwrap();
    drop(fs);
    assert_clean(&image.path());
}

#[test]
fn long_targets_are_held_to_limits() {
    let image = make(16, &["-b", "4096", "-O", "quota,project"]);
    let (fs, root, most) = at_the_limit(&image);
    let caller = Caller::new(USER, USER);
    let by = fs.acting_for(&caller);
    let made = ops::symlink(by, &root, b"l", &[b'x'; 1000], &mine(FileType::Symlink));
    assert!(
        matches!(made, Err(Error::QuotaExceeded)),
        "{made:?}, {} of {most}",
        in_use(&fs)
    );
    assert_eq!(in_use(&fs), most);
    balanced(&fs);
}

#[test]
fn lists_that_files_inherit_are_held_to_limits() {
    let image = make(16, &["-b", "4096", "-I", "256", "-O", "quota,project"]);
    let (fs, root, most) = at_the_limit(&image);
    let caller = Caller::new(USER, USER);
    let by = fs.acting_for(&caller);
    // Too long for a record.
    let mut list = vec![2, 0, 0, 0];
    let mut entry = |tag: u16, id: u32| {
        list.extend([tag.to_le_bytes(), 7_u16.to_le_bytes()].concat());
        list.extend(id.to_le_bytes());
    };
    entry(1, u32::MAX);
    (0..30).for_each(|id| entry(2, 2000 + id));
    for tag in [4, 16, 32] {
        entry(tag, u32::MAX);
    }
    ops::setxattr(
        &*fs,
        &root,
        b"system.posix_acl_default",
        &list,
        SetXattr::Any,
    )
    .unwrap();
    for n in 0..3 {
        let name = format!("n{n}").into_bytes();
        let made = ops::create(by, &root, &name, &mine(FileType::Regular));
        assert!(
            matches!(made, Err(Error::QuotaExceeded)),
            "{made:?}, {} of {most}",
            in_use(&fs)
        );
        assert_eq!(in_use(&fs), most);
    }
    let made = ops::create(&*fs, &root, b"n", &mine(FileType::Regular)).unwrap();
    assert_eq!(in_use(&fs), most + 4096);
    balanced(&fs);
    drop((made, root));
    fs.close().unwrap();
    drop(fs);
    assert_clean(&image.path());
}

#[test]
fn small_files_change_and_leave_under_many_hands() {
    let seed = seed_from_env("small files under many hands");
    for (mode, features) in [
        (DataMode::Delayed, "quota,project,inline_data"),
        (DataMode::Placed, "quota,project,inline_data"),
        (DataMode::Through, "quota,project,inline_data"),
        (DataMode::Delayed, "quota,project,bigalloc"),
        (DataMode::Delayed, "quota,project,^extent,^64bit"),
    ] {
        let image = make(32, &["-b", "1024", "-I", "256", "-O", features]);
        let fs = open(&image, mode, Enforced::ALL);
        let root = fs.hold(Ino::ROOT).unwrap();
        ops::chmod(&*fs, &root, 0o777).unwrap();
        ops::set_quota(&*fs, QuotaKind::User, USER, limits((0, 8 << 20), (0, 20))).unwrap();
        let caller = Caller::new(USER, USER);
        std::thread::scope(|scope| {
            for thread in 0..4_u64 {
                let (fs, root, caller) = (&fs, &root, &caller);
                scope.spawn(move || {
                    let by = fs.acting_for(caller);
                    let mut rng = Rng::new(seed + thread);
                    for n in 0..1500_u64 {
                        let name = format!("f{}", rng.below(3)).into_bytes();
                        let found = ops::lookup(fs, &root.snapshot(), &name);
                        let held = match found.and_then(|f| fs.hold(f.ino())) {
                            Ok(held) => held,
                            Err(_) => {
                                match ops::create(by, root, &name, &mine(FileType::Regular)) {
                                    Ok(held) => held,
                                    Err(Error::Exists) => continue,
                                    Err(e) => panic!("{n}: create {e}"),
                                }
                            }
                        };
                        let at = rng.below(160);
                        let len = rng.between(1, 80) as usize;
                        let big = rng.one_in(12);
                        let len = if big { len * 40 } else { len };
                        let did = rng.below(14);
                        let done: Result<()> = match did {
                            0..4 => ops::pwrite(by, &held, at, &vec![7; len]).map(drop),
                            4 => ops::append(by, &held, &vec![7; len]).map(drop),
                            5 | 6 => ops::truncate(by, &held, at),
                            7 | 8 => {
                                let mut buf = vec![1; 300];
                                ops::pread(fs, &held, at, &mut buf).map(|got| {
                                    let ok = buf[..got].iter().all(|b| matches!(b, 0 | 7));
                                    assert!(ok, "{n}: {at} {:?}", &buf[..got]);
                                })
                            }
                            9 => ops::setxattr(
                                by,
                                &held,
                                b"user.a",
                                &vec![3; len.min(900)],
                                SetXattr::Any,
                            ),
                            10 => ops::fdatasync(fs, &held).map(drop),
                            11 if rng.one_in(6) => {
                                ops::fallocate(by, &held, 0, at + 1, FallocateMode::default())
                            }
                            11 => ops::chown(&**fs, &held, Some(USER + rng.below(2) as u32), None),
                            12 if rng.one_in(2) => match ops::unlink(by, root, &name) {
                                Err(Error::NotFound) => Ok(()),
                                done => done,
                            },
                            13 if rng.one_in(9) => fs.sync(),
                            _ => Ok(()),
                        };
                        if let Err(e) = done {
                            let other = matches!(
                                e,
                                Error::Stale
                                    | Error::NotFound
                                    | Error::NotPermitted
                                    | Error::PermissionDenied
                            ) || did == 11 && matches!(e, Error::Unsupported { .. });
                            assert!(other, "{n}: {did}: {e:?}");
                        }
                        let released = ops::release(fs, held);
                        assert!(released.is_ok(), "{released:?}");
                    }
                });
            }
        });
        balanced(&fs);
        drop(root);
        fs.close().unwrap();
        drop(fs);
        assert_clean(&image.path());
    }
}

#[test]
fn who_owned_what_recovery_deletes_has_its_space_again() {
    let image = make(16, &["-b", "4096", "-O", "quota,project"]);
    let fs = open(&image, DataMode::Delayed, Enforced::ALL);
    let root = fs.hold(Ino::ROOT).unwrap();
    let gone = ops::create(&*fs, &root, b"gone", &mine(FileType::Regular)).unwrap();
    let kept = ops::create(&*fs, &root, b"kept", &mine(FileType::Regular)).unwrap();
    ops::pwrite(&*fs, &gone, 0, &[1; 10 * 4096]).unwrap();
    ops::pwrite(&*fs, &kept, 0, &[1; 3 * 4096]).unwrap();
    fs.sync().unwrap();
    ops::unlink(&*fs, &root, b"gone").unwrap();
    fs.sync().unwrap();
    assert_eq!(in_use(&fs), 13 * 4096);
    let crashed = image.path().with_extension("crashed");
    std::fs::copy(image.path(), &crashed).unwrap();
    let device = Arc::new(FileDevice::open(&crashed).unwrap());
    let options = MountOptions::read_write().quotas(Enforced::ALL);
    let recovered = Fs::open(device, options).unwrap();
    balanced(&recovered);
    assert_eq!(in_use(&recovered), 3 * 4096);
    recovered.close().unwrap();
    drop(recovered);
    assert_clean(&crashed);
    drop((gone, kept, root));
    fs.close().unwrap();
}

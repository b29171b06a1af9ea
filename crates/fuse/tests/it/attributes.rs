//! What `stat` shows after a change: what Linux shows, at once, and what is stored.

use crate::support::{Image, Mount};
use extant_testkit::mount::{KernelMount, Mode};
use extant_testkit::require;
use rustix::fs::{
    AtFlags, CWD, FallocateFlags, Gid, IFlags, Mode as Bits, RenameFlags, Timespec, Timestamps,
    UTIME_NOW, UTIME_OMIT, Uid, XattrFlags,
};
use std::collections::BTreeMap;
use std::fs::{self, File, Permissions};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, symlink};
use std::path::Path;
use std::time::Duration;

/// Longer than Linux' clock of files stands still.
const TICK: Duration = Duration::from_millis(12);
const LIST: &str = "system.posix_acl_access";
const CHANGED: [&str; 2] = ["same", "changed"];

/// An access control list with these permissions of owner, group and others, and of user 5 if there
/// are any.
fn list(owner: u16, user: Option<u16>, group: u16, other: u16) -> Vec<u8> {
    let all = u32::MAX;
    let mut entries = vec![(1_u16, owner, all), (4, group, all), (32, other, all)];
    if let Some(user) = user {
        entries.insert(1, (2, user, 5));
        entries.insert(3, (16, 7, all));
    }
    let mut bytes = 2_u32.to_le_bytes().to_vec();
    for (tag, permissions, id) in entries {
        bytes.extend(tag.to_le_bytes());
        bytes.extend(permissions.to_le_bytes());
        bytes.extend(id.to_le_bytes());
    }
    bytes
}

type Shown = BTreeMap<String, fs::Metadata>;

/// All of a small tree.
fn shown(dir: &Path) -> Shown {
    let mut all = Shown::new();
    let mut dirs = vec![String::new()];
    while let Some(at) = dirs.pop() {
        let path = dir.join(&at);
        all.insert(at.clone(), fs::symlink_metadata(&path).unwrap());
        for entry in fs::read_dir(&path).unwrap() {
            let entry = entry.unwrap();
            let name = format!("{at}/{}", entry.file_name().to_str().unwrap());
            let name = name.trim_start_matches('/').to_owned();
            if entry.file_type().unwrap().is_dir() {
                dirs.push(name);
            } else {
                all.insert(name.clone(), fs::symlink_metadata(dir.join(&name)).unwrap());
            }
        }
    }
    all
}

fn of_times(m: &fs::Metadata) -> [(i64, i64); 2] {
    [(m.mtime(), m.mtime_nsec()), (m.ctime(), m.ctime_nsec())]
}

/// What differs, in a form that two file systems share.
fn differences(before: &Shown, after: &Shown) -> Vec<String> {
    // Names may stand for others now.
    let before: BTreeMap<u64, &fs::Metadata> = before.values().map(|m| (m.ino(), m)).collect();
    let mut lines = Vec::new();
    for (name, now) in after {
        let size = if now.is_dir() { 0 } else { now.len() };
        let is = format!("{:o} {} {} {}", now.mode(), now.nlink(), now.uid(), size);
        let line = match before.get(&now.ino()) {
            None => format!("{name:?}: new, {is}"),
            Some(before) => {
                let [(m, c), (n, d)] = [of_times(before), of_times(now)].map(|[m, c]| (m, c));
                let [mtime, ctime] = [m != n, c != d].map(|is| CHANGED[usize::from(is)]);
                format!("{name:?}: {is}, mtime {mtime}, ctime {ctime}")
            }
        };
        lines.push(line);
    }
    lines
}

type Operation = (&'static str, fn(&Path) -> io::Result<()>);

fn writable(path: &Path) -> File {
    File::options().read(true).write(true).open(path).unwrap()
}

fn set_flag(path: &Path, flag: IFlags) -> io::Result<()> {
    let file = File::open(path)?;
    let flags = rustix::fs::ioctl_getflags(&file)?;
    Ok(rustix::fs::ioctl_setflags(&file, flags ^ flag)?)
}

fn allocated(path: &Path, how: FallocateFlags, offset: u64, len: u64) -> io::Result<()> {
    Ok(rustix::fs::fallocate(writable(path), how, offset, len)?)
}

fn renamed(dir: &Path, from: &str, to: &str, how: RenameFlags) -> io::Result<()> {
    let (from, to) = (dir.join(from), dir.join(to));
    Ok(rustix::fs::renameat_with(CWD, from, CWD, to, how)?)
}

fn timed(path: &Path, atime: Timespec, mtime: Timespec) -> io::Result<()> {
    let times = Timestamps {
        last_access: atime,
        last_modification: mtime,
    };
    Ok(rustix::fs::utimensat(
        CWD,
        path,
        &times,
        AtFlags::SYMLINK_NOFOLLOW,
    )?)
}

const fn at(secs: i64, nanos: i64) -> Timespec {
    Timespec {
        tv_sec: secs,
        tv_nsec: nanos as _,
    }
}

const NOW: Timespec = at(0, UTIME_NOW);
const OMIT: Timespec = at(0, UTIME_OMIT);

/// In a directory with `f` and its other name `h`, `g`, a symbolic link `s`, and `d` with `in`
/// inside.
const OPERATIONS: &[Operation] = &[
    ("chmod", |d| {
        fs::set_permissions(d.join("f"), Permissions::from_mode(0o640))
    }),
    ("chown", |d| {
        std::os::unix::fs::chown(d.join("f"), Some(7), Some(8))
    }),
    ("lchown", |d| {
        std::os::unix::fs::lchown(d.join("s"), Some(7), None)
    }),
    ("utimes", |d| timed(&d.join("f"), at(1, 2), at(3, 4))),
    ("touch", |d| timed(&d.join("f"), NOW, NOW)),
    ("touch the other name", |d| timed(&d.join("h"), OMIT, NOW)),
    ("chattr", |d| set_flag(&d.join("f"), IFlags::NOATIME)),
    ("chattr of a directory", |d| {
        set_flag(&d.join("d"), IFlags::NODUMP)
    }),
    ("setxattr", |d| {
        Ok(rustix::fs::setxattr(
            d.join("f"),
            "user.y",
            b"1",
            XattrFlags::empty(),
        )?)
    }),
    ("replace an attribute", |d| {
        Ok(rustix::fs::setxattr(
            d.join("h"),
            "user.x",
            b"22",
            XattrFlags::REPLACE,
        )?)
    }),
    ("removexattr", |d| {
        Ok(rustix::fs::removexattr(d.join("f"), "user.x")?)
    }),
    ("attribute of a directory", |d| {
        Ok(rustix::fs::setxattr(
            d.join("d"),
            "user.x",
            b"1",
            XattrFlags::empty(),
        )?)
    }),
    ("set a list", |d| {
        let list = list(7, Some(5), 4, 0);
        Ok(rustix::fs::setxattr(
            d.join("f"),
            LIST,
            &list,
            XattrFlags::empty(),
        )?)
    }),
    ("set a list that is a mode", |d| {
        let list = list(6, None, 0, 0);
        Ok(rustix::fs::setxattr(
            d.join("f"),
            LIST,
            &list,
            XattrFlags::empty(),
        )?)
    }),
    ("link", |d| fs::hard_link(d.join("f"), d.join("d/l"))),
    ("unlink one of two names", |d| fs::remove_file(d.join("h"))),
    ("unlink", |d| fs::remove_file(d.join("g"))),
    ("rename", |d| fs::rename(d.join("f"), d.join("f2"))),
    ("rename elsewhere", |d| {
        fs::rename(d.join("f"), d.join("d/f2"))
    }),
    ("rename over a file", |d| {
        fs::rename(d.join("g"), d.join("f"))
    }),
    ("rename a symbolic link", |d| {
        fs::rename(d.join("s"), d.join("d/s"))
    }),
    ("rename a directory", |d| {
        fs::rename(d.join("d"), d.join("e"))
    }),
    ("rename a directory elsewhere", |d| {
        fs::create_dir(d.join("e"))?;
        std::thread::sleep(TICK);
        fs::rename(d.join("d"), d.join("e/d"))
    }),
    ("exchange", |d| renamed(d, "f", "g", RenameFlags::EXCHANGE)),
    ("exchange with a directory", |d| {
        renamed(d, "f", "d", RenameFlags::EXCHANGE)
    }),
    ("leave a whiteout", |d| {
        renamed(d, "g", "g2", RenameFlags::WHITEOUT)
    }),
    ("write", |d| writable(&d.join("f")).write_all_at(b"x", 5)),
    ("write behind the end", |d| {
        writable(&d.join("f")).write_all_at(b"x", 50_000)
    }),
    ("cut", |d| writable(&d.join("f")).set_len(100)),
    ("cut to the same", |d| {
        let file = writable(&d.join("f"));
        file.set_len(file.metadata()?.len())
    }),
    ("lengthen", |d| writable(&d.join("h")).set_len(100_000)),
    ("cut by opening", |d| File::create(d.join("f")).map(drop)),
    ("allocate", |d| {
        allocated(&d.join("f"), FallocateFlags::empty(), 0, 80_000)
    }),
    ("allocate past the end", |d| {
        allocated(&d.join("f"), FallocateFlags::KEEP_SIZE, 0, 80_000)
    }),
    ("make a hole", |d| {
        let how = FallocateFlags::KEEP_SIZE | FallocateFlags::PUNCH_HOLE;
        allocated(&d.join("f"), how, 0, 8192)
    }),
    ("make zeros", |d| {
        allocated(&d.join("f"), FallocateFlags::ZERO_RANGE, 0, 5000)
    }),
    ("copy a range", |d| {
        let (from, to) = (File::open(d.join("f"))?, writable(&d.join("g")));
        rustix::fs::copy_file_range(&from, Some(&mut 0), &to, Some(&mut 0), 5000)?;
        Ok(())
    }),
    ("mkdir", |d| fs::create_dir(d.join("d/new"))),
    ("rmdir", |d| {
        fs::remove_file(d.join("d/in"))?;
        fs::remove_dir(d.join("d"))
    }),
    ("make a file", |d| {
        File::create_new(d.join("d/new")).map(drop)
    }),
    ("make a symbolic link", |d| symlink("x", d.join("d/new"))),
    ("make a pipe", |d| {
        let kind = rustix::fs::FileType::Fifo;
        Ok(rustix::fs::mknodat(
            CWD,
            d.join("d/new"),
            kind,
            Bits::from_raw_mode(0o600),
            0,
        )?)
    }),
];

/// What each operation changes.
fn all(root: &Path, check: impl Fn(&str, &Shown)) -> Vec<String> {
    let mut lines = Vec::new();
    for (number, (what, operation)) in OPERATIONS.iter().enumerate() {
        let dir = root.join(format!("at-{number}"));
        fs::create_dir_all(dir.join("d")).unwrap();
        fs::write(dir.join("f"), vec![1; 10_000]).unwrap();
        fs::write(dir.join("g"), b"another").unwrap();
        fs::write(dir.join("d/in"), b"").unwrap();
        fs::hard_link(dir.join("f"), dir.join("h")).unwrap();
        symlink("f", dir.join("s")).unwrap();
        rustix::fs::setxattr(dir.join("f"), "user.x", b"1", XattrFlags::empty()).unwrap();
        let before = shown(&dir);
        std::thread::sleep(TICK);
        let done = operation(&dir).map_err(|e| e.raw_os_error());
        let after = shown(&dir);
        lines.push(format!("{what}: {done:?}"));
        lines.extend(
            differences(&before, &after)
                .into_iter()
                .map(|line| format!("{what}: {line}")),
        );
        check(what, &after);
    }
    lines
}

/// What is shown is what the engine has.
fn is_stored(mount: &Mount, what: &str, shown: &Shown) {
    for (name, shown) in shown {
        let stored = mount.stored(shown.ino());
        let time = |time: extant_core::inode::Timestamp| (time.secs, i64::from(time.nanos));
        let expected = (
            [time(stored.mtime), time(stored.ctime)],
            (u64::from(stored.links), stored.size, stored.sectors),
        );
        let found = (
            of_times(shown),
            (shown.nlink(), shown.len(), shown.blocks()),
        );
        assert_eq!(found, expected, "{what}: {name:?}, shown on the left");
    }
}

#[test]
fn every_change_is_shown_at_once_as_under_linux() {
    require!(Fuse, KernelExt4);
    let new = || Image::new(64 << 20, &["-b", "4096"]);
    let theirs = new();
    let expected = {
        let mount = KernelMount::mount(&theirs.path(), Mode::ReadWrite, "");
        all(mount.path(), |_, _| ())
    };
    for options in ["", "direct_io", "no_default_permissions"] {
        let ours = new();
        let mount = ours.mount(options);
        let found = all(mount.path(), |what, shown| is_stored(&mount, what, shown));
        for (expected, found) in expected.iter().zip(&found) {
            assert_eq!(found, expected, "ours on the left, with {options:?}");
        }
        assert_eq!(found.len(), expected.len());
        mount.unmount();
        ours.assert_clean();
    }
}

const TIMES: [(i64, i64); 11] = [
    (0, 0),
    (1_500_000_000, 123_456_789),
    (2_147_483_647, 999_999_999),
    (2_147_483_648, 5),
    (4_000_000_000, 7),
    (15_032_385_534, 5),
    (15_032_385_536, 0),
    (99_999_999_999, 5),
    (-1, 5),
    (-2_147_483_647, 5),
    (-2_147_483_649, 5),
];

/// What is shown of times after they were set.
fn times(root: &Path) -> Vec<String> {
    let shown = |name: &str| {
        let m = fs::symlink_metadata(root.join(name)).unwrap();
        ((m.atime(), m.atime_nsec()), (m.mtime(), m.mtime_nsec()))
    };
    let mut lines = Vec::new();
    for (number, (secs, nanos)) in TIMES.into_iter().enumerate() {
        let name = format!("f{number}");
        fs::write(root.join(&name), b"").unwrap();
        timed(&root.join(&name), at(secs, nanos), at(secs, nanos)).unwrap();
        lines.push(format!("{secs}.{nanos}: {:?}", shown(&name)));
    }
    lines
}

#[test]
fn times_that_the_format_cannot_hold_are_shown_as_they_are_stored() {
    require!(Fuse, KernelExt4);
    for size in ["128", "256"] {
        let new = || Image::new(16 << 20, &["-I", size]);
        let theirs = new();
        let expected = {
            let mount = KernelMount::mount(&theirs.path(), Mode::ReadWrite, "");
            times(mount.path())
        };
        let ours = new();
        let mount = ours.mount("");
        let found = times(mount.path());
        assert_eq!(found, expected, "{size}, ours on the left");
        // A new inode, too.
        fs::create_dir(mount.at("dir")).unwrap();
        fs::write(mount.at("dir/written"), b"content").unwrap();
        let names = ["", "dir", "dir/written", "f1"];
        let all = |mount: &Mount| {
            names.map(|name| {
                let m = fs::symlink_metadata(mount.at(name)).unwrap();
                (of_times(&m), m.atime(), m.atime_nsec())
            })
        };
        File::open(mount.at("dir/written"))
            .unwrap()
            .sync_all()
            .unwrap();
        let before = all(&mount);
        mount.unmount();
        let mount = ours.mount("ro");
        assert_eq!(
            all(&mount),
            before,
            "{size}, after mounting again on the left"
        );
        mount.unmount();
        ours.assert_clean();
    }
}

/// What may be done to what is append-only or immutable.
fn protected(root: &Path) -> Vec<String> {
    let mut lines = Vec::new();
    for (flag, what) in [
        (IFlags::APPEND, "append-only"),
        (IFlags::IMMUTABLE, "immutable"),
    ] {
        for is_dir in [false, true] {
            let path = root.join(format!("{what}-{is_dir}"));
            if is_dir {
                fs::create_dir(&path).unwrap();
                fs::write(path.join("in"), b"").unwrap();
            } else {
                fs::write(&path, b"content").unwrap()
            }
            rustix::fs::setxattr(&path, "user.x", b"1", XattrFlags::empty()).unwrap();
            set_flag(&path, flag).unwrap();
            let mut tried = |how: &str, result: io::Result<()>| {
                let outcome = result.map_err(|e| e.raw_os_error());
                lines.push(format!("{what}, directory {is_dir}: {how}: {outcome:?}"));
            };
            tried("touch", timed(&path, NOW, NOW));
            tried("set times", timed(&path, at(1, 2), at(3, 4)));
            tried("set one time", timed(&path, OMIT, at(3, 4)));
            tried("set one time to now", timed(&path, NOW, OMIT));
            tried("set the other time to now", timed(&path, OMIT, NOW));
            tried("set one to now and one", timed(&path, NOW, at(3, 4)));
            tried(
                "chmod",
                fs::set_permissions(&path, Permissions::from_mode(0o700)),
            );
            let owner = (Some(Uid::from_raw(1)), Some(Gid::from_raw(1)));
            tried(
                "chown",
                rustix::fs::chown(&path, owner.0, owner.1).map_err(Into::into),
            );
            let set = rustix::fs::setxattr(&path, "user.y", b"1", XattrFlags::empty());
            tried("setxattr", set.map_err(Into::into));
            let removed = rustix::fs::removexattr(&path, "user.x");
            tried("removexattr", removed.map_err(Into::into));
            let list = list(7, Some(5), 4, 0);
            let set = rustix::fs::setxattr(&path, LIST, &list, XattrFlags::empty());
            tried("set a list", set.map_err(Into::into));
            if is_dir {
                tried("make a name", fs::write(path.join("new"), b""));
                tried("remove a name", fs::remove_file(path.join("in")));
            } else {
                tried("link", fs::hard_link(&path, root.join("linked")));
            }
            tried("rename", fs::rename(&path, root.join("renamed")));
            tried("chattr", set_flag(&path, IFlags::NODUMP));
            tried("chattr back", set_flag(&path, flag));
        }
    }
    lines
}

#[test]
fn what_protected_files_take_is_what_linux_says() {
    require!(Fuse, KernelExt4);
    let theirs = Image::new(16 << 20, &[]);
    let expected = {
        let mount = KernelMount::mount(&theirs.path(), Mode::ReadWrite, "");
        protected(mount.path())
    };
    for options in ["", "writeback_cache"] {
        let ours = Image::new(16 << 20, &[]);
        let mount = ours.mount(options);
        let found = protected(mount.path());
        for (expected, found) in expected.iter().zip(&found) {
            // The kernel tells when it took a write in the same words.
            let is_named = |how| found.contains(how) && found.contains("append-only");
            let alone = ["set one time:", "set the other time to now:"];
            if !options.is_empty() && alone.into_iter().any(is_named) {
                continue;
            }
            assert_eq!(found, expected, "ours on the left, with {options:?}");
        }
        mount.unmount();
        ours.assert_clean();
    }
}

/// The mode of a file of user 100 and group 100 with set-group-ID, after a list was set by that
/// user, of these groups.
fn after_a_list(root: &Path, name: &str, groups: &'static [u32], value: &[u8]) -> u32 {
    let path = root.join(name);
    fs::write(&path, b"").unwrap();
    std::os::unix::fs::chown(&path, Some(100), Some(100)).unwrap();
    fs::set_permissions(&path, Permissions::from_mode(0o2755)).unwrap();
    std::thread::scope(|scope| {
        let done = scope.spawn(|| {
            let (uid, gid) = (Uid::from_raw(100), Gid::from_raw(101));
            let groups: Vec<_> = groups.iter().map(|&group| Gid::from_raw(group)).collect();
            rustix::thread::set_thread_groups(&groups).unwrap();
            rustix::thread::set_thread_res_gid(gid, gid, gid).unwrap();
            rustix::thread::set_thread_res_uid(uid, uid, uid).unwrap();
            rustix::fs::setxattr(&path, LIST, value, XattrFlags::empty()).unwrap();
        });
        done.join().unwrap();
    });
    fs::metadata(&path).unwrap().mode() & 0o7777
}

fn lists(root: &Path) -> Vec<u32> {
    fs::set_permissions(root, Permissions::from_mode(0o777)).unwrap();
    let plain = list(7, None, 7, 7);
    let named = list(7, Some(4), 7, 7);
    vec![
        after_a_list(root, "plain", &[], &plain),
        after_a_list(root, "named", &[], &named),
        after_a_list(root, "plain in the group", &[100], &plain),
        after_a_list(root, "named in the group", &[100], &named),
    ]
}

#[test]
fn a_list_takes_set_group_id_away_if_who_sets_it_is_not_in_the_group() {
    require!(Fuse, Root, KernelExt4);
    let theirs = Image::new(16 << 20, &[]);
    let expected = {
        let mount = KernelMount::mount(&theirs.path(), Mode::ReadWrite, "");
        lists(mount.path())
    };
    assert_eq!(expected, [0o777, 0o777, 0o2777, 0o2777]);
    for options in ["allow_other", "allow_other,writeback_cache"] {
        let ours = Image::new(16 << 20, &[]);
        let mount = ours.mount(options);
        assert_eq!(lists(mount.path()), expected, "{options}");
        mount.unmount();
        ours.assert_clean();
    }
}

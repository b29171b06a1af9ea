//! Calls done on our mount and on the kernel's ext4, with the same outcome.

use crate::support::Image;
use extant_testkit::mount::{KernelMount, Mode};
use extant_testkit::require;
use extant_testkit::rings::Enabled;
use extant_testkit::tree::{Compare, Tree};
use rustix::fs::{
    AtFlags, CWD, FallocateFlags, FileType, Gid, Mode as Bits, RenameFlags, SeekFrom, Uid,
    XattrFlags,
};
use std::fmt::Debug;
use std::fs::{self, File, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};
use std::time::Duration;

/// What was done and what came of it, line by line.
struct Record<'a> {
    root: &'a Path,
    lines: Vec<String>,
    /// Whether holes are looked for.
    holes: bool,
}

impl Record<'_> {
    fn at(&self, path: &str) -> PathBuf {
        self.root.join(path)
    }

    fn note(&mut self, what: &str, outcome: impl Debug) {
        self.lines.push(format!("{what}: {outcome:?}"));
    }

    /// Notes what a call returned: its value, or its error number.
    fn tried<T: Debug>(&mut self, what: &str, result: io::Result<T>) {
        let outcome = result.map_err(|e| e.raw_os_error());
        self.note(what, outcome);
    }

    /// What `stat` says, but for what no two file systems share.
    fn stat(&mut self, path: &str) {
        let found = fs::symlink_metadata(self.at(path)).map(|m| {
            let size = if m.is_dir() { 0 } else { m.len() };
            (m.mode(), m.nlink(), m.uid(), m.gid(), size, m.rdev())
        });
        self.tried(&format!("stat {path}"), found);
    }

    fn names(&mut self, path: &str) {
        let listed = fs::read_dir(self.at(path)).and_then(|entries| {
            let mut names = entries
                .map(|entry| Ok(entry?.file_name()))
                .collect::<io::Result<Vec<_>>>()?;
            names.sort();
            Ok(names)
        });
        self.tried(&format!("list {path}"), listed);
    }
}

fn errno<T>(result: rustix::io::Result<T>) -> io::Result<T> {
    result.map_err(io::Error::from)
}

fn files(r: &mut Record<'_>) {
    let path = r.at("file");
    r.tried("write", fs::write(&path, b"hello"));
    r.tried("read", fs::read(&path));
    r.tried("no such", fs::read(r.at("none")));
    r.tried("again no such", fs::read(r.at("none")));
    r.tried("now there", fs::write(r.at("none"), b"x"));
    r.stat("none");
    let created = File::options().write(true).create_new(true).open(&path);
    r.tried("exclusive", created.map(drop));
    let appended = File::options()
        .append(true)
        .open(&path)
        .and_then(|mut f| f.write_all(b" world"));
    r.tried("append", appended);
    r.tried("appended", fs::read_to_string(&path));
    let file = File::options().read(true).write(true).open(&path).unwrap();
    r.tried("sparse", file.write_at(b"end", 1_000_000));
    r.tried("cut", file.set_len(700_000));
    r.tried("grow", file.set_len(800_000));
    r.tried("sync", file.sync_all());
    r.stat("file");
    // The kernel takes all for data unless it is told.
    if r.holes {
        r.tried("data", errno(rustix::fs::seek(&file, SeekFrom::Data(5000))));
        r.tried("hole", errno(rustix::fs::seek(&file, SeekFrom::Hole(0))));
    }
    let truncated = File::options().write(true).truncate(true).open(&path);
    r.tried("truncate", truncated.map(drop));
    r.stat("file");
    r.tried("a file as directory", fs::read(r.at("file/x")));
    r.tried("a directory as file", fs::write(r.at("."), b""));
    let long = "n".repeat(256);
    r.tried("long name", fs::write(r.at(&long), b""));
    r.tried("longest name", fs::write(r.at(&long[1..]), b""));
}

fn reservations(r: &mut Record<'_>) {
    let path = r.at("reserved");
    fs::write(&path, vec![7; 100_000]).unwrap();
    let file = File::options().read(true).write(true).open(&path).unwrap();
    let mut call = |what: &str, flags: FallocateFlags, offset, len| {
        let done = errno(rustix::fs::fallocate(&file, flags, offset, len));
        r.tried(what, done);
        let content = fs::read(&path).unwrap();
        let sum: u64 = content.iter().map(|&b| u64::from(b)).sum();
        r.note("content", (content.len(), sum));
    };
    call("allocate", FallocateFlags::empty(), 90_000, 50_000);
    call("keep", FallocateFlags::KEEP_SIZE, 200_000, 50_000);
    let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    call("punch", punch, 5000, 20_000);
    call("zero", FallocateFlags::ZERO_RANGE, 50_000, 10_000);
    call("empty", FallocateFlags::empty(), 0, 0);
    let other = File::create(r.at("copied")).unwrap();
    let copied = rustix::fs::copy_file_range(&file, Some(&mut 0), &other, Some(&mut 8192), 40_000);
    r.tried("copy range", errno(copied));
    drop(other);
    r.tried("copied", fs::read(r.at("copied")).map(|c| c.len()));
}

fn directories(r: &mut Record<'_>) {
    r.tried("mkdir", fs::create_dir(r.at("dir")));
    r.tried("mkdir again", fs::create_dir(r.at("dir")));
    r.tried("deep", fs::create_dir_all(r.at("dir/a/b/c")));
    r.stat("dir");
    for n in 0..300 {
        fs::write(r.at(&format!("dir/file-{n}")), format!("{n}")).unwrap();
    }
    r.names("dir");
    r.tried("not empty", fs::remove_dir(r.at("dir")));
    r.tried("rmdir a file", fs::remove_dir(r.at("dir/file-1")));
    r.tried("unlink a directory", fs::remove_file(r.at("dir/a")));
    for n in (0..300).step_by(2) {
        fs::remove_file(r.at(&format!("dir/file-{n}"))).unwrap();
    }
    r.names("dir");
    r.tried("rmdir", fs::remove_dir(r.at("dir/a/b/c")));
    r.stat("dir/a/b");
    r.stat("dir");
    r.tried("sync", File::open(r.at("dir")).and_then(|d| d.sync_all()));
}

fn names(r: &mut Record<'_>) {
    fs::create_dir(r.at("from")).unwrap();
    fs::create_dir(r.at("to")).unwrap();
    fs::write(r.at("from/a"), b"a").unwrap();
    fs::write(r.at("to/b"), b"b").unwrap();
    r.tried("link", fs::hard_link(r.at("from/a"), r.at("to/a2")));
    r.stat("to/a2");
    r.tried("link there", fs::hard_link(r.at("from/a"), r.at("to/b")));
    r.tried("link a dir", fs::hard_link(r.at("from"), r.at("to/dir")));
    let rename = |from: &str, to: &str, flags| {
        let (from, to) = (r.root.join(from), r.root.join(to));
        errno(rustix::fs::renameat_with(CWD, from, CWD, to, flags))
    };
    let moves = [
        ("from/a", "to/b", RenameFlags::NOREPLACE),
        ("from/a", "to/b", RenameFlags::EXCHANGE),
        ("from/a", "to/b", RenameFlags::empty()),
        ("to/b", "to/b", RenameFlags::empty()),
        ("from", "to/b", RenameFlags::empty()),
        ("to/b", "from", RenameFlags::empty()),
        ("from", "from/x", RenameFlags::empty()),
        ("from", "to/from", RenameFlags::empty()),
        ("to", "to/from", RenameFlags::empty()),
        ("to/b", "to/white", RenameFlags::WHITEOUT),
        ("none", "to/none", RenameFlags::empty()),
        ("to", "moved", RenameFlags::empty()),
    ];
    let outcomes: Vec<_> = moves
        .into_iter()
        .map(|(from, to, flags)| {
            let done = rename(from, to, flags).map_err(|e| e.raw_os_error());
            format!("{from} -> {to} {flags:?}: {done:?}")
        })
        .collect();
    r.note("moves", outcomes);
    for path in [
        "from",
        "to",
        "moved",
        "moved/from",
        "moved/b",
        "moved/white",
    ] {
        r.stat(path);
    }
    r.names("moved");
    r.tried("symlink", symlink("moved/white", r.at("sym")));
    r.tried("readlink", fs::read_link(r.at("sym")));
    r.tried("through", fs::read(r.at("sym")));
    r.tried("long link", symlink("t".repeat(3000), r.at("longsym")));
    r.tried("read long", fs::read_link(r.at("longsym")));
    r.tried("loop", symlink("loop", r.at("loop")));
    r.tried("follow loop", fs::read(r.at("loop")));
}

fn records(r: &mut Record<'_>) {
    let path = r.at("record");
    fs::write(&path, b"content").unwrap();
    r.tried(
        "chmod",
        fs::set_permissions(&path, fs::Permissions::from_mode(0o4755)),
    );
    r.stat("record");
    r.tried(
        "chown",
        std::os::unix::fs::chown(&path, Some(1000), Some(1001)),
    );
    r.stat("record");
    let file = File::open(&path).unwrap();
    let time = |secs| std::time::UNIX_EPOCH + Duration::new(secs, 123_456_789);
    let times = fs::FileTimes::new()
        .set_accessed(time(1_000_000_000))
        .set_modified(time(3_000_000_000));
    r.tried("utimes", file.set_times(times));
    let stored = file.metadata().unwrap();
    r.note(
        "times",
        (
            stored.atime(),
            stored.atime_nsec(),
            stored.mtime(),
            stored.mtime_nsec(),
        ),
    );
    for (name, kind, device) in [
        ("fifo", FileType::Fifo, 0),
        ("socket", FileType::Socket, 0),
        ("null", FileType::CharacterDevice, rustix::fs::makedev(1, 3)),
        (
            "block",
            FileType::BlockDevice,
            rustix::fs::makedev(259, 300_000),
        ),
        ("plain", FileType::RegularFile, 0),
    ] {
        let bits = Bits::from_raw_mode(0o640);
        let made = rustix::fs::mknodat(CWD, r.at(name), kind, bits, device);
        r.tried(name, errno(made));
        r.stat(name);
    }
    let bad = rustix::fs::accessat(
        CWD,
        r.at("none-such"),
        rustix::fs::Access::EXISTS,
        AtFlags::empty(),
    );
    r.tried("access", errno(bad));
}

fn attributes(r: &mut Record<'_>) {
    let path = r.at("attributed");
    fs::write(&path, b"x").unwrap();
    let set =
        |name: &str, value: &[u8], flags| errno(rustix::fs::setxattr(&path, name, value, flags));
    r.tried("set", set("user.one", b"1", XattrFlags::empty()));
    r.tried("create", set("user.one", b"2", XattrFlags::CREATE));
    r.tried("replace", set("user.one", b"3", XattrFlags::REPLACE));
    r.tried("replace none", set("user.two", b"3", XattrFlags::REPLACE));
    r.tried("large", set("user.large", &[5; 2000], XattrFlags::empty()));
    r.tried(
        "too large",
        set("user.huge", &[5; 60_000], XattrFlags::empty()),
    );
    r.tried("trusted", set("trusted.t", b"t", XattrFlags::empty()));
    r.tried("no such space", set("foo.bar", b"t", XattrFlags::empty()));
    let get = |name: &str, room: usize| {
        let mut value = vec![0; room];
        let len = errno(rustix::fs::getxattr(&path, name, &mut value[..]))?;
        value.truncate(len);
        Ok(value)
    };
    r.tried("get", get("user.one", 100));
    r.tried("size", get("user.large", 0).map(|v| v.len()));
    r.tried("no room", get("user.large", 10));
    r.tried("none", get("user.none", 10));
    let mut names = [0u8; 1000];
    let listed = rustix::fs::listxattr(&path, &mut names[..]).map(|len| {
        let mut all: Vec<_> = names[..len]
            .split(|&b| b == 0)
            .map(|n| String::from_utf8_lossy(n).into_owned())
            .collect();
        all.sort();
        all
    });
    r.tried("list", errno(listed));
    r.tried("remove", errno(rustix::fs::removexattr(&path, "user.one")));
    r.tried(
        "remove again",
        errno(rustix::fs::removexattr(&path, "user.one")),
    );
}

fn lists(r: &mut Record<'_>) {
    use extant_testkit::tool::tool;
    fs::create_dir(r.at("listed")).unwrap();
    let dir = r.at("listed");
    tool("setfacl")
        .args(["-m", "u:1000:rwx,d:u:1000:rx,d:g:5:w"])
        .arg(&dir)
        .ok();
    fs::write(r.at("listed/child"), b"").unwrap();
    fs::create_dir(r.at("listed/sub")).unwrap();
    tool("chmod").arg("700").arg(r.at("listed/sub")).ok();
    for name in ["listed", "listed/child", "listed/sub"] {
        r.stat(name);
        let shown = tool("getfacl")
            .args(["-c", "-n", "-p"])
            .arg(r.at(name))
            .ok();
        r.note(name, shown.text());
    }
    let flags = tool("lsattr").args(["-d"]).arg(&dir).ok().text();
    r.note("flags", flags.split_whitespace().next().map(str::to_owned));
    tool("chattr").arg("+d").arg(&dir).ok();
    tool("chattr").arg("+i").arg(r.at("listed/child")).ok();
    r.tried("immutable", fs::write(r.at("listed/child"), b"x"));
    tool("chattr").arg("-i").arg(r.at("listed/child")).ok();
    // One with content, an empty one and a directory become what ext3 has, and what they were.
    // Linux refuses to turn what lies in more than one piece, so there is but one block.
    for (name, size) in [("mapped", 1000), ("unmapped", 0)] {
        fs::write(r.at(name), vec![7; size]).unwrap();
    }
    for change in ["-e", "+e", "=", "+i", "=", "+e"] {
        for name in ["mapped", "unmapped", "listed"] {
            let run = tool("chattr").arg(change).arg(r.at(name)).run();
            r.note(&format!("chattr {change} {name}"), run.code);
            let flags = tool("lsattr").args(["-d"]).arg(r.at(name)).ok().text();
            r.note("flags", flags.split_whitespace().next().map(str::to_owned));
        }
        let content = fs::read(r.at("mapped"));
        r.tried("content", content.map(|bytes| bytes == [7; 1000]));
    }
    r.tried("mutable", fs::write(r.at("listed/child"), b"x"));
    let flags = tool("lsattr").args(["-d"]).arg(&dir).ok().text();
    r.note("flags", flags.split_whitespace().next().map(str::to_owned));
}

/// Starts a program that was just written, and waits for its end. A process that another test
/// starts at the same time may have the file open for writing until it runs its own program.
fn start(program: &Path) -> io::Result<ExitStatus> {
    let mut started = Command::new(program).status();
    for _ in 0..100 {
        match started {
            Err(ref e) if e.kind() == io::ErrorKind::ExecutableFileBusy => {
                std::thread::sleep(Duration::from_millis(10));
                started = Command::new(program).status();
            }
            _ => break,
        }
    }
    started
}

/// What root may do to files of others, and what it may not.
fn rights(r: &mut Record<'_>) {
    use extant_testkit::tool::tool;
    use rustix::fs::Access;
    let path = r.at("program");
    fs::write(&path, b"#!/bin/true\n").unwrap();
    rustix::fs::chown(&path, Some(Uid::from_raw(1000)), Some(Gid::from_raw(1000))).unwrap();
    for bits in [0o644, 0o001, 0] {
        fs::set_permissions(&path, Permissions::from_mode(bits)).unwrap();
        for access in [Access::READ_OK, Access::WRITE_OK, Access::EXEC_OK] {
            r.tried(
                &format!("{access:?} of {bits:o}"),
                accessible(&path, access),
            );
        }
        r.tried("start", start(&path).map(|status| status.code()));
        r.tried("read", fs::read(&path).map(|content| content.len()));
    }
    // A list changes the mode that was seen before.
    r.stat("program");
    tool("setfacl").args(["-m", "u:5:rwx"]).arg(&path).ok();
    r.stat("program");
    tool("setfacl").arg("-b").arg(&path).ok();
    r.stat("program");
    let dir = r.at("closed");
    fs::create_dir(&dir).unwrap();
    fs::set_permissions(&dir, Permissions::from_mode(0o2000)).unwrap();
    rustix::fs::chown(&dir, Some(Uid::from_raw(1000)), Some(Gid::from_raw(7))).unwrap();
    r.tried("search", accessible(&dir, Access::EXEC_OK));
    r.tried("make", fs::write(dir.join("file"), b"x"));
    r.tried("make a directory", fs::create_dir(dir.join("below")));
    for name in ["closed", "closed/file", "closed/below"] {
        r.stat(name);
    }
    r.names("closed");
    r.tried(
        "go there",
        Command::new("/bin/true").current_dir(&dir).status(),
    );
    r.tried("remove", fs::remove_file(dir.join("file")));
}

fn accessible(path: &Path, access: rustix::fs::Access) -> io::Result<()> {
    errno(rustix::fs::accessat(CWD, path, access, AtFlags::empty()))
}

fn all(root: &Path, holes: bool) -> Vec<String> {
    let mut record = Record {
        root,
        lines: Vec::new(),
        holes,
    };
    for part in [
        files,
        reservations,
        directories,
        names,
        records,
        attributes,
        lists,
        rights,
    ] {
        part(&mut record);
    }
    record.lines
}

/// Both sides, and what is in the image afterwards as the kernel sees it.
fn compare(options: &str, holes: bool) {
    let theirs = Image::new(64 << 20, &["-b", "4096"]);
    let ours = Image::new(64 << 20, &["-b", "4096"]);
    let expected = {
        let mount = KernelMount::mount(&theirs.path(), Mode::ReadWrite, "");
        all(mount.path(), holes)
    };
    let mount = ours.mount(options);
    let found = all(mount.path(), holes);
    mount.unmount();
    for (expected, found) in expected.iter().zip(&found) {
        assert_eq!(found, expected, "ours on the left, with {options:?}");
    }
    assert_eq!(found.len(), expected.len());
    ours.assert_clean();
    let trees = [&theirs, &ours].map(|image| {
        let mount = KernelMount::mount(&image.path(), Mode::ReadOnly, "");
        Tree::snapshot(mount.path())
    });
    let how = Compare {
        mtime: false,
        nlink: true,
        ignore: Vec::new(),
        ..Compare::default()
    };
    trees[0].assert_same(&trees[1], &how);
}

#[test]
fn what_programs_do_comes_out_as_on_the_kernels_ext4() {
    require!(Fuse, KernelExt4);
    compare("", false);
    compare("no_default_permissions,seek_holes", true);
}

#[test]
fn so_it_does_past_the_engines_memory() {
    require!(Fuse, KernelExt4);
    compare("seek_holes,direct_from=4096,threads=2", true);
}

#[test]
fn so_it_does_past_the_kernels_memory() {
    require!(Fuse, KernelExt4);
    compare("direct_io", false);
}

#[test]
fn so_it_does_with_the_kernels_write_cache() {
    require!(Fuse, KernelExt4);
    compare("writeback_cache", false);
}

#[test]
fn so_it_does_through_io_uring() {
    require!(Fuse, KernelExt4, FuseRings);
    let _enabled = Enabled::new().unwrap();
    compare("io_uring,seek_holes", true);
}

//! What Linux does to images before they are changed.

use crate::mount::{KernelMount, Mode, Shutdown};
use crate::oracle::dumpe2fs_header;
use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::Path;

/// What Linux is to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Work {
    /// Changes of every kind, of which the last are in the journal only.
    Dirty,
    /// Changes of every kind, with data in the journal.
    DirtyData,
    /// Changes that are committed fast.
    FastCommits,
    /// Files that are open and have no name, and files that are about to be cut, when it stops.
    Orphans,
    /// So many names in one directory.
    ManyNames(u32),
}

/// Mounts `image`, does the work, and leaves it as that leaves it.
pub(super) fn work(work: Work, image: &Path) {
    let options = match work {
        Work::DirtyData => "data=journal",
        _ => "",
    };
    let mount = KernelMount::mount(image, Mode::ReadWrite, options);
    match work {
        Work::Dirty | Work::DirtyData => leave_changes(mount),
        Work::FastCommits => commit_fast(mount),
        Work::Orphans => leave_orphans(mount),
        Work::ManyNames(count) => return name_often(mount, count),
    }
    let header = dumpe2fs_header(image);
    assert!(
        header.has_feature("needs_recovery"),
        "{work:?}: the journal is clean"
    );
}

fn leave_changes(mount: KernelMount) {
    let late = mount.join("late");
    fs::create_dir(&late).expect("mkdir");
    for n in 0..20usize {
        fs::write(late.join(format!("file-{n}")), vec![b'a' + n as u8; n * 90]).expect("write");
    }
    mount.sync();
    let magic = File::create(late.join("magic")).expect("create");
    // A block that begins like one of the journal is escaped when data is journaled.
    magic
        .write_all_at(&[0xC0, 0x3B, 0x39, 0x98], 0)
        .expect("write");
    for n in 0..6 {
        let (from, to) = (format!("file-{n}"), format!("renamed-{n}"));
        fs::rename(late.join(from), mount.join(to)).expect("rename");
    }
    for n in 6..10 {
        fs::remove_file(late.join(format!("file-{n}"))).expect("unlink");
    }
    magic.sync_all().expect("fsync");
    // Freed blocks of directories are revoked.
    fs::remove_dir_all(mount.join("other")).expect("remove");
    fs::remove_dir_all(mount.join("many")).expect("remove");
    let after = File::create(late.join("after")).expect("create");
    after.write_all_at(&[b'x'; 30_000], 0).expect("write");
    fs::hard_link(late.join("after"), late.join("link")).expect("link");
    after.sync_all().expect("fsync");
    drop((magic, after));
    mount.shutdown(Shutdown::Now);
}

fn commit_fast(mount: KernelMount) {
    fs::write(mount.join("before"), [b'b'; 3000]).expect("write");
    mount.sync();
    for n in 0..6 {
        let mut file = File::create(mount.join(format!("fast-{n}"))).expect("create");
        file.write_all(&vec![b'f'; 500 * (n + 1)]).expect("write");
        file.sync_all().expect("fsync");
    }
    let open = |name: &str| {
        OpenOptions::new()
            .write(true)
            .open(mount.join(name))
            .expect("open")
    };
    let middle = open("middle");
    middle.write_all_at(&[b'M'; 5000], 20_000).expect("write");
    middle.sync_all().expect("fsync");
    fs::hard_link(mount.join("fast-1"), mount.join("fast-link")).expect("link");
    fs::remove_file(mount.join("fast-2")).expect("unlink");
    let islands = open("islands");
    islands.set_len(40_000).expect("truncate");
    islands.sync_all().expect("fsync");
    open("fast-1").sync_all().expect("fsync");
    drop((middle, islands));
    mount.shutdown(Shutdown::Now);
}

fn leave_orphans(mount: KernelMount) {
    let mut open = Vec::new();
    for n in 0..4 {
        let path = mount.join(format!("orphan-{n}"));
        let file = File::create(&path).expect("create");
        file.write_all_at(&[b'o'; 2000], n * 50_000).expect("write");
        open.push((path, file));
    }
    mount.sync();
    for (path, _) in &open {
        fs::remove_file(path).expect("unlink");
    }
    fs::write(mount.join("kept"), "beside the orphans").expect("write");
    let kept = File::open(mount.join("kept")).expect("open");
    kept.sync_all().expect("fsync");
    mount.stop(Shutdown::Now);
    drop((open, kept));
    mount.unmount();
}

fn name_often(mount: KernelMount, count: u32) {
    let dir = mount.join("names");
    fs::create_dir(&dir).expect("mkdir");
    let first = dir.join("first");
    fs::write(&first, "many names").expect("write");
    for n in 0..count {
        fs::hard_link(&first, dir.join(format!("{n:05}"))).expect("link");
    }
    mount.unmount();
}

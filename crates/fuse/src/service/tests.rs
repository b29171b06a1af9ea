//! Requests as the kernel makes them, without a kernel: whose rights count, what is an error, and
//! how it ends.

use super::*;
use crate::protocol::Opcode;
use extant_blockdev::OpenSpec;
use extant_core::fs::MountOptions;
use extant_core::inode::Timestamp;
use extant_core::ops::Cookie;
use extant_format::inode::InodeFlags;
use extant_testkit::oracle::{assert_clean, mke2fs};
use std::path::{Path, PathBuf};
use tempfile::TempDir;

const ROOT_USER: Credentials = Credentials { uid: 0, gid: 0 };
const SOMEBODY: Credentials = Credentials {
    uid: 1000,
    gid: 1000,
};
const SET_UID_PROGRAM: u32 = 0o4755;
const GET_FLAGS: u32 = 0x8008_6601;
const SET_FLAGS: u32 = 0x4008_6602;
const SET_FLAGS_32: u32 = 0x4004_6602;
const APPEND: u32 = 0x20;

struct Served {
    dir: TempDir,
    service: Service,
}

impl Served {
    fn new(bytes: u64) -> Self {
        Self::with(bytes, "")
    }

    /// Makes one with these options of `-o`.
    fn with(bytes: u64, options: &str) -> Self {
        let mut parsed = Options::default();
        parsed.parse(options).unwrap();
        parsed.direct_from = None;
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("image");
        mke2fs(&path, bytes, &["-t", "ext4"]);
        let device = OpenSpec::read_write(&path).open().unwrap();
        let fs = Fs::open(device, MountOptions::read_write()).unwrap();
        let service = Service::new(fs, &parsed);
        Self { dir, service }
    }

    fn image(&self) -> PathBuf {
        self.dir.path().join("image")
    }

    fn file(&self, name: &[u8], mode: u32) -> Node {
        let made = Made {
            mode,
            umask: 0,
            device: 0,
        };
        let made = self.service.mknod(ROOT_USER, Node::ROOT, name, made);
        made.unwrap().node
    }

    fn mode(&self, node: Node) -> u16 {
        let found = self.service.getattr(node).unwrap();
        found.metadata.mode.permissions()
    }

    fn end(self) {
        self.service.finish();
        self.service.fs.close().unwrap();
        assert_clean(&self.image());
    }
}

#[test]
fn data_that_was_kept_back_and_finds_no_room_is_an_error() {
    let served = Served::new(8 << 20);
    let file = served.file(b"file", 0o644);
    let write = |from_cache, offset| {
        let how = Writing {
            from_cache,
            is_dated: false,
            clear_set_ids: false,
        };
        let data = vec![7; 16 << 20];
        served.service.write(ROOT_USER, file, offset, &data, how)
    };
    assert_eq!(write(true, 0).unwrap_err(), Errno::NO_SPACE);
    let cut = Changes {
        size: Some(0),
        ..Changes::default()
    };
    served.service.setattr(ROOT_USER, file, cut).unwrap();
    served.service.fsync(file, false).unwrap();
    // A program is told how much was written.
    let written = write(false, 0).unwrap();
    assert!(written > 0 && written < 16 << 20, "{written}");
    served.end();
}

#[test]
fn who_changes_a_program_of_somebody_else_takes_its_set_id_bits() {
    let served = Served::new(16 << 20);
    let source = served.file(b"source", 0o644);
    let how = Writing {
        from_cache: false,
        is_dated: false,
        clear_set_ids: false,
    };
    served
        .service
        .write(ROOT_USER, source, 0, b"text", how)
        .unwrap();
    for (caller, left) in [(ROOT_USER, 0o4755), (SOMEBODY, 0o755)] {
        let name = |what: &str| format!("{what}-{}", caller.uid).into_bytes();
        let copied = served.file(&name("copied"), SET_UID_PROGRAM);
        let (from, to) = ((source, 0), (copied, 0));
        assert_eq!(served.service.copy_range(caller, from, to, 4), Ok(4));
        assert_eq!(served.mode(copied), left);
        let grown = served.file(&name("grown"), SET_UID_PROGRAM);
        served
            .service
            .fallocate(caller, grown, (0, 4096), 0)
            .unwrap();
        assert_eq!(served.mode(grown), left);
    }
    served.end();
}

#[test]
fn only_who_may_changes_flags() {
    let served = Served::new(16 << 20);
    let file = served.file(b"file", 0o666);
    let flags = || {
        let output = served.service.ioctl(SOMEBODY, file, GET_FLAGS, &[]);
        u32::from_ne_bytes(output.unwrap()[..4].try_into().unwrap())
    };
    let before = flags();
    let wanted = (before | APPEND).to_ne_bytes();
    let set = |caller, number| served.service.ioctl(caller, file, number, &wanted);
    assert_eq!(set(SOMEBODY, SET_FLAGS), Err(Errno(1)));
    assert_eq!(set(SOMEBODY, SET_FLAGS_32), Err(Errno::NOT_A_TTY));
    assert_eq!(flags(), before);
    set(ROOT_USER, SET_FLAGS).unwrap();
    assert_eq!(flags(), before | APPEND);
    // The kernel tells when it took what was appended; programs may not.
    let dated = |ctime| Changes {
        mtime: Some(Stamp::Now),
        ctime,
        ..Changes::default()
    };
    let now = Some(Timestamp::from_secs(1));
    assert!(served.service.setattr(ROOT_USER, file, dated(now)).is_ok());
    let refused = served.service.setattr(ROOT_USER, file, dated(None));
    assert_eq!(refused.unwrap_err(), Errno(1));
    served.end();
}

#[test]
fn a_request_that_panics_costs_nobody_else() {
    let served = Served::new(16 << 20);
    let answered: Answer = served
        .service
        .admit(Opcode::Getattr, SOMEBODY, || panic!("on purpose"));
    assert_eq!(answered, Err(Errno::IO));
    let looked = served
        .service
        .inspect::<()>(Opcode::Ioctl, |_| panic!("on purpose"));
    assert_eq!(looked, Err(Errno::IO));
    let after = served.service.admit(Opcode::Getattr, SOMEBODY, || {
        served.service.getattr(Node::ROOT)
    });
    assert!(after.is_ok());
    served.end();
}

#[test]
fn the_end_waits_for_requests_and_answers_no_more() {
    let served = Served::new(16 << 20);
    let (inside, enters) = std::sync::mpsc::channel();
    let (done, answered) = std::sync::mpsc::channel();
    let made = std::thread::scope(|scope| {
        let service = &served.service;
        let request = scope.spawn(move || {
            service.admit(Opcode::Getattr, SOMEBODY, || {
                inside.send(()).unwrap();
                // Answered however long it takes the end to come.
                while service.gate.join().is_some() {
                    std::thread::yield_now();
                }
                let answer = service.getattr(Node::ROOT);
                done.send(()).unwrap();
                answer
            })
        });
        enters.recv().unwrap();
        service.finish();
        assert!(answered.try_recv().is_ok());
        request.join().unwrap()
    });
    assert!(made.is_ok());
    let late = served
        .service
        .inspect(Opcode::Setattr, |s| s.getattr(Node::ROOT));
    assert_eq!(late.unwrap_err(), Errno::GONE);
    for opcode in [Opcode::Getattr, Opcode::Mknod] {
        let late: Answer = served
            .service
            .admit(opcode, SOMEBODY, || panic!("let in after the end"));
        assert_eq!(late, Err(Errno::GONE), "{opcode:?}");
    }
    // What is asked last needs nothing of what is closed.
    let last = served.service.admit(Opcode::Destroy, SOMEBODY, || Ok(()));
    assert_eq!(last, Ok(()));
    served.service.fs.close().unwrap();
    assert_clean(&served.image());
}

#[test]
fn a_name_for_a_reserved_inode_is_corruption() {
    let served = Served::new(16 << 20);
    served.service.fs.close().unwrap();
    extant_testkit::oracle::debugfs_write(&served.image(), &["link <8> bad"]);
    let device = OpenSpec::read_only(served.image()).open().unwrap();
    let fs = Fs::open(device, MountOptions::read_only()).unwrap();
    let service = Service::new(fs, &Options::default());
    let found = service.lookup(Node::ROOT, b"bad");
    assert_eq!(found.unwrap_err(), Errno::CORRUPT);
    assert!(service.listed(8).is_none());
}

/// Names in the root directory of what is in the image now, without what was not synced.
fn recovered(image: &Path) -> Vec<String> {
    let copy = image.with_extension("copy");
    std::fs::copy(image, &copy).unwrap();
    let device = OpenSpec::read_only(&copy).open().unwrap();
    let fs = Fs::open(device, MountOptions::read_only()).unwrap();
    let root = fs.inode(Ino::ROOT).unwrap();
    let mut names = Vec::new();
    ops::readdir(&fs, &root, Cookie::START, |entry| {
        names.push(String::from_utf8(entry.name.to_vec()).unwrap());
        std::ops::ControlFlow::<()>::Continue(())
    })
    .unwrap();
    names.retain(|name| !matches!(&**name, "." | ".." | "lost+found"));
    names.sort();
    names
}

#[test]
fn names_are_durable_when_they_have_been_changed_if_the_mount_is_to() {
    for options in ["dirsync", "sync"] {
        let served = Served::with(16 << 20, options);
        let (service, image) = (&served.service, served.image());
        let a = served.file(b"a", 0o644);
        assert_eq!(recovered(&image), ["a"]);
        let made = Made {
            mode: 0o755,
            umask: 0,
            device: 0,
        };
        service.mkdir(ROOT_USER, Node::ROOT, b"dir", made).unwrap();
        let target = b"nowhere";
        service
            .symlink(ROOT_USER, Node::ROOT, b"symlink", target)
            .unwrap();
        service.link(a, Node::ROOT, b"link").unwrap();
        assert_eq!(recovered(&image), ["a", "dir", "link", "symlink"]);
        let moving = Renaming::from_flags(0).unwrap();
        let (from, to) = ((Node::ROOT, &b"a"[..]), (Node::ROOT, &b"b"[..]));
        service.rename(from, to, moving).unwrap();
        service.unlink(Node::ROOT, b"symlink").unwrap();
        assert_eq!(recovered(&image), ["b", "dir", "link"]);
        service.rmdir(Node::ROOT, b"dir").unwrap();
        assert_eq!(recovered(&image), ["b", "link"]);
        served.end();
    }
}

#[test]
fn every_change_is_durable_when_it_is_done_if_the_mount_is_to() {
    let served = Served::with(16 << 20, "sync");
    let (service, image) = (&served.service, served.image());
    let file = served.file(b"a", 0o644);
    let now = |look: fn(&Fs, Ino) -> String| {
        let copy = image.with_extension("copy");
        std::fs::copy(&image, &copy).unwrap();
        let device = OpenSpec::read_only(&copy).open().unwrap();
        let fs = Fs::open(device, MountOptions::read_only()).unwrap();
        look(&fs, file.ino().unwrap())
    };
    let record = |fs: &Fs, ino: Ino| {
        let found = ops::stat(fs, &fs.inode(ino).unwrap());
        format!(
            "{:o} {} {}",
            found.mode.permissions(),
            found.size,
            found.uid
        )
    };
    let changes = Changes {
        mode: Some(0o600),
        uid: Some(7),
        size: Some(12_345),
        ..Changes::default()
    };
    service.setattr(ROOT_USER, file, changes).unwrap();
    assert_eq!(now(record), "600 12345 7");
    service.fallocate(ROOT_USER, file, (0, 20_000), 0).unwrap();
    assert_eq!(now(record), "600 20000 7");
    let value = |fs: &Fs, ino: Ino| {
        let found = ops::getxattr(fs, &fs.inode(ino).unwrap(), b"user.a");
        format!("{found:?}")
    };
    service.setxattr(file, b"user.a", b"value", 0).unwrap();
    assert_eq!(now(value), format!("{:?}", Ok::<_, ()>(b"value".to_vec())));
    service.removexattr(file, b"user.a").unwrap();
    assert!(now(value).starts_with("Err"));
    let no_dump = (InodeFlags::EXTENTS | InodeFlags::NO_DUMP)
        .bits()
        .to_ne_bytes();
    service
        .ioctl(ROOT_USER, file, 0x4008_6602, &no_dump)
        .unwrap();
    let flags = |fs: &Fs, ino: Ino| {
        let found = fs.inode(ino).unwrap();
        found.flags().contains(InodeFlags::NO_DUMP).to_string()
    };
    assert_eq!(now(flags), "true");
    served.end();
}

#[test]
fn what_the_kernel_took_earlier_changes_nothing_but_content_and_the_times_that_it_tells() {
    let capability: &[u8] = b"security.capability";
    let served = Served::new(16 << 20);
    let service = &served.service;
    let file = served.file(b"file", SET_UID_PROGRAM);
    let at = Timestamp::from_secs;
    let changes = Changes {
        atime: Some(Stamp::At(at(1000))),
        mtime: Some(Stamp::At(at(2000))),
        ctime: Some(at(3000)),
        ..Changes::default()
    };
    let times = || {
        let found = service.getattr(file).unwrap().metadata;
        (found.atime, found.mtime, found.ctime)
    };
    let value = [2; 20];
    service.setxattr(file, capability, &value, 0).unwrap();
    service.setattr(ROOT_USER, file, changes).unwrap();
    assert_eq!(times(), (at(1000), at(2000), at(3000)));
    let how = |is_dated| Writing {
        from_cache: true,
        is_dated,
        clear_set_ids: false,
    };
    service
        .write(ROOT_USER, file, 0, &[7; 100_000], how(true))
        .unwrap();
    service.fsync(file, false).unwrap();
    assert_eq!(times(), (at(1000), at(2000), at(3000)));
    assert_eq!(service.getxattr(file, capability).unwrap(), value);
    assert_eq!(served.mode(file), 0o4755);
    // Where nobody tells, it is now.
    service
        .write(ROOT_USER, file, 0, b"more", how(false))
        .unwrap();
    assert!(times().1 > at(2000));
    assert_eq!(service.getxattr(file, capability).unwrap(), value);
    // A write by a call takes them away.
    let called = Writing {
        from_cache: false,
        ..how(false)
    };
    service.write(ROOT_USER, file, 0, b"more", called).unwrap();
    assert!(service.getxattr(file, capability).is_err());
    served.end();
}

#[test]
fn what_only_root_may_read_is_listed_to_nobody_else() {
    let served = Served::new(16 << 20);
    let file = served.file(b"file", 0o666);
    for name in [&b"trusted.a"[..], b"user.b"] {
        served.service.setxattr(file, name, b"value", 0).unwrap();
    }
    let listed = |caller| served.service.listxattr(caller, file).unwrap();
    assert_eq!(listed(ROOT_USER).len(), b"trusted.a.user.b.".len());
    assert_eq!(listed(SOMEBODY), b"user.b\0");
    served.end();
}

#[test]
fn what_is_copied_until_space_runs_out_counts() {
    const LEN: u64 = 3 << 20;
    let served = Served::new(8 << 20);
    let (from, to) = (served.file(b"from", 0o644), served.file(b"to", 0o644));
    let how = Writing {
        from_cache: true,
        is_dated: false,
        clear_set_ids: false,
    };
    let data = vec![7; LEN as usize];
    served
        .service
        .write(ROOT_USER, from, 0, &data, how)
        .unwrap();
    let mut copied = Vec::new();
    let failed = loop {
        let at = copied.iter().sum();
        let (from, to) = ((from, 0), (to, at));
        match served.service.copy_range(ROOT_USER, from, to, LEN) {
            Ok(some) => copied.push(some),
            Err(e) => break e,
        }
        assert!(copied.last() > Some(&0), "{copied:?}");
    };
    assert_eq!(failed, Errno::NO_SPACE);
    assert!(copied.iter().any(|&some| some < LEN), "{copied:?}");
    served.end();
}

#[test]
fn what_the_kernel_still_has_without_a_name_at_the_end_is_deleted() {
    let served = Served::new(16 << 20);
    let free = || served.service.fs.statfs().unwrap();
    served.file(b"other", 0o644);
    let before = free();
    let file = served.file(b"file", 0o644);
    let how = Writing {
        from_cache: true,
        is_dated: false,
        clear_set_ids: false,
    };
    served
        .service
        .write(ROOT_USER, file, 0, &[7; 1 << 20], how)
        .unwrap();
    served.service.fsync(file, false).unwrap();
    served.service.unlink(Node::ROOT, b"file").unwrap();
    assert!(free().free < before.free);
    served.service.finish();
    served.service.fs.close().unwrap();
    let after = free();
    assert_eq!(
        (after.free, after.free_inodes),
        (before.free, before.free_inodes)
    );
    assert_clean(&served.image());
}

#[test]
fn times_that_the_kernel_tells_are_kept_of_files_that_have_or_may_get_names() {
    let served = Served::new(16 << 20);
    let service = &served.service;
    let at = Timestamp::from_secs;
    let changes = Changes {
        mtime: Some(Stamp::At(at(2000))),
        ctime: Some(at(3000)),
        ..Changes::default()
    };
    let made = Made {
        mode: 0o644,
        umask: 0,
        device: 0,
    };
    let named = served.file(b"named", 0o644);
    let twice = served.file(b"twice", 0o644);
    service.link(twice, Node::ROOT, b"again").unwrap();
    let gone = served.file(b"gone", 0o644);
    let unnamed = service.tmpfile(ROOT_USER, Node::ROOT, made).unwrap().node;
    for name in [&b"twice"[..], b"gone"] {
        service.unlink(Node::ROOT, name).unwrap();
    }
    for (node, is_kept) in [(named, true), (twice, true), (gone, false), (unnamed, true)] {
        service.setattr(ROOT_USER, node, changes).unwrap();
        let found = service.getattr(node).unwrap().metadata;
        let times = (found.mtime, found.ctime);
        assert_eq!(times == (at(2000), at(3000)), is_kept, "{node:?}");
        // What somebody asks for is done.
        let size = Changes {
            size: Some(7),
            ..Changes::default()
        };
        assert_eq!(
            service
                .setattr(ROOT_USER, node, size)
                .unwrap()
                .metadata
                .size,
            7
        );
    }
    service.link(unnamed, Node::ROOT, b"linked").unwrap();
    let found = service.lookup(Node::ROOT, b"linked").unwrap().unwrap();
    assert_eq!(found.metadata.links, 1);
    served.end();
}

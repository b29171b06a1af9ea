//! Requests as the kernel makes them, without a kernel: whose rights count, what is an error, and how it ends.

use super::*;
use extant_blockdev::OpenSpec;
use extant_core::fs::MountOptions;
use extant_testkit::oracle::{assert_clean, mke2fs};
use std::path::PathBuf;
use tempfile::TempDir;

const ROOT_USER: Asker = Asker { uid: 0, gid: 0 };
const SOMEBODY: Asker = Asker {
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
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("image");
        mke2fs(&path, bytes, &["-t", "ext4"]);
        let device = OpenSpec::read_write(&path).open().unwrap();
        let fs = Fs::open(device, MountOptions::read_write()).unwrap();
        let service = Service::new(fs, None);
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
        self.service.fs().close().unwrap();
        assert_clean(&self.image());
    }
}

#[test]
fn data_that_was_kept_back_and_finds_no_room_is_an_error() {
    let served = Served::new(8 << 20);
    let file = served.file(b"file", 0o644);
    let write = |kept_back, offset| {
        let how = Writing {
            kept_back,
            clear_set_ids: false,
        };
        let data = vec![7; 16 << 20];
        served.service.write(file, offset, &data, how)
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
        kept_back: false,
        clear_set_ids: false,
    };
    served.service.write(source, 0, b"text", how).unwrap();
    for (asker, left) in [(ROOT_USER, 0o4755), (SOMEBODY, 0o755)] {
        let name = |what: &str| format!("{what}-{}", asker.uid).into_bytes();
        let copied = served.file(&name("copied"), SET_UID_PROGRAM);
        let (from, to) = ((source, 0), (copied, 0));
        assert_eq!(served.service.copy_range(asker, from, to, 4), Ok(4));
        assert_eq!(served.mode(copied), left);
        let grown = served.file(&name("grown"), SET_UID_PROGRAM);
        served
            .service
            .fallocate(asker, grown, (0, 4096), 0)
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
    let set = |asker, number| served.service.ioctl(asker, file, number, &wanted);
    assert_eq!(set(SOMEBODY, SET_FLAGS), Err(Errno(1)));
    assert_eq!(set(SOMEBODY, SET_FLAGS_32), Err(Errno::NOT_A_TTY));
    assert_eq!(flags(), before);
    set(ROOT_USER, SET_FLAGS).unwrap();
    assert_eq!(flags(), before | APPEND);
    // The kernel tells when it took what was appended; programs may not.
    let dated = |is_dated| Changes {
        mtime: Some(Stamp::Now),
        is_dated,
        ..Changes::default()
    };
    assert!(served.service.setattr(ROOT_USER, file, dated(true)).is_ok());
    let refused = served.service.setattr(ROOT_USER, file, dated(false));
    assert_eq!(refused.unwrap_err(), Errno(1));
    served.end();
}

#[test]
fn a_request_that_panics_costs_nobody_else() {
    let served = Served::new(16 << 20);
    let asked: Answer = served.service.ask(|_| panic!("on purpose"));
    assert_eq!(asked, Err(Errno::IO));
    assert!(served.service.ask(|s| s.getattr(Node::ROOT)).is_ok());
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
            service.ask(|s| {
                inside.send(()).unwrap();
                // Answered however long it takes the end to come.
                while s.gate.join().is_some() {
                    std::thread::yield_now();
                }
                let answer = s.getattr(Node::ROOT);
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
    let late = served.service.ask(|s| s.getattr(Node::ROOT));
    assert_eq!(late.unwrap_err(), Errno::GONE);
    served.service.fs().close().unwrap();
    assert_clean(&served.image());
}

#[test]
fn a_name_for_a_reserved_inode_is_corruption() {
    let served = Served::new(16 << 20);
    served.service.fs().close().unwrap();
    extant_testkit::oracle::debugfs_write(&served.image(), &["link <8> bad"]);
    let device = OpenSpec::read_only(served.image()).open().unwrap();
    let fs = Fs::open(device, MountOptions::read_only()).unwrap();
    let service = Service::new(fs, None);
    let found = service.lookup(Node::ROOT, b"bad");
    assert_eq!(found.unwrap_err(), Errno::CORRUPT);
    assert!(service.listed(8).is_none());
}

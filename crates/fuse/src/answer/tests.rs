//! Requests that are tried once more, and what is asked where the kernel checks nothing.

use super::*;
use crate::options::Options;
use crate::protocol::{InHeader, IoctlIn};
use crate::service::METRICS;
use extant_blockdev::OpenSpec;
use extant_core::fs::{Fs, MountOptions};
use extant_core::ops;
use extant_format::Ino;
use extant_testkit::oracle::{assert_clean, mke2fs};
use std::path::PathBuf;
use std::time::Instant;
use tempfile::TempDir;
use zerocopy::FromZeros;

const ROOT: Node = Node(1);
const SOMEBODY: u32 = 1000;
const BLOCK: usize = 4096;
const EXTENDED: Form = Form {
    extends_setxattr: true,
};

#[derive(Debug)]
struct Nobody;

impl Notify for Nobody {
    fn attributes_changed(&self, _: Node) {}
}

struct Answered {
    dir: TempDir,
    fs: Arc<Fs>,
    answerer: Answerer,
}

impl Answered {
    fn new(options: &str, checks: bool) -> Self {
        let mut parsed = Options::default();
        parsed.parse(options).unwrap();
        parsed.direct_from = None;
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("image");
        mke2fs(&path, 8 << 20, &["-t", "ext4", "-b", "4096"]);
        let device = OpenSpec::read_write(&path).open().unwrap();
        let fs = Fs::open(device, MountOptions::read_write()).unwrap();
        let service = Arc::new(Service::new(Arc::clone(&fs), &parsed));
        let agreed = Agreed {
            stateless: true,
            direct_io: parsed.direct_io,
            writeback_cache: false,
            checks,
            is_shared: false,
            form: EXTENDED,
        };
        let answerer = Answerer::new(service, agreed, Arc::new(Nobody));
        Self { dir, fs, answerer }
    }

    fn file(&self, name: &[u8]) -> Node {
        let made = Made {
            mode: 0o644,
            umask: 0,
            device: 0,
        };
        let root = Credentials { uid: 0, gid: 0 };
        let made = self.answerer.service.mknod(root, ROOT, name, made);
        made.unwrap().node
    }

    fn ask(&self, opcode: u32, uid: u32, node: Node, fixed: &[u8], rest: &[u8]) -> Answer<usize> {
        let request = Request::from_parts(header(opcode, uid, node), fixed, rest, EXTENDED);
        self.answerer.answer(&request, &mut [0; 512])
    }

    fn write(&self, node: Node, data: &[u8]) -> Answer<usize> {
        self.write_with(node, data, 0, 0)
    }

    fn write_with(
        &self,
        node: Node,
        data: &[u8],
        write_flags: u32,
        flags: libc::c_int,
    ) -> Answer<usize> {
        let fixed = WriteIn {
            handle: 0,
            offset: 0,
            size: data.len() as u32,
            write_flags,
            lock_owner: 0,
            flags: flags.cast_unsigned(),
            padding: 0,
        };
        self.ask(16, 0, node, fixed.as_bytes(), data)
    }

    /// Tells whether a file would begin with `data` after a loss of power now.
    fn would_keep(&self, name: &[u8], data: &[u8]) -> bool {
        let copy = self.dir.path().join("copy");
        std::fs::copy(self.dir.path().join("image"), &copy).unwrap();
        let device = OpenSpec::read_only(&copy).open().unwrap();
        let fs = Fs::open(device, MountOptions::read_only()).unwrap();
        let root = fs.hold(Ino::ROOT).unwrap();
        let Ok(file) = ops::lookup_held(&fs, &root, name) else {
            return false;
        };
        let mut content = vec![0; data.len()];
        let len = ops::pread(&fs, &file, 0, &mut content).unwrap();
        content.get(..len) == Some(data)
    }

    /// Writes that were answered, and those that were tried and failed.
    fn writes(&self) -> u64 {
        let text = self.answerer.service.getxattr(ROOT, METRICS.as_bytes());
        let text = String::from_utf8(text.unwrap()).unwrap();
        let count = text
            .lines()
            .find_map(|line| line.strip_prefix("extant_request_seconds_count{op=\"write\"} "));
        count.map_or(0, |count| count.parse().unwrap())
    }

    fn end(self) {
        let image: PathBuf = self.dir.path().join("image");
        self.answerer.service.finish();
        self.fs.close().unwrap();
        assert_clean(&image);
    }
}

fn header(opcode: u32, uid: u32, node: Node) -> InHeader {
    InHeader {
        len: 0,
        opcode,
        unique: 1,
        node: node.0,
        uid,
        gid: uid,
        pid: 1,
        extensions: 0,
        padding: 0,
    }
}

#[test]
fn what_finds_no_room_is_tried_again_when_what_was_removed_is_about_to_leave_some() {
    let served = Answered::new("", true);
    let service = &served.answerer.service;
    let [large, small] = [&b"large"[..], b"small"].map(|name| served.file(name));
    // All that there is: first the larger part, then what was too little for it.
    let fill = |node: Node| {
        let mut offset = 0;
        let how = Writing {
            from_cache: false,
            is_dated: false,
            clear_set_ids: false,
        };
        let root = Credentials { uid: 0, gid: 0 };
        while let Ok(written) = service.write(root, node, offset, &[7; BLOCK], how) {
            offset += written as u64;
        }
    };
    fill(large);
    fill(small);
    service.unlink(ROOT, b"large").unwrap();
    let another = served.file(b"another");
    // The kernel has not forgotten it, and nobody says that it may have.
    assert_eq!(served.write(another, &[7; BLOCK]), Err(Errno::NO_SPACE));
    // On a machine that does other things the word may come too late.
    let end = Instant::now() + Duration::from_secs(60);
    let mut node = large;
    loop {
        assert!(Instant::now() < end, "never in time");
        let before = served.writes();
        let answered = std::thread::scope(|scope| {
            scope.spawn(|| {
                while served.writes() == before {
                    std::hint::spin_loop();
                }
                service.forget(node, 1);
            });
            served.answerer.forgets_later();
            served.write(another, &[7; BLOCK])
        });
        if answered.is_ok() {
            break;
        }
        node = served.file(b"next");
        fill(node);
        service.unlink(ROOT, b"next").unwrap();
    }
    served.end();
}

#[test]
fn files_are_opened_only_to_say_that_data_goes_past_the_kernels_memory() {
    const OPEN: u32 = 14;
    const OPENDIR: u32 = 27;
    for (options, expected) in [("", None), ("direct_io", Some(DIRECT_IO | PARALLEL_WRITES))] {
        let served = Answered::new(options, true);
        let node = served.file(b"file");
        let mut out = [0; 512];
        let mut open = |opcode, node| {
            let request = Request::from_parts(header(opcode, 0, node), &[0; 8], &[], EXTENDED);
            let len = served.answerer.answer(&request, &mut out)?;
            // The handle, then the flags.
            assert_eq!(len, 16);
            Ok(u32::from_ne_bytes([out[8], out[9], out[10], out[11]]))
        };
        assert_eq!(open(OPEN, node), expected.ok_or(Errno::NO_SYSCALL));
        assert_eq!(open(OPENDIR, ROOT), Err(Errno::NO_SYSCALL));
        served.end();
    }
}

#[test]
fn a_direct_write_is_durable_when_it_is_answered_if_it_is_to_be() {
    let data = [7; 3 * BLOCK];
    let direct = write_flags::LOCK_OWNER;
    for (write_flags, flags, is_durable) in [
        (direct, libc::O_DSYNC, true),
        (direct, libc::O_SYNC, true),
        (direct, 0, false),
        // The kernel asks to sync this one.
        (0, libc::O_SYNC, false),
    ] {
        let served = Answered::new("", true);
        let file = served.file(b"file");
        served.write_with(file, &data, write_flags, flags).unwrap();
        assert_eq!(served.would_keep(b"file", &data), is_durable, "{flags:o}");
        served.end();
    }
}

#[test]
fn only_what_has_done_nothing_is_tried_again() {
    for (options, is_any) in [("", true), ("dirsync", false), ("sync", false)] {
        let served = Answered::new(options, true);
        let may = |opcode| {
            let request = Request::from_parts(header(opcode, 0, ROOT), &[], &[], EXTENDED);
            served.answerer.may_be_tried_again(&request)
        };
        // FUSE_SYMLINK, MKNOD, MKDIR, LINK, WRITE, SETXATTR.
        for opcode in [6, 8, 9, 13, 16, 21] {
            assert_eq!(may(opcode), is_any, "{opcode}");
        }
        // FUSE_SETATTR, RENAME, FSYNC, FALLOCATE, COPY_FILE_RANGE.
        for opcode in [4, 12, 20, 43, 47] {
            assert!(!may(opcode), "{opcode}");
        }
        served.end();
    }
}

/// Panics when it has something to tell.
#[derive(Debug)]
struct Panics;

impl Notify for Panics {
    fn attributes_changed(&self, _: Node) {
        panic!("on purpose");
    }
}

#[test]
fn a_request_that_panics_anywhere_is_answered_and_leaves_the_gate() {
    const SET_FLAGS: u32 = 0x4008_6602;
    const NO_DUMP: u32 = 0x40;
    let served = Answered::new("", true);
    let file = served.file(b"file");
    let mut args = IoctlIn::new_zeroed();
    (args.command, args.in_size) = (SET_FLAGS, 4);
    let rest = NO_DUMP.to_ne_bytes();
    let request = Request::from_parts(header(39, 0, file), args.as_bytes(), &rest, EXTENDED);
    let panics = Answerer {
        notify: Arc::new(Panics),
        ..served.answerer.clone()
    };
    // What the request asked for was done by then.
    let answered = panics.answer(&request, &mut [0; 512]);
    assert_eq!(answered, Err(Errno::IO));
    let again = served.answerer.answer(&request, &mut [0; 512]);
    assert_eq!(again, Ok(16));
    // This would wait for a request that is still inside.
    served.end();
}

#[test]
fn where_nobody_checks_only_root_asks_about_names_and_rights() {
    for checks in [true, false] {
        let served = Answered::new("", checks);
        let file = served.file(b"file");
        let mode = |mode: u32, valid: u32| {
            let mut args = SetattrIn::new_zeroed();
            (args.valid, args.mode, args.mtime) = (valid, mode, 1000);
            args
        };
        let set_mode = mode(0o600, set::MODE);
        let set_time = mode(0, set::MTIME | set::CTIME);
        let may_start = AccessIn {
            mask: access::EXECUTE,
            padding: 0,
        };
        let expected = if checks { Ok(()) } else { Err(Errno::ACCESS) };
        let ask = |opcode, uid, node, fixed: &[u8], rest: &[u8]| {
            served.ask(opcode, uid, node, fixed, rest).map(drop)
        };
        // FUSE_LOOKUP, SETATTR and ACCESS.
        for (uid, expected) in [(0, Ok(())), (SOMEBODY, expected)] {
            assert_eq!(ask(1, uid, ROOT, &[], b"file\0"), expected);
            assert_eq!(ask(4, uid, file, set_mode.as_bytes(), &[]), expected);
            assert_eq!(ask(4, uid, file, set_time.as_bytes(), &[]), Ok(()));
            assert_eq!(ask(34, uid, ROOT, may_start.as_bytes(), &[]), expected);
            let refused = Err(Errno::ACCESS);
            assert_eq!(ask(34, uid, file, may_start.as_bytes(), &[]), refused);
        }
        served.end();
    }
}

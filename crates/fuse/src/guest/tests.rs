//! Guests without a virtual machine: what they may do, and what two of them see of each other.

use super::*;
use crate::protocol::{AttrOut, EntryOut, MknodIn, OpenOut, RenameIn, WriteIn};
use extant_blockdev::OpenSpec;
use extant_core::fs::MountOptions;
use extant_testkit::oracle::{assert_clean, mke2fs};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use tempfile::TempDir;

const ROOT: u64 = 1;
const LOOKUP: u32 = 1;
const FORGET: u32 = 2;
const GETATTR: u32 = 3;
const MKNOD: u32 = 8;
const UNLINK: u32 = 10;
const RENAME: u32 = 12;
const OPEN: u32 = 14;
const READ: u32 = 15;
const WRITE: u32 = 16;

struct Served {
    dir: TempDir,
    fs: Arc<Fs>,
    guests: Guests,
}

impl Served {
    fn new(several: bool) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("image");
        mke2fs(&path, 8 << 20, &["-t", "ext4", "-b", "4096"]);
        let device = OpenSpec::read_write(&path).open().unwrap();
        let fs = Fs::open(device, MountOptions::read_write()).unwrap();
        let options = Options::default();
        let pressure = MemoryPressure::default();
        let guests = Guests::new(Arc::clone(&fs), &options, several, None, pressure).unwrap();
        Self { dir, fs, guests }
    }

    fn join(&self) -> Asking {
        let asking = Asking(self.guests.join());
        let init = [7_u32, 38, 128 << 10, u32::MAX, u32::MAX];
        let answer = asking.ask(INIT, 0, init.as_bytes(), &[]).unwrap();
        assert_eq!(answer.len(), 64);
        asking
    }

    fn end(self, guests: Vec<Asking>) {
        for Asking(guest) in guests {
            guest.end();
        }
        let image: PathBuf = self.dir.path().join("image");
        drop(self.guests);
        self.fs.close().unwrap();
        assert_clean(&image);
    }
}

struct Asking(Guest);

fn said(opcode: u32, node: u64, fixed: &[u8], rest: &[u8]) -> Vec<u8> {
    let header = InHeader {
        len: (IN_HEADER + fixed.len() + rest.len()) as u32,
        opcode,
        unique: 77,
        node,
        uid: 0,
        gid: 0,
        pid: 1,
        extensions: 0,
        padding: 0,
    };
    [header.as_bytes(), fixed, rest].concat()
}

impl Asking {
    /// Asks, and returns the body of the answer, or the error number.
    fn ask(&self, opcode: u32, node: u64, fixed: &[u8], rest: &[u8]) -> Result<Vec<u8>, i32> {
        let mut out = vec![0; 16 << 10];
        let len = self.0.answer(&said(opcode, node, fixed, rest), &mut out);
        let (header, body) = OutHeader::read_from_prefix(&out).unwrap();
        assert_eq!((header.len as usize, header.unique), (len, 77));
        match header.error {
            0 => Ok(body[..len - OUT_HEADER].to_vec()),
            error => Err(-error),
        }
    }

    fn lookup(&self, name: &[u8]) -> EntryOut {
        let found = self.ask(LOOKUP, ROOT, &[], name).unwrap();
        EntryOut::read_from_bytes(&found).unwrap()
    }

    fn make(&self, name: &[u8]) -> u64 {
        let made = MknodIn {
            mode: 0o100_644,
            device: 0,
            umask: 0,
            padding: 0,
        };
        let made = self.ask(MKNOD, ROOT, made.as_bytes(), name).unwrap();
        EntryOut::read_from_bytes(&made).unwrap().node
    }

    fn write(&self, node: u64, data: &[u8]) -> Result<Vec<u8>, i32> {
        let args = WriteIn {
            handle: 0,
            offset: 0,
            size: data.len() as u32,
            write_flags: 0,
            lock_owner: 0,
            flags: 0,
            padding: 0,
        };
        self.ask(WRITE, node, args.as_bytes(), data)
    }

    fn read(&self, node: u64, size: usize) -> Result<Vec<u8>, Refused> {
        let args = ReadIn {
            handle: 0,
            offset: 0,
            size: size as u32,
            read_flags: 0,
            lock_owner: 0,
            flags: 0,
            padding: 0,
        };
        let said = said(READ, node, args.as_bytes(), &[]);
        let mut into = vec![0; size];
        // In two pieces.
        let (first, second) = into.split_at_mut(size / 2);
        let mut len = self.0.read(&said, 0, first)?;
        if len == first.len() {
            len += self.0.read(&said, len, second)?;
        }
        into.truncate(len);
        Ok(into)
    }

    fn getattr(&self, node: u64) -> Result<AttrOut, i32> {
        let found = self.ask(GETATTR, node, &[0; 16], &[])?;
        Ok(AttrOut::read_from_bytes(&found).unwrap())
    }
}

#[test]
fn nothing_is_answered_before_a_guest_has_begun() {
    let served = Served::new(false);
    let guest = Asking(served.guests.join());
    assert_eq!(guest.getattr(ROOT).unwrap_err(), Errno::IO.0);
    assert_eq!(guest.read(ROOT, 8), Err(Refused(Errno::IO)));
    served.end(vec![guest]);
}

#[test]
fn a_guest_reaches_only_what_it_was_told_about() {
    let served = Served::new(false);
    let [one, other] = [served.join(), served.join()];
    let file = one.make(b"file\0");
    assert_eq!(
        one.write(file, b"content"),
        Ok(vec![7, 0, 0, 0, 0, 0, 0, 0])
    );
    assert_eq!(one.read(file, 16).unwrap(), b"content");
    // The journal, what lies behind all inodes, what has no number of an inode; by another guest.
    for node in [8, 7, 0, 1 << 20, u64::from(u32::MAX), 1 << 40] {
        assert_eq!(one.getattr(node).unwrap_err(), Errno::STALE.0, "{node}");
        assert_eq!(one.write(node, b"x").unwrap_err(), Errno::STALE.0);
    }
    assert_eq!(other.getattr(file).unwrap_err(), Errno::STALE.0);
    assert_eq!(other.ask(LOOKUP, file, &[], b".\0"), Err(Errno::STALE.0));
    let renamed = RenameIn { new_parent: 11 };
    let names = b"file\0new\0";
    let refused = one.ask(RENAME, ROOT, renamed.as_bytes(), names);
    assert_eq!(refused, Err(Errno::STALE.0));
    served.end(vec![one, other]);
}

#[test]
fn a_guest_gives_back_no_more_than_it_has() {
    let served = Served::new(true);
    let [one, other] = [served.join(), served.join()];
    let file = one.make(b"file\0");
    assert_eq!(other.lookup(b"file\0").node, file);
    let forget = said(FORGET, file, &1000_u64.to_ne_bytes(), &[]);
    assert_eq!(one.0.answer(&forget, &mut []), 0);
    assert_eq!(one.getattr(file).unwrap_err(), Errno::STALE.0);
    // It stays for the other when it loses its name, until that one ends.
    one.ask(UNLINK, ROOT, &[], b"file\0").unwrap();
    assert_eq!(other.getattr(file).unwrap().attr.links, 0);
    other.write(file, b"still there").unwrap();
    let free = served.fs.statfs().unwrap().free_inodes;
    other.0.end();
    assert_eq!(served.fs.statfs().unwrap().free_inodes, free + 1);
    served.end(vec![one]);
}

#[test]
fn a_guest_that_learns_and_forgets_at_once_takes_nothing_from_another() {
    let served = Served::new(true);
    let [one, other] = [served.join(), served.join()];
    let file = other.make(b"file\0");
    let ino = Ino::new(file as u32);
    let nodes = &served.guests.nodes;
    let held = served.fs.hold(ino).unwrap();
    // What is kept with the inode is lost when nobody knows it for a moment.
    let kept = nodes.mark(&held);
    let forget = said(FORGET, file, &1_u64.to_ne_bytes(), &[]);
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(Ordering::Acquire) {
                assert_eq!(one.0.answer(&forget, &mut []), 0);
            }
        });
        for _ in 0..20_000 {
            assert_eq!(one.lookup(b"file\0").node, file);
        }
        is_over.store(true, Ordering::Release);
    });
    assert!(Arc::ptr_eq(&kept, &nodes.mark(&held)));
    extant_core::ops::release(&served.fs, held).unwrap();
    served.end(vec![one, other]);
}

#[test]
fn what_a_guest_is_told_holds_for_a_while_or_not_at_all() {
    for several in [false, true] {
        let served = Served::new(several);
        let guest = served.join();
        guest.make(b"file\0");
        let told = guest.lookup(b"file\0");
        let nothing = guest.lookup(b"none\0");
        assert_eq!(nothing.node, 0);
        let holds = [
            told.entry_secs > 0,
            told.attr_secs > 0,
            nothing.entry_secs > 0,
        ];
        assert_eq!(holds, [!several; 3]);
        assert!(told.attr_secs <= 1, "nobody tells it of flags that change");
        let opened = guest.ask(OPEN, told.node, &[0; 8], &[]);
        let keeps = opened.map(|opened| OpenOut::read_from_bytes(&opened).unwrap().flags);
        let expected = if several {
            Ok(0)
        } else {
            Err(Errno::NO_SYSCALL.0)
        };
        assert_eq!(keeps, expected);
        served.end(vec![guest]);
    }
}

#[test]
fn a_fresh_time_of_change_is_told_once_among_several() {
    let served = Served::new(true);
    let [one, other] = [served.join(), served.join()];
    let file = one.make(b"file\0");
    other.lookup(b"file\0");
    let time = |guest: &Asking| {
        let attr = guest.getattr(file).unwrap().attr;
        (attr.mtime, attr.mtime_nanos)
    };
    let mut told = vec![time(&one)];
    for round in 0..50_u8 {
        one.write(file, &[round]).unwrap();
        told.extend([time(&other), time(&one)]);
    }
    let all = told.len();
    told.sort_unstable();
    told.dedup();
    assert_eq!(
        told.len(),
        all,
        "a guest would not see that data has changed"
    );
    assert!(told.iter().all(|(_, nanos)| *nanos < 1_000_000_000));
    std::thread::sleep(std::time::Duration::from_millis(30));
    assert_eq!(time(&one), time(&other));
    served.end(vec![one, other]);
}

#[test]
fn several_guests_change_the_same_names_at_once() {
    let served = Served::new(true);
    let guests: Vec<Asking> = (0..4).map(|_| served.join()).collect();
    std::thread::scope(|scope| {
        for (number, guest) in guests.iter().enumerate() {
            scope.spawn(move || {
                let own = format!("own{number}\0");
                for round in 0..100_u32 {
                    let file = guest.make(own.as_bytes());
                    guest.write(file, &round.to_ne_bytes()).unwrap();
                    let names = [own.as_bytes(), b"shared\0"].concat();
                    let to_root = RenameIn { new_parent: ROOT };
                    guest.ask(RENAME, ROOT, to_root.as_bytes(), &names).unwrap();
                    // Whosever it is: it is there as long as this guest knows it.
                    if let Ok(found) = guest.ask(LOOKUP, ROOT, &[], b"shared\0") {
                        let found = EntryOut::read_from_bytes(&found).unwrap();
                        if found.node != 0 {
                            guest.getattr(found.node).unwrap();
                            assert_eq!(guest.read(found.node, 4).unwrap().len(), 4);
                        }
                    }
                    // The file that lost its name to another is there too.
                    assert_eq!(guest.read(file, 4).unwrap(), round.to_ne_bytes());
                    let _ = guest.ask(UNLINK, ROOT, &[], b"shared\0");
                }
            });
        }
    });
    served.end(guests);
}

#[test]
fn a_guest_that_starts_again_knows_nothing_of_before() {
    let served = Served::new(false);
    let guest = served.join();
    let file = guest.make(b"file\0");
    let init = [7_u32, 38, 128 << 10, u32::MAX, u32::MAX];
    guest.ask(INIT, 0, init.as_bytes(), &[]).unwrap();
    assert_eq!(guest.getattr(file).unwrap_err(), Errno::STALE.0);
    assert_eq!(guest.lookup(b"file\0").node, file);
    guest.ask(DESTROY, 0, &[], &[]).unwrap();
    assert_eq!(guest.getattr(ROOT).unwrap_err(), Errno::IO.0);
    served.end(vec![guest]);
}

#[test]
fn what_is_no_request_is_refused() {
    let served = Served::new(false);
    let guest = served.join();
    let mut out = [0; 256];
    assert_eq!(guest.0.answer(&[], &mut out), 0);
    assert_eq!(guest.0.answer(&[0; 39], &mut out), 0);
    assert!(guest.0.treatment(&[0; 39]).is_none());
    // It says another length, or is none that is known, or has no room for its answer.
    let mut wrong = said(GETATTR, ROOT, &[0; 16], &[]);
    wrong.push(0);
    assert_eq!(guest.0.answer(&wrong, &mut out), OUT_HEADER);
    assert_eq!(guest.ask(4711, ROOT, &[], &[]), Err(Errno::NO_SYSCALL.0));
    let right = said(GETATTR, ROOT, &[0; 16], &[]);
    assert_eq!(guest.0.answer(&right, &mut [0; 15]), 0);
    assert_eq!(guest.0.answer(&right, &mut [0; 20]), OUT_HEADER);
    served.end(vec![guest]);
}

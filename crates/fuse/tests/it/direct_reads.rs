//! Direct reads that one thread has under way at once, where nothing is written.

use crate::support::{Image, Mount};
use crate::syscalls::Asynchronous;
use extant_blockdev::{BlockDevice, DeviceResult};
use extant_testkit::require;
use extant_testkit::rings::Enabled;
use rustix::fs::OFlags;
use std::fs::{self, File};
use std::os::unix::fs::OpenOptionsExt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

const PAGE: usize = 4096;
/// The length of the file. It ends within a sector.
const BYTES: usize = (4 << 20) + 1000;

/// An image that has a file, and what is in the file.
fn with_file() -> (Image, Vec<u8>) {
    let image = Image::new(24 << 20, &["-b", "4096"]);
    let mount = image.mount("");
    // No two sectors are alike.
    let content: Vec<u8> = (0..BYTES as u64)
        .map(|at| (at / 512).wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes()[at as usize % 8])
        .collect();
    fs::write(mount.at("file"), &content).unwrap();
    mount.unmount();
    (image, content)
}

fn open_direct(mount: &Mount) -> File {
    let flags = OFlags::DIRECT.bits() as i32;
    let mut options = File::options();
    let options = options.read(true).custom_flags(flags);
    options.open(mount.at("file")).unwrap()
}

/// Reads all of the file in parts of some lengths, some of them cut off by its end and some behind
/// it, many at once.
fn find_what_is_there(options: &str) {
    let (image, content) = with_file();
    let mount = image.mount(options);
    let file = open_direct(&mount);
    let beside = Asynchronous::new();
    for len in [PAGE, 3 * PAGE, 64 << 10, 2 << 20] {
        let end = BYTES + 4 * len;
        let parts: Vec<_> = (0..end as u64).step_by(len).map(|at| (at, len)).collect();
        for parts in parts.chunks(Asynchronous::MOST) {
            let read = beside.read(&file, parts.iter().copied());
            for (&(at, len), read) in parts.iter().zip(read) {
                let expected = content.get(at as usize..).unwrap_or_default();
                let expected = &expected[..len.min(expected.len())];
                assert!(read.unwrap() == expected, "{options}: {len} at {at}");
            }
        }
    }
    // The mount ends with the last user of a file.
    drop((file, beside));
    mount.unmount();
}

#[test]
fn direct_reads_at_once_find_what_is_there_and_end_with_the_file() {
    require!(Fuse);
    for options in ["ro", "ro,direct_from=0", "ro,direct_io"] {
        find_what_is_there(options);
    }
}

#[test]
fn so_they_do_through_io_uring() {
    require!(Fuse, FuseRings);
    let _enabled = Enabled::new().unwrap();
    for options in ["ro,io_uring", "ro,io_uring,direct_io"] {
        find_what_is_there(options);
    }
}

/// A device on which reads wait for one another, once that is asked for.
#[derive(Debug)]
struct Meeting {
    inner: Arc<dyn BlockDevice>,
    waits: AtomicBool,
    /// Reads that are under way, and the most that were.
    reads: Mutex<(usize, usize)>,
    more: Condvar,
}

impl Meeting {
    /// How many have to come.
    const ENOUGH: usize = 2;
    /// How long they are waited for.
    const LIMIT: Duration = Duration::from_secs(5);

    fn new(inner: Arc<dyn BlockDevice>) -> Self {
        Self {
            inner,
            waits: AtomicBool::new(false),
            reads: Mutex::default(),
            more: Condvar::new(),
        }
    }
}

impl BlockDevice for Meeting {
    fn size(&self) -> u64 {
        self.inner.size()
    }

    fn is_read_only(&self) -> bool {
        self.inner.is_read_only()
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> DeviceResult<()> {
        if self.waits.load(Ordering::Relaxed) {
            let mut reads = self.reads.lock().unwrap();
            reads.0 += 1;
            reads.1 = reads.1.max(reads.0);
            self.more.notify_all();
            let too_few = |reads: &mut (usize, usize)| reads.1 < Self::ENOUGH;
            let waited = self.more.wait_timeout_while(reads, Self::LIMIT, too_few);
            waited.unwrap().0.0 -= 1;
        }
        self.inner.read_at(offset, buf)
    }

    fn write_at(&self, offset: u64, buf: &[u8]) -> DeviceResult<()> {
        self.inner.write_at(offset, buf)
    }

    fn flush(&self) -> DeviceResult<()> {
        self.inner.flush()
    }
}

/// Reads two parts at once: how many reads of the device were under way at once.
fn met(options: &str) -> usize {
    const LEN: usize = 256 << 10;
    let (image, content) = with_file();
    let mut meeting = None;
    let (mount, _) = image.mount_through(options, |device| {
        let device = Arc::new(Meeting::new(device));
        meeting = Some(Arc::clone(&device));
        device
    });
    let meeting = meeting.expect("it is made");
    let file = open_direct(&mount);
    let beside = Asynchronous::new();
    meeting.waits.store(true, Ordering::Relaxed);
    let parts = [0, 2 << 20];
    let read = beside.read(&file, parts.map(|at| (at as u64, LEN)));
    meeting.waits.store(false, Ordering::Relaxed);
    for (at, read) in parts.into_iter().zip(read) {
        assert!(read.unwrap() == content[at..at + LEN], "{options}: {at}");
    }
    drop((file, beside));
    mount.unmount();
    let reads = meeting.reads.lock().unwrap();
    reads.1
}

#[test]
fn direct_reads_of_one_thread_are_under_way_at_once() {
    require!(Fuse);
    for options in ["ro", "ro,direct_io"] {
        assert_eq!(met(options), 2, "{options}");
    }
}

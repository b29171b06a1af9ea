//! Devices where each request takes a round trip.

use crate::support::{assert_clean, check};
use extant_blockdev::{BlockDevice, DeviceResult, OpenSpec, SharedDevice};
use extant_fsck::Options;
use extant_testkit::oracle::mke2fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tempfile::TempDir;

/// A device that takes its time, and knows how many reads there were at once.
#[derive(Debug)]
struct Far {
    inner: SharedDevice,
    open: AtomicUsize,
    most_open: AtomicUsize,
}

impl BlockDevice for Far {
    fn size(&self) -> u64 {
        self.inner.size()
    }

    fn is_read_only(&self) -> bool {
        true
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> DeviceResult<()> {
        let open = self.open.fetch_add(1, Ordering::SeqCst) + 1;
        self.most_open.fetch_max(open, Ordering::SeqCst);
        std::thread::sleep(Duration::from_millis(3));
        let read = self.inner.read_at(offset, buf);
        self.open.fetch_sub(1, Ordering::SeqCst);
        read
    }

    fn write_at(&self, offset: u64, buf: &[u8]) -> DeviceResult<()> {
        self.check_writable("write", offset, buf.len() as u64)
    }

    fn flush(&self) -> DeviceResult<()> {
        Ok(())
    }

    fn in_flight(&self) -> usize {
        32
    }
}

#[test]
fn groups_of_what_is_far_are_looked_at_many_at_a_time() {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("fs.img");
    // 64 groups, whose tables are all read as nothing says that they are unused.
    let options = ["-t", "ext4", "-b", "1024", "-g", "1024"];
    let without = ["-O", "^metadata_csum,^uninit_bg,^resize_inode"];
    mke2fs(&path, 64 << 20, &[&options[..], &without].concat());
    let far = Arc::new(Far {
        inner: OpenSpec::read_only(&path).open().unwrap(),
        open: AtomicUsize::new(0),
        most_open: AtomicUsize::new(0),
    });
    let device: SharedDevice = far.clone();
    let report = extant_fsck::check(device, Options::default().as_is(true), &()).unwrap();
    assert_clean("what is far", &report);
    assert_eq!(report.totals, check(&path, true).totals);
    let most = far.most_open.load(Ordering::SeqCst);
    assert!(most >= 8, "{most} reads at once");
}

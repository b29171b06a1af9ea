//! Requests beside transfers that take long: none waits for somebody else's.

use crate::support::{Image, Mount};
use crate::syscalls::Asynchronous;
use extant_blockdev::{BlockDevice, DeviceResult};
use extant_testkit::require;
use extant_testkit::rings::Enabled;
use rustix::fs::OFlags;
use rustix::thread::{CpuSet, sched_setaffinity};
use std::fs::{self, File};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::sync::{Arc, Condvar, Mutex};
use std::thread;
use std::time::Duration;

/// Bytes of one transfer, and how many are under way. With a page more the kernel might make a
/// small read of the end.
const LEN: usize = (1 << 20) - 4096;
const TRANSFERS: usize = 5;
/// What every byte of the first part of the slow file is, and of the other's.
const SLOW: u8 = 100;
const QUICK: u8 = 1;
/// How long something is waited for that does not take long.
const PATIENCE: Duration = Duration::from_secs(30);

/// A device on which reads of the slow file wait while it is closed.
#[derive(Debug)]
struct Gate {
    inner: Arc<dyn BlockDevice>,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    is_closed: bool,
    waiting: usize,
    /// Nobody opened it in time.
    gave_up: bool,
}

impl Gate {
    fn set_closed(&self, is_closed: bool) {
        self.state.lock().unwrap().is_closed = is_closed;
        self.changed.notify_all();
    }

    /// Waits until so many reads wait here.
    fn until_waiting(&self, count: usize) {
        let state = self.state.lock().unwrap();
        let too_few = |state: &mut State| state.waiting < count;
        let waited = self.changed.wait_timeout_while(state, PATIENCE, too_few);
        let (state, timeout) = waited.unwrap();
        assert!(!timeout.timed_out(), "{} of {count}", state.waiting);
    }
}

impl BlockDevice for Gate {
    fn size(&self) -> u64 {
        self.inner.size()
    }

    fn is_read_only(&self) -> bool {
        self.inner.is_read_only()
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> DeviceResult<()> {
        self.inner.read_at(offset, buf)?;
        if is_slow(buf) {
            let mut state = self.state.lock().unwrap();
            state.waiting += 1;
            self.changed.notify_all();
            let is_closed = |state: &mut State| state.is_closed;
            let waited = self.changed.wait_timeout_while(state, PATIENCE, is_closed);
            let (mut state, timeout) = waited.unwrap();
            state.gave_up |= timeout.timed_out();
            state.waiting -= 1;
        }
        Ok(())
    }

    fn write_at(&self, offset: u64, buf: &[u8]) -> DeviceResult<()> {
        self.inner.write_at(offset, buf)
    }

    fn flush(&self) -> DeviceResult<()> {
        self.inner.flush()
    }
}

/// What one of the parts of a file has.
fn content(first: u8, part: usize) -> Vec<u8> {
    vec![first + part as u8; LEN]
}

/// Tells whether these bytes are of the slow file.
fn is_slow(bytes: &[u8]) -> bool {
    let slow = SLOW..SLOW + TRANSFERS as u8;
    bytes.len() >= 4096 && slow.contains(&bytes[0]) && bytes.iter().all(|byte| *byte == bytes[0])
}

fn open_direct(mount: &Mount, name: &str, writes: bool) -> File {
    let flags = OFlags::DIRECT.bits() as i32;
    let mut options = File::options();
    let options = options.read(true).write(writes).custom_flags(flags);
    options.open(mount.at(name)).unwrap()
}

/// Runs this on each processor that there is, one after the other.
fn on_each_processor(mut run: impl FnMut(usize) + Send) {
    let mut ran = 0;
    thread::scope(|scope| {
        let run = &mut run;
        let all = scope.spawn(move || {
            for number in 0..CpuSet::MAX_CPU {
                let mut only = CpuSet::new();
                only.set(number);
                if sched_setaffinity(None, &only).is_ok() {
                    run(number);
                    ran += 1;
                }
            }
            ran
        });
        assert!(all.join().unwrap() > 0);
    });
}

/// Does small things, and reads and writes much elsewhere, while transfers wait for the device.
fn others_go_on(options: &str) {
    let writes = !options.starts_with("ro");
    let image = Image::new(64 << 20, &["-b", "4096"]);
    let mount = image.mount("");
    for (name, first) in [("slow", SLOW), ("quick", QUICK)] {
        let parts = (0..TRANSFERS).flat_map(|part| content(first, part));
        fs::write(mount.at(name), parts.collect::<Vec<u8>>()).unwrap();
    }
    mount.unmount();
    let mut gate = None;
    let (mount, _) = image.mount_through(options, |inner| {
        let device = Arc::new(Gate {
            inner,
            state: Mutex::default(),
            changed: Condvar::new(),
        });
        gate = Some(Arc::clone(&device));
        device
    });
    let gate = gate.expect("it is made");
    let quick = open_direct(&mount, "quick", writes);
    let read = |file: &File, first: u8, part: usize| {
        let mut found = vec![0; LEN];
        file.read_exact_at(&mut found, (part * LEN) as u64).unwrap();
        assert!(found == content(first, part), "{options}: {part}");
    };
    // Transfers have been everywhere, and where nothing is written small reads that came many at a
    // time. This file is in memory.
    on_each_processor(|_| {
        (0..TRANSFERS).for_each(|part| read(&quick, QUICK, part));
        let beside = Asynchronous::new();
        for _ in 0..8 {
            let parts = (0..Asynchronous::MOST as u64).map(|at| (at * 4096, 4096));
            assert!(beside.read(&quick, parts).iter().all(Result::is_ok));
        }
    });
    let slow = open_direct(&mount, "slow", false);
    gate.set_closed(true);
    thread::scope(|scope| {
        let transfers = (0..TRANSFERS).map(|part| {
            scope.spawn({
                let slow = &slow;
                move || read(slow, SLOW, part)
            })
        });
        let transfers: Vec<_> = transfers.collect();
        // Some may wait for what others of them read ahead.
        gate.until_waiting(1);
        thread::sleep(Duration::from_millis(100));
        on_each_processor(|processor| {
            // More at once than slots are left.
            thread::scope(|scope| {
                for number in 0..8 {
                    let mount = &mount;
                    scope.spawn(move || {
                        for again in 0..20 {
                            let name = format!("{processor} {number} {again}");
                            assert!(fs::metadata(mount.at(&name)).is_err());
                        }
                    });
                }
            });
            for part in 0..TRANSFERS {
                read(&quick, QUICK, part);
                if writes {
                    let at = (part * LEN) as u64;
                    quick.write_all_at(&content(QUICK, part), at).unwrap();
                    let path = mount.at(&format!("{processor} {part}"));
                    fs::write(&path, b"small").unwrap();
                    assert_eq!(fs::read(&path).unwrap(), b"small");
                    fs::remove_file(&path).unwrap();
                }
            }
        });
        let state = gate.state.lock().unwrap();
        assert!(!state.gave_up && state.waiting > 0, "{options}: {state:?}");
        drop(state);
        gate.set_closed(false);
        for transfer in transfers {
            transfer.join().unwrap();
        }
    });
    drop((quick, slow));
    mount.unmount();
    image.assert_clean();
}

#[test]
fn nobody_waits_for_transfers_of_others() {
    require!(Fuse);
    others_go_on("no_io_uring,threads=8");
    others_go_on("ro,no_io_uring,threads=8");
}

#[test]
fn nor_do_they_through_io_uring() {
    require!(Fuse, FuseRings);
    let _enabled = Enabled::new().unwrap();
    // Where there are more, each has fewer slots than there are transfers.
    let possible = fs::read_to_string("/sys/devices/system/cpu/possible").unwrap();
    let last = possible.trim().rsplit(['-', ',']).next();
    let last: usize = last.and_then(|last| last.parse().ok()).unwrap();
    if last >= 16 {
        eprintln!("left out: {possible} possible processors");
        return;
    }
    others_go_on("io_uring,threads=8");
    others_go_on("ro,io_uring,threads=8");
}

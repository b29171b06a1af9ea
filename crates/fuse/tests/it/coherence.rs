//! Direct and buffered users of one file, and what either is told of a full file system.

use crate::support::{Image, Mount};
use crate::syscalls::Asynchronous;
use extant_testkit::mount::{KernelMount, Mode};
use extant_testkit::require;
use extant_testkit::rings::Enabled;
use extant_testkit::rng::{Rng, seed_from_env};
use rustix::fs::{FallocateFlags, OFlags, copy_file_range, fallocate};
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Bytes of the file: several requests of the kernel's.
const BYTES: usize = 640 << 10;
const PAGE: usize = 4096;
/// How long each way of mounting is tried, unless [`SOAK`] says for how many minutes.
const TRIED: Duration = Duration::from_millis(1200);
const SOAK: &str = "EXTANT_SOAK_MINUTES";
const READERS: usize = 3;

fn open(path: &Path, direct: bool) -> File {
    let flags = if direct {
        OFlags::DIRECT.bits() as i32
    } else {
        0
    };
    let mut options = File::options();
    let options = options.read(true).write(true).create(true);
    options.custom_flags(flags).open(path).unwrap()
}

fn tried() -> Duration {
    match std::env::var(SOAK) {
        Ok(minutes) => Duration::from_secs(60 * minutes.parse::<u64>().expect("minutes")),
        Err(_) => TRIED,
    }
}

/// One file of which the right content is known.
struct Shared {
    direct: File,
    buffered: File,
    other: File,
    content: Vec<u8>,
    beside: Asynchronous,
}

impl Shared {
    fn new(mount: &Mount) -> Self {
        let path = mount.at("file");
        let content = vec![b'0'; BYTES];
        fs::write(&path, &content).unwrap();
        Self {
            direct: open(&path, true),
            buffered: open(&path, false),
            other: open(&mount.at("other"), false),
            content,
            beside: Asynchronous::new(),
        }
    }

    /// Changes a part in one of the ways there are. Returns which.
    fn change(&mut self, rng: &mut Rng) -> &'static str {
        let (from, to) = match rng.below(2) {
            0 => (0, BYTES),
            _ => {
                let pages = (BYTES / PAGE) as u64;
                let from = rng.below(pages);
                let len = 1 + rng.below(pages - from);
                (from as usize * PAGE, (from + len) as usize * PAGE)
            }
        };
        let byte = b'a' + rng.below(26) as u8;
        let data = vec![byte; to - from];
        let (offset, len) = (from as u64, data.len() as u64);
        self.content[from..to].fill(byte);
        match rng.below(10) {
            0 => {
                self.buffered.write_all_at(&data, offset).unwrap();
                "a buffered write"
            }
            1 => {
                let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
                fallocate(&self.buffered, punch, offset, len).unwrap();
                self.content[from..to].fill(0);
                "a hole"
            }
            2 => {
                self.other.write_all_at(&data, 0).unwrap();
                let (mut at, mut to) = (0, offset);
                let copied = copy_file_range(
                    &self.other,
                    Some(&mut at),
                    &self.buffered,
                    Some(&mut to),
                    data.len(),
                );
                assert_eq!(copied.unwrap(), data.len());
                "a copied range"
            }
            3 => {
                self.direct.write_all_at(&data, offset).unwrap();
                "a direct write"
            }
            _ => {
                let written = self.beside.write(&self.direct, offset, &data).unwrap();
                assert_eq!(written, data.len());
                "an asynchronous direct write"
            }
        }
    }

    /// What each reads is what was written last.
    fn check(&self, after: &str, round: u64) {
        for (file, how) in [(&self.buffered, "buffered"), (&self.direct, "direct")] {
            let mut found = vec![0; BYTES];
            file.read_exact_at(&mut found, 0).unwrap();
            let wrong = (found.iter().zip(&self.content)).filter(|(a, b)| a != b);
            let wrong = wrong.count();
            assert_eq!(wrong, 0, "{how} reads are old after {after}, round {round}");
        }
    }
}

fn agree(options: &str) {
    let seed = seed_from_env("fuse::agreeing");
    let image = Image::new(64 << 20, &["-b", "4096"]);
    let mount = image.mount(options);
    let mut rng = Rng::new(seed);
    let mut shared = Shared::new(&mount);
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        // Also when a check fails.
        struct Over<'a>(&'a AtomicBool);
        impl Drop for Over<'_> {
            fn drop(&mut self) {
                self.0.store(true, Ordering::Relaxed);
            }
        }
        let _over = Over(&is_over);
        for _ in 0..READERS {
            let (path, is_over) = (mount.at("file"), &is_over);
            scope.spawn(move || {
                let file = File::open(path).unwrap();
                let mut into = vec![0; BYTES];
                while !is_over.load(Ordering::Relaxed) {
                    file.read_exact_at(&mut into, 0).unwrap();
                }
            });
        }
        let end = Instant::now() + tried();
        let mut round = 0;
        while Instant::now() < end {
            let after = shared.change(&mut rng);
            shared.check(after, round);
            round += 1;
        }
        assert!(round > 0);
    });
    drop(shared);
    mount.unmount();
    image.assert_clean();
}

#[test]
fn direct_and_buffered_users_of_one_file_agree() {
    require!(Fuse);
    agree("");
}

#[test]
fn they_agree_where_the_kernel_gathers_writes() {
    require!(Fuse);
    agree("writeback_cache");
}

#[test]
fn they_agree_past_the_kernels_memory() {
    require!(Fuse);
    agree("direct_io");
}

#[test]
fn they_agree_through_io_uring() {
    require!(Fuse, FuseRings);
    let _enabled = Enabled::new().unwrap();
    agree("io_uring");
}

/// Writes of this many bytes until one fails: its error number.
fn fill(path: &Path, len: usize, write: impl Fn(u64, &[u8]) -> io::Result<usize>) -> Option<i32> {
    let data = vec![7; len];
    let mut offset = 0;
    let failed = loop {
        match write(offset, &data) {
            Ok(0) => break None,
            // Direct writes begin at pages.
            Ok(written) => offset = (offset + written as u64).next_multiple_of(PAGE as u64),
            Err(e) => break e.raw_os_error(),
        }
    };
    fs::remove_file(path).unwrap();
    failed
}

/// A full file system says so, however it is written to.
fn says_that_it_is_full(options: &str) {
    let image = Image::new(24 << 20, &["-b", "4096"]);
    let mount = image.mount(options);
    let path = mount.at("file");
    let beside = Asynchronous::new();
    for pad in [1, 5, 9] {
        let padding = mount.at("padding");
        // What was removed leaves room when the kernel has forgotten it.
        let end = Instant::now() + Duration::from_secs(30);
        while let Err(e) = fs::write(&padding, vec![1; pad * PAGE]) {
            assert_eq!(e.raw_os_error(), Some(libc::ENOSPC));
            assert!(Instant::now() < end, "there is never room again");
            std::thread::sleep(Duration::from_millis(20));
        }
        for len in [32 << 10, 128 << 10, 4 << 20] {
            let direct = open(&path, true);
            let failed = fill(&path, len, |offset, data| direct.write_at(data, offset));
            assert_eq!(failed, Some(libc::ENOSPC), "{options:?}: direct, {len}");
            drop(direct);
            let direct = open(&path, true);
            let failed = fill(&path, len, |offset, data| {
                beside.write(&direct, offset, data)
            });
            assert_eq!(
                failed,
                Some(libc::ENOSPC),
                "{options:?}: asynchronous, {len}"
            );
        }
        let buffered = open(&path, false);
        let failed = fill(&path, 128 << 10, |offset, data| {
            let written = buffered.write_at(data, offset)?;
            // What is gathered is refused when it is passed on.
            buffered.sync_data()?;
            Ok(written)
        });
        assert_eq!(failed, Some(libc::ENOSPC), "{options:?}: buffered");
    }
    mount.unmount();
    image.assert_clean();
}

#[test]
fn a_full_file_system_says_so_to_direct_writes_of_any_length() {
    require!(Fuse);
    for options in ["", "writeback_cache", "direct_io"] {
        says_that_it_is_full(options);
    }
}

#[test]
fn so_it_does_through_io_uring() {
    require!(Fuse, FuseRings);
    let _enabled = Enabled::new().unwrap();
    says_that_it_is_full("io_uring");
}

/// What writes near the end of what a file can have come to.
fn at_the_limit(root: &Path) -> Vec<String> {
    const LIMIT: u64 = ((1 << 32) - 1) << 12;
    let beside = Asynchronous::new();
    let mut found = Vec::new();
    for is_direct in [false, true] {
        let path = root.join("large");
        let file = open(&path, is_direct);
        for (offset, len) in [
            (LIMIT - PAGE as u64, PAGE),
            (LIMIT - PAGE as u64, 4 * PAGE),
            (LIMIT, PAGE),
            (LIMIT + (1 << 40), PAGE),
        ] {
            let data = vec![7; len];
            let results = [
                file.write_at(&data, offset),
                beside.write(&file, offset, &data),
            ];
            let outcome = results.map(|written| written.map_err(|e| e.raw_os_error()));
            found.push(format!(
                "direct {is_direct}, {len} at {offset}: {outcome:?}"
            ));
        }
        fs::remove_file(&path).unwrap();
    }
    found
}

#[test]
fn a_file_that_is_as_long_as_can_be_is_told_of_as_by_linux() {
    require!(Fuse, KernelExt4);
    let theirs = Image::new(16 << 20, &["-b", "4096"]);
    let expected = {
        let mount = KernelMount::mount(&theirs.path(), Mode::ReadWrite, "");
        at_the_limit(mount.path())
    };
    for options in ["", "direct_io"] {
        let image = Image::new(16 << 20, &["-b", "4096"]);
        let mount = image.mount(options);
        let found = at_the_limit(mount.path());
        assert_eq!(found.len(), expected.len());
        for (found, expected) in found.iter().zip(&expected) {
            // The last block of all Linux writes, but not directly.
            if !expected.contains("Some(22)") {
                assert_eq!(found, expected, "ours on the left, with {options:?}");
            }
        }
        mount.unmount();
        image.assert_clean();
    }
}

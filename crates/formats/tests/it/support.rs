//! What the tests share: random sparse images, other programs, files.

use extant_blockdev::{BlockDevice, FileDevice, FileOptions, SharedDevice};
use extant_formats::{Format, OpenHow, open, recognise};
use extant_testkit::rng::Rng;
use extant_testkit::tool::tool;
use std::ffi::OsString;
use std::path::Path;
use std::sync::Arc;

/// Runs a program, which must succeed, and returns what it said. Words are cut at blanks; `{}`
/// stands for the paths, one after the other.
pub(crate) fn run(line: &str, paths: &[&Path]) -> String {
    let mut words = line.split_ascii_whitespace();
    let mut paths = paths.iter();
    let program = words.next().expect("a program");
    let args: Vec<OsString> = words
        .map(|word| match word {
            "{}" => paths.next().expect("a path").into(),
            word => word.into(),
        })
        .collect();
    let done = tool(program).args(args).ok();
    format!("{}{}", done.text(), String::from_utf8_lossy(&done.stderr))
}

/// Opens a file for reading.
pub(crate) fn file(path: &Path) -> SharedDevice {
    Arc::new(FileDevice::open_read_only(path).expect("a file"))
}

/// A new file that grows.
pub(crate) fn new_file(path: &Path) -> SharedDevice {
    Arc::new(FileOptions::create_new(0).open(path).expect("a new file"))
}

/// Opens the disk in a file, in the format that is seen.
pub(crate) fn disk(path: &Path) -> SharedDevice {
    let device = file(path);
    let format = recognise(&*device).expect("a file that can be read");
    open(
        device,
        format.unwrap_or(Format::Raw),
        &OpenHow::read_only().beside(path),
    )
    .unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

/// Opens the disk in a file for writing.
pub(crate) fn disk_to_write(path: &Path) -> SharedDevice {
    let device: SharedDevice = Arc::new(FileDevice::open(path).expect("a file"));
    let format = recognise(&*device).expect("a file that can be read");
    open(
        device,
        format.unwrap_or(Format::Raw),
        &OpenHow::read_write().beside(path),
    )
    .unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

/// A change of a disk: bytes at an offset.
pub(crate) struct Patch {
    pub(crate) offset: u64,
    pub(crate) bytes: Vec<u8>,
}

/// Random changes of a disk of `size` bytes: short and long ones, words over and over, zeros.
pub(crate) fn patches(rng: &mut Rng, size: u64, count: usize) -> Vec<Patch> {
    (0..count)
        .map(|_| {
            let most = [700, 5000, 70_000, 300_000][rng.below(4) as usize];
            let len = (1 + rng.below(most)).min(size);
            let mut offset = rng.below(size - len + 1);
            let mut len = len as usize;
            if rng.below(2) == 0 {
                offset &= !4095;
                len = len.next_multiple_of(4096).min((size - offset) as usize);
            }
            let bytes = match rng.below(5) {
                0 => vec![0; len],
                1 => {
                    let word = (rng.next_u64() as u32).to_le_bytes();
                    word.iter().copied().cycle().take(len).collect()
                }
                _ => (0..len).map(|_| rng.next_u64() as u8).collect(),
            };
            Patch { offset, bytes }
        })
        .collect()
}

/// Makes a sparse raw file with these changes.
pub(crate) fn raw(path: &Path, size: u64, patches: &[Patch]) {
    let device = FileDevice::create(path, size).expect("a new file");
    for patch in patches {
        device.write_at(patch.offset, &patch.bytes).expect("room");
    }
}

/// Compares two devices byte by byte.
pub(crate) fn assert_same(found: &dyn BlockDevice, expected: &dyn BlockDevice, what: &str) {
    assert_eq!(found.size(), expected.size(), "{what}: the size");
    let size = expected.size();
    let (mut a, mut b) = (vec![0; 1 << 20], vec![0; 1 << 20]);
    let mut at = 0;
    while at < size {
        let len = (size - at).min(1 << 20) as usize;
        found.read_at(at, &mut a[..len]).expect("a read");
        expected.read_at(at, &mut b[..len]).expect("a read");
        if let Some(wrong) = (0..len).find(|&n| a[n] != b[n]) {
            panic!("{what}: byte {} differs", at + wrong as u64);
        }
        at += len as u64;
    }
    // What is said to be a hole is one.
    let mut end = 0;
    let mut data = found.data_extents(0..size).expect("extents");
    data.push(size..size);
    for extent in data {
        let mut at = end;
        while at < extent.start {
            let len = (extent.start - at).min(1 << 20) as usize;
            expected.read_at(at, &mut b[..len]).expect("a read");
            assert!(
                b[..len].iter().all(|&byte| byte == 0),
                "{what}: hole at {at}"
            );
            at += len as u64;
        }
        end = extent.end;
    }
}

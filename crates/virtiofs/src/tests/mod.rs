//! Guests and monitors that are made up: right ones, and wrong ones.

mod monitor;
mod queues;

use extant_blockdev::OpenSpec;
use extant_core::fs::{Fs, MountOptions};
use extant_fuse::{Guests, MemoryPressure, Options};
use extant_testkit::oracle::{assert_clean, mke2fs};
use std::sync::Arc;
use tempfile::TempDir;

/// A file system for guests.
struct Served {
    dir: TempDir,
    fs: Arc<Fs>,
    guests: Guests,
}

impl Served {
    fn new(most: usize) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("image");
        mke2fs(&path, 16 << 20, &["-t", "ext4", "-b", "4096"]);
        let device = OpenSpec::read_write(&path).open().unwrap();
        let fs = Fs::open(device, MountOptions::read_write()).unwrap();
        let pressure = MemoryPressure::default();
        let options = Options::default();
        let guests = Guests::new(Arc::clone(&fs), &options, most > 1, None, pressure).unwrap();
        Self { dir, fs, guests }
    }

    /// Closes it, when nobody uses it any more.
    fn end(self) {
        drop(self.guests);
        self.fs.close().unwrap();
        assert_clean(&self.dir.path().join("image"));
    }
}

/// A request of this kind about a node.
fn said(opcode: u32, node: u64, body: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    bytes.extend((40 + body.len() as u32).to_ne_bytes());
    bytes.extend(opcode.to_ne_bytes());
    bytes.extend(99_u64.to_ne_bytes());
    bytes.extend(node.to_ne_bytes());
    bytes.extend([0; 16]);
    bytes.extend(body);
    bytes
}

/// What a guest begins with.
fn init() -> Vec<u8> {
    let words = [7_u32, 38, 128 << 10, u32::MAX, u32::MAX];
    let mut body: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
    body.resize(64, 0);
    said(26, 0, &body)
}

/// Makes a file.
fn make(name: &[u8]) -> Vec<u8> {
    let mut body = 0o100_644_u32.to_ne_bytes().to_vec();
    body.extend([0; 12]);
    body.extend(name);
    said(8, 1, &body)
}

/// The fixed part of reading and writing `len` bytes from `offset` on.
fn transfer(offset: u64, len: u32) -> Vec<u8> {
    let mut fixed = vec![0; 8];
    fixed.extend(offset.to_ne_bytes());
    fixed.extend(len.to_ne_bytes());
    fixed.extend([0; 20]);
    fixed
}

/// The error number in the header of an answer, and its node if it is an entry.
fn error_and_node(answer: &[u8]) -> (i32, u64) {
    let error = answer[4..]
        .first_chunk()
        .map_or(0, |word| i32::from_ne_bytes(*word));
    let node = answer.get(16..).and_then(<[u8]>::first_chunk);
    (error, node.map_or(0, |word| u64::from_ne_bytes(*word)))
}

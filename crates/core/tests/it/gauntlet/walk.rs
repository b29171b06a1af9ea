//! Everything a reader can do with an image, a bounded amount of each.

use extant_blockdev::MemoryDevice;
use extant_core::fs::{Fs, MountOptions};
use extant_core::inode::Inode;
use extant_core::{data, ops};
use extant_format::Ino;
use std::sync::Arc;

const CACHE_BYTES: usize = 8 << 20;
/// Inodes looked at; a specimen has a few dozen.
const MAX_INODES: usize = 3000;
const MAX_PIECES: usize = 5000;
const READ_BYTES: usize = 16 << 10;

/// Opens the image and does everything with it. Returns whether it opened; errors are answers.
pub(crate) fn walk(image: &[u8]) -> bool {
    let device = Arc::new(MemoryDevice::from_image(image));
    let options = MountOptions::read_only().memory(CACHE_BYTES);
    let Ok(fs) = Fs::open(device, options) else {
        return false;
    };
    let _ = fs.statfs();
    for (ino, inode) in fs.inodes().take(MAX_INODES) {
        if inode.is_ok() {
            visit(&fs, ino);
        }
    }
    true
}

fn visit(fs: &Fs, ino: Ino) {
    let Ok(inode) = fs.inode(ino) else { return };
    let _ = ops::stat(fs, &inode);
    let _ = ops::readlink(fs, &inode);
    read_samples(fs, &inode);
    for offset in offsets(&inode) {
        let _ = data::seek_data(fs, &inode, offset);
        let _ = data::seek_hole(fs, &inode, offset);
    }
    let _ = data::extents(fs, &inode).take(MAX_PIECES).count();
}

fn read_samples(fs: &Fs, inode: &Inode) {
    let mut buf = vec![0; READ_BYTES];
    for offset in offsets(inode) {
        let _ = ops::read(fs, inode, offset, &mut buf);
        let _ = data::read_content(fs, inode, offset, &mut buf);
    }
}

/// Interesting places in a file: its ends, the levels of an indirect map, the far end of numbers.
fn offsets(inode: &Inode) -> [u64; 8] {
    let size = inode.size();
    [
        0,
        1,
        12 << 10,
        1 << 20,
        70 << 20,
        size / 2,
        size.saturating_sub(1),
        u64::MAX - 1,
    ]
}

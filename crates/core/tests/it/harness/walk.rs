//! Everything a reader can do with an image, a bounded amount of each.

use extant_blockdev::MemoryDevice;
use extant_core::dir::{Cookie, lookup, readdir};
use extant_core::fs::{Fs, MountOptions};
use extant_core::inode::Inode;
use extant_core::xattr::{self, AclKind, acl};
use extant_core::{data, ops};
use extant_format::Ino;
use std::collections::{HashSet, VecDeque};
use std::ops::ControlFlow;
use std::sync::Arc;

const CACHE_BYTES: usize = 8 << 20;
/// Inodes looked at; a specimen has a few dozen.
const MAX_INODES: usize = 3000;
/// Entries listed of one directory; the largest of a specimen has 1400.
const MAX_ENTRIES: usize = 4000;
/// Names of one directory that are looked up again.
const MAX_LOOKUPS: usize = 60;
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
    // What the tables say is in use, then what names lead to.
    let mut seen: HashSet<Ino> = HashSet::new();
    let mut ahead = VecDeque::from([Ino::ROOT]);
    for (ino, inode) in fs.inodes().take(MAX_INODES) {
        if inode.is_ok() {
            ahead.push_back(ino);
        }
    }
    while let Some(ino) = ahead.pop_front() {
        if seen.len() < 2 * MAX_INODES && seen.insert(ino) {
            ahead.extend(visit(&fs, ino));
        }
    }
    true
}

/// Does everything with one inode; returns what it names.
fn visit(fs: &Fs, ino: Ino) -> Vec<Ino> {
    let Ok(inode) = fs.inode(ino) else {
        return Vec::new();
    };
    let _ = ops::stat(fs, &inode);
    let _ = ops::readlink(fs, &inode);
    read_samples(fs, &inode);
    for offset in offsets(&inode) {
        let _ = data::seek_data(fs, &inode, offset);
        let _ = data::seek_hole(fs, &inode, offset);
    }
    let _ = data::extents(fs, &inode).take(MAX_PIECES).count();
    attributes(fs, &inode);
    list(fs, &inode)
}

fn attributes(fs: &Fs, inode: &Inode) {
    for name in xattr::list(fs, inode).unwrap_or_default() {
        let _ = xattr::get(fs, inode, &name);
    }
    let _ = xattr::get(fs, inode, b"user.missing");
    let _ = xattr::for_each(fs, inode, |_, _| ControlFlow::<()>::Continue(()));
    let _ = acl(fs, inode, AclKind::Access);
    let _ = acl(fs, inode, AclKind::Default);
}

fn list(fs: &Fs, dir: &Inode) -> Vec<Ino> {
    let mut inodes = Vec::new();
    let mut names: Vec<Vec<u8>> = Vec::new();
    let _ = readdir(fs, dir, Cookie::START, |entry| {
        assert!((1..=255).contains(&entry.name.len()));
        // The first names, and then one here and there.
        if names.len() < MAX_LOOKUPS / 2 || (inodes.len() % 50 == 0 && names.len() < MAX_LOOKUPS) {
            names.push(entry.name.to_vec());
        }
        inodes.push(entry.ino);
        if inodes.len() < MAX_ENTRIES {
            ControlFlow::Continue(())
        } else {
            ControlFlow::Break(())
        }
    });
    for name in &names {
        let _ = lookup(fs, dir, name);
    }
    let long = [b'n'; 255];
    for name in [
        &b"missing"[..],
        b".",
        b"..",
        b"a/b",
        b"\0",
        b"",
        &long,
        b"SMALL",
    ] {
        let _ = lookup(fs, dir, name);
    }
    // From the middle, from between two entries, and from far beyond the end.
    for raw in [
        1,
        13,
        dir.size() / 2,
        dir.size() / 2 + 1,
        u64::MAX >> 1,
        u64::MAX,
    ] {
        let mut left = 20;
        let _ = readdir(fs, dir, Cookie::from_raw(raw), |_| {
            left -= 1;
            if left > 0 {
                ControlFlow::Continue(())
            } else {
                ControlFlow::Break(())
            }
        });
    }
    inodes
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

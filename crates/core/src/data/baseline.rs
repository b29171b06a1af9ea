//! Which of the mechanisms of this room work as they did before they were improved, to compare
//! with.

use crate::Result;
use crate::clock::now;
use crate::data::FileCache;
use crate::data::io::WriteOptions;
use crate::data::times::stamp;
use crate::fs::Fs;
use crate::inode::LiveInode;
use std::sync::Arc;

/// Which mechanisms work as they did before they were improved.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Baseline {
    /// A write over data past memory holds the file's lock alone, and stores the time of the change
    /// in a transaction each time.
    pub transaction_per_overwrite: bool,
}

impl Baseline {
    /// Returns all of them.
    #[must_use]
    pub fn all() -> Self {
        Self {
            transaction_per_overwrite: true,
        }
    }
}

/// Notes that bytes have been written over in place, in a transaction.
pub(super) fn note_in_transaction(
    fs: &Fs,
    live: &Arc<LiveInode>,
    options: WriteOptions<'_>,
) -> Result<()> {
    let handle = fs.start(1)?;
    live.update(&handle, |inode| {
        stamp(inode.disk_mut(), now(), options);
    })
}

impl FileCache {
    /// Tells whether each overwrite takes a transaction.
    pub(super) fn transaction_per_overwrite(&self) -> bool {
        self.caches.baseline().transaction_per_overwrite
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fs::MountOptions;
    use crate::inode::FileType;
    use crate::lifecycle::NewInode;
    use crate::ops;
    use extant_blockdev::OpenSpec;
    use extant_format::Ino;
    use extant_testkit::oracle::{assert_clean, mke2fs};

    const BLOCK: usize = 4096;
    const WRITES: u64 = 100;

    /// Handles that overwrites past memory take.
    fn handles_of_overwrites(baseline: Baseline) -> u64 {
        let dir = tempfile::TempDir::new().unwrap();
        let path = dir.path().join("image");
        mke2fs(&path, 16 << 20, &["-t", "ext4", "-b", "4096"]);
        let mut options = MountOptions::read_write().background(false);
        options.baseline.data = baseline;
        let fs = Fs::open(OpenSpec::read_write(&path).open().unwrap(), options).unwrap();
        let root = fs.hold(Ino::ROOT).unwrap();
        let new = NewInode::new(FileType::Regular, 0o644, now());
        let file = ops::create(&fs, &root, b"file", &new).unwrap();
        ops::pwrite_direct(&fs, &file, 0, &[1; 8 * BLOCK]).unwrap();
        ops::fsync(&fs, &file).unwrap();
        let write = |i: u64| {
            let offset = i % 8 * BLOCK as u64;
            ops::pwrite_direct(&fs, &file, offset, &[i as u8; BLOCK]).unwrap();
        };
        // Memory has nothing of the file by then.
        (0..8).for_each(write);
        let before = fs.journal_stats().handles;
        (0..WRITES).for_each(write);
        let handles = fs.journal_stats().handles - before;
        let mut bytes = [0; BLOCK];
        ops::pread_direct(&fs, &file, 0, &mut bytes).unwrap();
        assert_eq!(bytes, [96; BLOCK]);
        drop((file, root));
        fs.close().unwrap();
        drop(fs);
        assert_clean(&path);
        handles
    }

    #[test]
    fn an_overwrite_takes_a_transaction_in_the_unimproved_form_and_none_in_the_other() {
        assert_eq!(handles_of_overwrites(Baseline::default()), 0);
        assert_eq!(handles_of_overwrites(Baseline::all()), WRITES);
    }
}

//! What there is no room for in an image, and the way out.

use extant::{Error, Filesystem};
use std::io::ErrorKind;

/// What a change that found no room was about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NoRoom {
    /// Inodes: as many as files there can be.
    Inodes,
    /// Blocks.
    Blocks,
    /// Names in a directory, or subdirectories.
    Directory,
}

impl NoRoom {
    /// What an error says there is too little of, if it is about room: an error of making a file,
    /// or of filling it.
    pub(crate) fn of(fs: &Filesystem, e: &Error, making: bool) -> Option<Self> {
        if e.errno() == extant::errno::EMLINK {
            return Some(Self::Directory);
        }
        if e.kind() != ErrorKind::StorageFull {
            return None;
        }
        let space = fs.statfs().ok()?;
        Some(if making && space.free_inodes == 0 {
            Self::Inodes
        } else if making && space.available > SPARE_BLOCKS {
            // Its index is as deep as the format lets it be.
            Self::Directory
        } else {
            Self::Blocks
        })
    }

    /// The way out, to be put behind the error's own text.
    pub(crate) fn advice(self, fs: &Filesystem) -> String {
        let Ok(space) = fs.statfs() else {
            return String::new();
        };
        let kib = |blocks: u64| blocks.saturating_mul(space.block_size.bytes().into()) >> 10;
        match self {
            Self::Inodes => format!(
                ": all {} inodes are in use, one for each file. Make the image with more (`extant mkfs --inodes N`), or \
                 larger with `extant resize`, which adds some",
                space.inodes
            ),
            Self::Blocks => {
                let held = space.free.saturating_sub(space.available);
                let held = match held {
                    0 => String::new(),
                    held => format!(
                        ", {} KiB of it held back for root and for the file system itself",
                        kib(held)
                    ),
                };
                format!(
                    ": {} KiB are free{held}. Remove something, or make the image larger with `extant resize`",
                    kib(space.free)
                )
            }
            Self::Directory => {
                ": the directory takes no more. Spread the files over several, or use the features \
                                dir_nlink and large_dir"
                    .to_owned()
            }
        }
    }
}

/// More blocks than a name in a directory ever needs.
const SPARE_BLOCKS: u64 = 64;

/// Why an extended attribute does not fit, and the way out.
pub(crate) fn no_room_for_attribute(fs: &Filesystem, bytes: usize) -> String {
    let block = fs.statfs().map_or(0, |space| space.block_size.bytes());
    format!(
        "its {bytes} bytes do not fit beside the others: all attributes of a file share its inode and one block of {block} \
         bytes. With the feature ea_inode large values get room of their own (`extant mkfs --features ea_inode`, or `extant \
         tune --features ea_inode`)"
    )
}

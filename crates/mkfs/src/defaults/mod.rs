//! Sizes, features and ratios when nothing is asked for: what `mke2fs -t ext4` makes.
//!
//! | item | owns |
//! |---|---|
//! | [`FormatOptions`] | what was asked for |
//! | [`Profile`] | which features are on for which readers, and which may not be asked for |
//! | [`SizeClass`] | block size and inode density by size |
//! | [`is_marked`] | file systems of this builder's making |
//! | [`default_journal_blocks`] | journal size by size |

mod identity;
mod options;
mod profile;

pub use identity::is_marked;
pub(crate) use options::FeatureChange;
pub use options::{
    FeatureRequest, FeatureRequestError, FormatOptions, InodeDensity, JournalSize, TableInit,
};
pub use profile::Profile;

use extant_format::BlockSize;

const MIB: u64 = 1 << 20;
const TIB: u64 = 1 << 40;

/// Sizes that `mke2fs` treats alike.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SizeClass {
    /// Below 3 MiB.
    Floppy,
    /// Below 512 MiB.
    Small,
    /// Below 4 TiB.
    Default,
    /// Below 16 TiB.
    Big,
    /// 16 TiB and above.
    Huge,
}

impl SizeClass {
    /// Returns the class of a file system of `bytes` bytes.
    #[must_use]
    pub const fn of(bytes: u64) -> Self {
        if bytes < 3 * MIB {
            Self::Floppy
        } else if bytes < 512 * MIB {
            Self::Small
        } else if bytes < 4 * TIB {
            Self::Default
        } else if bytes < 16 * TIB {
            Self::Big
        } else {
            Self::Huge
        }
    }

    /// Returns the block size.
    #[must_use]
    pub const fn block_size(self) -> BlockSize {
        match self {
            Self::Floppy | Self::Small => BlockSize::MIN,
            Self::Default | Self::Big | Self::Huge => BlockSize::K4,
        }
    }

    /// Returns the bytes of the file system for each inode.
    #[must_use]
    pub const fn inode_ratio(self) -> u32 {
        match self {
            Self::Floppy => 8192,
            Self::Small => 4096,
            Self::Default => 16_384,
            Self::Big => 32_768,
            Self::Huge => 65_536,
        }
    }
}

/// Returns the blocks of the journal of a file system of `blocks` blocks; `None` if it is too small
/// for one.
#[must_use]
pub const fn default_journal_blocks(blocks: u64) -> Option<u32> {
    const K: u64 = 1024;
    Some(if blocks < 2 * K {
        return None;
    } else if blocks < 32 * K {
        1024
    } else if blocks < 256 * K {
        4096
    } else if blocks < 512 * K {
        8192
    } else if blocks < 4096 * K {
        16_384
    } else if blocks < 8192 * K {
        32_768
    } else if blocks < 16_384 * K {
        65_536
    } else if blocks < 32_768 * K {
        131_072
    } else {
        262_144
    })
}

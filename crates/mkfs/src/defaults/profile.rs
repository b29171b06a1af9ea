//! Feature sets by reader.

use extant_format::features::{Compat, Features, Incompat, RoCompat};
use std::fmt;
use std::str::FromStr;

/// The systems that must be able to use the file system.
///
/// A profile turns features on, and refuses the ones its readers do not know even when they are
/// asked for by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Profile {
    /// What `mke2fs -t ext4` 1.47.0 makes on Debian. Every e2fsck since 1.43 (2016) and every
    /// kernel since 3.18 handles it. No `orphan_file`, no `metadata_csum_seed`: an e2fsck before
    /// 1.47 refuses both.
    #[default]
    Default,
    /// `Default` plus `orphan_file` (Linux 5.15: orphans without a global lock) and
    /// `metadata_csum_seed` (the UUID can change without rewriting all metadata).
    Latest,
    /// For Linux 3.10 with the e2fsprogs 1.42 of its time: `uninit_bg` in place of `metadata_csum`
    /// (that e2fsck cannot check it) and no `64bit`, so at most 2^32 - 1 blocks. Features that
    /// came later are refused.
    Linux310,
    /// For boot partitions read by GRUB 2: `Default` without what its ext2 driver refuses or cannot
    /// follow: `metadata_csum_seed`, `orphan_file`, `inline_data`, `large_dir`, `ea_inode`,
    /// `encrypt`, `casefold`, `verity`, `bigalloc`.
    Grub,
    /// What Android's own builder chooses: no `flex_bg`, no `resize_inode` (partitions do not
    /// grow), no `64bit`, `uninit_bg` in place of `metadata_csum`, 4 KiB blocks at any size, 1%
    /// reserved. Ask for no journal where the partition is read-only.
    Android,
}

impl Profile {
    /// All profiles, in the order of their documentation.
    pub const ALL: [Self; 5] = [
        Self::Default,
        Self::Latest,
        Self::Linux310,
        Self::Grub,
        Self::Android,
    ];

    /// Returns the name on the command line.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Default => "default",
            Self::Latest => "latest",
            Self::Linux310 => "linux-3.10",
            Self::Grub => "grub",
            Self::Android => "android",
        }
    }

    /// Returns the features that are on when nothing else is said.
    #[must_use]
    pub fn features(self) -> Features {
        let compat = Compat::EXT_ATTR | Compat::DIR_INDEX | Compat::HAS_JOURNAL;
        let incompat = Incompat::FILETYPE | Incompat::EXTENTS;
        let ro_compat = RoCompat::SPARSE_SUPER
            | RoCompat::LARGE_FILE
            | RoCompat::HUGE_FILE
            | RoCompat::DIR_NLINK
            | RoCompat::EXTRA_ISIZE;
        let mut features = Features {
            compat,
            incompat,
            ro_compat,
        };
        match self {
            Self::Default | Self::Latest | Self::Grub => {
                features.compat |= Compat::RESIZE_INODE;
                features.incompat |= Incompat::BIT64 | Incompat::FLEX_BG;
                features.ro_compat |= RoCompat::METADATA_CSUM;
            }
            Self::Linux310 => {
                features.compat |= Compat::RESIZE_INODE;
                features.incompat |= Incompat::FLEX_BG;
                features.ro_compat |= RoCompat::GDT_CSUM;
            }
            Self::Android => features.ro_compat |= RoCompat::GDT_CSUM,
        }
        if self == Self::Latest {
            features.compat |= Compat::ORPHAN_FILE;
            features.incompat |= Incompat::CSUM_SEED;
        }
        features
    }

    /// Returns the features its readers do not know.
    #[must_use]
    pub fn refused(self) -> Features {
        let newer = Features {
            compat: Compat::ORPHAN_FILE,
            incompat: Incompat::CSUM_SEED
                | Incompat::LARGEDIR
                | Incompat::EA_INODE
                | Incompat::INLINE_DATA
                | Incompat::ENCRYPT
                | Incompat::CASEFOLD,
            ro_compat: RoCompat::VERITY,
        };
        match self {
            Self::Default | Self::Latest | Self::Android => Features::default(),
            Self::Grub => Features {
                ro_compat: newer.ro_compat | RoCompat::BIGALLOC,
                incompat: newer.incompat | Incompat::MMP,
                ..newer
            },
            Self::Linux310 => Features {
                compat: newer.compat
                    | Compat::FAST_COMMIT
                    | Compat::STABLE_INODES
                    | Compat::SPARSE_SUPER2,
                incompat: newer.incompat,
                ro_compat: newer.ro_compat | RoCompat::PROJECT | RoCompat::METADATA_CSUM,
            },
        }
    }

    /// Returns the percentage of the blocks reserved for privileged users.
    #[must_use]
    pub const fn reserved_percent(self) -> f64 {
        match self {
            Self::Android => 1.0,
            _ => 5.0,
        }
    }
}

impl fmt::Display for Profile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Profile {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        Self::ALL
            .into_iter()
            .find(|profile| profile.name() == name)
            .ok_or_else(|| {
                let known: Vec<_> = Self::ALL.iter().map(|p| p.name()).collect();
                format!(
                    "no profile is called {name}; there are {}",
                    known.join(", ")
                )
            })
    }
}

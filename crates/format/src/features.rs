//! Feature bits and their names.
//!
//! A superblock carries three words of feature bits: what a driver that does not know a bit may
//! still do decides which word it lives in. Bits nobody here knows are kept as they are, so a
//! superblock survives being read and written. The names are those that `mke2fs -O` and
//! `dumpe2fs` use; a bit without one is printed as `FEATURE_C14`, `FEATURE_I27` or
//! `FEATURE_R20` (word and bit number).
//!
//! Source: "Super Block" in the kernel's ext4 documentation.

use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use bitflags::bitflags;

bitflags! {
    /// Features that a driver which does not know them may ignore.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
    pub struct Compat: u32 {
        /// Directory preallocation (never used by ext4).
        const DIR_PREALLOC = 0x1;
        /// AFS inodes (never used by ext4).
        const IMAGIC_INODES = 0x2;
        /// There is a journal, internal or external.
        const HAS_JOURNAL = 0x4;
        /// Extended attributes may be present.
        const EXT_ATTR = 0x8;
        /// Blocks are reserved behind the descriptors so that the file system can grow.
        const RESIZE_INODE = 0x10;
        /// Directories may have a hashed index.
        const DIR_INDEX = 0x20;
        /// Lazily initialised groups (never released).
        const LAZY_BG = 0x40;
        /// Snapshot exclude bitmap (never merged).
        const EXCLUDE_BITMAP = 0x100;
        /// At most two backup superblocks, in the groups the superblock names.
        const SPARSE_SUPER2 = 0x200;
        /// The journal has a fast-commit area.
        const FAST_COMMIT = 0x400;
        /// Inode numbers and the UUID never change (needed by some encryption modes).
        const STABLE_INODES = 0x800;
        /// There is an orphan file.
        const ORPHAN_FILE = 0x1000;
        const _ = !0;
    }
}

bitflags! {
    /// Features that a driver which does not know them must not mount at all.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
    pub struct Incompat: u32 {
        /// Compressed files (never merged).
        const COMPRESSION = 0x1;
        /// Directory entries carry the file type.
        const FILETYPE = 0x2;
        /// The journal must be replayed before use.
        const RECOVER = 0x4;
        /// This device is an external journal, not a file system.
        const JOURNAL_DEV = 0x8;
        /// Descriptors live in their own block groups instead of behind the superblock.
        const META_BG = 0x10;
        /// Files may be mapped by extents.
        const EXTENTS = 0x40;
        /// Block numbers have more than 32 bits.
        const BIT64 = 0x80;
        /// Multiple-mount protection.
        const MMP = 0x100;
        /// Bitmaps and inode tables may lie in another group than their own.
        const FLEX_BG = 0x200;
        /// Large extended attribute values live in inodes of their own.
        const EA_INODE = 0x400;
        /// Data in directory entries (never merged).
        const DIRDATA = 0x1000;
        /// The checksum seed is stored instead of derived from the UUID.
        const CSUM_SEED = 0x2000;
        /// Directories may exceed 2 GiB and have three index levels.
        const LARGEDIR = 0x4000;
        /// Small files and directories may live in their inode.
        const INLINE_DATA = 0x8000;
        /// Files may be encrypted.
        const ENCRYPT = 0x1_0000;
        /// Directories may ignore case.
        const CASEFOLD = 0x2_0000;
        const _ = !0;
    }
}

bitflags! {
    /// Features that a driver which does not know them may only mount for reading.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
    pub struct RoCompat: u32 {
        /// Backup superblocks only in groups 0, 1 and powers of 3, 5 and 7.
        const SPARSE_SUPER = 0x1;
        /// Files may exceed 2 GiB.
        const LARGE_FILE = 0x2;
        /// B-tree directories (never used).
        const BTREE_DIR = 0x4;
        /// Block counts of inodes may be in file-system blocks and have 48 bits.
        const HUGE_FILE = 0x8;
        /// Group descriptors have a CRC16, groups may be uninitialised.
        const GDT_CSUM = 0x10;
        /// Directories may have more than 65,000 subdirectories.
        const DIR_NLINK = 0x20;
        /// Inodes are larger than 128 bytes and use it.
        const EXTRA_ISIZE = 0x40;
        /// There is a snapshot (never merged).
        const HAS_SNAPSHOT = 0x80;
        /// Quota is kept in hidden inodes.
        const QUOTA = 0x100;
        /// Space is allocated in clusters of several blocks.
        const BIGALLOC = 0x200;
        /// All metadata has CRC32C checksums.
        const METADATA_CSUM = 0x400;
        /// Replicas (never merged).
        const REPLICA = 0x800;
        /// The file system must not be written.
        const READONLY = 0x1000;
        /// Project quota.
        const PROJECT = 0x2000;
        /// Blocks may be shared between files, so none may be written.
        const SHARED_BLOCKS = 0x4000;
        /// Files may be protected by fs-verity.
        const VERITY = 0x8000;
        /// The orphan file may be non-empty.
        const ORPHAN_PRESENT = 0x1_0000;
        const _ = !0;
    }
}

/// Bit, canonical name.
type Name = (u32, &'static str);

const COMPAT_NAMES: &[Name] = &[
    (0x1, "dir_prealloc"),
    (0x2, "imagic_inodes"),
    (0x4, "has_journal"),
    (0x8, "ext_attr"),
    (0x10, "resize_inode"),
    (0x20, "dir_index"),
    (0x40, "lazy_bg"),
    (0x100, "snapshot_bitmap"),
    (0x200, "sparse_super2"),
    (0x400, "fast_commit"),
    (0x800, "stable_inodes"),
    (0x1000, "orphan_file"),
];

const INCOMPAT_NAMES: &[Name] = &[
    (0x1, "compression"),
    (0x2, "filetype"),
    (0x4, "needs_recovery"),
    (0x8, "journal_dev"),
    (0x10, "meta_bg"),
    (0x40, "extent"),
    (0x80, "64bit"),
    (0x100, "mmp"),
    (0x200, "flex_bg"),
    (0x400, "ea_inode"),
    (0x1000, "dirdata"),
    (0x2000, "metadata_csum_seed"),
    (0x4000, "large_dir"),
    (0x8000, "inline_data"),
    (0x1_0000, "encrypt"),
    (0x2_0000, "casefold"),
];

const RO_COMPAT_NAMES: &[Name] = &[
    (0x1, "sparse_super"),
    (0x2, "large_file"),
    (0x8, "huge_file"),
    (0x10, "uninit_bg"),
    (0x20, "dir_nlink"),
    (0x40, "extra_isize"),
    (0x80, "snapshot"),
    (0x100, "quota"),
    (0x200, "bigalloc"),
    (0x400, "metadata_csum"),
    (0x800, "replica"),
    (0x1000, "read-only"),
    (0x2000, "project"),
    (0x4000, "shared_blocks"),
    (0x8000, "verity"),
    (0x1_0000, "orphan_present"),
];

/// Other spellings that `mke2fs -O` accepts.
const ALIASES: &[(&str, &str)] = &[
    ("journal", "has_journal"),
    ("sparse_super_2", "sparse_super2"),
    ("extents", "extent"),
    ("uninit_groups", "uninit_bg"),
    ("encryption", "encrypt"),
    ("fname_encoding", "casefold"),
    ("snapshot_exclude", "snapshot_bitmap"),
];

/// The three feature words of a superblock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub struct Features {
    /// May be ignored when unknown.
    pub compat: Compat,
    /// Forbid any use when unknown.
    pub incompat: Incompat,
    /// Forbid writing when unknown.
    pub ro_compat: RoCompat,
}

/// One feature bit, in whichever word it lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Feature {
    /// A bit of the compat word.
    Compat(Compat),
    /// A bit of the incompat word.
    Incompat(Incompat),
    /// A bit of the ro_compat word.
    RoCompat(RoCompat),
}

impl Feature {
    /// Returns the feature of this name, as `mke2fs -O` understands it: a name, one of its other
    /// spellings, or `FEATURE_I27` for a bit without a name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        let name = ALIASES
            .iter()
            .find(|(alias, _)| alias.eq_ignore_ascii_case(name))
            .map_or(name, |(_, canonical)| canonical);
        let find = |table: &[Name]| {
            table
                .iter()
                .find(|(_, known)| known.eq_ignore_ascii_case(name))
                .map(|(bit, _)| *bit)
        };
        if let Some(bit) = find(COMPAT_NAMES) {
            return Some(Self::Compat(Compat::from_bits_retain(bit)));
        }
        if let Some(bit) = find(INCOMPAT_NAMES) {
            return Some(Self::Incompat(Incompat::from_bits_retain(bit)));
        }
        if let Some(bit) = find(RO_COMPAT_NAMES) {
            return Some(Self::RoCompat(RoCompat::from_bits_retain(bit)));
        }
        let (word, number) = name.strip_prefix("FEATURE_")?.split_at_checked(1)?;
        let bit = 1_u32.checked_shl(number.parse().ok()?)?;
        match word {
            "C" => Some(Self::Compat(Compat::from_bits_retain(bit))),
            "I" => Some(Self::Incompat(Incompat::from_bits_retain(bit))),
            "R" => Some(Self::RoCompat(RoCompat::from_bits_retain(bit))),
            _ => None,
        }
    }
}

impl Features {
    /// The features whose structures this crate describes, and those that have none of their own. A
    /// file system with any other cannot be judged, and with another one in `incompat` not be read.
    pub const DESCRIBED: Self = Self {
        compat: Compat::DIR_PREALLOC
            .union(Compat::IMAGIC_INODES)
            .union(Compat::HAS_JOURNAL)
            .union(Compat::EXT_ATTR)
            .union(Compat::RESIZE_INODE)
            .union(Compat::DIR_INDEX)
            .union(Compat::LAZY_BG)
            .union(Compat::EXCLUDE_BITMAP)
            .union(Compat::SPARSE_SUPER2)
            .union(Compat::FAST_COMMIT)
            .union(Compat::STABLE_INODES)
            .union(Compat::ORPHAN_FILE),
        incompat: Incompat::FILETYPE
            .union(Incompat::RECOVER)
            .union(Incompat::META_BG)
            .union(Incompat::EXTENTS)
            .union(Incompat::BIT64)
            .union(Incompat::MMP)
            .union(Incompat::FLEX_BG)
            .union(Incompat::EA_INODE)
            .union(Incompat::CSUM_SEED)
            .union(Incompat::LARGEDIR)
            .union(Incompat::INLINE_DATA)
            .union(Incompat::ENCRYPT)
            .union(Incompat::CASEFOLD),
        ro_compat: RoCompat::SPARSE_SUPER
            .union(RoCompat::LARGE_FILE)
            .union(RoCompat::HUGE_FILE)
            .union(RoCompat::GDT_CSUM)
            .union(RoCompat::DIR_NLINK)
            .union(RoCompat::EXTRA_ISIZE)
            .union(RoCompat::QUOTA)
            .union(RoCompat::BIGALLOC)
            .union(RoCompat::METADATA_CSUM)
            .union(RoCompat::READONLY)
            .union(RoCompat::PROJECT)
            .union(RoCompat::SHARED_BLOCKS)
            .union(RoCompat::VERITY)
            .union(RoCompat::ORPHAN_PRESENT),
    };

    /// Returns whether the feature is on.
    #[must_use]
    pub fn has(&self, feature: Feature) -> bool {
        match feature {
            Feature::Compat(f) => self.compat.contains(f),
            Feature::Incompat(f) => self.incompat.contains(f),
            Feature::RoCompat(f) => self.ro_compat.contains(f),
        }
    }

    /// Turns the feature on or off.
    pub fn set(&mut self, feature: Feature, on: bool) {
        match feature {
            Feature::Compat(f) => self.compat.set(f, on),
            Feature::Incompat(f) => self.incompat.set(f, on),
            Feature::RoCompat(f) => self.ro_compat.set(f, on),
        }
    }

    /// Returns the names of all features that are on, in the order `dumpe2fs` prints them.
    #[must_use]
    pub fn names(&self) -> Vec<String> {
        let mut all = self.compat.names_of_bits();
        all.extend(self.incompat.names_of_bits());
        all.extend(self.ro_compat.names_of_bits());
        all
    }
}

fn names(bits: u32, word: char, table: &[Name]) -> Vec<String> {
    (0..32)
        .map(|number| (number, 1_u32 << number))
        .filter(|(_, bit)| bits & bit != 0)
        .map(
            |(number, bit)| match table.iter().find(|(known, _)| *known == bit) {
                Some((_, name)) => (*name).to_string(),
                None => format!("FEATURE_{word}{number}"),
            },
        )
        .collect()
}

fn named_bits(table: &[Name]) -> u32 {
    table.iter().fold(0, |all, (bit, _)| all | bit)
}

macro_rules! word {
    ($word:ident, $letter:literal, $table:ident) => {
        impl $word {
            /// Returns the names of the bits that are set, ascending by bit.
            #[must_use]
            pub fn names_of_bits(self) -> Vec<String> {
                names(self.bits(), $letter, $table)
            }

            /// Returns the set bits that have no name here: features of the future.
            #[must_use]
            pub fn unnamed(self) -> Self {
                Self::from_bits_retain(self.bits() & !named_bits($table))
            }

            /// Returns the set bits outside `known`.
            #[must_use]
            pub fn beyond(self, known: Self) -> Self {
                Self::from_bits_retain(self.bits() & !known.bits())
            }
        }
    };
}

word!(Compat, 'C', COMPAT_NAMES);
word!(Incompat, 'I', INCOMPAT_NAMES);
word!(RoCompat, 'R', RO_COMPAT_NAMES);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_leads_back_to_its_bit() {
        let all = Features {
            compat: Compat::from_bits_retain(!0),
            incompat: Incompat::from_bits_retain(!0),
            ro_compat: RoCompat::from_bits_retain(!0),
        };
        let names = all.names();
        assert_eq!(names.len(), 96);
        let mut back = Features::default();
        for name in &names {
            let feature = Feature::from_name(name).unwrap();
            assert!(!back.has(feature), "{name} names two bits");
            back.set(feature, true);
        }
        assert_eq!(back, all);
    }

    #[test]
    fn bits_without_a_name_print_their_word_and_number() {
        let bits = Incompat::from_bits_retain(1 << 27 | 0x40);
        assert_eq!(bits.names_of_bits(), ["extent", "FEATURE_I27"]);
        assert_eq!(bits.unnamed().bits(), 1 << 27);
        assert_eq!(
            Feature::from_name("FEATURE_R31"),
            Some(Feature::RoCompat(RoCompat::from_bits_retain(1 << 31)))
        );
        assert_eq!(Feature::from_name("FEATURE_R32"), None);
        assert_eq!(Feature::from_name("FEATURE_"), None);
        assert_eq!(Feature::from_name("no_such_thing"), None);
        assert_eq!(
            Feature::from_name("extents"),
            Some(Feature::Incompat(Incompat::EXTENTS))
        );
    }
}

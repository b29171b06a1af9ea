//! Which features this engine reads and writes, and how it refuses the others: by name.

use crate::{Error, Result};
use extant_format::features::{Compat, Features, Incompat, RoCompat};

/// Compat features that mean something to the read engine. Others are ignored, as the word says.
pub const READABLE_COMPAT: Compat = Compat::HAS_JOURNAL
    .union(Compat::EXT_ATTR)
    .union(Compat::RESIZE_INODE)
    .union(Compat::DIR_INDEX)
    .union(Compat::SPARSE_SUPER2)
    .union(Compat::FAST_COMMIT)
    .union(Compat::STABLE_INODES)
    .union(Compat::ORPHAN_FILE);

/// Incompat features the read engine handles. A file system with any other is refused.
///
/// Encrypted names are listed as stored and encrypted content is refused file by file.
pub const READABLE_INCOMPAT: Incompat = Incompat::FILETYPE
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
    .union(Incompat::CASEFOLD);

/// Read-only compatible features this engine knows. Unknown ones do not hinder reading; they will
/// forbid writing.
pub const READABLE_RO_COMPAT: RoCompat = RoCompat::SPARSE_SUPER
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
    .union(RoCompat::ORPHAN_PRESENT);

/// Incompat features the write engine handles.
///
/// Encrypted files are refused one by one, and so are new names in encrypted directories; what else
/// there is has nothing to do with keys.
pub const WRITABLE_INCOMPAT: Incompat = Incompat::FILETYPE
    .union(Incompat::RECOVER)
    .union(Incompat::META_BG)
    .union(Incompat::EXTENTS)
    .union(Incompat::BIT64)
    .union(Incompat::MMP)
    .union(Incompat::FLEX_BG)
    .union(Incompat::CSUM_SEED)
    .union(Incompat::EA_INODE)
    .union(Incompat::LARGEDIR)
    .union(Incompat::INLINE_DATA)
    .union(Incompat::ENCRYPT)
    .union(Incompat::CASEFOLD);

/// Read-only compatible features the write engine handles. A file system with any other can be
/// opened for reading.
///
/// Files with the flag of `verity` are read, and never written to.
pub const WRITABLE_RO_COMPAT: RoCompat = RoCompat::SPARSE_SUPER
    .union(RoCompat::LARGE_FILE)
    .union(RoCompat::HUGE_FILE)
    .union(RoCompat::GDT_CSUM)
    .union(RoCompat::DIR_NLINK)
    .union(RoCompat::EXTRA_ISIZE)
    .union(RoCompat::QUOTA)
    .union(RoCompat::BIGALLOC)
    .union(RoCompat::METADATA_CSUM)
    .union(RoCompat::PROJECT)
    .union(RoCompat::VERITY)
    .union(RoCompat::ORPHAN_PRESENT);

/// Refuses to write a file system with features whose upkeep the engine does not know, naming
/// each.
pub(crate) fn check_writable(features: Features) -> Result<()> {
    let mut names = features.incompat.beyond(WRITABLE_INCOMPAT).names_of_bits();
    names.extend(
        features
            .ro_compat
            .beyond(WRITABLE_RO_COMPAT)
            .names_of_bits(),
    );
    if names.is_empty() {
        return Ok(());
    }
    Err(Error::Unsupported {
        features: format!(
            "{} (for writing; it can be opened for reading only)",
            names.join(", ")
        ),
    })
}

/// Refuses a file system that cannot be read, naming every feature that is in the way.
pub(crate) fn check_readable(features: Features) -> Result<()> {
    let beyond = features.incompat.beyond(READABLE_INCOMPAT);
    if beyond.is_empty() {
        Ok(())
    } else {
        Err(Error::Unsupported {
            features: beyond.names_of_bits().join(", "),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_written_can_still_be_read() {
        let mut features = Features {
            incompat: Incompat::EXTENTS | Incompat::ENCRYPT,
            ro_compat: RoCompat::READONLY | RoCompat::SHARED_BLOCKS | RoCompat::VERITY,
            ..Features::default()
        };
        check_readable(features).unwrap();
        let error = check_writable(features).unwrap_err();
        assert_eq!(
            error.to_string(),
            "the file system uses features that are not supported: read-only, shared_blocks (for \
             writing; it can be opened for reading only)"
        );
        features.ro_compat = RoCompat::METADATA_CSUM | RoCompat::VERITY;
        check_writable(features).unwrap();
        features.incompat |= Incompat::EA_INODE;
        check_writable(features).unwrap();
    }

    #[test]
    fn features_in_the_way_are_all_named() {
        let mut features = Features {
            incompat: Incompat::EXTENTS | Incompat::FLEX_BG,
            ..Features::default()
        };
        check_readable(features).unwrap();
        features.ro_compat = RoCompat::from_bits_retain(1 << 30);
        check_readable(features).unwrap();
        features.incompat |= Incompat::COMPRESSION | Incompat::from_bits_retain(1 << 27);
        let error = check_readable(features).unwrap_err();
        assert_eq!(
            error.to_string(),
            "the file system uses features that are not supported: compression, FEATURE_I27"
        );
    }
}

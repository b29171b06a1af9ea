//! The table.

use super::{Inline, LARGE, NumberClass, Reading, Report, Rule, Subject, target_len};
use crate::Expected;
use crate::features::{Compat, Incompat, RoCompat};
use crate::inode::{FileType, InodeFlags, MAP_BYTES};

const BOTH: InodeFlags = InodeFlags::INLINE_DATA.union(InodeFlags::EXTENTS);
const INLINE_INDEX: InodeFlags = InodeFlags::INLINE_DATA.union(InodeFlags::INDEX);
const PROTECTED: InodeFlags = InodeFlags::IMMUTABLE.union(InodeFlags::APPEND);

/// A rule about flags.
macro_rules! flags {
    ($name:literal, $reading:ident, $report:ident, $flags:expr, $wrong:literal, $expected:literal, $broken:expr) => {
        Rule {
            name: $name,
            reading: Reading::$reading,
            report: Report::$report,
            flags: $flags,
            field: "flags",
            wrong: $wrong,
            found: |s| s.inode.flags.bits().into(),
            expected: |_| Expected::Said($expected),
            is_broken: $broken,
        }
    };
}

/// A rule about another field.
macro_rules! field {
    ($name:literal, $reading:ident, $report:ident, $field:literal, $wrong:literal, $found:expr, $expected:expr, $broken:expr) => {
        Rule {
            name: $name,
            reading: Reading::$reading,
            report: Report::$report,
            flags: InodeFlags::empty(),
            field: $field,
            wrong: $wrong,
            found: $found,
            expected: $expected,
            is_broken: $broken,
        }
    };
}

/// All rules. Where several are broken, the first says why an inode is refused.
pub const RULES: &[Rule] = &[
    field!(
        "mode-type",
        Refused,
        Mode,
        "mode",
        "the mode names no file type",
        |s| s.inode.mode.bits().into(),
        |_| Expected::Said("a known file type"),
        |s| s.class.is_file() && s.kind().is_none()
    ),
    flags!(
        "inline-and-extents",
        Refused,
        Flags,
        BOTH,
        "says both inline data and extents",
        "inline data or an extent tree, not both",
        |s| s.class != NumberClass::Resize && s.has(BOTH)
    ),
    flags!(
        "inline-without-feature",
        Shown,
        Flags,
        InodeFlags::INLINE_DATA,
        "needs the feature inline_data",
        "the feature inline_data, as content is said to lie in the inode",
        |s| s.class.is_file()
            && s.has(InodeFlags::INLINE_DATA)
            && !s.incompat(Incompat::INLINE_DATA)
    ),
    flags!(
        "inline-without-content",
        Shown,
        Flags,
        InodeFlags::INLINE_DATA,
        "has no meaning for this type of file",
        "no inline data, as such a file has no content",
        |s| s.class.is_file() && s.has(InodeFlags::INLINE_DATA) && !s.has_content()
    ),
    flags!(
        "inline-without-attribute",
        Shown,
        InlineData,
        InodeFlags::empty(),
        "inline data without its attribute",
        "the attribute of inline data",
        |s| {
            s.class.is_file()
                && s.has(InodeFlags::INLINE_DATA)
                && !s.has(BOTH)
                && s.incompat(Incompat::INLINE_DATA)
                && s.inline == Inline::Missing
        }
    ),
    flags!(
        "extents-without-feature",
        Shown,
        Flags,
        InodeFlags::EXTENTS,
        "needs the feature extent",
        "the feature extent, as the map is said to be an extent tree",
        |s| {
            let own = matches!(s.class, NumberClass::Resize | NumberClass::BadBlocks);
            let judged = s.class.is_file() || own || s.inode.links > 0;
            judged && s.has(InodeFlags::EXTENTS) && !s.incompat(Incompat::EXTENTS)
        }
    ),
    flags!(
        "extents-without-content",
        Shown,
        Flags,
        InodeFlags::EXTENTS,
        "has no meaning for this type of file",
        "no extent tree, as such a file has no content",
        |s| s.class.is_file() && s.has(InodeFlags::EXTENTS) && !s.has_content()
    ),
    flags!(
        "extents-in-short-link",
        Shown,
        Flags,
        InodeFlags::EXTENTS,
        "has no meaning where the target lies in the map",
        "no extent tree, as the target lies in the map",
        |s| s.class.is_file() && s.has(InodeFlags::EXTENTS) && !s.has(BOTH) && s.is_fast_symlink()
    ),
    flags!(
        "resize-inode-form",
        Shown,
        Flags,
        BOTH,
        "has no meaning for the inode that keeps blocks for descriptors",
        "a map of indirect blocks",
        |s| s.class == NumberClass::Resize && s.inode.flags.intersects(BOTH)
    ),
    flags!(
        "index-without-directory",
        Shown,
        Flags,
        InodeFlags::INDEX,
        "needs a directory",
        "no index, as this is no directory",
        |s| {
            let judged = !matches!(s.class, NumberClass::BadBlocks | NumberClass::Idle);
            judged && s.has(InodeFlags::INDEX) && !s.is_dir() && !s.is_index_fatal()
        }
    ),
    flags!(
        "index-without-feature",
        Shown,
        Flags,
        InodeFlags::INDEX,
        "needs the feature dir_index",
        "the feature dir_index, as the directory is said to have an index",
        |s| {
            s.class.is_file()
                && s.has(InodeFlags::INDEX)
                && s.is_dir()
                && !s.compat(Compat::DIR_INDEX)
                && !s.is_index_fatal()
        }
    ),
    // Blocks of an index have no checksums where those of names have them.
    flags!(
        "index-without-feature-but-checksums",
        Refused,
        Flags,
        InodeFlags::INDEX,
        "needs the feature dir_index",
        "the feature dir_index, as there is said to be an index",
        |s| s.class.is_file() && s.is_index_fatal()
    ),
    flags!(
        "index-of-inline-directory",
        Withheld,
        Flags,
        INLINE_INDEX,
        "says that a directory inside its inode has an index",
        "no index, as the directory lies in its inode",
        |s| s.class.is_file() && s.has(INLINE_INDEX) && s.is_dir()
    ),
    flags!(
        "casefold-without-feature",
        Refused,
        Flags,
        InodeFlags::CASEFOLD,
        "needs the feature casefold",
        "the feature casefold",
        |s| s.class.is_file() && s.has(InodeFlags::CASEFOLD) && !s.incompat(Incompat::CASEFOLD)
    ),
    flags!(
        "casefold-without-directory",
        Shown,
        Flags,
        InodeFlags::CASEFOLD,
        "needs a directory",
        "a directory, as names are said to be compared without case",
        |s| s.has(InodeFlags::CASEFOLD) && !s.is_dir()
    ),
    flags!(
        "value-without-feature",
        Refused,
        Flags,
        InodeFlags::EA_INODE,
        "needs the feature ea_inode and a regular file",
        "no value of an attribute, without the feature ea_inode",
        |s| { s.class.is_file() && s.has(InodeFlags::EA_INODE) && !s.incompat(Incompat::EA_INODE) }
    ),
    flags!(
        "value-without-file",
        Refused,
        Flags,
        InodeFlags::EA_INODE,
        "needs a regular file that is not the file system's own",
        "a regular file, as it is said to hold the value of an attribute",
        |s| {
            s.class.is_file()
                && s.has(InodeFlags::EA_INODE)
                && s.incompat(Incompat::EA_INODE)
                && (s.class != NumberClass::User || s.kind() != Some(FileType::Regular))
        }
    ),
    flags!(
        "imagic-without-feature",
        Shown,
        Flags,
        InodeFlags::IMAGIC,
        "needs the feature imagic_inodes",
        "the feature imagic_inodes",
        |s| s.class.is_file() && s.has(InodeFlags::IMAGIC) && !s.compat(Compat::IMAGIC_INODES)
    ),
    flags!(
        "blocks-unit-without-feature",
        Shown,
        UnusedFlags,
        InodeFlags::HUGE_FILE,
        "says nothing without the feature huge_file",
        "the feature huge_file, as blocks are said to be counted in blocks",
        |s| s.class.is_file() && s.has(InodeFlags::HUGE_FILE) && !s.ro_compat(RoCompat::HUGE_FILE)
    ),
    flags!(
        "verity-without-feature",
        Shown,
        UnusedFlags,
        InodeFlags::VERITY,
        "is set without the feature verity",
        "the feature verity",
        |s| s.class.is_file() && s.has(InodeFlags::VERITY) && !s.ro_compat(RoCompat::VERITY)
    ),
    flags!(
        "encrypted-without-feature",
        Shown,
        UnusedFlags,
        InodeFlags::ENCRYPT,
        "is set without the feature encrypt",
        "the feature encrypt",
        |s| {
            s.class.is_file()
                && s.class != NumberClass::Journal
                && s.has(InodeFlags::ENCRYPT)
                && !s.incompat(Incompat::ENCRYPT)
        }
    ),
    flags!(
        "journal-encrypted",
        Refused,
        Flags,
        InodeFlags::ENCRYPT,
        "says that the journal is encrypted",
        "a journal that is not encrypted",
        |s| s.class == NumberClass::Journal && s.has(InodeFlags::ENCRYPT)
    ),
    flags!(
        "protected-link",
        Refused,
        Flags,
        PROTECTED,
        "is no flag that a symbolic link can have",
        "a symbolic link that is neither immutable nor append-only",
        |s| s.class.is_file() && s.is_symlink() && s.inode.flags.intersects(PROTECTED)
    ),
    flags!(
        "protected-special",
        Shown,
        UnusedFlags,
        PROTECTED,
        "says nothing about this type of file",
        "a device, pipe or socket that is neither immutable nor append-only",
        |s| {
            s.class.is_file()
                && s.kind().is_some()
                && !s.has_content()
                && s.inode.flags.intersects(PROTECTED)
        }
    ),
    field!(
        "size-beyond-map",
        Refused,
        Size,
        "size",
        "the size is beyond what the map can reach",
        |s| s.inode.size,
        |s| Expected::AtMost(s.rules.largest_size(s.inode)),
        |s| s.is_measured() && s.inode.size > s.rules.largest_size(s.inode)
    ),
    field!(
        "size-without-feature",
        Shown,
        LargeFile,
        "size",
        "files of 2 GiB or more need the feature large_file",
        |s| s.inode.size,
        |_| Expected::AtMost(LARGE - 1),
        |s| {
            let judged = s.is_measured() || s.class == NumberClass::Resize;
            judged
                && s.kind() == Some(FileType::Regular)
                && s.inode.size >= LARGE
                && !s.ro_compat(RoCompat::LARGE_FILE)
        }
    ),
    field!(
        "directory-cut-short",
        Withheld,
        Walk,
        "size",
        "the size of the directory is not one of whole blocks",
        |s| s.inode.size,
        |_| Expected::Said("whole blocks of a directory, at least one"),
        |s| {
            // Of a directory that is being deleted nothing is read.
            s.class.is_file()
                && s.is_dir()
                && s.inode.links != 0
                && !s.is_inline()
                && !s.rules.is_whole(s.inode.size)
        }
    ),
    field!(
        "short-link-length",
        Refused,
        Symlink,
        "size",
        "the size is not the length of the target",
        |s| s.inode.size,
        |s| Expected::Exactly(target_len(s.inode)),
        |s| {
            let (len, size) = (target_len(s.inode), s.inode.size);
            s.class.is_file()
                && s.is_fast_symlink()
                && !s.has(InodeFlags::ENCRYPT)
                && (size == 0 || size >= MAP_BYTES as u64 || len != size)
        }
    ),
    field!(
        "inline-link-length",
        Shown,
        Symlink,
        "size",
        "the size is not the length of the target",
        |s| s.inode.size,
        |s| match s.inline {
            Inline::Stored(room) => Expected::Exactly(room),
            _ => Expected::Said("the length of the target"),
        },
        |s| {
            let stored = matches!(s.inline, Inline::Stored(room) if room != s.inode.size);
            s.class.is_file() && s.is_symlink() && s.has(InodeFlags::INLINE_DATA) && stored
        }
    ),
    field!(
        "attribute-block-outside",
        Refused,
        AttributeBlock,
        "attribute block",
        "the attribute block lies outside the file system",
        |s| s.inode.file_acl.get(),
        |s| Expected::Between(s.rules.blocks.start, s.rules.blocks.end.saturating_sub(1)),
        |s| {
            let block = s.inode.file_acl.get();
            s.is_measured() && block != 0 && !s.rules.blocks.contains(&block)
        }
    ),
    field!(
        "attribute-block-without-feature",
        Shown,
        AttributeBlock,
        "attribute block",
        "an attribute block needs the feature ext_attr",
        |s| s.inode.file_acl.get(),
        |_| Expected::Said("the feature ext_attr, as there is an attribute block"),
        |s| s.is_measured() && s.inode.file_acl.get() != 0 && !s.compat(Compat::EXT_ATTR)
    ),
    flags!(
        "extents-unsaid",
        Refused,
        Flags,
        InodeFlags::empty(),
        "the map is an extent tree, but the flags do not say so",
        "the flag of an extent tree, as the map is one",
        |s| s.has_own_map() && s.rules.has_unsaid_extents(s.inode)
    ),
    field!(
        "map-root",
        Refused,
        Walk,
        "map",
        "the part of the map in the inode is broken",
        |s| match s.rules.map_error(s.inode) {
            Some(error) => error.found,
            None => 0,
        },
        |s| match (s.has(InodeFlags::EXTENTS), s.rules.map_error(s.inode)) {
            (true, _) => Expected::Said("an extent tree, as the flags say"),
            (false, Some(error)) => error.expected,
            (false, None) => Expected::Said("blocks of the file system"),
        },
        |s| {
            s.has_own_map()
                && !s.rules.has_unsaid_extents(s.inode)
                && s.rules.map_error(s.inode).is_some()
        }
    ),
];

impl Subject<'_> {
    fn has(&self, flags: InodeFlags) -> bool {
        self.inode.flags.contains(flags)
    }

    /// Whether a check asks what it holds, and how much: of a file, and of a reserved number
    /// without a use.
    fn is_measured(&self) -> bool {
        self.class.is_file() || self.class == NumberClass::Spare
    }

    fn kind(&self) -> Option<FileType> {
        self.inode.file_type()
    }

    fn is_dir(&self) -> bool {
        self.kind() == Some(FileType::Directory)
    }

    fn is_symlink(&self) -> bool {
        self.kind() == Some(FileType::Symlink)
    }

    /// Whether there is content, which a map or the inode has.
    fn has_content(&self) -> bool {
        let types = [FileType::Regular, FileType::Directory, FileType::Symlink];
        self.kind().is_some_and(|kind| types.contains(&kind))
    }

    /// Whether the content lies in the inode, as far as is known.
    fn is_inline(&self) -> bool {
        self.has(InodeFlags::INLINE_DATA) && self.inline != Inline::Missing
    }

    fn is_fast_symlink(&self) -> bool {
        if !self.is_symlink() {
            return false;
        }
        let mut inode = self.inode.clone();
        self.rules.as_read(&mut inode, self.inline);
        self.rules.is_fast_symlink(&inode)
    }

    /// Whether the map is known to lead to blocks.
    fn has_own_map(&self) -> bool {
        self.class.is_file()
            && self.inline != Inline::Unknown
            && !self.is_inline()
            && self.has_content()
            && !self.is_fast_symlink()
    }

    fn is_index_fatal(&self) -> bool {
        self.has(InodeFlags::INDEX)
            && !self.compat(Compat::DIR_INDEX)
            && self.ro_compat(RoCompat::METADATA_CSUM)
    }

    fn compat(&self, feature: Compat) -> bool {
        self.rules.features.compat.contains(feature)
    }

    fn incompat(&self, feature: Incompat) -> bool {
        self.rules.features.incompat.contains(feature)
    }

    fn ro_compat(&self, feature: RoCompat) -> bool {
        self.rules.features.ro_compat.contains(feature)
    }
}

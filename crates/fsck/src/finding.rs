//! What a check found: a stable code with its severity, the place, and the evidence.

use extant_format::{FormatError, Group, Ino, Lblk, Pblk};
use std::fmt;

/// How bad a finding is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Severity {
    /// Worth knowing; the file system is consistent all the same.
    Warning,
    /// The file system is not consistent.
    Error,
    /// The file system is not consistent, and parts of it could not be checked for that reason.
    Fatal,
}

impl Severity {
    /// The name as it is printed: `warning`, `error` or `fatal`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Warning => "warning",
            Self::Error => "error",
            Self::Fatal => "fatal",
        }
    }
}

impl fmt::Display for Severity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

macro_rules! codes {
    ($($(#[$doc:meta])* $variant:ident = $name:literal, $severity:ident;)*) => {
        /// What is wrong. The names are stable: programs may match on them.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[non_exhaustive]
        pub enum Code {
            $($(#[$doc])* $variant,)*
        }

        impl Code {
            /// All codes.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)*];

            /// The stable name, in kebab case.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $(Self::$variant => $name,)* }
            }

            /// How bad such a finding is.
            #[must_use]
            pub const fn severity(self) -> Severity {
                match self { $(Self::$variant => Severity::$severity,)* }
            }
        }
    };
}

codes! {
    /// The primary superblock is not one, and a backup was used in its place.
    SuperblockInvalid = "superblock-invalid", Fatal;
    /// The superblock's checksum is wrong.
    SuperblockChecksum = "superblock-checksum", Error;
    /// A field of the superblock contradicts another or the format.
    SuperblockField = "superblock-field", Error;
    /// A feature is meant for another one that is off. Linux mounts the file system all the same.
    FeatureAlone = "feature-alone", Warning;
    /// The superblock's count of free blocks is wrong: it is a sum of those of groups, and mounting
    /// refreshes it.
    SuperblockFreeBlocks = "superblock-free-blocks", Warning;
    /// The superblock's count of free inodes is wrong: it is a sum of those of groups, and mounting
    /// refreshes it.
    SuperblockFreeInodes = "superblock-free-inodes", Warning;
    /// A backup of the superblock is damaged or describes another file system.
    SuperblockBackup = "superblock-backup", Warning;
    /// The file system remembers errors, or was not closed.
    SuperblockState = "superblock-state", Warning;
    /// The device ends before the file system.
    DeviceTooShort = "device-too-short", Fatal;
    /// A group descriptor's checksum is wrong.
    GroupChecksum = "group-checksum", Error;
    /// A group's bitmap or inode table cannot lie where its descriptor says.
    GroupLocation = "group-location", Fatal;
    /// A group's count of free clusters is wrong.
    GroupFreeBlocks = "group-free-blocks", Error;
    /// A group's count of free inodes is wrong.
    GroupFreeInodes = "group-free-inodes", Error;
    /// A group's count of directories is wrong.
    GroupUsedDirs = "group-used-dirs", Error;
    /// An inode is in use in the part of the table that the descriptor says was never used.
    GroupUnusedInodes = "group-unused-inodes", Error;
    /// A group's descriptor says that more inodes are unused than there are: the number is not
    /// believed.
    GroupUnusedCount = "group-unused-count", Error;
    /// A group's flags contradict what is in the group.
    GroupFlags = "group-flags", Error;
    /// A group's descriptor says that something was never used, where that has no meaning:
    /// descriptors have no checksums.
    GroupFlagsUnused = "group-flags-unused", Warning;
    /// The block bitmap differs from the blocks in use.
    BlockBitmap = "block-bitmap", Error;
    /// The block bitmap's checksum is wrong.
    BlockBitmapChecksum = "block-bitmap-checksum", Error;
    /// The bits past the end of a block bitmap are not all set.
    BlockBitmapPadding = "block-bitmap-padding", Error;
    /// The inode bitmap differs from the inodes in use.
    InodeBitmap = "inode-bitmap", Error;
    /// The inode bitmap's checksum is wrong.
    InodeBitmapChecksum = "inode-bitmap-checksum", Error;
    /// The bits past the end of an inode bitmap are not all set.
    InodeBitmapPadding = "inode-bitmap-padding", Error;
    /// An inode's checksum is wrong.
    InodeChecksum = "inode-checksum", Error;
    /// An inode's mode names no file type, or not the one it must have.
    InodeMode = "inode-mode", Error;
    /// An inode's extra fields do not fit it.
    InodeExtraSize = "inode-extra-isize", Error;
    /// An inode's flags contradict its type or the file system's features.
    InodeFlags = "inode-flags", Error;
    /// Flags that have no meaning for the inode's type.
    InodeFlagsUnused = "inode-flags-unused", Warning;
    /// There are files of 2 GiB or more, and the feature `large_file` is off.
    LargeFileFeature = "large-file-feature", Error;
    /// A field that must be zero is not.
    InodeReserved = "inode-reserved", Error;
    /// An inode's size contradicts its map.
    InodeSize = "inode-size", Error;
    /// An inode's block count is wrong.
    InodeBlocks = "inode-blocks", Error;
    /// An inode in use has a time of deletion.
    InodeDeletionTime = "inode-deletion-time", Error;
    /// A deleted inode has no time of deletion and is no orphan.
    InodeDeletedUndated = "inode-deleted-undated", Error;
    /// A time has more nanoseconds than a second has.
    InodeTime = "inode-time", Warning;
    /// A symbolic link's target does not have the length its size says.
    Symlink = "symlink", Error;
    /// A device node, pipe or socket carries something it cannot have.
    SpecialFile = "special-file", Error;
    /// A device node, pipe or socket has bytes in its map that mean nothing.
    SpecialFileUnused = "special-file-unused", Warning;
    /// Too many problems in one inode's map to go on with it.
    MapAbandoned = "map-abandoned", Fatal;
    /// A node of an extent tree breaks the format.
    ExtentNode = "extent-node", Error;
    /// The checksum of a node of an extent tree is wrong.
    ExtentChecksum = "extent-checksum", Error;
    /// An index entry does not say where its child starts.
    ExtentIndexStart = "extent-index-start", Error;
    /// An extent does not keep its place inside its clusters.
    ExtentMisaligned = "extent-misaligned", Error;
    /// A pointer of an indirect map leads out of the file system or in a circle.
    IndirectPointer = "indirect-pointer", Error;
    /// Blocks are claimed by two files, or twice by one.
    BlockShared = "block-shared", Error;
    /// A file claims blocks of the file system's own structures.
    BlockOfMetadata = "block-of-metadata", Error;
    /// Structures of the file system's own overlap.
    MetadataOverlap = "metadata-overlap", Error;
    /// So many blocks are claimed more than once that the check of maps was given up.
    ClaimsAbandoned = "claims-abandoned", Fatal;
    /// Inline data does not fit or contradicts the inode.
    InlineData = "inline-data", Error;
    /// An inode of which nothing can be kept: its checksum is wrong, and its fields contradict each
    /// other.
    InodeGarbage = "inode-garbage", Error;
    /// A directory maps blocks beyond the last one that a directory can have.
    DirTooLarge = "dir-too-large", Error;
    /// A directory has a block that is not mapped.
    DirHole = "dir-hole", Error;
    /// Too many problems in one directory, or blocks that were read as another's: the rest was not
    /// looked at.
    DirAbandoned = "dir-abandoned", Fatal;
    /// A directory block's checksum is missing or wrong.
    DirChecksum = "dir-checksum", Error;
    /// A directory entry breaks the format.
    DirEntry = "dir-entry", Error;
    /// A directory entry names an inode that cannot be named.
    DirEntryInode = "dir-entry-inode", Error;
    /// A directory entry names an inode that is not in use.
    DirEntryUnused = "dir-entry-unused", Error;
    /// A directory entry has the wrong file type.
    DirEntryType = "dir-entry-type", Error;
    /// A directory entry does not say the file type, though types are recorded.
    DirEntryTypeMissing = "dir-entry-type-missing", Warning;
    /// A name in an encrypted directory is too short, or cannot be one.
    DirEntryName = "dir-entry-name", Error;
    /// An encrypted directory names an inode that is not encrypted, or by another policy.
    DirEntryPolicy = "dir-entry-policy", Error;
    /// A directory has the same name twice.
    DirDuplicateName = "dir-duplicate-name", Error;
    /// `.` is missing, misplaced or wrong.
    DirDot = "dir-dot", Error;
    /// `..` is missing, misplaced or wrong.
    DirDotDot = "dir-dotdot", Error;
    /// A directory index node breaks the format.
    DirIndex = "dir-index", Error;
    /// A directory index node's checksum is wrong.
    DirIndexChecksum = "dir-index-checksum", Error;
    /// Hashes in a directory's index are not in order, or not those of the names below.
    DirIndexHash = "dir-index-hash", Error;
    /// A block of an indexed directory is referred to twice or not at all.
    DirIndexReference = "dir-index-reference", Error;
    /// A directory has more than one name, or the root has one.
    DirHardLink = "dir-hard-link", Error;
    /// There is no root directory.
    RootMissing = "root-missing", Fatal;
    /// A directory has no name.
    DirUnattached = "dir-unattached", Error;
    /// Directories contain each other in a circle.
    DirLoop = "dir-loop", Error;
    /// An inode in use has no name.
    InodeUnattached = "inode-unattached", Error;
    /// An inode's link count is not its number of names.
    LinkCount = "link-count", Error;
    /// There is no lost+found for a repair to use.
    LostFound = "lost-found", Warning;
    /// Attributes inside an inode break the format.
    XattrInInode = "xattr-in-inode", Error;
    /// The attribute block is outside the file system, or not allowed.
    XattrLocation = "xattr-location", Error;
    /// A block of attributes breaks the format.
    XattrBlock = "xattr-block", Error;
    /// A block of attributes has a wrong checksum.
    XattrBlockChecksum = "xattr-block-checksum", Error;
    /// A block of attributes does not count its inodes right.
    XattrReferences = "xattr-references", Error;
    /// An attribute's hash is wrong.
    XattrHash = "xattr-hash", Error;
    /// Values of attributes overlap.
    XattrOverlap = "xattr-overlap", Error;
    /// An attribute's value lies in an inode that is none of that kind.
    XattrValueInode = "xattr-value-inode", Error;
    /// An inode that holds a value does not count its references right.
    EaInodeReferences = "ea-inode-references", Error;
    /// The journal's inode is unsound.
    JournalInode = "journal-inode", Error;
    /// The journal's superblock is unsound.
    JournalSuperblock = "journal-superblock", Error;
    /// A committed transaction in the journal is damaged.
    JournalLog = "journal-log", Fatal;
    /// The journal holds transactions although the superblock says that it is clean.
    JournalNotEmpty = "journal-not-empty", Error;
    /// The journal was aborted with an error: whatever mounts it next notes that in the superblock,
    /// and asks for a check.
    JournalAborted = "journal-aborted", Error;
    /// The journal is not on this device and was not looked at.
    JournalExternal = "journal-external", Warning;
    /// What was judged is the state after the journal is replayed.
    JournalReplayed = "journal-replayed", Warning;
    /// The list of orphans is damaged.
    OrphanList = "orphan-list", Error;
    /// The orphan file is damaged.
    OrphanFile = "orphan-file", Error;
    /// Files wait to be deleted or cut at the next mount.
    OrphansPending = "orphans-pending", Warning;
    /// The inode that keeps room for descriptors is unsound.
    ResizeInode = "resize-inode", Error;
    /// A quota file breaks the format.
    QuotaFile = "quota-file", Error;
    /// A quota file does not say what is in use.
    QuotaUsage = "quota-usage", Error;
    /// Content is not what fs-verity protects; only where that is compared.
    VerityContent = "verity-content", Error;
    /// What fs-verity keeps to compare content with is damaged; only where that is compared.
    VerityDescriptor = "verity-descriptor", Error;
    /// The multiple-mount protection block is unsound.
    Mmp = "mmp", Error;
    /// The multiple-mount protection block says that the file system is in use.
    MmpInUse = "mmp-in-use", Warning;
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Where something was found; what does not apply is `None`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Place {
    /// The block group.
    pub group: Option<Group>,
    /// The inode: of a directory entry, that of the directory.
    pub ino: Option<Ino>,
    /// The block inside the inode.
    pub lblk: Option<Lblk>,
    /// The block of the file system.
    pub block: Option<Pblk>,
}

impl Place {
    /// The file system as a whole.
    pub const FILE_SYSTEM: Self = Self {
        group: None,
        ino: None,
        lblk: None,
        block: None,
    };

    /// A group.
    #[must_use]
    pub const fn group(group: Group) -> Self {
        Self {
            group: Some(group),
            ..Self::FILE_SYSTEM
        }
    }

    /// An inode.
    #[must_use]
    pub const fn ino(ino: Ino) -> Self {
        Self {
            ino: Some(ino),
            ..Self::FILE_SYSTEM
        }
    }

    /// A block of the file system.
    #[must_use]
    pub const fn block(block: Pblk) -> Self {
        Self {
            block: Some(block),
            ..Self::FILE_SYSTEM
        }
    }

    /// Adds a block of the file system to the place.
    #[must_use]
    pub const fn at_block(mut self, block: Pblk) -> Self {
        self.block = Some(block);
        self
    }

    /// Adds a block of the inode to the place.
    #[must_use]
    pub const fn at_lblk(mut self, lblk: Lblk) -> Self {
        self.lblk = Some(lblk);
        self
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut first = true;
        let mut part = |f: &mut fmt::Formatter<'_>, name: &str, n: u64| {
            let comma = if std::mem::take(&mut first) { "" } else { ", " };
            write!(f, "{comma}{name} {n}")
        };
        if let Some(group) = self.group {
            part(f, "group", group.get().into())?;
        }
        if let Some(ino) = self.ino {
            part(f, "inode", ino.get().into())?;
        }
        if let Some(lblk) = self.lblk {
            part(f, "its block", lblk.get().into())?;
        }
        if let Some(block) = self.block {
            part(f, "block", block.get())?;
        }
        if first {
            f.write_str("file system")?;
        }
        Ok(())
    }
}

/// What was seen.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Evidence {
    /// A record that breaks the format.
    Format(FormatError),
    /// A number that should be another one.
    Number {
        /// What the number is.
        what: &'static str,
        /// What was found.
        found: u64,
        /// What should be there.
        expected: u64,
    },
    /// A sentence.
    Said(String),
}

impl fmt::Display for Evidence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Format(e) => fmt::Display::fmt(e, f),
            Self::Number {
                what,
                found,
                expected,
            } => write!(f, "{what} is {found}, expected {expected}"),
            Self::Said(text) => f.write_str(text),
        }
    }
}

/// One thing that is wrong or worth knowing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// What is wrong.
    pub code: Code,
    /// Where.
    pub place: Place,
    /// What was seen.
    pub evidence: Evidence,
}

impl Finding {
    /// How bad it is.
    #[must_use]
    pub const fn severity(&self) -> Severity {
        self.code.severity()
    }
}

/// One line: `error inode-checksum: inode 12: inode: checksum is 0x10, expected 0xff`.
impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            code,
            place,
            evidence,
        } = self;
        write!(f, "{} {code}: {place}: {evidence}", self.severity())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn code_names_are_unique_and_in_kebab_case() {
        let names: BTreeSet<&str> = Code::ALL.iter().map(|code| code.name()).collect();
        assert_eq!(names.len(), Code::ALL.len());
        let good = |b: u8| b.is_ascii_lowercase() || b == b'-';
        assert!(names.iter().all(|name| name.bytes().all(good)));
    }

    #[test]
    fn a_finding_reads_as_one_line() {
        let finding = Finding {
            code: Code::LinkCount,
            place: Place::ino(Ino::new(12)),
            evidence: Evidence::Number {
                what: "link count",
                found: 3,
                expected: 2,
            },
        };
        assert_eq!(
            finding.to_string(),
            "error link-count: inode 12: link count is 3, expected 2"
        );
    }
}

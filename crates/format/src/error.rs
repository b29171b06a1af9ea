//! The one error of this crate: evidence about a record that breaks the format.

use core::fmt;

/// Result of parsing or validating a record.
pub type FormatResult<T> = Result<T, FormatError>;

/// Which on-disk structure a [`FormatError`] is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Structure {
    /// The superblock or one of its backups.
    Superblock,
    /// A block group descriptor.
    GroupDescriptor,
    /// A block bitmap.
    BlockBitmap,
    /// An inode bitmap.
    InodeBitmap,
    /// An inode.
    Inode,
    /// A node of an extent tree.
    ExtentNode,
    /// A block of an indirect map.
    IndirectBlock,
    /// A directory entry.
    DirEntry,
    /// A directory block.
    DirBlock,
    /// A node of a hashed directory's index.
    DirIndex,
    /// An extended attribute entry or its value.
    Xattr,
    /// A block of extended attributes.
    XattrBlock,
    /// A POSIX access control list.
    Acl,
    /// Data kept inside an inode.
    InlineData,
    /// A symbolic link.
    Symlink,
    /// The multiple-mount protection block.
    Mmp,
    /// A block of the orphan file.
    OrphanFile,
    /// The journal superblock.
    JournalSuperblock,
    /// A block of the journal.
    JournalBlock,
    /// A fast-commit record.
    FastCommit,
    /// A quota file.
    Quota,
    /// The log of changes that wait to be put in place.
    Waiting,
}

impl fmt::Display for Structure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Superblock => "superblock",
            Self::GroupDescriptor => "group descriptor",
            Self::BlockBitmap => "block bitmap",
            Self::InodeBitmap => "inode bitmap",
            Self::Inode => "inode",
            Self::ExtentNode => "extent tree node",
            Self::IndirectBlock => "indirect block",
            Self::DirEntry => "directory entry",
            Self::DirBlock => "directory block",
            Self::DirIndex => "directory index node",
            Self::Xattr => "extended attribute",
            Self::XattrBlock => "extended attribute block",
            Self::Acl => "access control list",
            Self::InlineData => "inline data",
            Self::Symlink => "symbolic link",
            Self::Mmp => "multiple-mount protection block",
            Self::OrphanFile => "orphan file block",
            Self::JournalSuperblock => "journal superblock",
            Self::JournalBlock => "journal block",
            Self::FastCommit => "fast-commit record",
            Self::Quota => "quota file",
            Self::Waiting => "log of changes that wait",
        })
    }
}

/// What a field should have held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Expected {
    /// Exactly this value (a magic, a checksum).
    Exactly(u64),
    /// At least this value.
    AtLeast(u64),
    /// At most this value.
    AtMost(u64),
    /// A value in this closed range.
    Between(u64, u64),
    /// Something that reads as "expected ...".
    Said(&'static str),
}

/// A record that breaks the format: which structure, which field, where in the record, what was
/// found, what was expected.
///
/// Small and `Copy`; the caller, which knows the device address, adds it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FormatError {
    /// The structure.
    pub structure: Structure,
    /// The field, by its name in the kernel's documentation without the prefix (`inodes_count`).
    pub field: &'static str,
    /// Byte offset inside the record or block, where one helps.
    pub at: Option<u32>,
    /// The value found.
    pub found: u64,
    /// What a sound record holds there.
    pub expected: Expected,
}

impl FormatError {
    /// Makes an error about `field` of `structure`.
    #[must_use]
    pub const fn new(
        structure: Structure,
        field: &'static str,
        found: u64,
        expected: Expected,
    ) -> Self {
        Self {
            structure,
            field,
            at: None,
            found,
            expected,
        }
    }

    /// Places the error at byte `offset` of the record or block.
    #[must_use]
    pub const fn at(mut self, offset: usize) -> Self {
        self.at = Some(if offset > u32::MAX as usize {
            u32::MAX
        } else {
            offset as u32
        });
        self
    }

    /// Makes the error of a stored checksum that is not the computed one.
    #[must_use]
    pub const fn checksum(structure: Structure, stored: u32, computed: u32) -> Self {
        Self::new(
            structure,
            "checksum",
            stored as u64,
            Expected::Exactly(computed as u64),
        )
    }

    /// Makes the error of a record cut short: `found` bytes where at least `needed` are.
    #[must_use]
    pub const fn short(structure: Structure, found: usize, needed: usize) -> Self {
        Self::new(
            structure,
            "length",
            found as u64,
            Expected::AtLeast(needed as u64),
        )
    }

    /// Returns whether this is a checksum mismatch (and nothing worse is known).
    #[must_use]
    pub fn is_checksum(&self) -> bool {
        self.field == "checksum"
    }
}

impl fmt::Display for FormatError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.structure, self.field)?;
        if let Some(at) = self.at {
            write!(f, " at byte {at}")?;
        }
        // Magics, checksums and flag words read better in hexadecimal.
        let hex = matches!(self.field, "checksum" | "magic")
            || self.field.contains("flags")
            || self.field.starts_with("feature");
        if hex {
            write!(f, " is {:#x}, expected ", self.found)?;
        } else {
            write!(f, " is {}, expected ", self.found)?;
        }
        match self.expected {
            Expected::Exactly(v) if hex => write!(f, "{v:#x}"),
            Expected::Exactly(v) => write!(f, "{v}"),
            Expected::AtLeast(v) => write!(f, "at least {v}"),
            Expected::AtMost(v) => write!(f, "at most {v}"),
            Expected::Between(a, b) => write!(f, "{a} to {b}"),
            Expected::Said(s) => f.write_str(s),
        }
    }
}

impl core::error::Error for FormatError {}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;

    #[test]
    fn an_error_reads_as_a_sentence_with_its_evidence() {
        let e = FormatError::new(
            Structure::Superblock,
            "inodes_per_group",
            0,
            Expected::Between(8, 65_536),
        );
        assert_eq!(
            e.to_string(),
            "superblock: inodes_per_group is 0, expected 8 to 65536"
        );
        let e = FormatError::checksum(Structure::Inode, 0x10, 0xff);
        assert_eq!(e.to_string(), "inode: checksum is 0x10, expected 0xff");
        let e = FormatError::new(Structure::DirEntry, "rec_len", 3, Expected::AtLeast(12)).at(4084);
        assert_eq!(
            e.to_string(),
            "directory entry: rec_len at byte 4084 is 3, expected at least 12"
        );
    }
}

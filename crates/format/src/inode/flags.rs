//! Inode flags, with the letters `lsattr` gives them.

use alloc::string::String;
use bitflags::bitflags;

bitflags! {
    /// Flags of an inode. Bits without a name are kept as found.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
    pub struct InodeFlags: u32 {
        /// Overwrite the blocks when the file is deleted (never implemented).
        const SECURE_DELETION = 0x1;
        /// Keep the file for undeletion (never implemented).
        const UNDELETABLE = 0x2;
        /// Compressed file (never merged).
        const COMPRESSED = 0x4;
        /// Writes are synchronous.
        const SYNC = 0x8;
        /// Nothing about the file may change.
        const IMMUTABLE = 0x10;
        /// The file may only grow.
        const APPEND = 0x20;
        /// `dump` leaves the file out.
        const NO_DUMP = 0x40;
        /// Access times are not kept.
        const NO_ATIME = 0x80;
        /// Dirty compressed file (never merged).
        const DIRTY = 0x100;
        /// Some clusters are compressed (never merged).
        const COMPRESSED_BLOCKS = 0x200;
        /// Do not compress.
        const NO_COMPRESS = 0x400;
        /// Content (of a directory: names) is encrypted.
        const ENCRYPT = 0x800;
        /// A directory with a hashed index.
        const INDEX = 0x1000;
        /// AFS magic directory.
        const IMAGIC = 0x2000;
        /// Data goes through the journal.
        const JOURNAL_DATA = 0x4000;
        /// The tail of the file is not merged.
        const NO_TAIL = 0x8000;
        /// Directory changes are synchronous.
        const DIR_SYNC = 0x1_0000;
        /// Top of a directory hierarchy: its children are spread out.
        const TOP_DIR = 0x2_0000;
        /// The block count is in file-system blocks, not in 512-byte sectors.
        const HUGE_FILE = 0x4_0000;
        /// The map is an extent tree.
        const EXTENTS = 0x8_0000;
        /// Content is protected by fs-verity.
        const VERITY = 0x10_0000;
        /// The inode holds the value of an extended attribute.
        const EA_INODE = 0x20_0000;
        /// Blocks were allocated past the end of the file (no longer used).
        const EOF_BLOCKS = 0x40_0000;
        /// Do not copy on write (no meaning in ext4).
        const NO_COW = 0x80_0000;
        /// A snapshot (never merged).
        const SNAPSHOT = 0x0100_0000;
        /// Direct access to the medium.
        const DAX = 0x0200_0000;
        /// A snapshot that is being deleted (never merged).
        const SNAPSHOT_DELETED = 0x0400_0000;
        /// A snapshot that has been shrunk (never merged).
        const SNAPSHOT_SHRUNK = 0x0800_0000;
        /// Content lies inside the inode.
        const INLINE_DATA = 0x1000_0000;
        /// New children take over the project id.
        const PROJECT_INHERIT = 0x2000_0000;
        /// A directory whose names are compared without case.
        const CASEFOLD = 0x4000_0000;
        /// Reserved for the library.
        const RESERVED = 0x8000_0000;
        const _ = !0;
    }
}

/// The columns of `lsattr`, in its order.
const COLUMNS: [(InodeFlags, char); 22] = [
    (InodeFlags::SECURE_DELETION, 's'),
    (InodeFlags::UNDELETABLE, 'u'),
    (InodeFlags::SYNC, 'S'),
    (InodeFlags::DIR_SYNC, 'D'),
    (InodeFlags::IMMUTABLE, 'i'),
    (InodeFlags::APPEND, 'a'),
    (InodeFlags::NO_DUMP, 'd'),
    (InodeFlags::NO_ATIME, 'A'),
    (InodeFlags::COMPRESSED, 'c'),
    (InodeFlags::ENCRYPT, 'E'),
    (InodeFlags::JOURNAL_DATA, 'j'),
    (InodeFlags::INDEX, 'I'),
    (InodeFlags::NO_TAIL, 't'),
    (InodeFlags::TOP_DIR, 'T'),
    (InodeFlags::EXTENTS, 'e'),
    (InodeFlags::NO_COW, 'C'),
    (InodeFlags::DAX, 'x'),
    (InodeFlags::CASEFOLD, 'F'),
    (InodeFlags::INLINE_DATA, 'N'),
    (InodeFlags::PROJECT_INHERIT, 'P'),
    (InodeFlags::VERITY, 'V'),
    (InodeFlags::NO_COMPRESS, 'm'),
];

impl InodeFlags {
    /// Returns the flag that `lsattr` and `chattr` show as this letter.
    #[must_use]
    pub fn of_letter(letter: char) -> Option<Self> {
        let found = COLUMNS.iter().find(|column| column.1 == letter);
        found.map(|column| column.0)
    }

    /// Returns the flags as `lsattr` prints them: a letter or a dash in each of 22 columns.
    #[must_use]
    pub fn lsattr(self) -> String {
        COLUMNS
            .iter()
            .map(|&(flag, letter)| if self.contains(flag) { letter } else { '-' })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn letters_stand_in_the_columns_of_lsattr() {
        assert_eq!(InodeFlags::EXTENTS.lsattr(), "--------------e-------");
        let flags = InodeFlags::IMMUTABLE | InodeFlags::INDEX | InodeFlags::EA_INODE;
        assert_eq!(flags.lsattr(), "----i------I----------");
    }
}

//! What the fields of one inode must not say together, and what follows when they do.
//!
//! One table, [`RULES`], for all code that judges an inode: an engine refuses those that Linux
//! refuses and shows the others as Linux does; a checker reports all of them. A rule looks at the
//! record and at the features alone, never at another block.
//!
//! | item | owns |
//! |---|---|
//! | [`RULES`] | the table |
//! | [`Rule`] | one contradiction: how it shows, whether such an inode is read, what a check says |
//! | [`InodeRules`] | what the rules ask of the file system; [`InodeRules::refusal`] and [`InodeRules::broken`] |
//! | [`Subject`] | the inode that is judged, and what is known beside its record |
//!
//! # Invariants
//!
//! - An inode that [`InodeRules::refusal`] lets pass breaks no rule but those with
//!   [`Reading::Shown`], however fast it was let pass: what [`InodeRules::is_plain`] says of few
//!   looks, and [`InodeRules::is_faultless`] of all rules, follows from the table.
//! - [`InodeRules::as_read`] takes away what Linux does not see; what it leaves is judged and read.
//!
//! Source: what Linux (`__ext4_iget`) and e2fsck do with such inodes, seen from outside; a test of
//! the command walks the table and asks both.

mod table;
#[cfg(test)]
mod tests;

pub use table::RULES;

use super::{FileType, Inode, InodeFlags};
use crate::extent::{self, ExtentNode, NodeContext};
use crate::features::{Compat, Features, Incompat, RoCompat};
use crate::geometry::Geometry;
use crate::indirect;
use crate::superblock::Superblock;
use crate::{BlockSize, Expected, FormatError, Ino, Structure};
use core::ops::Range;

/// Size from which files need the feature `large_file`, in bytes.
pub const LARGE: u64 = 1 << 31;

/// What an inode is for, by its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NumberClass {
    /// A file with a name, the root, or the value of an attribute.
    User,
    /// A file of the file system's own, without a name: a quota file or the orphan file.
    Own,
    /// The journal.
    Journal,
    /// The inode that keeps blocks for more descriptors.
    Resize,
    /// The list of bad blocks.
    BadBlocks,
    /// A reserved number whose feature is off: the journal's or a quota file's.
    Idle,
    /// A reserved number without a use.
    Spare,
}

impl NumberClass {
    /// Whether what has such a number is a file like any other, with content.
    #[must_use]
    pub const fn is_file(self) -> bool {
        matches!(self, Self::User | Self::Own | Self::Journal)
    }
}

/// What is known of the attribute that every inode with inline data has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Inline {
    /// Nobody has looked. Rules that need it, and those about the map, are not judged.
    Unknown,
    /// There is none: Linux takes such an inode for one without inline data.
    Missing,
    /// So many bytes of content lie in the inode: those of the map, and those of the attribute's
    /// value.
    Stored(u64),
}

/// The inode that is judged.
#[derive(Clone, Copy, Debug)]
pub struct Subject<'a> {
    /// Its record.
    pub inode: &'a Inode,
    /// What it is for.
    pub class: NumberClass,
    /// The attribute of inline data. Asked for only where the flag [`InodeFlags::INLINE_DATA`] is
    /// set.
    pub inline: Inline,
    /// The file system.
    pub rules: &'a InodeRules,
}

/// What becomes of reading an inode that breaks a rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reading {
    /// Linux refuses the inode, and so does the engine.
    Refused,
    /// Linux shows less of the inode than it had, or its record alone: the engine refuses it all
    /// the same, since a copy without a part must not pass for the whole.
    Withheld,
    /// Linux reads it as if nothing were said, and so does the engine.
    Shown,
}

/// What a check says of a broken rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Report {
    /// The mode names no type.
    Mode,
    /// Flags contradict type, features or each other.
    Flags,
    /// Flags without a meaning; the file system is consistent all the same.
    UnusedFlags,
    /// A size that cannot be.
    Size,
    /// A symbolic link whose length is not that of its target.
    Symlink,
    /// Inline data without its attribute.
    InlineData,
    /// An attribute block that cannot be.
    AttributeBlock,
    /// Of the file system: a file is larger than its features allow.
    LargeFile,
    /// The map or the content is broken, which the walk over it says with its place.
    Walk,
}

/// One contradiction.
pub struct Rule {
    /// A name that stays, in kebab case.
    pub name: &'static str,
    /// What becomes of reading the inode.
    pub reading: Reading,
    /// What a check says.
    pub report: Report,
    /// The flags that must not be set, if it is about flags: setting none of them mends it.
    pub flags: InodeFlags,
    /// The field that is wrong.
    pub field: &'static str,
    /// What a check says after "flag 0x80000", or after "inode 12:" where it is not about flags.
    pub wrong: &'static str,
    /// What the field holds.
    pub found: fn(&Subject<'_>) -> u64,
    /// What it would hold.
    pub expected: fn(&Subject<'_>) -> Expected,
    /// Whether the rule is broken.
    pub is_broken: fn(&Subject<'_>) -> bool,
}

impl core::fmt::Debug for Rule {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Rule")
            .field("name", &self.name)
            .field("reading", &self.reading)
            .field("report", &self.report)
            .finish_non_exhaustive()
    }
}

impl Rule {
    /// The rule as evidence, about an inode that breaks it.
    #[must_use]
    pub fn evidence(&self, subject: &Subject<'_>) -> FormatError {
        let found = (self.found)(subject);
        let expected = (self.expected)(subject);
        FormatError::new(Structure::Inode, self.field, found, expected)
    }
}

/// What the rules ask of the file system, worked out once.
#[derive(Clone, Debug)]
pub struct InodeRules {
    pub(super) features: Features,
    pub(super) block_size: BlockSize,
    /// 512-byte sectors that a block of attributes is charged as.
    attribute_sectors: u64,
    /// Blocks that files and their metadata may use.
    pub(super) blocks: Range<u64>,
    /// Most bytes of a file with an extent tree.
    most_by_extents: u64,
    /// Most bytes of a file with indirect blocks.
    most_by_pointers: u64,
    /// Most bytes of any file, however it is mapped.
    most_by_either: u64,
    /// Flags that no regular file has here of which nothing is to be said when it is read.
    suspect: InodeFlags,
    /// Those that no directory has.
    suspect_in_directories: InodeFlags,
    /// Flags that no regular file has here of which nothing is to be said at all.
    noted_in_files: InodeFlags,
    /// Those that no directory has.
    noted_in_directories: InodeFlags,
    first_ino: Ino,
    journal: Option<Ino>,
    own: [Option<Ino>; 4],
    has_resize_inode: bool,
}

impl InodeRules {
    /// The rules of the file system with this superblock.
    #[must_use]
    pub fn new(superblock: &Superblock, geometry: &Geometry) -> Self {
        let block_size = superblock.block_size();
        let log2 = block_size.log2();
        let features = superblock.features();
        let [user, group, project] = superblock.quota_inodes();
        let bytes = |blocks: u64| (blocks << log2).min(i64::MAX as u64);
        let first = geometry.first_data_block().get().saturating_add(1);
        // The last block has no number behind it that could end a range.
        let most_by_extents = bytes(extent::LBLK_END);
        let most_by_pointers = bytes(indirect::blocks_reached(block_size));
        let suspect = unless(&features, &SUSPECT) | InodeFlags::INLINE_DATA;
        let noted = suspect | unless(&features, &NOTED);
        Self {
            features,
            block_size,
            attribute_sectors: u64::from(block_size.bytes() >> 9) << superblock.cluster_bits(),
            blocks: first..geometry.blocks_count(),
            most_by_extents,
            most_by_pointers,
            most_by_either: most_by_extents.min(most_by_pointers),
            suspect,
            suspect_in_directories: suspect | InodeFlags::EA_INODE,
            noted_in_files: noted | InodeFlags::INDEX | InodeFlags::CASEFOLD,
            noted_in_directories: noted | InodeFlags::EA_INODE,
            first_ino: superblock.first_ino(),
            journal: superblock.journal_ino(),
            own: [user, group, project, superblock.orphan_file_ino()],
            has_resize_inode: superblock.has_compat(Compat::RESIZE_INODE),
        }
    }

    /// What the inode of this number is for.
    #[must_use]
    pub fn class(&self, ino: Ino) -> NumberClass {
        if self.journal == Some(ino) {
            NumberClass::Journal
        } else if self.own.contains(&Some(ino)) {
            NumberClass::Own
        } else if ino == Ino::ROOT || ino >= self.first_ino {
            NumberClass::User
        } else if ino == Ino::RESIZE && self.has_resize_inode {
            NumberClass::Resize
        } else if ino == Ino::BAD_BLOCKS {
            NumberClass::BadBlocks
        } else if [Ino::JOURNAL, Ino::USER_QUOTA, Ino::GROUP_QUOTA].contains(&ino) {
            NumberClass::Idle
        } else {
            NumberClass::Spare
        }
    }

    /// Whether an inode may have a name, by its number: those of the file system's own have none,
    /// and Linux refuses a name for them.
    #[must_use]
    pub fn may_have_names(&self, ino: Ino) -> bool {
        self.class(ino) == NumberClass::User
    }

    /// The inode of this number and record.
    #[must_use]
    pub fn subject<'a>(&'a self, ino: Ino, inode: &'a Inode, inline: Inline) -> Subject<'a> {
        Subject {
            inode,
            class: self.class(ino),
            inline,
            rules: self,
        }
    }

    /// Why such an inode is refused, if it is.
    #[inline]
    #[must_use]
    pub fn refusal(&self, ino: Ino, inode: &Inode, inline: Inline) -> Option<FormatError> {
        if self.is_plain(ino, inode, inline) {
            return None;
        }
        self.refusal_looked_for(ino, inode, inline)
    }

    #[inline(never)]
    fn refusal_looked_for(&self, ino: Ino, inode: &Inode, inline: Inline) -> Option<FormatError> {
        if self.is_plain_in_all(ino, inode, inline) {
            return None;
        }
        let subject = self.subject(ino, inode, inline);
        let rule = self
            .broken(&subject)
            .find(|rule| rule.reading != Reading::Shown)?;
        Some(rule.evidence(&subject))
    }

    /// The rules that an inode breaks, in the order of the table.
    pub fn broken<'a>(&self, subject: &'a Subject<'a>) -> impl Iterator<Item = &'static Rule> + 'a {
        RULES.iter().filter(|rule| (rule.is_broken)(subject))
    }

    /// Takes from a record what Linux does not see there: the unit of the block count where the
    /// feature is off, and inline data without its attribute.
    #[inline]
    pub fn as_read(&self, inode: &mut Inode, inline: Inline) {
        if !inode.flags.intersects(self.suspect) {
            return;
        }
        if !self.features.ro_compat.contains(RoCompat::HUGE_FILE) {
            inode.flags.remove(InodeFlags::HUGE_FILE);
        }
        if inline == Inline::Missing && !inode.flags.contains(InodeFlags::EXTENTS) {
            inode.flags.remove(InodeFlags::INLINE_DATA);
        }
    }

    /// Whether it takes a closer look to read the record as Linux does.
    #[inline]
    #[must_use]
    pub fn is_suspect(&self, inode: &Inode) -> bool {
        inode.flags.intersects(self.suspect)
    }

    /// Whether a few looks tell that no rule refuses the inode. True of most regular files and
    /// directories: those with an attribute block in its place, with flags that need no second
    /// look, and with up to four extents in the inode.
    // Into the caller: it keeps the record in registers then, of which it may need a part only.
    #[inline(always)]
    #[must_use]
    pub fn is_plain(&self, ino: Ino, inode: &Inode, inline: Inline) -> bool {
        self.is_plain_in_record(ino, inode)
            && inode.size <= self.most_by_either
            && (inline == Inline::Unknown || self.is_plain_in_map(inode))
    }

    /// What [`is_plain`](Self::is_plain) says, but for the size and the map.
    #[inline(always)]
    fn is_plain_in_record(&self, ino: Ino, inode: &Inode) -> bool {
        let suspect = match inode.file_type() {
            Some(FileType::Regular) => self.suspect,
            Some(FileType::Directory) if self.is_whole(inode.size) => self.suspect_in_directories,
            _ => return false,
        };
        let attributes = inode.file_acl.get();
        !inode.flags.intersects(suspect)
            && (!inode
                .flags
                .intersects(InodeFlags::ENCRYPT | InodeFlags::EA_INODE)
                || self.class(ino) == NumberClass::User)
            && (attributes == 0 || self.blocks.contains(&attributes))
    }

    #[inline(always)]
    fn is_plain_in_map(&self, inode: &Inode) -> bool {
        inode.flags.contains(InodeFlags::EXTENTS) && extent::is_sound_leaf(&inode.map, &self.blocks)
    }

    /// What [`is_plain`](Self::is_plain) says, also of trees, of maps of pointers, and of links
    /// with their targets in the map.
    fn is_plain_in_all(&self, ino: Ino, inode: &Inode, inline: Inline) -> bool {
        if inode.file_type() == Some(FileType::Symlink) {
            return self.is_plain_link(inode);
        }
        self.is_plain_in_record(ino, inode)
            && inode.size <= self.largest_size(inode)
            && (inline == Inline::Unknown || self.map_error(inode).is_none())
    }

    /// Whether no rule refuses a symbolic link, whose target lies in the map. Asked of short ones.
    fn is_plain_link(&self, inode: &Inode) -> bool {
        let said = self.suspect_in_directories
            | InodeFlags::EXTENTS
            | InodeFlags::IMMUTABLE
            | InodeFlags::APPEND
            | InodeFlags::ENCRYPT;
        inode.file_acl.get() == 0
            && !inode.flags.intersects(said)
            && inode.size != 0
            && self.is_fast_symlink(inode)
            && target_len(inode) == inode.size
            && inode.size < inode.map.len() as u64
    }

    /// Whether a few looks tell that the inode breaks no rule at all, not even one that a check
    /// alone is about. True of most regular files and directories whose attribute of inline data
    /// was looked for.
    #[inline]
    #[must_use]
    pub fn is_faultless(&self, ino: Ino, inode: &Inode) -> bool {
        let noted = match inode.file_type() {
            Some(FileType::Directory) => self.noted_in_directories,
            _ => self.noted_in_files,
        };
        (ino >= self.first_ino || ino == Ino::ROOT)
            && !inode.flags.intersects(noted)
            && (inode.file_acl.get() == 0 || self.features.compat.contains(Compat::EXT_ATTR))
            && (inode.size < LARGE || self.features.ro_compat.contains(RoCompat::LARGE_FILE))
            && self.is_plain(ino, inode, Inline::Missing)
    }

    /// Whether a directory in blocks can have this size.
    #[inline(always)]
    pub(super) fn is_whole(&self, size: u64) -> bool {
        // A power of two.
        size != 0 && size & u64::from(self.block_size.bytes() - 1) == 0
    }

    /// The most bytes that an inode with such a map can have.
    #[must_use]
    pub fn largest_size(&self, inode: &Inode) -> u64 {
        if inode.flags.contains(InodeFlags::EXTENTS) {
            self.most_by_extents
        } else {
            self.most_by_pointers
        }
    }

    /// Whether a symbolic link's target lies in the map of its inode: when no block but one of
    /// attributes is charged to it. Where attribute values may lie in inodes of their own, those
    /// are charged as well, and the length tells: such file systems are too young to have short
    /// targets in blocks.
    #[must_use]
    pub fn is_fast_symlink(&self, inode: &Inode) -> bool {
        if inode.flags.contains(InodeFlags::INLINE_DATA) {
            return false;
        }
        if self.features.incompat.contains(Incompat::EA_INODE) {
            return (1..inode.map.len() as u64).contains(&inode.size);
        }
        let attributes = match inode.file_acl.get() {
            0 => 0,
            _ => self.attribute_sectors,
        };
        self.sectors(inode) == attributes
    }

    /// Sectors charged to an inode, as Linux reads them.
    fn sectors(&self, inode: &Inode) -> u64 {
        if self.features.ro_compat.contains(RoCompat::HUGE_FILE) {
            inode.sectors(self.block_size)
        } else {
            inode.blocks
        }
    }

    /// What is wrong with the part of a map that lies in the inode.
    #[inline(never)]
    pub(super) fn map_error(&self, inode: &Inode) -> Option<FormatError> {
        if inode.flags.contains(InodeFlags::EXTENTS) {
            let context = NodeContext::root(self.blocks.clone());
            let node = ExtentNode::parse(&inode.map);
            return node.and_then(|node| node.validate(&context)).err();
        }
        if self.has_unsaid_extents(inode) {
            let expected = Expected::Said("the flag of an extent tree, as the map is one");
            let found = inode.flags.bits().into();
            return Some(FormatError::new(Structure::Inode, "flags", found, expected));
        }
        // Those that lead to blocks of pointers are looked at on the way to them.
        let direct = indirect::pointers(&inode.map).take(indirect::DIRECT as usize);
        direct
            .enumerate()
            .find_map(|(at, pointer)| indirect::check_pointer(pointer, at, &self.blocks).err())
    }

    /// Whether the map is an extent tree and the flags do not say so.
    pub(super) fn has_unsaid_extents(&self, inode: &Inode) -> bool {
        self.features.incompat.contains(Incompat::EXTENTS)
            && !inode.flags.contains(InodeFlags::EXTENTS)
            && looks_like_extents(inode)
    }
}

/// Bytes of a target in the map: up to the first zero byte.
fn target_len(inode: &Inode) -> u64 {
    let end = inode.map.iter().position(|byte| *byte == 0);
    end.unwrap_or(inode.map.len()) as u64
}

/// Whether the map begins as the root of an extent tree does.
#[must_use]
pub fn looks_like_extents(inode: &Inode) -> bool {
    ExtentNode::parse(&inode.map).is_ok()
}

/// A feature.
enum Need {
    Compat(Compat),
    Incompat(Incompat),
    RoCompat(RoCompat),
}

/// Flags that take a closer look before an inode is read, where the feature is off.
const SUSPECT: [(Need, InodeFlags); 4] = [
    (Need::Incompat(Incompat::CASEFOLD), InodeFlags::CASEFOLD),
    (Need::Incompat(Incompat::EA_INODE), InodeFlags::EA_INODE),
    (Need::Compat(Compat::DIR_INDEX), InodeFlags::INDEX),
    (Need::RoCompat(RoCompat::HUGE_FILE), InodeFlags::HUGE_FILE),
];

/// Flags of which a check alone has something to say, where the feature is off.
const NOTED: [(Need, InodeFlags); 4] = [
    (Need::Incompat(Incompat::EXTENTS), InodeFlags::EXTENTS),
    (Need::Incompat(Incompat::ENCRYPT), InodeFlags::ENCRYPT),
    (Need::Compat(Compat::IMAGIC_INODES), InodeFlags::IMAGIC),
    (Need::RoCompat(RoCompat::VERITY), InodeFlags::VERITY),
];

/// The flags among these whose features are off.
fn unless(features: &Features, flags: &[(Need, InodeFlags)]) -> InodeFlags {
    let has = |need: &Need| match *need {
        Need::Compat(feature) => features.compat.contains(feature),
        Need::Incompat(feature) => features.incompat.contains(feature),
        Need::RoCompat(feature) => features.ro_compat.contains(feature),
    };
    let off = flags.iter().filter(|(need, _)| !has(need));
    off.fold(InodeFlags::empty(), |all, (_, flag)| all | *flag)
}

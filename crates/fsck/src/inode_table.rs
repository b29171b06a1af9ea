//! What is remembered of every inode: four bytes for each one up to the last in use of its group.

use extant_format::Ino;
use extant_format::inode::FileType;

/// What is remembered of one inode.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Summary {
    /// The link count it has.
    pub(crate) links: u16,
    /// Its type as directory entries name it; 0 where the mode names none.
    pub(crate) kind: u8,
    flags: u8,
}

const IN_USE: u8 = 1;
const EA_INODE: u8 = 2;
const ORPHAN: u8 = 4;
const NAMELESS: u8 = 8;
const INDEXED: u8 = 16;

/// The type of a directory, as entries name it.
pub(crate) const KIND_DIR: u8 = 2;

impl Summary {
    pub(crate) fn in_use(links: u16, kind: u8) -> Self {
        Self {
            links,
            kind,
            flags: IN_USE,
        }
    }

    /// The inode holds the value of an attribute.
    pub(crate) fn ea_inode(mut self, on: bool) -> Self {
        self.flags |= if on { EA_INODE } else { 0 };
        self
    }

    /// The inode waits to be deleted.
    pub(crate) fn orphan(mut self, on: bool) -> Self {
        self.flags |= if on { ORPHAN } else { 0 };
        self
    }

    /// The inode belongs to the file system itself and needs no name.
    pub(crate) fn nameless(mut self, on: bool) -> Self {
        self.flags |= if on { NAMELESS } else { 0 };
        self
    }

    pub(crate) fn is_in_use(self) -> bool {
        self.flags & IN_USE != 0
    }

    pub(crate) fn is_ea_inode(self) -> bool {
        self.flags & EA_INODE != 0
    }

    pub(crate) fn is_orphan(self) -> bool {
        self.flags & ORPHAN != 0
    }

    pub(crate) fn is_nameless(self) -> bool {
        self.flags & NAMELESS != 0
    }

    pub(crate) fn is_dir(self) -> bool {
        self.kind == KIND_DIR
    }

    /// Sets the flag of an indexed directory if it is `on`.
    pub(crate) fn indexed(mut self, on: bool) -> Self {
        self.flags |= if on { INDEXED } else { 0 };
        self
    }

    pub(crate) fn is_indexed(self) -> bool {
        self.flags & INDEXED != 0
    }
}

/// The number directory entries have for a type.
pub(crate) fn kind_of(file_type: Option<FileType>) -> u8 {
    file_type.map_or(0, |t| extant_format::dir::EntryType::of(t).raw())
}

/// Summaries of all inodes.
#[derive(Debug)]
pub(crate) struct InodeTable {
    per_group: u32,
    groups: Vec<Box<[Summary]>>,
}

impl InodeTable {
    pub(crate) fn new(groups: u32, per_group: u32) -> Self {
        let mut all = Vec::new();
        all.resize_with(groups as usize, Box::default);
        Self {
            per_group: per_group.max(1),
            groups: all,
        }
    }

    /// Stores the summaries of a group, cut behind the last one in use.
    pub(crate) fn set(&mut self, group: u32, summaries: Box<[Summary]>) {
        if let Some(place) = self.groups.get_mut(group as usize) {
            *place = summaries;
        }
    }

    pub(crate) fn get(&self, ino: Ino) -> Summary {
        let Some(index) = ino.get().checked_sub(1) else {
            return Summary::default();
        };
        self.groups
            .get((index / self.per_group) as usize)
            .and_then(|group| group.get((index % self.per_group) as usize))
            .copied()
            .unwrap_or_default()
    }

    /// The summaries of a group, from its first inode on.
    pub(crate) fn group(&self, group: u32) -> &[Summary] {
        self.groups
            .get(group as usize)
            .map_or(&[], |summaries| summaries)
    }

    /// All inodes in use, ascending.
    pub(crate) fn in_use(&self) -> impl Iterator<Item = (Ino, Summary)> {
        self.groups
            .iter()
            .enumerate()
            .flat_map(|(group, summaries)| {
                let first = group as u64 * u64::from(self.per_group) + 1;
                summaries
                    .iter()
                    .enumerate()
                    .map(move |(i, summary)| (Ino::new((first + i as u64) as u32), *summary))
            })
            .filter(|(_, summary)| summary.is_in_use())
    }
}

//! Names in a directory block behind a record that makes no sense.
//!
//! Records say how long they are, so one that lies about it hides all that follow. They are found
//! again by looking at every place where a record could begin. What looks like one may be a
//! leftover of a name that was removed, or bytes of a longer name: one is taken for real only if
//! its inode is in use, has the type it says, and lacks a name.

use crate::Place;
use crate::connectivity::parent_of;
use crate::survey::Survey;
use extant_format::Ino;
use extant_format::dir::{self, DirEntry, DirLayout, EntryHash, EntryType, entry};
use std::cell::RefCell;
use std::collections::{HashMap, HashSet};

/// Bytes from one place where a record can begin to the next.
const STEP: usize = 4;

/// A name that was found.
#[derive(Debug)]
pub(super) struct Found {
    pub(super) ino: Ino,
    pub(super) name: Vec<u8>,
    pub(super) file_type: EntryType,
    pub(super) hash: Option<EntryHash>,
}

/// Where names were found for each inode, in all directories: finding one again counts once.
pub(super) type FoundNames = RefCell<HashMap<Ino, HashSet<(Place, usize)>>>;

/// Looks for names in blocks.
pub(super) struct Seeker<'a> {
    pub(super) survey: &'a Survey,
    pub(super) layout: DirLayout,
    pub(super) found: &'a FoundNames,
}

impl Seeker<'_> {
    /// The names from the record at `from` on, which makes no sense, to the end of the block at
    /// `place`.
    pub(super) fn names(&self, block: &[u8], place: Place, from: usize) -> Vec<Found> {
        let mut names = Vec::new();
        let mut at = from;
        // Where a record begins, whatever it looks like: behind one that was found.
        let mut expected = from;
        while at + entry::ENTRY_HEADER_LEN < self.layout.entries_len() {
            match self.record(block, at, at == expected) {
                Some((name, len)) if self.is_missed(&name, (place, at)) => {
                    let mut found = self.found.borrow_mut();
                    found.entry(name.ino).or_default().insert((place, at));
                    names.push(name);
                    at += len;
                    expected = at;
                }
                _ => at += STEP,
            }
        }
        names
    }

    /// A record with a name at this place, and its length. Of one that begins here but makes no
    /// sense it may be the length that is wrong: then it is as long as it must be.
    fn record(&self, block: &[u8], at: usize, is_broken: bool) -> Option<(Found, usize)> {
        let from_here = block.get(at..)?;
        if let Some(Ok(sound)) = dir::entries(from_here, &self.layout).next() {
            return Some((Found::of(&sound)?, sound.rec_len));
        }
        if !is_broken {
            return None;
        }
        let name_len = match (from_here, self.layout.file_type) {
            ([_, _, _, _, _, _, low, _, ..], true) => usize::from(*low),
            ([_, _, _, _, _, _, low, high, ..], false) => {
                usize::from(u16::from_le_bytes([*low, *high]))
            }
            _ => return None,
        };
        let len = entry::min_rec_len(name_len, self.layout.hash_in_entry);
        if at + len > self.layout.entries_len() {
            return None;
        }
        let mut alone = from_here.get(..len)?.to_vec();
        let length = u16::try_from(len).ok()?.to_le_bytes();
        alone.get_mut(4..6)?.copy_from_slice(&length);
        let sound = dir::entries(&alone, &self.layout).next()?.ok()?;
        Some((Found::of(&sound)?, len))
    }

    /// Whether the inode has the type that the name says, and fewer names than it should have.
    fn is_missed(&self, name: &Found, at: (Place, usize)) -> bool {
        if name.name == b"." || name.name == b".." {
            return false;
        }
        let target = self.survey.table.get(name.ino);
        let has_type = !self.layout.file_type || name.file_type.raw() == target.kind;
        if !target.is_in_use() || target.is_nameless() || target.is_ea_inode() || !has_type {
            return false;
        }
        let found = self.found.borrow();
        let others = found.get(&name.ino).map_or(0, |places| {
            let others = places.iter().filter(|place| **place != at);
            others.count() as u64
        });
        if target.is_dir() {
            let parents = &self.survey.parents;
            return name.ino != Ino::ROOT && others == 0 && parent_of(parents, name.ino).is_none();
        }
        self.survey.names.get(name.ino) + others < u64::from(target.links)
    }
}

impl Found {
    /// `None` for free space.
    fn of(entry: &DirEntry<'_>) -> Option<Self> {
        Some(Self {
            ino: entry.ino?,
            name: entry.name.to_vec(),
            file_type: entry.file_type,
            hash: entry.hash,
        })
    }

    /// The entry it is; its place is not used.
    pub(super) fn as_entry(&self) -> DirEntry<'_> {
        DirEntry {
            offset: 0,
            rec_len: 0,
            ino: Some(self.ino),
            name: &self.name,
            file_type: self.file_type,
            hash: self.hash,
            stored: [0, self.file_type.raw()],
        }
    }
}

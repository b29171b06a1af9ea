//! Names of what was deleted: what is left in the slack of directory blocks, and entries of older
//! copies of such blocks in the log.
//!
//! An entry that goes stays where it is; the one before it reaches over it. An entry at the start
//! of a block loses its number.

use crate::Journal;
use crate::error::{Error, Result};
use crate::timeline::{Moment, Timeline};
use crate::tree::Tree;
use crate::uses::is_directory_block;
use crate::volume::Volume;
use extant_format::Ino;
use extant_format::dir::{
    DirLayout, entries, htree, inode_checksum_seed, min_rec_len, verify_block_checksum,
};
use extant_format::inode::InodeFlags;
use std::collections::{HashMap, HashSet};

/// Names that are kept of one inode, and of all.
const MOST_OF_ONE: usize = 16;
const MOST_NAMES: usize = 1 << 20;

/// A name that an inode had.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Found {
    pub(crate) dir: Ino,
    /// The generation of the directory, where a checksum says it.
    pub(crate) generation: Option<u32>,
    pub(crate) name: Box<[u8]>,
    /// The moment at which the entry was in use; `None` of what is left in slack.
    pub(crate) at: Option<Moment>,
}

/// A directory that some block belongs or belonged to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Owner {
    pub(crate) ino: Ino,
    pub(crate) generation: u32,
    pub(crate) flags: InodeFlags,
}

/// Names by inode.
#[derive(Debug, Default)]
pub(crate) struct Names {
    found: HashMap<Ino, Vec<Found>>,
    kept: usize,
}

impl Names {
    pub(crate) fn of(&self, ino: Ino) -> &[Found] {
        self.found.get(&ino).map_or(&[], Vec::as_slice)
    }

    /// Inodes that have names.
    pub(crate) fn inodes(&self) -> impl Iterator<Item = Ino> + '_ {
        self.found.keys().copied()
    }

    fn add(&mut self, ino: Ino, name: Found) {
        let names = self.found.entry(ino).or_default();
        if names.iter_mut().any(|known| known.takes_over(&name)) {
            return;
        }
        if names.len() < MOST_OF_ONE && self.kept < MOST_NAMES {
            names.push(name);
            self.kept += 1;
        }
    }

    /// Reads what is left of names in blocks of directories, as they lie and in the log. `former`
    /// are blocks of deleted directories, sorted; entries in use are of interest where they name
    /// one of `deleted`.
    pub(crate) fn read(
        volume: &Volume,
        journal: Option<&Journal>,
        timeline: &Timeline,
        tree: &Tree,
        former: &[(u64, Owner)],
        deleted: &HashSet<Ino>,
    ) -> Result<Self> {
        let mut names = Self::default();
        let mut bytes = vec![0; volume.block_size().len()];
        for block in &tree.blocks {
            volume.read(block.pblk, &mut bytes)?;
            let owner = Owner {
                ino: block.ino,
                generation: block.generation,
                flags: block.flags,
            };
            names.block(volume, &bytes, &[owner], None, deleted);
        }
        for (pblk, owner) in former {
            volume.read(*pblk, &mut bytes)?;
            names.block(volume, &bytes, &[*owner], None, deleted);
        }
        let Some(journal) = journal else {
            return Ok(names);
        };
        let log = journal.log()?;
        for (at, image) in timeline.images() {
            let home = image.home.get();
            let mut owners = owners_of(tree, former, home);
            log.read_logged(&image, &mut bytes)
                .map_err(Error::of_journal)?;
            if owners.is_empty() {
                // The first block of a directory says whose it is.
                owners = own_word(volume, &bytes).into_iter().collect();
            }
            if !owners.is_empty() {
                names.block(volume, &bytes, &owners, Some(at), deleted);
            }
        }
        Ok(names)
    }

    /// Takes the names in a block that belongs to one of these directories.
    fn block(
        &mut self,
        volume: &Volume,
        bytes: &[u8],
        owners: &[Owner],
        at: Option<Moment>,
        deleted: &HashSet<Ino>,
    ) {
        let Some((owner, is_proven)) = choose(volume, bytes, owners) else {
            return;
        };
        let layout = volume.dir_layout(owner.flags);
        if layout.raw_names {
            // Without the key they say nothing.
            return;
        }
        let found = |name: &[u8], at| Found {
            dir: owner.ino,
            generation: is_proven.then_some(owner.generation),
            name: name.into(),
            at,
        };
        let is_index = htree::is_root(bytes, &layout) || htree::is_node(bytes, &layout);
        let mut in_use = HashSet::new();
        let mut left = Vec::new();
        for entry in entries(bytes, &layout).map_while(std::result::Result::ok) {
            let special = entry.name == b"." || entry.name == b"..";
            if let Some(ino) = entry.ino.filter(|_| !special) {
                in_use.insert((ino, entry.name));
                if at.is_some() && deleted.contains(&ino) {
                    self.add(ino, found(entry.name, at));
                }
            }
            let kept = match entry.ino {
                Some(_) => min_rec_len(entry.name.len(), layout.hash_in_entry && !special),
                None => min_rec_len(usize::from(entry.stored[0]), false),
            };
            let end = entry.offset + entry.rec_len;
            if !is_index {
                slack(bytes, entry.offset + kept..end, &layout, &mut left);
            }
        }
        for (ino, name) in left {
            if !in_use.contains(&(ino, name)) {
                self.add(ino, found(name, None));
            }
        }
    }
}

impl Found {
    /// Whether this is the same name; then the better of both stays.
    fn takes_over(&mut self, other: &Self) -> bool {
        if (self.dir, &self.name) != (other.dir, &other.name) {
            return false;
        }
        // What is left in slack adds nothing; of moments each may tell of another life.
        if other.at.is_none() {
            return true;
        }
        if self.at.is_none() {
            *self = other.clone();
            return true;
        }
        self.at == other.at
    }
}

/// Reads entries that were left behind in a part of a block.
fn slack<'b>(
    bytes: &'b [u8],
    range: std::ops::Range<usize>,
    layout: &DirLayout,
    found: &mut Vec<(Ino, &'b [u8])>,
) {
    let mut at = range.start;
    while at + min_rec_len(1, false) <= range.end {
        match left_behind(bytes.get(at..range.end).unwrap_or_default(), layout) {
            Some((ino, name)) => {
                found.push((ino, name));
                at += min_rec_len(name.len(), layout.hash_in_entry);
            }
            None => at += 4,
        }
    }
}

/// The entry at the start of these bytes, if they look like one.
fn left_behind<'b>(bytes: &'b [u8], layout: &DirLayout) -> Option<(Ino, &'b [u8])> {
    let [a, b, c, d, l, m, n, t, ..] = *bytes else {
        return None;
    };
    let ino = u32::from_le_bytes([a, b, c, d]);
    let rec_len = usize::from(u16::from_le_bytes([l, m]));
    let kind = if layout.file_type { t } else { 0 };
    let name_len = if layout.file_type {
        usize::from(n)
    } else {
        usize::from(u16::from_le_bytes([n, t]))
    };
    let is_possible = (1..=layout.max_inode.get()).contains(&ino)
        && kind <= 7
        && (kind > 0 || !layout.file_type)
        && (1..=255).contains(&name_len)
        && rec_len.is_multiple_of(4)
        && rec_len >= min_rec_len(name_len, layout.hash_in_entry)
        && rec_len <= bytes.len();
    let name = bytes.get(8..8 + name_len).filter(|_| is_possible)?;
    let is_name = !name.iter().any(|byte| matches!(byte, 0 | b'/'));
    (is_name && name != b"." && name != b"..").then_some((Ino::new(ino), name))
}

/// The directories that have or had this block.
fn owners_of(tree: &Tree, former: &[(u64, Owner)], block: u64) -> Vec<Owner> {
    let at = tree.blocks.partition_point(|found| found.pblk < block);
    let now = tree.blocks.get(at).filter(|found| found.pblk == block);
    let mut owners: Vec<_> = now
        .map(|found| Owner {
            ino: found.ino,
            generation: found.generation,
            flags: found.flags,
        })
        .into_iter()
        .collect();
    let from = former.partition_point(|(found, _)| *found < block);
    let mine = former.iter().skip(from);
    // Few have a block of another; a list of all would be no help.
    let mine = mine.take_while(|(found, _)| *found == block).take(8);
    owners.extend(mine.map(|(_, owner)| *owner));
    owners
}

/// The directory that the first block of one says it belongs to.
fn own_word(volume: &Volume, bytes: &[u8]) -> Option<Owner> {
    let layout = volume.dir_layout(InodeFlags::empty());
    let first = entries(bytes, &layout).next()?.ok()?;
    let ino = first.ino.filter(|_| first.name == b".")?;
    is_directory_block(volume, bytes).then_some(Owner {
        ino,
        generation: 0,
        flags: InodeFlags::empty(),
    })
}

/// The directory that a block belongs to, and whether its checksum says so.
fn choose(volume: &Volume, bytes: &[u8], owners: &[Owner]) -> Option<(Owner, bool)> {
    if let Some(seed) = volume.seed {
        let is_right = |owner: &&Owner| {
            let seed = inode_checksum_seed(seed, owner.ino, owner.generation);
            verify_block_checksum(bytes, seed).is_ok()
        };
        if let Some(owner) = owners.iter().find(is_right) {
            return Some((*owner, true));
        }
    }
    let first = *owners.first()?;
    is_directory_block(volume, bytes).then_some((first, false))
}

/// Whether a name can stand in a path on a host.
pub(crate) fn is_plain(name: &[u8]) -> bool {
    let special = name.is_empty() || name == b"." || name == b"..";
    !special && !name.iter().any(|byte| matches!(byte, 0 | b'/'))
}

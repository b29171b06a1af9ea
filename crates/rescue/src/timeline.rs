//! What became of each inode, transaction by transaction.
//!
//! A number is used again and again. A *life* is one use of it: generation and, where inodes are
//! large enough, the time of creation tell lives apart.

use crate::Journal;
use crate::error::{Error, Result};
use crate::tree::Tree;
use crate::volume::Volume;
use extant_format::inode::{Inode, Timestamp};
use extant_format::{Group, Ino};
use extant_jbd2::{Check, LogHistory, LoggedImage};
use std::collections::HashMap;
use std::ops::Range;

/// A transaction, by its place in the history: a moment.
pub(crate) type Moment = u32;

/// What tells lives of one number apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Key {
    pub(crate) generation: u32,
    created: Option<Timestamp>,
}

impl Key {
    pub(crate) fn of(inode: &Inode) -> Self {
        Self {
            generation: inode.generation,
            created: inode.crtime,
        }
    }
}

/// One use of an inode's number.
#[derive(Clone, Debug)]
pub(crate) struct Life {
    pub(crate) key: Key,
    /// The last copy in the log that has content.
    pub(crate) copy: Option<(Moment, LoggedImage)>,
    /// The first moment without it.
    pub(crate) gone: Option<Moment>,
    /// In seconds since the epoch; 0 if not known.
    pub(crate) dtime: u32,
    /// When its content was changed last, as the deleted inode says.
    pub(crate) last_change: Option<Timestamp>,
    /// It is in use now.
    pub(crate) is_live: bool,
}

impl Life {
    pub(crate) fn new(key: Key) -> Self {
        Self {
            key,
            copy: None,
            gone: None,
            dtime: 0,
            last_change: None,
            is_live: false,
        }
    }
}

/// Whether an inode has content, as opposed to what is left of one that was deleted.
pub(crate) fn has_content(volume: &Volume, inode: &Inode) -> bool {
    inode.links > 0 || inode.size > 0 && !is_deleted(volume, inode)
}

/// Whether an inode says when it was deleted. Smaller numbers in the place of that time are the
/// next inode in a list of orphans.
pub(crate) fn is_deleted(volume: &Volume, inode: &Inode) -> bool {
    inode.links == 0 && inode.dtime > volume.geo.inodes_count()
}

/// All that the log says of inodes, and where its images are.
#[derive(Debug)]
pub(crate) struct Timeline {
    pub(crate) lives: HashMap<Ino, Vec<Life>>,
    /// Images of committed transactions, by the block they are of, then by moment.
    images: Vec<(u64, Moment, LoggedImage)>,
    /// Moments from which on nothing is missing.
    pub(crate) unbroken: Range<Moment>,
    /// Where inode tables begin, sorted.
    tables: Vec<(u64, Group)>,
}

impl Timeline {
    /// A timeline of a file system without a log.
    pub(crate) fn empty() -> Self {
        Self {
            lives: HashMap::new(),
            images: Vec::new(),
            unbroken: 0..0,
            tables: Vec::new(),
        }
    }

    pub(crate) fn read(volume: &Volume, journal: &Journal) -> Result<Self> {
        let history = journal.history()?;
        let mut timeline = Self {
            images: images(history),
            unbroken: history.unbroken.start as Moment..history.unbroken.end as Moment,
            tables: tables(volume),
            ..Self::empty()
        };
        let log = journal.log()?;
        let mut bytes = vec![0; volume.block_size().len()];
        // By moment, so that lives come in their order.
        let mut of_tables: Vec<_> = timeline
            .images
            .iter()
            .filter_map(|(home, at, image)| {
                Some((*at, timeline.first_inode(volume, *home)?, *image))
            })
            .collect();
        of_tables.sort_by_key(|(at, _, image)| (*at, image.home));
        for (at, (first, count), image) in of_tables {
            log.read_logged(&image, &mut bytes)
                .map_err(Error::of_journal)?;
            let size = usize::from(volume.inode_size()).max(1);
            for (slot, n) in bytes.chunks_exact(size).take(count as usize).zip(0..) {
                let ino = Ino::new(first.get().saturating_add(n));
                if ino >= volume.sb.first_ino() {
                    timeline.slot(volume, ino, slot, at, image);
                }
            }
        }
        Ok(timeline)
    }

    /// The first inode in a block of an inode table, and how many are in it.
    fn first_inode(&self, volume: &Volume, block: u64) -> Option<(Ino, u32)> {
        let at = self.tables.partition_point(|(start, _)| *start <= block);
        let (start, group) = self.tables.get(at.checked_sub(1)?)?;
        let geo = &volume.geo;
        let offset = block - start;
        if offset >= u64::from(geo.inode_table_blocks()) {
            return None;
        }
        let index = offset as u32 * geo.inodes_per_block();
        let left = geo.inodes_per_group().saturating_sub(index);
        let first = geo.inode_at(*group, index).ok()?;
        Some((first, geo.inodes_per_block().min(left)))
    }

    /// Takes a slot of a moment in.
    fn slot(&mut self, volume: &Volume, ino: Ino, slot: &[u8], at: Moment, image: LoggedImage) {
        let inode = volume.parse(slot, ino);
        let is_zero = slot.iter().all(|byte| *byte == 0);
        if inode.is_none() && !is_zero {
            // Torn, or of another file system: it says nothing.
            return;
        }
        let lives = match inode {
            Some(_) => self.lives.entry(ino).or_default(),
            None => match self.lives.get_mut(&ino) {
                Some(lives) => lives,
                None => return,
            },
        };
        let key = inode.as_ref().map(Key::of);
        if let Some(last) = lives.last_mut()
            && key != Some(last.key)
        {
            last.gone = last.gone.or(Some(at));
        }
        let Some(inode) = inode else { return };
        let key = Key::of(&inode);
        if lives.last().is_none_or(|last| last.key != key) {
            lives.push(Life::new(key));
        }
        let Some(life) = lives.last_mut() else { return };
        if has_content(volume, &inode) {
            life.copy = Some((at, image));
            life.gone = None;
        } else {
            life.gone = life.gone.or(Some(at));
            life.note_end(volume, &inode);
        }
    }

    /// The images of a block, by moment.
    pub(crate) fn images_of(&self, block: u64) -> &[(u64, Moment, LoggedImage)] {
        let from = self.images.partition_point(|(home, ..)| *home < block);
        let to = self.images.partition_point(|(home, ..)| *home <= block);
        self.images.get(from..to).unwrap_or_default()
    }

    /// The last image of a block before a moment.
    pub(crate) fn image_before(
        &self,
        block: u64,
        moment: Option<Moment>,
    ) -> Option<(Moment, LoggedImage)> {
        let images = self.images_of(block);
        let end = match moment {
            Some(moment) => images.partition_point(|(_, at, _)| *at < moment),
            None => images.len(),
        };
        let (_, at, image) = images.get(end.checked_sub(1)?)?;
        Some((*at, *image))
    }

    /// All images.
    pub(crate) fn images(&self) -> impl Iterator<Item = (Moment, LoggedImage)> + '_ {
        self.images.iter().map(|(_, at, image)| (*at, *image))
    }

    /// Whether bitmaps, inode tables, descriptors or blocks of directories differ from their last
    /// images: then they were changed past the log.
    pub(crate) fn was_passed_by(
        &self,
        volume: &Volume,
        journal: &Journal,
        tree: &Tree,
    ) -> Result<bool> {
        let log = journal.log()?;
        let mut logged = vec![0; volume.block_size().len()];
        let mut lies = logged.clone();
        let mut fixed: Vec<u64> = volume
            .groups
            .iter()
            .filter(|state| state.located)
            .flat_map(|state| [state.desc.block_bitmap.get(), state.desc.inode_bitmap.get()])
            .collect();
        let geo = &volume.geo;
        let descriptors = (0..geo.desc_blocks()).filter_map(|index| geo.desc_block(index).ok());
        fixed.extend(descriptors.map(extant_format::Pblk::get));
        fixed.sort_unstable();
        let is_directory = |home: &u64| {
            let blocks = &tree.blocks;
            blocks
                .binary_search_by_key(home, |block| block.pblk)
                .is_ok()
        };
        let records = self.images.chunk_by(|(a, ..), (b, ..)| a == b);
        for images in records {
            let Some((home, at, image)) = images.last() else {
                continue;
            };
            let is_journaled = self.first_inode(volume, *home).is_some()
                || fixed.binary_search(home).is_ok()
                || is_directory(home);
            if !self.unbroken.contains(at) || !is_journaled {
                continue;
            }
            log.read_logged(image, &mut logged)
                .map_err(Error::of_journal)?;
            volume.read(*home, &mut lies)?;
            if logged != lies {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

impl Life {
    /// Takes over what an inode without content says of its end.
    pub(crate) fn note_end(&mut self, volume: &Volume, inode: &Inode) {
        if is_deleted(volume, inode) {
            self.dtime = inode.dtime;
            self.last_change = Some(inode.mtime);
        }
    }
}

/// The images of committed transactions whose checksum is not wrong.
fn images(history: &LogHistory) -> Vec<(u64, Moment, LoggedImage)> {
    let mut images = Vec::new();
    for (found, at) in history.transactions.iter().zip(0..) {
        // Behind what recovery takes there is nothing that took effect.
        let is_past = history.unbroken.is_empty() || (at as usize) < history.unbroken.end;
        if found.committed.is_some() && is_past {
            let right = found.images.iter().filter(|i| i.check != Check::Wrong);
            images.extend(right.map(|image| (image.home.get(), at, *image)));
        }
    }
    images.sort_by_key(|(home, at, _)| (*home, *at));
    images
}

fn tables(volume: &Volume) -> Vec<(u64, Group)> {
    let groups = volume.geo.groups().zip(&volume.groups);
    let mut tables: Vec<_> = groups
        .filter(|(_, state)| state.located)
        .map(|(group, state)| (state.desc.inode_table.get(), group))
        .collect();
    tables.sort_unstable();
    tables
}

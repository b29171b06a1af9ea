//! The way from the device to a group in memory: checked, or made from the geometry where the
//! device has nothing yet.

use super::Alloc;
use super::bits::{Bitmap, is_set};
use super::buddy::Buddy;
use super::free_extents::fixed_of;
use super::group::{Loaded, Locked, Slot, State, Takers};
use super::order::Standing;
use crate::{Error, InPlace, Place, Result};
use extant_format::bitmap;
use extant_format::group_desc::{DescChecksum, GroupDesc, GroupFlags};
use extant_format::{Expected, FormatError, FormatResult, Group, Pblk, Structure};
use extant_sync::pin;
use std::ops::Range;

/// Groups whose bitmaps come together where each request takes a round trip.
const FAR_GROUPS: u32 = 16;
/// Bytes of what many groups need that are asked for together, about.
const AHEAD_BYTES: usize = 2 << 20;

impl Alloc {
    /// A group with its state, which is loaded if it is not in memory. May wait for the device.
    ///
    /// # Errors
    /// When there is no such group, the device fails, or the group is damaged; then nothing is
    /// allocated in it.
    pub(super) fn load_group(&self, group: Group) -> Result<(&Slot, &Loaded)> {
        let slot = self.slot(group)?;
        match slot.loaded() {
            Some(loaded) if !loaded.is_away() => Ok((slot, loaded)),
            known => self.load_absent(group, slot, known),
        }
    }

    #[cold]
    fn load_absent<'a>(
        &'a self,
        group: Group,
        slot: &'a Slot,
        known: Option<&'a Loaded>,
    ) -> Result<(&'a Slot, &'a Loaded)> {
        let (desc, left) = match known {
            Some(loaded) => {
                let remembered = slot.lock_remembered(loaded);
                (Ok(remembered.desc), remembered.left)
            }
            None => {
                if self.volume.device().in_flight() > 1 {
                    self.groups_ahead(group, FAR_GROUPS, 0);
                }
                (self.descriptor(group), 0)
            }
        };
        if known.is_some()
            && let Ok(desc) = &desc
        {
            // What somebody read ahead may be older than what the group was when it left.
            self.volume.cache().discard(desc.block_bitmap);
            self.volume.cache().discard(desc.inode_bitmap);
        }
        let state = desc.and_then(|desc| {
            let loading = Loading { alloc: self, group };
            loading.state(desc)
        });
        let state = match state {
            Ok(state) => state,
            Err(error) if error.is_corruption() => {
                // Somebody else may have loaded the group and changed it since the descriptor was
                // looked at.
                let is_overtaken = match known {
                    None => slot.loaded().is_some(),
                    Some(loaded) => {
                        let now = slot.lock_remembered(loaded);
                        !now.away || now.left != left
                    }
                };
                if is_overtaken {
                    return self.load_group(group);
                }
                self.give_up(slot, &error);
                return Err(error);
            }
            Err(error) => return Err(error),
        };
        let (loaded, new) = match known {
            Some(loaded) => (loaded, slot.lock_remembered(loaded).come_back(state, left)),
            None => (
                slot.publish(Box::new(Loaded::new(state, &self.index))),
                true,
            ),
        };
        if new {
            self.note_in_memory(group);
        }
        Ok((slot, loaded))
    }

    /// A group with its lock, loaded if it is not in memory. May wait for the device.
    ///
    /// # Errors
    /// As for [`load_group`](Self::load_group).
    pub(super) fn lock_group(&self, group: Group) -> Result<(&Loaded, Locked<'_>)> {
        loop {
            let (slot, loaded) = self.load_group(group)?;
            // Whose bitmaps have just come stays for a while.
            if let Some(locked) = slot.lock(loaded) {
                return Ok((loaded, locked));
            }
        }
    }
}

impl Alloc {
    /// As [`load_group`](Self::load_group), for a search that is likely to go on to the groups
    /// behind: their bitmaps, as far as they lie beside this one's, are read along with it.
    pub(super) fn load_group_ahead(&self, group: Group, most: u32) -> Result<(&Slot, &Loaded)> {
        if self.slot(group)?.loaded().is_none() {
            let desc = self.descriptor(group)?;
            for (block, what) in [
                (desc.block_bitmap, Structure::BlockBitmap),
                (desc.inode_bitmap, Structure::InodeBitmap),
            ] {
                let count = self.bitmaps_beside(group, block, what, most);
                if count > 1 {
                    self.volume.cache().prefetch(block, count);
                }
            }
        }
        self.load_group(group)
    }

    /// Brings into memory what making files in groups from `first` on takes, with few batches of
    /// reads, where each request takes a round trip: bitmaps, and the parts of the inode tables
    /// that the next `inodes` of each group come into. A hint.
    pub fn groups_ahead(&self, first: Group, count: u32, inodes: u32) {
        let geometry = self.volume.geometry();
        let end = first.get().saturating_add(count);
        let groups = first.get()..end.min(geometry.groups_count());
        self.volume.groups_ahead(groups.clone().map(Group::new));
        let most = AHEAD_BYTES / self.volume.block_size().len();
        let mut blocks = Vec::new();
        let mut bring = |group: Group, is_last: bool, add: &dyn Fn(&GroupDesc, &mut Vec<Pblk>)| {
            if let Ok(desc) = self.volume.stored_group(group) {
                add(&desc, &mut blocks);
            }
            if blocks.len() >= most || is_last {
                let blocks = std::mem::take(&mut blocks);
                self.volume.cache().prefetch_all(blocks);
            }
        };
        let last = groups.end.saturating_sub(1);
        for group in groups.clone() {
            bring(Group::new(group), group == last, &|desc, blocks| {
                if self.is_unread(Group::new(group)) {
                    blocks.extend(self.volume.stored_bitmaps(desc));
                }
            });
        }
        if inodes > 0 {
            for group in groups {
                bring(Group::new(group), group == last, &|desc, blocks| {
                    self.add_next_inodes(Group::new(group), desc, inodes, blocks);
                });
            }
        }
    }

    /// Whether nothing of a group has come into memory, so that nothing of it is in use that was
    /// not when the file system was opened.
    fn is_unread(&self, group: Group) -> bool {
        self.slot(group).is_ok_and(|slot| slot.loaded().is_none())
    }

    /// Adds the blocks of the inode table behind the inodes that were ever in use, where it is
    /// known which these are. What is going to be zeroed is not read; nor are blocks of a table
    /// that was zeroed, of which the bitmap says too that nothing was in them since: those are
    /// taken in.
    fn add_next_inodes(&self, group: Group, desc: &GroupDesc, inodes: u32, blocks: &mut Vec<Pblk>) {
        let geometry = self.volume.geometry();
        let uninit = self.volume.superblock().desc_checksum() != DescChecksum::None;
        if !uninit || !desc.flags.contains(GroupFlags::INODE_ZEROED) {
            return;
        }
        let per_group = geometry.inodes_per_group();
        let has_bitmap = !desc.flags.contains(GroupFlags::INODE_UNINIT);
        let used = if has_bitmap {
            per_group.saturating_sub(desc.itable_unused)
        } else {
            0
        };
        let per_block = geometry.inodes_per_block().max(1);
        let next = used / per_block
            ..used
                .saturating_add(inodes)
                .min(per_group)
                .div_ceil(per_block);
        let unused = used.div_ceil(per_block)..next.end;
        let at = |block: u32| desc.inode_table.get().saturating_add(block.into());
        let are_free = || {
            let bits = unused.start * per_block..(unused.end * per_block).min(per_group);
            let cache = self.volume.cache();
            let guard = pin();
            let bitmap = cache.peek(desc.inode_bitmap, &guard);
            bitmap.is_some_and(|map| {
                bitmap::count_clear(&map, bits.clone()) == bits.end.saturating_sub(bits.start)
            })
        };
        if !has_bitmap || are_free() {
            // From when it is loaded on, inodes of the group come into use.
            let unused = at(unused.start)..at(unused.end);
            let is_unread = || self.is_unread(group);
            self.volume.cache().take_in_zeros(unused, is_unread);
        }
        // What was not taken in.
        blocks.extend(next.map(|block| Pblk::new(at(block))));
    }

    /// How many bitmaps of groups from `group` on that are not in memory lie side by side from
    /// `block` on.
    fn bitmaps_beside(&self, group: Group, block: Pblk, what: Structure, most: u32) -> u32 {
        let uninit = self.volume.superblock().desc_checksum() != DescChecksum::None;
        let lies = |ahead: u32| {
            let group = Group::new(group.get().checked_add(ahead)?);
            let unread = self.slot(group).ok()?.loaded().is_none();
            let desc = self.volume.stored_group(group).ok()?;
            let (at, none) = match what {
                Structure::BlockBitmap => (desc.block_bitmap, GroupFlags::BLOCK_UNINIT),
                _ => (desc.inode_bitmap, GroupFlags::INODE_UNINIT),
            };
            let there = !(uninit && desc.flags.contains(none));
            let beside = at.get() == block.get().checked_add(ahead.into())?;
            (unread && there && beside).then_some(())
        };
        (0..most).take_while(|ahead| lies(*ahead).is_some()).count() as u32
    }
}

struct Loading<'a> {
    alloc: &'a Alloc,
    group: Group,
}

impl Loading<'_> {
    fn state(&self, desc: GroupDesc) -> Result<State> {
        let geometry = self.alloc.volume.geometry();
        let place = Place::Group(self.group);
        let clusters = geometry.clusters_in_group(self.group).in_place(place)?;
        let blocks = self.blocks(&desc, clusters)?;
        let inodes = self.inodes(&desc)?;
        let per_group = geometry.inodes_per_group();
        let has_uninit = self.has_uninit();
        let used = match has_uninit {
            true if desc.flags.contains(GroupFlags::INODE_UNINIT) => 0,
            true => per_group.saturating_sub(desc.itable_unused),
            false => per_group,
        };
        let per_block = geometry.inodes_per_block().max(1);
        let zeroed = !has_uninit || desc.flags.contains(GroupFlags::INODE_ZEROED);
        Ok(State {
            space: Buddy::of_used(blocks.bits(), clusters),
            standing: Standing::guess(desc.free_clusters),
            moved: true,
            away: false,
            left: 0,
            before: blocks.clone(),
            blocks,
            inodes,
            blocks_changed: false,
            inodes_changed: false,
            inodes_used_below: 0,
            takers: Takers::default(),
            // A block with records in use holds nothing but records and zeros.
            table_sound: if zeroed {
                per_group
            } else {
                used.next_multiple_of(per_block).min(per_group)
            },
            has_uninit,
            desc,
        })
    }

    /// Whether parts of the group may be uninitialised: only checksums make that safe.
    fn has_uninit(&self) -> bool {
        self.alloc.volume.superblock().desc_checksum() != DescChecksum::None
    }

    fn blocks(&self, desc: &GroupDesc, clusters: u32) -> Result<Bitmap> {
        let place = Place::Group(self.group);
        let uninit = self.has_uninit() && desc.flags.contains(GroupFlags::BLOCK_UNINIT);
        let blocks = if uninit {
            let mut bits = vec![0; self.alloc.volume.block_size().len()];
            for run in fixed_of(&self.alloc.volume, self.group, &self.alloc.kept)? {
                bitmap::set_range(&mut bits, run);
            }
            bitmap::set_padding(&mut bits, clusters);
            Bitmap::new(&bits)
        } else {
            let what = Structure::BlockBitmap;
            let bitmap = self.read(desc.block_bitmap, what)?;
            let per_group = self.alloc.volume.geometry().clusters_per_group();
            self.check_sum(&bitmap, what, per_group, desc)?;
            for run in fixed_of(&self.alloc.volume, self.group, &self.alloc.kept)? {
                self.check_fixed(&bitmap, run).in_place(place)?;
            }
            bitmap
        };
        let found = desc.free_clusters;
        self.check_bits(&blocks, Structure::BlockBitmap, clusters, found)
            .in_place(place)?;
        Ok(blocks)
    }

    fn inodes(&self, desc: &GroupDesc) -> Result<Bitmap> {
        let per_group = self.alloc.volume.geometry().inodes_per_group();
        let what = Structure::InodeBitmap;
        let uninit = self.has_uninit() && desc.flags.contains(GroupFlags::INODE_UNINIT);
        let inodes = if uninit {
            let mut bits = vec![0; self.alloc.volume.block_size().len()];
            bitmap::set_padding(&mut bits, per_group);
            Bitmap::new(&bits)
        } else {
            let bitmap = self.read(desc.inode_bitmap, what)?;
            self.check_sum(&bitmap, what, per_group, desc)?;
            bitmap
        };
        self.check_bits(&inodes, what, per_group, desc.free_inodes)
            .in_place(Place::Group(self.group))?;
        Ok(inodes)
    }

    /// Reads a bitmap. It lives in the group from then on, not in the cache.
    fn read(&self, block: Pblk, what: Structure) -> Result<Bitmap> {
        let place = Place::Group(self.group);
        let bytes = self
            .alloc
            .volume
            .metadata(block, place, what, None, |_| Ok(()))?;
        let bitmap = Bitmap::new(&bytes);
        drop(bytes);
        self.alloc.volume.cache().discard(block);
        Ok(bitmap)
    }

    fn check_sum(&self, map: &Bitmap, what: Structure, bits: u32, desc: &GroupDesc) -> Result<()> {
        if !self.alloc.volume.superblock().has_metadata_csum() {
            return Ok(());
        }
        let computed = map.checksum(self.alloc.volume.superblock().checksum_seed(), bits);
        let size = self.alloc.volume.geometry().desc_size();
        let (stored, matches) = if what == Structure::BlockBitmap {
            let matches = desc.block_bitmap_csum_matches(computed, size);
            (desc.block_bitmap_csum, matches)
        } else {
            let matches = desc.inode_bitmap_csum_matches(computed, size);
            (desc.inode_bitmap_csum, matches)
        };
        if matches {
            return Ok(());
        }
        let source = FormatError::checksum(what, stored, computed);
        Err(Error::corrupt(Place::Group(self.group), source))
    }

    /// Checks that the bits past `valid` are set, and that `free` of the others are clear.
    fn check_bits(&self, map: &Bitmap, what: Structure, valid: u32, free: u32) -> FormatResult<()> {
        if !bitmap::padding_is_set(map.bits(), valid) {
            let expected = Expected::Said("ones to the end of the block");
            return Err(FormatError::new(what, "padding", 0, expected));
        }
        let clear = bitmap::count_clear(map.bits(), 0..valid);
        if clear != free {
            let expected = Expected::Exactly(free.into());
            return Err(FormatError::new(what, "free count", clear.into(), expected));
        }
        Ok(())
    }

    /// Checks that clusters of fixed metadata are in use.
    fn check_fixed(&self, map: &Bitmap, run: Range<u32>) -> FormatResult<()> {
        if is_set(map.bits(), run.clone()) {
            return Ok(());
        }
        let what = Structure::BlockBitmap;
        let clear = bitmap::next_clear(map.bits(), run.start, run.end).unwrap_or(run.start);
        let expected = Expected::Said("in use, as the file system's own metadata lies there");
        Err(FormatError::new(
            what,
            "free cluster",
            clear.into(),
            expected,
        ))
    }
}

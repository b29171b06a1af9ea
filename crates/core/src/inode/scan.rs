//! Every inode of a group, straight from the inode table.
//!
//! Looking at all inodes of a large file system through the cache would throw out everything else
//! in it. This reads a group's bitmap and the used part of its table in a few large reads and hands
//! out the inodes in use one by one. On a file system open for writing, what is newer in memory
//! goes over what was read: blocks that wait for their checkpoint, and inodes that changed.

use super::Inode;
use crate::fs::Fs;
use crate::{Error, Place, Result};
use extant_format::bitmap;
use extant_format::group_desc::GroupFlags;
use extant_format::{FormatError, Group, Ino, Pblk, Structure};
use extant_sync::pin;

/// Most bytes of an inode table in memory at once.
const WINDOW_BYTES: u32 = 1 << 20;

/// The inodes in use of one group, ascending by number. See [`Fs::group_inodes`].
#[derive(Debug)]
pub struct GroupInodes<'a> {
    fs: &'a Fs,
    group: Group,
    bitmap: Vec<u8>,
    /// First byte of the inode table.
    table: u64,
    /// Indexes not looked at yet.
    next: u32,
    end: u32,
    window: Vec<u8>,
    /// Indexes the window holds.
    window_first: u32,
    window_end: u32,
}

/// Which inodes of a group are in use, and where their records are.
#[derive(Debug)]
pub(super) struct InUse {
    /// By index in the group; empty if none is.
    pub(super) bitmap: Vec<u8>,
    /// No inode from here on has ever been in use.
    pub(super) end: u32,
    /// First block of the inode table.
    pub(super) table: Pblk,
}

impl Fs {
    /// Says whether the bitmap has the inode of this number in use. There need be no such number.
    ///
    /// # Errors
    /// When the descriptor or the bitmap of its group is wrong, or the device fails.
    pub fn is_in_use(&self, ino: Ino) -> Result<bool> {
        let Ok(at) = self.geometry().locate_inode(ino) else {
            return Ok(false);
        };
        let in_use = self.inodes_in_use(at.group)?;
        let index = (ino.get() - 1) % self.geometry().inodes_per_group();
        let byte = in_use.bitmap.get(index as usize / 8).copied().unwrap_or(0);
        Ok(index < in_use.end && byte >> (index % 8) & 1 == 1)
    }

    /// The inodes in use of `group`, as its bitmap says, read in large pieces around the cache.
    ///
    /// Each item is the number and the inode, or what is wrong with it: one bad record does not
    /// end the walk. Reserved inodes that have never been written are left out.
    ///
    /// # Errors
    /// When the descriptor or the bitmap is wrong, or the device fails.
    pub fn group_inodes(&self, group: Group) -> Result<GroupInodes<'_>> {
        let in_use = self.inodes_in_use(group)?;
        let table = self
            .block_size()
            .offset_of(in_use.table)
            .unwrap_or(u64::MAX);
        Ok(GroupInodes {
            fs: self,
            group,
            bitmap: in_use.bitmap,
            table,
            next: 0,
            end: in_use.end,
            window: Vec::new(),
            window_first: 0,
            window_end: 0,
        })
    }

    /// Which inodes of `group` are in use.
    ///
    /// # Errors
    /// When the descriptor or the bitmap is wrong, or the device fails.
    pub(super) fn inodes_in_use(&self, group: Group) -> Result<InUse> {
        let desc = self.group(group)?;
        let per_group = self.geometry().inodes_per_group();
        let has_checksum = !matches!(
            self.superblock().desc_checksum(),
            extant_format::group_desc::DescChecksum::None
        );
        let (bitmap, end) = if let Some((bits, unused)) = self
            .alloc_if_any()
            .and_then(|alloc| alloc.live_inode_bitmap(group))
        {
            (bits.to_vec(), per_group.saturating_sub(unused))
        } else if desc.flags.contains(GroupFlags::INODE_UNINIT) && has_checksum {
            (Vec::new(), 0)
        } else {
            let unused = if has_checksum { desc.itable_unused } else { 0 };
            let place = Place::Group(group);
            let read = self.metadata(
                desc.inode_bitmap,
                place,
                Structure::InodeBitmap,
                None,
                |bytes| {
                    let Some(seed) = self.checksum_seed() else {
                        return Ok(());
                    };
                    let computed = bitmap::checksum(seed.value(), bytes, per_group);
                    if desc.inode_bitmap_csum_matches(computed, self.geometry().desc_size()) {
                        Ok(())
                    } else {
                        Err(FormatError::checksum(
                            Structure::InodeBitmap,
                            desc.inode_bitmap_csum,
                            computed,
                        ))
                    }
                },
            );
            match (
                read,
                self.alloc_if_any()
                    .and_then(|alloc| alloc.live_inode_bitmap(group)),
            ) {
                (Ok(block), _) => (block.to_vec(), per_group.saturating_sub(unused)),
                // Somebody brought the group into memory and changed it since the descriptor was
                // read.
                (Err(_), Some((bits, unused))) => (bits.to_vec(), per_group.saturating_sub(unused)),
                (Err(e), None) => return Err(e),
            }
        };
        Ok(InUse {
            bitmap,
            end,
            table: desc.inode_table,
        })
    }

    /// Reads a piece of an inode table around the cache, with what is newer in memory over it.
    ///
    /// # Errors
    /// When the device fails.
    pub(super) fn read_table(&self, offset: u64, window: &mut [u8]) -> Result<()> {
        // First what is in memory: an image that goes home meanwhile is found on the device.
        let newer = newer_blocks(self, offset, window.len());
        self.device().read_at(offset, window)?;
        for (at, image) in newer {
            overlay(window, offset, at, &image);
        }
        Ok(())
    }
}

impl GroupInodes<'_> {
    /// The record at `index` of the table.
    fn slot(&mut self, index: u32) -> Result<&[u8]> {
        let size = self.fs.geometry().inode_size();
        if !(self.window_first..self.window_end).contains(&index) {
            let count = (WINDOW_BYTES / size.max(1)).max(1).min(self.end - index);
            self.window.resize((count * size) as usize, 0);
            self.window_end = 0;
            let offset = self
                .table
                .saturating_add(u64::from(index) * u64::from(size));
            self.fs.read_table(offset, &mut self.window)?;
            self.window_first = index;
            self.window_end = index + count;
        }
        let at = ((index - self.window_first) * size) as usize;
        Ok(self.window.get(at..at + size as usize).unwrap_or(&[]))
    }
}

/// Blocks of `len` bytes from `offset` on that are newer in memory than on the device, each with
/// the offset on the device. Nothing for a file system open for reading.
fn newer_blocks(fs: &Fs, offset: u64, len: usize) -> Vec<(u64, Box<[u8]>)> {
    let mut newer = Vec::new();
    if fs.journal().is_err() {
        return newer;
    }
    let block_size = fs.block_size();
    let end = offset.saturating_add(len as u64);
    let mut image = vec![0; block_size.len()].into_boxed_slice();
    // Once for all blocks: nothing here waits.
    let _guard = pin();
    for block in offset >> block_size.log2()..block_size.blocks_for(end) {
        if fs.cache().newer_than_device(Pblk::new(block), &mut image) {
            newer.push((block << block_size.log2(), image));
            image = vec![0; block_size.len()].into_boxed_slice();
        }
    }
    newer
}

/// Puts `image`, which lies at `at`, over the part of it that `window` holds, which lies at
/// `offset`.
fn overlay(window: &mut [u8], offset: u64, at: u64, image: &[u8]) {
    let into = at.saturating_sub(offset) as usize;
    let from = offset.saturating_sub(at) as usize;
    let to = window.get_mut(into..).unwrap_or_default();
    for (to, from) in to.iter_mut().zip(image.get(from..).unwrap_or_default()) {
        *to = *from;
    }
}

impl Iterator for GroupInodes<'_> {
    type Item = (Ino, Result<Inode>);

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let index = bitmap::next_set(&self.bitmap, self.next, self.end)?;
            self.next = index + 1;
            let ino = match self.fs.geometry().inode_at(self.group, index) {
                Ok(ino) => ino,
                Err(e) => {
                    return Some((
                        Ino::new(0),
                        Err(Error::corrupt(Place::Group(self.group), e)),
                    ));
                }
            };
            let fs = self.fs;
            let writable = fs.journal().is_ok();
            if writable && let Some(live) = fs.inode_table().get_live(ino) {
                let inode = live.snapshot();
                // Without a name it is about to go, or has gone.
                if inode.disk.links == 0 {
                    continue;
                }
                return Some((ino, Ok(Inode::clone(&inode))));
            }
            let inode = match self.slot(index) {
                Ok(slot) => match fs.parse_inode(ino, slot) {
                    // Perhaps read while it was written: what the cache finds counts.
                    Err(e) if writable && e.is_corruption() => {
                        fs.inode(ino).map(|inode| Inode::clone(&inode))
                    }
                    parsed => parsed,
                },
                Err(e) => {
                    // The rest of the table would fail the same way.
                    self.next = self.end;
                    Err(e)
                }
            };
            if writable && matches!(inode, Err(Error::Stale)) {
                // Deleted since the bitmap was read.
                continue;
            }
            let reserved = ino < fs.superblock().first_ino();
            if !(reserved && matches!(inode, Err(Error::Stale))) {
                return Some((ino, inode));
            }
        }
    }
}

impl Fs {
    /// All inodes in use, group by group; see [`Fs::group_inodes`].
    pub fn inodes(&self) -> impl Iterator<Item = (Ino, Result<Inode>)> + '_ {
        self.geometry().groups().flat_map(|group| {
            let (walk, error) = match self.group_inodes(group) {
                Ok(walk) => (Some(walk), None),
                Err(e) => {
                    let first = self.geometry().inode_at(group, 0).unwrap_or_default();
                    (None, Some((first, Err(e))))
                }
            };
            walk.into_iter().flatten().chain(error)
        })
    }
}

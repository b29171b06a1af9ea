//! Taking inodes and freeing them.

use super::Alloc;
use super::mix;
use super::orlov::Parent;
use crate::journal::Handle;
use crate::{Error, InPlace, Place, Result};
use extant_format::bitmap;
use extant_format::{Expected, FormatError, Group, Ino, Structure};
use extant_sync::{cpu_hint, shard_count};
use std::sync::atomic::Ordering;

impl Alloc {
    /// Takes an inode for a new file in `parent`, in the transaction of `handle`: a
    /// directory where Orlov's rule says, anything else near its parent. Changes one group and the
    /// superblock. May wait for the device.
    ///
    /// If what it is for fails, [`free_inode`](Self::free_inode) under the same handle undoes it.
    ///
    /// # Errors
    /// [`Error::NoSpace`] when there is no free inode.
    pub fn take_inode(&self, handle: &Handle<'_>, parent: Parent, is_dir: bool) -> Result<Ino> {
        let cpu = cpu_hint() % shard_count().max(1);
        self.take_inode_on(cpu, handle, parent, is_dir)
    }

    /// Takes an inode as [`take_inode`](Self::take_inode) does, for a CPU that may be another one
    /// than that of the caller.
    pub fn take_inode_on(
        &self,
        cpu: usize,
        handle: &Handle<'_>,
        parent: Parent,
        is_dir: bool,
    ) -> Result<Ino> {
        let mut failed = None;
        for group in self.inode_groups(parent, is_dir, cpu, handle.seq()) {
            match self.take_inode_in(handle, group, is_dir, cpu) {
                Ok(Some(ino)) => return Ok(ino),
                Ok(None) => {}
                // A damaged group is left out, and known as such from now on.
                Err(error) if error.is_corruption() => {}
                Err(error) => failed = Some(error),
            }
        }
        Err(failed.unwrap_or(Error::NoSpace))
    }

    fn take_inode_in(
        &self,
        handle: &Handle<'_>,
        group: Group,
        is_dir: bool,
        cpu: usize,
    ) -> Result<Option<Ino>> {
        if self.slot(group)?.free_inodes() == 0 {
            return Ok(None);
        }
        let (slot, loaded) = self.load_group(group)?;
        let geometry = self.volume.geometry();
        let lowest = self.lowest_inode(group);
        loop {
            let Some(mut state) = slot.lock(loaded) else {
                self.load_group(group)?;
                continue;
            };
            let Some(index) = state.find_inode(lowest, geometry, cpu) else {
                return Ok(None);
            };
            if index >= state.table_sound {
                drop(state);
                self.zero_table(slot, loaded, index)?;
                continue;
            }
            // Only now: a group that has no inode to give does not belong in the transaction.
            self.touch_group(handle, group, loaded);
            handle.touch_superblock();
            let met = state.take_inode(index, lowest, is_dir, geometry, cpu);
            if met && !is_dir && self.avoid_for_a_while(group, cpu, handle.seq()) {
                state.takers.one_left();
            }
            drop(state);
            self.free_inodes.dec();
            if is_dir {
                self.dirs.inc();
            }
            return geometry
                .inode_at(group, index)
                .map(Some)
                .in_place(Place::Group(group));
        }
    }

    /// Frees an inode that nobody holds or names, in the transaction of `handle`. Changes its group
    /// and the superblock.
    ///
    /// # Errors
    /// When it is no inode, one of the reserved ones, or not in use; then nothing is changed.
    pub fn free_inode(&self, handle: &Handle<'_>, ino: Ino, is_dir: bool) -> Result<()> {
        let place = Place::Inode(ino);
        let at = self.volume.geometry().locate_inode(ino).in_place(place)?;
        let wrong = |said| {
            let expected = Expected::Said(said);
            let found = ino.get().into();
            let source = FormatError::new(Structure::InodeBitmap, "freed inode", found, expected);
            Error::corrupt(place, source)
        };
        if at.index < self.lowest_inode(at.group) {
            return Err(wrong("an inode that files may have, not a reserved one"));
        }
        let (loaded, mut state) = self.lock_group(at.group)?;
        if !bitmap::test(state.inodes.bits(), at.index) {
            drop(state);
            return Err(wrong("an inode in use"));
        }
        self.touch_group(handle, at.group, loaded);
        handle.touch_superblock();
        state.free_inode(at.index, is_dir);
        drop(state);
        self.free_inodes.inc();
        if is_dir {
            self.dirs.add(-1);
        }
        Ok(())
    }

    /// Whether the bitmap says that an inode is in use. May wait for the device.
    ///
    /// # Errors
    /// When there is no such inode, or its group is damaged or cannot be read.
    pub fn is_inode_in_use(&self, ino: Ino) -> Result<bool> {
        let at = self
            .volume
            .geometry()
            .locate_inode(ino)
            .in_place(Place::Inode(ino))?;
        let (_, state) = self.lock_group(at.group)?;
        Ok(bitmap::test(state.inodes.bits(), at.index))
    }

    /// A generation for a new inode: another one than an earlier inode of that number had, most
    /// likely.
    pub fn new_generation(&self, ino: Ino) -> u32 {
        let shard = self.generations.local_index() as u64;
        let nth = self.generations.local();
        // Lost increments do no harm: the inode's number is in it too.
        let n = nth.load(Ordering::Relaxed).wrapping_add(1);
        nth.store(n, Ordering::Relaxed);
        let hash = mix(self.seed ^ mix(n << 8 | shard) ^ u64::from(ino.get()) << 32);
        // Both halves take part.
        (hash ^ hash >> 32) as u32
    }

    /// The first index in the group's table that a file may have.
    fn lowest_inode(&self, group: Group) -> u32 {
        let first = u64::from(self.volume.superblock().first_ino().get()).saturating_sub(1);
        let before = u64::from(group.get()) * u64::from(self.volume.geometry().inodes_per_group());
        u32::try_from(first.saturating_sub(before)).unwrap_or(u32::MAX)
    }
}

//! The kinds of metadata that the journal carries for a file system besides whole blocks.
//!
//! | kind | registered | encoded |
//! |---|---|---|
//! | inodes | in lists of [`RegisteredInodes`](crate::inode::RegisteredInodes) | records into blocks of the inode table, and what they change of quotas |
//! | blocks of the orphan file | by number | their slots |
//! | groups | by number | bitmaps and blocks of descriptors |
//! | the superblock | as a flag of its state | the block that holds it |
//!
//! Inodes come first, as a large one may change the superblock, which comes last.

use super::{Fs, WriteState};
use crate::Result;
use crate::inode::{CapturedSlots, ORPHAN_BLOCKS, RegisteredInode, capture_inodes};
use crate::journal::{CapturedItem, Images, LogItem, Numbers};
use crate::meta::Seq;
use crate::mutants::{Mutant, is_on};
use crate::volume::{SuperCounts, SuperState};
use extant_format::Pblk;
use extant_format::features::RoCompat;
use extant_format::superblock::Superblock;

/// All kinds of a file system.
pub(super) struct Kinds<'f> {
    inodes: Inodes<'f>,
    orphans: OrphanBlocks<'f>,
    superblock: SuperblockItem<'f>,
    write_state: &'f WriteState,
}

impl<'f> Kinds<'f> {
    pub(super) fn of(fs: &'f Fs, write_state: &'f WriteState) -> Self {
        Self {
            inodes: Inodes { fs, write_state },
            orphans: OrphanBlocks { fs, write_state },
            superblock: SuperblockItem { write_state },
            write_state,
        }
    }

    /// The kinds, in the order in which they are captured and encoded.
    pub(super) fn list(&self) -> [&dyn LogItem; 4] {
        [
            &self.inodes,
            &self.orphans,
            &*self.write_state.alloc,
            &self.superblock,
        ]
    }
}

struct Inodes<'f> {
    fs: &'f Fs,
    write_state: &'f WriteState,
}

struct CapturedInodes<'f> {
    fs: &'f Fs,
    /// The records, as each CPU shard registered them.
    inodes: Vec<Vec<RegisteredInode>>,
}

impl LogItem for Inodes<'_> {
    fn has_changes(&self) -> bool {
        self.write_state.registered_inodes.has_any()
    }

    fn capture(&self, _: Seq, _: &mut Numbers) -> Result<Option<Box<dyn CapturedItem + '_>>> {
        let mut inodes = self.write_state.registered_inodes.take();
        for inodes in &mut inodes {
            capture_inodes(inodes);
        }
        // The first one that is too large without the feature, which Linux turns on then.
        if !self.fs.superblock().has_ro_compat(RoCompat::LARGE_FILE)
            && inodes.iter().flatten().any(RegisteredInode::is_large)
        {
            self.write_state
                .super_state
                .note_ro_compat(RoCompat::LARGE_FILE);
        }
        Ok(Some(Box::new(CapturedInodes {
            fs: self.fs,
            inodes,
        })))
    }

    fn committed(&self, seq: Seq) {
        self.fs.inode_table().set_durable(seq);
    }
}

impl CapturedItem for CapturedInodes<'_> {
    fn encode(self: Box<Self>, seq: Seq, images: &mut Images) -> Result<()> {
        let mut tables = self.fs.encode_inodes(&self.inodes, seq)?;
        if is_on(Mutant::RecordsSkipped) {
            tables.truncate(1);
        }
        if self.fs.counts_usage() {
            let tally = self.fs.tally_usage(&self.inodes);
            let quotas = self.fs.encode_quotas(&tally, seq)?;
            if !is_on(Mutant::UsageNotLogged) {
                // Blocks that the files have got in this transaction: what is in them now counts.
                images.replace_cached(quotas);
            }
        }
        images.add_cached(tables);
        Ok(())
    }
}

struct OrphanBlocks<'f> {
    fs: &'f Fs,
    write_state: &'f WriteState,
}

struct CapturedOrphans<'f> {
    fs: &'f Fs,
    slots: Vec<CapturedSlots>,
}

impl LogItem for OrphanBlocks<'_> {
    fn capture(&self, _: Seq, numbers: &mut Numbers) -> Result<Option<Box<dyn CapturedItem + '_>>> {
        let slots = self
            .write_state
            .orphans
            .capture(numbers.take(ORPHAN_BLOCKS));
        Ok(if slots.is_empty() {
            None
        } else {
            Some(Box::new(CapturedOrphans { fs: self.fs, slots }))
        })
    }
}

impl CapturedItem for CapturedOrphans<'_> {
    fn encode(self: Box<Self>, seq: Seq, images: &mut Images) -> Result<()> {
        images.add_cached(self.fs.encode_orphan_blocks(self.slots, seq)?);
        Ok(())
    }
}

struct SuperblockItem<'f> {
    write_state: &'f WriteState,
}

/// The superblock of this moment, which must be one without handles.
fn capture_superblock(write_state: &WriteState) -> Superblock {
    let state = &*write_state.super_state;
    let free = write_state.alloc.free_counts();
    let orphans = &write_state.orphans;
    state.capture(&SuperCounts {
        free_blocks: free.blocks,
        free_inodes: free.inodes,
        orphan_head: orphans.head(),
        // A look at every slot, while everybody waits: only where it is asked.
        is_orphan_file_empty: state.is_clean_at_commit() && orphans.is_file_empty(),
    })
}

impl Fs {
    /// Returns the block that has the superblock, and what it is to have by now, while nobody
    /// changes anything.
    ///
    /// # Errors
    /// [`Error::ReadOnly`](crate::Error::ReadOnly) on a file system open for reading only.
    pub(crate) fn superblock_now(&self) -> Result<(Pblk, Box<[u8]>)> {
        let write_state = self.write_state()?;
        let state = &*write_state.super_state;
        let superblock = capture_superblock(write_state);
        Ok((state.block(), state.encode(&superblock)))
    }
}

struct CapturedSuperblock<'f> {
    state: &'f SuperState,
    superblock: Superblock,
}

impl LogItem for SuperblockItem<'_> {
    fn has_changes(&self) -> bool {
        self.write_state.super_state.is_touched()
    }

    fn capture(&self, _: Seq, _: &mut Numbers) -> Result<Option<Box<dyn CapturedItem + '_>>> {
        let state = &*self.write_state.super_state;
        if !state.is_touched() {
            return Ok(None);
        }
        let superblock = capture_superblock(self.write_state);
        Ok(Some(Box::new(CapturedSuperblock { state, superblock })))
    }
}

impl CapturedItem for CapturedSuperblock<'_> {
    fn encode(self: Box<Self>, _: Seq, images: &mut Images) -> Result<()> {
        let bytes = self.state.encode(&self.superblock);
        images.add(self.state.block(), bytes.into());
        Ok(())
    }
}

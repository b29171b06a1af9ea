//! What commit takes while handles are drained: references to images, nothing copied, nothing read.

use super::touched::Touched;
use super::{Journal, Seq};
use crate::Result;
use crate::alloc::GroupImage;
use crate::fs::Fs;
use crate::inode::{CapturedSlots, RegisteredInode, capture_inodes};
use crate::meta::BlockRef;
use extant_format::Pblk;
use extant_format::features::RoCompat;
use extant_format::superblock::Superblock;
use extant_sync::pin;
use std::time::Instant;

/// A transaction that no handle can change any more.
pub(super) struct Captured {
    pub(super) seq: Seq,
    /// Its images of blocks, ascending.
    pub(super) blocks: Vec<BlockRef>,
    /// The records of its inodes, as each CPU shard registered them.
    pub(super) inodes: Vec<Vec<RegisteredInode>>,
    /// Its groups.
    pub(super) groups: Vec<GroupImage>,
    /// Its blocks of the orphan file.
    pub(super) orphans: Vec<CapturedSlots>,
    /// Blocks that are metadata no longer, ascending.
    pub(super) revoked: Vec<Pblk>,
    /// The superblock with the counts of this moment.
    pub(super) superblock: Option<Superblock>,
}

/// Ends the running transaction and begins the next; `None` if nothing was registered.
///
/// # Errors
/// When something registered has no image, which is a defect of who registered it. The transaction is
/// lost then.
pub(super) fn capture(fs: &Fs, journal: &Journal) -> Result<Option<Captured>> {
    let closing = Instant::now();
    journal.gate.close();
    journal.gate.wait_drained();
    let drained = Instant::now();
    let seq = journal.running();
    let mut touched = Touched::default();
    let mut inodes = Vec::new();
    for shard in journal.touched.iter() {
        inodes.push(touched.append(&mut shard.lock()));
    }
    let captured = if touched.is_empty() && inodes.iter().all(Vec::is_empty) {
        Ok(None)
    } else {
        let captured = take(fs, seq, touched, inodes);
        journal.begin(seq.next());
        captured.map(Some)
    };
    if let Err(cause) = &captured {
        // Before anybody gets in again.
        journal.abort(cause.clone());
    }
    journal.gate.open();
    if let Ok(Some(_)) = captured {
        let now = Instant::now();
        journal.counters.window(now - drained, now - closing);
    }
    Ok(captured?.map(Captured::sorted))
}

fn take(
    fs: &Fs,
    seq: Seq,
    touched: Touched,
    mut inodes: Vec<Vec<RegisteredInode>>,
) -> Result<Captured> {
    for inodes in &mut inodes {
        capture_inodes(inodes);
    }
    let guard = pin();
    // A block without an image of this transaction was revoked after it was registered.
    let mut blocks = Vec::with_capacity(touched.blocks.len());
    let images = touched
        .blocks
        .iter()
        .filter_map(|block| fs.cache().newest(*block, &guard))
        .filter(|image| image.seq() == seq);
    blocks.extend(images);
    drop(guard);
    let groups = touched.groups.iter().map(|group| fs.group_image(*group));
    let needs_feature = needs_large_file(fs, &inodes);
    if needs_feature {
        fs.super_state()?.note_large_file();
    }
    let superblock = match touched.superblock || needs_feature {
        true => Some(fs.super_state()?.capture(fs)?),
        false => None,
    };
    Ok(Captured {
        seq,
        blocks,
        inodes,
        groups: groups.collect::<Result<_>>()?,
        orphans: fs.orphans()?.capture(touched.orphan_blocks),
        revoked: touched.revoked,
        superblock,
    })
}

/// Whether one of the inodes is the first that is too large without the feature `large_file`, which Linux turns on then.
fn needs_large_file(fs: &Fs, inodes: &[Vec<RegisteredInode>]) -> bool {
    !fs.superblock().has_ro_compat(RoCompat::LARGE_FILE)
        && inodes.iter().flatten().any(RegisteredInode::is_large)
}

impl Captured {
    /// The same in order, each block once, with the gate open again.
    fn sorted(mut self) -> Self {
        self.blocks.sort_unstable_by_key(BlockRef::block);
        self.blocks.dedup_by_key(|image| image.block());
        self.revoked.sort_unstable();
        self.revoked.dedup();
        // A block that was revoked and became metadata again is in the log anew: that image must
        // be replayed, and covers the earlier ones.
        let blocks = &self.blocks;
        self.revoked
            .retain(|block| blocks.binary_search_by_key(block, BlockRef::block).is_err());
        self
    }
}

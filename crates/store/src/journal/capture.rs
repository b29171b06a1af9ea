//! What commit takes while handles are drained: references to images, nothing copied, nothing read.

use super::item::{CapturedItem, LogItems, Numbers};
use super::touched::Touched;
use super::{Journal, Seq};
use crate::Result;
use crate::meta::BlockRef;
use extant_format::Pblk;
use extant_sync::pin;
use std::time::Instant;

/// A transaction that no handle can change any more.
pub(super) struct Captured<'i> {
    pub(super) seq: Seq,
    /// Its images of blocks, ascending.
    pub(super) blocks: Vec<BlockRef>,
    /// What the kinds of metadata captured.
    pub(super) items: Vec<Box<dyn CapturedItem + 'i>>,
    /// Blocks that are metadata no longer, ascending.
    pub(super) revoked: Vec<Pblk>,
}

impl Journal {
    /// Ends the running transaction and begins the next; `None` if nothing was registered.
    ///
    /// # Errors
    /// When something registered has no image, which is a defect of what registered it. The
    /// transaction is lost then.
    pub(super) fn capture<'i>(&self, items: &LogItems<'i>) -> Result<Option<Captured<'i>>> {
        let closing = Instant::now();
        self.gate.close();
        self.gate.wait_drained();
        let drained = Instant::now();
        let seq = self.running();
        let mut touched = Touched::default();
        for shard in self.touched.iter() {
            touched.append(&mut shard.lock());
        }
        let captured = if touched.is_empty() && !items.iter().any(|item| item.has_changes()) {
            Ok(None)
        } else {
            let captured = self.take(items, seq, touched);
            self.begin(seq.next());
            captured.map(Some)
        };
        if let Err(cause) = &captured {
            // Before anybody gets in again.
            self.abort(cause.clone());
        }
        self.gate.open();
        if let Ok(Some(_)) = captured {
            let now = Instant::now();
            self.counters.window(now - drained, now - closing);
        }
        Ok(captured?.map(Captured::sorted))
    }

    fn take<'i>(
        &self,
        items: &LogItems<'i>,
        seq: Seq,
        mut touched: Touched,
    ) -> Result<Captured<'i>> {
        let mut numbers = Numbers::of(&mut touched);
        let mut captured = Vec::with_capacity(items.len());
        for item in items {
            captured.extend(item.capture(seq, &mut numbers)?);
        }
        let guard = pin();
        // A block without an image of this transaction was revoked after it was registered.
        let mut blocks = Vec::with_capacity(touched.blocks.len());
        let images = touched
            .blocks
            .iter()
            .filter_map(|block| self.volume.cache().newest(*block, &guard))
            .filter(|image| image.seq() == seq);
        blocks.extend(images);
        drop(guard);
        Ok(Captured {
            seq,
            blocks,
            items: captured,
            revoked: touched.revoked,
        })
    }
}

impl Captured<'_> {
    /// Brings blocks in order, each once, with the gate open again.
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

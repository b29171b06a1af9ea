//! What the running transaction has changed.

use super::item::NUMBER_LISTS;
use extant_format::Pblk;

/// What threads of one CPU shard registered in the running transaction, but for kinds of metadata
/// that keep lists of their own. Commit takes the lists of all shards when the gate is closed and
/// drained.
#[derive(Debug, Default)]
pub(super) struct Touched {
    /// Blocks whose newest image is in the metadata cache.
    pub(super) blocks: Vec<Pblk>,
    /// Objects by number, for kinds that are registered so.
    pub(super) numbers: [Vec<u32>; NUMBER_LISTS],
    /// Blocks that no longer are metadata: their images, in this transaction and in the log, are
    /// void.
    pub(super) revoked: Vec<Pblk>,
}

impl Touched {
    /// Whether nothing is registered.
    pub(super) fn is_empty(&self) -> bool {
        self.blocks.is_empty() && self.revoked.is_empty() && self.numbers.iter().all(Vec::is_empty)
    }

    /// Takes all that `other` holds.
    pub(super) fn append(&mut self, other: &mut Self) {
        self.blocks.append(&mut other.blocks);
        self.revoked.append(&mut other.revoked);
        for (all, more) in self.numbers.iter_mut().zip(&mut other.numbers) {
            all.append(more);
        }
    }
}

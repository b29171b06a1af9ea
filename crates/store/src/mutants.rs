//! Deliberate mistakes of the engine, for a test that must find them.
//!
//! Without the feature `mutants` none can be made: the question is answered at compile time.

/// A mistake. Those of writing the log are in `extant_jbd2::mutants`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Mutant {
    /// What a transaction frees gets no revoke record.
    RevokesSkipped = 1,
    /// Blocks go home before their transaction is durable.
    CheckpointTooEarly,
    /// The log's tail passes transactions that are not home.
    TailTooEarly,
    /// The tail follows home writes that nobody flushed.
    HomeNotFlushed,
    /// Freed blocks are handed out before the transaction that frees them is durable.
    FreedTooEarly,
    /// The bitmap of what may be handed out is stored in place of that of what is in use.
    AllocatorBitmapStored,
    /// Bitmaps are logged without their descriptors.
    DescriptorsSkipped,
    /// A new name does not count.
    LinkForgotten,
    /// What has no name, or is being truncated, is not noted as an orphan.
    OrphanForgotten,
    /// New blocks are mapped, and the transaction is durable, before their content is written.
    DataAfterMapping,
    /// The tail of a file is made zeros before the smaller size is durable.
    TailZeroedTooEarly,
    /// The size moves over old bytes that were not made zeros.
    TailNotZeroed,
    /// `fsync` does not flush what was overwritten.
    DataNotFlushed,
    /// `fdatasync` does not know of changes outside the inode's record.
    DatasyncForgotten,
    /// Of the inode table only one block is logged.
    RecordsSkipped,
    /// An inode that comes to share a block of attributes is not counted.
    SharerForgotten,
    /// Of two names that are exchanged, one a directory, the parents' counts stay.
    ParentLinksForgotten,
    /// A directory that is exchanged keeps its old parent.
    ParentKept,
    /// No whiteout is left under the old name.
    WhiteoutLost,
    /// Of a block of names that is split the transaction has the old block, and not the new one.
    SplitHalfLogged,
    /// The transaction in which a block of names is split does not have the index that leads to the
    /// new one.
    IndexForgotten,
    /// The superblock says that the file system is clean while other blocks are still on their way
    /// home.
    LeftTooEarly,
    /// What owners use is counted in memory, and not in the transaction.
    UsageNotLogged,
    /// What is deleted is counted on.
    FreedStillCounted,
    /// Writing over data past memory does not lock the file. For the models.
    OverwriteNotLocked,
    /// Writing over data in several parts of a device that is memory shares the lock of the file.
    /// For the models.
    PartsShared,
}

#[cfg(feature = "mutants")]
mod switch {
    use super::Mutant;
    use std::sync::atomic::{AtomicU8, Ordering};

    static ON: AtomicU8 = AtomicU8::new(0);

    /// From now on the engine makes this mistake, in the whole process.
    pub fn set(mutant: Option<Mutant>) {
        ON.store(mutant.map_or(0, |mutant| mutant as u8), Ordering::SeqCst);
    }

    /// Returns whether this mistake is to be made.
    #[must_use]
    pub fn is_on(mutant: Mutant) -> bool {
        ON.load(Ordering::Relaxed) == mutant as u8
    }
}

#[cfg(feature = "mutants")]
pub use switch::is_on;
#[cfg(feature = "mutants")]
pub use switch::set;

#[cfg(not(feature = "mutants"))]
/// Returns that no mistake is to be made: the feature `mutants` is off.
#[must_use]
#[inline]
pub const fn is_on(_: Mutant) -> bool {
    false
}

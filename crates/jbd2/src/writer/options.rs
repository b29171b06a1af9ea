//! Which features a journal gets when writing starts.

use crate::{JournalError, JournalResult};
use extant_format::Tid;
use extant_format::jbd2::{CompatFeatures, IncompatFeatures, JournalSuperblock};

/// `checksum_type` of CRC32C.
const CRC32C_TYPE: u8 = 4;

/// What the file system asks of its journal. The default asks for nothing, and leaves the
/// journal's features as they were found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WriterOptions {
    /// The file system has `metadata_csum`: a journal without checksums, or with one for whole
    /// transactions only, gets checksums v3. One that has v2 keeps them.
    pub metadata_csum: bool,
    /// The file system has `64bit`: the journal gets block numbers of 64 bits.
    pub sixty_four_bit: bool,
    /// Fast commits that stand for the first transaction are to count until that is committed: the
    /// log is one that waits for replay from the start.
    pub keeps_fast_commits: bool,
}

/// The superblock of an empty log that begins with transaction `first_tid`, with the features
/// the file system needs, made of the one found.
pub(super) fn empty_superblock(
    found: &JournalSuperblock,
    options: WriterOptions,
    first_tid: Tid,
) -> JournalResult<JournalSuperblock> {
    if found.ro_compat != 0 {
        let bits = found.ro_compat;
        return Err(JournalError::ReadOnlyFeatures { bits });
    }
    let mut superblock = found.clone();
    if !superblock.v2 {
        // Version 1 has no place for features, not even for revokes. Everything after it was
        // read as zeros, and the log is empty: version 2 begins here.
        superblock.v2 = true;
        superblock.users_count = 1;
    }
    superblock.start = 0;
    superblock.sequence = first_tid;
    // We never write a commit block before its transaction is durable, so nobody has to expect it.
    superblock.incompat.remove(IncompatFeatures::ASYNC_COMMIT);
    if options.sixty_four_bit {
        superblock.incompat.insert(IncompatFeatures::WIDE);
    }
    let v2 = superblock.incompat.contains(IncompatFeatures::CSUM_V2);
    if options.metadata_csum && !v2 {
        superblock.compat.remove(CompatFeatures::CHECKSUM);
        superblock.incompat.insert(IncompatFeatures::CSUM_V3);
        superblock.checksum_type = CRC32C_TYPE;
    }
    Ok(superblock)
}

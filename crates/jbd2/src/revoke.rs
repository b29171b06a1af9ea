//! The second pass: which images must not be replayed.

use crate::log::{Log, LogReader};
use crate::scan::Record;
use crate::{JournalError, JournalResult};
use extant_format::jbd2::RevokeBlock;
use extant_format::{Pblk, Tid};
use std::collections::HashMap;

/// For each revoked block, the last transaction that revoked it. Images of the block from that
/// transaction and earlier ones are stale; a later transaction may have logged it anew.
#[derive(Debug, Default)]
pub(crate) struct RevokeTable {
    last: HashMap<Pblk, Tid>,
}

impl RevokeTable {
    pub(crate) fn load(log: &Log<'_>, records: &[Record]) -> JournalResult<Self> {
        let mut table = Self::default();
        let mut reader = LogReader::new(log, 1);
        for record in records.iter().filter(|record| record.is_revoke) {
            let block = RevokeBlock::parse(reader.block(record.block)?, &log.format()).map_err(
                |source| JournalError::Corrupt {
                    block: record.block,
                    tid: record.tid,
                    source,
                },
            )?;
            for revoked in block.blocks {
                table.insert(revoked, record.tid);
            }
        }
        Ok(table)
    }

    /// Adds what the sound ones of these blocks revoke.
    pub(crate) fn add_readable(&mut self, log: &Log<'_>, records: &[Record]) -> JournalResult<()> {
        let mut reader = LogReader::new(log, 1);
        for record in records {
            if let Ok(block) = RevokeBlock::parse(reader.block(record.block)?, &log.format()) {
                for revoked in block.blocks {
                    self.insert(revoked, record.tid);
                }
            }
        }
        Ok(())
    }

    fn insert(&mut self, block: Pblk, tid: Tid) {
        let last = self.last.entry(block).or_insert(tid);
        if tid.is_after(*last) {
            *last = tid;
        }
    }

    /// Whether an image of `block` logged by transaction `tid` is stale.
    pub(crate) fn covers(&self, block: Pblk, tid: Tid) -> bool {
        self.last
            .get(&block)
            .is_some_and(|last| !tid.is_after(*last))
    }

    /// Blocks in the table.
    pub(crate) fn len(&self) -> usize {
        self.last.len()
    }
}

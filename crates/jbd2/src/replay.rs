//! The third pass: where the newest image of every block lies in the log.

use crate::log::{Log, LogReader};
use crate::overlay::{Image, ReplayedBlocks};
use crate::revoke::RevokeTable;
use crate::scan::{DATA_WINDOW, Record};
use crate::{JournalError, JournalResult};
use extant_format::jbd2::DescriptorBlock;

/// The images, and how many there were.
#[derive(Debug)]
pub(crate) struct Replay {
    pub(crate) blocks: ReplayedBlocks,
    /// Images taken; a block logged twice counts twice.
    pub(crate) images: u64,
    /// Images left out because they were revoked.
    pub(crate) revoked: u64,
}

pub(crate) fn replay(
    log: &Log<'_>,
    records: &[Record],
    revoked: &RevokeTable,
    filesystem_blocks: u64,
) -> JournalResult<Replay> {
    let mut found = Replay {
        blocks: ReplayedBlocks::new(log.superblock().block_size),
        images: 0,
        revoked: 0,
    };
    let mut reader = LogReader::new(log, DATA_WINDOW);
    for record in records.iter().filter(|record| !record.is_revoke) {
        replay_descriptor(
            log,
            &mut reader,
            *record,
            revoked,
            filesystem_blocks,
            &mut found,
        )?;
    }
    Ok(found)
}

fn replay_descriptor(
    log: &Log<'_>,
    reader: &mut LogReader<'_>,
    record: Record,
    revoked: &RevokeTable,
    filesystem_blocks: u64,
    found: &mut Replay,
) -> JournalResult<()> {
    let Record { block, tid, .. } = record;
    let format = log.format();
    let corrupt = |block, source| JournalError::Corrupt { block, tid, source };
    let descriptor =
        DescriptorBlock::parse(reader.block(block)?, &format).map_err(|e| corrupt(block, e))?;
    let mut at = block;
    for tag in descriptor.tags {
        at = log.area().advance(at, 1);
        if revoked.covers(tag.block, tid) {
            found.revoked += 1;
            continue;
        }
        if tag.block.get() >= filesystem_blocks {
            return Err(JournalError::Target {
                block,
                tid,
                target: tag.block,
                limit: filesystem_blocks,
            });
        }
        if format.has_block_checksums() {
            let data = reader.block(at)?;
            tag.verify(&format, tid, data).map_err(|e| corrupt(at, e))?;
        }
        let image = Image {
            at: log.locate(at)?.0,
            escaped: tag.escaped,
        };
        found.blocks.insert(tag.block, image);
        found.images += 1;
    }
    Ok(())
}

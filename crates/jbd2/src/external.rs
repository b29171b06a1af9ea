//! A journal on a device of its own.
//!
//! Such a device starts with a superblock that is like that of a file system. That of the journal
//! is in the block behind it, and the blocks of the log are counted from the start of the device.
//! Source: the kernel's `Documentation/filesystems/ext4/journal.rst`, "External Journal".

use crate::{JournalError, JournalResult, LogRun};
use extant_blockdev::BlockDevice;
use extant_format::superblock::{JournalDevice, SUPERBLOCK_LEN, SUPERBLOCK_OFFSET, Superblock};
use extant_format::{FormatError, Pblk, Structure};

/// Returns where the blocks of the journal of `filesystem` lie on `device`, which holds that
/// journal and nothing else.
///
/// # Errors
/// A device that holds no journal, a damaged one, or that of another file system; a device that
/// fails.
pub fn external_log(
    device: &dyn BlockDevice,
    filesystem: &Superblock,
) -> JournalResult<Vec<LogRun>> {
    let found = read_superblock(device)?;
    if found.uuid != filesystem.raw().journal_uuid {
        return Err(JournalError::OtherJournal {
            found: found.uuid,
            expected: filesystem.raw().journal_uuid,
        });
    }
    if found.block_size != filesystem.block_size() {
        return Err(JournalError::BlockSize {
            journal: found.block_size,
            filesystem: filesystem.block_size(),
        });
    }
    Ok(runs(device.size(), &found))
}

fn read_superblock(device: &dyn BlockDevice) -> JournalResult<JournalDevice> {
    let mut bytes = [0; SUPERBLOCK_LEN];
    let size = usize::try_from(device.size()).unwrap_or(usize::MAX);
    let needed = SUPERBLOCK_OFFSET as usize + SUPERBLOCK_LEN;
    if size < needed {
        let short = FormatError::short(Structure::Superblock, size, needed);
        return Err(JournalError::NoJournal(short));
    }
    device
        .read_at(SUPERBLOCK_OFFSET, &mut bytes)
        .map_err(|source| JournalError::Device { block: 0, source })?;
    JournalDevice::parse(&bytes).map_err(JournalError::NoJournal)
}

/// The superblock of the journal, behind that of the device, and the log from its first block on.
fn runs(device_size: u64, found: &JournalDevice) -> Vec<LogRun> {
    let size = found.block_size;
    let blocks = found.blocks.min(device_size >> size.log2());
    let superblock = LogRun {
        first: 0,
        len: 1,
        start: Pblk::new(SUPERBLOCK_OFFSET / u64::from(size.bytes()) + 1),
    };
    let log = LogRun {
        first: 1,
        len: u32::try_from(blocks).unwrap_or(u32::MAX).saturating_sub(1),
        start: Pblk::new(1),
    };
    let runs = [superblock, log];
    runs.into_iter().filter(|run| run.len > 0).collect()
}

//! The journal: its superblock, its blocks, fast commits, and a whole log.

use crate::{sized, split};
use extant_blockdev::{BlockDevice, MemoryDevice};
use extant_format::jbd2::{
    CommitBlock, DescriptorBlock, FastCommitRecord, FastCommitRecords, JournalSuperblock,
    LogChecksum, LogFormat, RevokeBlock,
};
use extant_format::{BlockSize, Pblk};
use extant_jbd2::{Log, LogRun};

/// The superblock of a journal.
pub fn journal_superblock(input: &[u8]) -> bool {
    let Ok(found) = JournalSuperblock::parse(input) else {
        return false;
    };
    let again = JournalSuperblock::parse(&found.encode()).expect("what was read is valid");
    assert_eq!(again, found);
    let area = found.area();
    assert!(area.len() < found.max_len);
    let _ = found.log_format();
    true
}

fn format_from(bits: u8) -> LogFormat {
    LogFormat {
        block_size: BlockSize::MIN,
        wide: bits & 1 != 0,
        checksum: match bits >> 1 & 3 {
            0 => LogChecksum::None,
            1 => LogChecksum::CommitOnly,
            2 => LogChecksum::V2,
            _ => LogChecksum::V3,
        },
        uuid: [7; 16],
    }
}

/// A block of the log, taken for each of the kinds that there are.
pub fn journal_block(input: &[u8]) -> bool {
    let Some(([bits], bytes)) = split(input) else {
        return false;
    };
    let format = format_from(bits);
    let block = sized(bytes, format.block_size.len());
    let most = block.len() / format.tag_len().min(8) + 1;
    let descriptor = DescriptorBlock::parse(&block, &format);
    if let Ok(found) = &descriptor {
        assert!(found.tags.len() <= most);
        let data = vec![0; block.len()];
        for tag in &found.tags {
            let _ = tag.verify(&format, found.sequence, &data);
        }
    }
    let revoke = RevokeBlock::parse(&block, &format);
    if let Ok(found) = &revoke {
        assert!(found.blocks.len() <= block.len() / 4);
    }
    let commit = CommitBlock::read(&block, &format);
    let _ = CommitBlock::verify(&block, &format);
    descriptor.is_ok() || revoke.is_ok() || commit.is_ok()
}

/// A block of the area of fast commits.
pub fn fast_commit(input: &[u8]) -> bool {
    let mut read = 0;
    for found in FastCommitRecords::new(input) {
        let Ok((record, bytes)) = found else {
            return false;
        };
        read += bytes.len();
        assert!(read <= input.len() && record.checksummed(bytes).len() <= bytes.len());
        let mut written = Vec::new();
        record.encode(&mut written);
        let again = FastCommitRecord::parse(&written).expect("what was written is valid");
        assert_eq!(again, record);
    }
    true
}

/// A log with all its blocks, recovered. The file system that it is of has 4096 blocks.
pub fn log(input: &[u8]) -> bool {
    const BLOCKS: usize = 24;
    const FILESYSTEM: u64 = 4096;
    let device = MemoryDevice::from_image(&sized(input, BLOCKS * BlockSize::MIN.len()));
    let run = LogRun {
        first: 0,
        len: BLOCKS as u32,
        start: Pblk::new(0),
    };
    let Ok(log) = Log::open(&device, &[run], BlockSize::MIN) else {
        return false;
    };
    let whole = log.recover(FILESYSTEM);
    let is_replayed = whole.as_ref().is_ok_and(|whole| !whole.blocks.is_empty());
    let front = log.recover_before_damage(FILESYSTEM);
    if let Ok(whole) = &whole {
        assert!(whole.blocks.iter().all(|block| block.get() < FILESYSTEM));
        assert!(whole.blocks.len() <= BLOCKS);
        let mut block = vec![0; BlockSize::MIN.len()];
        for at in whole.blocks.iter() {
            let offset = at.get() << BlockSize::MIN.log2();
            assert!(whole.blocks.read(&device, offset, &mut block).is_ok());
        }
        let (_, damage) = front.expect("a log that is whole has a sound front");
        assert!(damage.is_none(), "{damage:?}");
    }
    assert_eq!(device.size(), (BLOCKS * BlockSize::MIN.len()) as u64);
    is_replayed
}

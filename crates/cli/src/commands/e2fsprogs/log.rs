//! The journal's own superblock.

use extant_core::fs::Fs;
use extant_core::ops;
use extant_format::jbd2::JournalSuperblock;

/// What the first block of a journal says.
#[derive(Debug)]
pub(super) struct Log {
    pub(super) superblock: JournalSuperblock,
    /// As it is stored.
    pub(super) record: Vec<u8>,
    /// Bytes of the file that the journal is.
    pub(super) size: u64,
}

impl Log {
    /// Reads the superblock of the journal that a file system has as a file; `None` if it has none.
    pub(super) fn read(fs: &Fs) -> Result<Option<Self>, Box<dyn std::error::Error>> {
        let Some(ino) = fs.superblock().journal_ino() else {
            return Ok(None);
        };
        let inode = fs.inode(ino)?;
        let first = ops::allocated(fs, &inode).next().transpose()?;
        let Some(offset) = first.and_then(|piece| piece.device_offset) else {
            return Ok(None);
        };
        let mut record = vec![0; JournalSuperblock::LEN];
        fs.device().read_at(offset, &mut record)?;
        Ok(Some(Self {
            superblock: JournalSuperblock::parse(&record)?,
            record,
            size: inode.size(),
        }))
    }
}

//! The first pass: which transactions of the log are whole.
//!
//! The log is followed from its start, record by record, as long as records carry the expected
//! transaction number. A transaction counts when its commit block is there and right. Blocks left
//! from an earlier round of the ring carry earlier numbers, which ends the log; should such blocks
//! look right by chance (an older file system on the same device), their commit time lies before
//! that of the transaction before them.

use crate::log::{Log, LogReader};
use crate::{JournalError, JournalResult, LogEnd};
use extant_format::jbd2::{
    BlockType, CommitBlock, DescriptorBlock, Header, LogChecksum, LogFormat, RevokeBlock,
    TransactionCrc,
};
use extant_format::{FormatError, FormatResult, Structure, Tid};

/// Bytes fetched at once when only records are looked at.
const RECORD_WINDOW: usize = 4096;
/// Bytes fetched at once when data is read as well.
pub(crate) const DATA_WINDOW: usize = 1 << 18;

/// A descriptor or revoke block of a committed transaction.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Record {
    /// Journal block.
    pub(crate) block: u32,
    pub(crate) tid: Tid,
    pub(crate) is_revoke: bool,
}

/// What the scan found.
#[derive(Debug)]
pub(crate) struct Scan {
    /// Descriptor and revoke blocks of the committed transactions, in log order.
    pub(crate) records: Vec<Record>,
    /// Committed transactions.
    pub(crate) transactions: u32,
    /// The transaction after the last committed one.
    pub(crate) end: Tid,
    /// Seconds since the epoch of the last commit; 0 if there is none.
    pub(crate) last_commit_seconds: u64,
    pub(crate) ended_by: LogEnd,
    /// What is wrong with the transaction after the last committed one, which was committed too.
    pub(crate) damage: Option<JournalError>,
    /// Revoke blocks of the damaged transaction and of those after it, sound or not.
    pub(crate) later_revokes: Vec<Record>,
    /// The transaction after the last one of which there is a commit block.
    pub(crate) after_all: Tid,
}

impl Scan {
    /// Takes the transactions from `tid` on for damaged.
    pub(crate) fn cut(&mut self, tid: Tid, first: Tid, damage: JournalError) {
        let kept = self
            .records
            .iter()
            .take_while(|record| record.tid != tid)
            .count();
        let cut = self.records.drain(kept..);
        self.later_revokes
            .extend(cut.filter(|record| record.is_revoke));
        self.transactions = tid.get().wrapping_sub(first.get());
        self.end = tid;
        self.damage = Some(damage);
    }
}

pub(crate) fn scan(log: &Log<'_>) -> JournalResult<Scan> {
    Scanner::new(log).run()
}

struct Scanner<'l> {
    log: &'l Log<'l>,
    reader: LogReader<'l>,
    /// Next block to look at.
    block: u32,
    /// The transaction whose records are expected there.
    tid: Tid,
    /// Blocks stepped over so far; the ring is walked once.
    walked: u32,
    found: Scan,
    /// Records of the transaction not yet committed start here in `found.records`.
    open_from: usize,
    crc: TransactionCrc,
    /// The first damaged record of the open transaction. If a commit block follows, it counts.
    damage: Option<(u32, FormatError)>,
}

impl<'l> Scanner<'l> {
    fn new(log: &'l Log<'_>) -> Self {
        let window = if log.format().checksum == LogChecksum::CommitOnly {
            DATA_WINDOW
        } else {
            RECORD_WINDOW
        };
        let superblock = log.superblock();
        Self {
            log,
            reader: LogReader::new(log, window),
            block: superblock.start,
            tid: superblock.sequence,
            walked: 0,
            found: Scan {
                records: Vec::new(),
                transactions: 0,
                end: superblock.sequence,
                last_commit_seconds: 0,
                ended_by: LogEnd::NoMoreRecords,
                damage: None,
                later_revokes: Vec::new(),
                after_all: superblock.sequence,
            },
            open_from: 0,
            crc: TransactionCrc::new(),
            damage: None,
        }
    }

    fn run(mut self) -> JournalResult<Scan> {
        // Each turn steps over one block at least, and never over more than the ring has.
        while self.walked < self.log.area().len() {
            let Ok(header) = Header::parse(self.reader.block(self.block)?) else {
                break;
            };
            if header.sequence != self.tid {
                break;
            }
            let goes_on = match header.block_type {
                BlockType::Descriptor => self.descriptor()?,
                BlockType::Revoke => self.revoke()?,
                BlockType::Commit => self.commit()?,
                BlockType::SuperblockV1 | BlockType::SuperblockV2 => false,
            };
            if !goes_on {
                break;
            }
        }
        if self.found.ended_by == LogEnd::NoMoreRecords && self.found.records.len() > self.open_from
        {
            self.found.ended_by = LogEnd::Uncommitted { tid: self.tid };
        }
        self.found.records.truncate(self.open_from);
        self.found.after_all = self.tid;
        Ok(self.found)
    }

    fn descriptor(&mut self) -> JournalResult<bool> {
        let format = self.log.format();
        let bytes = self.reader.block(self.block)?;
        let tags = match DescriptorBlock::parse(bytes, &format) {
            Ok(descriptor) => descriptor.tags.len(),
            Err(e) => {
                let tags = DescriptorBlock::read_tags(bytes, &format).len();
                self.damage.get_or_insert((self.block, e));
                tags
            }
        };
        let steps = tags as u32 + 1;
        if steps > self.log.area().len() - self.walked {
            return Ok(false);
        }
        if format.checksum == LogChecksum::CommitOnly {
            for i in 0..steps {
                let block = self.log.area().advance(self.block, i);
                self.crc.update(self.reader.block(block)?);
            }
        }
        self.record(false);
        self.step(steps);
        Ok(true)
    }

    fn revoke(&mut self) -> JournalResult<bool> {
        let bytes = self.reader.block(self.block)?;
        if let Err(e) = RevokeBlock::parse(bytes, &self.log.format()) {
            self.damage.get_or_insert((self.block, e));
        }
        self.record(true);
        self.step(1);
        Ok(true)
    }

    fn commit(&mut self) -> JournalResult<bool> {
        let format = self.log.format();
        let (block, tid) = (self.block, self.tid);
        if self.found.damage.is_some() {
            self.close();
            return Ok(true);
        }
        let crc = self.crc.clone().value();
        let bytes = self.reader.block(block)?;
        let seconds = CommitBlock::read(bytes, &format).map_or(u64::MAX, |commit| commit.seconds);
        let judged = judge_commit(bytes, &format, crc);
        if self.damage.is_none() && judged.is_ok() {
            self.open_from = self.found.records.len();
            self.found.transactions += 1;
            self.found.end = tid.next();
            self.found.last_commit_seconds = seconds;
            self.crc = TransactionCrc::new();
            self.close();
            return Ok(true);
        }
        if seconds < self.found.last_commit_seconds {
            // Not of this log at all.
            self.found.ended_by = LogEnd::Stale { tid };
            return Ok(false);
        }
        if let Some((block, source)) = self.damage.take() {
            self.give_up(JournalError::Corrupt { block, tid, source });
            return Ok(true);
        }
        if let Err(source) = judged {
            let after = self.log.area().advance(block, 1);
            let next = self.reader.block(after)?;
            if Header::parse(next).is_ok_and(|header| header.sequence == tid.next()) {
                self.give_up(JournalError::DamagedCommit { block, tid, source });
                return Ok(true);
            }
            self.found.ended_by = LogEnd::TornCommit { tid, block };
        }
        Ok(false)
    }

    /// Steps over a commit block.
    fn close(&mut self) {
        self.tid = self.tid.next();
        self.step(1);
    }

    /// Takes the transaction that ends here for damaged: of it and of those after it only what they
    /// revoke counts, since what was revoked may have had another use since.
    fn give_up(&mut self, damage: JournalError) {
        let open = self.found.records.drain(self.open_from..);
        let revokes = open.filter(|record| record.is_revoke);
        self.found.later_revokes.extend(revokes);
        self.found.damage = Some(damage);
        self.close();
    }

    fn record(&mut self, is_revoke: bool) {
        let record = Record {
            block: self.block,
            tid: self.tid,
            is_revoke,
        };
        match self.found.damage {
            None => self.found.records.push(record),
            Some(_) if is_revoke => self.found.later_revokes.push(record),
            Some(_) => {}
        }
    }

    fn step(&mut self, blocks: u32) {
        self.block = self.log.area().advance(self.block, blocks);
        self.walked = self.walked.saturating_add(blocks);
    }
}

/// Whether a commit block is right about itself and about its transaction, whose CRC is `crc`.
fn judge_commit(block: &[u8], format: &LogFormat, crc: u32) -> FormatResult<()> {
    CommitBlock::verify(block, format)?;
    match CommitBlock::read(block, format)?.transaction_crc {
        Some(stored) if stored != crc => {
            Err(FormatError::checksum(Structure::JournalBlock, stored, crc))
        }
        _ => Ok(()),
    }
}

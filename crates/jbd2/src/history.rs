//! Every transaction of which the ring still has something, also those that were written home long
//! ago.
//!
//! A block of the log that begins with the magic is a record, since data that begins so is escaped.
//! A record says where the next one of its transaction lies, so that records join into
//! transactions, whatever lies between them. Newer transactions have replaced the beginning of the
//! oldest one, and the log may hold records that are older than the file system.
//!
//! # Invariants
//! - A block of the log is an image of one transaction at most, so that what is kept is a few bytes
//!   for each block of the log, whatever the blocks hold.
//! - Nothing of what is found is taken for true here: each part has its own verdict.

use crate::log::{Log, LogReader};
use crate::scan::DATA_WINDOW;
use crate::{JournalError, JournalResult};
use extant_format::checksum::Crc32c;
use extant_format::jbd2::{
    BlockType, CommitBlock, DescriptorBlock, FastCommitRecord, FastCommitRecords, Header,
    LogChecksum, RevokeBlock, Tag, TransactionCrc, restore_escaped,
};
use extant_format::{FormatResult, Pblk, Tid};
use std::ops::Range;

/// Numbers that a clean end and the next mount, or a crash and its recovery, leave out at most.
const MOST_LEFT_OUT: u32 = 2;

/// What a checksum says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Check {
    /// There is one, and it is right.
    Right,
    /// There is one, and it is wrong.
    Wrong,
    /// There is none.
    Absent,
}

/// A record of a transaction.
#[derive(Clone, Copy, Debug)]
pub struct LogRecord {
    /// The journal block.
    pub block: u32,
    /// A descriptor, revoke or commit block.
    pub kind: BlockType,
    /// What its own checksum says.
    pub check: Check,
    /// Tags of a descriptor, or blocks that are revoked.
    pub entries: u32,
}

/// The image of a block in the log.
#[derive(Clone, Copy, Debug)]
pub struct LoggedImage {
    /// The journal block that holds it.
    pub at: u32,
    /// The block of the file system that it is of.
    pub home: Pblk,
    /// Its first four bytes are the journal's magic, and lie in the log as zeros.
    pub escaped: bool,
    /// What the checksum in its tag says.
    pub check: Check,
}

/// A transaction, or what is left of it.
#[derive(Clone, Debug)]
pub struct LoggedTransaction {
    /// Its number.
    pub tid: Tid,
    /// Its records, in their order.
    pub records: Vec<LogRecord>,
    /// The images of blocks, in their order.
    pub images: Vec<LoggedImage>,
    /// When it was committed: seconds since the epoch, and nanoseconds; `None` without a commit
    /// block.
    pub committed: Option<(u64, u32)>,
    /// Whether it begins where the transaction before it ends, or where the log begins: then all of
    /// it is there.
    pub is_joined: bool,
}

impl LoggedTransaction {
    /// Returns the journal block of the first record that is left.
    #[must_use]
    pub fn first_block(&self) -> u32 {
        self.records.first().map_or(0, |record| record.block)
    }

    /// Returns whether it was committed and no checksum of it is wrong.
    #[must_use]
    pub fn is_sound(&self) -> bool {
        let wrong = |check| check == Check::Wrong;
        self.committed.is_some()
            && !self.records.iter().any(|record| wrong(record.check))
            && !self.images.iter().any(|image| wrong(image.check))
    }
}

/// Takes a record of the fast-commit area: the journal block that it lies in, the record, and of
/// the end of a fast commit whether its checksum is right.
pub type EachFastCommit<'a> = dyn FnMut(u32, FormatResult<FastCommitRecord<'_>>, Option<bool>) + 'a;

/// How a log ends behind its newest transaction, by its superblock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HistoryEnd {
    /// It was closed with nothing left to write: so Extant closes a log, and Linux freezes one.
    Closed,
    /// It was closed at the end of a mount by Linux 6.4 or later. That mount may have done nothing
    /// but to recover it after a crash.
    ClosedOrRecovered,
    /// It was not closed, or that is not known. After a crash and its recovery no log tells what
    /// was being written.
    Unknown,
}

/// What the ring still has.
#[derive(Clone, Debug)]
pub struct LogHistory {
    /// By their numbers, the oldest first.
    pub transactions: Vec<LoggedTransaction>,
    /// Those of them that followed each other without a gap up to the newest that was committed.
    /// Of the first of them the beginning may be missing. Empty where the newest does not fit what
    /// the superblock of the journal says.
    pub unbroken: Range<usize>,
    /// From which of them on the log was in use without an end: no number was left out since.
    pub last_session: usize,
    /// How the log ends behind the newest of them.
    pub end: HistoryEnd,
}

impl Log<'_> {
    /// Reads all of the ring, and joins its records into transactions: those that recovery would
    /// replay, those that were written home, and what was begun and never committed.
    ///
    /// The log is read twice. Memory follows its number of blocks.
    ///
    /// # Errors
    /// A device that fails.
    pub fn history(&self) -> JournalResult<LogHistory> {
        let mut transactions = join(self)?;
        let base = self.superblock().sequence;
        let age = |tid: Tid| tid.get().wrapping_sub(base.get()) as i32;
        transactions.sort_by_key(|found| (age(found.tid), found.first_block()));
        let unbroken = unbroken(self, &mut transactions)?;
        let part = transactions.get(unbroken.clone()).unwrap_or_default();
        let consecutive = |pair: &[LoggedTransaction]| match pair {
            [older, newer] => older.tid.next() == newer.tid,
            _ => false,
        };
        let session = part.windows(2).rposition(|pair| !consecutive(pair));
        Ok(LogHistory {
            last_session: unbroken.start + session.map_or(0, |at| at + 1),
            end: part
                .last()
                .map_or(HistoryEnd::Unknown, |newest| end(self, newest)),
            transactions,
            unbroken,
        })
    }

    /// Reads an image of the history into `buf`, which is one block long, as it goes home.
    ///
    /// # Errors
    /// A device that fails.
    pub fn read_logged(&self, image: &LoggedImage, buf: &mut [u8]) -> JournalResult<()> {
        let (start, _) = self.locate(image.at)?;
        let offset = self.superblock().block_size.offset_of(start);
        let block = image.at;
        let offset = offset.ok_or(JournalError::Mapping { block })?;
        self.device()
            .read_at(offset, buf)
            .map_err(|source| JournalError::Device { block, source })?;
        if image.escaped {
            restore_escaped(buf);
        }
        Ok(())
    }

    /// Returns the blocks that the revoke block in journal block `block` revokes; none if it is not
    /// sound.
    ///
    /// # Errors
    /// A device that fails.
    pub fn revoked_by(&self, block: u32) -> JournalResult<Vec<Pblk>> {
        let mut reader = LogReader::new(self, 1);
        let found = RevokeBlock::parse(reader.block(block)?, &self.format());
        Ok(found.map(|revoke| revoke.blocks).unwrap_or_default())
    }

    /// Hands the records of the fast-commit area on, block by block. What cannot be read ends a
    /// block.
    ///
    /// # Errors
    /// A device that fails.
    pub fn fast_commit_area(&self, each: &mut EachFastCommit<'_>) -> JournalResult<()> {
        let area = self.area();
        let mut reader = LogReader::new(self, DATA_WINDOW);
        let mut crc = Crc32c::seeded(0);
        for block in area.fast_commit_first..area.fast_commit_end {
            let bytes = reader.block(block)?;
            if bytes.first_chunk() == Some(&[0; 4]) {
                // Never written, or cleared.
                crc = Crc32c::seeded(0);
                continue;
            }
            for item in FastCommitRecords::new(bytes) {
                let (record, bytes) = match item {
                    Ok(item) => item,
                    Err(e) => {
                        each(block, Err(e), None);
                        break;
                    }
                };
                if matches!(record, FastCommitRecord::Head { .. }) {
                    crc = Crc32c::seeded(0);
                }
                crc = crc.update(record.checksummed(bytes));
                let mut is_right = None;
                if let FastCommitRecord::Tail { crc: stored, .. } = record {
                    is_right = Some(stored == crc.value());
                    crc = Crc32c::seeded(0);
                }
                each(block, Ok(record), is_right);
            }
        }
        Ok(())
    }
}

/// A record where it was found.
struct Found {
    block: u32,
    kind: BlockType,
    tid: Tid,
    /// Where the next record of its transaction lies; `None` behind a commit, and where other
    /// records have replaced a part of it.
    next: Option<u32>,
    check: Check,
    tags: Vec<Tag>,
    entries: u32,
    committed: Option<(u64, u32)>,
    crc: Option<u32>,
}

/// All records of the ring, joined.
fn join(log: &Log<'_>) -> JournalResult<Vec<LoggedTransaction>> {
    let found = records(log)?;
    let at = |block: u32| found.binary_search_by_key(&block, |record| record.block);
    let mut follows = vec![None; found.len()];
    let mut has_before = vec![false; found.len()];
    for (i, record) in found.iter().enumerate() {
        let Some(Ok(next)) = record.next.map(at) else {
            continue;
        };
        if found.get(next).is_some_and(|next| next.tid == record.tid)
            && let (Some(follows), Some(has_before)) =
                (follows.get_mut(i), has_before.get_mut(next))
            && !*has_before
        {
            *follows = Some(next);
            *has_before = true;
        }
    }
    let mut reader = LogReader::new(log, DATA_WINDOW);
    let mut done = vec![false; found.len()];
    let mut transactions = Vec::new();
    // Those with a beginning, and then circles, which no writer makes.
    let begins = (0..found.len()).filter(|i| has_before.get(*i) == Some(&false));
    for first in begins.chain(0..found.len()) {
        let mut members = Vec::new();
        let mut next = Some(first);
        while let Some(i) = next
            && let Some(done) = done.get_mut(i).filter(|done| !**done)
        {
            *done = true;
            members.push(i);
            next = follows.get(i).copied().flatten();
        }
        let members: Vec<_> = members.iter().filter_map(|i| found.get(*i)).collect();
        if !members.is_empty() {
            transactions.push(transaction(log, &mut reader, &members)?);
        }
    }
    Ok(transactions)
}

/// The records of the ring, by their blocks.
fn records(log: &Log<'_>) -> JournalResult<Vec<Found>> {
    let (area, format) = (log.area(), log.format());
    let mut reader = LogReader::new(log, DATA_WINDOW);
    let mut found: Vec<Found> = Vec::new();
    for block in area.first..area.end {
        let bytes = reader.block(block)?;
        let Ok(header) = Header::parse(bytes) else {
            continue;
        };
        let judged = |sound: bool| match (format.has_block_checksums(), sound) {
            (false, _) => Check::Absent,
            (true, true) => Check::Right,
            (true, false) => Check::Wrong,
        };
        let mut record = Found {
            block,
            kind: header.block_type,
            tid: header.sequence,
            next: None,
            check: Check::Absent,
            tags: Vec::new(),
            entries: 0,
            committed: None,
            crc: None,
        };
        match header.block_type {
            BlockType::Descriptor => {
                record.check = judged(DescriptorBlock::parse(bytes, &format).is_ok());
                record.tags = DescriptorBlock::read_tags(bytes, &format);
                record.entries = record.tags.len() as u32;
                record.next = Some(area.advance(block, record.entries + 1));
            }
            BlockType::Revoke => {
                let revoke = RevokeBlock::parse(bytes, &format);
                record.check = judged(revoke.is_ok());
                record.entries = revoke.map_or(0, |revoke| revoke.blocks.len() as u32);
                record.next = Some(area.advance(block, 1));
            }
            BlockType::Commit => {
                record.check = judged(CommitBlock::verify(bytes, &format).is_ok());
                if let Ok(commit) = CommitBlock::read(bytes, &format) {
                    record.committed = Some((commit.seconds, commit.nanoseconds));
                    record.crc = commit.transaction_crc;
                }
            }
            BlockType::SuperblockV1 | BlockType::SuperblockV2 => continue,
        }
        if let Some(before) = found.last_mut() {
            before.cut_at(block - before.block);
        }
        found.push(record);
    }
    // Around the ring.
    let first = found.first().map_or(area.first, |first| first.block);
    if let Some(last) = found.last_mut() {
        last.cut_at(area.len() - (last.block - first));
    }
    Ok(found)
}

impl Found {
    /// Takes the tags of images away that other records have replaced; the next record lies so many
    /// blocks behind this one.
    fn cut_at(&mut self, next: u32) {
        if self.kind == BlockType::Descriptor && self.entries >= next {
            self.tags.truncate(next as usize - 1);
            self.next = None;
        }
        self.tags.shrink_to_fit();
    }
}

/// The transaction of these records.
fn transaction(
    log: &Log<'_>,
    reader: &mut LogReader<'_>,
    members: &[&Found],
) -> JournalResult<LoggedTransaction> {
    let format = log.format();
    let mut crc = TransactionCrc::new();
    let mut made = LoggedTransaction {
        tid: members.first().map_or(Tid::new(0), |first| first.tid),
        records: Vec::with_capacity(members.len()),
        images: Vec::new(),
        committed: None,
        is_joined: false,
    };
    for record in members {
        let is_summed = format.checksum == LogChecksum::CommitOnly;
        if is_summed && record.kind == BlockType::Descriptor {
            crc.update(reader.block(record.block)?);
        }
        for (tag, n) in record.tags.iter().zip(1..) {
            let at = log.area().advance(record.block, n);
            let check = if format.has_block_checksums() {
                match tag.verify(&format, record.tid, reader.block(at)?) {
                    Ok(()) => Check::Right,
                    Err(_) => Check::Wrong,
                }
            } else {
                Check::Absent
            };
            if is_summed {
                crc.update(reader.block(at)?);
            }
            made.images.push(LoggedImage {
                at,
                home: tag.block,
                escaped: tag.escaped,
                check,
            });
        }
        let check = match record.crc {
            Some(stored) if stored == crc.clone().value() => Check::Right,
            Some(_) => Check::Wrong,
            None => record.check,
        };
        made.committed = made.committed.or(record.committed);
        made.records.push(LogRecord {
            block: record.block,
            kind: record.kind,
            check,
            entries: record.entries,
        });
    }
    Ok(made)
}

/// Those that followed each other without a gap up to the newest one that was committed.
fn unbroken(log: &Log<'_>, transactions: &mut [LoggedTransaction]) -> JournalResult<Range<usize>> {
    let superblock = log.superblock();
    let area = log.area();
    let ahead = |from: Tid, to: Tid| to.get().wrapping_sub(from.get());
    let newest = if log.is_clean() {
        // What was there before is behind the number that comes next.
        let is_newest = |found: &LoggedTransaction| {
            (1..=MOST_LEFT_OUT + 1).contains(&ahead(found.tid, superblock.sequence))
        };
        transactions
            .iter()
            .rposition(|found| is_newest(found) && found.is_sound())
    } else {
        match crate::scan::scan(log) {
            Ok(scan) if scan.transactions > 0 && scan.damage.is_none() => transactions
                .iter()
                .rposition(|found| found.tid.next() == scan.end && found.is_sound()),
            Ok(_) => None,
            Err(e @ JournalError::Device { .. }) => return Err(e),
            Err(_) => None,
        }
    };
    let Some(newest) = newest else {
        return Ok(0..0);
    };
    let mut first = newest;
    while let Some(before) = first.checked_sub(1)
        && let [.., older, newer] = transactions.get_mut(..=first).unwrap_or_default()
        && older.is_sound()
    {
        let behind = older
            .records
            .last()
            .map_or(area.first, |commit| area.advance(commit.block, 1));
        let wraps = behind == area.first;
        let is_next = newer.first_block() == behind;
        // Of a log that was there before, times go back.
        let in_order = older.committed <= newer.committed;
        let joined = in_order
            && match ahead(older.tid, newer.tid) {
                1 => is_next,
                // Another mount: it goes on there, or at the beginning of the log.
                2..=3 => (is_next || newer.first_block() == area.first) && !wraps,
                _ => false,
            };
        if !joined {
            break;
        }
        newer.is_joined = true;
        first = before;
    }
    Ok(first..newest + 1)
}

/// How the log ends behind `newest`. Its end says where it goes on; recovery by `e2fsck` leaves
/// that as it was.
fn end(log: &Log<'_>, newest: &LoggedTransaction) -> HistoryEnd {
    let superblock = log.superblock();
    let behind = newest
        .records
        .last()
        .map(|commit| log.area().advance(commit.block, 1));
    if !log.is_clean() || Some(superblock.head) != behind {
        return HistoryEnd::Unknown;
    }
    match superblock.sequence.get().wrapping_sub(newest.tid.get()) {
        1 => HistoryEnd::Closed,
        2 => HistoryEnd::ClosedOrRecovered,
        _ => HistoryEnd::Unknown,
    }
}

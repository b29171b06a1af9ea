//! The fast commits that follow the last transaction.
//!
//! They stand for the transaction that would have been the next: they count as long as that is not
//! committed as a whole, and each of them only as a whole.

use crate::log::{Log, LogReader};
use crate::scan::DATA_WINDOW;
use crate::{JournalError, JournalResult};
use extant_format::Tid;
use extant_format::checksum::Crc32c;
use extant_format::jbd2::{FastCommitRecord, FastCommitRecords};

/// Most bytes of records that are kept in memory. The area of a journal is 256 blocks unless asked
/// for otherwise.
const MOST_BYTES: usize = 16 << 20;

/// What fast commits say, in their order.
#[derive(Clone, Debug)]
pub struct FastCommits {
    tid: Tid,
    /// Records side by side, without what only holds them together.
    bytes: Vec<u8>,
    /// The journal block in which the last of them ends.
    last: u32,
    log_blocks: u32,
}

impl FastCommits {
    /// Returns the transaction they stand for, which is the one after the last committed.
    #[must_use]
    pub fn tid(&self) -> Tid {
        self.tid
    }

    /// Returns the blocks of the log, in which the transaction has to fit.
    #[must_use]
    pub fn log_blocks(&self) -> u32 {
        self.log_blocks
    }

    /// Changes, in the order in which they were made.
    pub fn records(&self) -> impl Iterator<Item = FastCommitRecord<'_>> {
        // Each was parsed before it was kept.
        FastCommitRecords::new(&self.bytes).filter_map(|item| item.ok().map(|(record, _)| record))
    }

    /// Returns the error for code that cannot replay them.
    #[must_use]
    pub fn pending(&self) -> JournalError {
        JournalError::FastCommitPending {
            tid: self.tid,
            block: self.last,
        }
    }
}

/// The whole fast commits of transaction `tid`. Anything else in the area is left from earlier
/// transactions, or torn.
pub(crate) fn fast_commits(log: &Log<'_>, tid: Tid) -> JournalResult<Option<FastCommits>> {
    let area = log.area();
    let mut reader = LogReader::new(log, DATA_WINDOW);
    let mut found = FastCommits {
        tid,
        bytes: Vec::new(),
        last: area.fast_commit_first,
        log_blocks: area.len(),
    };
    let mut whole = None;
    let mut crc = Crc32c::seeded(0);
    let mut headed = false;
    'area: for block in area.fast_commit_first..area.fast_commit_end {
        for item in FastCommitRecords::new(reader.block(block)?) {
            let Ok((record, bytes)) = item else {
                break 'area;
            };
            match record {
                FastCommitRecord::Head { tid: of, features } if of == tid => {
                    if features != 0 {
                        return Err(JournalError::FastCommitFeatures { bits: features });
                    }
                    headed = true;
                }
                _ if !headed => return Ok(None),
                FastCommitRecord::Head { .. } => break 'area,
                FastCommitRecord::Tail { .. } | FastCommitRecord::Pad { .. } => {}
                _ => found.bytes.extend_from_slice(bytes),
            }
            crc = crc.update(record.checksummed(bytes));
            if let FastCommitRecord::Tail {
                tid: of,
                crc: stored,
                ..
            } = record
            {
                if of != tid || stored != crc.value() {
                    break 'area;
                }
                crc = Crc32c::seeded(0);
                whole = Some(found.bytes.len());
                found.last = block;
            }
        }
        if !headed {
            return Ok(None);
        }
        if found.bytes.len() > MOST_BYTES {
            return Err(found.pending());
        }
    }
    Ok(whole.map(|len| {
        found.bytes.truncate(len);
        found
    }))
}

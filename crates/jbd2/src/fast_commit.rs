//! Whether fast commits follow the last transaction.

use crate::JournalResult;
use crate::log::{Log, LogReader};
use crate::scan::DATA_WINDOW;
use extant_format::Tid;
use extant_format::checksum::Crc32c;
use extant_format::jbd2::{FastCommitRecord, FastCommitRecords};

/// The journal block in which the first whole fast commit of transaction `tid` ends, if there is
/// one. Anything else in the area is left from earlier transactions, or torn.
pub(crate) fn first_fast_commit(log: &Log<'_>, tid: Tid) -> JournalResult<Option<u32>> {
    let area = log.area();
    let mut reader = LogReader::new(log, DATA_WINDOW);
    let mut crc = Crc32c::seeded(0);
    let mut headed = false;
    for block in area.fast_commit_first..area.fast_commit_end {
        for item in FastCommitRecords::new(reader.block(block)?) {
            let Ok((record, bytes)) = item else {
                return Ok(None);
            };
            match record {
                FastCommitRecord::Head { tid: of, .. } if of == tid => headed = true,
                _ if !headed => return Ok(None),
                FastCommitRecord::Head { .. } => return Ok(None),
                _ => {}
            }
            crc = crc.update(record.checksummed(bytes));
            if let FastCommitRecord::Tail {
                tid: of,
                crc: stored,
                ..
            } = record
            {
                let whole = of == tid && stored == crc.value();
                return Ok(whole.then_some(block));
            }
        }
        if !headed {
            return Ok(None);
        }
    }
    Ok(None)
}

//! Whether a change would leave fewer errors, tried before it is made.

use crate::error::{Error, Result};
use crate::report::Sink;
use crate::survey::{self, Input};
use crate::{Code, Report, Severity};
use extant_blockdev::{BlockDevice, OverlayDevice, SharedDevice};
use std::sync::Arc;

/// Numbers that follow from all else: where they are wrong, nothing is said of where things lie.
const BOOKS: &[Code] = &[
    Code::GroupFreeBlocks,
    Code::GroupFreeInodes,
    Code::GroupUsedDirs,
    Code::BlockBitmapChecksum,
    Code::InodeBitmapChecksum,
];

/// What follows from all else, too, and may tell where it lies.
const BITMAPS: &[Code] = &[
    Code::BlockBitmap,
    Code::BlockBitmapPadding,
    Code::InodeBitmap,
    Code::InodeBitmapPadding,
];

fn count(report: &Report, codes: &[Code]) -> u64 {
    codes.iter().map(|code| report.count_of(*code)).sum()
}

/// Whether a check of the file system with `writes` (byte and content) finds fewer errors than
/// `now`, a root, and no fewer inodes than `inodes`: of an empty table nothing is wrong. Errors of
/// numbers that follow from others count only where there are as many others.
pub(super) fn is_better(
    device: SharedDevice,
    block_size: u32,
    writes: &[(u64, Vec<u8>)],
    now: &Report,
    inodes: u64,
) -> Result<bool> {
    let trial = OverlayDevice::new(device, block_size).keep_writes();
    for (offset, bytes) in writes {
        trial.write_at(*offset, bytes)?;
    }
    let input = Input {
        device: Arc::new(trial),
        recovered: false,
        remembers_errors: false,
        has_journal: false,
        as_is: false,
        verity: false,
    };
    match survey::run(input, Sink::new(), &()) {
        Ok(survey) => {
            let then = survey.report;
            let errors = |report: &Report| {
                let books = count(report, BOOKS);
                (errors_of(report).saturating_sub(books), books)
            };
            // What was taken for inodes may be none: where then nothing at all is wrong but what
            // follows from others, that is how it is.
            let is_right = errors(&then).0 == count(&then, BITMAPS);
            let as_many = then.totals.inodes >= inodes || is_right;
            let is_less = errors(&then) < errors(now);
            // Of what could not be looked at nothing is wrong, either.
            let is_seen = then.count(Severity::Fatal) <= now.count(Severity::Fatal);
            Ok(as_many && is_less && is_seen && !then.has(Code::RootMissing))
        }
        Err(e @ Error::Device(_)) => Err(e),
        Err(_) => Ok(false),
    }
}

pub(super) fn errors_of(report: &Report) -> u64 {
    report.count(Severity::Error) + report.count(Severity::Fatal)
}

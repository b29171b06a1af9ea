//! Whether a change would leave fewer errors, tried before it is made.

use crate::error::{Error, Result};
use crate::report::Sink;
use crate::survey::{self, Input};
use crate::{Code, Report, Severity};
use extant_blockdev::{BlockDevice, OverlayDevice, SharedDevice};
use std::sync::Arc;

/// Whether a check of the file system with `writes` (byte and content) finds fewer errors than
/// `now`, a root, and no fewer inodes than `inodes`: of an empty table nothing is wrong.
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
            // What was taken for inodes may be none: where then nothing at all is wrong, that is
            // how it is.
            let as_many = then.totals.inodes >= inodes || errors_of(&then) == 0;
            let is_less = errors_of(&then) < errors_of(now);
            Ok(as_many && is_less && !then.has(Code::RootMissing))
        }
        Err(e @ Error::Device(_)) => Err(e),
        Err(_) => Ok(false),
    }
}

pub(super) fn errors_of(report: &Report) -> u64 {
    report.count(Severity::Error) + report.count(Severity::Fatal)
}

//! Exit codes of `check`, `repair`, `tune` and `resize`: those of `e2fsck`.

use crate::failure::{Failure, say};

/// Errors are left.
pub(super) const ERRORS: u8 = 4;
/// Nothing was done, or no verdict is possible.
pub(super) const OPERATIONAL: u8 = 8;
/// The command line makes no sense.
pub(super) const USAGE: u8 = 16;

/// Says a failure, and gives it the exit code that it has here.
pub(super) fn coded(failure: Failure) -> Failure {
    match failure {
        Failure::Failed(text) => {
            say(text);
            Failure::Code(OPERATIONAL)
        }
        Failure::Usage(text) => {
            say(text);
            Failure::Code(USAGE)
        }
        other => other,
    }
}

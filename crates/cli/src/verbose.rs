//! Telling what was done, where that is asked for.

use crate::failure::Outcome;
use std::fmt;
use std::io::{self, Write};
use std::sync::OnceLock;

/// Whether to tell, on standard output, a line for each thing that was done.
#[derive(Debug)]
pub(crate) struct Verbose {
    is_on: bool,
    /// What came of writing the line after which no other was written.
    failed: OnceLock<io::Error>,
}

impl Verbose {
    pub(crate) const fn new(is_on: bool) -> Self {
        Self {
            is_on,
            failed: OnceLock::new(),
        }
    }

    /// Whether lines are wanted.
    pub(crate) const fn is_on(&self) -> bool {
        self.is_on
    }

    /// Writes a line, if that is asked for.
    pub(crate) fn tell(&self, line: impl fmt::Display) {
        if !self.is_on || self.failed.get().is_some() {
            return;
        }
        if let Err(e) = writeln!(io::stdout().lock(), "{line}") {
            // Another thread may have failed first.
            let _ = self.failed.set(e);
        }
    }

    /// The outcome of the whole: what was `done`, and whether it could be told.
    pub(crate) fn finish(self, done: Outcome) -> Outcome {
        done.and(match self.failed.into_inner() {
            Some(e) => Err(e.into()),
            None => Ok(()),
        })
    }
}

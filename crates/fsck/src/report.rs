//! Collecting findings: each piece of work has its own, and they are joined and sorted at the end.

use crate::{Code, Evidence, Finding, Place, Severity};
use extant_format::FormatError;

/// Most findings that are kept in full; what is beyond is only counted.
const KEPT: usize = 10_000;

/// The findings of one piece of work.
#[derive(Debug)]
pub(crate) struct Sink {
    findings: Vec<Finding>,
    counts: [u64; 3],
}

impl Sink {
    pub(crate) const fn new() -> Self {
        Self {
            findings: Vec::new(),
            counts: [0; 3],
        }
    }

    pub(crate) fn add(&mut self, code: Code, place: Place, evidence: Evidence) {
        if let Some(count) = self.counts.get_mut(code.severity() as usize) {
            *count += 1;
        }
        if self.findings.len() < KEPT {
            self.findings.push(Finding {
                code,
                place,
                evidence,
            });
        }
    }

    pub(crate) fn format(&mut self, code: Code, place: Place, error: FormatError) {
        self.add(code, place, Evidence::Format(error));
    }

    pub(crate) fn number(
        &mut self,
        code: Code,
        place: Place,
        what: &'static str,
        found: impl Into<u64>,
        expected: impl Into<u64>,
    ) {
        let (found, expected) = (found.into(), expected.into());
        self.add(
            code,
            place,
            Evidence::Number {
                what,
                found,
                expected,
            },
        );
    }

    pub(crate) fn say(&mut self, code: Code, place: Place, text: impl Into<String>) {
        self.add(code, place, Evidence::Said(text.into()));
    }

    /// Adds the findings of another piece of work.
    pub(crate) fn absorb(&mut self, other: Self) {
        for (to, from) in self.counts.iter_mut().zip(other.counts) {
            *to += from;
        }
        let room = KEPT.saturating_sub(self.findings.len());
        self.findings.extend(other.findings.into_iter().take(room));
    }

    /// Findings of all severities so far.
    pub(crate) fn total(&self) -> u64 {
        self.counts.iter().sum()
    }

    pub(crate) fn into_report(mut self, totals: Totals) -> Report {
        self.findings
            .sort_by(|a, b| (a.place, a.code).cmp(&(b.place, b.code)));
        Report {
            findings: self.findings,
            counts: self.counts,
            totals,
        }
    }
}

/// What the file system holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Totals {
    /// Inodes in use.
    pub inodes: u64,
    /// Directories among them.
    pub directories: u64,
    /// Blocks in use, metadata among them.
    pub blocks: u64,
}

/// The outcome of a check.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Report {
    /// What was found, sorted by place; at most the first 10,000.
    pub findings: Vec<Finding>,
    counts: [u64; 3],
    /// What the file system holds, as far as it could be read.
    pub totals: Totals,
}

impl Report {
    /// How many findings of a severity there are, also those beyond the ones kept.
    #[must_use]
    pub fn count(&self, severity: Severity) -> u64 {
        self.counts.get(severity as usize).copied().unwrap_or(0)
    }

    /// Whether the file system is consistent: nothing worse than a warning.
    #[must_use]
    pub fn is_clean(&self) -> bool {
        self.count(Severity::Error) == 0 && self.count(Severity::Fatal) == 0
    }

    /// Whether there is a finding with this code among those kept.
    #[must_use]
    pub fn has(&self, code: Code) -> bool {
        self.findings.iter().any(|finding| finding.code == code)
    }
}

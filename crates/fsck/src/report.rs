//! Collecting findings: each piece of work has its own, and they are joined and sorted at the end.

use crate::{Code, Evidence, Finding, Place, Severity};
use extant_format::FormatError;

/// Most findings with one code that are kept in full; what is beyond is only counted. By code, so
/// that many of one kind do not hide the others.
const KEPT: u64 = 1000;

/// The findings of one piece of work.
#[derive(Debug)]
pub(crate) struct Sink {
    findings: Vec<Finding>,
    counts: [u64; 3],
    by_code: [u64; Code::ALL.len()],
}

impl Sink {
    pub(crate) const fn new() -> Self {
        Self {
            findings: Vec::new(),
            counts: [0; 3],
            by_code: [0; Code::ALL.len()],
        }
    }

    pub(crate) fn add(&mut self, code: Code, place: Place, evidence: Evidence) {
        if let Some(count) = self.counts.get_mut(code.severity() as usize) {
            *count += 1;
        }
        if let Some(count) = self.by_code.get_mut(code as usize) {
            *count += 1;
            if *count <= KEPT {
                self.findings.push(Finding {
                    code,
                    place,
                    evidence,
                });
            }
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
        let mut room = self.by_code.map(|count| KEPT.saturating_sub(count));
        for finding in other.findings {
            if let Some(room) = room.get_mut(finding.code as usize)
                && *room > 0
            {
                *room -= 1;
                self.findings.push(finding);
            }
        }
        for (to, from) in self.by_code.iter_mut().zip(other.by_code) {
            *to += from;
        }
    }

    /// Findings with a code so far.
    pub(crate) fn count(&self, code: Code) -> u64 {
        self.by_code.get(code as usize).copied().unwrap_or(0)
    }

    /// Whether anything was found of this kind.
    pub(crate) fn has(&self, code: Code) -> bool {
        self.by_code.get(code as usize).is_some_and(|n| *n > 0)
    }

    /// Findings of all severities so far.
    pub(crate) fn total(&self) -> u64 {
        self.counts.iter().sum()
    }

    pub(crate) fn into_report(mut self, totals: Totals) -> Report {
        self.findings
            .sort_by_key(|finding| (finding.place, finding.code));
        Report {
            findings: self.findings,
            counts: self.counts,
            by_code: self.by_code,
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
    /// Files and directories whose blocks are not in one piece, of those smaller than a group.
    pub fragmented: u64,
}

/// The outcome of a check.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Report {
    /// What was found, sorted by place; of each code at most the first 1,000.
    pub findings: Vec<Finding>,
    counts: [u64; 3],
    by_code: [u64; Code::ALL.len()],
    /// What the file system holds, as far as it could be read.
    pub totals: Totals,
}

impl Report {
    /// How many findings of a severity there are, also those beyond the ones kept.
    #[must_use]
    pub fn count(&self, severity: Severity) -> u64 {
        self.counts.get(severity as usize).copied().unwrap_or(0)
    }

    /// How many findings with a code there are, also those beyond the ones kept.
    pub(crate) fn count_of(&self, code: Code) -> u64 {
        self.by_code.get(code as usize).copied().unwrap_or(0)
    }

    /// Adds what another piece of work has found in places where this has nothing with the same
    /// code.
    pub(crate) fn add_missing(&mut self, other: Sink) {
        for finding in other.findings {
            let mut known = self.findings.iter();
            if known.any(|known| known.code == finding.code && known.place == finding.place) {
                continue;
            }
            if let Some(count) = self.counts.get_mut(finding.severity() as usize) {
                *count += 1;
            }
            if let Some(count) = self.by_code.get_mut(finding.code as usize) {
                *count += 1;
            }
            self.findings.push(finding);
        }
        self.findings
            .sort_by_key(|finding| (finding.place, finding.code));
    }

    /// Whether the file system is consistent: nothing worse than a warning.
    #[must_use]
    pub fn is_clean(&self) -> bool {
        self.count(Severity::Error) == 0 && self.count(Severity::Fatal) == 0
    }

    /// Whether there is a finding with this code, kept or only counted.
    #[must_use]
    pub fn has(&self, code: Code) -> bool {
        self.by_code.get(code as usize).is_some_and(|n| *n > 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_has_a_code_whether_or_not_its_findings_are_kept() {
        let mut sink = Sink::new();
        for _ in 0..KEPT + 5 {
            sink.say(Code::LinkCount, Place::FILE_SYSTEM, "one of many");
        }
        let mut other = Sink::new();
        other.say(Code::MetadataOverlap, Place::FILE_SYSTEM, "alone");
        sink.absorb(other);
        let mut report = sink.into_report(Totals::default());
        assert_eq!(report.findings.len() as u64, KEPT + 1);
        assert_eq!(report.count(Severity::Error), KEPT + 6);
        report.findings.clear();
        assert!(report.has(Code::LinkCount) && report.has(Code::MetadataOverlap));
        assert!(!report.has(Code::BlockShared) && !report.is_clean());
        let mut late = Sink::new();
        late.say(Code::BlockShared, Place::FILE_SYSTEM, "found elsewhere");
        report.add_missing(late);
        assert!(report.has(Code::BlockShared));
    }
}

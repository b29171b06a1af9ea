//! What a check or a repair came to, as C reads it.

use crate::constants::{ERROR, FATAL, FINDINGS, FIXES, LOSSES, NOWHERE, WARNING};
use crate::types::{Finding, Summary};
use extant_fsck::repair::{Fix, Loss, Plan};
use extant_fsck::{Code, Place, Severity};
use std::ffi::CString;

/// A report: `extant_report`.
#[derive(Debug, Default)]
pub struct Report {
    pub(crate) summary: Summary,
    findings: List,
    fixes: List,
    losses: List,
}

/// Entries, and the texts that they point to.
#[derive(Debug, Default)]
struct List {
    entries: Vec<Finding>,
    texts: Vec<CString>,
}

impl List {
    fn add(&mut self, code: &str, text: String, severity: Severity, place: &Place) {
        let mut owned = |text: &str| {
            let bytes: Vec<u8> = text.bytes().filter(|byte| *byte != 0).collect();
            let text = CString::new(bytes).unwrap_or_default();
            // Where it is stays when the list grows.
            let at = text.as_ptr();
            self.texts.push(text);
            at
        };
        let (code, text) = (owned(code), owned(&text));
        self.entries.push(Finding {
            code,
            text,
            severity: match severity {
                Severity::Warning => WARNING,
                Severity::Error => ERROR,
                Severity::Fatal => FATAL,
            },
            group: place.group.map_or(u32::MAX, |group| group.get()),
            inode: place.ino.map_or(0, |ino| ino.get().into()),
            inode_block: place.lblk.map_or(NOWHERE, |block| block.get().into()),
            block: place.block.map_or(NOWHERE, |block| block.get()),
        });
    }
}

impl Report {
    /// Takes over what a check found.
    pub(crate) fn of_check(report: &extant_fsck::Report) -> Self {
        let mut new = Self::default();
        for finding in &report.findings {
            let (code, severity) = (finding.code.name(), finding.severity());
            new.findings
                .add(code, finding.to_string(), severity, &finding.place);
        }
        new.summary = Summary {
            warnings: report.count(Severity::Warning),
            errors: report.count(Severity::Error),
            fatal: report.count(Severity::Fatal),
            inodes: report.totals.inodes,
            directories: report.totals.directories,
            blocks: report.totals.blocks,
            clean: report.is_clean().into(),
            ..Summary::default()
        };
        new
    }

    /// Takes over what a repair does, which changes so many blocks.
    pub(crate) fn of_plan(plan: &Plan, changed_blocks: u64) -> Self {
        let mut new = Self::of_check(&plan.left);
        for fix in &plan.fixes {
            new.add_fix(fix);
        }
        for loss in &plan.losses {
            new.add_loss(loss);
        }
        new.summary.fixes = plan.fixes_count;
        new.summary.losses = plan.losses_count;
        new.summary.changed_blocks = changed_blocks;
        new
    }

    fn add_fix(&mut self, fix: &Fix) {
        let code: Code = fix.code;
        self.fixes
            .add(code.name(), fix.to_string(), code.severity(), &fix.place);
    }

    fn add_loss(&mut self, loss: &Loss) {
        let place = Place::ino(loss.ino);
        self.losses
            .add("loss", loss.to_string(), Severity::Error, &place);
    }

    /// An entry of a list.
    pub(crate) fn entry(&self, list: u32, index: usize) -> Option<&Finding> {
        let list = match list {
            FINDINGS => &self.findings,
            FIXES => &self.fixes,
            LOSSES => &self.losses,
            _ => return None,
        };
        list.entries.get(index)
    }
}

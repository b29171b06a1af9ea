//! What is found and is known: each with its reason, and counted.

use super::found::Noted;

/// A difference that is argued: docs/user/check.md says why.
pub(super) struct Known {
    pub(super) outcome: &'static str,
    /// What the class of the change begins with.
    pub(super) class: &'static str,
    /// What is told of it.
    pub(super) told: &'static str,
    pub(super) why: &'static str,
}

pub(super) const KNOWN: &[Known] = &[
    Known {
        outcome: "NotWritten",
        class: "superblock s_blocks_count",
        told: "bigalloc with clusters that are not whole",
        why: "a file system that ends inside a cluster is read, and not written to",
    },
    Known {
        outcome: "NotWritten",
        class: "superblock s_feature_ro_compat",
        told: "(for writing; it can be opened for reading only)",
        why: "features that Linux mounts for reading only are read, and not written to",
    },
];

/// Why a fault is argued, if it is.
pub(super) fn why(fault: &Noted) -> Option<&'static str> {
    let known = KNOWN.iter().find(|known| {
        known.outcome == fault.outcome
            && fault.class.starts_with(known.class)
            && fault.told.contains(known.told)
    });
    known.map(|known| known.why)
}

/// What is argued is said where users read it.
#[test]
fn what_is_argued_about_mutants_is_in_the_documents() {
    let page = include_str!("../../../../../docs/user/check.md").replace('\n', " ");
    for known in KNOWN {
        assert!(page.contains(known.why), "{}", known.why);
        let is_narrow = !known.class.is_empty() && !known.told.is_empty();
        assert!(is_narrow, "{} is argued as a whole", known.outcome);
    }
}

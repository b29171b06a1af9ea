//! What is found and is known: each with its reason, and counted.

use super::Noted;

/// A difference that is argued: docs/check.md says why.
pub(super) struct Known {
    pub(super) outcome: &'static str,
    /// What the class of the change begins with.
    pub(super) class: &'static str,
    /// What is told of it.
    pub(super) told: &'static str,
    pub(super) why: &'static str,
}

pub(super) const KNOWN: &[Known] = &[Known {
    outcome: "CleanForUsAlone",
    class: "journal superblock s_errno",
    told: "Bad file descriptor",
    why: "e2fsck -n wants to write the journal's error to the superblock, and fails there",
}];

/// Why a fault is argued, if it is.
pub(super) fn why(fault: &Noted) -> Option<&'static str> {
    let known = KNOWN.iter().find(|known| {
        known.outcome == fault.outcome
            && fault.class.starts_with(known.class)
            && fault.told.contains(known.told)
    });
    known.map(|known| known.why)
}

/// An outcome of which there are cases yet: each is printed, none fails the run.
pub(super) struct Open {
    pub(super) outcome: &'static str,
    pub(super) why: &'static str,
}

pub(super) const OPEN: &[Open] = &[
    Open {
        outcome: "RepairedForUsAlone",
        why: "open: what the check does not see, the repair does not mend",
    },
    Open {
        outcome: "RepairedNotForLinux",
        why: "open: what the check does not see, the repair does not mend",
    },
    Open {
        outcome: "CleanForUsAlone",
        why: "open: fields that e2fsck judges and the check does not",
    },
    Open {
        outcome: "CleanNotForLinux",
        why: "open: fields that Linux judges when it mounts and the check does not",
    },
    Open {
        outcome: "ReadOtherwise",
        why: "open: a directory whose descriptor Linux does not believe is read all the same",
    },
    Open {
        outcome: "CleanNotForTheEngine",
        why: "open: the engine is less patient than the check",
    },
    Open {
        outcome: "NotWritten",
        why: "open: the engine is less patient than the check, as with counts of unused inodes without checksums",
    },
    Open {
        outcome: "WrittenWrongly",
        why: "open: what was clean for the check alone is so afterwards",
    },
];

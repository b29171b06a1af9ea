//! What a user should know about a file system although it opened.

use super::{Fs, JournalChoice, MountOptions};
use extant_format::features::Compat;
use extant_format::superblock::{ErrorRecord, State, Superblock};
use extant_format::{Ino, Tid};
use extant_jbd2::{LogEnd, Recovery};
use std::fmt;

/// Something worth telling the user of a file system that opened. Displays as a sentence without a
/// full stop.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Notice {
    /// The file system remembers errors: it should be checked.
    ErrorsRecorded {
        /// How many were counted; 0 where only the state says that there were any.
        count: u32,
        /// The latest, where it was recorded.
        last: Option<ErrorRecord>,
    },
    /// The journal was stopped by an error: the file system should be checked.
    JournalAborted {
        /// The error, as a positive errno.
        errno: u32,
    },
    /// A transaction at the end of the log did not reach the device as a whole and was dropped,
    /// as if the machine had stopped before it.
    TransactionTorn {
        /// The transaction.
        tid: Tid,
    },
    /// A crash left half of a superblock, which was restored from the journal.
    SuperblockTorn,
    /// The device ends before its file system: what lies behind the end cannot be read.
    CutShort {
        /// Bytes of the file system.
        needed: u64,
        /// Bytes of the device.
        found: u64,
    },
    /// The file system was in use when its device was last written, and has no journal: it may be
    /// inconsistent.
    NotCleanlyClosed,
    /// The journal waits for replay and was ignored, as asked for: what is shown may be
    /// inconsistent.
    JournalIgnored,
    /// The file system says that its journal waits for replay, and has no journal.
    NoJournalToReplay,
    /// The journal was replayed into memory. The device is as it was.
    JournalReplayed {
        /// Transactions.
        transactions: u32,
        /// Blocks whose newest content came from the log.
        blocks: usize,
    },
    /// Changes that were made as a whole, and waited for that, were put in place on the device.
    ChangesPutInPlace {
        /// Blocks written.
        blocks: u64,
    },
    /// Changes that the journal held besides whole transactions were made, wherever those were
    /// replayed to.
    FastCommitsReplayed {
        /// Records.
        records: usize,
    },
    /// The journal was replayed to the device, which now is as the last commit left it.
    JournalWrittenHome {
        /// Transactions.
        transactions: u32,
        /// Blocks written.
        blocks: usize,
    },
}

impl Notice {
    /// Whether the file system may be damaged; the others are information.
    #[must_use]
    pub const fn is_warning(&self) -> bool {
        !matches!(
            self,
            Self::JournalReplayed { .. }
                | Self::JournalWrittenHome { .. }
                | Self::FastCommitsReplayed { .. }
                | Self::SuperblockTorn
                | Self::ChangesPutInPlace { .. }
        )
    }

    /// What the superblock has to tell.
    pub(crate) fn of_superblock(superblock: &Superblock, options: &MountOptions) -> Vec<Self> {
        let mut notices = Vec::new();
        let count = superblock.error_count();
        if count > 0 || superblock.state().contains(State::ERRORS) {
            let last = superblock.last_error().or(superblock.first_error());
            notices.push(Self::ErrorsRecorded { count, last });
        }
        let has_journal = superblock.has_compat(Compat::HAS_JOURNAL);
        let ignored = options.journal == JournalChoice::Ignore;
        match (superblock.needs_recovery(), has_journal) {
            (true, false) => notices.push(Self::NoJournalToReplay),
            (true, true) if ignored => notices.push(Self::JournalIgnored),
            (false, false) if !superblock.state().contains(State::CLEAN) => {
                notices.push(Self::NotCleanlyClosed);
            }
            _ => {}
        }
        notices
    }

    /// What a replay into memory has to tell.
    pub(crate) fn of_recovery(recovery: &Recovery) -> Vec<Self> {
        let mut notices = Self::of_log(recovery);
        notices.push(Self::JournalReplayed {
            transactions: recovery.transaction_count,
            blocks: recovery.blocks.len(),
        });
        notices
    }

    /// What a replay to the device has to tell.
    pub(crate) fn of_replay(recovery: &Recovery) -> Vec<Self> {
        let mut notices = Self::of_log(recovery);
        notices.push(Self::JournalWrittenHome {
            transactions: recovery.transaction_count,
            blocks: recovery.blocks.len(),
        });
        notices
    }

    /// What the log itself has to tell.
    fn of_log(recovery: &Recovery) -> Vec<Self> {
        let mut notices = Vec::new();
        if recovery.recorded_error != 0 {
            let errno = recovery.recorded_error.unsigned_abs();
            notices.push(Self::JournalAborted { errno });
        }
        if let LogEnd::TornCommit { tid, .. } = recovery.end {
            notices.push(Self::TransactionTorn { tid });
        }
        if let Some(found) = &recovery.fast_commits {
            let records = found.records().count();
            notices.push(Self::FastCommitsReplayed { records });
        }
        notices
    }
}

impl fmt::Display for Notice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ErrorsRecorded { count, last } => {
                match count {
                    0 => f.write_str("the file system remembers errors")?,
                    1 => f.write_str("the file system remembers an error")?,
                    n => write!(f, "the file system remembers {n} errors")?,
                }
                if let Some(last) = last {
                    write_record(f, last)?;
                }
                f.write_str("; it should be checked")
            }
            Self::JournalAborted { errno } => write!(
                f,
                "the journal was stopped by error {errno}; the file system should be checked"
            ),
            Self::TransactionTorn { tid } => write!(
                f,
                "transaction {tid} at the end of the journal is torn and was dropped"
            ),
            Self::CutShort { needed, found } => write!(
                f,
                "the file system has {needed} bytes and the device only {found}: what lies behind that is lost, and \
                 files that have a part of it there cannot be read whole"
            ),
            Self::SuperblockTorn => {
                f.write_str("the superblock was half written and was restored from the journal")
            }
            Self::NotCleanlyClosed => f.write_str(
                "the file system was not closed cleanly and has no journal; \
                 it may be inconsistent",
            ),
            Self::JournalIgnored => {
                f.write_str("the journal was not replayed; what is shown may be inconsistent")
            }
            Self::NoJournalToReplay => f.write_str(
                "the file system waits for the replay of a journal it does not have; \
                 it may be inconsistent",
            ),
            Self::JournalReplayed {
                transactions,
                blocks,
            } => write!(
                f,
                "the journal was replayed into memory ({transactions} transactions, \
                 {blocks} blocks); the image is as it was"
            ),
            Self::ChangesPutInPlace { blocks } => write!(
                f,
                "changes that were made as a whole were put in place ({blocks} blocks)"
            ),
            Self::FastCommitsReplayed { records } => {
                write!(f, "fast commits were replayed ({records} records)")
            }
            Self::JournalWrittenHome {
                transactions,
                blocks,
            } => write!(
                f,
                "the journal was replayed ({transactions} transactions, {blocks} blocks)"
            ),
        }
    }
}

/// The latest error, as far as it says anything.
fn write_record(f: &mut fmt::Formatter<'_>, record: &ErrorRecord) -> fmt::Result {
    let function = record.function.split(|&byte| byte == 0).next();
    // Bytes of an image: nothing but plain letters goes to a terminal.
    let function = function.filter(|name| {
        let plain = |byte: &u8| byte.is_ascii_alphanumeric() || *byte == b'_';
        !name.is_empty() && name.iter().all(plain)
    });
    if let Some(name) = function.and_then(|name| std::str::from_utf8(name).ok()) {
        write!(f, ", the latest in {name}:{}", record.line)?;
    }
    if record.ino != Ino::new(0) {
        write!(f, ", inode {}", record.ino)?;
    }
    if record.block.get() != 0 {
        write!(f, ", block {}", record.block)?;
    }
    Ok(())
}

impl Fs {
    /// Puts what a replay told in front of what the superblock tells, or behind it where it is
    /// only information.
    pub(crate) fn add_notices(&mut self, found: impl IntoIterator<Item = Notice>) {
        self.notices.extend(found);
        self.notices.sort_by_key(|notice| !notice.is_warning());
    }
}

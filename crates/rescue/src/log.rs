//! The log as it is shown: transactions, and what the blocks in them are.

use crate::error::{Error, Result};
use crate::tree::Tree;
use crate::uses::{Use, by_content, of_blocks};
use crate::{Journal, Rescue};
use extant_format::jbd2::{BlockType, FastCommitRecord, JournalSuperblock};
use extant_format::{Ino, Pblk, Tid};
use extant_jbd2::{Check, LogRecord, LoggedImage, LoggedTransaction};
use std::collections::HashSet;

/// Fast-commit records, and revoked blocks, that are shown at most.
const MOST_FAST_COMMITS: usize = 1 << 20;
const MOST_REVOKED: usize = 1 << 22;

/// Where a transaction stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogState {
    /// It waits to be written home: recovery replays it.
    Waiting,
    /// It was written home, and its place may be used again.
    Old,
    /// It has no commit block, or a wrong one: it never took effect, or its end was replaced.
    Incomplete,
}

/// The journal itself.
#[derive(Clone, Debug)]
pub struct JournalView {
    /// Its superblock.
    pub superblock: JournalSuperblock,
    /// Whether it lies on a device of its own.
    pub is_external: bool,
    /// What keeps a part of it from being replayed.
    pub damage: Option<String>,
}

/// A block in the log.
#[derive(Clone, Debug)]
pub struct ImageView {
    /// Where it lies, where it belongs, and what its checksum says.
    pub image: LoggedImage,
    /// What the block is used for now.
    pub used_for: Use,
    /// The path of the file or directory that it belongs to, where that is known.
    pub path: Option<Vec<u8>>,
}

/// A transaction, or what is left of it.
#[derive(Clone, Debug)]
pub struct TransactionView {
    /// Its number.
    pub tid: Tid,
    /// Where it stands.
    pub state: LogState,
    /// When it was committed: seconds since the epoch, and nanoseconds.
    pub committed: Option<(u64, u32)>,
    /// Descriptor, revoke and commit blocks.
    pub records: Vec<LogRecord>,
    /// The blocks that it holds.
    pub images: Vec<ImageView>,
    /// The blocks that it revokes.
    pub revoked: Vec<Pblk>,
}

/// A record of the fast-commit area.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FastCommitTag {
    /// The journal block.
    pub block: u32,
    /// Its name.
    pub name: &'static str,
    /// The transaction, of a head and a tail.
    pub tid: Option<Tid>,
    /// The inode, of all that have one.
    pub ino: Option<Ino>,
    /// The directory, of names.
    pub parent: Option<Ino>,
    /// The name, of those that change one.
    pub entry: Option<Vec<u8>>,
    /// First logical block and number of blocks, of changed maps.
    pub blocks: Option<(u32, u32)>,
    /// The first block on the device, of blocks that are added.
    pub start: Option<Pblk>,
    /// What the checksum of a tail says.
    pub is_right: Option<bool>,
}

/// The log.
#[derive(Clone, Debug)]
pub struct LogView {
    /// The journal itself.
    pub journal: JournalView,
    /// By their numbers, the oldest first.
    pub transactions: Vec<TransactionView>,
    /// Records of the fast-commit area, in their order.
    pub fast_commits: Vec<FastCommitTag>,
}

impl Rescue {
    /// Returns what the log has: every transaction of which something is left, and of each block in
    /// it what it is used for now. `tid` and `block` choose a transaction, and a block of the file
    /// system.
    ///
    /// # Errors
    /// No journal, a device that fails.
    pub fn log(&self, tid: Option<Tid>, block: Option<Pblk>) -> Result<LogView> {
        let journal = self.journal.as_ref().ok_or(Error::NoJournal)?;
        let log = journal.log()?;
        let history = journal.history()?;
        let chosen = |image: &LoggedImage| block.is_none_or(|block| block == image.home);
        let mut transactions = Vec::new();
        let mut revokes_left = MOST_REVOKED;
        for found in &history.transactions {
            if tid.is_some_and(|tid| tid != found.tid) {
                continue;
            }
            let mut revoked = Vec::new();
            let is_revoke = |record: &&LogRecord| record.kind == BlockType::Revoke;
            for record in found.records.iter().filter(is_revoke) {
                let all = log.revoked_by(record.block).map_err(Error::of_journal)?;
                let mine = all.into_iter().filter(|b| block.is_none_or(|c| c == *b));
                let before = revoked.len();
                revoked.extend(mine.take(revokes_left));
                revokes_left -= revoked.len() - before;
            }
            let images: Vec<_> = found.images.iter().filter(|i| chosen(i)).copied().collect();
            if block.is_none() || !images.is_empty() || !revoked.is_empty() {
                transactions.push(view(journal, found, images, revoked));
            }
        }
        self.tell_uses(journal, &mut transactions)?;
        let mut fast_commits = Vec::new();
        if block.is_none() {
            log.fast_commit_area(&mut |at, record, is_right| {
                if fast_commits.len() < MOST_FAST_COMMITS
                    && let Ok(record) = record
                {
                    fast_commits.push(tag(at, &record, is_right));
                }
            })
            .map_err(Error::of_journal)?;
            fast_commits.retain(|found| tid.is_none_or(|tid| found.tid == Some(tid)));
        }
        Ok(LogView {
            journal: JournalView {
                superblock: log.superblock().clone(),
                is_external: journal.is_external,
                damage: journal.damage.clone(),
            },
            transactions,
            fast_commits,
        })
    }

    /// Adds what the blocks in these transactions are used for.
    fn tell_uses(&self, journal: &Journal, transactions: &mut [TransactionView]) -> Result<()> {
        let volume = &self.volume;
        let images = transactions.iter().flat_map(|found| &found.images);
        let mut wanted: Vec<u64> = images.map(|view| view.image.home.get()).collect();
        wanted.sort_unstable();
        wanted.dedup();
        let uses = of_blocks(volume, Some(journal), &wanted)?;
        let owners: HashSet<Ino> = uses.values().filter_map(Use::ino).collect();
        let tree = Tree::read(volume, &owners)?;
        let log = journal.log()?;
        let mut bytes = vec![0; volume.block_size().len()];
        for view in transactions.iter_mut().flat_map(|found| &mut found.images) {
            view.used_for = match uses.get(&view.image.home.get()) {
                Some(of) => *of,
                None => {
                    log.read_logged(&view.image, &mut bytes)
                        .map_err(Error::of_journal)?;
                    by_content(volume, &bytes)
                }
            };
            view.path = view.used_for.ino().and_then(|ino| tree.path(ino));
        }
        Ok(())
    }
}

fn view(
    journal: &Journal,
    found: &LoggedTransaction,
    images: Vec<LoggedImage>,
    revoked: Vec<Pblk>,
) -> TransactionView {
    let waits = journal
        .waiting()
        .is_some_and(|(first, last)| !first.is_after(found.tid) && !found.tid.is_after(last));
    let commit_is_wrong = found
        .records
        .last()
        .is_some_and(|record| record.check == Check::Wrong);
    let state = if waits {
        LogState::Waiting
    } else if found.committed.is_none() || commit_is_wrong {
        LogState::Incomplete
    } else {
        LogState::Old
    };
    let images = images.into_iter().map(|image| ImageView {
        image,
        used_for: Use::Unowned,
        path: None,
    });
    TransactionView {
        tid: found.tid,
        state,
        committed: found.committed,
        records: found.records.clone(),
        images: images.collect(),
        revoked,
    }
}

fn tag(block: u32, record: &FastCommitRecord<'_>, is_right: Option<bool>) -> FastCommitTag {
    let mut tag = FastCommitTag {
        block,
        name: "pad",
        tid: None,
        ino: None,
        parent: None,
        entry: None,
        blocks: None,
        start: None,
        is_right,
    };
    let mut named = |name, entry: &extant_format::jbd2::DirEntryChange<'_>| {
        tag.name = name;
        tag.ino = Some(entry.ino);
        tag.parent = Some(entry.parent);
        tag.entry = Some(entry.name.to_vec());
    };
    match record {
        FastCommitRecord::Create(entry) => named("create", entry),
        FastCommitRecord::Link(entry) => named("link", entry),
        FastCommitRecord::Unlink(entry) => named("unlink", entry),
        FastCommitRecord::AddRange {
            ino,
            lblk,
            len,
            start,
            ..
        } => {
            tag.name = "add-range";
            tag.ino = Some(*ino);
            tag.blocks = Some((lblk.get(), u32::from(*len)));
            tag.start = Some(*start);
        }
        FastCommitRecord::DelRange { ino, lblk, len } => {
            tag.name = "del-range";
            tag.ino = Some(*ino);
            tag.blocks = Some((lblk.get(), *len));
        }
        FastCommitRecord::Inode { ino, .. } => {
            tag.name = "inode";
            tag.ino = Some(*ino);
        }
        FastCommitRecord::Pad { .. } => {}
        FastCommitRecord::Tail { tid, .. } => {
            tag.name = "tail";
            tag.tid = Some(*tid);
        }
        FastCommitRecord::Head { tid, .. } => {
            tag.name = "head";
            tag.tid = Some(*tid);
        }
    }
    tag
}

//! An independent checker of ext4 file systems: complete, read-only, parallel by group; and repair,
//! which puts right what the check finds.
//!
//! Part of the API: versions say when it changes (`docs/dev/api.md`).
//!
//! It shares the on-disk format with the rest of the project, and no engine: what it says about an
//! image does not depend on what wrote it.
//!
//! | module | owns |
//! |---|---|
//! | `survey` | the whole check, and what later passes and repairs need of it |
//! | `repair` | putting right what was found |
//! | `finding` | what a finding is: code, severity, place, evidence |
//! | `report` | collecting findings |
//! | `volume` | superblock, descriptors, reading |
//! | `journal` | the file system as recovery would leave it; the journal's own soundness |
//! | `superblock`, `field_rules`, `mount_rules` | fields, backups, multiple-mount protection |
//! | `metadata` | the blocks of fixed structures |
//! | `orphans` | files that wait to be deleted |
//! | `scan` | the pass over all inode tables |
//! | `inode`, `special`, `maps`, `xattr` | one inode, by its parts |
//! | `encryption` | contexts and policies of encrypted files |
//! | `garbage` | inodes of which nothing can be kept |
//! | `claims`, `blockset`, `owners` | which file claims which blocks |
//! | `inode_table` | four bytes for every inode |
//! | `dir`, `htree` | directories and their indexes |
//! | `connectivity` | the tree, and link counts |
//! | `bitmaps` | bitmaps and counts |
//! | `quota` | quota files |
//! | `undo` | undo files of changes that are not known before |
//! | `verity` | content compared with the hashes of fs-verity |
//!
//! # Invariants
//! - Nothing is written, but by `repair` when it is told to, and by `undo`, which is for changes of
//!   others.
//! - Any bytes at all give a report or an error: no panic, no endless loop. Memory depends on what
//!   is in use, not on the size of the device.
//! - A check has no locks: each task has findings and sets of its own, joined when it ends.
#![forbid(unsafe_code)]

mod bitmaps;
mod blockset;
mod bytes;
mod claims;
mod connectivity;
mod dir;
mod encryption;
mod error;
mod field_rules;
mod finding;
mod garbage;
mod htree;
mod inode;
mod inode_table;
mod journal;
mod maps;
mod metadata;
mod mount_rules;
mod orphans;
mod owners;
mod quota;
pub mod repair;
mod report;
mod scan;
mod special;
mod superblock;
mod survey;
pub mod undo;
mod verity;
mod volume;
mod xattr;

pub use error::{Error, Result};
pub use finding::{Code, Evidence, Finding, Place, Severity};
pub use report::{Report, Totals};

use extant_blockdev::{BlockDevice, SharedDevice};
use extant_format::features::Features;
use extant_format::superblock::{SUPERBLOCK_LEN, SUPERBLOCK_OFFSET, Superblock};
use extant_format::{BlockSize, FormatError, Pblk, Structure};
use report::Sink;
use std::sync::Arc;

/// How to check.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Options {
    /// Judge the bytes as they lie. Otherwise what is judged is what replaying the journal would
    /// give.
    pub as_is: bool,
    /// Compare the content of files that fs-verity protects with their hashes. All of it is read.
    pub verity: bool,
}

impl Options {
    /// Judge the bytes as they lie, or what replaying the journal would give.
    #[must_use]
    pub const fn as_is(mut self, on: bool) -> Self {
        self.as_is = on;
        self
    }

    /// Compare the content of files that fs-verity protects with their hashes, or do not.
    #[must_use]
    pub const fn verity(mut self, on: bool) -> Self {
        self.verity = on;
        self
    }
}

/// A part of the work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Pass {
    /// Inodes and their maps; the unit is groups.
    Inodes,
    /// Attribute blocks.
    Attributes,
    /// Directories.
    Directories,
    /// Bitmaps and counts; the unit is groups.
    Bitmaps,
    /// Content and its hashes; the unit is files.
    Verity,
}

/// Follows how far a check is. Called from several threads.
pub trait Progress: Sync {
    /// A pass with so many units begins.
    fn begin(&self, pass: Pass, units: u64);
    /// So many more units are done.
    fn advance(&self, units: u64);
}

/// Follows nothing.
impl Progress for () {
    fn begin(&self, _: Pass, _: u64) {}
    fn advance(&self, _: u64) {}
}

/// Threads at most that mostly wait for a device.
const MOST_THREADS: usize = 32;

/// Refuses a superblock with which what the file system holds cannot be told: changes wait to be
/// put in place, a part of them is taken back, or it has features in `incompat` that nothing here
/// knows.
///
/// # Errors
/// [`Error::Refused`], which says what to do, and [`Error::Unsupported`].
pub fn refuse_unreadable(superblock: &Superblock) -> Result<()> {
    undo::half_way::refuse(superblock)?;
    let incompat = superblock.features().incompat;
    let unknown = incompat.beyond(Features::DESCRIBED.incompat);
    if unknown.is_empty() {
        return Ok(());
    }
    Err(Error::Unsupported {
        names: unknown.names_of_bits(),
    })
}

/// Reads the primary superblock. One that is not sound is an error, whatever backups there are.
///
/// # Errors
/// When the device fails, there is no ext2, ext3 or ext4, or the superblock is damaged.
pub fn primary_superblock(device: &dyn BlockDevice) -> Result<Superblock> {
    let end = SUPERBLOCK_OFFSET as usize + SUPERBLOCK_LEN;
    let size = usize::try_from(device.size()).unwrap_or(usize::MAX);
    if size < end {
        let short = FormatError::short(Structure::Superblock, size, end);
        return Err(Error::not_ext4(device, short));
    }
    let mut bytes = [0; SUPERBLOCK_LEN];
    device.read_at(SUPERBLOCK_OFFSET, &mut bytes)?;
    Superblock::parse(&bytes).map_err(|e| match e.field {
        "magic" => Error::not_ext4(device, e),
        _ => e.into(),
    })
}

/// Looks for a sound backup superblock: where groups begin by what the primary superblock says of
/// their size, sound or not, and then where groups of the usual size begin. Gives the block it lies
/// in and the size of blocks, or `None` if there is none.
///
/// # Errors
/// When the device fails.
pub fn find_backup_superblock(device: &dyn BlockDevice) -> Result<Option<(Pblk, BlockSize)>> {
    let found = volume::find_backup(device)?;
    Ok(found.map(|(sb, block)| (block, sb.block_size())))
}

/// Looks for a sound superblock in block `block`, whatever the size of blocks is. Gives the block
/// and that size, or `None` if there is none.
///
/// # Errors
/// When the device fails.
pub fn superblock_in_block(
    device: &dyn BlockDevice,
    block: Pblk,
) -> Result<Option<(Pblk, BlockSize)>> {
    let found = volume::superblock_in(device, block)?;
    Ok(found.map(|(sb, block)| (block, sb.block_size())))
}

/// Checks the file system that starts at byte 0 of `device`.
///
/// # Errors
/// When no verdict can be given: a device that fails, no file system, features that are not known
/// here, fast commits that wait for replay.
pub fn check(device: SharedDevice, options: Options, progress: &dyn Progress) -> Result<Report> {
    check_with_journal(device, None, options, progress)
}

/// Checks as [`check`] does, with the device that holds the journal, for a file system whose
/// journal is on one of its own. It is only read.
///
/// # Errors
/// As for [`check`], and when that device does not hold this journal.
pub fn check_with_journal(
    device: SharedDevice,
    journal: Option<SharedDevice>,
    options: Options,
    progress: &dyn Progress,
) -> Result<Report> {
    check_over(device, journal, None, options, progress)
}

/// Checks as [`check_with_journal`] does what the transactions of the journal give, where fast
/// commits follow them that cannot be replayed. That is an error, with the reason `why`.
///
/// # Errors
/// As for [`check`], but for fast commits that wait.
pub fn check_without_fast_commits(
    device: SharedDevice,
    journal: Option<SharedDevice>,
    why: &str,
    options: Options,
    progress: &dyn Progress,
) -> Result<Report> {
    check_over(device, journal, Some(why), options, progress)
}

fn check_over(
    device: SharedDevice,
    journal: Option<SharedDevice>,
    without_fast_commits: Option<&str>,
    options: Options,
    progress: &dyn Progress,
) -> Result<Report> {
    let judged = judge(
        Arc::clone(&device),
        journal,
        without_fast_commits,
        options,
        progress,
    );
    match judged {
        Err(e) if e.is_of_what_is_missing() => superblock::cut_short(&*device).ok_or(e),
        judged => judged,
    }
}

fn judge(
    device: SharedDevice,
    journal: Option<SharedDevice>,
    without_fast_commits: Option<&str>,
    options: Options,
    progress: &dyn Progress,
) -> Result<Report> {
    let mut sink = Sink::new();
    let has_journal = journal.is_some();
    let way = (options.as_is, without_fast_commits);
    let (device, recovered, before) = journal::recovered(device, journal, way, &mut sink)?;
    let in_flight = device.in_flight();
    let of = survey::Input {
        device,
        recovered,
        has_journal,
        remembers_errors: before.has(Code::SuperblockState),
        as_is: options.as_is,
        verity: options.verity,
    };
    let run = || survey::run(of, sink, progress).map(|survey| survey.report);
    let mut report = side_by_side(|| with_threads(in_flight, run))?;
    report.add_missing(before);
    Ok(report)
}

/// Does work with more threads than usual, if that many requests are worth having under way at
/// once.
fn with_threads<T: Send>(in_flight: usize, work: impl FnOnce() -> T + Send) -> T {
    let wanted = in_flight.min(MOST_THREADS);
    if wanted <= rayon::current_num_threads() {
        return work();
    }
    match rayon::ThreadPoolBuilder::new().num_threads(wanted).build() {
        Ok(pool) => pool.install(work),
        // The system has no more threads.
        Err(_) => work(),
    }
}

/// Does work that hands parts of itself to other threads, also in a process that was forked.
fn side_by_side<T: Send>(work: impl FnOnce() -> T + Send) -> T {
    #[cfg(target_os = "linux")]
    return extant_host::side_by_side(work);
    #[cfg(not(target_os = "linux"))]
    work()
}

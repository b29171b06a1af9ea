//! A file system as a repair would leave it, read over a device that is never written.
//!
//! What `repair` refuses is done as far as it helps reading. A device that ends too early is mended
//! as far as it goes; what waits in a journal that cannot be replayed is left out; a stage that
//! would lose files which can be read does nothing.
//!
//! # Invariants
//! - The device is only read.
//! - What could be read before can be read: `net` compares both sides, as for a repair.
//! - What lies behind the end of the device and was not mended is an error of the device for its
//!   reader, and never zeros.

use super::draft::{Draft, Fix};
use super::fast_commits::{self, Replay};
use super::options::Options;
use super::rounds::Rounds;
use super::shown::{Forgiving, Front, Shown};
use super::{journal, net, superblock};
use crate::error::{Error, Result};
use crate::report::Sink;
use crate::volume::{find_superblock, find_superblock_to_read};
use crate::{Code, Place, Progress};
use extant_blockdev::{BlockDevice, OverlayDevice, SharedDevice};
use extant_format::Ino;
use extant_format::geometry::Geometry;
use extant_format::superblock::Superblock;
use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;

/// What makes a device of so many bytes for the blocks that memory has no room for, if it can: one
/// that reads as zeros, each time another one.
pub type SpoolMaker<'a> = &'a dyn Fn(u64) -> Option<SharedDevice>;

/// A file system as a repair would leave it.
#[derive(Debug)]
#[non_exhaustive]
pub struct Mended {
    /// The device as it would be. What was mended is in memory or on a spool; it is refused to be
    /// written to.
    pub device: SharedDevice,
    /// What was put right, in order; of each code at most the first 1,000.
    pub fixes: Vec<Fix>,
    /// How many fixes there are, also those beyond the ones kept.
    pub fixes_count: u64,
    /// Inodes whose content may not be what it was: their maps were damaged, or others claim their
    /// blocks too.
    pub in_doubt: BTreeSet<Ino>,
    /// Whether something is left as it was, since mending it would lose files that can be read.
    pub is_partial: bool,
    /// Whether what waited in the journal could not be replayed, and is left out.
    pub without_journal: bool,
    /// Bytes by which the device is shorter than its file system.
    pub missing: u64,
    /// Pieces of at most 4 KiB that the device could not read, of what was looked at.
    pub unreadable: u64,
}

/// Mends the file system that starts at byte 0 of `device` in memory, and writes nothing to the
/// device. Memory follows the blocks that change: up to 64 MiB of them, if there is a spool and no
/// stage has to be taken back.
///
/// # Errors
/// When nothing can be said: a device that fails, no file system, features that are not known here,
/// fast commits that wait for replay (see [`mend_after_replay`] and [`mend_before_replay`]), a
/// journal on another device that does.
pub fn mend(
    device: &SharedDevice,
    options: Options,
    spool: SpoolMaker<'_>,
    progress: &dyn Progress,
) -> Result<Mended> {
    mend_over(device, Waiting::Here, options, spool, progress)
}

/// Mends the file system that starts at byte 0 of `device`, as [`mend`] does, after its journal was
/// replayed as `replayed` has it: an overlay on the device into which an engine has written what
/// waited, fast commits among it.
///
/// # Errors
/// As for [`mend`].
pub fn mend_after_replay(
    device: &SharedDevice,
    replayed: &Arc<OverlayDevice>,
    options: Options,
    spool: SpoolMaker<'_>,
    progress: &dyn Progress,
) -> Result<Mended> {
    mend_over(
        device,
        Waiting::Replayed(replayed),
        options,
        spool,
        progress,
    )
}

/// Mends the file system that starts at byte 0 of `device`, as [`mend`] does, where fast commits
/// cannot be replayed as it lies: what they change is damaged. That is mended first, and `replay`
/// is asked to replay them over it.
///
/// # Errors
/// As for [`mend`]; where there are no fast commits, or `replay` cannot replay them over that
/// either.
pub fn mend_before_replay(
    device: &SharedDevice,
    replay: Replay<'_>,
    options: Options,
    spool: SpoolMaker<'_>,
    progress: &dyn Progress,
) -> Result<Mended> {
    mend_over(
        device,
        Waiting::ForMending(replay),
        options,
        spool,
        progress,
    )
}

/// What becomes of what waits in the journal.
#[derive(Clone, Copy)]
enum Waiting<'a> {
    /// It is replayed as a repair does.
    Here,
    /// An engine has replayed it.
    Replayed(&'a Arc<OverlayDevice>),
    /// An engine replays fast commits over what is mended.
    ForMending(Replay<'a>),
}

fn mend_over(
    device: &SharedDevice,
    waiting: Waiting<'_>,
    options: Options,
    spool: SpoolMaker<'_>,
    progress: &dyn Progress,
) -> Result<Mended> {
    let found = find_superblock_to_read(&**device)?;
    let needed = found
        .blocks_count()
        .saturating_mul(found.block_size().bytes().into());
    let missing = needed.saturating_sub(device.size());
    if missing > 0 {
        refuse_without_descriptors(&**device, &found)?;
    }
    let size = needed.max(device.size());
    let whole = Arc::new(Shown::new(device, size, Forgiving::new()));
    let attempt = Attempt {
        whole: &(Arc::clone(&whole) as SharedDevice),
        is_cut: missing > 0,
        found: &found,
        waiting,
        spool,
        progress,
    };
    let careful = options.discard_journal(false);
    let ((draft, lost), without_journal) = match attempt.draft(careful, false) {
        Err(Error::Refused { .. } | Error::Journal(_)) if options.discard_journal => {
            (attempt.draft(options, false)?, true)
        }
        done => (done?, false),
    };
    let is_partial = lost > 0 || !is_replay_alone(&draft) && net::losses(&draft)?.1 > 0;
    let draft = if is_partial {
        let options = options.discard_journal(without_journal);
        attempt.draft(options, true)?.0
    } else {
        draft
    };
    Ok(Mended {
        missing,
        is_partial,
        without_journal,
        unreadable: whole.way().unreadable(),
        ..Mended::of(draft, device, needed)
    })
}

/// Refuses a device that has no room for the descriptors that its superblock claims: what is held
/// in memory follows the size of the device.
fn refuse_without_descriptors(device: &dyn BlockDevice, sb: &Superblock) -> Result<()> {
    let geometry = Geometry::new(sb);
    let room = device.size() / u64::from(geometry.desc_size().max(1));
    let most = u32::try_from(room).unwrap_or(u32::MAX);
    if geometry.groups_count() > most {
        let groups = geometry.groups_count();
        return Err(Error::TooLarge { groups, most });
    }
    Ok(())
}

/// Whether nothing was done but to replay a journal: what can be read then is what a mount shows.
fn is_replay_alone(draft: &Draft) -> bool {
    let codes = Code::ALL.iter().copied();
    let mut others = codes.filter(|code| *code != Code::JournalReplayed);
    !others.any(|code| draft.has(code))
}

/// What is mended, and with what.
struct Attempt<'a> {
    /// As long as the file system.
    whole: &'a SharedDevice,
    is_cut: bool,
    found: &'a Superblock,
    waiting: Waiting<'a>,
    spool: SpoolMaker<'a>,
    progress: &'a dyn Progress,
}

impl Attempt<'_> {
    /// What is mended, and how many files that loses before something is replayed over it.
    fn draft(&self, options: Options, careful: bool) -> Result<(Draft, u64)> {
        let block_size = self.found.block_size().bytes();
        let spool = (self.spool)(self.whole.size());
        let mut draft = Draft::for_reading(Arc::clone(self.whole), block_size, spool)?;
        if let Waiting::Replayed(replayed) = self.waiting {
            journal::take_over(&mut draft, Arc::clone(replayed))?;
        }
        match find_superblock(&*draft.device(), &mut Sink::new()) {
            Ok(_) => superblock::restore(&mut draft, self.found)?,
            Err(Error::NotExt4 { source, .. }) => {
                draft.put_superblock(self.found)?;
                let text = format!("possible again, to read by ({source})");
                draft.fix(Code::SuperblockField, Place::FILE_SYSTEM, text);
            }
            Err(e) => return Err(e),
        }
        let rounds = || Rounds::for_reading(options, careful, self.is_cut);
        let mut lost = 0;
        if let Waiting::ForMending(replay) = self.waiting {
            let progress = self.progress;
            let done =
                fast_commits::mend_and_replay(&mut draft, replay, options, rounds(), progress);
            lost = done?.1;
        }
        rounds().run(&mut draft, self.progress)?;
        Ok((draft, lost))
    }
}

impl Mended {
    fn of(draft: Draft, base: &SharedDevice, size: u64) -> Self {
        let block_size = u64::from(draft.block_size());
        let mut blocks: Vec<Range<u64>> = Vec::new();
        for block in draft.written_blocks() {
            match blocks.last_mut() {
                Some(last) if last.end == block => last.end += 1,
                _ => blocks.push(block..block + 1),
            }
        }
        let changed = blocks
            .into_iter()
            .map(|run| run.start * block_size..run.end.saturating_mul(block_size).min(size))
            .collect();
        let in_doubt = draft.in_doubt().clone();
        let mended = draft.device();
        let (fixes, fixes_count, _) = draft.into_parts();
        let size = size.max(base.size());
        Self {
            device: Arc::new(Shown::new(base, size, Front::new(mended, changed))),
            fixes,
            fixes_count,
            in_doubt,
            is_partial: false,
            without_journal: false,
            missing: 0,
            unreadable: 0,
        }
    }
}

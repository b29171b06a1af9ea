//! Repair: mends what a check finds, over a device that is only read until everything is known.
//!
//! A repair goes in rounds. Each checks the file system as it would be with the changes so far, and lets the stages
//! mend what was found, from the superblock down to the bitmaps; the first stage that mends anything ends the round.
//! The repair is over when a check finds nothing that a stage can mend. Only then, when the caller says so, is anything
//! written: see [`Plan::apply`].
//!
//! | module | owns |
//! |---|---|
//! | `draft` | the changes so far, and what they are for |
//! | `net` | what could be read before and could not be afterwards |
//! | `undo` | files that take changes back |
//! | `under_way` | writing: in which order, and what the superblock says meanwhile |
//! | `space` | free blocks |
//! | `work` | what all stages use |
//! | `superblock` | superblock, its fields and backups |
//! | `layout` | where everything lies, if the root directory or groups are not found |
//! | `journal` | replay, the journal's inode and superblock |
//! | `own_files` | numbers of quota files and the orphan file that are those of others |
//! | `groups` | where bitmaps and tables lie; inodes in parts of tables that were not looked at |
//! | `orphans` | files that wait to be deleted or cut |
//! | `inodes`, `content` | fields of inodes; links, inline data and attributes in them |
//! | `maps` | salvaging and building maps |
//! | `clones` | blocks that are claimed twice |
//! | `xattrs` | attribute blocks, inodes that hold values |
//! | `dirs`, `entries`, `behind` | directories; what becomes of each entry; names behind a record that makes no sense |
//! | `tree` | the root, `lost+found`, files without a name, `..`, link counts |
//! | [`resize`] | making a file system larger or smaller |
//! | [`tune`] | changing what a superblock says |
//! | `reseal` | all checksums, with another start |
//! | `special` | the inode that keeps room for descriptors, multiple-mount protection |
//! | `quota` | quota files |
//! | `bitmaps` | bitmaps and counts |
//!
//! # Invariants
//! - The device is read only until [`Plan::apply`].
//! - Nothing that could be read is given up: a file keeps its content, and one without a name gets one in `lost+found`.
//!   The stages keep to this, and `net` compares both sides without asking them.
//! - What a stage cannot mend without a guess it leaves; the check after the last round names it.

mod behind;
mod bitmaps;
mod clones;
mod content;
mod dirs;
mod draft;
mod entries;
mod groups;
mod inodes;
mod journal;
mod layout;
mod maps;
mod net;
mod orphans;
mod own_files;
mod quota;
mod reseal;
pub mod resize;
mod root;
mod space;
mod special;
mod superblock;
mod tree;
pub mod tune;
mod under_way;
mod undo;
mod work;
mod xattrs;

pub use draft::{Change, Changes, Mend};
pub use net::{Loss, Lost};
pub use undo::{revert, write_undo};

use crate::error::{Error, Result};
use crate::report::{Report, Sink};
use crate::survey::{self, Input, Survey};
use crate::{Progress, Severity};
use draft::Draft;
use extant_blockdev::{OverlayDevice, SharedDevice};
use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use work::Work;

/// Rounds after which a repair that still finds something new to do is ended: what is left is named, and another
/// repair goes on.
const ROUNDS_MAX: u32 = 200;

/// How to repair.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Options {
    /// The time that deleted inodes get, in seconds since 1970.
    pub now: u32,
    /// Write a plan also if files that can be read now are lost with it.
    pub allow_loss: bool,
    /// Give up what waits in a journal that cannot be replayed.
    pub discard_journal: bool,
}

impl Options {
    /// The time that deleted inodes get, in seconds since 1970.
    #[must_use]
    pub const fn now(mut self, seconds: u32) -> Self {
        self.now = seconds;
        self
    }

    /// Write a plan also if files that can be read now are lost with it.
    #[must_use]
    pub const fn allow_loss(mut self, on: bool) -> Self {
        self.allow_loss = on;
        self
    }

    /// Give up what waits in a journal that cannot be replayed. One that can be is replayed all the same.
    #[must_use]
    pub const fn discard_journal(mut self, on: bool) -> Self {
        self.discard_journal = on;
        self
    }
}

/// What a repair would do.
#[derive(Debug)]
#[non_exhaustive]
pub struct Plan {
    /// What is put right, in order; of each code at most the first 1,000.
    pub mends: Vec<Mend>,
    /// How many mends there are, also those beyond the ones kept.
    pub mends_count: u64,
    /// What a check finds afterwards: what is not mended.
    pub left: Report,
    /// Files that can be reached and read now, and could not be as they are afterwards, by inode: at most the first 1,000.
    pub losses: Vec<Loss>,
    /// How many files are lost, also those beyond the ones kept.
    pub losses_count: u64,
    /// The blocks that change.
    pub changes: Changes,
    /// What is lost may be.
    allow_loss: bool,
}

/// A stage mends what it can of a kind of structure.
type Stage = fn(&mut Work<'_>) -> Result<()>;

/// In the order in which structures depend on each other.
const STAGES: &[Stage] = &[
    superblock::mend,
    groups::mend,
    // What follows needs all groups: see `PLACES`.
    journal::mend,
    // And all else what the journal holds: see `BEFORE_REPLAY`.
    own_files::mend,
    inodes::root,
    orphans::mend,
    inodes::mend,
    maps::mend,
    clones::mend,
    xattrs::mend,
    special::mend,
    root::mend,
    dirs::mend,
    tree::mend,
    tree::links,
    quota::mend,
    bitmaps::mend,
    superblock::finish,
];

/// The stages that find out where everything lies. Without its inodes a group would look empty, and what names them
/// wrong: if one stays lost, nothing else is mended.
const PLACES: usize = 2;

/// The stages that may make a journal readable in which something waits.
const BEFORE_REPLAY: usize = 3;

/// Finds out how to repair the file system that starts at byte 0 of `device`, and writes nothing.
///
/// # Errors
/// When nothing can be said: a device that fails or is too short, no file system, features that are not known
/// here, fast commits that wait for replay, a file system in use.
pub fn plan(device: SharedDevice, options: Options, progress: &dyn Progress) -> Result<Plan> {
    plan_over(device, None, options, progress)
}

/// Finds out how to repair the file system that starts at byte 0 of `device` after its journal was replayed, as
/// `replayed` has it: an overlay on the device into which an engine has written what waited, fast commits among it. The
/// plan has these changes as well. Writes nothing.
///
/// # Errors
/// As for [`plan`].
pub fn plan_after_replay(
    device: SharedDevice,
    replayed: Arc<OverlayDevice>,
    options: Options,
    progress: &dyn Progress,
) -> Result<Plan> {
    plan_over(device, Some(replayed), options, progress)
}

fn plan_over(
    device: SharedDevice,
    replayed: Option<Arc<OverlayDevice>>,
    options: Options,
    progress: &dyn Progress,
) -> Result<Plan> {
    let found = crate::volume::find_superblock(&*device, &mut Sink::new())?;
    let needed = found
        .blocks_count()
        .saturating_mul(found.block_size().bytes().into());
    if device.size() < needed {
        let size = device.size();
        return Err(Error::TooShort { size, needed });
    }
    special::refuse_if_in_use(&*device, &found)?;
    let mut draft = Draft::new(Arc::clone(&device), found.block_size().bytes());
    if let Some(replayed) = replayed {
        journal::take_over(&mut draft, replayed)?;
    }
    superblock::restore(&mut draft, &found)?;
    let survey = rounds(&mut draft, options, progress)?;
    let (losses, count) = net::losses(&draft)?;
    Ok(Plan {
        losses,
        losses_count: count,
        allow_loss: options.allow_loss,
        ..Plan::new(draft, survey)
    })
}

fn look(draft: &Draft, progress: &dyn Progress) -> Result<Survey> {
    let input = Input {
        device: draft.device(),
        recovered: false,
        remembers_errors: false,
        has_journal: false,
        as_is: false,
    };
    survey::run(input, Sink::new(), progress)
}

fn rounds(draft: &mut Draft, options: Options, progress: &dyn Progress) -> Result<Survey> {
    let mut seen: HashMap<u64, u32> = HashMap::new();
    let mut waiting = journal::replay_or_wait(draft, options)?;
    let mut survey = look(draft, progress)?;
    for _ in 0..ROUNDS_MAX {
        // Stages that undo each other's work would go on for ever.
        let times = seen.entry(fingerprint(&survey.report)).or_default();
        *times += 1;
        if *times > 2 {
            break;
        }
        let before = draft.count();
        let lost = survey.volume.groups.iter().any(|group| !group.located);
        let stages = match (lost, &waiting) {
            (true, _) => PLACES,
            (false, Some(_)) => BEFORE_REPLAY,
            (false, None) => STAGES.len(),
        };
        for stage in STAGES.iter().take(stages) {
            stage(&mut Work::new(&survey, draft, options))?;
            if draft.count() > before {
                break;
            }
        }
        // No stage may decide that nothing waits.
        if let Some(why) = &waiting
            && !superblock::current(draft)?.needs_recovery()
        {
            return Err(journal::refused(why));
        }
        if draft.count() == before {
            match &waiting {
                Some(why) if options.discard_journal => journal::discard(draft, why)?,
                _ => break,
            }
        }
        waiting = journal::replay_or_wait(draft, options)?;
        survey = look(draft, progress)?;
    }
    if waiting.is_some() || superblock::current(draft)?.needs_recovery() {
        let why = waiting.unwrap_or_else(|| "no journal is found".to_owned());
        return Err(journal::refused(&why));
    }
    Ok(survey)
}

fn fingerprint(report: &Report) -> u64 {
    let mut hasher = DefaultHasher::new();
    for finding in &report.findings {
        finding.code.hash(&mut hasher);
        finding.place.hash(&mut hasher);
        finding.evidence.to_string().hash(&mut hasher);
    }
    for severity in [Severity::Warning, Severity::Error, Severity::Fatal] {
        report.count(severity).hash(&mut hasher);
    }
    hasher.finish()
}

impl Plan {
    fn new(draft: Draft, survey: Survey) -> Self {
        let (mends, mends_count, changes) = draft.into_parts();
        Self {
            mends,
            mends_count,
            left: survey.report,
            losses: Vec::new(),
            losses_count: 0,
            changes,
            allow_loss: false,
        }
    }

    /// Whether the file system is consistent once the changes are written.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.left.is_clean()
    }

    /// Whether nothing is lost, or all may be.
    ///
    /// # Errors
    /// [`Error::Loss`] if something would be lost.
    pub fn may_be_written(&self) -> Result<()> {
        match self.losses.first() {
            Some(first) if !self.allow_loss => Err(Error::Loss {
                count: self.losses_count,
                first: first.clone(),
            }),
            _ => Ok(()),
        }
    }

    /// Writes the changes and makes them durable. First what files hold is copied where that moves. Then, each after a
    /// flush, the superblock says that a check is due, if it said that all was well; what waits in a journal is written
    /// home, a superblock that waits in it last; then the journal is empty, then the superblock says that nothing waits;
    /// everything else is written; and the superblock as it is to be. What a crash leaves before the end asks for a check,
    /// can be repaired again, or restored from the undo file; what a journal held is not lost, and no journal is replayed
    /// over what was mended.
    ///
    /// # Errors
    /// [`Error::Loss`] if something would be lost that may not be: nothing is written. Of the device: a part of the
    /// changes may have been written then.
    pub fn apply(&self) -> Result<()> {
        self.may_be_written()?;
        under_way::write(&self.changes)
    }
}

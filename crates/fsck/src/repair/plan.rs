//! What a repair would do: found out over a device that is only read, and written when the caller
//! says so.

use super::draft::{Changes, Draft, Fix};
use super::fast_commits::{self, Replay};
use super::net::{self, Loss};
use super::options::Options;
use super::rounds::{Rounds, rounds};
use super::{in_progress, journal, special, superblock};
use crate::Progress;
use crate::error::{Error, Result};
use crate::report::{Report, Sink};
use crate::survey::Survey;
use extant_blockdev::{OverlayDevice, SharedDevice};
use std::sync::Arc;

/// What a repair would do.
#[derive(Debug)]
#[non_exhaustive]
pub struct Plan {
    /// What is put right, in order; of each code at most the first 1,000.
    pub fixes: Vec<Fix>,
    /// How many fixes there are, also those beyond the ones kept.
    pub fixes_count: u64,
    /// What a check finds afterwards: what is not mended.
    pub left: Report,
    /// Files that can be reached and read now, and could not be as they are afterwards, by inode:
    /// at most the first 1,000.
    pub losses: Vec<Loss>,
    /// How many files are lost, also those beyond the ones kept.
    pub losses_count: u64,
    /// The blocks that change.
    pub changes: Changes,
    /// What is lost may be.
    pub(super) allow_loss: bool,
}

/// Finds out how to repair the file system that starts at byte 0 of `device`, and writes nothing.
///
/// # Errors
/// When nothing can be said: a device that fails or is too short, no file system, features that are
/// not known here, fast commits that wait for replay, a file system in use.
pub fn plan(device: SharedDevice, options: Options, progress: &dyn Progress) -> Result<Plan> {
    plan_over(device, None, None, options, progress)
}

/// Finds out how to repair the file system that starts at byte 0 of `device` after its journal was
/// replayed, as `replayed` has it: an overlay on the device into which an engine has written what
/// waited, fast commits among it. The plan has these changes as well. Writes nothing.
///
/// # Errors
/// As for [`plan`].
pub fn plan_after_replay(
    device: SharedDevice,
    replayed: Arc<OverlayDevice>,
    options: Options,
    progress: &dyn Progress,
) -> Result<Plan> {
    plan_over(device, Some(replayed), None, options, progress)
}

/// Finds out how to repair the file system that starts at byte 0 of `device`, whose fast commits
/// cannot be replayed as it lies: what they change is damaged. That is mended first, and `replay`
/// is asked to replay them over it. The plan has both. Writes nothing.
///
/// # Errors
/// As for [`plan`]; where there are no fast commits, or `replay` cannot replay them over that
/// either.
pub fn plan_before_replay(
    device: SharedDevice,
    replay: Replay<'_>,
    options: Options,
    progress: &dyn Progress,
) -> Result<Plan> {
    plan_over(device, None, Some(replay), options, progress)
}

fn plan_over(
    device: SharedDevice,
    replayed: Option<Arc<OverlayDevice>>,
    replay: Option<Replay<'_>>,
    options: Options,
    progress: &dyn Progress,
) -> Result<Plan> {
    let found = crate::volume::find_superblock(&*device, &mut Sink::new())?;
    crate::superblock::refuse_too_short(&*device, &found)?;
    special::refuse_if_in_use(&*device, &found)?;
    let mut draft = Draft::new(Arc::clone(&device), found.block_size().bytes());
    if let Some(replayed) = replayed {
        journal::take_over(&mut draft, replayed)?;
    }
    superblock::restore(&mut draft, &found)?;
    let (mut losses, mut count) = match replay {
        Some(replay) => {
            let rounds = Rounds::new(options);
            fast_commits::mend_and_replay(&mut draft, replay, options, rounds, progress)?
        }
        None => (Vec::new(), 0),
    };
    let survey = rounds(&mut draft, options, progress)?;
    let (more, more_count) = net::losses(&draft)?;
    losses.extend(more);
    count += more_count;
    Ok(Plan {
        losses,
        losses_count: count,
        allow_loss: options.allow_loss,
        ..Plan::new(draft, survey)
    })
}

impl Plan {
    pub(super) fn new(draft: Draft, survey: Survey) -> Self {
        let (fixes, fixes_count, changes) = draft.into_parts();
        Self::of_parts(fixes, fixes_count, changes, survey)
    }

    /// A plan for a sound file system, which is made as a whole where that is possible and asked
    /// for.
    pub(super) fn of_sound(draft: Draft, survey: Survey, as_a_whole: bool) -> Result<Self> {
        let (fixes, fixes_count, mut changes) = draft.into_parts();
        if as_a_whole {
            changes.make_whole(&survey)?;
        }
        Ok(Self::of_parts(fixes, fixes_count, changes, survey))
    }

    fn of_parts(fixes: Vec<Fix>, fixes_count: u64, changes: Changes, survey: Survey) -> Self {
        Self {
            fixes,
            fixes_count,
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

    /// Whether the changes are made as a whole: whatever write is the last, either none of them are
    /// made, or all of them are, and are put in place by the next opening for writing.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        self.changes.whole().is_some()
    }

    /// Writes the changes and makes them durable. Those that are made as a whole go to free blocks
    /// first, and count from one write of the superblock on.
    ///
    /// Of others, first what files hold is copied where that moves. Then, each after a flush, the
    /// superblock says that a check is due, if it said that all was well; what waits in a journal
    /// is written home, a superblock that waits in it last; then the journal is empty, then the
    /// superblock says that nothing waits; everything else is written; and the superblock as it is
    /// to be. What a crash leaves before the end asks for a check, can be repaired again, or
    /// restored from the undo file; what a journal held is not lost, and no journal is replayed
    /// over what was mended.
    ///
    /// # Errors
    /// [`Error::Loss`] if something would be lost that may not be: nothing is written. Of the
    /// device: a part of the changes may have been written then. Of those that are made as a whole:
    /// none are made then, but with [`Error::PerhapsMade`] and [`Error::NotHome`].
    pub fn apply(&self) -> Result<()> {
        self.may_be_written()?;
        match self.changes.whole() {
            Some(whole) => whole.write(&self.changes),
            None => in_progress::write(&self.changes),
        }
    }
}

//! The stages of a repair, and the rounds in which they do their work.

use super::draft::Draft;
use super::options::Options;
use super::work::Work;
use super::{
    bitmaps, clones, dirs, groups, inodes, journal, maps, orphans, quota, root, special,
    superblock, system_files, tree, xattrs,
};
use crate::error::Result;
use crate::report::{Report, Sink};
use crate::survey::{self, Input, Survey};
use crate::{Progress, Severity};
use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};

/// Rounds after which a repair that still finds something new to do is ended: what is left is
/// named, and another repair goes on.
const ROUNDS_MAX: u32 = 200;

/// A stage repairs what it can of a kind of structure.
type Stage = fn(&mut Work<'_>) -> Result<()>;

/// In the order in which structures depend on each other.
const STAGES: &[Stage] = &[
    superblock::fix,
    groups::fix,
    // What follows needs all groups: see `PLACES`.
    journal::fix,
    // And all else what the journal holds: see `BEFORE_REPLAY`.
    system_files::fix,
    inodes::root,
    orphans::fix,
    inodes::fix,
    maps::fix,
    clones::fix,
    xattrs::fix,
    special::fix,
    root::fix,
    dirs::fix,
    tree::fix,
    tree::links,
    quota::fix,
    bitmaps::fix,
    superblock::finish,
];

/// The stages that find out where everything lies. Without its inodes a group would look empty, and
/// what names them wrong: if one stays lost, nothing else is mended.
const PLACES: usize = 2;

/// The stages that may make a journal readable in which something waits.
const BEFORE_REPLAY: usize = 3;

/// Checks the file system as it would be with the changes so far.
pub(super) fn look(draft: &Draft, progress: &dyn Progress) -> Result<Survey> {
    let input = Input {
        device: draft.device(),
        recovered: false,
        remembers_errors: false,
        has_journal: false,
        as_is: false,
        verity: false,
    };
    survey::run(input, Sink::new(), progress)
}

/// Lets the stages work, round by round, until a check finds nothing that one of them can repair.
pub(super) fn rounds(
    draft: &mut Draft,
    options: Options,
    progress: &dyn Progress,
) -> Result<Survey> {
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
            && !draft.superblock()?.needs_recovery()
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
    if waiting.is_some() || draft.superblock()?.needs_recovery() {
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

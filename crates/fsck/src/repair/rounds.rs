//! The stages of a repair, and the rounds in which they do their work.

use super::draft::Draft;
use super::options::Options;
use super::work::Work;
use super::{
    bitmaps, clones, dirs, groups, inodes, journal, maps, net, orphans, quota, root, special,
    superblock, system_files, tree, xattrs,
};
use crate::error::{Error, Result};
use crate::report::{Report, Sink};
use crate::survey::{self, Input, Survey};
use crate::{Code, Progress, Severity};
use std::collections::{BTreeSet, HashMap};
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

/// The stage that deletes and cuts what waits for that.
const ORPHANS: usize = 5;

/// The stage that gives files copies of what others claim, too. All maps are sound by then.
const CLONES: usize = 8;

/// The first of the stages that keep books: of quotas, of what is free, of the state. They come
/// last, when all else is found right, and reading files does not ask for what they mend.
const BOOKS: usize = STAGES.len() - 3;

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
    Rounds::new(options).run(draft, progress)
}

/// How the rounds go.
pub(super) struct Rounds {
    options: Options,
    /// What comes of it is read and never written: no more checks follow the last stages.
    for_reading: bool,
    /// Books are kept only where reading asks for it.
    without_books: bool,
    /// What a stage does is taken back where it fails, or loses files that could be read, and it
    /// does nothing more.
    careful: bool,
    /// What waits in the journal is replayed by others, afterwards.
    beside_fast_commits: bool,
    given_up: BTreeSet<usize>,
}

impl Rounds {
    pub(super) fn new(options: Options) -> Self {
        Self {
            options,
            for_reading: false,
            without_books: false,
            careful: false,
            beside_fast_commits: false,
            given_up: BTreeSet::new(),
        }
    }

    /// Rounds in which fast commits wait, and go on doing so. Orphans wait with them, and files
    /// that share blocks: fast commits name the ones that files have.
    pub(super) fn beside_fast_commits(mut self) -> Self {
        self.beside_fast_commits = true;
        self.given_up.extend([ORPHANS, CLONES]);
        self
    }

    /// Rounds for what is only read, stage by stage: `careful`ly or not, and with books unless the
    /// device ends too early.
    pub(super) fn for_reading(options: Options, careful: bool, is_cut: bool) -> Self {
        Self {
            for_reading: true,
            without_books: is_cut,
            careful,
            ..Self::new(options)
        }
    }

    pub(super) fn run(mut self, draft: &mut Draft, progress: &dyn Progress) -> Result<Survey> {
        let options = self.options;
        let mut seen: HashMap<u64, u32> = HashMap::new();
        let mut waiting = self.replay_or_wait(draft)?;
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
            let needs_books = !self.without_books || survey.report.has(Code::GroupChecksum);
            let stages = if needs_books {
                stages
            } else {
                stages.min(BOOKS)
            };
            let last = self.round(&survey, draft, stages)?;
            // No stage may decide that nothing waits.
            if let Some(why) = &waiting
                && !draft.superblock()?.needs_recovery()
            {
                return Err(journal::refused(why));
            }
            if self.for_reading && waiting.is_none() && last.is_some_and(|stage| stage >= BOOKS) {
                break;
            }
            if draft.count() == before {
                match &waiting {
                    Some(why) if options.discard_journal => journal::discard(draft, why)?,
                    _ => break,
                }
            }
            waiting = self.replay_or_wait(draft)?;
            survey = look(draft, progress)?;
        }
        let waits = draft.superblock()?.needs_recovery();
        if waiting.is_some() || waits != self.beside_fast_commits {
            let why = waiting.unwrap_or_else(|| "no journal is found".to_owned());
            return Err(journal::refused(&why));
        }
        Ok(survey)
    }

    /// Replays the journal unless others do: see [`journal::replay_or_wait`].
    fn replay_or_wait(&self, draft: &mut Draft) -> Result<Option<String>> {
        if self.beside_fast_commits {
            return Ok(None);
        }
        journal::replay_or_wait(draft, self.options)
    }

    /// Lets the first so many stages work until one has done something, and returns which.
    fn round(
        &mut self,
        survey: &Survey,
        draft: &mut Draft,
        stages: usize,
    ) -> Result<Option<usize>> {
        for (number, stage) in STAGES.iter().enumerate().take(stages) {
            // Before the mark: it is true also when what the stage does is taken back.
            if self.for_reading && number == CLONES {
                clones::note_doubts(survey, draft)?;
            }
            if self.given_up.contains(&number) {
                continue;
            }
            let before = draft.count();
            let mark = self.careful.then(|| draft.mark());
            let done = stage(&mut Work::new(survey, draft, self.options));
            let Some(mark) = mark else {
                done?;
                if draft.count() > before {
                    return Ok(Some(number));
                }
                continue;
            };
            let is_failure = match done {
                Err(e @ Error::Device(_)) => return Err(e),
                Err(_) => true,
                Ok(()) => draft.count() > before && net::losses(draft)?.1 > 0,
            };
            if is_failure {
                draft.back_to(mark);
                self.given_up.insert(number);
            } else if draft.count() > before {
                return Ok(Some(number));
            } else {
                draft.back_to(mark);
            }
        }
        Ok(None)
    }
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

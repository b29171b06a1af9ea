//! A JSON object for each line.

use super::step::Step;
use crate::failure::{Failure, Outcome};
use crate::output::Output;
use extant::Committed;
use extant_core::Error as EngineError;
use serde::Serialize;

/// What is told on standard output, if that is asked for.
#[derive(Debug)]
pub(super) struct Report {
    json: bool,
}

#[derive(Debug, Serialize)]
struct Line<'a> {
    line: usize,
    #[serde(rename = "do")]
    what: Vec<String>,
    ok: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<&'a str>,
}

#[derive(Debug, Serialize)]
struct Whole<'a> {
    lines_done: u64,
    /// `None`: nobody knows.
    committed: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    new_blocks: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    journaled_blocks: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    waited_blocks: Option<u64>,
}

/// How it ended.
pub(super) enum End<'a> {
    /// Nothing is changed.
    Nothing,
    Committed(Committed),
    /// The commit failed, with what is said of it.
    Failed(&'a extant::Error, &'a str),
}

impl End<'_> {
    /// Whether the changes are in the image, if that is known.
    fn is_committed(&self) -> Option<bool> {
        match self {
            Self::Nothing => Some(false),
            Self::Committed(_) => Some(true),
            Self::Failed(e, _) => match e.cause() {
                extant::Cause::Image(e) => match e.engine() {
                    // The next opening for writing puts them in place.
                    EngineError::NotHome(_) => Some(true),
                    EngineError::PerhapsMade(_) => None,
                    _ => Some(false),
                },
                _ => Some(false),
            },
        }
    }
}

impl Report {
    pub(super) fn new(json: bool) -> Self {
        Self { json }
    }

    /// Tells of a line that was done, or failed.
    pub(super) fn line(&mut self, line: usize, step: &Step, outcome: &Outcome) -> Outcome {
        let error = outcome.as_ref().err().map(|failure| match failure {
            Failure::Usage(text) | Failure::Failed(text) => text.as_str(),
            _ => "standard error says why",
        });
        let words = step.words.iter();
        self.tell(&Line {
            line,
            what: words
                .map(|word| word.to_string_lossy().into_owned())
                .collect(),
            ok: error.is_none(),
            error,
        })
    }

    /// Tells of the whole script.
    pub(super) fn whole(&mut self, lines_done: u64, end: &End<'_>) -> Outcome {
        let (committed, error) = match end {
            End::Nothing => (None, None),
            End::Committed(committed) => (Some(*committed), None),
            End::Failed(_, why) => (None, Some(*why)),
        };
        self.tell(&Whole {
            lines_done,
            committed: end.is_committed(),
            error,
            new_blocks: committed.map(|committed| committed.new_blocks),
            journaled_blocks: committed.map(|committed| committed.journaled_blocks),
            waited_blocks: committed.map(|committed| committed.waited_blocks),
        })
    }

    /// A reader that has closed the pipe has heard enough; the image is changed all the same.
    fn tell(&mut self, value: &impl Serialize) -> Outcome {
        if !self.json {
            return Ok(());
        }
        let mut output = Output::new();
        let told = output.json_line(value).map_err(Failure::from);
        match told.and_then(|()| output.finish()) {
            Err(Failure::PipeClosed) => {
                self.json = false;
                Ok(())
            }
            told => told,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use extant::{MountOptions, SharedDevice, Transaction};
    use extant_testkit::crash::{Content, CrashDevice, FaultDevice, FaultRule, IoKind};
    use extant_testkit::oracle::mke2fs;
    use std::sync::Arc;

    /// What a commit says in which the nth write of the superblock fails and all after it.
    fn ends(options: &[&str], nth: u64) -> (Option<bool>, String) {
        let dir = tempfile::tempdir().unwrap();
        let image = dir.path().join("fs.img");
        mke2fs(&image, 16 << 20, options);
        let faulty = CrashDevice::over(Content::of_file(&image));
        let faulty = Arc::new(FaultDevice::new(Arc::new(faulty)));
        let device: SharedDevice = Arc::<FaultDevice>::clone(&faulty);
        let transaction = Transaction::open_device(device, "", MountOptions::read_write()).unwrap();
        transaction.filesystem().write("/file", "text\n").unwrap();
        faulty.inject(FaultRule {
            within: Some(1024..2048),
            ..FaultRule::fail_nth(IoKind::Write, nth).from_then_on()
        });
        let e = transaction.commit().unwrap_err();
        let why = e.to_string();
        (End::Failed(&e, &why).is_committed(), why)
    }

    #[test]
    fn a_failed_commit_says_whether_the_changes_are_made() {
        let without_journal = ["-t", "ext2"];
        for (nth, is_made) in [(0, Some(false)), (1, None), (2, Some(true))] {
            let (found, why) = ends(&without_journal, nth);
            assert_eq!(found, is_made, "{nth}: {why}");
        }
    }
}

//! A JSON object for each line.

use super::step::Step;
use crate::failure::{Failure, Outcome};
use crate::output::Output;
use extant::Committed;
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
struct Whole {
    lines_done: u64,
    committed: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    new_blocks: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    journaled_blocks: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    waited_blocks: Option<u64>,
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
    pub(super) fn whole(&mut self, lines_done: u64, committed: Option<Committed>) -> Outcome {
        self.tell(&Whole {
            lines_done,
            committed: committed.is_some(),
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

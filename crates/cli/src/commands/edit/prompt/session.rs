//! What lines do to a transaction, from its opening to its end.

use super::about;
use super::look;
use super::statement::Statement;
use crate::args::{Edit, Whereabouts};
use crate::commands::edit::commit;
use crate::commands::edit::report::{End as Ended, Report};
use crate::commands::edit::run::{Run, place_of};
use crate::commands::edit::script::{Origin, Part, Script};
use crate::commands::edit::words::split;
use crate::failure::{Failure, Outcome, in_image, say};
use crate::image_path::shown;
use extant::{Escaped, Filesystem, Transaction};
use extant_image::ImageLocation;
use std::ffi::OsString;

/// What is no command of a script.
pub(super) const OWN: &[&str] = &[
    "abort", "cat", "commit", "df", "digest", "du", "exit", "help", "ls", "quit", "stat", "status",
    "tree",
];

/// How a session ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum End {
    Commit,
    Abort,
}

/// Lines that are typed, and the transaction that they change.
pub(super) struct Session<'a> {
    args: &'a Edit,
    image: &'a ImageLocation,
    location: &'a Whereabouts,
    transaction: Transaction,
    report: &'a mut Report,
    /// What was begun.
    statement: Statement,
    /// The number of the line that is typed next.
    next: usize,
    /// What was done, as it was typed.
    done: Vec<String>,
    lines_done: u64,
    /// The end was asked for, and refused since changes would be lost.
    is_leaving: bool,
}

impl<'a> Session<'a> {
    pub(super) fn new(
        args: &'a Edit,
        image: &'a ImageLocation,
        location: &'a Whereabouts,
        transaction: Transaction,
        report: &'a mut Report,
    ) -> Self {
        Self {
            args,
            image,
            location,
            transaction,
            report,
            statement: Statement::default(),
            next: 1,
            done: Vec::new(),
            lines_done: 0,
            is_leaving: false,
        }
    }

    /// The file system with the changes so far.
    pub(super) fn filesystem(&self) -> &Filesystem {
        self.transaction.filesystem()
    }

    /// Whether what is typed next belongs to what was begun.
    pub(super) fn is_within(&self) -> bool {
        self.statement.is_open()
    }

    /// Whether what is typed next is text for a file.
    pub(super) fn is_text(&self) -> bool {
        self.statement.is_text()
    }

    /// Forgets what was begun.
    pub(super) fn drop_begun(&mut self) {
        self.statement = Statement::default();
        self.is_leaving = false;
    }

    /// Does what lines say, several if they were pasted: up to the first that fails.
    pub(super) fn take(&mut self, typed: &str) -> Option<End> {
        let was_leaving = std::mem::take(&mut self.is_leaving);
        for line in typed.split('\n') {
            self.statement.push(line.strip_suffix('\r').unwrap_or(line));
            self.next += 1;
            if self.statement.is_open() {
                continue;
            }
            let statement = std::mem::take(&mut self.statement);
            match self.run(&statement, was_leaving) {
                Ok(None) => {}
                Ok(end) => return end,
                Err(failure) => {
                    tell(failure);
                    break;
                }
            }
        }
        None
    }

    /// The end of the input: of what was begun, or of all.
    pub(super) fn end_of_input(&mut self) -> Option<End> {
        if self.statement.is_empty() {
            let was_leaving = std::mem::take(&mut self.is_leaving);
            return self.leave(was_leaving);
        }
        say(format_args!(
            "nothing is done: no line `{}` ends what `{}` began",
            self.statement.missing(),
            Escaped(self.statement.first().as_bytes())
        ));
        self.drop_begun();
        None
    }

    /// Ends all, unless changes would be lost of which that was not said before.
    fn leave(&mut self, was_leaving: bool) -> Option<End> {
        if self.done.is_empty() || was_leaving {
            return Some(End::Abort);
        }
        self.is_leaving = true;
        say(
            "what was done is not in the image yet: `commit` puts it there; `abort`, or the same once more, \
             forgets it",
        );
        None
    }

    fn run(&mut self, statement: &Statement, was_leaving: bool) -> Outcome<Option<End>> {
        let found = split(statement.first().as_bytes()).unwrap_or_default();
        let word = found.words.first().and_then(|word| word.to_str());
        let is_alone = found.words.len() == 1;
        match word {
            Some("help") => about::help(&found.words[1..])?,
            Some("status") if is_alone => self.status(),
            Some("commit") if is_alone => return Ok(Some(End::Commit)),
            Some("abort") if is_alone => return Ok(Some(End::Abort)),
            Some("quit" | "exit") if is_alone => return Ok(self.leave(was_leaving)),
            Some(word @ ("status" | "commit" | "abort" | "quit" | "exit")) => {
                return Err(Failure::usage(format!("nothing follows `{word}`")));
            }
            _ if self.look(&found.words)? => {}
            _ => self.change(statement)?,
        }
        Ok(None)
    }

    /// Runs a command that only reads; whether it is one.
    fn look(&mut self, words: &[OsString]) -> Outcome<bool> {
        let command = look::read(words, &self.args.image).map_err(Failure::usage)?;
        if let Some(command) = &command {
            let place = place_of(&self.transaction, self.image, self.location);
            look::run(command, &place)?;
        }
        Ok(command.is_some())
    }

    /// Runs what a script could have.
    fn change(&mut self, statement: &Statement) -> Outcome {
        let origin = Origin::Typed {
            first: self.next - statement.count(),
            is_block: statement.is_block(),
        };
        let script = Script::read(statement.text().as_bytes(), &self.args.image, origin)?;
        if script.parts.is_empty() {
            return Ok(());
        }
        let (image, location, dry) = (self.image, self.location, self.args.dry_run);
        let report = &mut *self.report;
        let mut done = 0;
        let mut run = |transaction: &mut Transaction| {
            let mut run = Run {
                origin: &script.origin,
                place: place_of(transaction, image, location),
                transaction,
                dry,
                report: &mut *report,
                done: 0,
            };
            let outcome = run.parts(&script.parts);
            done = run.done;
            outcome
        };
        let changes = changes(&script.parts);
        let outcome = if changes {
            let attempted = self
                .transaction
                .attempt(|some| run(some).map_err(Undone::Line));
            attempted.map_err(|e| match e {
                Undone::Line(failure) => failure,
                Undone::Whole(e) => Failure::new(in_image(image, &e)),
            })
        } else {
            run(&mut self.transaction)
        };
        outcome?;
        self.lines_done += done;
        if changes && done > 0 {
            self.done.push(statement.first().to_owned());
        }
        Ok(())
    }

    /// Says what was done so far.
    fn status(&self) {
        if self.done.is_empty() {
            say("nothing is changed so far");
            return;
        }
        let lines = self.done.iter();
        let lines: String = lines
            .map(|line| format!("\n  {}", Escaped(line.as_bytes())))
            .collect();
        say(format_args!(
            "done, and not in the image before `commit`:{lines}"
        ));
    }

    /// Ends it.
    pub(super) fn finish(self, end: End) -> Outcome {
        let lines = self.lines_done;
        if end == End::Commit && !self.args.dry_run {
            return commit(self.transaction, self.image, lines, self.report);
        }
        self.report.whole(lines, &Ended::Nothing)?;
        if self.done.is_empty() {
            return Ok(());
        }
        say(format_args!("nothing is changed in {}", shown(self.image)));
        if end == End::Commit {
            // A dry run did what it was asked for.
            return Ok(());
        }
        Err(Failure::Said)
    }
}

/// Whether any of these could change the image.
fn changes(parts: &[Part]) -> bool {
    parts.iter().any(|part| match part {
        Part::Line(_, step) => step.changes(),
        Part::If {
            then, otherwise, ..
        } => changes(then) || changes(otherwise),
    })
}

/// Says why lines were not done.
fn tell(failure: Failure) {
    match failure {
        Failure::Usage(text) | Failure::Failed(text) => say(text),
        Failure::Said | Failure::Code(_) | Failure::PipeClosed => {}
    }
}

/// Why lines have changed nothing.
enum Undone {
    Line(Failure),
    Whole(extant::Error),
}

impl From<extant::Error> for Undone {
    fn from(e: extant::Error) -> Self {
        Self::Whole(e)
    }
}

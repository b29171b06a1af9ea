//! `extant edit`: a script changes an image as a whole, or not at all.
//!
//! | file | owns |
//! |---|---|
//! | `words` | a line taken apart into words, as a shell does |
//! | `script` | a script as it is read: lines, texts for files, conditions with what depends on them |
//! | `step` | a line as a command, whose paths lie in the image |
//! | `condition` | what `expect` and `if` ask |
//! | `report` | a JSON object for each line |
//!
//! # Invariants
//! - The script is read whole before the image is opened: what makes no sense changes nothing.
//! - Lines run the commands that a shell would, on one file system that is open for all.
//! - The first line that fails ends the script, and nothing is committed.

mod condition;
mod report;
mod script;
mod step;
mod words;

use crate::args::{Edit, Session, Whereabouts};
use crate::failure::{Failure, Outcome, in_image, say};
use crate::image_path::{ImagePath, shown, whole_image};
use report::Report;
use script::{Part, Script};
use std::ffi::OsStr;
use std::fs;
use std::io::{self, IsTerminal, Read};
use std::os::unix::ffi::OsStrExt;
use step::Step;

/// A script is read into memory.
const MAX_SCRIPT: u64 = 1 << 30;

pub(super) fn run(args: &Edit, location: &Whereabouts) -> Outcome {
    let image = whole_image(&args.image)?;
    let script = Script::read(&text(args)?, &args.image, script_name(args))?;
    let mut report = Report::new(args.json);
    let transaction = ImagePath::root_of(image.clone()).begin(location)?;
    let session = Session {
        image: image.clone(),
        fs: transaction.filesystem().clone(),
    };
    let place = Whereabouts {
        session: Some(session),
        ..location.clone()
    };
    let mut run = Run {
        name: &script.name,
        place: &place,
        dry: args.dry_run,
        report: &mut report,
        done: 0,
    };
    if let Err(failure) = run.parts(&script.parts) {
        let lines = run.done;
        report.whole(lines, None)?;
        say(format_args!(
            "nothing is changed in {}: every line of a script is done, or none",
            shown(&image)
        ));
        return Err(failure);
    }
    let lines = run.done;
    drop(place);
    if args.dry_run {
        return report.whole(lines, None);
    }
    let committed = transaction.commit();
    let committed = committed.map_err(|e| Failure::new(in_image(&image, &e)))?;
    report.whole(lines, Some(committed))
}

/// The script as it was given.
fn text(args: &Edit) -> Outcome<Vec<u8>> {
    if !args.lines.is_empty() {
        let lines: Vec<&[u8]> = args.lines.iter().map(|line| line.as_bytes()).collect();
        return Ok(lines.join(&b'\n'));
    }
    let path = args.file.as_deref();
    let read = match path.filter(|path| path.as_os_str() != "-") {
        Some(path) => fs::File::open(path).and_then(read_whole),
        None => {
            if io::stdin().is_terminal() {
                say(
                    "type the lines of the script; Ctrl-D ends it, Ctrl-C leaves the image as it is",
                );
            }
            read_whole(io::stdin().lock())
        }
    };
    read.map_err(|e| {
        let name = script_name(args);
        Failure::new(format!("the script cannot be read: {name}: {e}"))
    })
}

fn read_whole(input: impl Read) -> io::Result<Vec<u8>> {
    let mut text = Vec::new();
    input.take(MAX_SCRIPT + 1).read_to_end(&mut text)?;
    if text.len() as u64 > MAX_SCRIPT {
        let text = "it is longer than 1 GiB: put large content with `put`";
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, text));
    }
    Ok(text)
}

fn script_name(args: &Edit) -> String {
    match args.file.as_deref() {
        None if !args.lines.is_empty() => "-e".to_owned(),
        Some(path) if path.as_os_str() != "-" => extant::Escaped::path(path).to_string(),
        _ => "standard input".to_owned(),
    }
}

/// A script being run.
struct Run<'a> {
    name: &'a str,
    place: &'a Whereabouts,
    dry: bool,
    report: &'a mut Report,
    /// Lines that were done.
    done: u64,
}

impl Run<'_> {
    fn parts(&mut self, parts: &[Part]) -> Outcome {
        for part in parts {
            match part {
                Part::Line(line, step) => self.line(*line, step)?,
                Part::If {
                    line,
                    condition,
                    then,
                    otherwise,
                } => {
                    let holds = condition.holds(self.place);
                    let holds = holds.map_err(|failure| self.told(*line, failure))?;
                    self.parts(if holds { then } else { otherwise })?;
                }
            }
        }
        Ok(())
    }

    fn line(&mut self, line: usize, step: &Step) -> Outcome {
        let outcome = step.run(self.place, self.dry);
        self.report.line(line, step, &outcome)?;
        if let Err(failure) = outcome {
            return Err(self.told(line, failure));
        }
        self.done += 1;
        Ok(())
    }

    /// Says which line failed. What its command says by itself has been said.
    fn told(&self, line: usize, failure: Failure) -> Failure {
        let name = self.name;
        match failure {
            Failure::Usage(text) | Failure::Failed(text) => {
                Failure::new(format!("{name}:{line}: {text}"))
            }
            // Success is for what is committed alone, whatever a line calls its own.
            Failure::Said | Failure::Code(_) | Failure::PipeClosed => {
                Failure::new(format!("{name}:{line}: this line failed"))
            }
        }
    }
}

/// The image as the lines of a script name it.
fn operand(image: &OsStr, path: &OsStr) -> std::ffi::OsString {
    let mut text = image.to_owned();
    text.push(":");
    text.push(path);
    text
}

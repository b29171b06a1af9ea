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

use super::tune;
use crate::args::{Edit, Session, Whereabouts};
use crate::closed;
use crate::failure::{Failure, Outcome, in_image, say};
use crate::image_path::{ImagePath, shown, whole_image};
use extant::{SharedDevice, Transaction};
use extant_fsck::repair::tune::Settings;
use extant_image::ImageLocation;
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
    let transaction = ImagePath::root_of(image.clone()).begin(location, args.dry_run)?;
    let place = place_of(&transaction, &image, location);
    let mut run = Run {
        name: &script.name,
        place,
        transaction,
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
    let Run {
        transaction,
        done: lines,
        ..
    } = run;
    if args.dry_run {
        return report.whole(lines, None);
    }
    let committed = transaction.commit();
    let committed = committed.map_err(|e| Failure::new(in_image(&image, &e)))?;
    report.whole(lines, Some(committed))
}

/// Where lines find the file system of a transaction.
fn place_of(
    transaction: &Transaction,
    image: &ImageLocation,
    location: &Whereabouts,
) -> Whereabouts {
    let session = Session {
        image: image.clone(),
        fs: transaction.filesystem().clone(),
    };
    Whereabouts {
        session: Some(session),
        ..location.clone()
    }
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
            closed::check_input()?;
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
    place: Whereabouts,
    transaction: Transaction,
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
                    let holds = condition.holds(&self.place);
                    let holds = holds.map_err(|failure| self.told(*line, failure))?;
                    self.parts(if holds { then } else { otherwise })?;
                }
            }
        }
        Ok(())
    }

    fn line(&mut self, line: usize, step: &Step) -> Outcome {
        let outcome = match step.uuid() {
            Some(uuid) => self.give_uuid(uuid),
            None => step.run(&self.place, self.dry),
        };
        self.report.line(line, step, &outcome)?;
        if let Err(failure) = outcome {
            return Err(self.told(line, failure));
        }
        self.done += 1;
        Ok(())
    }

    /// Gives the file system another UUID, as `tune` does.
    fn give_uuid(&mut self, uuid: [u8; 16]) -> Outcome {
        let settings = Settings {
            uuid: Some(uuid),
            ..Settings::default()
        };
        let Some(session) = self.place.session.take() else {
            return Err(Failure::new("the file system is not open"));
        };
        let image = session.image;
        drop(session.fs);
        let given = self.transaction.change_closed(|device| {
            let device = SharedDevice::clone(device);
            let way = tune::Way {
                in_front: true,
                ..tune::Way::default()
            };
            tune::apply(device, &settings, &way).map_err(NotGiven::Refused)
        });
        self.place = place_of(&self.transaction, &image, &self.place);
        given.map_err(|e| match e {
            NotGiven::Refused(why) => Failure::new(why),
            NotGiven::Whole(e) => Failure::new(in_image(&image, &e)),
        })
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

/// Why a file system has its old UUID.
enum NotGiven {
    Refused(String),
    Whole(extant::Error),
}

impl From<extant::Error> for NotGiven {
    fn from(e: extant::Error) -> Self {
        Self::Whole(e)
    }
}

/// The image as the lines of a script name it.
fn operand(image: &OsStr, path: &OsStr) -> std::ffi::OsString {
    let mut text = image.to_owned();
    text.push(":");
    text.push(path);
    text
}

//! `extant edit`: a script changes an image as a whole, or not at all.
//!
//! | file | owns |
//! |---|---|
//! | `words` | a line taken apart into words, as a shell does |
//! | `script` | a script as it is read: lines, texts for files, conditions with what depends on them |
//! | `run` | running it on a file system that is open for all of it |
//! | `prompt` | lines that are typed at a terminal, each run at once |
//! | `step` | a line as a command, whose paths lie in the image |
//! | `condition` | what `expect` and `if` ask |
//! | `report` | a JSON object for each line |
//!
//! # Invariants
//! - The script is read whole before the image is opened: what makes no sense changes nothing.
//! - Lines run the commands that a shell would, on one file system that is open for all.
//! - The first line that fails ends the script, and nothing is committed.
//! - A line that is typed and fails changes nothing. What is typed is committed by `commit` alone.

mod condition;
#[cfg(feature = "prompt")]
mod prompt;
mod report;
mod run;
mod script;
mod step;
mod words;

use crate::args::{Edit, Whereabouts};
use crate::closed;
use crate::failure::{Failure, Outcome, in_image, say};
use crate::image_path::{ImagePath, shown, whole_image};
use extant::Transaction;
use extant_image::ImageLocation;
use report::{End, Report};
use run::{Run, place_of};
use script::{Origin, Script};
use std::ffi::OsStr;
use std::fs;
use std::io::{self, IsTerminal, Read};
use std::os::unix::ffi::OsStrExt;

/// A script is read into memory.
const MAX_SCRIPT: u64 = 1 << 30;

pub(super) fn run(args: &Edit, location: &Whereabouts) -> Outcome {
    let image = whole_image(&args.image)?;
    #[cfg(feature = "prompt")]
    if is_typed(args) {
        return prompt::run(args, &image, location);
    }
    let origin = Origin::Script(script_name(args));
    let script = Script::read(&text(args)?, &args.image, origin)?;
    let mut report = Report::new(args.json);
    let mut transaction = ImagePath::root_of(image.clone()).begin(location, args.dry_run)?;
    let mut run = Run {
        origin: &script.origin,
        place: place_of(&transaction, &image, location),
        transaction: &mut transaction,
        dry: args.dry_run,
        report: &mut report,
        done: 0,
    };
    let done = run.parts(&script.parts);
    let lines = run.done;
    if let Err(failure) = done {
        report.whole(lines, &End::Nothing)?;
        say(format_args!(
            "nothing is changed in {}: every line of a script is done, or none",
            shown(&image)
        ));
        return Err(failure);
    }
    if args.dry_run {
        return report.whole(lines, &End::Nothing);
    }
    commit(transaction, &image, lines, &mut report)
}

/// Puts what so many lines have changed into the image, and tells of it.
fn commit(
    transaction: Transaction,
    image: &ImageLocation,
    lines: u64,
    report: &mut Report,
) -> Outcome {
    match transaction.commit() {
        Ok(committed) => report.whole(lines, &End::Committed(committed)),
        Err(e) => {
            let why = in_image(image, &e);
            let told = report.whole(lines, &End::Failed(&e, &why));
            // That it is not told comes second.
            if let Err(Failure::Failed(text)) = told {
                say(text);
            }
            Err(Failure::new(why))
        }
    }
}

/// Whether lines are typed at a prompt: no script is given, and standard input is a terminal.
#[cfg(feature = "prompt")]
fn is_typed(args: &Edit) -> bool {
    let is_given = !args.lines.is_empty() || args.file.is_some();
    !is_given && !closed::is_input_closed() && io::stdin().is_terminal()
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

/// The image as the lines of a script name it.
fn operand(image: &OsStr, path: &OsStr) -> std::ffi::OsString {
    let mut text = image.to_owned();
    text.push(":");
    text.push(path);
    text
}

//! `-exec`: the commands that a user names, started with places in an image.
//!
//! Nothing else of this command starts a program. `{}` is IMAGE:/path, so that another `extant`
//! reads what it names; a program that knows no images gets text.

use crate::failure::{Failure, Outcome};
use crate::image_path::ImagePath;
use crate::images::Problems;
use crate::output::Output;
use extant::Escaped;
use std::ffi::{OsStr, OsString};
use std::io::Write;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::process::Command;

/// Bytes of names that one command gets: any system takes so many.
const MOST_BYTES: usize = 64 << 10;
/// Names that one command gets.
const MOST_NAMES: usize = 4096;

/// Starts a command for one place, which stands wherever `{}` is. Returns whether it exited with 0.
pub(super) fn one(command: &[OsString], place: &ImagePath, problems: &mut Problems) -> bool {
    let place = place.typed();
    let words: Vec<OsString> = command
        .iter()
        .map(|word| replaced(word, place.as_bytes()))
        .collect();
    run(&words, problems).unwrap_or(false)
}

/// Starts a command. Returns whether it exited with 0; `None` if it could not be started, which is
/// said.
fn run(words: &[OsString], problems: &mut Problems) -> Option<bool> {
    let (program, args) = words.split_first()?;
    match Command::new(program).args(args).status() {
        Ok(status) => Some(status.success()),
        Err(e) => {
            let program = Escaped(program.as_bytes());
            problems.note(Failure::new(format!("-exec: {program} cannot be run: {e}")));
            None
        }
    }
}

/// A word with the place wherever `{}` is.
fn replaced(word: &OsStr, place: &[u8]) -> OsString {
    let mut rest = word.as_bytes();
    let mut out = Vec::with_capacity(rest.len());
    while let Some(at) = rest.windows(2).position(|two| two == b"{}") {
        out.extend_from_slice(rest.get(..at).unwrap_or_default());
        out.extend_from_slice(place);
        rest = rest.get(at + 2..).unwrap_or_default();
    }
    out.extend_from_slice(rest);
    OsString::from_vec(out)
}

/// Commands that get many places at once.
#[derive(Debug, Default)]
pub(super) struct Commands {
    waiting: Vec<Waiting>,
}

#[derive(Debug, Default)]
struct Waiting {
    words: Vec<OsString>,
    places: Vec<OsString>,
    bytes: usize,
}

impl Commands {
    /// Adds a place to those that a command is waiting for, and starts it once they are enough.
    pub(super) fn add(
        &mut self,
        number: usize,
        command: &[OsString],
        place: &ImagePath,
        output: &mut Output,
        problems: &mut Problems,
    ) -> Outcome {
        while self.waiting.len() <= number {
            self.waiting.push(Waiting::default());
        }
        let Some(waiting) = self.waiting.get_mut(number) else {
            return Ok(());
        };
        if waiting.words.is_empty() {
            waiting.words = command.to_vec();
        }
        let place = place.typed();
        let is_full =
            waiting.bytes + place.len() > MOST_BYTES || waiting.places.len() >= MOST_NAMES;
        if is_full {
            waiting.start(output, problems)?;
        }
        waiting.bytes += place.len() + 1;
        waiting.places.push(place);
        Ok(())
    }

    /// Starts the commands for what is left.
    pub(super) fn finish(&mut self, output: &mut Output, problems: &mut Problems) -> Outcome {
        for waiting in &mut self.waiting {
            waiting.start(output, problems)?;
        }
        Ok(())
    }
}

impl Waiting {
    fn start(&mut self, output: &mut Output, problems: &mut Problems) -> Outcome {
        if self.places.is_empty() {
            return Ok(());
        }
        output.flush()?;
        let mut words = self.words.clone();
        words.append(&mut self.places);
        self.bytes = 0;
        // Such a command that fails makes the search fail, as in find(1).
        if run(&words, problems) == Some(false) {
            problems.note(Failure::Said);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_stand_wherever_braces_are() {
        for (word, expected) in [
            ("{}", "I:/a"),
            ("x{}y{}", "xI:/ayI:/a"),
            ("{", "{"),
            ("{{}}", "{I:/a}"),
            ("", ""),
        ] {
            assert_eq!(replaced(OsStr::new(word), b"I:/a"), expected, "{word}");
        }
    }
}

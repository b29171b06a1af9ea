//! Lines that are typed at a terminal, each run at once, and committed as a whole.
//!
//! | file | owns |
//! |---|---|
//! | `session` | what a line does to the transaction, from its opening to its end |
//! | `statement` | lines that belong together |
//! | `look` | commands that only read |
//! | `editor` | the line that is being typed |
//! | `history` | the lines of earlier times |
//! | `complete` | what a word may become |
//! | `cut` | a line taken apart up to the word that is being typed |
//! | `about` | what `help` says |
//!
//! # Invariants
//! - Nothing but `commit` commits: not the end of the input, nor a signal.
//! - What fails changes nothing, and what was done before stays.

mod about;
mod complete;
mod cut;
mod editor;
mod history;
mod look;
mod session;
mod statement;

use super::report::Report;
use crate::args::{Edit, Whereabouts};
use crate::failure::{Failure, Outcome, say};
use crate::image_path::{ImagePath, shown};
use editor::{Editor, Typed};
use extant_image::ImageLocation;
use session::{End, Session};

/// What stands in front of a command, and of what else belongs to it.
const PROMPTS: [&str; 2] = ["extant> ", "      > "];

pub(super) fn run(args: &Edit, image: &ImageLocation, location: &Whereabouts) -> Outcome {
    let transaction = ImagePath::root_of(image.clone()).begin(location, args.dry_run)?;
    let editor = Editor::begin(transaction.filesystem(), !args.no_history);
    let mut editor = editor.map_err(Failure::new)?;
    say(format_args!(
        "{} is open, and changes with `commit`; `help` says what there is",
        shown(image)
    ));
    let mut report = Report::new(args.json);
    let mut session = Session::new(args, image, location, transaction, &mut report);
    let end = loop {
        let prompt = PROMPTS[usize::from(session.is_within())];
        let end = match editor.read(prompt, session.filesystem(), session.is_text()) {
            Ok(Typed::Lines(typed)) => session.take(&typed),
            Ok(Typed::Dropped) => {
                session.drop_begun();
                None
            }
            Ok(Typed::End) => session.end_of_input(),
            Err(why) => {
                say(format_args!("the terminal cannot be read: {why}"));
                Some(End::Abort)
            }
        };
        if let Some(end) = end {
            break end;
        }
    };
    drop(editor);
    session.finish(end)
}

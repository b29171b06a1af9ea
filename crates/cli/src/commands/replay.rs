//! `extant replay`.

use crate::args::{Replay, Whereabouts};
use crate::failure::{Failure, Outcome, in_image};
use crate::image_path::{ImagePath, whole_image};
use crate::images::Problems;
use crate::output::Output;
use crate::record::lossless;
use extant::Notice;
use serde::Serialize;
use std::ffi::OsStr;
use std::io::Write;
use std::os::unix::ffi::OsStrExt;

/// What was done to an image, for programs.
#[derive(Debug, Serialize)]
struct Replayed {
    image: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    image_hex: Option<String>,
    /// Whether there was a journal to replay.
    replayed: bool,
    transactions: u32,
    blocks: usize,
    /// Blocks of changes that were made as a whole, and were not in their places.
    put_in_place: u64,
    warnings: Vec<String>,
}

pub(super) fn run(args: &Replay, location: &Whereabouts) -> Outcome {
    let mut output = Output::new();
    let mut problems = Problems::default();
    for text in &args.images {
        let outcome = one(text, location).and_then(|replayed| {
            if args.json {
                output.json_line(&replayed)?
            } else {
                tell(&replayed, text, &mut output)?
            }
            Ok(())
        });
        problems.check(outcome);
    }
    output.finish()?;
    problems.outcome()
}

fn one(text: &OsStr, location: &Whereabouts) -> Outcome<Replayed> {
    // The whole text is the image's name: there is no path in it.
    let image = ImagePath::root_of(whole_image(text)?);
    let fs = image.open_writable(location)?;
    let (name, name_hex) = lossless(text.as_bytes());
    let mut replayed = Replayed {
        image: name,
        image_hex: name_hex,
        replayed: false,
        transactions: 0,
        blocks: 0,
        put_in_place: 0,
        warnings: Vec::new(),
    };
    for notice in fs.notices() {
        match notice {
            Notice::JournalWrittenHome {
                transactions,
                blocks,
            } => {
                replayed.replayed = true;
                replayed.transactions = *transactions;
                replayed.blocks = *blocks;
            }
            Notice::ChangesPutInPlace { blocks } => replayed.put_in_place = *blocks,
            warning => replayed.warnings.push(warning.to_string()),
        }
    }
    fs.close().map_err(|e| {
        Failure::new(format!(
            "{}; the journal is still there, and can be replayed again",
            in_image(&image.image, &e)
        ))
    })?;
    Ok(replayed)
}

fn tell(replayed: &Replayed, text: &OsStr, output: &mut Output) -> std::io::Result<()> {
    output.name(text.as_bytes())?;
    let Replayed {
        transactions,
        blocks,
        put_in_place,
        ..
    } = replayed;
    if *put_in_place > 0 {
        writeln!(
            output,
            ": changes that were made as a whole were put in place ({put_in_place} blocks) and the image \
         closed"
        )
    } else if replayed.replayed {
        writeln!(
            output,
            ": the journal was replayed ({transactions} transactions, {blocks} blocks) and the image \
         closed"
        )
    } else {
        writeln!(output, ": there was no journal to replay")
    }
}

//! `resize2fs`.

use super::number::Length;
use super::place::Place;
use super::{getopt, usage, version};
use crate::args::Resize;
use crate::commands::{resize, tune};
use crate::failure::{Failure, Outcome, say};
use crate::output::Output;
use extant_format::features::{Feature, Incompat};
use extant_format::superblock::{State, Superblock};
use extant_fsck::repair::tune::Settings;
use std::ffi::OsString;
use std::io::Write;

/// How it is called.
const USAGE: &str = "Usage: resize2fs [-f] [-F] [-M] [-P] [-p] device [-b|-s|new_size]";

/// What was asked for.
#[derive(Debug, Default)]
struct Asked {
    /// As small as it can be.
    minimum: bool,
    /// Only tell how small that is.
    only_tells: bool,
    /// Block numbers of 64 bits, or of 32.
    wide: Option<bool>,
}

pub(super) fn run(args: impl IntoIterator<Item = OsString>) -> Outcome {
    let line = getopt::read("d:fFhMPpS:bsz:", args)?;
    version("resize2fs");
    let mut asked = Asked::default();
    for (letter, _) in line.options {
        let why = match letter {
            'M' => {
                asked.minimum = true;
                continue;
            }
            'P' => {
                asked.only_tells = true;
                continue;
            }
            'b' | 's' => {
                asked.wide = Some(letter == 'b');
                continue;
            }
            // All that is to be looked at is, forced or not; nothing is kept in buffers.
            'f' | 'F' | 'p' => continue,
            'd' => "what is done is not shown",
            'S' => "a RAID stride is set by `tune2fs -E stride=N`",
            'z' => "undo files of e2undo are not written: `extant resize --undo` writes its own",
            _ => return Err(usage(USAGE)),
        };
        return Err(Failure::usage(format!("-{letter}: {why}")));
    }
    let mut operands = line.operands.into_iter();
    let place = Place::of(operands.next().ok_or_else(|| usage(USAGE))?)?;
    let length = operands.next();
    if operands.next().is_some() || (asked.minimum && length.is_some()) {
        return Err(usage(USAGE));
    }
    let length = length.as_ref().map(length_of).transpose()?;
    let sb = tune::opened_superblock(place.image(), &place.location)?;
    if let Some(wide) = asked.wide {
        return widen(&place, &sb, wide);
    }
    if asked.only_tells {
        return tell_minimum(&place);
    }
    resize(&place, &sb, length, asked.minimum)
}

fn length_of(text: &OsString) -> Outcome<Length> {
    let length = text.to_str().and_then(Length::parse);
    let length = length.filter(|length| !matches!(length, Length::Blocks(0) | Length::Bytes(0)));
    let text = text.to_string_lossy();
    length.ok_or_else(|| Failure::usage(format!("Invalid new size: {text}")))
}

/// Gives block numbers 64 bits, or 32.
fn widen(place: &Place, sb: &Superblock, wide: bool) -> Outcome {
    let bits = if wide { 64 } else { 32 };
    if sb.has_incompat(Incompat::BIT64) == wide {
        say(format_args!("The filesystem is already {bits}-bit."));
        return Ok(());
    }
    let settings = Settings {
        features: vec![(Feature::Incompat(Incompat::BIT64), wide)],
        ..Settings::default()
    };
    let mut output = Output::new();
    writeln!(output, "Converting the filesystem to {bits}-bit.")?;
    output.finish()?;
    tune::change(place.image(), &place.location, &settings, None)?;
    let mut output = Output::new();
    let (blocks, unit) = (sb.blocks_count(), sb.block_size().bytes() / 1024);
    let name = place.shown();
    writeln!(
        output,
        "The filesystem on {name} is now {blocks} ({unit}k) blocks long.\n"
    )?;
    output.finish()
}

fn tell_minimum(place: &Place) -> Outcome {
    let (_, blocks) = resize::minimum(place.image(), &place.location)?;
    let mut output = Output::new();
    writeln!(output, "Estimated minimum size of the filesystem: {blocks}")?;
    output.finish()
}

fn resize(place: &Place, sb: &Superblock, length: Option<Length>, minimum: bool) -> Outcome {
    let block = sb.block_size().bytes();
    let size = match length {
        None => None,
        Some(length) => {
            let size = length.bytes(block.into()).filter(|size| *size > 0);
            Some(size.ok_or_else(|| Failure::usage("Invalid new size: it is too large or none"))?)
        }
    };
    let args = Resize {
        image: place.image().to_owned(),
        size,
        minimum,
        print_minimum: false,
        json: false,
    };
    let unit = format!("({}k) blocks", block / 1024);
    let resized = resize::resized(&args, &place.location).inspect_err(|_| {
        if sb.needs_recovery() || !sb.state().contains(State::CLEAN) {
            say(format_args!(
                "Please run 'e2fsck -f {}' first.",
                place.shown()
            ));
        }
    })?;
    if resized.blocks == resized.blocks_before {
        say(format_args!(
            "The filesystem is already {} {unit} long.  Nothing to do!",
            resized.blocks
        ));
        return Ok(());
    }
    let mut output = Output::new();
    let (name, blocks) = (place.shown(), resized.blocks);
    writeln!(
        output,
        "Resizing the filesystem on {name} to {blocks} {unit}."
    )?;
    writeln!(
        output,
        "The filesystem on {name} is now {blocks} {unit} long.\n"
    )?;
    output.finish()
}

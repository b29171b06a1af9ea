//! `extant resize`. Its exit codes are those of `tune`.

use super::check::Bars;
use super::exit_codes::coded;
use super::tune::superblock_of;
use super::undo::half_written;
use crate::args::{Resize, Whereabouts};
use crate::failure::{Failure, Outcome};
use crate::image_path::{how, refuse_reading_options, shown, whole_image};
use crate::keeping;
use crate::output::Output;
use crate::time::seconds_now_32;
use extant_format::superblock::Superblock;
use extant_fsck::repair::{
    Options,
    resize::{self, Size},
};
use extant_image::{Carrier, Container, ImageLocation, Opened};
use serde::Serialize;
use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Write};
use std::path::Path;

/// What became of it.
#[derive(Serialize)]
pub(super) struct Resized {
    block_size: u32,
    pub(super) blocks_before: u64,
    pub(super) blocks: u64,
}

pub(super) fn run(args: &Resize, location: &Whereabouts) -> Outcome {
    resize(args, location).map_err(coded)
}

fn resize(args: &Resize, location: &Whereabouts) -> Outcome {
    refuse_reading_options(location)?;
    if args.print_minimum {
        if location.undo.is_some() {
            return Err(Failure::usage(
                "--print-minimum changes nothing: there is nothing to keep",
            ));
        }
        return tell_minimum(args, location);
    }
    tell(args, &resized(args, location)?)
}

/// Does what is asked for, and tells nothing.
pub(super) fn resized(args: &Resize, location: &Whereabouts) -> Outcome<Resized> {
    let mut resized = once(args, location)?;
    // What moved out of the way lets less do. An undo file is of one round.
    if args.minimum && location.undo.is_none() {
        let first = resized.blocks_before;
        for _ in 1..resize::ROUNDS_MAX {
            let before = resized.blocks;
            match once(args, location) {
                Ok(again) => resized.blocks = again.blocks,
                // It is as the round before left it, smaller and sound.
                Err(NotDone::Before(_)) => break,
                Err(e) => return Err(e.into()),
            }
            resized.blocks_before = first;
            if resized.blocks >= before {
                break;
            }
        }
    }
    Ok(resized)
}

/// How small a file system can be made.
#[derive(Serialize)]
struct Least {
    block_size: u32,
    blocks: u64,
    minimum: u64,
}

/// Goes the rounds of `--minimum` in memory, and says where they lead to.
fn tell_minimum(args: &Resize, location: &Whereabouts) -> Outcome {
    let (sb, minimum) = minimum(&args.image, location)?;
    let mut output = Output::new();
    if args.json {
        output.json_pretty(&Least {
            block_size: sb.block_size().bytes(),
            blocks: sb.blocks_count(),
            minimum,
        })?;
    } else {
        writeln!(
            output,
            "{minimum} blocks of {} bytes, now {}",
            sb.block_size().bytes(),
            sb.blocks_count()
        )?;
    }
    output.finish()
}

/// The superblock of an image, and the blocks that it can be brought down to.
pub(super) fn minimum(image: &OsStr, location: &Whereabouts) -> Outcome<(Superblock, u64)> {
    let image = whole_image(image)?;
    let named = |e: &dyn std::fmt::Display| Failure::new(format!("{}: {e}", shown(&image)));
    let device = image.open(&how(location, &image, false).guarded(true));
    let device = device.map_err(Failure::new)?;
    let sb = superblock_of(&*device).map_err(|e| named(&e))?;
    let bars = Bars::new("checking");
    let options = Options::default().now(seconds_now_32());
    let minimum = resize::minimum(device, options, &bars);
    bars.finish();
    let minimum = minimum.map_err(|e| named(&e))?;
    Ok((sb, minimum))
}

/// Why a round is not done.
enum NotDone {
    /// Nothing was written.
    Before(Failure),
    /// Something may have been.
    While(Failure),
}

impl From<Failure> for NotDone {
    fn from(failure: Failure) -> Self {
        Self::Before(failure)
    }
}

impl From<NotDone> for Failure {
    fn from(why: NotDone) -> Self {
        match why {
            NotDone::Before(failure) | NotDone::While(failure) => failure,
        }
    }
}

fn once(args: &Resize, location: &Whereabouts) -> Result<Resized, NotDone> {
    let image = whole_image(args.image.as_ref())?;
    let named = |e: &dyn std::fmt::Display| Failure::new(format!("{}: {e}", shown(&image)));
    let how = how(location, &image, true);
    let Opened {
        device, container, ..
    } = image.open_disk(&how).map_err(Failure::new)?;
    // Only a file that is nothing but a file system ends where that ends.
    let is_whole = container.is_none() && image.partition().is_none();
    let file = image.path().filter(|_| is_whole);
    let mut device = image.part_of(device, &how).map_err(Failure::new)?;
    let sb = superblock_of(&*device).map_err(|e| named(&e))?;
    let block_size = u64::from(sb.block_size().bytes());
    let blocks = args.size.unwrap_or_else(|| device.size()) / block_size;
    let size = if args.minimum {
        Size::Minimum
    } else {
        Size::Blocks(blocks)
    };
    let needed = match size {
        Size::Blocks(blocks) => blocks.saturating_mul(block_size),
        Size::Minimum => 0,
    };
    let all_of_it = sb.blocks_count() == device.size() / block_size;
    let mut was = None;
    if let Some(file) = file.filter(|_| needed > device.size()) {
        was = lengthen(file, location, needed).map_err(|e| named(&e))?;
        drop(device);
        device = image.open(&how).map_err(|e| {
            shorten(file, was);
            Failure::new(e)
        })?;
    }
    let device = keeping::over(device, location).inspect_err(|_| {
        if let Some(file) = file {
            shorten(file, was);
        }
    })?;
    if let Some((file, len)) = file.zip(was) {
        keeping::note_length(location, file, len);
    }
    let is_too_long = needed > device.size();
    let bars = Bars::new("checking");
    let options = Options::default().now(seconds_now_32());
    let plan = resize::plan(device, size, options, &bars);
    bars.finish();
    let plan = match plan {
        Ok(plan) if plan.is_complete() => plan,
        done => {
            if let Some(file) = file {
                shorten(file, was);
            }
            let advice = keeps_its_size(container, &image).filter(|_| is_too_long);
            return Err(NotDone::Before(named(&match (done, advice) {
                (Ok(_), _) => resize::UNSOUND.to_owned(),
                (Err(e), None) => e.to_string(),
                (Err(e), Some(advice)) => format!("{e}: {advice}"),
            })));
        }
    };
    let during = |e: &dyn std::fmt::Display| NotDone::While(named(e));
    let written = plan.apply();
    written.map_err(|e| {
        if keeping::has_failed(location) {
            NotDone::Before(named(&e))
        } else {
            during(&half_written(location.undo.as_deref(), &e))
        }
    })?;
    let now = superblock_of(&*plan.changes.device()).map_err(|e| during(&e))?;
    let is_smaller = now.blocks_count() < sb.blocks_count();
    if let Some(file) = file.filter(|_| is_smaller && all_of_it && location.undo.is_none()) {
        cut(file, location, now.blocks_count() * block_size).map_err(|e| during(&e))?;
    }
    Ok(Resized {
        block_size: sb.block_size().bytes(),
        blocks_before: sb.blocks_count(),
        blocks: now.blocks_count(),
    })
}

/// What to do about a disk that does not get longer by itself, where that is not a file.
fn keeps_its_size(container: Option<Container>, image: &ImageLocation) -> Option<String> {
    match (container, image.carrier()) {
        (Some(container), _) => Some(format!(
            "the disk in the {} keeps its size, so make it larger where it lies (as `qemu-img \
             resize` does), and then the file system",
            container.word
        )),
        (None, Carrier::Nbd(_)) => Some(
            "an export keeps its size, so make it larger at its server, and then the file system"
                .to_owned(),
        ),
        _ => None,
    }
}

/// The image as a file that may get another length, and the length that it has.
fn file_of(image: &Path, location: &Whereabouts) -> io::Result<Option<(File, u64)>> {
    let file = File::options().write(true).open(image)?;
    let about = file.metadata()?;
    let is_whole = about.is_file() && location.partition.is_none() && location.offset.is_none();
    Ok(is_whole.then_some((file, about.len())))
}

/// Makes the image longer; returns how long it was.
pub(super) fn lengthen(image: &Path, location: &Whereabouts, len: u64) -> io::Result<Option<u64>> {
    let Some((file, was)) = file_of(image, location)? else {
        return Ok(None);
    };
    file.set_len(len)?;
    Ok(Some(was))
}

/// Gives the image the length that it had, as if nothing had been tried. A file that stays too long
/// does no harm.
fn shorten(image: &Path, was: Option<u64>) {
    if let Some(len) = was {
        let _ = File::options()
            .write(true)
            .open(image)
            .and_then(|file| file.set_len(len));
    }
}

/// Ends the image where its file system ends.
pub(super) fn cut(image: &Path, location: &Whereabouts, len: u64) -> io::Result<()> {
    match file_of(image, location)? {
        Some((file, was)) if was > len => file.set_len(len),
        _ => Ok(()),
    }
}

fn tell(args: &Resize, resized: &Resized) -> Outcome {
    let mut output = Output::new();
    if args.json {
        output.json_pretty(resized)?
    } else {
        writeln!(
            output,
            "{} blocks of {} bytes, before {}",
            resized.blocks, resized.block_size, resized.blocks_before
        )?
    }
    output.finish()
}

//! `extant write`.

use crate::args::{Whereabouts, Write};
use crate::closed;
use crate::failure::{Failure, Outcome};
use crate::image_path::ImagePath;
use crate::images::Images;
use crate::mode::ModeChange;
use crate::no_room::NoRoom;
use crate::older::{Names, Obstacle, Older};
use crate::operands::expand_one;
use crate::owner::{Giving, Owner};
use crate::path::{follow, look, look_at_link};
use crate::progress::Bar;
use crate::room::{self, Fit};
use extant::{File, Filesystem, OpenOptions};
use std::io::{self, Read, Seek};
use tempfile::SpooledTempFile;

/// Bytes written at once.
const CHUNK: usize = 1 << 20;
/// Bytes of the input kept in memory while its size is not known; more goes to a temporary file.
const IN_MEMORY: usize = 16 << 20;
/// Permissions of a file that is made, unless said otherwise.
const MODE: u16 = 0o644;
/// Those of one that is not in its place yet.
const PRIVATE: u16 = 0o600;

pub(super) fn run(args: &Write, location: &Whereabouts) -> Outcome {
    closed::check_input()?;
    run_from(args, location, &mut io::stdin().lock())
}

/// Writes what `input` has.
pub(super) fn run_from(args: &Write, location: &Whereabouts, input: &mut impl Read) -> Outcome {
    let at = ImagePath::inside(&args.path)?;
    let mode = match &args.mode {
        None => MODE,
        Some(text) => ModeChange::parse(text)
            .map_err(Failure::usage)?
            .apply(MODE, false),
    };
    let giving = Giving::of(&args.owner)?;
    let mut images = Images::new(location);
    let done = images.writable(&at).and_then(|fs| {
        let new = New {
            owner: giving.look_up(&fs)?,
            mode,
        };
        copy(args, &fs, &expand_one(&fs, &at)?, &new, input)
    });
    images.close(done)
}

/// What a file that is made gets.
struct New {
    owner: Option<Owner>,
    mode: u16,
}

fn copy(
    args: &Write,
    fs: &Filesystem,
    at: &ImagePath,
    new: &New,
    input: &mut impl Read,
) -> Outcome {
    let there = look(fs, &at.path).map_err(|e| at.failure(&e))?;
    if args.append || args.at.is_some() || there.is_none() {
        return put(args, fs, at, new, input);
    }
    let names = Names::default();
    match Older::find(fs, &at.path, &names).map_err(|why| in_the_way(at, why))? {
        Some(older) => replace_if_it_fits(args, fs, at, older, new, input),
        None => put(args, fs, at, new, input),
    }
}

fn in_the_way(at: &ImagePath, why: Obstacle) -> Failure {
    match why {
        Obstacle::Image(e) => at.failure(&e),
        Obstacle::Place(text) => Failure::new(format!("{}: {text}", at.shown())),
    }
}

/// Puts all that the input has in the place of an older file: beside it first, or where there is no
/// room for both, in place.
fn replace_if_it_fits(
    args: &Write,
    fs: &Filesystem,
    at: &ImagePath,
    older: Older<'_>,
    new: &New,
    input: &mut impl Read,
) -> Outcome {
    let fail = |e: extant::Error| at.failure(&e);
    // All of it is known, and that it fits, before anything is done.
    let mut spool = SpooledTempFile::new(IN_MEMORY);
    let spooled = io::copy(input, &mut spool).map_err(cannot_read)?;
    spool.rewind().map_err(cannot_read)?;
    let needed = spooled.div_ceil(room::block_size(fs).map_err(fail)?);
    let fit = room::fits(fs, older.metadata(), needed).map_err(fail)?;
    match fit.map_err(|why| Failure::new(format!("{}: {why}", at.shown())))? {
        Fit::Beside => replace(fs, at, older, &mut spool),
        Fit::InPlace => put(args, fs, at, new, &mut spool),
    }
}

/// Puts what the input has in the place of an older file, once all of it is there.
fn replace(fs: &Filesystem, at: &ImagePath, older: Older<'_>, input: &mut impl Read) -> Outcome {
    let mut buffer = vec![0; CHUNK];
    // Before anything is made.
    let first = fill(input, &mut buffer)?;
    let mut options = OpenOptions::new();
    options.write(true).create_new(true).mode(PRIVATE);
    let made = older.beside(|aside| options.open(fs, aside));
    let (file, aside) = made.map_err(|why| match why {
        Obstacle::Image(e) => about(fs, at, &e, true),
        why => in_the_way(at, why),
    })?;
    let mut lacking = Vec::new();
    let failed = |e: extant::Error| about(fs, at, &e, false);
    let done = pour(&file, 0, input, &mut buffer, first, failed).and_then(|()| {
        older.give(&aside, &mut |what, e| lacking.push(format!("{what} ({e})")));
        let note = &mut |what: &str, e: &extant::Error| lacking.push(format!("{what} ({e})"));
        let hidden = older.replace(&aside, note).map_err(failed)?;
        lacking.extend(hidden);
        Ok(())
    });
    if done.is_err() {
        // If it cannot be removed either, the first failure still says what happened.
        let _ = fs.remove_file(&aside);
    }
    done?;
    if lacking.is_empty() {
        return Ok(());
    }
    let lacking = lacking.join(", ");
    Err(Failure::new(format!(
        "{}: written without {lacking}",
        at.shown()
    )))
}

/// An error of the new file, as one about the place that it is for, with the way out if there is no
/// room.
fn about(fs: &Filesystem, at: &ImagePath, e: &extant::Error, making: bool) -> Failure {
    let advice = NoRoom::of(fs, e, making).map(|what| what.advice(fs));
    let advice = advice.unwrap_or_default();
    match e.cause() {
        extant::Cause::Image(cause) => Failure::new(format!("{}: {cause}{advice}", at.shown())),
        _ => Failure::new(format!("{}: {e}{advice}", at.shown())),
    }
}

fn put(args: &Write, fs: &Filesystem, at: &ImagePath, new: &New, input: &mut impl Read) -> Outcome {
    let mut buffer = vec![0; CHUNK];
    // Before the file is touched: input that cannot be read leaves it as it is.
    let first = fill(input, &mut buffer)?;
    let fail = |e: extant::Error| at.failure(&e);
    let is_new = look_at_link(fs, &at.path).map_err(fail)?.is_none();
    let file = OpenOptions::new()
        .write(true)
        .create(true)
        // What may only be appended to is opened for that.
        .append(args.append)
        .truncate(!args.append && args.at.is_none())
        .mode(new.mode)
        .open(fs, &at.path)
        .map_err(fail)?;
    if let Some(owner) = new.owner.filter(|_| is_new) {
        let path = follow(fs, &at.path).map_err(fail)?;
        owner.give(fs, &path, Some(new.mode)).map_err(fail)?;
    }
    let before = file.metadata().len();
    let to = match (args.append, args.at) {
        (true, _) => before,
        (false, at) => at.unwrap_or(0),
    };
    let done = pour(&file, to, input, &mut buffer, first, fail);
    if done.is_err() {
        // A part of what was to be written is worse than none. If it stays all the same, the first
        // failure still says what happened.
        let _ = match is_new {
            true => fs.remove_file(&at.path),
            false if args.append => file.set_len(before),
            false => Ok(()),
        };
    }
    done
}

/// Writes what is in the buffer and what else the input has, from byte `to` of the file on.
fn pour(
    file: &File,
    mut to: u64,
    input: &mut impl Read,
    buffer: &mut [u8],
    first: usize,
    fail: impl Fn(extant::Error) -> Failure,
) -> Outcome {
    let bar = Bar::new("writing");
    let mut filled = first;
    while let Some(bytes) = buffer.get(..filled).filter(|bytes| !bytes.is_empty()) {
        file.write_all_at(bytes, to).map_err(&fail)?;
        to = to.saturating_add(filled as u64);
        bar.advance(filled as u64);
        filled = fill(input, buffer)?;
    }
    bar.finish();
    Ok(())
}

/// Reads until the buffer is full or the input ends.
fn fill(input: &mut impl Read, buffer: &mut [u8]) -> Outcome<usize> {
    let mut filled = 0;
    while let Some(rest) = buffer.get_mut(filled..).filter(|rest| !rest.is_empty()) {
        match input.read(rest) {
            Ok(0) => break,
            Ok(read) => filled += read,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(cannot_read(e)),
        }
    }
    Ok(filled)
}

fn cannot_read(e: io::Error) -> Failure {
    Failure::new(format!("cannot read standard input: {e}"))
}

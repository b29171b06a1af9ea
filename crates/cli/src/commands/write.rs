//! `extant write`.

use crate::args::{Whereabouts, Write};
use crate::failure::{Failure, Outcome};
use crate::image_path::ImagePath;
use crate::images::Images;
use crate::mode::ModeChange;
use crate::operands::expand_one;
use crate::path::{look, look_at_link};
use crate::progress::Bar;
use crate::room;
use extant::{File, Filesystem, OpenOptions};
use std::io::{self, Read, Seek};
use tempfile::SpooledTempFile;

/// Bytes written at once.
const CHUNK: usize = 1 << 20;
/// Bytes of the input kept in memory while its size is not known; more goes to a temporary file.
const IN_MEMORY: usize = 16 << 20;
/// Permissions of a file that is made, unless said otherwise.
const MODE: u16 = 0o644;

pub(super) fn run(args: &Write, location: &Whereabouts) -> Outcome {
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
    let mut images = Images::new(location);
    let done = images
        .writable(&at)
        .and_then(|fs| copy(args, &fs, &expand_one(&fs, &at)?, mode, input));
    images.close(done)
}

fn copy(
    args: &Write,
    fs: &Filesystem,
    at: &ImagePath,
    mode: u16,
    input: &mut impl Read,
) -> Outcome {
    let fail = |e: extant::Error| at.failure(&e);
    let there = look(fs, &at.path).map_err(fail)?;
    match there.filter(|_| !args.append && args.at.is_none()) {
        // All of it is known, and that it fits, before the file is cut.
        Some(there) => {
            let mut spool = SpooledTempFile::new(IN_MEMORY);
            let spooled = io::copy(input, &mut spool).map_err(cannot_read)?;
            let needed = spooled.div_ceil(room::block_size(fs).map_err(fail)?);
            room::fits(fs, &there, needed)
                .map_err(fail)?
                .map_err(|why| Failure::new(format!("{}: {why}", at.shown())))?;
            spool.rewind().map_err(cannot_read)?;
            put(args, fs, at, mode, &mut spool)
        }
        None => put(args, fs, at, mode, input),
    }
}

fn put(args: &Write, fs: &Filesystem, at: &ImagePath, mode: u16, input: &mut impl Read) -> Outcome {
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
        .mode(mode)
        .open(fs, &at.path)
        .map_err(fail)?;
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

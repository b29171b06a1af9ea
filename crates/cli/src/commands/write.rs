//! `extant write`.

use crate::args::{Where, Write};
use crate::failure::{Failure, Outcome};
use crate::images::Images;
use crate::mode::ModeChange;
use crate::place::Place;
use crate::progress::Bar;
use extant::{Filesystem, OpenOptions};
use std::io::{self, Read};

/// Bytes written at once.
const CHUNK: usize = 1 << 20;
/// Permissions of a file that is made, unless said otherwise.
const MODE: u16 = 0o644;

pub(super) fn run(args: &Write, place: &Where) -> Outcome {
    let at = Place::inside(&args.path)?;
    let mode = match &args.mode {
        None => MODE,
        Some(text) => ModeChange::parse(text)
            .map_err(Failure::usage)?
            .apply(MODE, false),
    };
    let mut images = Images::new(place);
    let done = images
        .writable(&at)
        .and_then(|fs| copy(args, &fs, &at, mode));
    images.close(done)
}

fn copy(args: &Write, fs: &Filesystem, at: &Place, mode: u16) -> Outcome {
    let mut input = io::stdin().lock();
    let mut buffer = vec![0; CHUNK];
    // Before the file is touched: input that cannot be read leaves it as it is.
    let mut filled = fill(&mut input, &mut buffer)?;
    let fail = |e: extant::Error| at.failure(&e);
    let file = OpenOptions::new()
        .write(true)
        .create(true)
        // What may only be appended to is opened for that.
        .append(args.append)
        .truncate(!args.append && args.at.is_none())
        .mode(mode)
        .open(fs, &at.path)
        .map_err(fail)?;
    let mut to = match (args.append, args.at) {
        (true, _) => file.metadata().len(),
        (false, at) => at.unwrap_or(0),
    };
    let bar = Bar::new("writing");
    while let Some(bytes) = buffer.get(..filled).filter(|bytes| !bytes.is_empty()) {
        file.write_all_at(bytes, to).map_err(fail)?;
        to = to.saturating_add(filled as u64);
        bar.advance(filled as u64);
        filled = fill(&mut input, &mut buffer)?;
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
            Err(e) => {
                return Err(Failure::new(format!("cannot read standard input: {e}")));
            }
        }
    }
    Ok(filled)
}

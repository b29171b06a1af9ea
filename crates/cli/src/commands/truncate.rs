//! `extant truncate`.

use crate::args::{Truncate, Whereabouts};
use crate::failure::{Failure, Outcome};
use crate::images::change_each;
use crate::path::look;
use crate::size;
use extant::{Filesystem, OpenOptions};
use std::path::Path;

/// The size asked for.
#[derive(Debug, Clone, Copy)]
enum Size {
    Exactly(u64),
    Add(u64),
    TakeAway(u64),
}

pub(super) fn run(args: &Truncate, location: &Whereabouts) -> Outcome {
    let size = parse(&args.size).map_err(Failure::usage)?;
    change_each(&args.paths, location, |fs, at, _| {
        one(args, fs, &at.path, size).map_err(|e| at.failure(&e))
    })
}

fn parse(text: &str) -> Result<Size, String> {
    if let Some(more) = text.strip_prefix('+') {
        return size::parse(more).map(Size::Add);
    }
    if let Some(less) = text.strip_prefix('-') {
        return size::parse(less).map(Size::TakeAway);
    }
    size::parse(text).map(Size::Exactly)
}

fn one(args: &Truncate, fs: &Filesystem, path: &Path, size: Size) -> extant::Result<()> {
    if args.no_create && look(fs, path)?.is_none() {
        return Ok(());
    }
    let file = OpenOptions::new()
        .write(true)
        .create(!args.no_create)
        .open(fs, path)?;
    let before = file.metadata().len();
    file.set_len(match size {
        Size::Exactly(size) => size,
        Size::Add(more) => before.saturating_add(more),
        Size::TakeAway(less) => before.saturating_sub(less),
    })
}

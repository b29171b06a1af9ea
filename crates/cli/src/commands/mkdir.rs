//! `extant mkdir`.

use crate::args::{Mkdir, Whereabouts};
use crate::failure::{Failure, Outcome};
use crate::images::{change_each, is_in_the_way};
use crate::mode::ModeChange;
use crate::path::is_dir;
use extant::{Filesystem, Result};
use std::path::Path;

/// Permissions unless said otherwise.
const MODE: u16 = 0o755;

pub(super) fn run(args: &Mkdir, location: &Whereabouts) -> Outcome {
    let mode = match &args.mode {
        None => MODE,
        // Changes are those of a directory that everybody may use.
        Some(text) => ModeChange::parse(text)
            .map_err(Failure::usage)?
            .apply(0o777, true),
    };
    change_each(&args.paths, location, |fs, at, _| {
        let made = if args.parents {
            with_parents(fs, &at.path, mode)
        } else {
            fs.create_dir_with(&at.path, mode)
        };
        made.map_err(|e| at.failure(&e))
    })
}

/// Makes a directory and those above it; one that is there stays as it is.
fn with_parents(fs: &Filesystem, path: &Path, mode: u16) -> Result<()> {
    if is_dir(fs, path)? {
        return Ok(());
    }
    if let Some(parent) = path.parent() {
        fs.create_dir_all(parent)?;
    }
    match fs.create_dir_with(path, mode) {
        Err(e) if is_in_the_way(&e) && is_dir(fs, path)? => Ok(()),
        made => made,
    }
}

//! `extant mkdir`.

use crate::args::{Mkdir, Whereabouts};
use crate::failure::{Failure, Outcome};
use crate::image_path::{ImagePath, shown};
use crate::images::{change_each, is_in_the_way};
use crate::mode::ModeChange;
use crate::owner::{Giving, Owner};
use crate::path::is_dir;
use crate::verbose::Verbose;
use extant::{Escaped, Filesystem};
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
    let giving = Giving::of(&args.owner)?;
    let verbose = Verbose::new(args.verbose);
    let done = change_each(&args.paths, location, |fs, at, _| {
        let fail = |e: extant::Error| at.failure(&e);
        let owner = giving.look_up(fs)?;
        if args.parents && is_dir(fs, &at.path).map_err(fail)? {
            return Ok(());
        }
        if args.parents
            && let Some(parent) = at.path.parent()
        {
            with_parents(fs, at, parent, owner, &verbose)?;
        }
        match fs.create_dir_with(&at.path, mode) {
            // Made on the way to it, as `a` by `a/.`.
            Err(e)
                if args.parents && is_in_the_way(&e) && is_dir(fs, &at.path).map_err(fail)? =>
            {
                return Ok(());
            }
            made => made.map_err(fail)?,
        }
        if let Some(owner) = owner {
            owner.give(fs, &at.path, Some(mode)).map_err(fail)?;
        }
        verbose.tell(format_args!("created directory {}", at.shown()));
        Ok(())
    });
    verbose.finish(done)
}

/// Makes the directories that lead to a place and are not there.
fn with_parents(
    fs: &Filesystem,
    at: &ImagePath,
    dir: &Path,
    owner: Option<Owner>,
    verbose: &Verbose,
) -> Outcome {
    let fail = |e: extant::Error| at.failure(&e);
    let mut missing = Vec::new();
    for above in dir.ancestors() {
        if is_dir(fs, above).map_err(fail)? {
            break;
        }
        missing.push(above);
    }
    for dir in missing.into_iter().rev() {
        match fs.create_dir_with(dir, MODE) {
            // Named twice, as `a/../a`.
            Err(e) if is_in_the_way(&e) && is_dir(fs, dir).map_err(fail)? => {}
            made => {
                made.map_err(fail)?;
                if let Some(owner) = owner {
                    owner.give(fs, dir, None).map_err(fail)?;
                }
                let (image, dir) = (shown(&at.image), Escaped::path(dir));
                verbose.tell(format_args!("created directory {image}:{dir}"));
            }
        }
    }
    Ok(())
}

//! `extant chown`.

use crate::args::{Chown, Where};
use crate::failure::{Failure, Outcome};
use crate::images::{Problems, change_each, change_tree};
use crate::owner::{Owner, OwnerSpec};
use crate::path::follow;
use crate::place::Place;
use extant::Filesystem;

pub(super) fn run(args: &Chown, place: &Where) -> Outcome {
    let spec = OwnerSpec::parse(&args.owner).map_err(Failure::usage)?;
    change_each(&args.paths, place, |fs, at, problems| {
        let owner = spec.look_up(fs).map_err(Failure::new)?;
        let fail = |e: extant::Error| at.failure(&e);
        let is_dir = || fs.symlink_metadata(&at.path).map(|found| found.is_dir());
        if args.recursive && is_dir().map_err(fail)? {
            return tree(fs, at, owner, problems);
        }
        let path = match args.no_dereference {
            true => at.path.clone(),
            false => follow(fs, &at.path).map_err(fail)?,
        };
        fs.set_owner(&path, owner.uid, owner.gid).map_err(fail)
    })
}

/// Everything at and below a directory, symbolic links themselves.
fn tree(fs: &Filesystem, at: &Place, owner: Owner, problems: &mut Problems) -> Outcome {
    change_tree(fs, at, &at.path, problems, |entry| {
        fs.set_owner(entry.path(), owner.uid, owner.gid)
    })
}

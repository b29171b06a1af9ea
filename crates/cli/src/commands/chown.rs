//! `extant chown`.

use crate::args::{Chown, Whereabouts};
use crate::failure::{Failure, Outcome};
use crate::image_path::ImagePath;
use crate::images::{Problems, change_each, change_tree};
use crate::owner::{Owner, OwnerSpec};
use crate::path::follow;
use extant::Filesystem;
use std::path::Path;

/// The attribute that holds a file's capabilities.
const CAPABILITIES: &str = "security.capability";

pub(super) fn run(args: &Chown, location: &Whereabouts) -> Outcome {
    let spec = OwnerSpec::parse(&args.owner).map_err(Failure::usage)?;
    change_each(&args.paths, location, |fs, at, problems| {
        let owner = spec.look_up(fs).map_err(Failure::new)?;
        let fail = |e: extant::Error| at.failure(&e);
        let is_dir = || fs.symlink_metadata(&at.path).map(|found| found.is_dir());
        if args.recursive && is_dir().map_err(fail)? {
            return tree(args, fs, at, owner, problems);
        }
        let path = if args.no_dereference {
            at.path.clone()
        } else {
            follow(fs, &at.path).map_err(fail)?
        };
        give(args, fs, &path, owner).map_err(fail)
    })
}

/// Everything at and below a directory, symbolic links themselves.
fn tree(
    args: &Chown,
    fs: &Filesystem,
    at: &ImagePath,
    owner: Owner,
    problems: &mut Problems,
) -> Outcome {
    change_tree(fs, at, &at.path, problems, |entry| {
        give(args, fs, entry.path(), owner)
    })
}

/// Gives a file, and no other that it may lead to, another owner.
fn give(args: &Chown, fs: &Filesystem, path: &Path, owner: Owner) -> extant::Result<()> {
    let before = fs.symlink_metadata(path)?;
    if !args.keep_privileges || !before.is_file() {
        return fs.set_owner(path, owner.uid, owner.gid);
    }
    let attributes = fs.list_xattrs(path)?;
    let capabilities = if attributes.iter().any(|name| name == CAPABILITIES) {
        fs.get_xattr(path, CAPABILITIES)?
    } else {
        None
    };
    fs.set_owner(path, owner.uid, owner.gid)?;
    let mode = before.mode().permissions();
    if fs.symlink_metadata(path)?.mode().permissions() != mode {
        fs.set_permissions(path, mode)?;
    }
    match capabilities {
        Some(value) => fs.set_xattr(path, CAPABILITIES, value),
        None => Ok(()),
    }
}

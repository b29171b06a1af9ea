//! `extant chown`.

use super::like;
use crate::args::{Chown, Whereabouts};
use crate::failure::{Failure, Outcome};
use crate::image_path::shown;
use crate::images::{change_each, change_tree};
use crate::owner::{Owner, OwnerSpec};
use crate::path::follow;
use crate::verbose::Verbose;
use extant::{Escaped, Filesystem};
use std::path::Path;

/// The attribute that holds a file's capabilities.
const CAPABILITIES: &str = "security.capability";

/// Which owner files get.
enum Wanted {
    /// The one that an image knows by this name.
    Spec(OwnerSpec),
    Owner(Owner),
}

pub(super) fn run(args: &Chown, location: &Whereabouts) -> Outcome {
    let mut paths = args.paths.clone();
    let wanted = match &args.reference {
        Some(file) => {
            // There is no owner then.
            paths.insert(0, args.owner.clone());
            Wanted::Owner(like::owner(file, location)?)
        }
        None => {
            let spec = OwnerSpec::parse(&args.owner.to_string_lossy());
            Wanted::Spec(spec.map_err(Failure::usage)?)
        }
    };
    let verbose = Verbose::new(args.verbose);
    let done = change_each(&paths, location, |fs, at, problems| {
        let owner = match &wanted {
            Wanted::Spec(spec) => spec.look_up(fs).map_err(Failure::new)?,
            Wanted::Owner(owner) => *owner,
        };
        let give = |path: &Path| {
            give(args, fs, path, owner)?;
            if !verbose.is_on() {
                return Ok(());
            }
            let found = fs.symlink_metadata(path)?;
            verbose.tell(format_args!(
                "owner of {}:{}: {}:{}",
                shown(&at.image),
                Escaped::path(path),
                found.uid(),
                found.gid()
            ));
            Ok(())
        };
        let fail = |e: extant::Error| at.failure(&e);
        let is_dir = || fs.symlink_metadata(&at.path).map(|found| found.is_dir());
        if args.recursive && is_dir().map_err(fail)? {
            // Everything at and below a directory, symbolic links themselves.
            return change_tree(fs, at, &at.path, problems, |entry| give(entry.path()));
        }
        let path = if args.no_dereference {
            at.path.clone()
        } else {
            follow(fs, &at.path).map_err(fail)?
        };
        give(&path).map_err(fail)
    });
    verbose.finish(done)
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

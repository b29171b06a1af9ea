//! Files that others are made like, by `--reference`.

use crate::args::Whereabouts;
use crate::failure::{Failure, Outcome};
use crate::image_path::ImagePath;
use crate::mode::ModeChange;
use crate::owner::Owner;
use extant::Escaped;
use std::ffi::OsStr;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// A file that others are made like; symbolic links are followed.
struct Like {
    permissions: u16,
    uid: u32,
    gid: u32,
}

fn look(file: &OsStr, location: &Whereabouts) -> Outcome<Like> {
    if let Some(at) = ImagePath::inside_if_any(file)? {
        let fs = at.open(location)?;
        let found = fs.metadata(&at.path).map_err(|e| at.failure(&e))?;
        return Ok(Like {
            permissions: found.mode().permissions(),
            uid: found.uid(),
            gid: found.gid(),
        });
    }
    let found = Path::new(file).metadata().map_err(|e| {
        let file = Escaped::path(Path::new(file));
        Failure::new(format!("cannot look at {file}: {e}"))
    })?;
    Ok(Like {
        permissions: (found.mode() & 0o7777) as u16,
        uid: found.uid(),
        gid: found.gid(),
    })
}

/// The permissions of a file, as a change that gives them.
pub(super) fn permissions(file: &OsStr, location: &Whereabouts) -> Outcome<ModeChange> {
    let bits = look(file, location)?.permissions;
    Ok(ModeChange::Octal {
        bits,
        set_ids: true,
    })
}

/// The owner and group of a file.
pub(super) fn owner(file: &OsStr, location: &Whereabouts) -> Outcome<Owner> {
    let like = look(file, location)?;
    Ok(Owner {
        uid: Some(like.uid),
        gid: Some(like.gid),
    })
}

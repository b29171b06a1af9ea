//! `open`: whether it is allowed.

use super::permission::{OpContext, READ, WRITE, may_change};
use crate::inode::{FileType, Held};
use crate::{Error, Result};
use extant_format::inode::InodeFlags;

/// What a file is opened for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OpenFor {
    /// Reading, or listing a directory.
    pub read: bool,
    /// Writing, anywhere.
    pub write: bool,
    /// Writing at the end.
    pub append: bool,
    /// Being emptied, too.
    pub truncate: bool,
}

impl OpenFor {
    /// Reading and nothing else.
    #[must_use]
    pub fn reading() -> Self {
        Self {
            read: true,
            ..Self::default()
        }
    }
}

/// Refuses to open a file or directory for what may not be done to it. A file that the caller has
/// just made needs no asking.
///
/// # Errors
/// [`Error::IsADirectory`] for writing one, [`Error::Loop`] for a symbolic link;
/// [`Error::ReadOnly`]; [`Error::PermissionDenied`]; [`Error::NotPermitted`] for writing an
/// immutable file, and an append-only one in another way than at its end.
pub fn open<'a>(ctx: impl Into<OpContext<'a>>, inode: &Held, wanted: OpenFor) -> Result<()> {
    let ctx = ctx.into();
    let image = inode.copy();
    let writes = wanted.write || wanted.append || wanted.truncate;
    match image.file_type() {
        FileType::Symlink => return Err(Error::Loop),
        FileType::Directory if writes => return Err(Error::IsADirectory),
        _ => {}
    }
    if writes {
        may_change(ctx.fs(), &image)?;
    }
    let read = if wanted.read { READ } else { 0 };
    let write = if writes { WRITE } else { 0 };
    ctx.may_access(inode, read | write)?;
    let elsewhere = wanted.truncate || (wanted.write && !wanted.append);
    if elsewhere && image.flags().contains(InodeFlags::APPEND) {
        Err(Error::NotPermitted)
    } else {
        Ok(())
    }
}

//! `listxattr`.

use super::permission::OpContext;
use crate::fs::Fs;
use crate::inode::{Held, Inode};
use crate::{Result, xattr};
use extant_format::xattr::split_name;
use std::ops::ControlFlow;

/// Returns the full names of an inode's attributes, in the order they are stored.
///
/// # Errors
/// As for [`xattr::list`].
pub fn listxattr(fs: &Fs, inode: &Inode) -> Result<Vec<Vec<u8>>> {
    xattr::list(fs, inode)
}

/// Lists attributes as [`listxattr`] does, of an inode that may change meanwhile. `trusted.` ones
/// exist for user 0 only.
///
/// # Errors
/// As for [`xattr::list`].
pub fn listxattr_live<'a>(ctx: impl Into<OpContext<'a>>, inode: &Held) -> Result<Vec<Vec<u8>>> {
    let ctx = ctx.into();
    let _shared = inode.op().read();
    let mut names = xattr::list(ctx.fs(), &inode.snapshot())?;
    names.retain(|name| ctx.lists_xattr(name));
    Ok(names)
}

/// [`xattr::for_each`] of an inode that may change meanwhile, though not while this runs. What the
/// caller may not read is left out.
///
/// # Errors
/// As for [`xattr::for_each`].
pub fn for_each_xattr_live<'a, B>(
    ctx: impl Into<OpContext<'a>>,
    inode: &Held,
    mut visit: impl FnMut(&[u8], &[u8]) -> ControlFlow<B>,
) -> Result<Option<B>> {
    let ctx = ctx.into();
    let _shared = inode.op().read();
    let image = inode.snapshot();
    let may_read = |name: &[u8]| {
        let stored = split_name(name);
        stored.is_none_or(|stored| ctx.may_get_xattr(&image, stored.index).is_ok())
    };
    xattr::for_each(ctx.fs(), &image, |name, value| {
        if may_read(name) {
            visit(name, value)
        } else {
            ControlFlow::Continue(())
        }
    })
}

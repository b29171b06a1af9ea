//! Extended attributes and access control lists.
//!
//! | file | owns |
//! |---|---|
//! | `areas` | the two areas an inode's attributes are in, checked |
//! | `spill_inline` | content that leaves its inode, where it shares the place of attributes, for a block |
//! | `value` | values as they are read, also those kept in inodes of their own |
//! | `own_inode` | making and sharing such inodes, and counting references to them |
//! | `acl` | access control lists |
//! | `change` | setting and removing |
//! | `count` | how many values an inode is charged for |
//! | `privileges` | what a program loses when its content or its owner changes |
//! | `shared` | blocks of attributes, which inodes with equal ones share |
//!
//! # Invariants
//!
//! - Names and values are what `listxattr` and `getxattr` of Linux return: access control lists in
//!   the system calls' form, and no attributes that the file system keeps for itself (inline data,
//!   encryption contexts, unknown kinds).
//! - An attribute block is verified once per load, however many share it. A value in an inode of
//!   its own is verified against both hashes each time it is read.
//! - A value has at most 64 KiB, as under Linux.

mod acl;
mod areas;
mod change;
mod count;
mod own_inode;
mod privileges;
mod shared;
mod spill_inline;
mod value;

pub use acl::{AclKind, acl};
pub use change::SetXattr;
pub(crate) use change::{Change, Fresh, change, charge, fresh, give_up, give_up_credits};
pub(crate) use count::count_values;
pub(crate) use own_inode::{SharedValues, kept_hash};
pub(crate) use privileges::{change_without_capabilities, loses, loses_by, take_away};
pub(crate) use shared::{SharedBlocks, leave};
pub(crate) use spill_inline::LEAVE_CREDITS;

use crate::fs::Fs;
use crate::inode::Inode;
use crate::{Error, Result};
use areas::Areas;
use extant_format::xattr::{AttributeName, full_name, name, split_name};
use std::ops::ControlFlow;

/// Returns the full names of an inode's attributes, in the order they are stored.
///
/// # Errors
/// [`Error::Corrupt`] when an area is broken, [`Error::Device`] when the device fails.
pub fn list(fs: &Fs, inode: &Inode) -> Result<Vec<Vec<u8>>> {
    let areas = Areas::of(fs, inode)?;
    let mut names = Vec::new();
    areas.for_each(|_, entry| {
        names.extend(shown_name(&entry.name));
        Ok(ControlFlow::<()>::Continue(()))
    })?;
    Ok(names)
}

/// Returns the value of the attribute with this full name.
///
/// # Errors
/// [`Error::NoAttribute`] when the inode does not have it, [`Error::Corrupt`] when an area or the
/// value is broken, [`Error::Device`] when the device fails.
pub fn get(fs: &Fs, inode: &Inode, name: &[u8]) -> Result<Vec<u8>> {
    let stored = split_name(name)
        .filter(is_shown)
        .ok_or(Error::NoAttribute)?;
    let areas = Areas::of(fs, inode)?;
    let found = areas.for_each(|place, entry| {
        if entry.name != stored {
            return Ok(ControlFlow::Continue(()));
        }
        value::shown(fs, inode, place, entry).map(ControlFlow::Break)
    })?;
    found.ok_or(Error::NoAttribute)
}

/// Tells whether the inode has an attribute of this stored name.
pub(crate) fn has(fs: &Fs, inode: &Inode, name: AttributeName<'_>) -> Result<bool> {
    let found = Areas::of(fs, inode)?.for_each(|_, entry| {
        Ok(if entry.name == name {
            ControlFlow::Break(())
        } else {
            ControlFlow::Continue(())
        })
    })?;
    Ok(found.is_some())
}

/// Calls `visit` with full name and value of every attribute, in the order they are stored, until
/// it breaks. Returns the value it broke with.
///
/// # Errors
/// [`Error::Corrupt`] when an area or a value is broken, [`Error::Device`] when the device fails.
pub fn for_each<B>(
    fs: &Fs,
    inode: &Inode,
    mut visit: impl FnMut(&[u8], &[u8]) -> ControlFlow<B>,
) -> Result<Option<B>> {
    Areas::of(fs, inode)?.for_each(|place, entry| {
        let Some(name) = shown_name(&entry.name) else {
            return Ok(ControlFlow::Continue(()));
        };
        let value = value::shown(fs, inode, place, entry)?;
        Ok(visit(&name, &value))
    })
}

/// Returns the name an attribute is shown under, if it is shown at all.
fn shown_name(name: &AttributeName<'_>) -> Option<Vec<u8>> {
    if is_shown(name) {
        full_name(name)
    } else {
        None
    }
}

/// Linux shows no `system.` attributes but access control lists.
fn is_shown(name: &AttributeName<'_>) -> bool {
    !matches!(name.index, name::SYSTEM | name::RICHACL)
}

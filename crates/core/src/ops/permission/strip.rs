//! What a program loses when its content or its owner changes: the rights that it gives to who runs it.
//!
//! Set-user-ID goes, and set-group-ID where the group may execute (otherwise the bit means something else) or where the
//! caller is not in the group. User 0 changes content without that. `security.capability` goes whoever comes.

use super::{Acting, GROUP_EXECUTE, SET_GID, SET_UID};
use crate::Result;
use crate::inode::{FileType, Held, Inode, Mode};
use crate::ops::naming::{changing, now};
use crate::ops::setattr::change_record;
use crate::xattr::{self, Change, SetXattr};
use extant_format::xattr::{AttributeName, name};
use extant_sync::pin;

/// The attribute that holds the capabilities of a program.
const CAPABILITY: AttributeName<'static> = AttributeName {
    index: name::SECURITY,
    suffix: b"capability",
};

/// Takes away what a file loses when its content changes. To be called before that.
///
/// # Errors
/// Those of changing attributes.
#[inline]
pub(in crate::ops) fn strip(by: Acting<'_>, file: &Held) -> Result<()> {
    let loses = {
        let guard = pin();
        let image = file.image(&guard);
        image.file_type() == FileType::Regular
            && (loses_bits(by, image) || (image.may_have_attributes() && file.may_be_capable()))
    };
    match loses {
        true => changing(by.fs(), || strip_now(by, file)),
        false => Ok(()),
    }
}

fn loses_bits(by: Acting<'_>, image: &Inode) -> bool {
    by.restricted().is_some() && without_set_ids(by, image) != image.disk().mode.permissions()
}

#[cold]
fn strip_now(by: Acting<'_>, file: &Held) -> Result<()> {
    let fs = by.fs();
    fs.check_writable()?;
    let _exclusive = file.op().write();
    let image = file.snapshot();
    let is_capable = xattr::has(fs, &image, CAPABILITY)?;
    if !is_capable {
        file.note_not_capable();
    }
    let bits = match loses_bits(by, &image) {
        true => without_set_ids(by, &image),
        false => image.disk().mode.permissions(),
    };
    if !is_capable && bits == image.disk().mode.permissions() {
        return Ok(());
    }
    change_without_privileges(by, file, |image| {
        image.disk_mut().mode = Mode::new(image.file_type(), bits);
    })
}

/// Changes the record of an inode, with `edit`, and takes the capabilities of a program away. Its `op` lock is held
/// exclusively.
///
/// # Errors
/// Those of changing attributes.
pub(in crate::ops) fn change_without_privileges(
    by: Acting<'_>,
    inode: &Held,
    edit: impl FnOnce(&mut Inode),
) -> Result<()> {
    let remove = Change {
        name: CAPABILITY,
        value: None,
        how: SetXattr::Any,
    };
    match inode.copy().may_have_attributes() {
        true => xattr::change(by.fs(), inode, &[remove], now(), edit),
        false => change_record(by.fs(), inode, edit),
    }
}

/// The permissions without the bits that give a program the rights of its owners.
pub(in crate::ops) fn without_set_ids(by: Acting<'_>, image: &Inode) -> u16 {
    let permissions = image.disk().mode.permissions();
    let mut left = permissions & !SET_UID;
    if permissions & GROUP_EXECUTE != 0 || !by.is_in_group(image.disk().gid) {
        left &= !SET_GID;
    }
    left
}

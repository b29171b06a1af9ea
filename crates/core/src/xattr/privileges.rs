//! What a program loses when its content or its owner changes: the rights that it gives to its
//! users.
//!
//! Set-ID bits go as [`without_set_ids`] says, but user 0 changes content without that.
//! `security.capability` goes for any user.
//!
//! # Invariants
//!
//! - Content changes under the `op` lock under which was looked whether something is to be lost. So
//!   no program that gets rights meanwhile has them with content of somebody else.

use super::{Change, SetXattr, change, has};
use crate::Result;
use crate::clock::now;
use crate::fs::Fs;
use crate::inode::{Actor, FileType, Held, Inode, LiveInode, Mode, without_set_ids};
use extant_format::xattr::{AttributeName, name};
use extant_sync::pin;

/// The attribute that holds the capabilities of a program.
const CAPABILITY: AttributeName<'static> = AttributeName {
    index: name::SECURITY,
    suffix: b"capability",
};

/// Tells whether a file may lose something when this actor changes its content. The `op` lock is
/// held: as long as it is, what loses nothing has nothing to lose.
#[inline]
pub(crate) fn loses(live: &LiveInode, actor: Actor<'_>) -> bool {
    loses_by(live.image(&pin()), live, actor)
}

/// Tells by the newest image of an inode whether a write of its content takes rights from it.
#[inline]
pub(crate) fn loses_by(image: &Inode, live: &LiveInode, actor: Actor<'_>) -> bool {
    !matches!(actor, Actor::Earlier | Actor::Mapped)
        && image.file_type() == FileType::Regular
        && (left_by(image, actor) != image.disk().mode.permissions()
            || (image.may_have_attributes() && live.may_be_capable()))
}

/// Returns the permissions that a file has when this actor has changed its content.
fn left_by(image: &Inode, actor: Actor<'_>) -> u16 {
    match actor.restricted() {
        None => image.disk().mode.permissions(),
        actor => without_set_ids(image, actor),
    }
}

/// Takes away what a file loses when this actor changes its content. To be called before that, with
/// the `op` lock held exclusively.
///
/// # Errors
/// Those of changing attributes.
#[inline]
pub(crate) fn take_away(fs: &Fs, file: &Held, actor: Actor<'_>) -> Result<()> {
    if loses(file, actor) {
        take_away_now(fs, file, actor)
    } else {
        Ok(())
    }
}

#[cold]
fn take_away_now(fs: &Fs, file: &Held, actor: Actor<'_>) -> Result<()> {
    let image = file.snapshot();
    let is_capable = image.may_have_attributes() && has(fs, &image, CAPABILITY)?;
    if !is_capable {
        file.note_not_capable();
    }
    let permissions = left_by(&image, actor);
    if !is_capable && permissions == image.disk().mode.permissions() {
        return Ok(());
    }
    change_without_capabilities(fs, file, |image| {
        image.disk_mut().mode = Mode::new(image.file_type(), permissions);
    })
}

/// Changes the record of an inode, with `edit`, and takes the capabilities of a program away. Its
/// `op` lock is held exclusively.
///
/// # Errors
/// Those of changing attributes.
pub(crate) fn change_without_capabilities(
    fs: &Fs,
    inode: &Held,
    edit: impl FnOnce(&mut Inode),
) -> Result<()> {
    let time = now();
    if inode.copy().may_have_attributes() {
        let remove = Change {
            name: CAPABILITY,
            value: None,
            how: SetXattr::Any,
        };
        return change(fs, inode, &[remove], time, edit);
    }
    let handle = fs.start(1)?;
    inode.live().update(&handle, |image| {
        edit(image);
        image.disk_mut().ctime = time;
    })
}

#[cfg(test)]
mod tests;

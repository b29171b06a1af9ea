//! `rename`.

use super::mkdir::{add_subdirectory, forget_subdirectory, remove_subdirectory};
use super::naming::{
    changing_of, check_name, check_project, live_parent, now, reap, touch_parent, undo_new,
};
use super::permission::OpContext;
use super::unlink::drop_name;
use crate::fs::Fs;
use crate::fs::Handle;
use crate::inode::{Access, FileType, Held, LiveInode, LockSet};
use crate::lifecycle::NewInode;
use crate::mutants::{Mutant, is_on};
use crate::{Error, Place, Result, data, dir};
use extant_format::{Expected, FormatError, Ino, Structure};

/// One name of the two.
#[derive(Clone, Copy)]
struct Name<'a> {
    dir: &'a Held,
    name: &'a [u8],
}

/// What `rename` does beside moving a name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RenameFlags {
    /// Replaces nothing (`RENAME_NOREPLACE`).
    pub no_replace: bool,
    /// Leaves a whiteout, a device node of number 0:0, under the old name (`RENAME_WHITEOUT`).
    pub whiteout: bool,
}

/// Moves the name `from` in `from_dir` to `to` in `to_dir`. What was called `to` before loses that
/// name in the same moment; if both are names of one file, nothing happens.
///
/// # Errors
/// [`Error::NotFound`]; [`Error::IsADirectory`], [`Error::NotADirectory`] and [`Error::NotEmpty`]
/// when what is there cannot be replaced; [`Error::InvalidInput`] when a directory would come to
/// lie inside itself; [`Error::PermissionDenied`] and [`Error::NotPermitted`];
/// [`Error::OtherProject`], [`Error::TooManyLinks`], [`Error::NoSpace`], [`Error::ReadOnly`]; those
/// of reading the directories.
pub fn rename<'a>(
    ctx: impl Into<OpContext<'a>>,
    from_dir: &Held,
    from: &[u8],
    to_dir: &Held,
    to: &[u8],
) -> Result<()> {
    rename_with(ctx, (from_dir, from), (to_dir, to), RenameFlags::default())
}

/// Renames as [`rename`] does, with flags.
///
/// # Errors
/// As for [`rename`]; [`Error::Exists`] when something would have to be replaced that may not be.
pub fn rename_with<'a>(
    ctx: impl Into<OpContext<'a>>,
    from: (&Held, &[u8]),
    to: (&Held, &[u8]),
    flags: RenameFlags,
) -> Result<()> {
    let ctx = ctx.into();
    let fs = ctx.fs();
    let (from, to) = (Name::checked(ctx, from)?, Name::checked(ctx, to)?);
    if let Ok(Found {
        source,
        victim: Some(_),
    }) = find(fs, from, to)
    {
        let _changing = ctx.begin_change()?;
        data::write_back_early(fs, &source);
    }
    while !changing_of(ctx, &[from.dir, to.dir], || {
        rename_once(ctx, from, to, flags)
    })? {}
    reap(fs);
    Ok(())
}

/// Lets two names stand for each other's files from now on (`RENAME_EXCHANGE`).
///
/// # Errors
/// [`Error::NotFound`] when there is none of a name; [`Error::InvalidInput`] when a directory would
/// come to lie inside itself; [`Error::PermissionDenied`] and [`Error::NotPermitted`];
/// [`Error::OtherProject`], [`Error::TooManyLinks`], [`Error::ReadOnly`]; those of reading the
/// directories.
pub fn exchange<'a>(
    ctx: impl Into<OpContext<'a>>,
    one: (&Held, &[u8]),
    other: (&Held, &[u8]),
) -> Result<()> {
    let ctx = ctx.into();
    let (one, other) = (Name::checked(ctx, one)?, Name::checked(ctx, other)?);
    while !changing_of(ctx, &[one.dir, other.dir], || {
        exchange_once(ctx, one, other)
    })? {}
    Ok(())
}

impl<'a> Name<'a> {
    /// Returns a name that can move.
    fn checked(ctx: OpContext<'_>, (dir, name): (&'a Held, &'a [u8])) -> Result<Self> {
        match check_name(dir, name) {
            Err(Error::Exists) => Err(Error::InvalidInput("`.` and `..` stay where they are")),
            checked => checked.and_then(|()| ctx.may_search(dir)),
        }?;
        Ok(Self { dir, name })
    }
}

/// What the two names stood for.
struct Found {
    source: Held,
    victim: Option<Held>,
}

fn find(fs: &Fs, from: Name<'_>, to: Name<'_>) -> Result<Found> {
    let source = fs.hold_name(from.dir, from.name)?.ok_or(Error::NotFound)?;
    let victim = fs.hold_name(to.dir, to.name)?;
    Ok(Found { source, victim })
}

/// Refuses to put one kind of thing in the place of another.
fn check_kinds(found: &Found) -> Result<()> {
    let Some(victim) = &found.victim else {
        return Ok(());
    };
    match (found.source.snapshot().is_dir(), victim.snapshot().is_dir()) {
        (true, false) => Err(Error::NotADirectory),
        (false, true) => Err(Error::IsADirectory),
        _ => Ok(()),
    }
}

/// Tries once; `false` when the names changed meanwhile.
fn rename_once(
    ctx: OpContext<'_>,
    from: Name<'_>,
    to: Name<'_>,
    flags: RenameFlags,
) -> Result<bool> {
    let fs = ctx.fs();
    let across = from.dir.ino() != to.dir.ino();
    // Whatever moves between directories waits here, so that the shape of the tree stands still
    // while ancestors are compared.
    let _topology = if across {
        Some(fs.rename_topology()?.lock())
    } else {
        None
    };
    let found = find(fs, from, to)?;
    if flags.no_replace && found.victim.is_some() {
        return Err(Error::Exists);
    }
    if let Some(victim) = &found.victim
        && victim.ino() == found.source.ino()
    {
        return Ok(true);
    }
    let inside_victim = || Error::NotEmpty;
    let from_first = !across || order_parents(fs, from.dir, to.dir, &found, inside_victim)?;
    let (first, second) = if from_first {
        (from.dir, to.dir)
    } else {
        (to.dir, from.dir)
    };
    let mut children: Vec<(&LiveInode, Access)> = vec![(&found.source, Access::Exclusive)];
    children.extend(found.victim.iter().map(|held| (&**held, Access::Exclusive)));
    let parents = [(&**first, Access::Shared), (&**second, Access::Shared)];
    let _locks = LockSet::lock(&parents, &children);
    let names = fs.lock_names((from.dir, from.name), (to.dir, to.name));
    let now_from = fs.lookup_locked(from.dir, names.first())?;
    let now_to = fs.lookup_locked(to.dir, names.second())?;
    if now_from != Some(found.source.snapshot().id())
        || now_to != found.victim.as_ref().map(|victim| victim.snapshot().id())
    {
        return Ok(false);
    }
    ctx.may_take_name(&live_parent(from.dir)?, &found.source)?;
    let into = live_parent(to.dir)?;
    match &found.victim {
        Some(victim) => ctx.may_take_name(&into, victim)?,
        None => ctx.may_put_name(&into)?,
    }
    check_project(&into, &found.source)?;
    check_kinds(&found)?;
    if across {
        ctx.may_reparent(&found.source)?;
    }
    if let Some(victim) = &found.victim
        && victim.snapshot().is_dir()
        && !dir::is_empty(fs, victim)?
    {
        return Err(Error::NotEmpty);
    }
    let credits = dir::insert_credits(fs, &to.dir.snapshot())
        + dir::remove_credits(fs, &from.dir.snapshot())
        + dir::remove_credits(fs, &found.source.snapshot())
        + fs.orphan_credits()
        + 6;
    let from_image = from.dir.copy();
    let mut let_in = None;
    let (credits, whiteout) = if flags.whiteout {
        let new = NewInode::new(FileType::CharDevice, 0, now());
        let new = ctx.adopt(&from_image, &new)?;
        let_in = fs.admit_new_inode(|| new.owners_in(&from_image))?;
        let more = fs.new_inode_credits_in(&from_image);
        (credits + more, Some(new))
    } else {
        (credits, None)
    };
    let handle = fs.start(credits)?;
    let whiteout = whiteout
        .map(|new| fs.new_inode(&handle, &from_image, &new))
        .transpose()?;
    drop(let_in);
    if let Err(e) = change(fs, &handle, from, to, &found, whiteout.as_ref()) {
        if let Some(whiteout) = whiteout {
            undo_new(fs, &handle, whiteout);
        }
        return Err(e);
    }
    match &whiteout {
        Some(whiteout) => fs.names().insert(names.first(), whiteout.id()),
        None => fs.names().remove(names.first()),
    }
    fs.names()
        .insert(names.second(), found.source.snapshot().id());
    Ok(true)
}

/// Makes the change under the handle. The step that can run out of space comes first.
fn change(
    fs: &Fs,
    handle: &Handle<'_>,
    from: Name<'_>,
    to: Name<'_>,
    found: &Found,
    whiteout: Option<&Held>,
) -> Result<()> {
    let source = found.source.live();
    for live in [source, from.dir.live(), to.dir.live()] {
        handle.touch_inode(live)?;
    }
    if let Some(victim) = &found.victim {
        handle.touch_inode(victim.live())?;
    }
    let file_type = source.snapshot().file_type();
    let moves_dir = file_type == FileType::Directory && from.dir.ino() != to.dir.ino();
    let gains_dir = moves_dir && found.victim.is_none();
    if gains_dir {
        add_subdirectory(fs, handle, to.dir)?;
    }
    let ino = found.source.ino();
    let put = match &found.victim {
        Some(_) => dir::replace(handle, to.dir, to.name, ino, file_type).map(drop),
        None => dir::insert(handle, to.dir, to.name, ino, file_type),
    };
    if let Err(e) = put {
        if gains_dir {
            // Registered above, so this cannot fail.
            let _ = forget_subdirectory(handle, to.dir);
        }
        return Err(e);
    }
    let finished = finish(fs, handle, from, to, found, whiteout);
    if let Err(e) = &finished {
        fs.names().note_eviction(to.dir.ino());
        // The new name is there and the old one may be too. Half a rename must not be committed,
        // and the commit that takes this handle's changes looks for this.
        fs.journal()?.abort(e.clone());
    }
    finished
}

/// What follows once the new name is there.
fn finish(
    fs: &Fs,
    handle: &Handle<'_>,
    from: Name<'_>,
    to: Name<'_>,
    found: &Found,
    whiteout: Option<&Held>,
) -> Result<()> {
    let source = found.source.live();
    let is_dir = source.snapshot().is_dir();
    let moves_dir = is_dir && from.dir.ino() != to.dir.ino();
    match whiteout.filter(|_| !is_on(Mutant::WhiteoutLost)) {
        Some(whiteout) => {
            let (ino, file_type) = (whiteout.ino(), FileType::CharDevice);
            dir::replace(handle, from.dir, from.name, ino, file_type)?;
        }
        None => {
            dir::remove(handle, from.dir, from.name)?;
        }
    }
    if moves_dir {
        dir::set_parent(handle, &found.source, to.dir.ino())?;
    }
    let loses_dir = moves_dir || (is_dir && found.victim.is_some());
    if loses_dir {
        remove_subdirectory(handle, from.dir)?
    } else {
        touch_parent(handle, from.dir)?
    }
    if from.dir.ino() != to.dir.ino() {
        touch_parent(handle, to.dir)?;
    }
    let time = now();
    source.update(handle, |inode| inode.disk_mut().ctime = time)?;
    match &found.victim {
        Some(victim) => drop_name(fs, handle, victim, now()),
        None => Ok(()),
    }
}

/// Tries once; `false` when the names changed meanwhile.
fn exchange_once(ctx: OpContext<'_>, one: Name<'_>, other: Name<'_>) -> Result<bool> {
    let fs = ctx.fs();
    let across = one.dir.ino() != other.dir.ino();
    let _topology = if across {
        Some(fs.rename_topology()?.lock())
    } else {
        None
    };
    let found = find(fs, one, other)?;
    let victim = found.victim.as_ref().ok_or(Error::NotFound)?;
    if victim.ino() == found.source.ino() {
        return Ok(true);
    }
    let inside = || Error::InvalidInput("a directory cannot be moved into itself");
    let one_first = !across || order_parents(fs, one.dir, other.dir, &found, inside)?;
    let (first, second) = if one_first {
        (one.dir, other.dir)
    } else {
        (other.dir, one.dir)
    };
    let parents = [(&**first, Access::Shared), (&**second, Access::Shared)];
    let children = [&found.source, victim].map(|held| (&**held, Access::Exclusive));
    let _locks = LockSet::lock(&parents, &children);
    let names = fs.lock_names((one.dir, one.name), (other.dir, other.name));
    if fs.lookup_locked(one.dir, names.first())? != Some(found.source.id())
        || fs.lookup_locked(other.dir, names.second())? != Some(victim.id())
    {
        return Ok(false);
    }
    let images = (live_parent(one.dir)?, live_parent(other.dir)?);
    ctx.may_take_name(&images.0, &found.source)?;
    ctx.may_take_name(&images.1, victim)?;
    check_project(&images.1, &found.source)?;
    check_project(&images.0, victim)?;
    if across {
        ctx.may_reparent(&found.source)?;
        ctx.may_reparent(victim)?;
    }
    // Two entries, two `..`, four records.
    let dirs = [one.dir, other.dir, &found.source, victim];
    let entries = dirs.map(|dir| dir::remove_credits(fs, &dir.snapshot()));
    let handle = fs.start(entries.iter().sum::<u32>() + 6)?;
    for live in [&found.source, victim, one.dir, other.dir] {
        handle.touch_inode(live.live())?;
    }
    let moved = (found.source.is_dir(), victim.is_dir());
    // Which parent gets a subdirectory in the place of a file.
    let gains = match moved {
        (true, false) if across => Some((other.dir, one.dir)),
        (false, true) if across => Some((one.dir, other.dir)),
        _ => None,
    };
    let gains = gains.filter(|_| !is_on(Mutant::ParentLinksForgotten));
    if let Some((gains, _)) = gains {
        add_subdirectory(fs, &handle, gains)?;
    }
    let swapped = swap(&handle, one, other, &found.source, victim);
    if let Err((e, is_half)) = swapped {
        fs.names().note_eviction(one.dir.ino());
        fs.names().note_eviction(other.dir.ino());
        if is_half {
            // Half of it must not be committed: see above.
            fs.journal()?.abort(e.clone());
        } else if let Some((gains, _)) = gains {
            // Registered above, so this cannot fail.
            let _ = forget_subdirectory(&handle, gains);
        }
        return Err(e);
    }
    if let Some((_, loses)) = gains {
        remove_subdirectory(&handle, loses)?;
    }
    let time = now();
    for parent in [one.dir, other.dir] {
        touch_parent(&handle, parent)?;
    }
    for child in [&found.source, victim] {
        child
            .live()
            .update(&handle, |inode| inode.disk_mut().ctime = time)?;
    }
    fs.names().insert(names.first(), victim.id());
    fs.names().insert(names.second(), found.source.id());
    Ok(true)
}

/// Lets two entries stand for each other's files. An error says whether something has changed by
/// then.
fn swap(
    handle: &Handle<'_>,
    one: Name<'_>,
    other: Name<'_>,
    source: &Held,
    victim: &Held,
) -> Result<(), (Error, bool)> {
    let put = |at: Name<'_>, held: &Held| {
        let file_type = held.copy().file_type();
        dir::replace(handle, at.dir, at.name, held.ino(), file_type).map(drop)
    };
    put(other, source).map_err(|e| (e, false))?;
    let rest = put(one, victim).and_then(|()| {
        if one.dir.ino() == other.dir.ino() {
            return Ok(());
        }
        for (child, parent) in [(source, other.dir), (victim, one.dir)] {
            if child.is_dir() && !is_on(Mutant::ParentKept) {
                dir::set_parent(handle, child, parent.ino())?;
            }
        }
        Ok(())
    });
    rest.map_err(|e| (e, true))
}

/// Tells whether `from` is locked before `to`: ancestors come first, then lower numbers.
///
/// # Errors
/// When the source would come to lie inside itself, or the victim holds the source.
fn order_parents(
    fs: &Fs,
    from: &Held,
    to: &Held,
    found: &Found,
    inside_victim: impl Fn() -> Error,
) -> Result<bool> {
    let above_to = ancestors(fs, to)?;
    if above_to.contains(&found.source.ino()) {
        return Err(Error::InvalidInput(
            "a directory cannot be moved into itself",
        ));
    }
    let above_from = ancestors(fs, from)?;
    if let Some(victim) = &found.victim
        && above_from.contains(&victim.ino())
    {
        return Err(inside_victim());
    }
    Ok(LockSet::in_order(
        from.ino(),
        to.ino(),
        above_to.contains(&from.ino()),
        above_from.contains(&to.ino()),
    ))
}

/// Returns the directory itself and those above it, up to the root.
fn ancestors(fs: &Fs, dir: &Held) -> Result<Vec<Ino>> {
    let mut path = vec![dir.ino()];
    let mut at = dir.clone();
    while at.ino() != Ino::ROOT {
        let parent = dir::parent(fs, &at.snapshot())?;
        // A damaged tree may go round in circles.
        if path.contains(&parent) {
            let expected = Expected::Said("a directory further up");
            let found = parent.get().into();
            let source = FormatError::new(Structure::DirEntry, "`..`", found, expected);
            return Err(Error::corrupt(Place::Inode(at.ino()), source));
        }
        path.push(parent);
        at = match fs.hold(parent) {
            // Removed first, and what it was in after it.
            Err(Error::Stale) if at.snapshot().disk().links == 0 => return Err(Error::NotFound),
            held => held?,
        };
    }
    Ok(path)
}

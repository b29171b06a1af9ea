//! `rename`.

use super::mkdir::{add_subdirectory, remove_subdirectory};
use super::naming::{check_name, live_parent, now, reap, touch_parent, with_space};
use super::unlink::drop_name;
use crate::fs::Fs;
use crate::inode::{Access, FileType, Held, LiveInode, LockSet};
use crate::journal::Handle;
use crate::{Error, Place, Result, data, dir};
use extant_format::{Expected, FormatError, Ino, Structure};

/// One name of the two.
#[derive(Clone, Copy)]
struct Name<'a> {
    dir: &'a Held,
    name: &'a [u8],
}

/// Moves the name `from` in `from_dir` to `to` in `to_dir`. What was called `to` before loses that name
/// in the same moment; if both are names of one file, nothing happens.
///
/// # Errors
/// [`Error::NotFound`]; [`Error::IsADirectory`], [`Error::NotADirectory`] and [`Error::NotEmpty`] when what
/// is there cannot be replaced; [`Error::InvalidInput`] when a directory would come to lie inside
/// itself; [`Error::TooManyLinks`], [`Error::NoSpace`], [`Error::ReadOnly`]; those of reading the
/// directories.
pub fn rename(fs: &Fs, from_dir: &Held, from: &[u8], to_dir: &Held, to: &[u8]) -> Result<()> {
    for (dir, name) in [(from_dir, from), (to_dir, to)] {
        match check_name(dir, name) {
            Err(Error::Exists) => {
                return Err(Error::InvalidInput("`.` and `..` stay where they are"));
            }
            checked => checked?,
        }
    }
    let from = Name {
        dir: from_dir,
        name: from,
    };
    let to = Name {
        dir: to_dir,
        name: to,
    };
    if let Ok(Found {
        source,
        victim: Some(_),
    }) = find(fs, from, to)
    {
        data::write_back_early(fs, &source);
    }
    while !with_space(fs, || rename_once(fs, from, to))? {}
    reap(fs);
    Ok(())
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
fn rename_once(fs: &Fs, from: Name<'_>, to: Name<'_>) -> Result<bool> {
    let across = from.dir.ino() != to.dir.ino();
    // Whatever moves between directories waits here, so that the shape of the tree stands still
    // while ancestors are compared.
    let _topology = match across {
        true => Some(fs.rename_topology()?.lock()),
        false => None,
    };
    let found = find(fs, from, to)?;
    if let Some(victim) = &found.victim
        && victim.ino() == found.source.ino()
    {
        return Ok(true);
    }
    let from_first = !across || order_parents(fs, from.dir, to.dir, &found)?;
    // Linux, too, says first that a directory would lie inside itself.
    check_kinds(&found)?;
    let (first, second) = match from_first {
        true => (from.dir, to.dir),
        false => (to.dir, from.dir),
    };
    let mut children: Vec<(&LiveInode, Access)> = vec![(&found.source, Access::Exclusive)];
    children.extend(found.victim.iter().map(|held| (&**held, Access::Exclusive)));
    let parents = [(&**first, Access::Shared), (&**second, Access::Shared)];
    let _locks = LockSet::lock(&parents, &children);
    let names = fs.lock_names((from.dir.ino(), from.name), (to.dir.ino(), to.name));
    let now_from = fs.lookup_locked(from.dir, names.first())?;
    let now_to = fs.lookup_locked(to.dir, names.second())?;
    if now_from != Some(found.source.snapshot().id())
        || now_to != found.victim.as_ref().map(|victim| victim.snapshot().id())
    {
        return Ok(false);
    }
    live_parent(from.dir)?;
    live_parent(to.dir)?;
    if let Some(victim) = &found.victim
        && victim.snapshot().is_dir()
        && !dir::is_empty(fs, victim)?
    {
        return Err(Error::NotEmpty);
    }
    let credits = dir::insert_credits(fs, &to.dir.snapshot())
        + dir::remove_credits(fs, &from.dir.snapshot())
        + fs.orphan_credits()
        + 6;
    let handle = fs.start(credits)?;
    change(fs, &handle, from, to, &found)?;
    fs.names().remove(names.first());
    fs.names()
        .insert(names.second(), found.source.snapshot().id());
    Ok(true)
}

/// Makes the change under the handle. The step that can run out of space comes first.
fn change(fs: &Fs, handle: &Handle<'_>, from: Name<'_>, to: Name<'_>, found: &Found) -> Result<()> {
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
            let _ = remove_subdirectory(handle, to.dir);
        }
        return Err(e);
    }
    let finished = finish(fs, handle, from, to, found);
    if let Err(e) = &finished {
        fs.names().lose(to.dir.ino());
        // The new name is there and the old one may be too. Half a rename must not be committed, and the
        // commit that takes this handle's changes looks for this.
        fs.journal()?.abort(e.clone());
    }
    finished
}

/// What follows once the new name is there.
fn finish(fs: &Fs, handle: &Handle<'_>, from: Name<'_>, to: Name<'_>, found: &Found) -> Result<()> {
    let source = found.source.live();
    let is_dir = source.snapshot().is_dir();
    let moves_dir = is_dir && from.dir.ino() != to.dir.ino();
    let gains_dir = moves_dir && found.victim.is_none();
    dir::remove(handle, from.dir, from.name)?;
    if moves_dir {
        dir::set_parent(handle, &found.source, to.dir.ino())?;
    }
    let loses_dir = moves_dir || (is_dir && found.victim.is_some());
    match loses_dir {
        true => remove_subdirectory(handle, from.dir)?,
        false => touch_parent(handle, from.dir)?,
    }
    if from.dir.ino() != to.dir.ino() && !gains_dir {
        touch_parent(handle, to.dir)?;
    }
    let time = now();
    source.update(handle, |inode| inode.disk_mut().ctime = time)?;
    match &found.victim {
        Some(victim) => drop_name(fs, handle, victim, now()),
        None => Ok(()),
    }
}

/// Whether `from` is locked before `to`: ancestors come first, then lower numbers.
///
/// # Errors
/// When the source would come to lie inside itself, or the victim holds the source.
fn order_parents(fs: &Fs, from: &Held, to: &Held, found: &Found) -> Result<bool> {
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
        return Err(Error::NotEmpty);
    }
    Ok(LockSet::in_order(
        from.ino(),
        to.ino(),
        above_to.contains(&from.ino()),
        above_from.contains(&to.ino()),
    ))
}

/// The directory itself and those above it, up to the root.
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
        at = fs.hold(parent)?;
    }
    Ok(path)
}

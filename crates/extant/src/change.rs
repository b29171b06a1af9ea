//! Everything that starts with a path and changes the file system.

use crate::error::Why;
use crate::filesystem::bytes;
use crate::path::{Last, LastLink, Purpose, resolve_held, resolve_parent};
use crate::{DeviceNumber, Error, File, FileType, Filesystem, OpenOptions, Result, Timestamp};
use extant_core::Error as EngineError;
use extant_core::Result as EngineResult;
use extant_core::inode::{Held, Inode, InodeId};
use extant_core::lifecycle::NewInode;
use extant_core::ops::{self, OpenFor, RenameFlags, Wanted};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Permissions of what is made, unless said otherwise.
const FILE_MODE: u16 = 0o644;
const DIR_MODE: u16 = 0o755;

impl Filesystem {
    /// Opens a file as `options` say.
    pub(crate) fn open_with(&self, options: &OpenOptions, path: &Path) -> Result<File> {
        let opened = || {
            // First, so that the file system is not made read-only before the file is open.
            let writing = options
                .writes()
                .then(|| self.fs().open_for_writing())
                .transpose();
            Ok((self.open_held(options, path)?, writing?))
        };
        let opened: std::result::Result<_, Why> = opened();
        let (held, writing) = opened.map_err(|why| Error::new(path, why.0))?;
        Ok(self.file(held, path, options, writing))
    }

    fn open_held(&self, options: &OpenOptions, path: &Path) -> std::result::Result<Held, Why> {
        if let Some(reason) = options.contradiction() {
            return Err(EngineError::InvalidInput(reason).into());
        }
        let held = if options.create || options.create_new {
            match self.open_or_create(options, path)? {
                // Whatever its permissions: it was not there before.
                (made, true) => return Ok(made),
                (found, false) => found,
            }
        } else {
            resolve_held(self.by(), bytes(path), LastLink::Follow)?
        };
        check_regular(&held)?;
        ops::open(self.by(), &held, options.wanted())?;
        if options.truncate {
            ops::ftruncate(self.by(), &held, 0)?;
        }
        Ok(held)
    }

    /// Opens a regular file for reading that was found before.
    pub(crate) fn open_same(&self, id: InodeId, path: &Path) -> Result<File> {
        let held = self.fs().hold_same(id).and_then(|held| {
            check_regular(&held)?;
            ops::open(self.by(), &held, OpenFor::reading())?;
            Ok(held)
        });
        let held = held.map_err(|e| Error::engine(path, e))?;
        Ok(self.file(held, path, OpenOptions::new().read(true), None))
    }

    /// Opens a file, or makes it; whether it was made.
    fn open_or_create(
        &self,
        options: &OpenOptions,
        path: &Path,
    ) -> std::result::Result<(Held, bool), Why> {
        let purpose = if options.create_new {
            Purpose::Make
        } else {
            Purpose::OpenOrMake
        };
        loop {
            let last = resolve_parent(self.by(), bytes(path), !options.create_new)?;
            let last = last.last(purpose)?;
            if last.must_be_dir {
                return Err(EngineError::IsADirectory.into());
            }
            let dir = last.hold_dir(self.fs())?;
            if !options.create_new {
                match ops::lookup_held(self.by(), &dir, &last.name) {
                    Err(EngineError::NotFound) => {}
                    found => return Ok((found?, false)),
                }
            }
            let new = NewInode::new(
                FileType::Regular,
                options.mode.unwrap_or(FILE_MODE),
                ops::now(),
            );
            match ops::create(self.by(), &dir, &last.name, &new) {
                // Somebody else made it in between.
                Err(EngineError::Exists) if !options.create_new => {}
                made => return Ok((made?, true)),
            }
        }
    }

    /// Makes an empty file, or empties the one that is there, and opens it for writing.
    ///
    /// # Errors
    /// As for [`OpenOptions::open`].
    pub fn create(&self, path: impl AsRef<Path>) -> Result<File> {
        OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(true)
            .open(self, path)
    }

    /// Makes an empty file that must be new, and opens it for reading and writing.
    ///
    /// # Errors
    /// As for [`OpenOptions::open`]; when something is at `path` already.
    pub fn create_new(&self, path: impl AsRef<Path>) -> Result<File> {
        OpenOptions::new()
            .read(true)
            .write(true)
            .create_new(true)
            .open(self, path)
    }

    /// Makes `content` the content of the file at `path`, which is made if need be.
    ///
    /// # Errors
    /// As for [`OpenOptions::open`] and [`File::write_at`].
    pub fn write(&self, path: impl AsRef<Path>, content: impl AsRef<[u8]>) -> Result<()> {
        self.create(path)?.write_all_at(content.as_ref(), 0)
    }

    /// Makes a directory.
    ///
    /// # Errors
    /// When something is there already, its parent does not exist, or no space is left.
    pub fn create_dir(&self, path: impl AsRef<Path>) -> Result<()> {
        self.create_dir_with(path, DIR_MODE)
    }

    /// Makes a directory with these permissions.
    ///
    /// # Errors
    /// As for [`Filesystem::create_dir`].
    pub fn create_dir_with(&self, path: impl AsRef<Path>, permissions: u16) -> Result<()> {
        self.at_name(path.as_ref(), Purpose::Make, |dir, last| {
            let new = NewInode::new(FileType::Directory, permissions, ops::now());
            ops::mkdir(self.by(), dir, &last.name, &new).map(drop)
        })
    }

    /// Makes a directory, and those above it that do not exist. It is no error if all do.
    ///
    /// # Errors
    /// As for [`Filesystem::create_dir`]; when something that is no directory is in the way.
    pub fn create_dir_all(&self, path: impl AsRef<Path>) -> Result<()> {
        let path = path.as_ref();
        let mut missing: Vec<PathBuf> = Vec::new();
        for ancestor in path.ancestors() {
            if ancestor.as_os_str().is_empty() || ancestor == Path::new("/") {
                break;
            }
            match self.metadata(ancestor) {
                Ok(found) if found.is_dir() => break,
                Ok(_) => return Err(Error::engine(ancestor, EngineError::NotADirectory)),
                Err(e) if e.errno() == EngineError::NotFound.errno() => {
                    missing.push(ancestor.to_owned());
                }
                Err(e) => return Err(e),
            }
        }
        for dir in missing.iter().rev() {
            match self.create_dir(dir) {
                // Made by somebody else in between.
                Err(e) if e.errno() == EngineError::Exists.errno() => {
                    if !self.metadata(dir)?.is_dir() {
                        return Err(e);
                    }
                }
                made => made?,
            }
        }
        Ok(())
    }

    /// Makes a symbolic link at `link` that points to `target`, whatever that is.
    ///
    /// # Errors
    /// When something is at `link` already, its parent does not exist, the target is empty or
    /// longer than a block, or no space is left.
    pub fn symlink(&self, target: impl AsRef<Path>, link: impl AsRef<Path>) -> Result<()> {
        let target = target.as_ref().as_os_str().as_bytes();
        self.at_name(link.as_ref(), Purpose::Make, |dir, last| {
            last.check_new_file(self.by())?;
            let new = NewInode::new(FileType::Symlink, 0o777, ops::now());
            ops::symlink(self.by(), dir, &last.name, target, &new).map(drop)
        })
    }

    /// Makes a device node, pipe or socket with these permissions. `device` is the number of a
    /// device node; others have none.
    ///
    /// # Errors
    /// When something is at `path` already, its parent does not exist, no space is left, or
    /// `file_type` is that of a directory or symbolic link.
    pub fn create_special(
        &self,
        path: impl AsRef<Path>,
        file_type: FileType,
        device: DeviceNumber,
        permissions: u16,
    ) -> Result<()> {
        self.at_name(path.as_ref(), Purpose::Make, |dir, last| {
            last.check_new_file(self.by())?;
            let mut new = NewInode::new(file_type, permissions, ops::now());
            new.device = device;
            ops::create(self.by(), dir, &last.name, &new).map(drop)
        })
    }

    /// Gives the file at `original` another name. Symbolic links are not followed.
    ///
    /// # Errors
    /// When there is no such file, it is a directory, or something is at `link` already.
    pub fn hard_link(&self, original: impl AsRef<Path>, link: impl AsRef<Path>) -> Result<()> {
        let file = self.hold(original.as_ref(), LastLink::Keep)?;
        self.at_name(link.as_ref(), Purpose::Make, |dir, last| {
            last.check_new_file(self.by())?;
            ops::link(self.by(), &file, dir, &last.name)
        })
    }

    /// Moves `from` to `to`. What was at `to` before is replaced in the same moment: after a crash
    /// one of the two is there, never neither.
    ///
    /// # Errors
    /// When there is nothing at `from`; when what is at `to` cannot be replaced by it (a directory
    /// by something else or the other way round, or a directory that is not empty); when a
    /// directory would come to lie inside itself.
    pub fn rename(&self, from: impl AsRef<Path>, to: impl AsRef<Path>) -> Result<()> {
        self.rename_with(from, to, RenameFlags::default())
    }

    /// Renames as [`Filesystem::rename`] does, but replaces nothing.
    ///
    /// # Errors
    /// As for [`rename`](Self::rename); when something is at `to` already.
    pub fn rename_new(&self, from: impl AsRef<Path>, to: impl AsRef<Path>) -> Result<()> {
        let flags = RenameFlags {
            no_replace: true,
            ..RenameFlags::default()
        };
        self.rename_with(from, to, flags)
    }

    /// Moves `from` to `to` as the flags say (`renameat2`).
    ///
    /// # Errors
    /// As for [`rename`](Self::rename) and [`rename_new`](Self::rename_new).
    pub fn rename_with(
        &self,
        from: impl AsRef<Path>,
        to: impl AsRef<Path>,
        flags: RenameFlags,
    ) -> Result<()> {
        let taken = if flags.no_replace {
            Purpose::Make
        } else {
            Purpose::Rename
        };
        let (from, to) = (from.as_ref(), to.as_ref());
        self.at_names(from, to, taken, |(from_dir, source), (to_dir, target)| {
            if target.must_be_dir || source.must_be_dir {
                let look = |dir, name| ops::lookup_with(self.by(), dir, name, Inode::is_dir);
                let (_, is_dir) = look(source.dir, &source.name)?;
                // That something is there counts before what a `/` asks for.
                if flags.no_replace && look(target.dir, &target.name).is_ok() {
                    return Err(EngineError::Exists);
                }
                if !is_dir {
                    return Err(EngineError::NotADirectory);
                }
            }
            let (from, to) = ((from_dir, &*source.name), (to_dir, &*target.name));
            ops::rename_with(self.by(), from, to, flags)
        })
    }

    /// Lets two names stand for each other's files, in one step. Whatever they are, they need not
    /// be of one kind.
    ///
    /// # Errors
    /// When one of them does not exist, or a directory would come to lie inside itself.
    pub fn exchange(&self, one: impl AsRef<Path>, other: impl AsRef<Path>) -> Result<()> {
        let (one, other) = (one.as_ref(), other.as_ref());
        self.at_names(
            one,
            other,
            Purpose::Rename,
            |(one_dir, one), (other_dir, other)| {
                // A `/` behind a name says what that name stands for, whatever comes in its place.
                let sides = [
                    (one.must_be_dir, one.dir, &one.name),
                    (other.must_be_dir, other.dir, &other.name),
                ];
                if one.must_be_dir || other.must_be_dir {
                    // Both have to be there before that is asked for.
                    let found = sides.map(|(must_be_dir, dir, name)| {
                        let looked = ops::lookup_with(self.by(), dir, name, Inode::is_dir);
                        looked.map(|(_, is_dir)| is_dir || !must_be_dir)
                    });
                    let [one, other] = found;
                    if !(one? & other?) {
                        return Err(EngineError::NotADirectory);
                    }
                }
                ops::exchange(self.by(), (one_dir, &one.name), (other_dir, &other.name))
            },
        )
    }

    /// Makes a file without a name and opens it for reading and writing. It lies near the directory
    /// `dir`, and is gone when it is closed, or after a crash, unless
    /// [`link_file`](Self::link_file) has given it a name: so a file appears with its content or
    /// not at all.
    ///
    /// # Errors
    /// When there is no such directory, or no space is left.
    pub fn create_unnamed(&self, dir: impl AsRef<Path>, permissions: u16) -> Result<File> {
        let dir = dir.as_ref();
        let parent = self.hold(dir, LastLink::Follow)?;
        let new = NewInode::new(FileType::Regular, permissions, ops::now());
        let made = self.fs().open_for_writing().and_then(|writing| {
            let held = ops::tmpfile(self.by(), &parent, &new)?;
            Ok((held, writing))
        });
        let (held, writing) = made.map_err(|e| Error::engine(dir, e))?;
        let options = OpenOptions::new().read(true).write(true).clone();
        Ok(self.file(held, dir, &options, Some(writing)))
    }

    /// Gives an open file another name, or its first if it was made without.
    ///
    /// # Errors
    /// When something is at `link` already, the file has lost its last name, or lies on another
    /// file system.
    pub fn link_file(&self, file: &File, link: impl AsRef<Path>) -> Result<()> {
        self.at_name(link.as_ref(), Purpose::Make, |dir, last| {
            if !Arc::ptr_eq(self.fs(), file.fs()) {
                return Err(EngineError::OtherFileSystem);
            }
            last.check_new_file(self.by())?;
            ops::link(self.by(), file.held(), dir, &last.name)
        })
    }

    /// Removes the name of a file that is no directory. Symbolic links are not followed.
    ///
    /// # Errors
    /// When there is no such file, or it is a directory.
    pub fn remove_file(&self, path: impl AsRef<Path>) -> Result<()> {
        self.at_name(path.as_ref(), Purpose::RemoveFile, |dir, last| {
            if last.must_be_dir {
                let (_, is_dir) = ops::lookup_with(self.by(), last.dir, &last.name, Inode::is_dir)?;
                return Err(if is_dir {
                    EngineError::IsADirectory
                } else {
                    EngineError::NotADirectory
                });
            }
            ops::unlink(self.by(), dir, &last.name)
        })
    }

    /// Removes an empty directory.
    ///
    /// # Errors
    /// When there is no such directory, or it is not empty.
    pub fn remove_dir(&self, path: impl AsRef<Path>) -> Result<()> {
        self.at_name(path.as_ref(), Purpose::RemoveDir, |dir, last| {
            ops::rmdir(self.by(), dir, &last.name)
        })
    }

    /// Sets the permissions, with set-user-ID, set-group-ID and sticky bit. Symbolic links are
    /// followed.
    ///
    /// # Errors
    /// When there is no such file.
    pub fn set_permissions(&self, path: impl AsRef<Path>, permissions: u16) -> Result<()> {
        self.on(path.as_ref(), LastLink::Follow, |file| {
            ops::chmod(self.by(), file, permissions)
        })
    }

    /// Sets owner and group; `None` leaves what is. A symbolic link at the end of the path is not
    /// followed.
    ///
    /// # Errors
    /// When there is no such file.
    pub fn set_owner(
        &self,
        path: impl AsRef<Path>,
        uid: Option<u32>,
        gid: Option<u32>,
    ) -> Result<()> {
        self.on(path.as_ref(), LastLink::Keep, |file| {
            ops::chown(self.by(), file, uid, gid)
        })
    }

    /// Sets the times of last access and last change of the content; `None` leaves what is. A
    /// symbolic link at the end of the path is not followed.
    ///
    /// # Errors
    /// When there is no such file.
    pub fn set_times(
        &self,
        path: impl AsRef<Path>,
        accessed: Option<Timestamp>,
        modified: Option<Timestamp>,
    ) -> Result<()> {
        self.on(path.as_ref(), LastLink::Keep, |file| {
            ops::utimens(self.by(), file, accessed, modified)
        })
    }

    /// Sets both times to now, which every user that may write the file may do. A symbolic link at
    /// the end of the path is not followed.
    ///
    /// # Errors
    /// When there is no such file.
    pub fn touch(&self, path: impl AsRef<Path>) -> Result<()> {
        self.on(path.as_ref(), LastLink::Keep, |file| {
            ops::touch(self.by(), file)
        })
    }

    /// Refuses what the caller may not do with a file, in any combination of [`READ`](crate::READ)
    /// and the like (`access`). Symbolic links are followed.
    ///
    /// # Errors
    /// When he may not, or there is no such file.
    pub fn access(&self, path: impl AsRef<Path>, wanted: Wanted) -> Result<()> {
        self.on(path.as_ref(), LastLink::Follow, |file| {
            ops::access(self.by(), file, wanted)
        })
    }

    /// Makes the file at `path` `size` bytes long. Symbolic links are followed.
    ///
    /// # Errors
    /// When there is no such file, it is not a regular one, or it would be too large.
    pub fn set_len(&self, path: impl AsRef<Path>, size: u64) -> Result<()> {
        self.on(path.as_ref(), LastLink::Follow, |file| {
            ops::truncate(self.by(), file, size)
        })
    }

    /// Makes everything durable that was done before.
    ///
    /// # Errors
    /// When the device fails: what was done since the last success may be lost.
    pub fn sync(&self) -> Result<()> {
        ops::syncfs(self.fs()).map_err(|e| Error::engine(PathBuf::new(), e))
    }

    /// Closes the file system: everything is made durable, the journal is emptied and the image
    /// marked clean. What other clones and open files do afterwards is refused. Without this, the
    /// same happens when the last of them is dropped, but errors go unnoticed.
    ///
    /// # Errors
    /// When the device fails. The image can be opened again, and recovers what was made durable.
    pub fn close(self) -> Result<()> {
        self.fs()
            .close()
            .map_err(|e| Error::engine(PathBuf::new(), e))
    }

    pub(crate) fn hold(&self, path: &Path, last: LastLink) -> Result<Held> {
        resolve_held(self.by(), bytes(path), last).map_err(|e| Error::engine(path, e))
    }

    pub(crate) fn on(
        &self,
        path: &Path,
        last: LastLink,
        change: impl FnOnce(&Held) -> EngineResult<()>,
    ) -> Result<()> {
        change(&self.hold(path, last)?).map_err(|e| Error::engine(path, e))
    }

    /// Does something with the last name of a path, in the directory it is in.
    fn at_name(
        &self,
        path: &Path,
        purpose: Purpose,
        change: impl FnOnce(&Held, &Last) -> EngineResult<()>,
    ) -> Result<()> {
        let changed = || -> std::result::Result<(), Why> {
            let last = resolve_parent(self.by(), bytes(path), false)?.last(purpose)?;
            let dir = last.hold_dir(self.fs())?;
            Ok(change(&dir, &last)?)
        };
        changed().map_err(|why| Error::new(path, why.0))
    }

    /// Does something with two names: the first one is given up, or both are.
    fn at_names(
        &self,
        from: &Path,
        to: &Path,
        taken: Purpose,
        change: impl FnOnce((&Held, &Last), (&Held, &Last)) -> EngineResult<()>,
    ) -> Result<()> {
        let changed = || -> std::result::Result<(), Why> {
            let source = resolve_parent(self.by(), bytes(from), false)?;
            let target = resolve_parent(self.by(), bytes(to), false)?;
            // What stands in front of the names is looked at first, as Linux does.
            let (source, target) = (source.last(Purpose::Rename)?, target.last(taken)?);
            let dirs = (source.hold_dir(self.fs())?, target.hold_dir(self.fs())?);
            Ok(change((&dirs.0, &source), (&dirs.1, &target))?)
        };
        changed().map_err(|why| Error::new(from, why.0))
    }
}

fn check_regular(held: &Held) -> EngineResult<()> {
    match held.snapshot().file_type() {
        FileType::Regular => Ok(()),
        FileType::Directory => Err(EngineError::IsADirectory),
        _ => Err(EngineError::NotARegularFile),
    }
}

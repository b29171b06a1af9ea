//! Whatever changes or reads a directory.
//!
//! The kernel holds a directory's lock over each of these requests, so names in it stand still
//! between a look and a change.

use super::{Answer, Attributes, Credentials, Errno, Node, Service, file_type_of};
use extant_core::inode::{DeviceNumber, FileType, Held, Inode};
use extant_core::lifecycle::NewInode;
use extant_core::ops::{self, Cookie, RenameFlags};
use extant_core::{Error, Result};
use extant_format::Ino;
use extant_format::inode::InodeFlags;
use std::ops::ControlFlow;

/// What is to be made.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Made {
    pub(crate) mode: u32,
    pub(crate) umask: u32,
    /// The device number, in the kernel's wide form.
    pub(crate) device: u32,
}

/// How a name is moved.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Renaming {
    /// It takes the place of what is there, as the flags say.
    Move(RenameFlags),
    /// The two change places.
    Exchange,
}

/// An entry of a directory.
#[derive(Debug)]
pub(crate) struct Listed<'a> {
    pub(crate) ino: u64,
    pub(crate) file_type: FileType,
    pub(crate) name: &'a [u8],
    /// Where to go on behind it.
    pub(crate) next: u64,
}

/// How often a name is looked up of which other guests take away again and again what it stands
/// for.
const LOOKS: usize = 8;

/// Bits of a mode word without the type.
const PERMISSIONS: u32 = 0o7777;

impl Service {
    fn look(&self, inode: &Inode) -> Attributes {
        self.describe(inode)
    }

    /// Looks up the inode that a name stands for; `None` if the name stands for none.
    pub(crate) fn lookup(&self, parent: Node, name: &[u8]) -> Answer<Option<Attributes>> {
        match name {
            b"." | b".." if self.is_guest() => return Err(Errno::STALE),
            b"." => return self.find(parent),
            b".." => return self.find_parent(parent),
            _ => {}
        }
        let dir = self.fs.with_inode(self.known(parent)?, Inode::id);
        let dir = dir.map_err(|e| self.met(e))?;
        for _ in 0..LOOKS {
            match ops::lookup_with(&self.fs, dir, name, |inode| self.look(inode)) {
                Ok((id, _)) if self.is_reserved(id.ino) => {
                    tracing::error!("a name stands for the reserved inode {}", id.ino.get());
                    return Err(Errno::CORRUPT);
                }
                Ok((id, attributes)) => {
                    self.remember(id.ino);
                    if !self.has_lost_its_name(&attributes) {
                        return Ok(Some(attributes));
                    }
                    self.forget(attributes.node, 1);
                }
                Err(Error::NotFound) => return Ok(None),
                Err(e) => return Err(self.met(e)),
            }
        }
        // It asks again.
        Err(Errno::STALE)
    }

    /// Finds the inode of a number that the kernel may have forgotten, and found in a file handle
    /// again; `None` if there is none.
    fn find(&self, node: Node) -> Answer<Option<Attributes>> {
        let Ok(ino) = node.ino() else {
            return Ok(None);
        };
        // Handles come from anywhere.
        let is_known_so = Node::of(ino) == node && !self.is_reserved(ino);
        if !is_known_so || !self.fs.is_in_use(ino)? {
            return Ok(None);
        }
        match self.fs.hold(ino) {
            Ok(held) => {
                let view = held.view();
                // Where values of attributes lie nobody gets by a handle, nor what has lost its
                // last name: the kernel asks for what it has forgotten.
                let is_file = !view.flags().contains(InodeFlags::EA_INODE) && view.disk().links > 0;
                drop(view);
                let found = is_file.then(|| self.entry(&held));
                self.release(held);
                Ok(found)
            }
            Err(Error::Stale) => Ok(None),
            Err(e) => Err(self.met(e)),
        }
    }

    /// Finds the directory that another one is in, which may be known by a file handle only.
    fn find_parent(&self, dir: Node) -> Answer<Option<Attributes>> {
        match self.find_in(dir, b"..") {
            Ok(found) => Ok(found),
            Err(Errno::NOT_A_DIRECTORY) => Ok(None),
            Err(e) => Err(e),
        }
    }

    /// Finds the inode that a name of a directory stands for.
    fn find_in(&self, dir: Node, name: &[u8]) -> Answer<Option<Attributes>> {
        match ops::lookup_held(&self.fs, &self.hold(dir)?, name) {
            Ok(held) if self.is_reserved(held.ino()) => Err(Errno::CORRUPT),
            Ok(held) => Ok(Some(self.entry(&held))),
            Err(Error::NotFound) => Ok(None),
            Err(e) => Err(self.met(e)),
        }
    }

    /// Tells whether an inode is reserved: no name stands for one, and the kernel would take number
    /// 1 for the root.
    fn is_reserved(&self, ino: Ino) -> bool {
        ino != Ino::ROOT && ino < self.fs.superblock().first_ino()
    }

    fn new_inode(
        &self,
        caller: Credentials,
        dir: &Held,
        made: Made,
        file_type: FileType,
    ) -> Answer<NewInode> {
        let owners = (caller.uid, caller.gid);
        let of_dir = if self.view.asks_directory() {
            let view = dir.view();
            (view.disk().uid, view.disk().gid)
        } else {
            owners
        };
        let permissions = |bits: u32| u16::try_from(bits & PERMISSIONS).unwrap_or(0);
        let mut new = NewInode::new(file_type, permissions(made.mode), ops::now());
        new.umask = permissions(made.umask);
        (new.uid, new.gid) = self.view.owners_of_new(owners, of_dir)?;
        if file_type.is_device() {
            new.device = DeviceNumber::decode(0, made.device);
        }
        Ok(new)
    }

    /// Tells the kernel about an inode that was made in `dir`, and gives it up.
    fn hand_out(&self, dir: &Held, held: Held) -> Answer<Attributes> {
        let entry = self.sync_names(dir).map(|()| self.entry(&held));
        self.hand_back(held);
        entry
    }

    pub(crate) fn mknod(
        &self,
        caller: Credentials,
        parent: Node,
        name: &[u8],
        made: Made,
    ) -> Answer<Attributes> {
        let dir = self.hold(parent)?;
        let new = self.new_inode(caller, &dir, made, file_type_of(made.mode)?)?;
        self.hand_out(&dir, ops::create(&self.fs, &dir, name, &new)?)
    }

    /// Makes a file without a name, near `parent`. It is there until the kernel forgets it, unless
    /// it gets a name.
    pub(crate) fn tmpfile(
        &self,
        caller: Credentials,
        parent: Node,
        made: Made,
    ) -> Answer<Attributes> {
        let dir = self.hold(parent)?;
        let new = self.new_inode(caller, &dir, made, FileType::Regular)?;
        let held = ops::tmpfile(&self.fs, &dir, &new)?;
        let entry = self.entry(&held);
        self.keep_if_unnamed(held);
        Ok(entry)
    }

    pub(crate) fn mkdir(
        &self,
        caller: Credentials,
        parent: Node,
        name: &[u8],
        made: Made,
    ) -> Answer<Attributes> {
        let dir = self.hold(parent)?;
        let new = self.new_inode(caller, &dir, made, FileType::Directory)?;
        self.hand_out(&dir, ops::mkdir(&self.fs, &dir, name, &new)?)
    }

    pub(crate) fn symlink(
        &self,
        caller: Credentials,
        parent: Node,
        name: &[u8],
        target: &[u8],
    ) -> Answer<Attributes> {
        let dir = self.hold(parent)?;
        let made = Made {
            mode: 0o777,
            umask: 0,
            device: 0,
        };
        let new = self.new_inode(caller, &dir, made, FileType::Symlink)?;
        self.hand_out(&dir, ops::symlink(&self.fs, &dir, name, target, &new)?)
    }

    pub(crate) fn link(&self, node: Node, parent: Node, name: &[u8]) -> Answer<Attributes> {
        let (target, dir) = (self.hold(node)?, self.hold(parent)?);
        ops::link(&self.fs, &target, &dir, name)?;
        self.sync_names(&dir)?;
        let entry = self.entry(&target);
        self.hand_back(target);
        Ok(entry)
    }

    pub(crate) fn unlink(&self, parent: Node, name: &[u8]) -> Answer {
        self.remove(parent, name, |fs, dir, name| ops::unlink(fs, dir, name))
    }

    pub(crate) fn rmdir(&self, parent: Node, name: &[u8]) -> Answer {
        self.remove(parent, name, |fs, dir, name| ops::rmdir(fs, dir, name))
    }

    fn remove(
        &self,
        parent: Node,
        name: &[u8],
        remove: fn(&extant_core::fs::Fs, &Held, &[u8]) -> Result<()>,
    ) -> Answer {
        let dir = self.hold(parent)?;
        let _alone = self.claim(&[&dir]);
        let victim = ops::lookup_held(&self.fs, &dir, name)?;
        let removed = remove(&self.fs, &dir, name);
        self.keep_if_unnamed(victim);
        removed?;
        self.sync_names(&dir)
    }

    /// Makes the names of a directory durable, if the mount is to.
    fn sync_names(&self, dir: &Held) -> Answer {
        if self.syncs_names {
            Ok(ops::fsync(&self.fs, dir)?)
        } else {
            Ok(())
        }
    }

    /// Keeps an inode that may have lost its last name, if the kernel knows it.
    pub(super) fn keep_if_unnamed(&self, held: Held) {
        let unnamed = held.snapshot().disk().links == 0;
        let unknown = if unnamed {
            self.nodes.keep(held)
        } else {
            Some(held)
        };
        if let Some(held) = unknown {
            self.release(held);
        }
    }

    pub(crate) fn rename(
        &self,
        (from_parent, from): (Node, &[u8]),
        (to_parent, to): (Node, &[u8]),
        how: Renaming,
    ) -> Answer {
        let (from_dir, to_dir) = (self.hold(from_parent)?, self.hold(to_parent)?);
        let (from, to) = ((&from_dir, from), (&to_dir, to));
        let _alone = self.claim(&[&from_dir, &to_dir]);
        let flags = match how {
            Renaming::Exchange => {
                ops::exchange(&self.fs, from, to)?;
                return self.sync_names(from.0);
            }
            Renaming::Move(flags) => flags,
        };
        let victim = match ops::lookup_held(&self.fs, to.0, to.1) {
            Ok(held) => Some(held),
            Err(Error::NotFound) => None,
            Err(e) => return Err(e.into()),
        };
        let renamed = ops::rename_with(&self.fs, from, to, flags);
        if let Some(victim) = victim {
            self.keep_if_unnamed(victim);
        }
        renamed?;
        // One transaction has both.
        self.sync_names(from.0)
    }

    /// Calls `visit` with entries from a cookie on, until it says that there is no room.
    pub(crate) fn readdir(
        &self,
        node: Node,
        from: u64,
        mut visit: impl FnMut(Listed<'_>) -> ControlFlow<()>,
    ) -> Answer {
        let dir = self.hold(node)?.snapshot();
        ops::readdir(&self.fs, &dir, Cookie::from_raw(from), |entry| {
            visit(Listed {
                ino: entry.ino.get().into(),
                file_type: entry
                    .file_type
                    .or_else(|| self.file_type(entry.ino))
                    .unwrap_or(FileType::Regular),
                name: entry.name,
                next: entry.next.to_raw(),
            })
        })
        .map_err(|e| self.met(e))?;
        Ok(())
    }

    fn file_type(&self, ino: Ino) -> Option<FileType> {
        self.fs.with_inode(ino, Inode::file_type).ok()
    }

    /// Describes a listed inode; `None` if it cannot be read.
    pub(crate) fn listed(&self, ino: u64) -> Option<Attributes> {
        let ino = Ino::new(u32::try_from(ino).ok()?);
        if self.is_reserved(ino) {
            return None;
        }
        let look = |inode: &Inode| {
            // What no name can stand for is met, and told, by a lookup of the name.
            let is_value = inode.flags().contains(InodeFlags::EA_INODE);
            (!is_value).then(|| self.look(inode))
        };
        self.fs.with_inode(ino, look).ok().flatten()
    }

    /// Counts a lookup for an entry of a listing that goes to the kernel with its attributes.
    /// `false` if it is not to go there: it has lost its name meanwhile.
    pub(crate) fn remember_listed(&self, found: &Attributes) -> bool {
        self.remember(found.metadata.ino);
        if self.has_lost_its_name(found) {
            self.forget(found.node, 1);
            return false;
        }
        true
    }

    /// Makes the names of a directory durable.
    pub(crate) fn fsyncdir(&self, node: Node, data_only: bool) -> Answer {
        let held = self.hold(node)?;
        if data_only {
            ops::fdatasync(&self.fs, &held)?
        } else {
            ops::fsync(&self.fs, &held)?
        }
        Ok(())
    }
}

impl Renaming {
    /// Makes it from the flags of `renameat2`.
    pub(crate) fn from_flags(bits: u32) -> Answer<Self> {
        const NO_REPLACE: u32 = 1;
        const EXCHANGE: u32 = 2;
        const WHITEOUT: u32 = 4;
        let move_flags = NO_REPLACE | WHITEOUT;
        match bits {
            EXCHANGE => Ok(Self::Exchange),
            _ if bits & !move_flags == 0 => Ok(Self::Move(RenameFlags {
                no_replace: bits & NO_REPLACE != 0,
                whiteout: bits & WHITEOUT != 0,
            })),
            _ => Err(Errno::INVALID),
        }
    }
}

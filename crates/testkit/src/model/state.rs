//! The tree after some operations, and the error each operation gives when it is refused.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use rustix::io::Errno;

use super::acl::inherited_mode;
use super::shift::Shift;
use super::{Node, Op};
use crate::tree::Time;

/// Number of an inode in the model; never used again.
pub(super) type Id = u32;

/// The root directory of a lane.
pub(super) const ROOT: Id = 0;

/// Most names that a file, and with `dir_nlink` off a directory, may have.
const LINK_MAX: u32 = 65_000;
/// Longest name in bytes, by the model's own word.
const NAME_MAX: usize = 255;
const TARGET_MAX: usize = 4095;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Kind {
    Directory(BTreeMap<String, Id>),
    File {
        size: u64,
    },
    Symlink(String),
    /// A device or a socket; one of number 0:0 is what a renamed file may leave.
    Node(Node),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Inode {
    pub(super) kind: Kind,
    pub(super) mode: u16,
    pub(super) uid: u32,
    pub(super) gid: u32,
    /// Names of a file; of a directory 2 and its subdirectories.
    pub(super) links: u32,
    /// When the last change set it to something known.
    pub(super) mtime: Option<Time>,
    /// Lengths of the values of `user.` attributes, by name.
    pub(super) xattrs: BTreeMap<String, usize>,
    /// The flag `nodump`, which is handed down.
    pub(super) no_dump: bool,
    /// Has an access control list, which it was handed down.
    pub(super) listed: bool,
    /// Hands a list down.
    pub(super) hands_down: bool,
}

impl Inode {
    fn new(kind: Kind, mode: u16) -> Inode {
        let links = match kind {
            Kind::Directory(_) => 2,
            Kind::File { .. } | Kind::Symlink(_) | Kind::Node(_) => 1,
        };
        Inode {
            kind,
            mode,
            uid: 0,
            gid: 0,
            links,
            mtime: None,
            xattrs: BTreeMap::new(),
            no_dump: false,
            listed: false,
            hands_down: false,
        }
    }

    /// Only files and directories have attributes that belong to users.
    fn check_user_xattrs(&self) -> Result<(), Errno> {
        match self.kind {
            Kind::Symlink(_) | Kind::Node(_) => Err(Errno::PERM),
            Kind::Directory(_) | Kind::File { .. } => Ok(()),
        }
    }
}

/// A change of a file's content.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum DataChange {
    /// Bytes were written.
    Write { offset: u64, len: u64 },
    /// The size was raised to this; what came in addition are zeros.
    Extend { size: u64 },
    /// Bytes became zeros; or any of them did, if not all.
    Zero { offset: u64, len: u64, all: bool },
    /// What lies behind a place moved.
    Shift(Shift),
    /// The size was set; what lay beyond is gone.
    Cut { size: u64 },
}

/// What an operation did beside changing the tree.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Effect {
    /// Inodes whose next fsync makes this operation durable.
    pub(super) touched: Vec<Id>,
    /// Those of them for which fdatasync does so too.
    pub(super) resized: Vec<Id>,
    pub(super) data: Option<(Id, DataChange)>,
    /// For syncs of one inode.
    pub(super) synced: Option<Id>,
}

/// A tree of the model. Cheap to copy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct State {
    inodes: BTreeMap<Id, Arc<Inode>>,
    next: Id,
}

impl Default for State {
    fn default() -> State {
        State::new()
    }
}

/// The end of a path: the directory, the name in it, and the file that has that name.
struct Place {
    dir: Id,
    name: String,
    id: Option<Id>,
}

impl State {
    /// Returns an empty root directory with mode 755.
    pub fn new() -> State {
        let root = Inode::new(Kind::Directory(BTreeMap::new()), 0o755);
        State {
            inodes: BTreeMap::from([(ROOT, Arc::new(root))]),
            next: ROOT + 1,
        }
    }

    /// Does `op`, or says with which error it is refused.
    ///
    /// # Errors
    ///
    /// What Linux returns to the superuser; the state is then unchanged.
    pub fn apply(&mut self, op: &Op) -> Result<(), Errno> {
        self.perform(op).map(drop)
    }

    /// Returns every path, its directory's before it, without the root.
    pub fn paths(&self) -> Vec<String> {
        let named = self.named().into_iter().skip(1);
        named.map(|(path, _)| path).collect()
    }

    /// Returns the paths of all files.
    pub fn files(&self) -> Vec<String> {
        let mut paths = self.paths();
        paths.retain(|path| self.size_of(path).is_some());
        paths
    }

    /// Returns the size of the file at `path`; `None` when there is no file.
    pub fn size_of(&self, path: &str) -> Option<u64> {
        match self.inode(self.find(path).ok()?).kind {
            Kind::File { size } => Some(size),
            _ => None,
        }
    }

    /// Returns what tells the file or directory at `path` from all others there were and will be;
    /// `None` for anything else.
    pub fn identity(&self, path: &str) -> Option<u32> {
        let id = self.find(path).ok()?;
        let is_openable = matches!(self.inode(id).kind, Kind::File { .. } | Kind::Directory(_));
        is_openable.then_some(id)
    }

    /// Returns the paths that lead to the file or directory of an [identity](State::identity); none
    /// when it has gone.
    pub fn paths_of(&self, identity: u32) -> Vec<String> {
        let named = self.named().into_iter();
        let its = named.filter(|(_, id)| *id == identity);
        its.map(|(path, _)| path).collect()
    }

    /// Returns the names in a directory; `None` when it has gone, or is no directory.
    pub fn names_in(&self, identity: u32) -> Option<BTreeSet<String>> {
        match &self.get(identity)?.kind {
            Kind::Directory(entries) => Some(entries.keys().cloned().collect()),
            _ => None,
        }
    }

    /// Returns how many files, directories and others there are, the root among them.
    pub fn inodes(&self) -> usize {
        self.inodes.len()
    }

    /// All files and their sizes.
    pub(super) fn file_sizes(&self) -> impl Iterator<Item = (Id, u64)> {
        self.inodes
            .iter()
            .filter_map(|(id, inode)| match inode.kind {
                Kind::File { size } => Some((*id, size)),
                _ => None,
            })
    }

    /// Every name with its inode, the root (`""`) first.
    pub(super) fn named(&self) -> Vec<(String, Id)> {
        let mut all = vec![(String::new(), ROOT)];
        let mut next = 0;
        while next < all.len() {
            let (path, id) = all[next].clone();
            next += 1;
            if let Kind::Directory(entries) = &self.inode(id).kind {
                let join = |name: &String| match path.as_str() {
                    "" => name.clone(),
                    _ => format!("{path}/{name}"),
                };
                all.extend(entries.iter().map(|(name, id)| (join(name), *id)));
            }
        }
        all
    }

    pub(super) fn inode(&self, id: Id) -> &Inode {
        &self.inodes[&id]
    }

    pub(super) fn get(&self, id: Id) -> Option<&Inode> {
        self.inodes.get(&id).map(|inode| &**inode)
    }

    pub(super) fn perform(&mut self, op: &Op) -> Result<Effect, Errno> {
        match op {
            Op::Create { path, mode } => self.make(path, Inode::new(Kind::File { size: 0 }, *mode)),
            Op::Mkdir { path, mode } => {
                self.make(path, Inode::new(Kind::Directory(BTreeMap::new()), *mode))
            }
            Op::Symlink { path, target } => {
                if target.is_empty() {
                    return Err(Errno::NOENT);
                }
                if target.len() > TARGET_MAX {
                    return Err(Errno::NAMETOOLONG);
                }
                self.make(path, Inode::new(Kind::Symlink(target.clone()), 0o777))
            }
            Op::Mknod { path, mode, node } => self.make(path, Inode::new(Kind::Node(*node), *mode)),
            Op::Link { from, to } => self.link(from, to),
            Op::Unlink { path } => self.unlink(path),
            Op::Rmdir { path } => self.rmdir(path),
            Op::Rename { from, to } => self.rename(from, to),
            Op::RenameNew { from, to } => {
                let (old, new) = (self.end(from)?, self.end(to)?);
                old.id.ok_or(Errno::NOENT)?;
                match new.id {
                    Some(_) => Err(Errno::EXIST),
                    None => self.rename(from, to),
                }
            }
            Op::Whiteout { from, to } => self.whiteout(from, to),
            Op::Exchange { from, to } => self.exchange(from, to),
            Op::Temporary { path, mode } => {
                self.make(path, Inode::new(Kind::File { size: 0 }, *mode))
            }
            Op::Write { path, offset, len } => self.write(path, *offset, *len),
            Op::Allocate {
                path,
                offset,
                len,
                keep,
            } => self.allocate(path, *offset, *len, *keep),
            Op::Zero {
                path, offset, len, ..
            } => self.zero(path, *offset, *len),
            Op::Shift {
                path,
                offset,
                len,
                insert,
            } => self.shift(path, *offset, *len, *insert),
            Op::Truncate { path, size } => self.truncate(path, *size),
            Op::Chmod { path, mode } => self.set(path, |inode| {
                if matches!(inode.kind, Kind::Symlink(_)) {
                    return Err(Errno::OPNOTSUPP);
                }
                inode.mode = *mode;
                Ok(())
            }),
            Op::Chown { path, uid, gid } => self.set(path, |inode| {
                (inode.uid, inode.gid) = (*uid, *gid);
                Ok(())
            }),
            Op::Utimens { path, mtime } => self.set(path, |inode| {
                inode.mtime = Some(*mtime);
                Ok(())
            }),
            Op::SetXattr { path, name, len } => self.set(path, |inode| {
                inode.check_user_xattrs()?;
                inode.xattrs.insert(name.clone(), *len);
                Ok(())
            }),
            Op::RemoveXattr { path, name } => self.set(path, |inode| {
                inode.check_user_xattrs()?;
                inode.xattrs.remove(name).map(drop).ok_or(Errno::NODATA)
            }),
            Op::NoDump { path, on } => {
                let id = self.openable(path)?;
                if self.inode(id).no_dump == *on {
                    Ok(Effect::default())
                } else {
                    self.set(path, |inode| {
                        inode.no_dump = *on;
                        Ok(())
                    })
                }
            }
            Op::Inherit { path, on } => self.hand_down(path, *on),
            Op::Fsync { path } | Op::Fdatasync { path } => {
                let id = self.openable(path)?;
                Ok(Effect {
                    synced: Some(id),
                    ..Effect::default()
                })
            }
            Op::Syncfs => Ok(Effect::default()),
        }
    }

    fn inode_mut(&mut self, id: Id) -> &mut Inode {
        Arc::make_mut(self.inodes.get_mut(&id).expect("an inode in use"))
    }

    fn entries(&self, id: Id) -> Result<&BTreeMap<String, Id>, Errno> {
        match &self.inode(id).kind {
            Kind::Directory(entries) => Ok(entries),
            _ => Err(Errno::NOTDIR),
        }
    }

    fn entries_mut(&mut self, id: Id) -> &mut BTreeMap<String, Id> {
        let inode = self.inode_mut(id);
        inode.mtime = None;
        match &mut inode.kind {
            Kind::Directory(entries) => entries,
            _ => unreachable!("a directory"),
        }
    }

    fn is_directory(&self, id: Id) -> bool {
        matches!(self.inode(id).kind, Kind::Directory(_))
    }

    /// The inode at the end of `path`; the empty path is the root.
    pub(super) fn find(&self, path: &str) -> Result<Id, Errno> {
        if path.is_empty() {
            return Ok(ROOT);
        }
        self.place(path)?.id.ok_or(Errno::NOENT)
    }

    fn place(&self, path: &str) -> Result<Place, Errno> {
        let (parents, name) = path.rsplit_once('/').unwrap_or(("", path));
        let mut dir = ROOT;
        for part in parents.split('/').filter(|part| !part.is_empty()) {
            dir = *self.entries(dir)?.get(part).ok_or(Errno::NOENT)?;
            // Symlinks of the model lead nowhere.
            if matches!(self.inode(dir).kind, Kind::Symlink(_)) {
                return Err(Errno::NOENT);
            }
        }
        let entries = self.entries(dir)?;
        if name.len() > NAME_MAX {
            return Err(Errno::NAMETOOLONG);
        }
        Ok(Place {
            dir,
            name: name.to_owned(),
            id: entries.get(name).copied(),
        })
    }

    /// What can be opened without following links: a file or a directory.
    fn openable(&self, path: &str) -> Result<Id, Errno> {
        let id = self.find(path)?;
        match self.inode(id).kind {
            Kind::Symlink(_) => Err(Errno::LOOP),
            Kind::Node(_) => Err(Errno::NXIO),
            Kind::Directory(_) | Kind::File { .. } => Ok(id),
        }
    }

    fn hand_down(&mut self, path: &str, on: bool) -> Result<Effect, Errno> {
        let id = self.find(path)?;
        let inode = self.inode(id);
        match inode.kind {
            Kind::Symlink(_) => Err(Errno::OPNOTSUPP),
            // There can be none to remove.
            Kind::File { .. } | Kind::Node(_) if !on => Ok(Effect::default()),
            Kind::File { .. } | Kind::Node(_) => Err(Errno::ACCESS),
            Kind::Directory(_) if !on && !inode.hands_down => Ok(Effect::default()),
            Kind::Directory(_) => self.set(path, |inode| {
                inode.hands_down = on;
                Ok(())
            }),
        }
    }

    fn make(&mut self, path: &str, mut inode: Inode) -> Result<Effect, Errno> {
        let place = self.place(path)?;
        if place.id.is_some() || path.is_empty() {
            return Err(Errno::EXIST);
        }
        let parent = self.inode(place.dir);
        inode.no_dump = parent.no_dump;
        if parent.hands_down && !matches!(inode.kind, Kind::Symlink(_)) {
            inode.listed = true;
            inode.hands_down = matches!(inode.kind, Kind::Directory(_));
            inode.mode = inherited_mode(inode.mode);
        }
        if matches!(inode.kind, Kind::Directory(_)) {
            let parent = self.inode_mut(place.dir);
            if parent.links >= LINK_MAX {
                return Err(Errno::MLINK);
            }
            parent.links += 1;
        }
        let id = self.next;
        self.next += 1;
        self.inodes.insert(id, Arc::new(inode));
        self.entries_mut(place.dir).insert(place.name, id);
        Ok(Effect {
            touched: vec![place.dir, id],
            resized: vec![place.dir, id],
            ..Effect::default()
        })
    }

    fn link(&mut self, from: &str, to: &str) -> Result<Effect, Errno> {
        let id = self.find(from)?;
        let place = self.place(to)?;
        if place.id.is_some() || to.is_empty() {
            return Err(Errno::EXIST);
        }
        if self.is_directory(id) {
            return Err(Errno::PERM);
        }
        let inode = self.inode_mut(id);
        if inode.links >= LINK_MAX {
            return Err(Errno::MLINK);
        }
        inode.links += 1;
        self.entries_mut(place.dir).insert(place.name, id);
        Ok(Effect {
            touched: vec![place.dir, id],
            resized: vec![place.dir],
            ..Effect::default()
        })
    }

    fn unlink(&mut self, path: &str) -> Result<Effect, Errno> {
        let place = self.place(path)?;
        let id = place.id.ok_or(Errno::NOENT)?;
        if self.is_directory(id) {
            return Err(Errno::ISDIR);
        }
        self.entries_mut(place.dir).remove(&place.name);
        self.drop_name(id);
        Ok(Effect {
            touched: vec![place.dir, id],
            resized: vec![place.dir],
            ..Effect::default()
        })
    }

    /// Takes one name from an inode that is no directory; the last takes it away.
    fn drop_name(&mut self, id: Id) {
        let inode = self.inode_mut(id);
        inode.links -= 1;
        if inode.links == 0 {
            self.inodes.remove(&id);
        }
    }

    fn rmdir(&mut self, path: &str) -> Result<Effect, Errno> {
        if path.is_empty() {
            return Err(Errno::BUSY);
        }
        let place = self.place(path)?;
        let id = place.id.ok_or(Errno::NOENT)?;
        if !self.entries(id)?.is_empty() {
            return Err(Errno::NOTEMPTY);
        }
        self.entries_mut(place.dir).remove(&place.name);
        self.inode_mut(place.dir).links -= 1;
        self.inodes.remove(&id);
        Ok(Effect {
            touched: vec![place.dir, id],
            resized: vec![place.dir],
            ..Effect::default()
        })
    }

    /// Whether `below` is `above` or lies inside it.
    fn is_inside(&self, below: Id, above: Id) -> bool {
        below == above
            || self.entries(above).is_ok_and(|entries| {
                let mut children = entries.values();
                children.any(|child| self.is_inside(below, *child))
            })
    }

    fn rename(&mut self, from: &str, to: &str) -> Result<Effect, Errno> {
        if from.is_empty() || to.is_empty() {
            return Err(Errno::BUSY);
        }
        let (old, new) = (self.place(from)?, self.place(to)?);
        let id = old.id.ok_or(Errno::NOENT)?;
        if self.is_inside(new.dir, id) {
            return Err(Errno::INVAL);
        }
        let moves_directory = self.is_directory(id);
        let mut touched = vec![old.dir, new.dir, id];
        if let Some(target) = new.id {
            // A directory that holds what is renamed.
            if self.is_inside(old.dir, target) {
                return Err(Errno::NOTEMPTY);
            }
            if target == id {
                return Ok(Effect::default());
            }
            match &self.inode(target).kind {
                Kind::Directory(entries) => {
                    if !moves_directory {
                        return Err(Errno::ISDIR);
                    }
                    if !entries.is_empty() {
                        return Err(Errno::NOTEMPTY);
                    }
                    self.inode_mut(new.dir).links -= 1;
                    self.inodes.remove(&target);
                }
                _ if moves_directory => return Err(Errno::NOTDIR),
                _ => self.drop_name(target),
            }
            touched.push(target);
        }
        if moves_directory && old.dir != new.dir {
            if new.id.is_none() && self.inode(new.dir).links >= LINK_MAX {
                return Err(Errno::MLINK);
            }
            self.inode_mut(new.dir).links += 1;
            self.inode_mut(old.dir).links -= 1;
        }
        self.entries_mut(old.dir).remove(&old.name);
        self.entries_mut(new.dir).insert(new.name, id);
        Ok(Effect {
            resized: vec![old.dir, new.dir],
            touched,
            ..Effect::default()
        })
    }

    /// The end of a path that may be moved.
    fn end(&self, path: &str) -> Result<Place, Errno> {
        if path.is_empty() {
            Err(Errno::BUSY)
        } else {
            self.place(path)
        }
    }

    fn whiteout(&mut self, from: &str, to: &str) -> Result<Effect, Errno> {
        let mut effect = self.rename(from, to)?;
        // Two names of one file stay as they are.
        if !effect.touched.is_empty() {
            let left = self.make(from, Inode::new(Kind::Node(Node::WHITEOUT), 0))?;
            effect.touched.extend(left.touched);
            effect.resized.extend(left.resized);
        }
        Ok(effect)
    }

    /// Takes note that the directory of `from` may have been changed just now, as `from` could not
    /// be moved to `to` with a whiteout in its place. Where ext4 itself finds why not (the
    /// directory in the way is not empty, no space), it puts the name back, and that sets the
    /// directory's times (`ext4_rename` and `ext4_resetent` in Linux, `fs/ext4/namei.c`). Of what
    /// the VFS refuses it hears nothing.
    pub(super) fn touch_refused_whiteout(&mut self, from: &str, to: &str) {
        let (Ok(old), Ok(new)) = (self.end(from), self.end(to)) else {
            return;
        };
        let is_seen = old.id.is_some_and(|id| !self.is_inside(new.dir, id))
            && new.id.is_none_or(|target| !self.is_inside(old.dir, target));
        if is_seen {
            self.inode_mut(old.dir).mtime = None;
        }
    }

    fn exchange(&mut self, from: &str, to: &str) -> Result<Effect, Errno> {
        let (old, new) = (self.end(from)?, self.end(to)?);
        let id = old.id.ok_or(Errno::NOENT)?;
        let target = new.id.ok_or(Errno::NOENT)?;
        if self.is_inside(new.dir, id) || self.is_inside(old.dir, target) {
            return Err(Errno::INVAL);
        }
        if id == target {
            return Ok(Effect::default());
        }
        for (moved, leaves, enters) in [(id, old.dir, new.dir), (target, new.dir, old.dir)] {
            if self.is_directory(moved) {
                self.inode_mut(leaves).links -= 1;
                self.inode_mut(enters).links += 1;
            }
        }
        self.entries_mut(old.dir).insert(old.name, target);
        self.entries_mut(new.dir).insert(new.name, id);
        Ok(Effect {
            touched: vec![old.dir, new.dir, id, target],
            resized: vec![old.dir, new.dir],
            ..Effect::default()
        })
    }

    fn file_mut(&mut self, path: &str) -> Result<(Id, &mut Inode), Errno> {
        let id = self.find(path)?;
        match self.inode(id).kind {
            Kind::Directory(_) => Err(Errno::ISDIR),
            Kind::Symlink(_) => Err(Errno::LOOP),
            Kind::Node(_) => Err(Errno::NXIO),
            Kind::File { .. } => Ok((id, self.inode_mut(id))),
        }
    }

    fn write(&mut self, path: &str, offset: u64, len: u64) -> Result<Effect, Errno> {
        let (id, inode) = self.file_mut(path)?;
        if len == 0 {
            return Ok(Effect::default());
        }
        inode.mtime = None;
        let mut touched = Vec::new();
        if let Kind::File { size } = &mut inode.kind
            && offset + len > *size
        {
            *size = offset + len;
            touched.push(id);
        }
        Ok(Effect {
            resized: touched.clone(),
            touched,
            data: Some((id, DataChange::Write { offset, len })),
            ..Effect::default()
        })
    }

    fn allocate(&mut self, path: &str, offset: u64, len: u64, keep: bool) -> Result<Effect, Errno> {
        let (id, inode) = self.file_mut(path)?;
        if len == 0 {
            return Err(Errno::INVAL);
        }
        inode.mtime = None;
        let mut effect = Effect::default();
        if let Kind::File { size } = &mut inode.kind
            && !keep
            && offset + len > *size
        {
            *size = offset + len;
            effect.touched.push(id);
            effect.resized.push(id);
            effect.data = Some((id, DataChange::Extend { size: *size }));
        }
        Ok(effect)
    }

    /// Takes note that the file at `path`, if there is one, may have been changed just now.
    pub(super) fn touch(&mut self, path: &str) -> Option<Id> {
        let (id, inode) = self.file_mut(path).ok()?;
        inode.mtime = None;
        Some(id)
    }

    fn zero(&mut self, path: &str, offset: u64, len: u64) -> Result<Effect, Errno> {
        let (id, inode) = self.file_mut(path)?;
        if len == 0 {
            return Err(Errno::INVAL);
        }
        inode.mtime = None;
        Ok(Effect {
            data: Some((
                id,
                DataChange::Zero {
                    offset,
                    len,
                    all: true,
                },
            )),
            ..Effect::default()
        })
    }

    fn shift(&mut self, path: &str, offset: u64, len: u64, insert: bool) -> Result<Effect, Errno> {
        let (id, inode) = self.file_mut(path)?;
        let Kind::File { size } = &mut inode.kind else {
            unreachable!("a file");
        };
        let is_outside = if insert {
            offset >= *size
        } else {
            offset + len >= *size
        };
        if len == 0 || is_outside {
            return Err(Errno::INVAL);
        }
        *size = if insert { *size + len } else { *size - len };
        let shift = Shift {
            offset,
            len,
            insert,
            size: *size,
            whole: false,
        };
        inode.mtime = None;
        Ok(Effect {
            touched: vec![id],
            resized: vec![id],
            data: Some((id, DataChange::Shift(shift))),
            ..Effect::default()
        })
    }

    fn truncate(&mut self, path: &str, size: u64) -> Result<Effect, Errno> {
        let (id, inode) = self.file_mut(path)?;
        inode.mtime = None;
        let mut touched = Vec::new();
        if inode.kind != (Kind::File { size }) {
            inode.kind = Kind::File { size };
            touched.push(id);
        }
        Ok(Effect {
            resized: touched.clone(),
            touched,
            data: Some((id, DataChange::Cut { size })),
            ..Effect::default()
        })
    }

    fn set(
        &mut self,
        path: &str,
        change: impl FnOnce(&mut Inode) -> Result<(), Errno>,
    ) -> Result<Effect, Errno> {
        let id = self.find(path)?;
        change(self.inode_mut(id))?;
        Ok(Effect {
            touched: vec![id],
            ..Effect::default()
        })
    }
}

//! Puts members into the tree, as extracting them one after the other would.
//!
//! | module | owns |
//! |---|---|
//! | `whiteouts` | what a layer takes away from those below it |
//! | `graft` | directories over what other sources hold |

use std::collections::{HashMap, HashSet};

use super::super::Whiteouts;
use super::super::base::Base;
use super::super::builder::{Content, Meta, Stored, TreeBuilder};
use super::super::directory::is_storable;
use super::super::error::SourceResult;
use super::super::exclude::Excludes;
use super::super::model::{DataExtent, FileType, NodeId, Times, Timestamp};
use super::super::rows::Origin;
use super::super::walk::{Names, Step, Walk, end_of, not_a_directory, parts, split_last};
use super::acl;
use super::header::Kind;
use super::{Checked, Member, Problem};
use whiteouts::Removed;

mod graft;
mod whiteouts;

/// Permission bits of a directory that the archive has files in but does not describe.
const IMPLIED_MODE: u16 = 0o755;

/// A hard link whose target has not come yet.
struct Pending {
    offset: u64,
    path: Vec<u8>,
    target: Vec<u8>,
    time: Timestamp,
}

/// What an archive is put over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super) enum Below {
    /// It is all there is.
    Nothing,
    /// Other sources, of which whiteouts take something away.
    Layers(Whiteouts),
}

/// The tree as far as the sources have been read.
pub(in super::super) struct Assembly<'a> {
    builder: TreeBuilder,
    excludes: &'a Excludes,
    below: Below,
    /// Excluded files by path: a hard link may bring one back under another name.
    excluded: HashMap<Vec<u8>, NodeId>,
    pending: Vec<Pending>,
    /// Directories no member has described yet.
    implied: HashSet<NodeId>,
    newest: Option<Timestamp>,
    removed: Removed,
}

impl<'a> Assembly<'a> {
    /// Begins with nothing, or with the file system that is there.
    pub(in super::super) fn new(
        excludes: &'a Excludes,
        below: Below,
        base: Option<Box<dyn Base>>,
    ) -> SourceResult<Self> {
        let is_bare = base.is_none();
        let builder = match base {
            None => TreeBuilder::new(Meta::plain(IMPLIED_MODE, Times::default()))?,
            Some(base) => TreeBuilder::over(base)?,
        };
        Ok(Self {
            builder,
            excludes,
            below,
            excluded: HashMap::new(),
            pending: Vec::new(),
            implied: is_bare.then_some(NodeId::ROOT).into_iter().collect(),
            newest: None,
            removed: Removed::default(),
        })
    }

    /// Begins the next source; its data is at this place of the list of all.
    pub(in super::super) fn begin(&mut self, source: u32) {
        self.builder.set_source(source);
    }

    /// Adds a regular file of this size with its data at `extents`.
    pub(super) fn add_file(
        &mut self,
        member: &Member,
        size: u64,
        extents: &[DataExtent],
    ) -> Checked<()> {
        let at = extents.first().map_or(0, |e| e.at);
        let content = Content::Stored(Stored {
            size,
            origin: Origin::Archive { at },
            extents: Some(extents),
        });
        self.add(member, content)
    }

    /// Adds a member that is not a regular file.
    pub(super) fn add_other(&mut self, member: &Member) -> Checked<()> {
        match member.header.kind {
            Kind::HardLink => self.add_hard_link(member),
            Kind::Symlink if member.link.contains(&0) => {
                Err("symbolic link target with a NUL byte in it".into())
            }
            Kind::Symlink => self.add(member, Content::Symlink(&member.link)),
            Kind::Directory | Kind::DumpDirectory => self.add_directory(member),
            Kind::Fifo => self.add(member, Content::Fifo),
            Kind::CharDevice => self.add_device(member, FileType::CharDevice),
            Kind::BlockDevice => self.add_device(member, FileType::BlockDevice),
            Kind::Regular
            | Kind::Unknown(_)
            | Kind::OldSparse
            | Kind::Extension(_)
            | Kind::Label => Ok(()),
        }
    }

    /// Ends an archive. A pending hard link whose target never came is an error, with the place of
    /// the link.
    pub(super) fn end_archive(&mut self) -> Result<(), (u64, Vec<u8>, Problem)> {
        // Of lower layers what this one takes away counts too: it may have another name since.
        self.removed.may_be_found(true);
        for link in std::mem::take(&mut self.pending) {
            let result = self.resolve(&link).and_then(|target| match target {
                Some(target) => self.name(&link.path, target, link.time),
                None if link.path == link.target => {
                    Err("hard link to itself, and no file of that name is in the archive".into())
                }
                None => {
                    let target = String::from_utf8_lossy(&link.target);
                    Err(format!("hard link to {target:?}, which is not in the archive").into())
                }
            });
            result.map_err(|problem| (link.offset, link.path, problem))?;
        }
        self.removed.forget();
        Ok(())
    }

    /// What all sources hold together.
    pub(in super::super) fn finish(mut self) -> SourceResult<TreeBuilder> {
        if self.implied.contains(&NodeId::ROOT) {
            let time = self.newest.unwrap_or_default();
            let root = Meta::plain(IMPLIED_MODE, Times::all(time));
            self.builder.set_meta(NodeId::ROOT, root)?;
        }
        self.mark_opaque()?;
        Ok(self.builder)
    }

    fn add_device(&mut self, member: &Member, kind: FileType) -> Checked<()> {
        let number = |field, n: u64| {
            u32::try_from(n).map_err(|_| format!("{field} number {n} of a device does not fit"))
        };
        let (major, minor) = member.header.device;
        let major = number("major", member.pax.device_major.unwrap_or(major))?;
        let minor = number("minor", member.pax.device_minor.unwrap_or(minor))?;
        self.add(member, Content::Device { kind, major, minor })
    }

    fn add(&mut self, member: &Member, content: Content<'_>) -> Checked<()> {
        let path = clean(&member.path)?;
        if path.is_empty() {
            return Err("names the root, but is not a directory".into());
        }
        let meta = meta_of(member)?;
        let time = meta.times.mtime();
        if self.is_excluded(&path, false) {
            let node = self.builder.add(meta, content)?;
            self.excluded.insert(path, node);
            return Ok(());
        }
        if self.passes_over(&path)? {
            return Ok(());
        }
        let node = self.builder.add(meta, content)?;
        self.name(&path, node, time)
    }

    fn add_directory(&mut self, member: &Member) -> Checked<()> {
        let path = clean(&member.path)?;
        let meta = meta_of(member)?;
        let time = meta.times.mtime();
        if self.is_excluded(&path, true) {
            return Ok(());
        }
        if self.passes_over(&path)? {
            return Ok(());
        }
        self.newest = self.newest.max(Some(time));
        let (parent, name) = self.parent_of(&path, time)?;
        let node = match name {
            None => NodeId::ROOT,
            Some(name) => match self.builder.lookup(parent, name) {
                Some(node) if self.builder.kind(node) == FileType::Directory => node,
                Some(_) => {
                    let node = self.builder.add(meta, Content::Directory)?;
                    self.replace_by_directory(parent, name, node);
                    return Ok(());
                }
                None => {
                    let node = self.builder.add(meta, Content::Directory)?;
                    return Ok(self.builder.link(parent, name, node)?);
                }
            },
        };
        self.implied.remove(&node);
        Ok(self.builder.set_meta(node, meta)?)
    }

    fn add_hard_link(&mut self, member: &Member) -> Checked<()> {
        let link = Pending {
            offset: member.offset,
            path: clean(&member.path)?,
            target: clean(&member.link)?,
            time: meta_of(member)?.times.mtime(),
        };
        let is_excluded = self.is_excluded(&link.path, false);
        if !is_excluded && self.passes_over(&link.path)? {
            return Ok(());
        }
        let target = self.resolve(&link)?;
        if is_excluded {
            if let Some(target) = target {
                self.excluded.insert(link.path, target);
            }
            return Ok(());
        }
        match target {
            // The name is there, and is what it shall be.
            Some(_) if link.path == link.target => Ok(()),
            Some(target) => self.name(&link.path, target, link.time),
            None => {
                self.pending.push(link);
                Ok(())
            }
        }
    }

    /// The node a hard link leads to, if it has come.
    fn resolve(&mut self, link: &Pending) -> Checked<Option<NodeId>> {
        if let Some(&node) = self.excluded.get(&link.target) {
            return Ok(Some(node));
        }
        let (dir, name) = split_last(&link.target);
        let Some(way) = self.way_to(dir, None)? else {
            return Ok(None);
        };
        let node = match name {
            None => NodeId::ROOT,
            Some(name) => match self.lookup(end_of(&way), name) {
                Some(found) => found,
                None => return Ok(None),
            },
        };
        let path = || {
            let names = way.iter().skip(1).map(|(_, name)| &**name);
            let names: Vec<&[u8]> = names.chain(name).collect();
            names.join(&b'/')
        };
        self.builder.keep_source_path(node, path);
        if self.builder.kind(node) == FileType::Directory {
            let target = String::from_utf8_lossy(&link.target);
            return Err(format!("hard link to the directory {target:?}").into());
        }
        Ok(Some(node))
    }

    /// Gives a node that is not a directory its name, in place of what had it.
    fn name(&mut self, path: &[u8], node: NodeId, time: Timestamp) -> Checked<()> {
        self.newest = self.newest.max(Some(time));
        let (parent, name) = self.parent_of(path, time)?;
        let name = name.ok_or("names the root, but is not a directory")?;
        match self.builder.lookup(parent, name) {
            None => Ok(self.builder.link(parent, name, node)?),
            Some(old) => {
                if self.below == Below::Nothing
                    && self.builder.kind(old) == FileType::Directory
                    && self.builder.has_entries(old)
                {
                    return Err("would take the place of a directory that is not empty".into());
                }
                self.builder.relink(parent, name, node);
                Ok(())
            }
        }
    }

    /// The directory of a path, made where the archive has none, and the last name.
    fn parent_of<'p>(
        &mut self,
        path: &'p [u8],
        time: Timestamp,
    ) -> Checked<(NodeId, Option<&'p [u8]>)> {
        let mut parts = parts(path).peekable();
        let mut dir = NodeId::ROOT;
        while let Some(part) = parts.next() {
            if parts.peek().is_none() {
                return Ok((dir, Some(part)));
            }
            dir = match self.builder.lookup(dir, part) {
                Some(node) if self.builder.kind(node) == FileType::Directory => node,
                Some(node) if self.builder.kind(node) == FileType::Symlink => {
                    let (above, name) = split_last(path);
                    let dir = self.directory_at(above, Some(time))?;
                    return Ok((dir.unwrap_or(NodeId::ROOT), name));
                }
                Some(node) if self.is_marker(node) => self.imply(dir, part, time)?,
                Some(_) => return Err(not_a_directory(part).into()),
                None => self.imply(dir, part, time)?,
            };
        }
        Ok((dir, None))
    }

    /// Makes a directory that no member has described yet.
    fn imply(&mut self, parent: NodeId, name: &[u8], time: Timestamp) -> Checked<NodeId> {
        let meta = Meta::plain(IMPLIED_MODE, Times::all(time));
        let node = self.builder.add(meta, Content::Directory)?;
        match self.builder.lookup(parent, name) {
            Some(_) => self.replace_by_directory(parent, name, node),
            None => self.builder.link(parent, name, node)?,
        }
        self.implied.insert(node);
        Ok(node)
    }

    /// The directory at a path, see [`way_to`](Self::way_to).
    fn directory_at(&mut self, path: &[u8], make: Option<Timestamp>) -> Checked<Option<NodeId>> {
        Ok(self.way_to(path, make)?.map(|way| end_of(&way)))
    }

    /// The directories down to that at a path, the root first, through symbolic links, which lead
    /// nowhere outside the tree. What is missing is made with this time; without one, there is none
    /// then.
    fn way_to(&mut self, path: &[u8], make: Option<Timestamp>) -> Checked<Option<Vec<Step>>> {
        let mut walk = Walk::new(path);
        loop {
            let mut sight = Sight {
                assembly: self,
                sees_removed: make.is_none(),
            };
            let Some((name, found)) = walk.go(&mut sight)? else {
                return Ok(Some(walk.into_way()));
            };
            let Some(time) = make else {
                return Ok(None);
            };
            if found.is_some_and(|node| !self.is_marker(node)) {
                return Err(not_a_directory(&name).into());
            }
            let node = self.imply(walk.end(), &name, time)?;
            walk.enter(node, name);
        }
    }

    /// Whether a path or a directory above it is excluded.
    fn is_excluded(&self, path: &[u8], is_dir: bool) -> bool {
        if self.excludes.is_empty() {
            return false;
        }
        let parts: Vec<&[u8]> = parts(path).collect();
        (1..=parts.len()).any(|n| {
            self.excludes
                .excludes(&parts[..n], n < parts.len() || is_dir)
        })
    }
}

/// What a way through the tree meets.
struct Sight<'s, 'a> {
    assembly: &'s mut Assembly<'a>,
    /// Whether it leads through what the layer at hand has taken away, where that may be found.
    sees_removed: bool,
}

impl Names for Sight<'_, '_> {
    fn named(&mut self, dir: NodeId, name: &[u8]) -> Option<NodeId> {
        if self.sees_removed {
            self.assembly.lookup(dir, name)
        } else {
            self.assembly.builder.lookup(dir, name)
        }
    }

    fn kind_of(&self, id: NodeId) -> FileType {
        self.assembly.builder.kind(id)
    }

    fn target_of(&self, id: NodeId) -> &[u8] {
        self.assembly.builder.symlink_target(id).unwrap_or_default()
    }
}

/// A member's path without what does not count: a leading `/`, `.`, empty names.
pub(super) fn clean(path: &[u8]) -> Checked<Vec<u8>> {
    if path.is_empty() {
        return Err("the name is empty".into());
    }
    let mut names = Vec::new();
    for part in parts(path) {
        match part {
            b"." => {}
            b".." => {
                let path = String::from_utf8_lossy(path);
                return Err(format!("{path:?} has .. in it").into());
            }
            name => names.push(name),
        }
    }
    Ok(names.join(&b'/'))
}

fn meta_of(member: &Member) -> Checked<Meta> {
    let (header, pax) = (&member.header, &member.pax);
    let id = |field, n: u64| {
        u32::try_from(n)
            .ok()
            .filter(|&id| id != u32::MAX)
            .ok_or_else(|| format!("{field} is {n}, expected at most {}", u32::MAX - 1))
    };
    let mtime = pax.mtime.unwrap_or(Timestamp::from_secs(header.mtime));
    let xattrs = pax.xattrs.iter().filter(|x| is_storable(&x.name));
    let mut meta = Meta {
        mode: header.mode,
        uid: id("uid", pax.uid.unwrap_or(header.uid))?,
        gid: id("gid", pax.gid.unwrap_or(header.gid))?,
        times: Times::new(
            pax.atime.or(header.atime).unwrap_or(mtime),
            mtime,
            pax.ctime.or(header.ctime).unwrap_or(mtime),
            pax.crtime.unwrap_or(mtime),
        ),
        xattrs: xattrs.cloned().collect(),
        flags: 0,
    };
    reconcile_lists(&mut meta, header.kind);
    Ok(meta)
}

/// Has mode and access control lists agree as Linux does when a list is set: the access list gives
/// the mode its nine bits, its mask those of the group; one that says no more than those is not
/// kept. Symbolic links have no lists, and only directories have one for what is made in them.
fn reconcile_lists(meta: &mut Meta, kind: Kind) {
    let is_directory = matches!(kind, Kind::Directory | Kind::DumpDirectory);
    let is_symlink = kind == Kind::Symlink;
    let mode = &mut meta.mode;
    // Of two lists the later counts, as with any attribute.
    let last = meta.xattrs.iter().rposition(|x| &*x.name == acl::ACCESS);
    let bits = last
        .and_then(|at| acl::mode_of(&meta.xattrs[at].value))
        .filter(|_| !is_symlink);
    if let Some(bits) = bits {
        *mode = *mode & !0o777 | bits.mode;
    }
    meta.xattrs.retain(|x| match &*x.name {
        name if name == acl::ACCESS => !is_symlink && !bits.is_some_and(|bits| bits.minimal),
        name if name == acl::DEFAULT => is_directory,
        _ => true,
    });
}

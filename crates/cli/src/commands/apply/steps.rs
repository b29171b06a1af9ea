//! What is to be made, moved and removed, from a tree over the image.

use super::rules::{Names, Rules};
use crate::commands::cp::into::plan::{Link, Node, Plan, Told};
use crate::failure::{Failure, Outcome};
use crate::image_path::{ImagePath, shown};
use crate::path::look_at_link;
use crate::room;
use crate::size::human;
use extant::{Escaped, FileFlags, FileType, Filesystem, Metadata, Timestamp};
use extant_format::dir::fold_name;
use extant_mkfs::source::{NodeId, Tree};
use std::collections::HashMap;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Bytes of the longest symbolic link that lies in its inode.
const SHORT_LINK: u64 = 59;
/// Where checkers put what they find.
const LOST_AND_FOUND: &[u8] = b"lost+found";
/// The encoding utf8-12.1 (`s_encoding`), and the flag that all names have to be in it.
const UTF8_12_1: u16 = 1;
const STRICT: u16 = 1;
/// How the names of directories of the stage begin that hand down other things than the root.
pub(in crate::commands) const APART: &str = "in-";

/// A directory in which something is made that goes where the same is handed down.
pub(in crate::commands) struct Workshop {
    pub(in crate::commands) path: PathBuf,
    pub(in crate::commands) rules: Rules,
}

/// Something that is made beside the rest, and goes to its place.
pub(in crate::commands) struct Move {
    pub(in crate::commands) from: PathBuf,
    pub(in crate::commands) to: PathBuf,
    pub(in crate::commands) is_dir: bool,
    pub(in crate::commands) old: Old,
}

/// What had a name before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::commands) enum Old {
    Nothing,
    File,
    Directory,
}

/// A name that is taken away.
pub(in crate::commands) struct Removal {
    pub(in crate::commands) path: PathBuf,
    pub(in crate::commands) is_dir: bool,
}

/// A directory that is there and whose names change, of which no layer says anything, with the
/// times that it keeps.
pub(in crate::commands) struct Touched {
    pub(in crate::commands) path: PathBuf,
    pub(in crate::commands) accessed: Timestamp,
    pub(in crate::commands) modified: Timestamp,
}

/// What one name is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::commands) enum Change {
    Add,
    Replace,
    Remove,
    /// A directory that is there gets other owners, permissions, times or attributes.
    Describe,
}

impl Change {
    pub(in crate::commands) const fn word(self) -> &'static str {
        match self {
            Self::Add => "add",
            Self::Replace => "replace",
            Self::Remove => "remove",
            Self::Describe => "set",
        }
    }
}

/// How many of each.
pub(in crate::commands) struct Counts {
    pub(in crate::commands) made: u64,
    pub(in crate::commands) replaced: u64,
    pub(in crate::commands) removed: u64,
    pub(in crate::commands) described: u64,
    pub(in crate::commands) bytes: u64,
}

pub(in crate::commands) struct Steps {
    /// Where that is done: in the stage, which has the rules of the root, and in directories of it.
    pub(in crate::commands) workshops: Vec<Workshop>,
    /// What is made beside the rest.
    pub(in crate::commands) staged: Plan<'static>,
    pub(in crate::commands) moves: Vec<Move>,
    pub(in crate::commands) removals: Vec<Removal>,
    /// Directories that are there and get what a layer says of them.
    pub(in crate::commands) described: Plan<'static>,
    pub(in crate::commands) touched: Vec<Touched>,
    /// Blocks that what is made takes at least.
    blocks: u64,
}

impl Steps {
    /// Nothing to do so far, in a stage that has the rules of the directory that it is made in.
    pub(in crate::commands) fn begin(stage: &Path, rules: Rules) -> Self {
        let path = stage.to_owned();
        Self {
            workshops: vec![Workshop { path, rules }],
            staged: Plan::of_trees(),
            moves: Vec::new(),
            removals: Vec::new(),
            described: Plan::of_trees(),
            touched: Vec::new(),
            blocks: 0,
        }
    }

    /// Whether there is nothing to do.
    pub(in crate::commands) fn is_empty(&self) -> bool {
        self.moves.is_empty() && self.removals.is_empty() && self.described.dirs.is_empty()
    }

    /// Where what goes into a directory with these rules is made.
    pub(in crate::commands) fn workshop(&mut self, stage: &Path, rules: Rules) -> &Path {
        let workshops = &mut self.workshops;
        let there = workshops.iter().position(|one| one.rules == rules);
        let number = there.unwrap_or_else(|| {
            let number = workshops.len();
            let path = stage.join(format!("{APART}{number}"));
            workshops.push(Workshop { path, rules });
            self.blocks += 1;
            number
        });
        &workshops[number].path
    }

    /// Compares a tree with what is there; `root` is the directory of the image that it lies over,
    /// and `stage` one that is not there yet.
    pub(in crate::commands) fn new(
        fs: &Filesystem,
        image: &ImagePath,
        tree: Tree,
        root: &Path,
        stage: &Path,
    ) -> Outcome<Self> {
        let mut removed: HashMap<NodeId, Vec<Box<[u8]>>> = HashMap::new();
        for (dir, name) in tree.removed() {
            removed.entry(dir).or_default().push(Box::from(name));
        }
        let block = room::block_size(fs).map_err(|e| image.failure(&e))?;
        let top = fs.symlink_metadata(root).map_err(|e| image.failure(&e))?;
        let mut planner = Planner {
            fs,
            image,
            tree: Arc::new(tree),
            root,
            stage,
            block,
            removed,
            placed: HashMap::new(),
            steps: Self::begin(stage, Rules::of(&top)),
        };
        planner.walk()?;
        Ok(planner.steps)
    }

    pub(in crate::commands) fn counts(&self) -> Counts {
        let Plan {
            dirs, files, links, ..
        } = &self.staged;
        let replaced = self.moves.iter().filter(|one| one.old != Old::Nothing);
        Counts {
            made: (dirs.len() + files.len() + links.len()) as u64,
            replaced: replaced.count() as u64,
            removed: self.removals.len() as u64,
            described: self.described.dirs.len() as u64,
            bytes: self.staged.bytes,
        }
    }

    /// All that changes, each with the topmost name that it is about.
    pub(in crate::commands) fn changes(&self) -> impl Iterator<Item = (Change, &Path)> {
        let described = self.described.dirs.iter();
        let described = described.map(|node| (Change::Describe, node.place()));
        let moved = self.moves.iter().map(|one| {
            let change = match one.old {
                Old::Nothing => Change::Add,
                Old::File | Old::Directory => Change::Replace,
            };
            (change, &*one.to)
        });
        let removed = self.removals.iter();
        let removed = removed.map(|one| (Change::Remove, &*one.path));
        removed.chain(moved).chain(described)
    }

    /// Refuses what there is no room for, as far as that can be told.
    pub(in crate::commands) fn fit(&self, fs: &Filesystem, image: &ImagePath) -> Outcome {
        self.fit_blocks(fs, image, self.blocks, "what the layers bring")
    }

    /// Refuses what has so many blocks, at least, and `brings` them, if there is no room for it.
    pub(in crate::commands) fn fit_blocks(
        &self,
        fs: &Filesystem,
        image: &ImagePath,
        blocks: u64,
        brings: &str,
    ) -> Outcome {
        let failed = |e: extant::Error| image.failure(&e);
        let space = fs.statfs().map_err(failed)?;
        let bytes = |blocks: u64| {
            let block = u64::from(space.block_size.bytes());
            human(blocks.saturating_mul(block))
        };
        let inodes = (self.staged.dirs.len() + self.staged.files.len()) as u64;
        let problem = if blocks > space.available_to_root {
            format!(
                "{brings} takes {} and more, and {} are free",
                bytes(blocks),
                bytes(space.available_to_root)
            )
        } else if inodes > space.free_inodes {
            format!(
                "{brings} takes {inodes} inodes, and {} are free",
                space.free_inodes
            )
        } else {
            return Ok(());
        };
        Err(Failure::new(format!(
            "{}: {problem}, while what it replaces is still there. Nothing was changed; make room \
             with `extant rm` or `extant resize`",
            shown(&image.image)
        )))
    }
}

/// Why no name can be changed in a directory, if so.
pub(in crate::commands) fn why_closed(fs: &Filesystem, found: &Metadata) -> Option<&'static str> {
    let flags = FileFlags::from_bits_retain(found.flags());
    if flags.contains(FileFlags::ENCRYPT) {
        return Some("is encrypted, and takes no new names without its key");
    }
    let encoding = fs.engine().superblock().encoding();
    let is_foreign = encoding.is_none_or(|(which, _)| which != UTF8_12_1);
    (flags.contains(FileFlags::CASEFOLD) && is_foreign)
        .then_some("ignores case by another encoding than utf8-12.1, which is only read")
}

struct Planner<'a> {
    fs: &'a Filesystem,
    image: &'a ImagePath,
    tree: Arc<Tree>,
    root: &'a Path,
    stage: &'a Path,
    block: u64,
    removed: HashMap<NodeId, Vec<Box<[u8]>>>,
    /// Where files with several names are made.
    placed: HashMap<NodeId, PathBuf>,
    steps: Steps,
}

impl Planner<'_> {
    /// Goes through the directories that are there and in the tree.
    fn walk(&mut self) -> Outcome {
        let mut open = vec![(NodeId::ROOT, self.root.to_owned())];
        while let Some((dir, at)) = open.pop() {
            let tree = Arc::clone(&self.tree);
            let found = self.fs.symlink_metadata(&at);
            let found = found.map_err(|e| self.image.failure(&e))?;
            let rules = Rules::of(&found);
            let mut names = Names::new(rules.ignores_case());
            let mut changed = 0;
            for (name, child) in tree.children(dir) {
                let to = at.join(OsStr::from_bytes(name));
                if !names.is_new(name) {
                    return Err(self.one_name(&to));
                }
                let old = look_at_link(self.fs, &to).map_err(|e| self.image.failure(&e))?;
                let there = tree.there(child);
                let is_it = |old: &Metadata| {
                    there.is_some_and(|there| there.number == u64::from(old.ino()))
                };
                if old.as_ref().is_some_and(is_it) {
                    if tree.node(child).is_dir() {
                        open.push((child, to));
                    }
                    continue;
                }
                self.check_name(&names, dir, name, child, &to)?;
                self.put(child, to, old.as_ref(), rules)?;
                changed += 1;
            }
            for name in self.removed.remove(&dir).unwrap_or_default() {
                let path = at.join(OsStr::from_bytes(&name));
                // What has the name, or one that is the same here, takes the place of what had it.
                if tree.child(dir, &name).is_some() || !names.is_new(&name) {
                    continue;
                }
                let old = look_at_link(self.fs, &path).map_err(|e| self.image.failure(&e))?;
                if let Some(old) = old {
                    self.refuse_fixed_below(&path, &old)?;
                    let is_dir = old.is_dir();
                    self.steps.removals.push(Removal { path, is_dir });
                    changed += 1;
                }
            }
            self.note_directory(dir, at, &found, changed > 0)?;
        }
        Ok(())
    }

    /// Refuses names that a new file cannot have where it goes.
    fn check_name(
        &self,
        names: &Names,
        dir: NodeId,
        name: &[u8],
        child: NodeId,
        to: &Path,
    ) -> Outcome {
        let is_in_root = dir == NodeId::ROOT;
        let stage = self.stage.file_name().unwrap_or_default();
        if is_in_root && names.is(name, stage.as_bytes()) {
            return Err(self.refused(to, "is a name that `extant apply` uses itself"));
        }
        let is_lost_and_found =
            is_in_root && self.root == Path::new("/") && names.is(name, LOST_AND_FOUND);
        if is_lost_and_found && !self.tree.node(child).is_dir() {
            return Err(self.refused(
                to,
                "is where checkers put what they find, and has to be a directory: leave it out \
                 with --exclude lost+found",
            ));
        }
        if names.ignore_case() && fold_name(name).is_none() {
            let encoding = self.fs.engine().superblock().encoding();
            if encoding.is_some_and(|(_, flags)| flags & STRICT != 0) {
                return Err(self.refused(
                    to,
                    "is not UTF-8, which the names of directories that ignore case have to be in \
                     this file system",
                ));
            }
        }
        Ok(())
    }

    /// Notes what becomes of a directory that is there.
    fn note_directory(
        &mut self,
        dir: NodeId,
        at: PathBuf,
        found: &Metadata,
        has_changes: bool,
    ) -> Outcome {
        let there = self.tree.there(dir);
        let is_described = there.is_some_and(|there| there.is_described);
        if has_changes || is_described {
            self.refuse_fixed(&at, found)?;
        }
        if has_changes {
            self.refuse_closed(&at, found)?;
        }
        // The root has the stage in it for a while.
        if !is_described && (has_changes || dir == NodeId::ROOT) {
            let times = self.tree.node(dir).times;
            self.steps.touched.push(Touched {
                path: at.clone(),
                accessed: times.atime(),
                modified: times.mtime(),
            });
        }
        if is_described {
            let tree = Arc::clone(&self.tree);
            let node = Node::of_tree(Told { tree, id: dir }, at, None);
            self.steps.described.dirs.push(node);
        }
        Ok(())
    }

    /// Plans something new with this name, in a directory with these rules.
    fn put(&mut self, id: NodeId, to: PathBuf, old: Option<&Metadata>, rules: Rules) -> Outcome {
        if let Some(old) = old {
            self.refuse_fixed_below(&to, old)?;
        }
        // A directory that loses all that is in it stays what it was to what comes.
        let kept = old.filter(|old| old.is_dir() && self.tree.node(id).is_dir());
        let kept = kept.map(Rules::of).filter(|kept| rules.let_in(*kept));
        let rules = kept.unwrap_or(rules);
        let number = self.steps.moves.len().to_string();
        let from = self.steps.workshop(self.stage, rules).join(number);
        self.make(id, from.clone(), &to, rules)?;
        self.steps.moves.push(Move {
            from,
            to,
            is_dir: self.tree.node(id).is_dir(),
            old: match old {
                None => Old::Nothing,
                Some(old) if old.is_dir() => Old::Directory,
                Some(_) => Old::File,
            },
        });
        Ok(())
    }

    /// Plans to make a file that goes to `place`, and everything below it, beside the rest.
    fn make(&mut self, id: NodeId, at: PathBuf, place: &Path, rules: Rules) -> Outcome {
        let tree = Arc::clone(&self.tree);
        let plan = &mut self.steps.staged;
        let mut waiting = vec![(id, at.clone(), None)];
        while let Some((id, to, parent)) = waiting.pop() {
            let node = tree.node(id);
            if let Some(there) = tree.there(id) {
                let first = self.root.join(OsStr::from_bytes(there.path));
                plan.links.push(Link {
                    first,
                    to,
                    parent,
                    late: 0,
                });
                continue;
            }
            if let Some(first) = self.placed.get(&id) {
                let first = first.clone();
                plan.links.push(Link {
                    first,
                    to,
                    parent,
                    late: 0,
                });
                continue;
            }
            let told = Told {
                tree: Arc::clone(&tree),
                id,
            };
            let made = Node::of_tree(told, to.clone(), parent);
            if node.is_dir() {
                self.steps.blocks += 1;
                plan.dirs.push(made);
                let number = Some(plan.dirs.len() - 1);
                let mut names = Names::new(rules.ignores_case());
                for (name, child) in tree.children(id).rev() {
                    let to = to.join(OsStr::from_bytes(name));
                    if !names.is_new(name) {
                        let inside = to.strip_prefix(&at).unwrap_or(&to);
                        return Err(self.one_name(&place.join(inside)));
                    }
                    waiting.push((child, to, number));
                }
                continue;
            }
            if node.nlink > 1 {
                self.placed.insert(id, to);
            }
            match node.kind() {
                FileType::Regular => {
                    for run in tree.extents(id) {
                        let end = run.logical.saturating_add(run.len);
                        plan.bytes = plan.bytes.saturating_add(run.len);
                        self.steps.blocks += end.div_ceil(self.block) - run.logical / self.block;
                    }
                }
                FileType::Symlink if node.size > SHORT_LINK => self.steps.blocks += 1,
                _ => {}
            }
            plan.files.push(made);
        }
        Ok(())
    }

    /// Two names of the layers are one.
    fn one_name(&self, path: &Path) -> Failure {
        self.refused(
            path,
            "is the same name as another of the layers, in a directory that ignores case: give one \
             of them another name, or leave it out with --exclude",
        )
    }

    /// Refuses to change what a flag of `chattr` protects.
    fn refuse_fixed(&self, path: &Path, found: &Metadata) -> Outcome {
        let flags = FileFlags::from_bits_retain(found.flags());
        if !flags.intersects(FileFlags::IMMUTABLE | FileFlags::APPEND) {
            return Ok(());
        }
        Err(self.refused(
            path,
            "may not be changed, as its flags say: take these away with `extant chattr -ia`",
        ))
    }

    /// As [`refuse_fixed`](Self::refuse_fixed), of everything that goes with a directory.
    fn refuse_fixed_below(&self, path: &Path, found: &Metadata) -> Outcome {
        self.refuse_fixed(path, found)?;
        if !found.is_dir() {
            return Ok(());
        }
        for entry in self.fs.walk(path).map_err(|e| self.image.failure(&e))? {
            let entry = entry.map_err(|e| self.image.failure(&e))?;
            self.refuse_fixed(entry.path(), &entry.metadata())?;
        }
        Ok(())
    }

    /// Refuses directories in which no name can be changed.
    fn refuse_closed(&self, path: &Path, found: &Metadata) -> Outcome {
        match why_closed(self.fs, found) {
            Some(why) => Err(self.refused(path, why)),
            None => Ok(()),
        }
    }

    fn refused(&self, path: &Path, problem: &str) -> Failure {
        Failure::new(format!(
            "{}:{}: {problem}. Nothing was changed",
            shown(&self.image.image),
            Escaped::path(path)
        ))
    }
}
